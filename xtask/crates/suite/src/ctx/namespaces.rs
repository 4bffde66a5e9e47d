//! Other namespaces than the case's.

use std::sync::Arc;

use anyhow::Context;
use model::Resource;
use tokio::sync::OnceCell;

use super::Ctx;
use crate::object::{NAMESPACES, Object};

impl Ctx {
    /// Creates a second namespace, whose name is this client's namespace with `suffix` appended, and returns a client
    /// for it. This client removes the namespace. The caller must first clean up the objects of the returned client.
    pub async fn second_namespace(&self, suffix: &str) -> anyhow::Result<Ctx> {
        let name = format!("{}{suffix}", self.namespace().await?);
        self.create(&NAMESPACES, &Object::new(&NAMESPACES, &name)).await?;
        let other = Ctx::new(Arc::clone(&self.env), &format!("{}/{name}", self.client), self.seed, self.attempt);
        Ok(Ctx { namespace: OnceCell::new_with(Some(name)), ..other })
    }

    /// Like [`Ctx::create`], in another namespace that the case has created. The clean-up removes the object, too.
    pub async fn create_in(&self, namespace: &str, resource: &Resource, object: &Object) -> anyhow::Result<Object> {
        let answer = self.post(resource, namespace, object).await?;
        answer.object().with_context(|| format!("create of {} in {namespace}", object.name()))
    }
}
