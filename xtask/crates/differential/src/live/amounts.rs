//! Sequences about admission that computes with quantities: LimitRanges and ResourceQuotas, then Pods and claims with sums
//! that they decide over; Pods that are resized on a Node.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::generate::namespace;
use super::range::{QUANTITIES, of_quantity};
use super::request::{Family, Request, Sequence, Verb};
use super::schema::LABEL;
use super::values;
use crate::document::Document;

/// Names of amounts of a Pod.
const POD: &[&str] = &["cpu", "memory", "ephemeral-storage", "example.com/a"];

/// A path of namespaced objects.
fn path(plural: &str) -> String {
    format!("/api/v1/namespaces/{LABEL}/{plural}")
}

fn object(kind: &str, name: &str, spec: Document) -> Document {
    let labels = Document::object([("differential", Document::text(LABEL))]);
    Document::object([
        ("apiVersion", Document::text("v1")),
        ("kind", Document::text(kind)),
        ("metadata", Document::object([("name", Document::text(name)), ("labels", labels)])),
        ("spec", spec),
    ])
}

pub(crate) fn sequence(rng: &mut Rng) -> Sequence {
    if rng.u8(..4) == 0 { resizes(rng) } else { policies(rng) }
}

/// Pods under a LimitRange or a ResourceQuota.
fn policies(rng: &mut Rng) -> Sequence {
    let mut requests = vec![namespace()];
    let (kind, plural) = if rng.bool() { ("LimitRange", "limitranges") } else { ("ResourceQuota", "resourcequotas") };
    let claims = rng.u8(..4) == 0;
    let spec = if kind == "LimitRange" { limit_range(rng, claims) } else { quota(rng, claims) };
    requests.push(Request::new(Verb::Create, path(plural)).body(object(kind, LABEL, spec.clone())));
    if kind == "ResourceQuota" {
        requests.push(status(&spec));
    }
    let (consumer, consumers) =
        if claims { ("PersistentVolumeClaim", "persistentvolumeclaims") } else { ("Pod", "pods") };
    let count = rng.u8(3..9);
    for number in 0..count {
        let spec = if claims { claim(rng) } else { pod(rng) };
        let body = object(consumer, &format!("{LABEL}-{number}"), spec);
        requests.push(Request::new(Verb::Create, path(consumers)).body(body));
    }
    requests.push(Request::new(Verb::Get, format!("{}/{LABEL}", path(plural))));
    requests.push(Request::new(Verb::Table, path(plural)));
    requests.extend((0..count).map(|number| delete(format!("{}/{LABEL}-{number}", path(consumers)))));
    let resource = format!("{consumers} under {plural}");
    Sequence { family: Family::Amounts, resource, requests, ..Sequence::default() }
}

fn delete(path: String) -> Request {
    let mut delete = Request::new(Verb::Delete, path);
    delete.parameter("gracePeriodSeconds=0");
    delete
}

/// Pods on a Node, whose sums admission compares with the amounts of the Node when a Pod is resized.
fn resizes(rng: &mut Rng) -> Sequence {
    let mut node = object("Node", LABEL, Document::Object(Vec::new()));
    let sizes = [("cpu", values::amount(rng)), ("memory", values::amount(rng)), ("pods", Document::text("110"))];
    let sizes = Document::object(sizes);
    node.set("status", Document::object([("capacity", sizes.clone()), ("allocatable", sizes)]));
    let mut requests = vec![namespace(), Request::new(Verb::Create, "/api/v1/nodes").body(node)];
    let containers = rng.usize(1..4);
    let count = rng.u8(1..3);
    for number in 0..count {
        let containers = (0..containers).map(|container| requesting(rng, container)).collect();
        let spec = Document::object([("nodeName", Document::text(LABEL)), ("containers", Document::List(containers))]);
        let pod = object("Pod", &format!("{LABEL}-{number}"), spec);
        requests.push(Request::new(Verb::Create, path("pods")).body(pod));
    }
    for number in 0..count {
        for _ in 0..rng.u8(1..5) {
            let containers = (0..containers).map(|container| requesting(rng, container)).collect();
            let spec = Document::object([("containers", Document::List(containers))]);
            let patch = Request::new(Verb::StrategicPatch, format!("{}/{LABEL}-{number}/resize", path("pods")));
            requests.push(patch.body(Document::object([("spec", spec)])));
        }
    }
    requests.extend((0..count).map(|number| delete(format!("{}/{LABEL}-{number}", path("pods")))));
    requests.push(delete(format!("/api/v1/nodes/{LABEL}")));
    Sequence { family: Family::Amounts, resource: "pods on nodes".into(), requests, ..Sequence::default() }
}

/// A container with requests that can be resized.
fn requesting(rng: &mut Rng, number: usize) -> Document {
    let requests = [("cpu", values::amount(rng)), ("memory", values::amount(rng))];
    let resources = Document::object([("requests", Document::object(requests))]);
    Document::object([
        ("name", Document::text(format!("c{number}"))),
        ("image", Document::text("example.org/c:1")),
        ("resources", resources),
    ])
}

/// No controller computes the status of a quota, and without one admission refuses every object.
fn status(spec: &Document) -> Request {
    let hard = spec.member("hard").cloned().unwrap_or(Document::Null);
    let used = match &hard {
        Document::Object(members) => Document::object(members.iter().map(|(name, _)| (name, Document::text("0")))),
        _ => Document::Null,
    };
    let status = Document::object([("hard", hard), ("used", used)]);
    Request::new(Verb::MergePatch, format!("{}/{LABEL}/status", path("resourcequotas")))
        .body(Document::object([("status", status)]))
}

