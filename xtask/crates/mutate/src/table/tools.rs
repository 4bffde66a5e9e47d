//! Functions for several mutants.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Change, OnReply};
use crate::call::{Call, Reply};

/// A filter that is called with each event of a stream and its number, from 0.
pub(super) fn each_event(change: fn(usize, Value) -> Vec<Value>) -> Change {
    Change::Events(Box::new(move |_| {
        let mut numbers = 0..;
        Some(Box::new(move |event| change(numbers.next().unwrap_or_default(), event)))
    }))
}

pub(super) fn each_list(change: fn(&mut Value)) -> Change {
    Change::Reply(Box::new(move |call, reply| {
        if call.is_list() && reply.is_success() {
            reply.edit(change);
        }
    }))
}

/// Whether the event is the workload's last write. Most mutants keep it, because without it nothing is judged.
pub(super) fn is_marker(event: &Value) -> bool {
    event["object"]["metadata"]["name"] == "marker"
}

/// Repeats the first successful answer for all later requests of the same path.
pub(super) fn remember_first(which: fn(&Call) -> bool) -> OnReply {
    let mut first: BTreeMap<String, Reply> = BTreeMap::new();
    Box::new(move |call, reply| {
        if which(call) && reply.is_success() {
            *reply = first.entry(call.path.clone()).or_insert_with(|| reply.clone()).clone();
        }
    })
}

/// Adds to a number in text form, such as a resource version.
pub(super) fn shift(text: &mut Value, by: i64) {
    if let Some(number) = text.as_str().and_then(|text| text.parse::<i64>().ok()) {
        *text = json!(number.saturating_add(by).to_string());
    }
}

pub(super) fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}
