//! Servers whose requests to the store, or whose keys and leases there, are wrong while their answers look correct; and
//! stores that give the suite itself wrong answers. The numbers are those of etcd's `rpc.proto` and `kv.proto`.

use std::collections::BTreeMap;

use super::store::{is_ours, moved};
use super::{Means, Mutant, mutants};
use crate::message::Message;
use crate::store::StoreChange;

/// These come before all other mutants: their check looks at every key of the store, and mutants by other keys or
/// prefixes leave keys behind. So does the second of these.
pub(super) static KEYS: &[Mutant] = mutants! { Means::Store;
    "store.server-lease-endless": "The key of a server's address has no lease." => "storage.other-keys" on "prefix",
        || each_put(|key| key.contains("/masterleases/"), |put| put.set_number(PUT_LEASE, 0));
    "store.ranges-moved": "The allocation ranges of Services have another path." => "storage.other-keys" on "prefix",
        || moved("/ranges/", "/allocations/");
};

pub(super) static MUTANTS: &[Mutant] = mutants! { Means::Store;
    "store.read-serializable": "The server allows the store to answer reads from the state of one member." => "storage.etcd-contract" on "short-events",
        || StoreChange::of_requests(|method, message| {
            if method == "Range" && is_ours(message) {
                message.set_number(SERIALIZABLE, 1);
            }
        });
    "store.list-too-wide": "A list of Events in a namespace also reads those of the namespaces after it." => "storage.etcd-contract" on "short-events",
        || StoreChange::of_requests(|method, message| {
            let end = String::from_utf8_lossy(message.bytes(RANGE_END)).into_owned();
            if method == "Range" && let Some((path, _)) = end.split_once("/events/ap-") {
                message.set_bytes(RANGE_END, format!("{path}/events0").into_bytes());
            }
        });
    "store.condition-twice": "A write names its condition twice." => "storage.etcd-contract" on "short-events",
        || StoreChange::of_requests(|method, message| {
            let condition = message.message(COMPARE);
            if method == "Txn" && String::from_utf8_lossy(condition.bytes(COMPARE_KEY)).contains("/ap-") {
                message.push(COMPARE, condition.encode());
            }
        });
    "store.update-keeps-lease": "An update keeps the lease of a key." => "storage.event-update-ttl" on "short-events", first_lease_for_ever;
};

pub(super) static RAW: &[Mutant] = mutants! { Means::RawStore;
    "store.change-unrecorded": "The store's watch of all keys omits one change." => "suite.truth", one_change_lost;
    "store.range-incomplete": "A Range of all keys omits the last one, but the first such Range is right." => "suite.truth", last_key_lost;
    "store.lease-not-extended": "The store does not extend its leases when it elects a leader." => "storage.lease-renew-on-leader-change" on "disruptive",
        lease_not_extended;
    "store.compacted-readable": "A compacted revision can be read again after a restart of the store." => "fault.compaction-kill" on "disruptive",
        compacted_readable;
};

// WatchResponse, and Event.
const EVENTS: u64 = 11;
const KV: u64 = 2;
// KeyValue, PutRequest and RangeRequest have the key first.
const KEY: u64 = 1;
const PUT_LEASE: u64 = 3;
// TxnRequest, Compare and RequestOp.
const COMPARE: u64 = 1;
const COMPARE_KEY: u64 = 3;
const SUCCESS: u64 = 2;
const REQUEST_PUT: u64 = 2;
// RangeRequest and RangeResponse.
const RANGE_END: u64 = 2;
const REVISION: u64 = 4;
const SERIALIZABLE: u64 = 7;
const KVS: u64 = 2;
// LeaseTimeToLiveResponse.
const LEASE: u64 = 2;
const LEFT: u64 = 3;

/// A Range with more keys than this is of the whole store.
const MANY: usize = 20;
/// The number of the omitted change.
const LOST: u32 = 7;

/// Changes the puts of these keys.
fn each_put(which: fn(&str) -> bool, change: fn(&mut Message)) -> StoreChange {
    StoreChange::of_requests(move |method, message| {
        if method == "Txn" {
            message.edit(SUCCESS, |operation| {
                operation.edit(REQUEST_PUT, |put| {
                    if which(&String::from_utf8_lossy(put.bytes(KEY))) {
                        change(put);
                    }
                });
            });
        }
    })
}

