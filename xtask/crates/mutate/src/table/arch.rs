//! Values that must not depend on the architecture: discovery, hashes, tokens, numbers, stored bytes.

use http::Method;
use serde_json::{Value, json};

use super::tools::{answered, each_list, sent};
use super::{Change, Means, Mutant, mutants};
use crate::call::Call;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "arch.hash-of-answered-version": "Discovery returns the storage version hash of another kind." => "storage.arch-discovery-hash",
        || answered(
            |call| call.path == "/apis/autoscaling/v1",
            |list| list["resources"][0]["storageVersionHash"] = json!("qFsyl6wFWjQ="),
        );
    "arch.numbers-are-floats": "The server converts integers in objects to a 64-bit float and back." => "storage.arch-cr-numbers",
        || sent(is_create, |object| to_floats(&mut object["spec"]));
    "arch.token-padded": "Continue tokens have base64 padding." => "storage.arch-compare-continue",
        || each_list(|list| {
            if let Some(token) = list["metadata"]["continue"].as_str() {
                let padding = "=".repeat((4 - token.len() % 4) % 4);
                list["metadata"]["continue"] = json!(format!("{token}{padding}="));
            }
        });
    "arch.empty-list-lost": "The server drops empty lists before it stores an object." => "storage.arch-bytes-identical",
        || sent(is_create, without_empty_lists);
    "arch.number-saturated": "A merge patch stores the limit of an int32 instead of a larger number." => "storage.number-range",
        || sent(|call| patches_as(call, "application/merge-patch+json"), saturate);
    "arch.name-of-other-hash": "The hash in the name of a ReplicaSet is another one." => "storage.arch-derived-names" on "disruptive",
        || answered(|call| call.path.ends_with("/replicasets"), |list| {
            for item in list["items"].as_array_mut().into_iter().flatten() {
                other_hash(&mut item["metadata"]);
            }
        });
    "sweep.delete-only-answered": "The server answers a DELETE with success but does not delete the object." => "storage.gvr-sweep",
        || Change::Request(Box::new(|call| {
            if call.method == Method::DELETE && call.path.contains("/priorityclasses/") {
                call.method = Method::GET;
            }
        }));
    "sweep.review-stored": "The server stores an access review." => "storage.gvr-sweep",
        || Change::Request(Box::new(|call| {
            if call.path.ends_with("/localsubjectaccessreviews") {
                let namespace = call.path.split('/').nth(5).unwrap_or_default().to_owned();
                call.path = format!("/api/v1/namespaces/{namespace}/configmaps");
                call.edit(|object| *object = json!({"metadata": {"name": "review"}}));
            }
        }));
};

pub(super) static BY_FLAGS: &[Mutant] = mutants! { Means::Flags;
    "sweep.more-served": "The server serves resources that the release's table does not contain." => "storage.gvr-sweep",
        &[("runtime-config", "api/all=true")];
};

/// Whether the call creates an object that is not a definition of other objects.
fn is_create(call: &Call) -> bool {
    call.method == Method::POST && !call.path.ends_with("/customresourcedefinitions")
}

/// Reverses the hash in the label and in the name.
fn other_hash(metadata: &mut Value) {
    let Some(hash) = metadata["labels"]["pod-template-hash"].as_str().map(str::to_owned) else { return };
    let reversed: String = hash.chars().rev().collect();
    metadata["labels"]["pod-template-hash"] = json!(reversed);
    if let Some(name) = metadata["name"].as_str().and_then(|name| name.strip_suffix(&hash)) {
        metadata["name"] = json!(format!("{name}{reversed}"));
    }
}

fn patches_as(call: &Call, media_type: &str) -> bool {
    call.method == Method::PATCH && call.headers.get("content-type").is_some_and(|value| value == media_type)
}

fn saturate(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64().is_some_and(|float| float > f64::from(i32::MAX)) => {
            *value = json!(i32::MAX);
        }
        Value::Object(fields) => fields.values_mut().for_each(saturate),
        Value::Array(items) => items.iter_mut().for_each(saturate),
        _ => {}
    }
}

fn to_floats(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64() {
                *value = json!(float);
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(to_floats),
        Value::Array(items) => items.iter_mut().for_each(to_floats),
        _ => {}
    }
}

fn without_empty_lists(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| value.as_array().is_none_or(|items| !items.is_empty()));
            fields.values_mut().for_each(without_empty_lists);
        }
        Value::Array(items) => items.iter_mut().for_each(without_empty_lists),
        _ => {}
    }
}
