//! Requests outside the case's own namespace.

use anyhow::Context;
use model::Resource;

use super::Ctx;
use crate::object::Object;

impl Ctx {
    /// Like [`Ctx::create`], in another namespace that the case has created. The clean-up removes the object, too.
    pub async fn create_in(&self, namespace: &str, resource: &Resource, object: &Object) -> anyhow::Result<Object> {
        let answer = self.post(resource, namespace, object).await?;
        answer.object().with_context(|| format!("create of {} in {namespace}", object.name()))
    }
}