fn limit_range(rng: &mut Rng, claims: bool) -> Document {
    let kind = match (claims, rng.bool()) {
        (true, _) => "PersistentVolumeClaim",
        (false, true) => "Pod",
        (false, false) => "Container",
    };
    let mut limit = vec![("type".to_owned(), Document::text(kind))];
    let names = if claims { &["storage"] } else { POD };
    let maps: &[&str] = if kind == "Container" {
        &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
    } else {
        &["max", "min", "maxLimitRequestRatio"]
    };
    let only = rng.usize(..maps.len());
    for (number, map) in maps.iter().enumerate() {
        if number == only || rng.u8(..4) == 0 {
            limit.push(((*map).to_owned(), amounts(rng, names)));
        }
    }
    Document::object([("limits", Document::List(vec![Document::Object(limit)]))])
}

fn quota(rng: &mut Rng, claims: bool) -> Document {
    let names: &[&str] = if claims {
        &["requests.storage", "persistentvolumeclaims"]
    } else {
        &["requests.cpu", "limits.cpu", "requests.memory", "limits.memory", "requests.example.com/a", "pods"]
    };
    let mut hard = amounts(rng, names);
    // Most quotas must admit something, so that amounts are added.
    if let Document::Object(members) = &mut hard
        && rng.u8(..3) > 0
    {
        members.iter_mut().for_each(|(_, amount)| *amount = Document::text("1e50"));
    }
    Document::object([("hard", hard)])
}

/// One or more of the names with an amount each.
fn amounts(rng: &mut Rng, names: &[&str]) -> Document {
    let first = rng.usize(..names.len());
    let mut chosen = Vec::new();
    for (number, name) in names.iter().enumerate() {
        if number == first || rng.u8(..3) == 0 {
            chosen.push((*name, values::amount(rng)));
        }
    }
    Document::object(chosen)
}

fn pod(rng: &mut Rng) -> Document {
    let containers: Vec<Document> = (0..rng.usize(1..4)).map(|number| container(rng, number)).collect();
    let mut spec = vec![("containers", Document::List(containers))];
    if rng.u8(..5) == 0 {
        spec.push(("initContainers", Document::List(vec![container(rng, 9)])));
    }
    Document::object(spec)
}

/// A container whose limits are not below its requests.
fn container(rng: &mut Rng, number: usize) -> Document {
    let amounts = amounts(rng, POD);
    let mut resources = vec![("limits", amounts.clone())];
    if rng.u8(..4) > 0 {
        resources.push(("requests", amounts));
    }
    Document::object([
        ("name", Document::text(format!("c{number}"))),
        ("image", Document::text("example.org/c:1")),
        ("resources", Document::object(resources)),
    ])
}

fn claim(rng: &mut Rng) -> Document {
    let storage = Document::object([("storage", values::amount(rng))]);
    Document::object([
        ("accessModes", Document::List(vec![Document::text("ReadWriteOnce")])),
        ("storageClassName", Document::text("")),
        ("resources", Document::object([("requests", storage)])),
    ])
}

/// The kind of the policy with the largest range of an amount: `LimitRange Pod, beyond 64 bits`.
pub(crate) fn class(requests: &[Request]) -> String {
    let bodies = || requests.iter().filter_map(|request| Some((request, request.body.as_ref()?)));
    let mut class = Vec::new();
    for (request, body) in bodies().filter(|(request, _)| request.verb == Verb::Create) {
        match request.path.rsplit('/').next() {
            Some("limitranges") => class.push(format!("LimitRange {}", limited(body)).trim_end().to_owned()),
            Some("resourcequotas") => class.push("ResourceQuota".to_owned()),
            Some("nodes") => class.push("Node".to_owned()),
            _ => {}
        }
    }
    let mut ranges = BTreeSet::new();
    bodies().filter_map(|(_, body)| body.member("spec")).for_each(|spec| ranges_of(spec, &mut ranges));
    // The largest amount explains a difference, and smaller ones next to it do not.
    class.extend(QUANTITIES.iter().find(|range| ranges.contains(*range)).map(|range| (*range).to_owned()));
    class.join(", ")
}

/// The type of a LimitRange.
fn limited(body: &Document) -> String {
    let limits = body.at(&["spec", "limits"]).map(Document::inner).unwrap_or_default();
    limits.first().and_then(|limit| limit.member("type")?.decoded()).unwrap_or_default()
}

fn ranges_of(document: &Document, found: &mut BTreeSet<&'static str>) {
    match document {
        Document::Text(_) => found.extend(document.decoded().and_then(|text| of_quantity(&text))),
        Document::Number(literal) => found.extend(of_quantity(literal)),
        other => other.inner().into_iter().for_each(|inner| ranges_of(inner, found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_has_the_policy_and_the_ranges() {
        let spec = Document::parse(r#"{"limits":[{"type":"Pod","max":{"cpu":"1e19"}}]}"#).unwrap();
        let policy = Request::new(Verb::Create, path("limitranges")).body(object("LimitRange", LABEL, spec));
        let spec = Document::parse(r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"100m"}}}]}"#).unwrap();
        let pod = Request::new(Verb::Create, path("pods")).body(object("Pod", LABEL, spec));
        assert_eq!(class(std::slice::from_ref(&policy)), "LimitRange Pod, beyond 64 bits");
        assert_eq!(class(&[policy, pod]), "LimitRange Pod, beyond 64 bits");
    }

    #[test]
    fn every_consumer_is_deleted() {
        for seed in 0..50 {
            let Sequence { requests, resource, .. } = sequence(&mut Rng::with_seed(seed));
            let count = |verb| requests.iter().filter(|request| request.verb == verb).count();
            // A namespace is not deleted, and a policy neither.
            let left = if resource == "pods on nodes" { 1 } else { 2 };
            assert_eq!(count(Verb::Create), count(Verb::Delete) + left, "{resource}");
        }
    }
}
