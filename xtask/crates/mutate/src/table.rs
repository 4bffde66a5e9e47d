//! What is broken, and by which check that must be noticed.

use std::collections::BTreeMap;

use http::Method;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::call::{Call, Reply};

/// What a client gets instead of one event of a watch.
pub type Filter = Box<dyn FnMut(Value) -> Vec<Value> + Send>;

/// Changes a request, an answer, or makes the filter of a watch.
pub type OnRequest = Box<dyn FnMut(&mut Call) + Send>;
pub type OnReply = Box<dyn FnMut(&Call, &mut Reply) + Send>;
pub type OnWatch = Box<dyn FnMut(&Call) -> Option<Filter> + Send>;

/// What a proxy does with everything that passes through it.
pub enum Change {
    /// It only passes on: what the suite says then is about the proxy.
    Nothing,
    Request(OnRequest),
    /// Of a watch only the head.
    Reply(OnReply),
    /// A filter for each watch that is opened, where the mutant wants one.
    Events(OnWatch),
}

/// A server that breaks one promise.
pub struct Mutant {
    /// Stable: it is the name in every report.
    pub id: &'static str,
    /// What it does, in one sentence.
    pub breaks: &'static str,
    /// The check that must fail.
    pub caught_by: &'static str,
    pub profile: &'static str,
    pub make: fn() -> Change,
}

macro_rules! mutants {
    ($($id:literal: $breaks:literal => $caught_by:literal, $make:expr;)*) => {
        &[$(Mutant { id: $id, breaks: $breaks, caught_by: $caught_by, profile: "default", make: $make }),*]
    };
}

