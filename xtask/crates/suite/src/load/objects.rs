//! The smallest valid objects of the kinds that a workload can write.

use serde_json::{Value, json};

use crate::object::Object;

/// The object with the fields that its kind requires.
pub(super) fn with_required_fields(object: Object, plural: &str) -> Object {
    required(plural).into_iter().fold(object, |object, (field, value)| object.with(field, value))
}

fn required(plural: &str) -> Vec<(&'static str, Value)> {
    let template = || {
        let container = json!({"name": "c", "image": "example.org/i"});
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}})
    };
    let labels = json!({"a": "b"});
    match plural {
        "controllerrevisions" => vec![("revision", json!(1)), ("data", json!({}))],
        "endpointslices" => vec![("addressType", json!("IPv4")), ("endpoints", json!([]))],
        "ingresses" => {
            let service = json!({"name": "a", "port": {"number": 80}});
            vec![("spec", json!({"defaultBackend": {"service": service}}))]
        }
        "horizontalpodautoscalers" => {
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
            vec![("spec", json!({"scaleTargetRef": target, "maxReplicas": 1}))]
        }
        "podtemplates" => vec![("template", template())],
        "csistoragecapacities" => vec![("storageClassName", json!("a"))],
        "replicasets" | "deployments" => {
            vec![("spec", json!({"replicas": 0, "selector": {"matchLabels": labels}, "template": template()}))]
        }
        _ => Vec::new(),
    }
}
