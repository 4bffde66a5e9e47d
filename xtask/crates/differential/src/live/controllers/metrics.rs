//! The metrics that autoscalers read: the harness answers for three APIs that a metrics server and adapters would serve.
//!
//! A proxy between kube-controller-manager and kube-apiserver asks [`Metrics::answer`] first. All sides get the same
//! values.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use mutate::{Call, Change, Reply};
use serde_json::{Value, json};

const RESOURCE: &str = "metrics.k8s.io";
const CUSTOM: &str = "custom.metrics.k8s.io";
const EXTERNAL: &str = "external.metrics.k8s.io";
const SERVED: [(&str, &str); 3] = [(RESOURCE, "v1beta1"), (CUSTOM, "v1beta2"), (EXTERNAL, "v1beta1")];

/// The metrics of one namespace. Values are quantities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values {
    /// Usage by Pod and resource.
    pub(crate) usage: BTreeMap<String, BTreeMap<String, String>>,
    /// The custom metric of each Pod.
    pub(crate) pods: BTreeMap<String, String>,
    /// The custom metric of an object.
    pub(crate) object: Option<String>,
    pub(crate) external: Vec<String>,
}

/// The metrics of all namespaces.
#[derive(Clone, Default)]
pub(crate) struct Metrics(Arc<Mutex<BTreeMap<String, Values>>>);

impl Metrics {
    pub(crate) fn set(&self, namespace: &str, values: Values) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.to_owned(), values);
    }

    pub(crate) fn forget(&self, namespace: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
    }

    /// The change of a proxy that serves the metrics.
    pub(crate) fn change(&self) -> Change {
        let metrics = self.clone();
        Change::Reply(Box::new(move |call: &Call, reply: &mut Reply| {
            if call.path == "/apis" {
                reply.edit(announce);
            } else if let Some(answer) = metrics.answer(&call.path) {
                reply.status = 200;
                reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                reply.body = answer.to_string().into();
            }
        }))
    }

    fn answer(&self, path: &str) -> Option<Value> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let ["apis", group, version, rest @ ..] = &parts[..] else { return None };
        if !SERVED.contains(&(*group, *version)) {
            return None;
        }
        let ["namespaces", namespace, rest @ ..] = rest else {
            return Some(
                json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/{version}"), "resources": []}),
            );
        };
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let values = all.get(*namespace).cloned().unwrap_or_default();
        match (*group, rest) {
            (RESOURCE, ["pods"]) => Some(usage(namespace, &values)),
            (CUSTOM, ["pods", "*" | "%2A", name]) => Some(pods(namespace, name, &values)),
            (CUSTOM, [resource, object, name]) => Some(of_object(namespace, resource, object, name, &values)),
            (EXTERNAL, [name]) => Some(external(name, &values)),
            _ => None,
        }
    }
}

/// Adds the groups to either form of the list of groups.
fn announce(list: &mut Value) {
    let grouped = list["kind"] == "APIGroupList";
    for (group, version) in SERVED {
        if grouped {
            let of = json!({"groupVersion": format!("{group}/{version}"), "version": version});
            let added = json!({"name": group, "versions": [of], "preferredVersion": of});
            list["groups"].as_array_mut().into_iter().for_each(|groups| groups.push(added.clone()));
        } else {
            let version = json!({"version": version, "resources": [], "freshness": "Current"});
            let added = json!({"metadata": {"name": group}, "versions": [version]});
            list["items"].as_array_mut().into_iter().for_each(|items| items.push(added.clone()));
        }
    }
}

fn now() -> String {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default().to_string()
}

fn usage(namespace: &str, values: &Values) -> Value {
    let item = |(pod, usage): (&String, &BTreeMap<String, String>)| {
        json!({"metadata": {"name": pod, "namespace": namespace}, "timestamp": now(), "window": "30s",
            "containers": [{"name": "c", "usage": usage}]})
    };
    let items: Vec<Value> = values.usage.iter().map(item).collect();
    json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items})
}

fn custom(items: &[Value]) -> Value {
    json!({"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": {}, "items": items})
}

fn pods(namespace: &str, name: &str, values: &Values) -> Value {
    let item = |(pod, value): (&String, &String)| {
        json!({"describedObject": {"kind": "Pod", "namespace": namespace, "name": pod, "apiVersion": "v1"},
            "metric": {"name": name}, "timestamp": now(), "windowSeconds": 30, "value": value})
    };
    custom(&values.pods.iter().map(item).collect::<Vec<_>>())
}

fn of_object(namespace: &str, resource: &str, object: &str, name: &str, values: &Values) -> Value {
    let item = |value: &String| {
        json!({"describedObject": {"kind": resource, "namespace": namespace, "name": object, "apiVersion": "v1"},
            "metric": {"name": name}, "timestamp": now(), "windowSeconds": 30, "value": value})
    };
    custom(&values.object.iter().map(item).collect::<Vec<_>>())
}

fn external(name: &str, values: &Values) -> Value {
    let item = |value: &String| json!({"metricName": name, "metricLabels": {}, "timestamp": now(), "value": value});
    let items: Vec<Value> = values.external.iter().map(item).collect();
    json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {},
        "items": items})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_three_groups_are_answered() {
        let metrics = Metrics::default();
        let usage = BTreeMap::from([("p0".to_owned(), BTreeMap::from([("cpu".to_owned(), "5m".to_owned())]))]);
        metrics.set("n", Values { usage, external: vec!["7".into()], ..Values::default() });
        let answer = metrics.answer("/apis/metrics.k8s.io/v1beta1/namespaces/n/pods").unwrap();
        assert_eq!(answer["items"][0]["containers"][0]["usage"]["cpu"], "5m");
        let answer = metrics.answer("/apis/external.metrics.k8s.io/v1beta1/namespaces/n/m").unwrap();
        assert_eq!((&answer["items"][0]["value"], &answer["items"][0]["metricName"]), (&json!("7"), &json!("m")));
        assert_eq!(metrics.answer("/apis/apps/v1/namespaces/n/deployments"), None);
    }

    #[test]
    fn groups_are_announced_in_both_forms() {
        let mut old = json!({"kind": "APIGroupList", "groups": []});
        announce(&mut old);
        assert_eq!(old["groups"].as_array().unwrap().len(), 3);
        let mut new = json!({"kind": "APIGroupDiscoveryList", "items": []});
        announce(&mut new);
        assert_eq!(new["items"][1]["metadata"]["name"], CUSTOM);
    }
}