/// All mutants, by suite.
pub static MUTANTS: &[Mutant] = mutants! {
    "watch.event-dropped": "A watch leaves out some of the changes." => "watch.reliable",
        || each_event(|n, event| if n % 7 == 3 && !is_marker(&event) { vec![] } else { vec![event] });
    "watch.event-twice": "A watch sends some events twice." => "watch.unique",
        || each_event(|n, event| if n % 5 == 2 { vec![event.clone(), event] } else { vec![event] });
    "watch.events-swapped": "A watch sends some events after later ones." => "watch.ordered", events_swapped;
    "watch.event-retyped": "A watch calls a change of an object that it has sent before ADDED." => "watch.matches-etcd-history",
        || each_event(|_, event| vec![retyped(event, "MODIFIED", "ADDED")]);
    "watch.deletion-as-change": "A watch calls a deletion MODIFIED." => "watch.matches-etcd-history",
        || each_event(|_, event| vec![retyped(event, "DELETED", "MODIFIED")]);
    "watch.old-rv-on-deleted": "DELETED carries the resource version before the deletion." => "watch.delete-rv", old_rv_on_deleted;
    "watch.rv-repeated": "Streams of the same changes disagree on their resource versions." => "watch.concurrent-agree", streams_disagree;
    "watch.bookmark-ahead": "Bookmarks promise more than was sent." => "watch.bookmark", bookmark_ahead;
    "watch.initial-events-end-early": "The end of the initial events comes before them." => "watch.watchlist", end_early;
    "watch.initial-events-lost": "Initial events leave out an object." => "watch.from-zero-or-unset",
        || each_event(|n, event| if n == 1 && event["type"] == "ADDED" { vec![] } else { vec![event] });
    "watch.selector-ignored": "A watch with a label selector sends all objects." => "watch.selector-transitions",
        || Change::Request(Box::new(|call| if call.is_watch() { call.forget("labelSelector") }));
    "watch.timeout-ignored": "A watch does not end when its time is over." => "watch.timeout-seconds",
        || Change::Request(Box::new(|call| if call.is_watch() { call.forget("timeoutSeconds") }));
    "watch.media-type-wrong": "A watch is answered with another media type." => "watch.http-framing",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_watch() {
                reply.headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
            }
        }));
    "watch.starts-over": "A watch from a resource version begins with everything there is." => "watch.atomic-list-then-watch",
        || Change::Request(Box::new(|call| if call.is_watch() { call.forget("resourceVersion") }));
    "watch.object-altered": "The object of an event is not the one that was stored." => "watch.event-shape",
        || each_event(|_, mut event| {
            if event["type"] == "MODIFIED" {
                event["object"]["metadata"]["annotations"]["mutant"] = json!("was here");
            }
            vec![event]
        });

    "list.rv-behind": "A list carries a resource version before its state." => "rv.list-is-store-revision",
        || each_list(|list| shift(&mut list["metadata"]["resourceVersion"], -1));
    "list.item-lost": "A list leaves out its last item." => "rv.list-is-store-revision", || each_list(lose_last);
    "list.label-selector-ignored": "A label selector selects nothing." => "list.label-selector-server-side",
        || Change::Request(Box::new(|call| if call.is_list() { call.forget("labelSelector") }));
    "list.label-inequality-ignored": "A label selector with != lets all objects through." => "list.label-selector-server-side",
        || Change::Request(Box::new(|call| {
            if call.is_list() && call.parameter("labelSelector").is_some_and(|selector| selector.contains("!=")) {
                call.forget("labelSelector");
            }
        }));
    "list.field-selector-ignored": "A field selector selects nothing." => "list.field-selector",
        || Change::Request(Box::new(|call| if call.is_list() { call.forget("fieldSelector") }));
    "list.limit-ignored": "A list ignores its limit." => "list.limit-page",
        || Change::Request(Box::new(|call| if call.is_list() { call.forget("limit") }));
    "list.item-repeated": "A page begins with the last item of the page before." => "list.limit-page", item_repeated;
    "list.pages-of-now": "Later pages show the present state." => "list.continue-snapshot", pages_of_now;
    "list.exact-ignored": "A list at exactly one resource version shows the present state." => "list.match-exact", exact_ignored;
    "list.zero-invented": "A list at resource version 0 shows a state that never was." => "list.rv-zero",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_list() && call.parameter("resourceVersion") == Some("0") {
                reply.edit(lose_last);
            }
        }));
    "list.older-than-asked": "A list that must not be older than a resource version is." => "list.match-not-older",
        || Change::Reply(remember_first(|call| {
            call.is_list() && call.parameter("resourceVersionMatch") == Some("NotOlderThan")
        }));

    "get.stale": "A GET without resource version shows an old state." => "rv.get-unset-linearizable",
        || Change::Reply(remember_first(|call| call.is_get() && call.parameter("resourceVersion").is_none()));
    "get.older-than-asked": "A GET at a resource version shows an older state." => "rv.get-not-older",
        || Change::Reply(remember_first(|call| {
            call.is_get() && call.parameter("resourceVersion").is_some_and(|rv| rv != "0")
        }));
    "get.rv-shifted": "Objects carry a resource version that is not their revision in the store." => "rv.equals-modrevision",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_get() && reply.is_success() {
                reply.edit(|object| shift(&mut object["metadata"]["resourceVersion"], 1));
            }
        }));
    "get.future-answered": "A GET at a resource version of the far future is answered." => "rv.too-large-504",
        || Change::Request(Box::new(|call| if call.is_get() { call.forget("resourceVersion") }));

    "write.precondition-lost": "An update with an old resource version is accepted." => "cc.no-lost-update",
        || Change::Request(Box::new(|call| {
            if call.method == Method::PUT {
                call.edit(|object| remove(&mut object["metadata"], "resourceVersion"));
            }
        }));
    "write.conflict-hidden": "An update that is refused is answered 200." => "cc.update-conflict",
        || Change::Reply(Box::new(|_, reply| if reply.status == 409 { reply.status = 200 }));
    "write.noop-bumps": "An update that changes nothing is a new revision." => "cc.noop-write", noop_bumps;
    "write.finalizers-lost": "Finalizers are not kept." => "cc.finalizer-two-phase",
        || Change::Request(Box::new(|call| {
            if matches!(call.method, Method::POST | Method::PUT) {
                call.edit(|object| remove(&mut object["metadata"], "finalizers"));
            }
        }));
    "write.managed-fields-lost": "Answers leave out who manages which field." => "cc.managed-fields-stored",
        || Change::Reply(Box::new(|call, reply| {
            if call.names_an_object() || call.method == Method::POST {
                reply.edit(|object| remove(&mut object["metadata"], "managedFields"));
            }
        }));
    "write.patch-without-null": "A merge patch does not remove what it sets to null." => "cc.patch-kinds",
        || Change::Request(Box::new(|call| if call.method == Method::PATCH { call.edit(without_nulls) }));
    "write.text-trimmed": "Texts lose the white space at their ends." => "storage.roundtrip",
        || Change::Request(Box::new(|call| {
            if matches!(call.method, Method::POST | Method::PUT) {
                call.edit(|object| {
                    trim(&mut object["data"]);
                    trim(&mut object["spec"]);
                });
            }
        }));
    "delete.preconditions-ignored": "A deletion ignores its preconditions." => "cc.delete-preconditions",
        || Change::Request(Box::new(|call| {
            if call.method == Method::DELETE {
                call.edit(|options| remove(options, "preconditions"));
            }
        }));
    "delete.propagation-ignored": "A deletion ignores how dependents shall be treated." => "cc.propagation",
        || Change::Request(Box::new(|call| {
            if call.method == Method::DELETE {
                call.forget("propagationPolicy");
                call.edit(|options| remove(options, "propagationPolicy"));
            }
        }));
};

