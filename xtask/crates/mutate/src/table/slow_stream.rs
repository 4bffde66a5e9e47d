//! Stores that fail watches on a stream whose client reads slowly while the store is compacted.

use super::{Means, Mutant, mutants};
use crate::message::Message;
use crate::store::StoreChange;

pub(super) static RAW: &[Mutant] = mutants! { Means::RawStore;
    "slow-stream.event-skipped": "Some watches of a full stream skip a change." => "watch.slow-stream-compacted" on "disruptive",
        || StoreChange::of_replies(|method, message| {
            if method == "Watch" && message.number(WATCH_ID) % SKIPPING == 1 {
                message.retain(EVENTS, |event| !is_skipped(&event.message(EVENT_KV)));
            }
        });
    "slow-stream.watch-goes-on": "A watch that is behind a compaction is not cancelled, and goes on with a later change." => "watch.slow-stream-compacted" on "disruptive",
        watch_goes_on;
    "slow-stream.no-compacted-revision": "A watch that is behind a compaction is cancelled without the compacted revision." => "watch.slow-stream-compacted" on "disruptive",
        || StoreChange::of_replies(|method, message| {
            if method == "Watch" {
                message.remove(COMPACT_REVISION);
            }
        });
};

// The numbers are those of etcd's `rpc.proto` and `kv.proto`: WatchResponse, Event, and KeyValue.
const WATCH_ID: u64 = 2;
const CANCELED: u64 = 4;
const COMPACT_REVISION: u64 = 5;
const EVENTS: u64 = 11;
const EVENT_KV: u64 = 2;
const KEY: u64 = 1;
const VALUE: u64 = 5;

/// The key of the check, and its second change.
const WATCHED: &[u8] = b"/archproof-slow/";
const SKIPPED: &[u8] = b"second";
/// One of so many watches of a stream skips it, and not the suite's own watch of the whole store, whose ID is 0.
const SKIPPING: u64 = 4;

fn is_skipped(kv: &Message) -> bool {
    kv.bytes(KEY).starts_with(WATCHED) && kv.bytes(VALUE) == SKIPPED
}

/// Instead of its cancellation, a watch gets the last change that another one has got.
fn watch_goes_on() -> StoreChange {
    let mut last = Message::default();
    StoreChange::of_replies(move |method, message| {
        let events = if method == "Watch" { message.messages(EVENTS) } else { Vec::new() };
        let is_watched = |event: &Message| event.message(EVENT_KV).bytes(KEY).starts_with(WATCHED);
        if let Some(event) = events.into_iter().rfind(is_watched) {
            last = event;
        }
        if method == "Watch" && message.number(COMPACT_REVISION) > 0 {
            message.remove(CANCELED);
            message.remove(COMPACT_REVISION);
            message.push(EVENTS, last.encode());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut kv = Message::default();
        kv.set_bytes(KEY, key.to_vec());
        kv.set_bytes(VALUE, value.to_vec());
        let mut event = Message::default();
        event.push(EVENT_KV, kv.encode());
        event.encode()
    }

    #[test]
    fn only_the_second_change_of_the_watched_key_is_skipped() {
        for (key, value, expected) in [
            (&b"/archproof-slow/x"[..], &b"second"[..], true),
            (b"/archproof-slow/x", b"third", false),
            (b"/registry/configmaps/a/b", b"second", false),
        ] {
            let event = Message::parse(&event(key, value)).unwrap();
            assert_eq!(is_skipped(&event.message(EVENT_KV)), expected);
        }
    }

    #[test]
    fn cancellations_become_later_changes() {
        let mut change = watch_goes_on().reply.unwrap();
        let mut passed = |compacted: u64, events: &[Vec<u8>]| {
            let mut message = Message::default();
            message.set_number(WATCH_ID, 7);
            if compacted > 0 {
                message.set_number(CANCELED, 1);
                message.set_number(COMPACT_REVISION, compacted);
            }
            events.iter().for_each(|event| message.push(EVENTS, event.clone()));
            change("Watch", &mut message);
            (message.number(CANCELED), message.number(COMPACT_REVISION), message.messages(EVENTS).len())
        };
        let [third, last] = [&b"third"[..], b"last"].map(|value| event(b"/archproof-slow/x", value));
        assert_eq!(passed(0, &[third, last]), (0, 0, 2));
        assert_eq!(passed(0, &[event(b"/registry/a", b"b")]), (0, 0, 1));
        assert_eq!(passed(9, &[]), (0, 0, 1));
    }
}
