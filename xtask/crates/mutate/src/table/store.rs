//! Stores that break a promise to the apiserver. The numbers are those of etcd's `rpc.proto` and `kv.proto`.

use std::collections::BTreeMap;

use super::{Means, Mutant, mutants};
use crate::message::Message;
use crate::store::{OnMessage, StoreChange};

pub(super) static MUTANTS: &[Mutant] = mutants! { Means::Store;
    "store.event-dropped": "The store's watch omits some changes." => "watch.matches-etcd-history", each_seventh_event_lost;
    "store.refusal-hidden": "The store reports success for a transaction whose condition did not hold." => "cc.no-lost-update",
        || StoreChange::of_replies(|method, message| {
            if method == "Txn" && message.number(SUCCEEDED) == 0 && speaks_of_ours(message) {
                message.set_number(SUCCEEDED, 1);
            }
        });
    "store.stale": "The store answers with the first value of a key." => "rv.get-unset-linearizable", first_value_for_ever;
    "store.lease-lost": "The store forgets the leases of keys." => "storage.event-lease",
        || each_put(|put| put.set_number(PUT_LEASE, 0));
    "store.lease-short": "The store grants leases for half the requested time." => "storage.event-lease",
        || StoreChange::of_requests(|method, message| {
            if method == "LeaseGrant" {
                message.set_number(TTL, message.number(TTL) / 2);
            }
        });
    "store.value-cut": "The store cuts off the end of a value." => "storage.protobuf-envelope",
        || each_put(|put| {
            let value = put.bytes(PUT_VALUE).to_vec();
            if let Some(cut) = value.strip_suffix(&[0x1a, 0, 0x22, 0]) {
                put.set_bytes(PUT_VALUE, cut.to_vec());
            }
        });
    "store.written-twice": "Every write creates a second key." => "storage.key-layout",
        || StoreChange::of_requests(|method, message| {
            if method == "Txn" {
                for operation in message.messages(SUCCESS) {
                    if is_ours(&operation.message(REQUEST_PUT)) {
                        message.push(SUCCESS, copy_of(operation).encode());
                    }
                }
            }
        });
    "store.services-moved": "The store holds Services under other keys." => "storage.special-prefixes",
        || moved("/registry/services/specs/", "/registry/services/plain/");
    "store.custom-moved": "The store holds custom resources under other keys." => "storage.cr-key",
        || moved(".example.org/", ".example.elsewhere/");
    "store.custom-not-json": "Values of custom resources begin with a space." => "storage.cr-always-json",
        || each_put(|put| {
            if put.bytes(PUT_VALUE).starts_with(b"{") {
                put.set_bytes(PUT_VALUE, [b" ", put.bytes(PUT_VALUE)].concat());
            }
        });
    "store.rv-in-value": "Stored values of custom resources contain a resource version." => "storage.no-rv-in-value",
        || each_put(|put| {
            let text = String::from_utf8_lossy(put.bytes(PUT_VALUE)).into_owned();
            if text.starts_with('{') {
                let with = text.replacen("\"metadata\":{", "\"metadata\":{\"resourceVersion\":\"1\",", 1);
                put.set_bytes(PUT_VALUE, with.into_bytes());
            }
        });
    "store.other-version": "CronJobs are stored in an older version." => "storage.storage-version",
        || each_put(|put| {
            if put.bytes(KEY).windows(10).any(|text| text == b"/cronjobs/") {
                stored_as(put, b"batch/v1beta1");
            }
        });
    "store.stream-incomplete": "A list that the store sends as a stream lacks some keys." => "list.range-stream",
        || StoreChange::of_replies(|method, message| {
            if method == "RangeStream" {
                message.edit(STREAMED_RANGE, |chunk| {
                    chunk.retain(KVS, |kv| !is_ours(kv) || !kv.bytes(KEY).ends_with(b"7"));
                });
            }
        });
};

// WatchResponse, and Event.
const EVENTS: u64 = 11;
const KV: u64 = 2;
const PREV_KV: u64 = 3;
const KV_VALUE: u64 = 5;
// KeyValue and PutRequest: both have the key first.
const KEY: u64 = 1;
const PUT_VALUE: u64 = 2;
const PUT_LEASE: u64 = 3;
// TxnRequest, Compare, RequestOp and TxnResponse.
const COMPARE: u64 = 1;
const COMPARE_KEY: u64 = 3;
const SUCCESS: u64 = 2;
const FAILURE: u64 = 3;
const REQUEST_RANGE: u64 = 1;
const REQUEST_PUT: u64 = 2;
const REQUEST_DELETE: u64 = 3;
const SUCCEEDED: u64 = 2;
const RESPONSES: u64 = 3;
const RESPONSE_RANGE: u64 = 1;
// RangeRequest and WatchCreateRequest; WatchRequest.
const RANGE_END: u64 = 2;
const CREATE: u64 = 1;
// RangeResponse; RangeStreamResponse.
const KVS: u64 = 2;
const STREAMED_RANGE: u64 = 1;
// LeaseGrantRequest.
const TTL: u64 = 1;

