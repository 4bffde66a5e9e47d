//! Servers that break a promise about a new object, a binding or a time, and stores that hold something else than the
//! apiserver wrote. The numbers are those of etcd's `rpc.proto` and of the `generated.proto` files of Kubernetes.

use http::header::DATE;
use http::{HeaderValue, Method};
use serde_json::{Value, json};

use super::tools::{answered, remove, sent, status_changed};
use super::{Change, Means, Mutant, mutants};
use crate::call::Call;
use crate::message::Message;
use crate::store::StoreChange;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "created.status-kept": "A new object has the status that the client sent." => "storage.create-strips-status",
        || created_as_sent("/status");
    "created.generation-kept": "A new object has the generation that the client sent." => "storage.create-strips-status",
        || created_as_sent("/metadata/generation");
    "created.generation-lost": "A new object has no generation." => "storage.create-strips-status",
        || answered(|call| call.method == Method::POST, |object| remove(&mut object["metadata"], "generation"));
    "created.node-status-lost": "A new Node has no status." => "storage.create-strips-status",
        || sent(
            |call| call.method == Method::POST && call.path == "/api/v1/nodes",
            |node| remove(node, "status"),
        );
    "binding.annotations-lost": "A binding does not copy its annotations to the Pod." => "storage.binding-one-txn",
        || sent(is_binding, |binding| remove(&mut binding["metadata"], "annotations"));
    "binding.labels-lost": "A binding does not copy its labels to the Pod." => "storage.binding-one-txn",
        || sent(is_binding, |binding| remove(&mut binding["metadata"], "labels"));
    "binding.uid-ignored": "A binding ignores the uid in its metadata." => "storage.binding-one-txn",
        || sent(is_binding, |binding| remove(&mut binding["metadata"], "uid"));
    "binding.version-ignored": "A binding ignores the resource version in its metadata." => "storage.binding-one-txn",
        || sent(is_binding, |binding| remove(&mut binding["metadata"], "resourceVersion"));
    "binding.refusal-hidden": "The server answers a refused binding with 201." => "storage.binding-one-txn",
        || status_changed(is_binding, 409, 201);
    "clock.created-at-another-hour": "A creationTimestamp is off by an hour." => "storage.clock-sane",
        || answered(|call| call.method == Method::POST, |object| another_hour(&mut object["metadata"]["creationTimestamp"]));
    "clock.managed-at-another-hour": "The time of a managedFields entry is off by an hour." => "storage.clock-sane",
        || answered(|call| call.method == Method::PUT, |object| {
            object["metadata"]["managedFields"].as_array_mut().into_iter().flatten().for_each(|entry| {
                another_hour(&mut entry["time"]);
            });
        });
    "clock.deleted-without-grace": "A deletionTimestamp does not include the grace period." => "storage.clock-sane",
        || answered(|call| call.method == Method::DELETE, |object| {
            if object["metadata"]["deletionTimestamp"].is_string() {
                object["metadata"]["deletionTimestamp"] = object["metadata"]["creationTimestamp"].clone();
            }
        });
    "clock.stopped": "The server's clock stands still." => "storage.clock-sane", date_stopped;
};

pub(super) static BY_STORE: &[Mutant] = mutants! { Means::Store;
    "created.status-stored": "A new Deployment is stored with a status that its answer does not have." => "storage.create-strips-status",
        || each_put_below("/deployments/", |object| {
            object.edit(STATUS, |status| status.set_number(OBSERVED_GENERATION, 7));
        });
    "created.generation-stored": "A new ReplicaSet is stored with another generation than in its answer." => "storage.create-strips-status",
        || each_put_below("/replicasets/", |object| object.edit(METADATA, |meta| meta.set_number(GENERATION, 7)));
    "binding.condition-lost": "The store holds a bound Pod without its conditions." => "storage.binding-one-txn",
        || each_put_below("/pods/", |pod| pod.edit(STATUS, |status| status.remove(CONDITIONS)));
    "binding.node-lost": "The store holds a bound Pod without its node." => "storage.binding-one-txn",
        || each_put_below("/pods/", |pod| pod.edit(SPEC, |spec| spec.remove(NODE_NAME)));
};

