//! Servers that mislead the caches of clients, and their optimistic locks. The proxy changes JSON only: streams and lists of
//! the dynamic informers.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use super::tools::{each_event, is_marker, remove, shift};
use super::{Change, Mutant, mutants};

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "client.change-lost": "A watch omits some MODIFIED." => "client.informer-equals-history" on "disruptive",
        || each_event(|n, event| if n % 5 == 4 && event["type"] == "MODIFIED" { vec![] } else { vec![event] });
    "client.older-version": "A watch repeats an earlier version of an object." => "client.informer-equals-history" on "disruptive",
        older_version;
    "client.deleted-other-object": "A DELETED carries another object with the same name." => "client.informer-equals-history" on "disruptive",
        || each_event(|_, mut event| {
            if event["type"] == "DELETED" && !is_marker(&event) {
                event["object"]["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
            }
            vec![event]
        });
    "client.field-altered": "An event carries another value of a field." => "client.informer-equals-history" on "disruptive",
        || each_event(|_, mut event| {
            if event["type"] == "MODIFIED" {
                event["object"]["data"]["by"] = json!("altered");
            }
            vec![event]
        });
    "client.relist-incomplete": "A list from a resource version on lacks some objects." => "client.informer-equals-history" on "disruptive",
        // Only an informer whose watch broke sends such a list. The objects by which the programs answer live to the end.
        || Change::Reply(Box::new(|call, reply| {
            if call.is_list() && call.parameter("resourceVersion").is_some_and(|version| version != "0") {
                reply.edit(without_answers);
            }
        }));
    "client.second-holder": "A refused update of a Lease is answered with success and the next version." => "client.leader-election" on "disruptive",
        || Change::Reply(Box::new(|call, reply| {
            if call.method == Method::PUT && reply.status == 409 && call.path.contains("/leases/") {
                reply.status = 200;
                reply.body = call.body.clone();
                reply.edit(|lease| shift(&mut lease["metadata"]["resourceVersion"], 1));
            }
        }));
    "client.increment-lost": "An update of a ConfigMap takes effect regardless of its resource version." => "client.conflict-retry" on "disruptive",
        || Change::Request(Box::new(|call| {
            if call.method == Method::PUT && call.path.contains("/configmaps/") {
                call.edit(|body| remove(&mut body["metadata"], "resourceVersion"));
            }
        }));
};

fn without_answers(list: &mut Value) {
    if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
        items.retain(|item| !item["metadata"]["name"].as_str().unwrap_or_default().starts_with("ready"));
    }
}

fn older_version() -> Change {
    Change::Events(Box::new(|_| {
        let mut first: BTreeMap<String, Value> = BTreeMap::new();
        Some(Box::new(move |event| {
            let name = event["object"]["metadata"]["name"].to_string();
            match event["type"].as_str() {
                Some("ADDED") => {
                    first.insert(name, event["object"].clone());
                    vec![event]
                }
                Some("MODIFIED") => match first.remove(&name) {
                    Some(older) => vec![event, json!({"type": "MODIFIED", "object": older})],
                    None => vec![event],
                },
                _ => vec![event],
            }
        }))
    }))
}
