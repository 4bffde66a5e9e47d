//! Objects of `crd_webhook`, independent of the version in which they are stored or shown, and their comparisons. Pure.

use model::history::{Change, Revision};
use serde_json::Value;

use suite::prelude::*;
use suite::store::KeyValue;
use suite::watch::Event;

/// The versions, and the name that each has for one field of the spec (targets/programs/faults/webhook.go).
pub(super) const FIELDS: [(&str, &str); 2] = [("v1", "colour"), ("v2", "color")];

/// An object, independent of its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) rv: u64,
    pub(super) colour: String,
    pub(super) n: i64,
}

/// The type and the object of an event.
pub(super) type Shown = (String, View);

/// The name of the field in a version; empty for another version.
pub(super) fn field(version: &str) -> &'static str {
    FIELDS.iter().find(|(name, _)| *name == version).map_or("", |(_, field)| field)
}

/// Reads an object in the version that it names.
fn view(object: &Value, rv: u64) -> Result<View, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&object["apiVersion"]);
    let version = api_version.rsplit_once('/').map_or("", |(_, version)| version);
    let own = field(version);
    if own.is_empty() {
        return Err(format!("an object is of no known version: {object}"));
    }
    let spec = &object["spec"];
    let foreign = FIELDS.iter().find(|(name, field)| *name != version && !spec[*field].is_null());
    if let Some((other, field)) = foreign {
        return Err(format!("an object of `{api_version}` has the field {field} of {other}: {object}"));
    }
    match (&spec[own], spec["n"].as_i64()) {
        (Value::String(colour), Some(n)) => Ok(View {
            name: text(&object["metadata"]["name"]),
            uid: text(&object["metadata"]["uid"]),
            rv,
            colour: colour.clone(),
            n,
        }),
        _ => Err(format!("an object of `{api_version}` lacks a field: {object}")),
    }
}

/// The version in which a value is stored; empty if it is no custom resource.
pub(super) fn stored_version(kv: &KeyValue) -> String {
    let value: Value = serde_json::from_slice(&kv.value).unwrap_or_default();
    let version = value["apiVersion"].as_str().and_then(|text| text.rsplit_once('/'));
    version.map_or_else(String::new, |(_, version)| version.to_owned())
}

/// Reads stored values.
pub(super) fn stored_views(values: &[KeyValue]) -> Result<Vec<View>, String> {
    values.iter().map(|kv| stored_view(&kv.key, &kv.value, kv.mod_rev)).collect()
}

fn stored_view(key: &str, value: &[u8], rev: i64) -> Result<View, String> {
    let value = serde_json::from_slice(value).map_err(|error| format!("the value of {key} is not JSON: {error}"))?;
    view(&value, rev.cast_unsigned()).map_err(|fault| format!("the value of {key}: {fault}"))
}

/// The event that a change of the store requires; the check deletes nothing.
pub(super) fn recorded(revision: &Revision) -> Result<Shown, String> {
    let word = match revision.kind {
        Change::Delete => return Err(format!("the store has lost {} at {}", revision.key, revision.rev)),
        Change::Put if revision.create_rev == revision.rev => "ADDED",
        Change::Put => "MODIFIED",
    };
    Ok((word.to_owned(), stored_view(&revision.key, &revision.value, revision.rev)?))
}

/// The difference between an object and the expected one.
pub(super) fn object_fault(object: &Object, expected: &View) -> Option<String> {
    match view(&object.0, object.rv()) {
        Ok(seen) if seen == *expected => None,
        Ok(seen) => Some(format!("expected {expected:?}, seen {seen:?}")),
        Err(fault) => Some(fault),
    }
}

/// The first difference between a list and the expected objects, in their order.
pub(super) fn list_fault(list: &Object, expected: &[View]) -> Option<String> {
    let items = list.items();
    if let Some(fault) = items.iter().zip(expected).find_map(|(item, view)| object_fault(item, view)) {
        return Some(fault);
    }
    (items.len() != expected.len()).then(|| format!("it has {} objects, the store has {}", items.len(), expected.len()))
}

/// The first difference between events and the changes of the store.
pub(super) fn events_fault(events: &[Event], expected: &[Shown]) -> Option<String> {
    for (event, (word, view)) in events.iter().zip(expected) {
        if event.word() != word {
            return Some(format!("{} of {:?} should be {word} of {view:?}", event.word(), event.object.name()));
        }
        if let Some(fault) = object_fault(&event.object, view) {
            return Some(format!("{word}: {fault}"));
        }
    }
    (events.len() != expected.len()).then(|| format!("{} events came for {} changes", events.len(), expected.len()))
}

/// The contradiction between the answer to a write and the object's stored value before and after it.
pub(super) fn write_fault(before: Option<&KeyValue>, after: Option<&KeyValue>, status: u16) -> Option<String> {
    let is_changed = before != after;
    match status {
        200..300 if !is_changed => Some("a write was acknowledged, and the store has not changed".into()),
        200..300 => None,
        500.. if is_changed => {
            Some(format!("a write was refused, and the store has changed from {before:?} to {after:?}"))
        }
        500.. => None,
        _ => Some("only a server error says that the conversion failed".into()),
    }
}

#[cfg(test)]
mod tests {
    use model::history::{Frame, FrameKind, Key};
    use serde_json::json;

    use super::*;
    use crate::support::assertions::fixture::change;

