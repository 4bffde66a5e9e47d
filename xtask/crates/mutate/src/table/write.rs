//! Creations, updates, patches and deletions.

use http::Method;
use serde_json::{Value, json};

use super::tools::{answered, field_ignored, rehearsed, remove, sent, status_changed, version_shifted};
use super::{Change, Mutant, mutants};

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "write.precondition-lost": "An update with an old resource version succeeds." => "cc.no-lost-update",
        || field_ignored(Method::PUT, "/metadata/resourceVersion");
    "write.conflict-hidden": "The server answers a refused update with 200." => "cc.update-conflict",
        || status_changed(|_| true, 409, 200);
    "write.existing-accepted": "The server answers a second POST of a name with 201." => "storage.create-txn",
        || status_changed(|call| call.method == Method::POST, 409, 201);
    "write.rv-padded": "Resource versions have leading zeros." => "rv.monotonic-comparable",
        || answered(|_| true, |object| {
            if let Some(text) = object["metadata"]["resourceVersion"].as_str() {
                object["metadata"]["resourceVersion"] = json!(format!("0{text}"));
            }
        });
    "write.not-kept": "The server answers some updates with 200 but does not write them." => "cc.no-lost-update",
        || rehearsed(|call| call.method == Method::PUT, 5);
    "write.other-rv": "The server answers an update with a revision of another change." => "suite.writes",
        || version_shifted(|call| call.method == Method::PUT && call.path.contains("suite-traffic"), -1);
    "delete.not-done": "The server answers a DELETE with success but does not delete the object." => "cc.delete-semantics",
        || Change::Request(Box::new(|call| {
            if call.method == Method::DELETE && call.names_an_object() {
                call.method = Method::GET;
                call.query.clear();
                call.body.clear();
            }
        }));
    "write.noop-bumps": "An update that changes nothing creates a new revision." => "cc.noop-write", noop_bumps;
    "write.finalizers-lost": "The server drops finalizers." => "cc.finalizer-two-phase",
        || sent(
            |call| matches!(call.method, Method::POST | Method::PUT),
            |object| remove(&mut object["metadata"], "finalizers"),
        );
    "write.managed-fields-lost": "Answers omit managedFields." => "cc.managed-fields-stored",
        || answered(
            |call| call.names_an_object() || call.method == Method::POST,
            |object| remove(&mut object["metadata"], "managedFields"),
        );
    "write.patch-without-null": "A merge patch does not remove fields that it sets to null." => "cc.patch-kinds",
        || sent(|call| call.method == Method::PATCH, without_nulls);
    "write.text-trimmed": "The server trims white space at both ends of strings." => "storage.roundtrip",
        || sent(|call| matches!(call.method, Method::POST | Method::PUT), |object| {
            trim(&mut object["data"]);
            trim(&mut object["spec"]);
        });
    "delete.preconditions-ignored": "A deletion ignores its preconditions." => "cc.delete-preconditions",
        || field_ignored(Method::DELETE, "/preconditions");
    "delete.propagation-ignored": "A deletion ignores its propagation policy." => "cc.propagation",
        || Change::Request(Box::new(|call| {
            if call.method == Method::DELETE {
                call.forget("propagationPolicy");
                call.edit(|options| remove(options, "propagationPolicy"));
            }
        }));
};

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
