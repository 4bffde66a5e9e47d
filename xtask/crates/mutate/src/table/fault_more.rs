//! Servers that refuse, repeat, lose or invent something while they or their store are killed, while the store is full
//! or silent, and when they exit.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::fault::is_write_of_workload;
use super::fault_link::failed_write;
use super::tools::{added, each_event, is_marker, rehearsed, shift};
use super::{Change, Mutant, mutants};
use crate::call::Call;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "fault.kill-create-refused": "The server refuses some creates as repeated although it has stored them." => "fault.apiserver-kill-during-write" on "disruptive",
        stored_but_refused;
    "fault.kill-resume-repeats": "A resumed watch repeats changes that the client already has." => "fault.apiserver-kill-during-write" on "disruptive",
        resume_repeats;
    "fault.compaction-event-lost": "A long watch loses an event." => "fault.compaction-kill" on "disruptive",
        || each_event(|n, event| if n == 25 && !is_marker(&event) { vec![] } else { vec![event] });
    "fault.full-create-invented": "The server acknowledges a create that the full store refused." => "fault.disk-full" on "disruptive",
        || Change::Reply(Box::new(|call, reply| if call.method == Method::POST && failed_write(call, reply) {
            reply.status = 201;
            reply.body = call.body.clone();
            reply.edit(|object| object["metadata"]["resourceVersion"] = json!("1"));
        }));
    "fault.full-delete-refused": "The server refuses deletes while the store is full." => "fault.disk-full" on "disruptive",
        delete_refused;
    "fault.silent-read-from-cache": "The server answers a read without a resource version from the cache." => "fault.etcd-network-blackhole" on "disruptive",
        || added(
            |call| call.is_get() && is_namespace_of_suite(&call.path) && call.parameter("resourceVersion").is_none(),
            "resourceVersion",
            "0",
        );
    "fault.silent-writes-lost": "The server acknowledges some creates and updates without storing them." => "fault.etcd-network-blackhole" on "disruptive",
        || rehearsed(is_write_of_workload, 9);
    "fault.snapshot-writes-lost": "One of two servers acknowledges some creates and updates without storing them." => "fault.etcd-member-replace" on "ha",
        || rehearsed(is_write_of_workload, 9);
    "fault.shutdown-cut": "An exiting server cuts its watches instead of completing them." => "watch.graceful-shutdown" on "reflagged",
        || Change::Cut(|call| call.path.ends_with("/configmaps"));
    "fault.shutdown-event-lost": "Watches that an exiting server ends have omitted changes." => "watch.graceful-shutdown" on "reflagged",
        || each_event(|_, event| if event["type"] == "MODIFIED" { vec![] } else { vec![event] });
};

/// Every fifth create of the workload is stored and answered 409, as if the server had executed it twice. The workload
/// needs its marker.
fn stored_but_refused() -> Change {
    let mut seen = 0_u32;
    Change::Reply(Box::new(move |call, reply| {
        let creates = call.method == Method::POST && is_write_of_workload(call) && !creates_marker(call);
        if creates && reply.is_success() {
            seen += 1;
            if seen.is_multiple_of(5) {
                reply.status = 409;
                let refusal = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "AlreadyExists", "code": 409,
                });
                reply.body = refusal.to_string().into();
            }
        }
    }))
}

/// Whether it creates one of the last two objects of a collection, which no server may refuse.
fn creates_marker(call: &Call) -> bool {
    let object: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    object["metadata"]["name"].as_str().is_some_and(|name| name.ends_with("marker"))
}

/// The watches of the workload's two watchers of Events, which no cache serves, after their first ones.
fn resume_repeats() -> Change {
    let mut opened = 0_u32;
    Change::Request(Box::new(move |call| {
        if !call.is_watch() || !call.path.ends_with("/events") {
            return;
        }
        opened += 1;
        for (name, value) in &mut call.query {
            if opened > 2 && name == "resourceVersion" {
                let mut number = Value::from(value.as_str());
                shift(&mut number, -4);
                *value = number.as_str().unwrap_or_default().to_owned();
            }
        }
    }))
}

/// Only one delete is refused, because the clean-up must work.
fn delete_refused() -> Change {
    let mut refusal: Option<Bytes> = None;
    Change::Reply(Box::new(move |call, reply| {
        if String::from_utf8_lossy(&reply.body).contains("database space exceeded") {
            refusal = Some(reply.body.clone());
        }
        if call.method == Method::DELETE
            && call.path.contains("/configmaps/")
            && let Some(body) = refusal.take()
        {
            reply.status = 500;
            reply.body = body;
        }
    }))
}

fn is_namespace_of_suite(path: &str) -> bool {
    let name = path.strip_prefix("/api/v1/namespaces/");
    name.is_some_and(|name| name.starts_with("ap-") && !name.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Reply;
    use http::HeaderMap;

    fn call(method: Method, path: &str, body: &'static str) -> Call {
        Call { method, path: path.into(), body: Bytes::from_static(body.as_bytes()), ..Call::default() }
    }

    fn reply(status: u16, body: &'static str) -> Reply {
        Reply { status, headers: HeaderMap::new(), body: Bytes::from_static(body.as_bytes()) }
    }

    #[test]
    fn one_delete_is_refused_after_the_store_was_full() {
        let Change::Reply(mut change) = delete_refused() else { panic!("no change of answers") };
        let path = "/api/v1/namespaces/ap-a/configmaps/doomed";
        let delete = call(Method::DELETE, path, "");
        let mut statuses = Vec::new();
        for full in [false, true, false] {
            if full {
                change(&call(Method::POST, path, ""), &mut reply(500, "mvcc: database space exceeded"));
            }
            let mut answer = reply(200, "{}");
            change(&delete, &mut answer);
            statuses.push(answer.status);
        }
        assert_eq!(statuses, [200, 500, 200]);
    }

    #[test]
    fn marker_is_never_refused() {
        let Change::Reply(mut change) = stored_but_refused() else { panic!("no change of answers") };
        let path = "/api/v1/namespaces/ap-a/configmaps";
        let mut refused = |body: &'static str| {
            let refused = (0..10).filter(|_| {
                let mut answer = reply(201, "{}");
                change(&call(Method::POST, path, body), &mut answer);
                answer.status == 409
            });
            refused.count()
        };
        assert_eq!(refused(r#"{"metadata":{"name":"w1-k1"}}"#), 2);
        assert_eq!(refused(r#"{"metadata":{"name":"marker"}}"#), 0);
        assert_eq!(refused(r#"{"metadata":{"name":"after-marker"}}"#), 0);
    }

    #[test]
    fn resumed_watches_begin_earlier() {
        let Change::Request(mut change) = resume_repeats() else { panic!("no change of requests") };
        let mut from = |path: &str| {
            let query = vec![("watch".into(), "true".into()), ("resourceVersion".into(), "100".into())];
            let mut call = Call { path: path.into(), query, ..Call::default() };
            change(&mut call);
            call.parameter("resourceVersion").unwrap_or_default().to_owned()
        };
        let events = "/api/v1/namespaces/ap-a/events";
        assert_eq!([from(events), from(events), from(events)], ["100", "100", "96"]);
        assert_eq!(from("/api/v1/namespaces/ap-a/configmaps"), "100");
    }

    #[test]
    fn only_namespaces_of_the_suite_are_read_from_the_cache() {
        assert!(is_namespace_of_suite("/api/v1/namespaces/ap-fault"));
        for other in ["/api/v1/namespaces/default", "/api/v1/namespaces/ap-fault/configmaps/a", "/api/v1/namespaces"] {
            assert!(!is_namespace_of_suite(other), "{other}");
        }
    }
}