/// A filter that gets each event of a stream with its number, from 0.
fn each_event(change: fn(usize, Value) -> Vec<Value>) -> Change {
    Change::Events(Box::new(move |_| {
        let mut numbers = 0..;
        Some(Box::new(move |event| change(numbers.next().unwrap_or_default(), event)))
    }))
}

fn each_list(change: fn(&mut Value)) -> Change {
    Change::Reply(Box::new(move |call, reply| {
        if call.is_list() && reply.is_success() {
            reply.edit(change);
        }
    }))
}

/// What the workload waits for: without it nothing is judged.
fn is_marker(event: &Value) -> bool {
    event["object"]["metadata"]["name"] == "marker"
}

fn events_swapped() -> Change {
    Change::Events(Box::new(|_| {
        let (mut held, mut seen) = (None, 0);
        Some(Box::new(move |event| {
            seen += 1;
            match held.take() {
                Some(earlier) => vec![event, earlier],
                None if seen % 6 == 2 && !is_marker(&event) => {
                    held = Some(event);
                    vec![]
                }
                None => vec![event],
            }
        }))
    }))
}

fn retyped(mut event: Value, from: &str, to: &str) -> Value {
    if event["type"] == from {
        event["type"] = json!(to);
    }
    event
}

fn old_rv_on_deleted() -> Change {
    each_event(|_, mut event| {
        if event["type"] == "DELETED" {
            shift(&mut event["object"]["metadata"]["resourceVersion"], -1);
        }
        vec![event]
    })
}

/// Every second stream shows some changes one revision early.
fn streams_disagree() -> Change {
    let mut streams = 0;
    Change::Events(Box::new(move |_| {
        streams += 1;
        if streams % 2 == 0 {
            return None;
        }
        Some(Box::new(|mut event| {
            if event["type"] == "MODIFIED" {
                shift(&mut event["object"]["metadata"]["resourceVersion"], -1);
            }
            vec![event]
        }))
    }))
}

fn bookmark_ahead() -> Change {
    each_event(|_, mut event| {
        if event["type"] == "BOOKMARK" {
            shift(&mut event["object"]["metadata"]["resourceVersion"], 1000);
        }
        vec![event]
    })
}