/// Changes writes in the suite's namespaces only, because the server must be able to start.
fn each_put(change: fn(&mut Message)) -> StoreChange {
    StoreChange::of_requests(move |method, message| {
        if method == "Txn" {
            message.edit(SUCCESS, |operation| {
                operation.edit(REQUEST_PUT, |put| {
                    if is_ours(put) {
                        change(put);
                    }
                });
            });
        }
    })
}

/// The store holds the keys below `there` that the apiserver uses below `here`.
pub(super) fn moved(here: &'static str, there: &'static str) -> StoreChange {
    let request: OnMessage = Box::new(move |method, message| {
        let rename = |holder: &mut Message, number: u64| renamed(holder, number, here, there);
        match method {
            "Range" | "RangeStream" => [KEY, RANGE_END].into_iter().for_each(|number| rename(message, number)),
            "Watch" => message.edit(CREATE, |create| [KEY, RANGE_END].into_iter().for_each(|n| rename(create, n))),
            "Txn" => {
                message.edit(COMPARE, |compare| rename(compare, COMPARE_KEY));
                for branch in [SUCCESS, FAILURE] {
                    message.edit(branch, |operation| {
                        for request in [REQUEST_RANGE, REQUEST_PUT, REQUEST_DELETE] {
                            operation.edit(request, |request| rename(request, KEY));
                        }
                    });
                }
            }
            _ => {}
        }
    });
    let reply: OnMessage = Box::new(move |method, message| {
        let rename = |holder: &mut Message| renamed(holder, KEY, there, here);
        match method {
            "Range" => message.edit(KVS, rename),
            "RangeStream" => message.edit(STREAMED_RANGE, |chunk| chunk.edit(KVS, rename)),
            "Watch" => message.edit(EVENTS, |event| [KV, PREV_KV].into_iter().for_each(|n| event.edit(n, rename))),
            "Txn" => message.edit(RESPONSES, |answer| answer.edit(RESPONSE_RANGE, |range| range.edit(KVS, rename))),
            _ => {}
        }
    });
    StoreChange { request: Some(request), reply: Some(reply) }
}

fn renamed(holder: &mut Message, number: u64, from: &str, to: &str) {
    let text = String::from_utf8_lossy(holder.bytes(number)).into_owned();
    // The end of a range is its prefix with the last byte incremented.
    let (from_end, to_end) = (format!("{}0", from.trim_end_matches('/')), format!("{}0", to.trim_end_matches('/')));
    let new = text.replacen(from, to, 1).replacen(&from_end, &to_end, 1);
    if new != text {
        holder.set_bytes(number, new.into_bytes());
    }
}

/// Changes the apiVersion of a value in protobuf: the TypeMeta is the first field of the envelope, after the magic.
fn stored_as(put: &mut Message, version: &[u8]) {
    let value = put.bytes(PUT_VALUE).to_vec();
    if let Some(mut envelope) = value.strip_prefix(b"k8s\0").and_then(Message::parse) {
        envelope.edit(1, |meta| meta.set_bytes(1, version.to_vec()));
        put.set_bytes(PUT_VALUE, [b"k8s\0", envelope.encode().as_slice()].concat());
    }
}

/// Whether a key belongs to the suite, except the marker, without which nothing is judged.
pub(super) fn is_ours(holder: &Message) -> bool {
    let key = String::from_utf8_lossy(holder.bytes(KEY));
    key.contains("/ap-") && !key.ends_with("/marker")
}

/// Changes the values in events of the store's watch.
pub(super) fn each_event_of_ours(change: fn(&mut Vec<u8>)) -> StoreChange {
    StoreChange::of_replies(move |method, message| {
        if method == "Watch" {
            message.edit(EVENTS, |event| {
                event.edit(KV, |kv| {
                    if is_ours(kv) {
                        let mut value = kv.bytes(KV_VALUE).to_vec();
                        change(&mut value);
                        kv.set_bytes(KV_VALUE, value);
                    }
                });
            });
        }
    })
}

fn each_seventh_event_lost() -> StoreChange {
    let mut seen = 0_u64;
    StoreChange::of_replies(move |method, message| {
        if method == "Watch" {
            message.retain(EVENTS, |event| {
                let ours = is_ours(&event.message(KV));
                seen += u64::from(ours);
                !ours || seen % 7 != 3
            });
        }
    })
}

/// Changes only responses with one key, because a changed list would not match its count.
fn first_value_for_ever() -> StoreChange {
    let mut first: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    StoreChange::of_replies(move |method, message| {
        let found = message.messages(KVS);
        let [only] = &found[..] else { return };
        if method == "Range" && is_ours(only) {
            let known = first.entry(only.bytes(KEY).to_vec()).or_insert_with(|| only.encode()).clone();
            message.set_bytes(KVS, known);
        }
    })
}

/// The same put with another name.
fn copy_of(mut operation: Message) -> Message {
    operation.edit(REQUEST_PUT, |put| put.set_bytes(KEY, [put.bytes(KEY), b"-copy"].concat()));
    operation
}

/// Whether an answer contains a key of the suite.
fn speaks_of_ours(message: &Message) -> bool {
    message.encode().windows(4).any(|four| four == b"/ap-")
}