/// Each put of a key with a lease gets the lease of the key's first put.
fn first_lease_for_ever() -> StoreChange {
    let mut first: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    StoreChange::of_requests(move |method, message| {
        if method == "Txn" {
            message.edit(SUCCESS, |operation| {
                operation.edit(REQUEST_PUT, |put| {
                    let lease = put.number(PUT_LEASE);
                    if lease != 0 && is_ours(put) {
                        let earlier = *first.entry(put.bytes(KEY).to_vec()).or_insert(lease);
                        put.set_number(PUT_LEASE, earlier);
                    }
                });
            });
        }
    })
}

/// Without the first Range, which begins the record, a key that does not change is in no record at all.
fn last_key_lost() -> StoreChange {
    let mut is_first = true;
    StoreChange::of_replies(move |method, message| {
        let keys = message.messages(KVS).len();
        if method != "Range" || keys <= MANY || std::mem::take(&mut is_first) {
            return;
        }
        let mut seen = 0;
        message.retain(KVS, |_| {
            seen += 1;
            seen < keys
        });
    })
}

fn one_change_lost() -> StoreChange {
    let mut seen = 0_u32;
    StoreChange::of_replies(move |method, message| {
        if method == "Watch" {
            message.retain(EVENTS, |event| {
                let ours = is_ours(&event.message(KV));
                seen = seen.saturating_add(ours.into());
                !(ours && seen == LOST)
            });
        }
    })
}

/// The time that a lease has left never grows.
fn lease_not_extended() -> StoreChange {
    let mut least: BTreeMap<u64, u64> = BTreeMap::new();
    StoreChange::of_replies(move |method, message| {
        if method == "LeaseTimeToLive" {
            let left = least.entry(message.number(LEASE)).or_insert(u64::MAX);
            *left = (*left).min(message.number(LEFT));
            message.set_number(LEFT, *left);
        }
    })
}

/// A read of a revision shows the current state if a later revision was read before: the check reads a compacted
/// revision again after the next compaction.
pub(super) fn compacted_readable() -> StoreChange {
    let mut newest = 0;
    StoreChange::of_requests(move |method, message| {
        let revision = message.number(REVISION);
        if method == "Range" && revision > 0 {
            if revision < newest {
                message.remove(REVISION);
            }
            newest = newest.max(revision);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(pairs: &[(u64, u64)]) -> Message {
        let mut message = Message::default();
        pairs.iter().for_each(|(number, content)| message.set_number(*number, *content));
        message
    }

    #[test]
    fn time_left_never_grows() {
        let mut change = lease_not_extended().reply.unwrap();
        let mut left = |lease: u64, seconds: u64| {
            let mut answer = numbers(&[(LEASE, lease), (LEFT, seconds)]);
            change("LeaseTimeToLive", &mut answer);
            answer.number(LEFT)
        };
        assert_eq!([left(1, 9), left(1, 7), left(2, 20), left(1, 10), left(1, 3)], [9, 7, 20, 7, 3]);
    }

    #[test]
    fn only_earlier_revisions_are_readable_again() {
        let mut change = compacted_readable().request.unwrap();
        let mut read = |revision: u64| {
            let mut request = numbers(&[(REVISION, revision)]);
            change("Range", &mut request);
            request.number(REVISION)
        };
        assert_eq!([read(1), read(40), read(40), read(80), read(40)], [1, 40, 40, 80, 0]);
    }

    #[test]
    fn later_puts_get_the_first_lease() {
        let mut change = first_lease_for_ever().request.unwrap();
        let mut lease = |key: &str, lease: u64| {
            let mut put = numbers(&[(PUT_LEASE, lease)]);
            put.set_bytes(KEY, key.as_bytes().to_vec());
            let (mut operation, mut request) = (Message::default(), Message::default());
            operation.push(REQUEST_PUT, put.encode());
            request.push(SUCCESS, operation.encode());
            change("Txn", &mut request);
            request.message(SUCCESS).message(REQUEST_PUT).number(PUT_LEASE)
        };
        let event = "/registry/events/ap-x/a";
        assert_eq!([lease(event, 5), lease(event, 6), lease("/registry/events/ap-x/b", 6)], [5, 5, 6]);
        assert_eq!([lease(event, 0), lease("/registry/masterleases/a", 7)], [0, 7]);
    }

    #[test]
    fn exactly_one_change_is_omitted() {
        let mut change = one_change_lost().reply.unwrap();
        let delivered = (0..20).filter(|_| {
            let (mut kv, mut event, mut answer) = (Message::default(), Message::default(), Message::default());
            kv.set_bytes(KEY, b"/registry/configmaps/ap-x/a".to_vec());
            event.push(KV, kv.encode());
            answer.push(EVENTS, event.encode());
            change("Watch", &mut answer);
            !answer.messages(EVENTS).is_empty()
        });
        assert_eq!(delivered.count(), 19);
    }
}
