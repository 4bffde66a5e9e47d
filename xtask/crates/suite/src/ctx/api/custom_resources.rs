//! Custom resources of a case.

use std::time::Duration;

use model::Resource;
use serde_json::json;

use super::CaseApi;
use crate::api::Request;
use crate::error::CheckError;
use crate::object::{DEFINITIONS, Object};

impl CaseApi {
    /// Creates a namespaced CRD `<plural>.<group>` with one version v1 that keeps unknown fields, and waits until the
    /// server serves the resource.
    pub async fn define(&self, group: &str, plural: &str, kind: &str) -> Result<Resource, CheckError> {
        let resource = self.define_unrequested(group, plural, kind).await?;
        self.wait_until_served(&resource).await?;
        Ok(resource)
    }

    /// Like [`CaseApi::define`], but sends no request for the resource, so the server has no storage for it yet.
    pub async fn define_unrequested(&self, group: &str, plural: &str, kind: &str) -> Result<Resource, CheckError> {
        let name = format!("{plural}.{group}");
        let definition = Object::new(&DEFINITIONS, &name).with(
            "spec",
            json!({
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }}}],
            }),
        );
        self.create(&DEFINITIONS, &definition).await?;
        Ok(Resource {
            group: group.into(),
            version: "v1".into(),
            plural: plural.into(),
            kind: kind.into(),
            namespaced: true,
            stored_at: format!("{group}/{plural}"),
        })
    }

    /// Waits until the server answers a list of the resource with 200.
    pub async fn wait_until_served(&self, resource: &Resource) -> Result<(), CheckError> {
        let path = resource.path(Some(self.namespace().await?));
        let what = format!("{path} to be served");
        crate::wait::until(&what, self.0.wait_limit(), Duration::from_millis(50), || async {
            let answer = self.send(&Request::get(path.clone())).await?;
            Ok(if answer.is_success() { Ok(()) } else { Err(answer.to_string()) })
        })
        .await
    }
}