    fn object(version: &str, name: &str, rv: u64) -> Object {
        Object(json!({
            "apiVersion": format!("example.org/{version}"), "kind": "Fruit",
            "metadata": {"name": name, "uid": "u", "resourceVersion": rv.to_string()},
            "spec": {field(version): "red", "n": 1},
        }))
    }

    fn red(name: &str, rv: u64) -> View {
        View { name: name.into(), uid: "u".into(), rv, colour: "red".into(), n: 1 }
    }

    #[test]
    fn object_is_the_same_in_both_versions() {
        for version in ["v1", "v2"] {
            assert_eq!(object_fault(&object(version, "a", 5), &red("a", 5)), None);
        }
        let as_second = |object: Object| object.with("apiVersion", "example.org/v2");
        for (object, why) in [
            (as_second(object("v1", "a", 5)), "field colour of v1"),
            (object("v2", "a", 5).with("spec.colour", "red"), "field colour of v1"),
            (object("v2", "a", 5).without("spec.color"), "lacks a field"),
            (object("v1", "a", 5).without("spec.n"), "lacks a field"),
            (object("v1", "a", 5).with("spec.colour", "green"), "green"),
            (object("v1", "a", 6), "rv: 6"),
            (object("v1", "a", 5).with("metadata.uid", "w"), "uid: \"w\""),
            (object("v3", "a", 5), "no known version"),
        ] {
            let fault = object_fault(&object, &red("a", 5)).expect(why);
            assert!(fault.contains(why), "`{why}` is not in `{fault}`");
        }
    }

    #[test]
    fn list_has_all_objects_in_order() {
        let list = |items: &[Object]| Object(json!({"items": items.iter().map(|item| &item.0).collect::<Vec<_>>()}));
        let (a, b) = (object("v1", "a", 5), object("v2", "b", 7));
        let stored = [red("a", 5), red("b", 7)];
        assert_eq!(list_fault(&list(&[a.clone(), b.clone()]), &stored), None);
        for (items, why) in [
            (vec![b.clone(), a.clone()], "name: \"b\""),
            (vec![a.clone()], "it has 1 objects"),
            (vec![a.clone(), b.clone(), b.clone()], "it has 3 objects"),
            (vec![a, b.without("spec.color")], "lacks a field"),
        ] {
            let fault = list_fault(&list(&items), &stored).expect(why);
            assert!(fault.contains(why), "`{why}` is not in `{fault}`");
        }
    }

    #[test]
    fn stored_values_are_read_in_their_version() {
        let value = |version: &str| {
            let stored = object(version, "a", 0).without("metadata.resourceVersion");
            KeyValue { key: "/a".into(), value: stored.to_string().into_bytes(), mod_rev: 5, ..KeyValue::default() }
        };
        assert_eq!(stored_views(&[value("v1"), value("v2")]), Ok(vec![red("a", 5), red("a", 5)]));
        assert_eq!([stored_version(&value("v1")), stored_version(&value("v2"))], ["v1", "v2"]);
        assert_eq!(stored_version(&KeyValue::default()), "");
        assert!(stored_views(&[KeyValue::default()]).is_err());
    }

    #[test]
    fn events_are_the_changes_with_their_content() {
        let event = |kind: FrameKind, object: Object| {
            let frame = Frame { at: 0, kind, key: Key::from("a"), rv: object.rv(), uid: Key::from("u") };
            Event { frame, object }
        };
        let added = |object: Object| event(FrameKind::Added, object);
        let modified = |object: Object| event(FrameKind::Modified, object);
        let value = object("v2", "a", 0).to_string().into_bytes();
        let put = |rev, create_rev| Revision { create_rev, ..change(Change::Put, rev, &value) };
        let history: Vec<Shown> = [put(5, 5), put(7, 5)].iter().map(|put| recorded(put).unwrap()).collect();
        let good = |version: &str| vec![added(object(version, "a", 5)), modified(object(version, "a", 7))];
        assert_eq!(events_fault(&good("v1"), &history), None);
        assert_eq!(events_fault(&good("v2"), &history), None);
        for (events, why) in [
            (vec![added(object("v1", "a", 5))], "1 events came for 2 changes"),
            (vec![added(object("v1", "a", 5)), modified(object("v1", "a", 5))], "rv: 5"),
            (vec![added(object("v1", "a", 5)), added(object("v1", "a", 7))], "should be MODIFIED"),
            (vec![added(object("v1", "a", 5)), modified(object("v2", "a", 7).without("spec.color"))], "lacks a field"),
        ] {
            let fault = events_fault(&events, &history).expect(why);
            assert!(fault.contains(why), "`{why}` is not in `{fault}`");
        }
        assert!(recorded(&change(Change::Delete, 7, b"")).is_err());
    }

    #[test]
    fn refused_write_changes_nothing() {
        let kv = |mod_rev| Some(KeyValue { mod_rev, ..KeyValue::default() });
        for (before, after, status, is_right) in [
            (kv(5), kv(5), 500, true),
            (None, None, 500, true),
            (None, kv(7), 201, true),
            (kv(5), None, 200, true),
            (kv(5), kv(7), 500, false),
            (None, kv(7), 503, false),
            (kv(5), None, 500, false),
            (kv(5), kv(5), 200, false),
            // A 404 denies that the object exists, a 409 that it is the present version.
            (kv(5), kv(5), 404, false),
            (kv(5), kv(5), 409, false),
        ] {
            let fault = write_fault(before.as_ref(), after.as_ref(), status);
            assert_eq!(fault.is_none(), is_right, "{before:?}, {after:?}, {status}: {fault:?}");
        }
    }
}
