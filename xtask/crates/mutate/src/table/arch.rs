//! Values that must not depend on the architecture: discovery, hashes, tokens, numbers, stored bytes.

use http::Method;
use serde_json::{Value, json};

use super::tools::{answered, each_list, sent};
use super::{Change, Means, Mutant, mutants};
use crate::call::Call;
use crate::store::StoreChange;

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

pub(super) static RAW: &[Mutant] = mutants! { Means::RawStore;
    "arch.data-dir-lease-lost": "An etcd that opens another machine's directory has its keys without their leases." => "storage.arch-data-dir" on "disruptive",
        || StoreChange::of_replies(|method, message| {
            if method == "Range" {
                message.edit(KVS, |kv| {
                    if kv.bytes(KEY).starts_with(GOLDEN) {
                        kv.set_number(LEASE, 0);
                    }
                });
            }
        });
    "arch.data-dir-hash": "An etcd that opens another machine's directory computes other hashes from it." => "storage.arch-data-dir" on "disruptive",
        || StoreChange::of_replies(|method, message| {
            if method == "HashKV" {
                message.set_number(HASH, message.number(HASH) ^ 1);
            }
        });
    "arch.data-dir-write-lost": "A restart loses the write to another machine's directory." => "storage.arch-data-dir" on "disruptive",
        last_write_lost;
};

/// The beginning of the keys in targets/golden/etcd-data-dir.json, and the key that the check adds.
const GOLDEN: &[u8] = b"/registry/golden/";
const ADDED: &[u8] = b"/registry/golden/here";
// RangeResponse, KeyValue and HashKVResponse; the numbers are those of etcd's `rpc.proto` and `kv.proto`.
const KVS: u64 = 2;
const KEY: u64 = 1;
const LEASE: u64 = 6;
const HASH: u64 = 2;

/// The check lists the keys once after its write, and then after a restart.
fn last_write_lost() -> StoreChange {
    let mut shown = false;
    StoreChange::of_replies(move |method, message| {
        if method == "Range" {
            let has = message.messages(KVS).iter().any(|kv| kv.bytes(KEY) == ADDED);
            if shown {
                message.retain(KVS, |kv| kv.bytes(KEY) != ADDED);
            }
            shown |= has;
        }
    })
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    #[test]
    fn write_is_lost_after_it_was_shown_once() {
        let mut change = last_write_lost().reply.expect("a change of replies");
        let mut shown = |keys: &[&[u8]]| {
            let mut range = Message::default();
            for key in keys {
                let mut kv = Message::default();
                kv.set_bytes(KEY, key.to_vec());
                range.push(KVS, kv.encode());
            }
            change("Range", &mut range);
            range.messages(KVS).len()
        };
        let other: &[u8] = b"/registry/golden/0";
        assert_eq!([shown(&[other]), shown(&[other, ADDED]), shown(&[other, ADDED])], [1, 2, 1]);
    }
}