fn end_early() -> Change {
    Change::Events(Box::new(|call| {
        call.parameter("sendInitialEvents")?;
        let (mut held, mut ended) = (Vec::new(), false);
        Some(Box::new(move |event| {
            if ended {
                return vec![event];
            }
            if event["type"] != "BOOKMARK" {
                held.push(event);
                return vec![];
            }
            ended = true;
            let mut all = vec![event];
            all.append(&mut held);
            all
        }))
    }))
}

fn item_repeated() -> Change {
    let mut last: BTreeMap<String, Value> = BTreeMap::new();
    Change::Reply(Box::new(move |call, reply| {
        if !call.is_list() || !reply.is_success() {
            return;
        }
        let before = call.parameter("continue").and_then(|_| last.get(&call.path).cloned());
        if let Some(item) = reply.json()["items"].as_array().and_then(|items| items.last()) {
            last.insert(call.path.clone(), item.clone());
        }
        reply.edit(|list| {
            if let (Some(item), Some(items)) = (before, list["items"].as_array_mut()) {
                items.insert(0, item);
            }
        });
    }))
}

fn pages_of_now() -> Change {
    Change::Request(Box::new(|call| {
        if call.is_list() && call.parameter("continue").is_some() {
            call.forget("continue");
            call.forget("limit");
        }
    }))
}

fn exact_ignored() -> Change {
    Change::Request(Box::new(|call| {
        if call.is_list() && call.parameter("resourceVersionMatch") == Some("Exact") {
            call.forget("resourceVersionMatch");
            call.forget("resourceVersion");
        }
    }))
}

/// Answers with the first good answer to each such request ever after.
fn remember_first(which: fn(&Call) -> bool) -> OnReply {
    let mut first: BTreeMap<String, Reply> = BTreeMap::new();
    Box::new(move |call, reply| {
        if which(call) && reply.is_success() {
            *reply = first.entry(call.path.clone()).or_insert_with(|| reply.clone()).clone();
        }
    })
}

fn noop_bumps() -> Change {
    let mut writes = 0;
    Change::Request(Box::new(move |call| {
        if matches!(call.method, Method::PUT | Method::PATCH) {
            writes += 1;
            call.edit(|object| {
                if object.is_object() {
                    object["metadata"]["annotations"]["mutant"] = json!(writes.to_string());
                }
            });
        }
    }))
}

fn lose_last(list: &mut Value) {
    if let Some(items) = list["items"].as_array_mut() {
        items.pop();
    }
}

/// Adds to a number that is written as text, as resource versions are.
fn shift(text: &mut Value, by: i64) {
    if let Some(number) = text.as_str().and_then(|text| text.parse::<i64>().ok()) {
        *text = json!((number + by).to_string());
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

fn without_nulls(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(without_nulls);
    }
}

fn trim(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.trim().to_owned(),
        Value::Object(fields) => fields.values_mut().for_each(trim),
        Value::Array(items) => items.iter_mut().for_each(trim),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_sentences_are_sentences() {
        let ids: std::collections::BTreeSet<&str> = MUTANTS.iter().map(|mutant| mutant.id).collect();
        assert_eq!(ids.len(), MUTANTS.len());
        assert!(MUTANTS.iter().all(|mutant| mutant.breaks.ends_with('.')));
    }

    #[test]
    fn swapped_events_are_all_there() {
        let Change::Events(mut make) = events_swapped() else { panic!("no filter") };
        let call = Call {
            method: Method::GET,
            path: String::new(),
            query: vec![],
            headers: http::HeaderMap::new(),
            body: bytes::Bytes::new(),
        };
        let mut filter = make(&call).unwrap();
        let passed: Vec<Value> = (0..8).flat_map(|n| filter(json!(n))).collect();
        assert_eq!(passed, [0, 2, 1, 3, 4, 5, 6].map(Value::from));
    }
}
