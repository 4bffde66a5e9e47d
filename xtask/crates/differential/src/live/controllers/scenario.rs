//! A scenario: objects whose fields were drawn from a seed, and the steps that lead to what is compared.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::Value;

use super::metrics;
use crate::document::Document;
use crate::live::request::{Request, Trial, Verb};
use crate::live::schema::LABEL;

/// Shares of a hundred fields that keep the usual value, and that get an ordinary one; the others get a boundary value.
const USUAL: u8 = 45;
const ORDINARY: u8 = 35;

/// The field of a family whose objects are all drawn from one number. It is never the usual value and no cause.
pub(crate) const SEED: &str = "seed";

/// A field that a family of scenarios varies.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// JSON of the value that shrinking returns to.
    pub(crate) usual: &'static str,
    pub(crate) ordinary: fn(&mut Rng) -> Value,
    pub(crate) boundary: fn(&mut Rng) -> Value,
}

/// Scenarios about one controller.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
    pub(crate) build: fn(&Chosen) -> Vec<Step>,
    pub(crate) observed: &'static [Observed],
}

/// A kind whose objects are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    Autoscalers,
    CronJobs,
    DaemonSets,
    Deployments,
    DisruptionBudgets,
    EndpointSlices,
    Events,
    Jobs,
    Pods,
    Quotas,
    ReplicaSets,
    Revisions,
    StatefulSets,
    Targets,
}

/// The values of a family's fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chosen(pub(crate) BTreeMap<&'static str, Value>);

/// What the harness, in place of kubelet, reports of all Pods of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    Ready,
    Succeeded,
    /// With this exit code.
    Failed(u8),
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send(Request),
    /// Values of the metrics from now on.
    Measure(metrics::Values),
    /// Wait until controllers no longer change any object; new Pods get the state.
    Settle(Option<PodState>),
}

impl Chosen {
    pub(crate) fn draw(family: &Family, rng: &mut Rng) -> Chosen {
        let draw = |field: &Field| {
            let value = match rng.u8(..100) {
                share if share < USUAL && field.name != SEED => field.usual(),
                share if share < USUAL + ORDINARY => (field.ordinary)(rng),
                _ => (field.boundary)(rng),
            };
            (field.name, value)
        };
        Chosen(family.fields.iter().map(draw).collect())
    }

    /// The value of a field; null if the family has no such field.
    pub(crate) fn get(&self, field: &str) -> Value {
        self.0.get(field).cloned().unwrap_or(Value::Null)
    }

    pub(crate) fn number(&self, field: &str) -> i64 {
        self.get(field).as_i64().unwrap_or_default()
    }

    /// The fields without their usual value.
    pub(crate) fn unusual<'a>(&'a self, family: &'a Family) -> impl Iterator<Item = (&'a Field, &'a Value)> {
        let varied = family.fields.iter().filter(|field| field.name != SEED);
        let fields = varied.filter_map(|field| Some((field, self.0.get(field.name)?)));
        fields.filter(|(field, value)| **value != field.usual())
    }

    /// The same with the usual value for one field.
    pub(crate) fn without(&self, field: &Field) -> Chosen {
        let mut simpler = self.clone();
        simpler.0.insert(field.name, field.usual());
        simpler
    }

    /// The fields without their usual value, for a report.
    pub(crate) fn trial(&self, family: &Family) -> Trial {
        let members = self.unusual(family).map(|(field, value)| (field.name, document(value)));
        Trial {
            place: "fields".into(),
            shape: family.name.into(),
            class: "fields".into(),
            value: Document::object(members),
        }
    }
}

impl Field {
    pub(crate) fn usual(&self) -> Value {
        serde_json::from_str(self.usual).unwrap_or(Value::Null)
    }
}

pub(crate) fn document(value: &Value) -> Document {
    Document::parse(&value.to_string()).unwrap_or(Document::Null)
}

/// The path of a collection in the namespace of the run: of `apps/v1` or `v1`, and a plural.
pub(crate) fn collection(api: &str, plural: &str) -> String {
    let root = if api.contains('/') { "/apis" } else { "/api" };
    format!("{root}/{api}/namespaces/{LABEL}/{plural}")
}

pub(crate) fn create(api: &str, plural: &str, object: &Value) -> Step {
    Step::Send(Request::new(Verb::Create, collection(api, plural)).body(document(object)))
}

pub(crate) fn create_in_cluster(api: &str, plural: &str, object: &Value) -> Step {
    let path = collection(api, plural).replace(&format!("/namespaces/{LABEL}"), "");
    Step::Send(Request::new(Verb::Create, path).body(document(object)))
}

/// A merge patch of the object; `name` may end with a subresource.
pub(crate) fn patch(api: &str, plural: &str, name: &str, change: &Value) -> Step {
    let path = format!("{}/{name}", collection(api, plural));
    Step::Send(Request::new(Verb::MergePatch, path).body(document(change)))
}

/// A Node that only Pods with the run's label select; its name begins with the label, so that no two runs share it.
pub(crate) fn node(name: &str, allocatable: &Value) -> Step {
    let object = serde_json::json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("{LABEL}-{name}"), "labels": {"run": LABEL, "kubernetes.io/hostname": name}},
        "status": {"allocatable": allocatable, "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}]}});
    create_in_cluster("v1", "nodes", &object)
}

/// A quota that permits no Pods, for numbers of replicas that would flood the store.
pub(crate) fn without_pods() -> Vec<Step> {
    let quota = serde_json::json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}}});
    vec![create("v1", "resourcequotas", &quota), Step::Settle(None)]
}

/// A Pod template with this label and image, which no scheduler places, and which is deleted at once.
pub(crate) fn template(label: &str, image: &str) -> Value {
    serde_json::json!({"metadata": {"labels": {"app": label}}, "spec": {
        "schedulerName": "none", "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": image}]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinking_returns_to_the_usual_value() {
        const FAMILY: Family = Family {
            name: "f",
            fields: &[Field { name: "a", usual: "1", ordinary: |_| 2.into(), boundary: |_| 3.into() }],
            build: |_| Vec::new(),
            observed: &[],
        };
        let chosen = Chosen(BTreeMap::from([("a", Value::from(3))]));
        assert_eq!(chosen.unusual(&FAMILY).count(), 1);
        assert_eq!(chosen.without(&FAMILY.fields[0]).unusual(&FAMILY).count(), 0);
        assert_eq!(chosen.trial(&FAMILY).value.to_string(), r#"{"a":3}"#);
    }

    #[test]
    fn paths_depend_on_the_group() {
        assert_eq!(collection("v1", "pods"), format!("/api/v1/namespaces/{LABEL}/pods"));
        assert_eq!(collection("apps/v1", "deployments"), format!("/apis/apps/v1/namespaces/{LABEL}/deployments"));
    }
}
