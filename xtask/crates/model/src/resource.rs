//! Kubernetes resources: how the API addresses them and where the store keeps them.

use serde::{Deserialize, Serialize};

/// A served resource together with its place in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resource {
    /// API group; empty for core.
    #[serde(default)]
    pub group: String,
    pub version: String,
    pub plural: String,
    pub kind: String,
    pub namespaced: bool,
    /// Path between the etcd prefix and the namespace or name: `configmaps`, `services/specs`, `example.org/fruits`.
    pub stored_at: String,
}

/// A row of `targets/resources/<minor>.yaml`: the stored form of a resource of that release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredResource {
    pub resource: Resource,
    /// `apiVersion/kind` in the stored value: `v1/Event`, `autoscaling/v2/HorizontalPodAutoscaler`.
    pub stored_as: String,
    /// Name of the object that `stub` makes.
    pub name: String,
    /// The smallest object that the server accepts, as JSON, without apiVersion, kind, name and namespace.
    pub stub: String,
}

/// The resources that a release stores, from `targets/resources/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageTable {
    pub rows: Vec<StoredResource>,
    /// Set if the server's release has no table: what is missing, in words. The rows are then those of another release.
    /// They suit checks of objects that every release serves, but not checks of all resources.
    pub lacks: Option<String>,
}

impl Resource {
    /// The collection's path: `/api/v1/namespaces/x/configmaps`. `namespace` is ignored for cluster-scoped resources.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = self.api_root();
        match namespace {
            Some(ns) if self.namespaced => format!("{root}/namespaces/{ns}/{}", self.plural),
            _ => format!("{root}/{}", self.plural),
        }
    }

    /// `/api/v1` or `/apis/GROUP/VERSION`.
    pub fn api_root(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// The `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The key prefix of all objects, with a trailing slash: `/registry/configmaps/`.
    pub fn key_prefix(&self, etcd_prefix: &str, namespace: Option<&str>) -> String {
        match namespace {
            Some(ns) if self.namespaced => format!("{etcd_prefix}/{}/{ns}/", self.stored_at),
            _ => format!("{etcd_prefix}/{}/", self.stored_at),
        }
    }

    /// The key of one object.
    pub fn key(&self, etcd_prefix: &str, namespace: &str, name: &str) -> String {
        self.key_prefix(etcd_prefix, Some(namespace)) + name
    }
}
