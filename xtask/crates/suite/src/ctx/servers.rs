//! Clients of a profile's other apiservers.

use std::sync::Arc;

use model::ProfileInfo;

use super::{Ctx, ProfileEnv};

impl Ctx {
    /// A worker that sends its requests to another apiserver of the profile.
    pub async fn worker_at(&self, name: &str, apiserver: &str) -> anyhow::Result<Ctx> {
        let env = ProfileEnv {
            cluster: self.env.cluster.clone(),
            profile: ProfileInfo { apiserver: apiserver.to_owned(), ..self.env.profile.clone() },
            stores: self.env.stores.clone(),
            table: Arc::clone(&self.env.table),
            references: Arc::clone(&self.env.references),
        };
        Ok(Ctx { env: Arc::new(env), ..self.worker(name).await? })
    }

    /// The addresses of all apiservers of the profile, this client's first.
    pub fn servers(&self) -> Vec<String> {
        let more = self.profile().apiservers.iter().skip(1);
        std::iter::once(&self.profile().apiserver).chain(more).cloned().collect()
    }
}
