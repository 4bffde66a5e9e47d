//! A second namespace for one case.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::Ctx;
use crate::object::{NAMESPACES, Object};

impl Ctx {
    /// Another client with a namespace of its own, whose name is that of this one's with `suffix` behind it. This one
    /// removes the namespace; what the other one makes in it, the caller has it clean up before.
    pub async fn beside(&self, suffix: &str) -> anyhow::Result<Ctx> {
        let name = format!("{}{suffix}", self.namespace().await?);
        self.create(&NAMESPACES, &Object::new(&NAMESPACES, &name)).await?;
        let other = Ctx::new(Arc::clone(&self.ground), &format!("{}/{name}", self.client), self.seed);
        Ok(Ctx { namespace: OnceCell::new_with(Some(name)), ..other })
    }
}
