//! Servers that damage the content of an object on its way, while type, key and resource version are right.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::store::each_event_of_ours;
use super::tools::{each_event, each_list, is_marker, remove};
use super::{Change, Means, Mutant, mutants};

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "content.field-altered": "One field of one event in 500 differs." => "cc.same-object", one_in_500;
    "content.labels-lost": "A DELETED has no labels." => "watch.deleted-object",
        || each_event(|_, mut event| {
            if event["type"] == "DELETED" {
                remove(&mut event["object"]["metadata"], "labels");
            }
            vec![event]
        });
    "content.deleted-outdated": "A DELETED carries the state before the last one." => "watch.deleted-object", deleted_outdated;
    "content.number-rounded": "Events carry numbers as 64-bit floating point." => "cc.same-object",
        || each_event(|_, mut event| {
            rounded(&mut event["object"]);
            vec![event]
        });
    "content.text-composed": "Events carry composed instead of decomposed letters." => "cc.same-object",
        || each_event(|_, event| vec![replaced(&event, "e\u{301}", "\u{e9}")]);
    "content.time-truncated": "Events carry times in milliseconds." => "cc.same-object",
        || each_event(|_, mut event| {
            let time = event.pointer_mut("/object/spec/renewTime");
            if let Some(Value::String(time)) = time && time.ends_with("456Z") {
                time.replace_range(time.len() - 4.., "000Z");
            }
            vec![event]
        });
    "content.of-another-object": "An item of a list has the data of another object." => "cc.same-object",
        || each_list(|list| {
            if let Some([first, second, ..]) = list["items"].as_array_mut().map(Vec::as_mut_slice) {
                first["data"] = second["data"].clone();
            }
        });
    "content.item-outdated": "An item of a list has the content of the version before." => "cc.same-object", item_outdated;
};

pub(super) static BY_STORE: &[Mutant] = mutants! { Means::Store;
    "content.cache-altered": "All servers show another field name than the store holds." => "storage.matches-served",
        || each_event_of_ours(|value| {
            // A key of ConfigMap data: field 1 of a map entry.
            if let Some(at) = value.windows(4).position(|bytes| bytes == b"\x0a\x02by") {
                value[at + 3] = b'z';
            }
        });
};

fn one_in_500() -> Change {
    let seen = Arc::new(AtomicUsize::new(1));
    Change::Events(Box::new(move |_| {
        let seen = Arc::clone(&seen);
        Some(Box::new(move |mut event| {
            let is_object = event["object"]["data"].is_object() && !is_marker(&event);
            if is_object && event["type"] != "DELETED" && seen.fetch_add(1, Ordering::Relaxed).is_multiple_of(500) {
                event["object"]["data"]["by"] = json!("another");
            }
            vec![event]
        }))
    }))
}

fn deleted_outdated() -> Change {
    Change::Events(Box::new(|_| {
        let mut states: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        Some(Box::new(move |mut event| {
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let seen = states.entry(name).or_default();
            if event["type"] != "DELETED" {
                seen.push(event["object"].clone());
            } else if let [.., before, _] = seen.as_mut_slice() {
                before["metadata"]["resourceVersion"] = event["object"]["metadata"]["resourceVersion"].clone();
                event["object"] = before.clone();
                seen.clear();
            }
            vec![event]
        }))
    }))
}

fn rounded(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.as_f64().is_some_and(|number| number >= EXACT) => {
            *value = json!(format!("{:.0}", number.as_f64().unwrap_or_default()).parse::<u64>().unwrap_or_default());
        }
        Value::Array(items) => items.iter_mut().for_each(rounded),
        Value::Object(members) => members.values_mut().for_each(rounded),
        _ => {}
    }
}

fn replaced(event: &Value, from: &str, to: &str) -> Value {
    serde_json::from_str(&event.to_string().replace(from, to)).unwrap_or_default()
}

/// Shows the data that the first list with another version of the object had.
fn item_outdated() -> Change {
    let mut first: BTreeMap<String, Value> = BTreeMap::new();
    Change::Reply(Box::new(move |call, reply| {
        if call.is_list() && reply.is_success() {
            reply.edit(|list| {
                for item in list["items"].as_array_mut().into_iter().flatten() {
                    let key = format!("{}/{}", item["metadata"]["namespace"], item["metadata"]["name"]);
                    let data = item["data"].clone();
                    item["data"] = first.entry(key).or_insert(data).clone();
                }
            });
        }
    }))
}
