//! Functions for several mutants.

use std::collections::BTreeMap;

use http::Method;
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

/// Changes the bodies of requests.
pub(super) fn sent(which: fn(&Call) -> bool, change: fn(&mut Value)) -> Change {
    Change::Request(Box::new(move |call| {
        if which(call) {
            call.edit(change);
        }
    }))
}

/// Changes the bodies of answers, whatever their status.
pub(super) fn answered(which: fn(&Call) -> bool, change: fn(&mut Value)) -> Change {
    Change::Reply(Box::new(move |call, reply| {
        if which(call) {
            reply.edit(change);
        }
    }))
}

/// The requests lose these parameters.
pub(super) fn ignored(which: fn(&Call) -> bool, names: &'static [&'static str]) -> Change {
    Change::Request(Box::new(move |call| {
        if which(call) {
            names.iter().for_each(|name| call.forget(name));
        }
    }))
}

/// The requests get a parameter more.
pub(super) fn added(which: fn(&Call) -> bool, name: &'static str, value: &'static str) -> Change {
    Change::Request(Box::new(move |call| {
        if which(call) {
            call.query.push((name.into(), value.into()));
        }
    }))
}

/// Turns every n-th of the requests into a dry run.
pub(super) fn rehearsed(which: fn(&Call) -> bool, n: u32) -> Change {
    let mut seen = 0;
    Change::Request(Box::new(move |call| {
        if which(call) {
            seen += 1;
            if seen % n == 0 {
                call.query.push(("dryRun".into(), "All".into()));
            }
        }
    }))
}

/// The bodies of requests with this method lose the field at a JSON pointer.
pub(super) fn field_ignored(method: Method, pointer: &'static str) -> Change {
    Change::Request(Box::new(move |call| {
        if call.method == method {
            call.edit(|body| {
                let (object, field) = pointer.rsplit_once('/').unwrap_or_default();
                body.pointer_mut(object).into_iter().for_each(|object| remove(object, field));
            });
        }
    }))
}

/// The answers have another status.
pub(super) fn status_changed(which: fn(&Call) -> bool, from: u16, to: u16) -> Change {
    Change::Reply(Box::new(move |call, reply| {
        if which(call) && reply.status == from {
            reply.status = to;
        }
    }))
}

/// The objects in answers have another resource version.
pub(super) fn version_shifted(which: fn(&Call) -> bool, by: i64) -> Change {
    Change::Reply(Box::new(move |call, reply| {
        if which(call) && reply.is_success() {
            reply.edit(|object| shift(&mut object["metadata"]["resourceVersion"], by));
        }
    }))
}

/// The event with another resource version, if it is of this type.
pub(super) fn shifted(mut event: Value, of: &str, by: i64) -> Value {
    if event["type"] == of {
        shift(&mut event["object"]["metadata"]["resourceVersion"], by);
    }
    event
}

/// Whether the event is the workload's marker. Most mutants keep it, because without it nothing is judged.
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
