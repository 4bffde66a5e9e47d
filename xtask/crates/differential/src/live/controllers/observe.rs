//! The objects of a scenario as they are compared: without what servers and controllers choose by themselves.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use serde_json::{Map, Value, json};

use super::autoscalers::{GROUP, PLURAL, VERSION};
use super::scenario::{Family, Observed};
use crate::document::Document;
use crate::live::masks::Masks;
use crate::live::request::Names;
use crate::live::schema::LABEL;
use crate::live::side::Side;

/// Members of `metadata` that are not compared, with the reason.
const UNCOMPARED: [(&str, &str); 5] = [
    ("uid", "random"),
    ("resourceVersion", "a revision of the store"),
    ("creationTimestamp", "a time"),
    ("managedFields", "the times and the order of writes"),
    ("generation", "counts the writes, whose number depends on the speed of the side"),
];

/// Characters of the random suffix of a name (apimachinery pkg/util/rand/rand.go).
const SUFFIX: &str = "bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

impl Observed {
    /// Group and version, and plural.
    pub(super) fn resource(self) -> (String, &'static str) {
        let (api, plural) = match self {
            Observed::Autoscalers => ("autoscaling/v2", "horizontalpodautoscalers"),
            Observed::CronJobs => ("batch/v1", "cronjobs"),
            Observed::DaemonSets => ("apps/v1", "daemonsets"),
            Observed::Deployments => ("apps/v1", "deployments"),
            Observed::DisruptionBudgets => ("policy/v1", "poddisruptionbudgets"),
            Observed::EndpointSlices => ("discovery.k8s.io/v1", "endpointslices"),
            Observed::Events => ("v1", "events"),
            Observed::Jobs => ("batch/v1", "jobs"),
            Observed::Pods => ("v1", "pods"),
            Observed::Quotas => ("v1", "resourcequotas"),
            Observed::ReplicaSets => ("apps/v1", "replicasets"),
            Observed::Revisions => ("apps/v1", "controllerrevisions"),
            Observed::StatefulSets => ("apps/v1", "statefulsets"),
            Observed::Targets => return (format!("{GROUP}/{VERSION}"), PLURAL),
        };
        (api.to_owned(), plural)
    }

    /// Whether the controller of the kind has seen the object.
    fn is_seen(self, object: &Value) -> bool {
        let (spec, status, metadata) = (&object["spec"], &object["status"], &object["metadata"]);
        match self {
            // The controller writes the condition that it may scale first, and the metrics later.
            Observed::Autoscalers => {
                status["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == "ScalingActive")
            }
            Observed::DaemonSets
            | Observed::Deployments
            | Observed::DisruptionBudgets
            | Observed::ReplicaSets
            | Observed::StatefulSets => status["observedGeneration"] == metadata["generation"],
            Observed::Jobs => spec["suspend"] == json!(true) || !status["startTime"].is_null(),
            Observed::Quotas => status["hard"] == spec["hard"],
            Observed::Pods => {
                let waits = spec["schedulerName"] != "none" && spec["nodeName"].is_null();
                !waits || !status["conditions"].is_null()
            }
            Observed::CronJobs
            | Observed::EndpointSlices
            | Observed::Events
            | Observed::Revisions
            | Observed::Targets => true,
        }
    }
}

async fn items(side: &Side, kind: Observed, names: &Names) -> anyhow::Result<Vec<Value>> {
    let (api, plural) = kind.resource();
    let path = names.fill(&super::scenario::collection(&api, plural), "");
    let list: Value =
        serde_json::from_slice(&side.get(&path).await?).with_context(|| format!("the answer to {path}"))?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// Whether the controllers have seen the last state of all objects.
pub(super) async fn is_complete(side: &Side, family: &Family, names: &Names) -> anyhow::Result<bool> {
    for kind in family.observed.iter().copied().filter(|kind| *kind != Observed::Events) {
        if !items(side, kind, names).await?.iter().all(|object| kind.is_seen(object)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// All objects by kind. `now` is the time of the scenario's begin.
pub(super) async fn observe(side: &Side, family: &Family, names: &Names, now: i64) -> anyhow::Result<Document> {
    let mut all = BTreeMap::new();
    for kind in family.observed {
        all.insert(kind.resource().1, (*kind, items(side, *kind, names).await?));
    }
    comparable(all, names, now)
}

fn comparable(all: BTreeMap<&str, (Observed, Vec<Value>)>, names: &Names, now: i64) -> anyhow::Result<Document> {
    let uids: BTreeSet<String> = all
        .values()
        .flat_map(|(_, items)| items)
        .filter_map(|o| Some(o["metadata"]["uid"].as_str()?.to_owned()))
        .collect();
    let mut whole = Map::new();
    for (name, (kind, mut items)) in all {
        items.iter_mut().for_each(strip);
        whole.insert(name.to_owned(), if kind == Observed::Events { grouped(&items) } else { items.into() });
    }
    let mut text = Value::Object(whole).to_string().replace(&names.label, LABEL);
    for uid in uids {
        text = text.replace(&uid, "<uid>");
    }
    let mut document = Document::parse(&text)?;
    Masks::new(now).apply(&mut document, "");
    sort(&mut document);
    Ok(document)
}

/// The order of a list of objects depends on random names.
fn sort(document: &mut Document) {
    let Document::Object(kinds) = document else { return };
    for (_, list) in kinds {
        if let Document::List(items) = list {
            items.sort_by_cached_key(ToString::to_string);
        }
    }
}

fn strip(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for (member, _) in UNCOMPARED {
            metadata.remove(member);
        }
        for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
            owner["uid"] = Value::Null;
        }
    }
    if let Some(status) = object["status"].as_object_mut() {
        status.remove("observedGeneration");
        // The harness numbers the addresses of Pods, whose order depends on random names.
        status.remove("podIP");
        status.remove("podIPs");
        // Conditions quote names of Pods.
        for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(message) = condition["message"].as_str() {
                condition["message"] = json!(without_suffixes(message));
            }
        }
    }
    // The uids in a list of active Jobs, or of a Pod in an endpoint.
    remove_versions(object);
}

/// References to objects contain their versions.
fn remove_versions(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if members.contains_key("kind") && members.contains_key("name") {
                members.remove("uid");
                members.remove("resourceVersion");
            }
            members.values_mut().for_each(remove_versions);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_versions),
        _ => {}
    }
}

