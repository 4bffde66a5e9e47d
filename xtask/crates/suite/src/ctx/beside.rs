//! A second namespace for one case.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::Ctx;
use crate::object::{NAMESPACES, Object};

impl Ctx {
    /// Creates a second namespace, whose name is this client's namespace with `suffix` appended, and returns a client
    /// for it. This client removes the namespace. The caller must first clean up the objects of the returned client.
    pub async fn beside(&self, suffix: &str) -> anyhow::Result<Ctx> {
        let name = format!("{}{suffix}", self.namespace().await?);
        self.create(&NAMESPACES, &Object::new(&NAMESPACES, &name)).await?;
        let other = Ctx::new(Arc::clone(&self.ground), &format!("{}/{name}", self.client), self.seed);
        Ok(Ctx { namespace: OnceCell::new_with(Some(name)), ..other })
    }
}
