//! Clients of a profile's other apiservers.

use std::sync::Arc;

use model::ProfileInfo;

use super::{Ctx, Ground};

impl Ctx {
    /// A worker that sends its requests to another apiserver of the profile.
    pub async fn worker_at(&self, name: &str, apiserver: &str) -> anyhow::Result<Ctx> {
        let ground = Ground {
            cluster: self.ground.cluster.clone(),
            profile: ProfileInfo { apiserver: apiserver.to_owned(), ..self.ground.profile.clone() },
            stores: self.ground.stores.clone(),
            table: Arc::clone(&self.ground.table),
            compared: Arc::clone(&self.ground.compared),
        };
        Ok(Ctx { ground: Arc::new(ground), ..self.worker(name).await? })
    }

    /// The addresses of all apiservers of the profile, this client's first.
    pub fn servers(&self) -> Vec<String> {
        let more = self.profile().apiservers.iter().skip(1);
        std::iter::once(&self.profile().apiserver).chain(more).cloned().collect()
    }
}
