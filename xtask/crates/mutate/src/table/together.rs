//! Servers that share a store, of which one does not learn that another client has compacted it; and stores that fail
//! with many watches at once, or while they send a range in chunks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use http::Method;

use super::list::is_exact;
use super::{Change, Means, Mutant, mutants};
use crate::call::{Call, Reply};
use crate::message::Message;
use crate::store::StoreChange;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "together.other-server-keeps-snapshot": "A server through which nothing is written goes on answering Exact lists at compacted revisions." => "list.snapshot-compacted" on "prefix",
        || kept_without_writes(is_exact);
    "together.other-server-keeps-pages": "A server through which nothing is written goes on answering expired continue tokens." => "list.snapshot-compacted" on "prefix",
        || kept_without_writes(|call| call.is_list() && call.parameter("continue").is_some());
    "together.repeated-exact-list-is-current": "An Exact list that is repeated shows the current state." => "list.snapshot-compacted" on "prefix",
        current_if_repeated;
};

pub(super) static BY_STORE: &[Mutant] = mutants! { Means::Store;
    "together.compaction-unnoticed": "A server does not learn of compactions by other clients of its store." => "list.snapshot-compacted" on "prefix",
        compaction_unnoticed;
};

pub(super) static RAW: &[Mutant] = mutants! { Means::RawStore;
    "together.event-lost": "Some messages of a watch with several events lack the last one." => "watch.many-created-at-once" on "no-cache",
        event_lost;
    "together.request-unanswered": "The store does not answer some of many requests for watches." => "watch.many-created-at-once" on "no-cache",
        || StoreChange::of_replies(|method, message| {
            if method == "Watch" && message.number(WATCH_ID) == UNANSWERED {
                message.remove(CREATED);
            }
        });
    "together.watch-begins-early": "A watch of one key begins some revisions early." => "watch.many-created-at-once" on "no-cache",
        || StoreChange::of_requests(|method, message| {
            if method == "Watch" {
                message.edit(CREATE, |create| {
                    let start = create.number(START_REVISION);
                    if create.bytes(KEY).starts_with(WATCHED) && create.bytes(RANGE_END).is_empty() && start > EARLY {
                        create.set_number(START_REVISION, start - EARLY);
                    }
                });
            }
        });
    "together.stream-incomplete": "A range that the store sends as a stream lacks some keys." => "list.range-stream-compaction" on "disruptive",
        || StoreChange::of_replies(|method, message| {
            if method == "RangeStream" {
                message.edit(STREAMED_RANGE, |chunk| chunk.retain(KVS, |kv| !kv.bytes(KEY).ends_with(b"7")));
            }
        });
    "together.stream-shows-later-changes": "The end of a stream shows changes that were made after its begin." => "list.range-stream-compaction" on "disruptive",
        later_changes_streamed;
};

// The numbers are those of etcd's `rpc.proto` and `kv.proto`.
// WatchRequest and WatchCreateRequest; this one, RangeRequest, PutRequest and KeyValue have the key first.
const CREATE: u64 = 1;
const KEY: u64 = 1;
const RANGE_END: u64 = 2;
const START_REVISION: u64 = 3;
// WatchResponse, and Event.
const WATCH_ID: u64 = 2;
const CREATED: u64 = 3;
const EVENTS: u64 = 11;
const EVENT_KV: u64 = 2;
// RangeResponse, RangeStreamResponse and KeyValue.
const KVS: u64 = 2;
const STREAMED_RANGE: u64 = 1;
const MOD_REVISION: u64 = 3;
// TxnRequest and RequestOp.
const SUCCESS: u64 = 2;
const REQUEST_PUT: u64 = 2;
const PUT_VALUE: u64 = 2;

/// The keys of the two checks that ask the store.
const WATCHED: &[u8] = b"/archproof-together/";
const STREAMED: &[u8] = b"/archproof-stream/";
/// The check numbers its watches on each stream; other clients have few watches on a stream.
const UNANSWERED: u64 = 77;
const EARLY: u64 = 20;
/// One of so many messages lacks an event.
const LOSSES: u64 = 100;
/// Bytes; the check writes long values first, and short ones as changes.
const SHORT: usize = 100;

/// Repeats the last answer to such a list instead of a refusal, on a server that gets only GET requests.
fn kept_without_writes(which: fn(&Call) -> bool) -> Change {
    let mut kept: BTreeMap<String, Reply> = BTreeMap::new();
    let mut written = false;
    Change::Reply(Box::new(move |call, reply| {
        written |= call.method != Method::GET;
        if written || !which(call) {
            return;
        }
        let question = question(call);
        if reply.is_success() {
            kept.insert(question, reply.clone());
        } else if let Some(kept) = kept.get(&question)
            && reply.status == 410
        {
            *reply = kept.clone();
        }
    }))
}

/// An Exact list that is repeated loses its resource version.
fn current_if_repeated() -> Change {
    let mut asked = BTreeSet::new();
    Change::Request(Box::new(move |call| {
        if is_exact(call) && !asked.insert(question(call)) {
            call.forget("resourceVersion");
            call.forget("resourceVersionMatch");
        }
    }))
}

fn question(call: &Call) -> String {
    format!("{} {:?}", call.path, call.query)
}

/// Neither a watch nor a read shows the key with which apiservers tell each other of compactions.
fn compaction_unnoticed() -> StoreChange {
    let is_notice = |kv: &Message| kv.bytes(KEY) == b"compact_rev_key";
    StoreChange::of_replies(move |method, message| match method {
        "Watch" => message.retain(EVENTS, |event| !is_notice(&event.message(EVENT_KV))),
        "Range" => message.retain(KVS, |kv| !is_notice(kv)),
        _ => {}
    })
}

