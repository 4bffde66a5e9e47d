//! Servers that mislead the caches of clients. The proxy changes streams of JSON only: those of the dynamic and the metadata
//! informers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::tools::{each_event, is_marker};
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
