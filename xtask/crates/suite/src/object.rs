//! Kubernetes objects as JSON, because checks test their exact form, and the resources that the checks use.

use std::sync::LazyLock;

use model::Resource;
use serde_json::{Value, json};

/// An API object, or JSON in a similar form.
#[derive(Clone, Debug, PartialEq)]
pub struct Object(pub Value);

impl Object {
    /// An object of `resource` with only its type and name.
    pub fn new(resource: &Resource, name: &str) -> Object {
        Object(json!({
            "apiVersion": resource.api_version(),
            "kind": resource.kind,
            "metadata": {"name": name},
        }))
    }

    /// The same object with `value` at a dotted path (`data.k`, `metadata.labels`); missing parents are created.
    pub fn with(mut self, path: &str, value: impl Into<Value>) -> Object {
        let mut place = &mut self.0;
        for step in path.split('.') {
            if !place.is_object() {
                *place = json!({});
            }
            place = &mut place[step];
        }
        *place = value.into();
        self
    }

    /// The same object without the field at a dotted path.
    pub fn without(mut self, path: &str) -> Object {
        let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
        let pointer = if parent.is_empty() { String::new() } else { format!("/{}", parent.replace('.', "/")) };
        if let Some(map) = self.0.pointer_mut(&pointer).and_then(Value::as_object_mut) {
            map.remove(field);
        }
        self
    }

    pub fn name(&self) -> &str {
        self.meta("name")
    }

    pub fn namespace(&self) -> &str {
        self.meta("namespace")
    }

    pub fn uid(&self) -> &str {
        self.meta("uid")
    }

    /// `metadata.resourceVersion` as text; empty if it is absent.
    pub fn rv_text(&self) -> &str {
        self.meta("resourceVersion")
    }

    /// `metadata.resourceVersion`; 0 if it is absent or not a number.
    pub fn rv(&self) -> u64 {
        self.rv_text().parse().unwrap_or(0)
    }

    /// A string field of `metadata`; empty if it is absent.
    pub fn meta(&self, field: &str) -> &str {
        self.0["metadata"][field].as_str().unwrap_or_default()
    }

    /// The condition of this type in the status, if it is true.
    pub fn condition(&self, of_type: &str) -> Option<&Value> {
        let conditions = self.0["status"]["conditions"].as_array();
        conditions.into_iter().flatten().find(|c| c["type"] == of_type && c["status"] == "True")
    }

    /// `items` of a list.
    pub fn items(&self) -> Vec<Object> {
        self.0["items"].as_array().into_iter().flatten().cloned().map(Object).collect()
    }
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Defines the resources that checks use; for historical reasons the store path of some differs from the plural.
macro_rules! resources {
    ($($name:ident = $group:literal $version:literal $plural:literal $kind:literal $scope:ident $stored_at:literal;)*) => {
        $(pub static $name: LazyLock<Resource> = LazyLock::new(|| Resource {
            group: $group.into(),
            version: $version.into(),
            plural: $plural.into(),
            kind: $kind.into(),
            namespaced: stringify!($scope) == "namespaced",
            stored_at: $stored_at.into(),
        });)*
    };
}

resources! {
    NAMESPACES = "" "v1" "namespaces" "Namespace" cluster "namespaces";
    CONFIG_MAPS = "" "v1" "configmaps" "ConfigMap" namespaced "configmaps";
    SECRETS = "" "v1" "secrets" "Secret" namespaced "secrets";
    CONTROLLER_REVISIONS = "apps" "v1" "controllerrevisions" "ControllerRevision" namespaced "controllerrevisions";
    POD_DISRUPTION_BUDGETS = "policy" "v1" "poddisruptionbudgets" "PodDisruptionBudget" namespaced "poddisruptionbudgets";
    STORAGE_CAPACITIES = "storage.k8s.io" "v1" "csistoragecapacities" "CSIStorageCapacity" namespaced "csistoragecapacities";
    ENDPOINT_SLICES = "discovery.k8s.io" "v1" "endpointslices" "EndpointSlice" namespaced "endpointslices";
    SERVICE_ACCOUNTS = "" "v1" "serviceaccounts" "ServiceAccount" namespaced "serviceaccounts";
    SERVICES = "" "v1" "services" "Service" namespaced "services/specs";
    ENDPOINTS = "" "v1" "endpoints" "Endpoints" namespaced "services/endpoints";
    NODES = "" "v1" "nodes" "Node" cluster "minions";
    PODS = "" "v1" "pods" "Pod" namespaced "pods";
    POD_TEMPLATES = "" "v1" "podtemplates" "PodTemplate" namespaced "podtemplates";
    REPLICATION_CONTROLLERS = "" "v1" "replicationcontrollers" "ReplicationController" namespaced "controllers";
    CORE_EVENTS = "" "v1" "events" "Event" namespaced "events";
    EVENTS = "events.k8s.io" "v1" "events" "Event" namespaced "events";
    REPLICA_SETS = "apps" "v1" "replicasets" "ReplicaSet" namespaced "replicasets";
    DEPLOYMENTS = "apps" "v1" "deployments" "Deployment" namespaced "deployments";
    INGRESSES = "networking.k8s.io" "v1" "ingresses" "Ingress" namespaced "ingress";
    ROLES = "rbac.authorization.k8s.io" "v1" "roles" "Role" namespaced "roles";
    LEASES = "coordination.k8s.io" "v1" "leases" "Lease" namespaced "leases";
    AUTOSCALERS = "autoscaling" "v1" "horizontalpodautoscalers" "HorizontalPodAutoscaler" namespaced "horizontalpodautoscalers";
    DEFINITIONS = "apiextensions.k8s.io" "v1" "customresourcedefinitions" "CustomResourceDefinition" cluster "apiextensions.k8s.io/customresourcedefinitions";
    MIGRATIONS = "storagemigration.k8s.io" "v1beta1" "storageversionmigrations" "StorageVersionMigration" cluster "storageversionmigrations";
    API_SERVICES = "apiregistration.k8s.io" "v1" "apiservices" "APIService" cluster "apiregistration.k8s.io/apiservices";
}

/// A ConfigMap with one entry.
pub fn config_map(name: &str) -> Object {
    Object::new(&CONFIG_MAPS, name).with("data.k", "v")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_set_and_removed_by_path() {
        let object = config_map("a").with("metadata.labels", json!({"x": "y"})).with("data.n", "1");
        assert_eq!(object.0["metadata"]["labels"]["x"], "y");
        assert_eq!(object.0["data"], json!({"k": "v", "n": "1"}));
        assert_eq!(object.without("data.k").0["data"], json!({"n": "1"}));
    }
}