// TxnRequest, RequestOp and PutRequest.
const SUCCESS: u64 = 2;
const REQUEST_PUT: u64 = 2;
const PUT_KEY: u64 = 1;
const PUT_VALUE: u64 = 2;
// runtime.Unknown, and the parts of an object.
const RAW: u64 = 2;
const METADATA: u64 = 1;
const SPEC: u64 = 2;
const STATUS: u64 = 3;
// ObjectMeta, DeploymentStatus, PodStatus and PodSpec.
const GENERATION: u64 = 7;
const OBSERVED_GENERATION: u64 = 1;
const CONDITIONS: u64 = 2;
const NODE_NAME: u64 = 10;

const MAGIC: &[u8] = b"k8s\0";

fn is_binding(call: &Call) -> bool {
    call.method == Method::POST && call.path.ends_with("/binding")
}

/// The answers to creates have the value at this JSON pointer that was sent.
fn created_as_sent(pointer: &'static str) -> Change {
    Change::Reply(Box::new(move |call, reply| {
        if call.method != Method::POST || !reply.is_success() {
            return;
        }
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
        if let Some(value) = body.pointer(pointer) {
            reply.edit(|object| {
                if let Some(parent) = object.pointer_mut(parent) {
                    parent[field] = value.clone();
                }
            });
        }
    }))
}

/// Changes the hour of a time in RFC 3339.
fn another_hour(time: &mut Value) {
    const HOUR: std::ops::Range<usize> = 11..13;
    let Some(text) = time.as_str() else { return };
    let Some(hour) = text.get(HOUR).and_then(|hour| hour.parse::<u8>().ok()) else { return };
    let mut text = text.to_owned();
    text.replace_range(HOUR, &format!("{:02}", (hour + 1) % 24));
    *time = json!(text);
}

/// Every answer has the Date of the first one.
fn date_stopped() -> Change {
    let mut first: Option<HeaderValue> = None;
    Change::Reply(Box::new(move |_, reply| {
        if let Some(now) = reply.headers.get(DATE).cloned() {
            reply.headers.insert(DATE, first.get_or_insert(now).clone());
        }
    }))
}

/// Changes objects in protobuf that the suite's cases write below this part of a key.
fn each_put_below(part: &'static str, change: fn(&mut Message)) -> StoreChange {
    StoreChange::of_requests(move |method, message| {
        if method == "Txn" {
            message.edit(SUCCESS, |operation| {
                operation.edit(REQUEST_PUT, |put| {
                    let key = String::from_utf8_lossy(put.bytes(PUT_KEY)).into_owned();
                    if key.contains(part) && key.contains("/ap-") {
                        change_object(put, change);
                    }
                });
            });
        }
    })
}

fn change_object(put: &mut Message, change: fn(&mut Message)) {
    let Some(mut envelope) = put.bytes(PUT_VALUE).strip_prefix(MAGIC).and_then(Message::parse) else { return };
    envelope.edit(RAW, change);
    put.set_bytes(PUT_VALUE, [MAGIC, envelope.encode().as_slice()].concat());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_hour_keeps_the_form_of_a_time() {
        for (time, expected) in [
            (json!("2026-01-02T03:04:05Z"), json!("2026-01-02T04:04:05Z")),
            (json!("2026-01-02T23:04:05Z"), json!("2026-01-02T00:04:05Z")),
            (json!("soon"), json!("soon")),
            (Value::Null, Value::Null),
        ] {
            let mut changed = time.clone();
            another_hour(&mut changed);
            assert_eq!(changed, expected, "{time}");
        }
    }

    #[test]
    fn put_of_the_right_resource_is_changed() {
        let mut object = Message::default();
        object.push(METADATA, Vec::new());
        let mut envelope = Message::default();
        envelope.push(RAW, object.encode());
        let value = [MAGIC, envelope.encode().as_slice()].concat();
        let mut change = each_put_below("/replicasets/", |object| {
            object.edit(METADATA, |meta| meta.set_number(GENERATION, 7));
        });
        let mut changed = |key: &str| {
            let (mut put, mut operation, mut txn) = (Message::default(), Message::default(), Message::default());
            put.set_bytes(PUT_KEY, key.as_bytes().to_vec());
            put.set_bytes(PUT_VALUE, value.clone());
            operation.push(REQUEST_PUT, put.encode());
            txn.push(SUCCESS, operation.encode());
            change.request.as_mut().unwrap()("Txn", &mut txn);
            txn.message(SUCCESS).message(REQUEST_PUT).bytes(PUT_VALUE) != value
        };
        assert!(changed("/registry/replicasets/ap-x/a"));
        assert!(!changed("/registry/replicasets/default/a"));
        assert!(!changed("/registry/deployments/ap-x/a"));
    }
}
