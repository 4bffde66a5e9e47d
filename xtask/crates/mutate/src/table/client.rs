//! Servers that mislead the caches of clients, and their optimistic locks. The proxy changes streams of JSON only: those of
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