/// Messages with several events are those with which the store brings a watch up to date.
fn event_lost() -> StoreChange {
    let mut seen = 0_u64;
    StoreChange::of_replies(move |method, message| {
        let events = if method == "Watch" { message.messages(EVENTS) } else { Vec::new() };
        if events.len() < 2 || !events.iter().all(|event| event.message(EVENT_KV).bytes(KEY).starts_with(WATCHED)) {
            return;
        }
        seen += 1;
        if seen.is_multiple_of(LOSSES) {
            let mut kept = 0;
            message.retain(EVENTS, |_| {
                kept += 1;
                kept < events.len()
            });
        }
    })
}

/// Keys that a transaction has changed appear in streams with another revision, also in those that have begun before.
fn later_changes_streamed() -> StoreChange {
    let changed: Arc<Mutex<BTreeSet<Vec<u8>>>> = Arc::default();
    let noted = Arc::clone(&changed);
    let request = move |method: &str, message: &mut Message| {
        if method == "Txn" {
            let mut noted = noted.lock().unwrap_or_else(|e| e.into_inner());
            for put in message.messages(SUCCESS).iter().map(|operation| operation.message(REQUEST_PUT)) {
                if put.bytes(KEY).starts_with(STREAMED) && put.bytes(PUT_VALUE).len() < SHORT {
                    noted.insert(put.bytes(KEY).to_vec());
                }
            }
        }
    };
    let reply = move |method: &str, message: &mut Message| {
        if method == "RangeStream" {
            let changed = changed.lock().unwrap_or_else(|e| e.into_inner());
            message.edit(STREAMED_RANGE, |chunk| {
                chunk.edit(KVS, |kv| {
                    if changed.contains(kv.bytes(KEY)) {
                        kv.set_number(MOD_REVISION, kv.number(MOD_REVISION) + 1);
                    }
                });
            });
        }
    };
    StoreChange { request: Some(Box::new(request)), reply: Some(Box::new(reply)) }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn holder(number: u64, content: &Message) -> Message {
        let mut message = Message::default();
        message.push(number, content.encode());
        message
    }

    fn keyed(key: &[u8]) -> Message {
        let mut message = Message::default();
        message.set_bytes(KEY, key.to_vec());
        message
    }

    #[test]
    fn only_a_server_without_writes_keeps_its_lists() {
        let exact = |method: Method| Call {
            method,
            path: "/api/v1/namespaces/ap-x/configmaps".into(),
            query: vec![("resourceVersionMatch".into(), "Exact".into()), ("resourceVersion".into(), "7".into())],
            ..Call::default()
        };
        for (writes, expected) in [(0, 200), (1, 410)] {
            let Change::Reply(mut change) = kept_without_writes(is_exact) else { panic!("not a reply") };
            let mut status = |method: Method, status: u16| {
                let mut reply = Reply { status, headers: HeaderMap::new(), body: bytes::Bytes::new() };
                change(&exact(method), &mut reply);
                reply.status
            };
            for _ in 0..writes {
                status(Method::POST, 201);
            }
            assert_eq!([status(Method::GET, 200), status(Method::GET, 410)], [200, expected]);
        }
    }

    #[test]
    fn notices_of_compactions_are_omitted() {
        let mut change = compaction_unnoticed().reply.unwrap();
        for (key, expected) in [(&b"compact_rev_key"[..], 0), (&b"/registry/configmaps/a/b"[..], 1)] {
            let mut watched = holder(EVENTS, &holder(EVENT_KV, &keyed(key)));
            let mut read = holder(KVS, &keyed(key));
            change("Watch", &mut watched);
            change("Range", &mut read);
            assert_eq!([watched.messages(EVENTS).len(), read.messages(KVS).len()], [expected; 2]);
        }
    }

    #[test]
    fn some_messages_with_several_events_lack_one() {
        let mut change = event_lost().reply.unwrap();
        let mut left = |count: usize| {
            let mut message = Message::default();
            let event = holder(EVENT_KV, &keyed(b"/archproof-together/x/01/a")).encode();
            (0..count).for_each(|_| message.push(EVENTS, event.clone()));
            change("Watch", &mut message);
            message.messages(EVENTS).len()
        };
        assert_eq!((0..2 * LOSSES).filter(|_| left(1) == 0).count(), 0);
        assert_eq!((0..2 * LOSSES).filter(|_| left(3) == 2).count(), 2);
    }

    #[test]
    fn streams_show_changes_that_follow_them() {
        let StoreChange { request: Some(mut request), reply: Some(mut reply) } = later_changes_streamed() else {
            panic!("it changes both directions")
        };
        let mut written = |key: &[u8], size: usize| {
            let mut put = keyed(key);
            put.set_bytes(PUT_VALUE, vec![b'x'; size]);
            request("Txn", &mut holder(SUCCESS, &holder(REQUEST_PUT, &put)));
        };
        written(b"/archproof-stream/x/1", 4096);
        written(b"/archproof-stream/x/2", 7);
        let mut revision = |key: &[u8]| {
            let mut kv = keyed(key);
            kv.set_number(MOD_REVISION, 5);
            let mut message = holder(STREAMED_RANGE, &holder(KVS, &kv));
            reply("RangeStream", &mut message);
            message.message(STREAMED_RANGE).message(KVS).number(MOD_REVISION)
        };
        assert_eq!([revision(b"/archproof-stream/x/1"), revision(b"/archproof-stream/x/2")], [5, 6]);
    }
}
