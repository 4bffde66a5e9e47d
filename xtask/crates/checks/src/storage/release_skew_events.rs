//! The events of one object in the watches of two servers, and the fields that an older server does not know.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::support::watch_raw::{Raw, lines};
use suite::prelude::*;

/// An event of an object.
pub(super) struct Event {
    pub(super) word: String,
    pub(super) object: Object,
}

/// The events of one object, until one of this resource version or a later one; later ones are left out.
pub(super) async fn events(watch: &mut Raw, uid: &str, last: u64, limit: Duration) -> Verdict<Vec<Event>> {
    let deadline = Instant::now() + limit;
    let what = format!("an event of {uid} at resource version {last}");
    loop {
        let events = events_of(&watch.bytes, uid);
        if events.iter().any(|event| event.object.rv() >= last) {
            return Ok(events.into_iter().filter(|event| event.object.rv() <= last).collect());
        }
        if let Some(end) = watch.read_piece(deadline, &what).await? {
            let end = end.unwrap_or_else(|| "it ended".into());
            return Err(CheckError::failed(format!("a watch did not deliver {what}: {end}")));
        }
    }
}

/// The complete events of one object in the body of a watch.
fn events_of(body: &[u8], uid: &str) -> Vec<Event> {
    let complete = body.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let parsed = lines(&body[..complete]).into_iter().filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let events = parsed.map(|mut event| Event {
        word: event["type"].as_str().unwrap_or_default().to_owned(),
        object: Object(event["object"].take()),
    });
    events.filter(|event| event.object.uid() == uid).collect()
}

/// The fault in the order of the events: both servers deliver the same ones, and one for each write.
pub(super) fn order_fault(newer: &[Event], older: &[Event], written: &[u64]) -> Option<String> {
    let words = |events: &[Event]| -> Vec<String> {
        events.iter().map(|event| format!("{}@{}", event.word, event.object.rv())).collect()
    };
    let (here, there) = (words(newer), words(older));
    if here != there {
        return Some(format!("the events are {here:?} at the release under test and {there:?} at the previous one"));
    }
    let is_absent = |rv: &&u64| !newer.iter().any(|event| event.object.rv() == **rv);
    if let Some(rv) = written.iter().find(is_absent) {
        return Some(format!("no watch delivered the write {rv}: {here:?}"));
    }
    let expected = |place: usize| if place == 0 { "ADDED" } else { "MODIFIED" };
    let wrong = newer.iter().enumerate().find(|(place, event)| event.word != expected(*place));
    wrong.map(|(place, event)| format!("event {place} is {}: {here:?}", event.word))
}

/// The paths of the unknown fields in the message of a strict decoder: `unknown field "spec.a[0].b"` (apimachinery
/// pkg/runtime/error.go, strictDecodingError; sigs.k8s.io/json).
pub(super) fn unknown_fields(message: &str) -> Vec<&str> {
    message.split("unknown field \"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Removes a field by such a path.
pub(super) fn remove_field(object: &mut Value, path: &str) {
    let mut steps: Vec<&str> = path.split(['.', '[']).map(|step| step.trim_end_matches(']')).collect();
    let Some(last) = steps.pop() else { return };
    let mut at = object;
    for step in steps {
        let next = match at {
            Value::Array(items) => step.parse().ok().and_then(|index: usize| items.get_mut(index)),
            Value::Object(fields) => fields.get_mut(step),
            _ => None,
        };
        let Some(next) = next else { return };
        at = next;
    }
    if let Value::Object(fields) = at {
        fields.remove(last);
    }
}

/// Removes the fields of `newer` that are neither in `older` nor stored, and returns their number: the newer release gives
/// them a default when it reads.
pub(super) fn remove_defaults(newer: &mut Value, older: &Value, stored: &Value) -> u64 {
    match (newer, older, stored) {
        (Value::Object(newer), Value::Object(older), Value::Object(stored)) => {
            let before = newer.len();
            newer.retain(|name, _| older.contains_key(name) || stored.contains_key(name));
            let mut removed = (before - newer.len()) as u64;
            for (name, value) in newer {
                if let Some((older, stored)) = older.get(name).zip(stored.get(name)) {
                    removed += remove_defaults(value, older, stored);
                }
            }
            removed
        }
        (Value::Array(newer), Value::Array(older), Value::Array(stored))
            if newer.len() == older.len() && newer.len() == stored.len() =>
        {
            newer.iter_mut().zip(older.iter().zip(stored)).map(|(a, (b, c))| remove_defaults(a, b, c)).sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_must_be_the_same_at_both_servers_and_complete() {
        let line = |word: &str, rv: u64| {
            let metadata = json!({"uid": "u", "resourceVersion": rv.to_string()});
            format!("{}\n", json!({"type": word, "object": {"metadata": metadata}}))
        };
        let all = [line("ADDED", 3), line("MODIFIED", 5), line("MODIFIED", 6)].concat();
        let events = |body: &str| events_of(body.as_bytes(), "u");
        assert_eq!(order_fault(&events(&all), &events(&all), &[3, 5, 6]), None);
        assert_eq!(events(&format!("{all}{{\"type\":\"MODIF")).len(), 3);
        assert!(events_of(all.as_bytes(), "v").is_empty());
        let lost = [line("ADDED", 3), line("MODIFIED", 6)].concat();
        let twice = [line("ADDED", 3), line("ADDED", 5), line("MODIFIED", 6)].concat();
        for (newer, older, word) in [
            (&all, &lost, "at the previous one"),
            (&lost, &lost, "no watch delivered the write 5"),
            (&twice, &twice, "event 1 is ADDED"),
        ] {
            let fault = order_fault(&events(newer), &events(older), &[3, 5, 6]).unwrap_or_default();
            assert!(fault.contains(word), "`{word}` is not in `{fault}`");
        }
    }

    #[test]
    fn only_the_fields_that_the_older_release_does_not_know_are_left_out() {
        let message = "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown \
                       field \"spec.template.spec.containers[1].fresh\", unknown field \"status.fresh\"";
        let fields = unknown_fields(message);
        assert_eq!(fields, ["spec.template.spec.containers[1].fresh", "status.fresh"]);
        assert!(unknown_fields("the object has been modified").is_empty());
        let containers = json!([{"fresh": 1}, {"fresh": 2, "name": "c"}]);
        let mut seen = json!({"spec": {"template": {"spec": {"containers": containers}}}, "status": {"fresh": 3}});
        fields.iter().chain(&["absent.field", "spec[0]", ""]).for_each(|path| remove_field(&mut seen, path));
        let containers = json!([{"fresh": 1}, {"name": "c"}]);
        assert_eq!(seen, json!({"spec": {"template": {"spec": {"containers": containers}}}, "status": {}}));
    }
    #[test]
    fn only_fields_that_are_not_stored_are_defaults_of_the_newer_release() {
        let stored = json!({"spec": {"a": 1, "kept": 2, "list": [{"n": "x"}]}});
        let older = json!({"spec": {"a": 1, "list": [{"n": "x"}]}});
        let mut newer = json!({"spec": {"a": 1, "kept": 2, "new": 3, "list": [{"n": "x", "new": 4}]}});
        assert_eq!(remove_defaults(&mut newer, &older, &stored), 2);
        // The older release has lost a stored field: that stays a difference.
        assert_eq!(newer, stored);
        let mut changed = json!({"spec": {"a": 9}});
        assert_eq!(remove_defaults(&mut changed, &older, &stored), 0);
        assert_eq!(changed, json!({"spec": {"a": 9}}));
    }
}
