//! Custom resources of a case.

use std::time::Duration;

use model::Resource;
use serde_json::{Value, json};

use super::CaseApi;
use crate::api::Request;
use crate::error::CheckError;
use crate::object::{DEFINITIONS, Object};

/// A served version of a CRD that keeps unknown fields.
pub fn crd_version(name: &str, storage: bool) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"name": name, "served": true, "storage": storage, "schema": schema})
}

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
        self.define_versions(group, (plural, kind), true, &json!([crd_version("v1", true)])).await
    }

    /// Creates a CRD `<plural>.<group>` with these versions, and sends no request for the resource, which is that of the
    /// first version.
    pub async fn define_versions(
        &self,
        group: &str,
        (plural, kind): (&str, &str),
        namespaced: bool,
        versions: &Value,
    ) -> Result<Resource, CheckError> {
        let definition = Object::new(&DEFINITIONS, &format!("{plural}.{group}")).with(
            "spec",
            json!({
                "group": group,
                "scope": if namespaced { "Namespaced" } else { "Cluster" },
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
                "versions": versions,
            }),
        );
        self.create(&DEFINITIONS, &definition).await?;
        Ok(Resource {
            group: group.into(),
            version: versions[0]["name"].as_str().unwrap_or_default().into(),
            plural: plural.into(),
            kind: kind.into(),
            namespaced,
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