/// Errors that a controller retries: of two writers at the same time, or of a machine under load.
const RETRIED: [&str; 3] =
    ["the object has been modified; please apply", "request timed out", "request did not complete within"];

/// Messages by kind and reason: how often an event repeats, and in which order, depends on the speed of the side.
fn grouped(events: &[Value]) -> Value {
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for event in events {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let about = format!("{} {}", text(&event["involvedObject"]["kind"]), text(&event["reason"]));
        let name = without_suffixes(&text(&event["involvedObject"]["name"]));
        let message = without_suffixes(&text(&event["message"]));
        if RETRIED.iter().any(|error| message.contains(error)) {
            continue;
        }
        groups.entry(about).or_default().insert(format!("{name}: {message}"));
    }
    json!(groups)
}

/// A text whose names lost their random suffix.
fn without_suffixes(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let mut result = String::with_capacity(text.len());
    for word in text.split_inclusive(|c| !is_part(c)) {
        let name = word.trim_end_matches(|c| !is_part(c));
        let name = name.trim_end_matches('.');
        match name.rsplit_once('-') {
            Some((prefix, suffix)) if is_suffix(suffix) && !prefix.is_empty() => {
                result.push_str(prefix);
                result.push_str("-*****");
                result.push_str(&word[name.len()..]);
            }
            _ => result.push_str(word),
        }
    }
    result
}

fn is_suffix(text: &str) -> bool {
    text.len() == SUFFIX_LENGTH && text.chars().all(|c| SUFFIX.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-26T12:00:00Z.
    const NOW: i64 = 1_795_694_400;

    #[test]
    fn hashes_are_compared_and_random_suffixes_are_not() {
        assert_eq!(without_suffixes("Created pod: a-7c9d8b6f5-x7k2q."), "Created pod: a-7c9d8b6f5-*****.");
        assert_eq!(
            without_suffixes("Scaled up replica set a-7c9d8b6f5 from 0 to 3"),
            "Scaled up replica set a-7c9d8b6f5 from 0 to 3"
        );
    }

    #[test]
    fn order_uids_and_times_are_not_compared() {
        let pod = |suffix: &str, uid: &str, second: u8| {
            json!({"metadata": {"name": format!("a-h-{suffix}"), "generateName": "a-h-", "uid": uid},
                "status": {"startTime": format!("2026-11-26T12:00:0{second}Z"), "podIP": format!("10.2.0.{second}"),
                    "conditions": [{"message": format!("pods \"a-h-{suffix}\" is forbidden")}]}})
        };
        let names = Names::of(3, None);
        let of =
            |items: Vec<Value>| comparable(BTreeMap::from([("pods", (Observed::Pods, items))]), &names, NOW).unwrap();
        let left = of(vec![pod("bbbbb", "u1", 1), pod("ccccc", "u2", 2)]);
        let right = of(vec![pod("ddddd", "u3", 2), pod("fffff", "u4", 3)]);
        assert_eq!(left, right);
    }

    #[test]
    fn repeated_events_are_one() {
        let event = |name: &str, count: u8| json!({"involvedObject": {"kind": "Pod", "name": name}, "reason": "R", "message": "m", "count": count});
        assert_eq!(grouped(&[event("a-bbbbb", 1), event("a-ccccc", 7)]), json!({"Pod R": ["a-*****: m"]}));
        let retried = json!({"involvedObject": {"kind": "K", "name": "a"}, "reason": "R",
            "message": "etcdserver: request timed out"});
        assert_eq!(grouped(&[retried]), json!({}));
    }
}
