//! Entry points for the fuzz crate: each takes untrusted bytes and panics if the parser breaks one of its rules. Only
//! the fuzz crate and its replay test call them.

use bytes::Bytes;
use http::HeaderMap;

use crate::call::Reply;
use crate::message::Message;
use crate::proxy::{decoded, encoded};
use crate::store::Messages;
use crate::stream::Lines;
use crate::table::{Means, all};

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("mutate-messages", messages),
    ("mutate-grpc", grpc),
    ("mutate-watch", watch),
    ("mutate-store", store),
    ("mutate-query", query),
];

/// A protobuf message survives a round trip.
fn messages(bytes: &[u8]) {
    let Some(message) = Message::parse(bytes) else { return };
    let written = message.encode();
    assert_eq!(Message::parse(&written).as_ref(), Some(&message));
    assert!(written.len() <= bytes.len(), "the serialised message is longer than the original");
    let mut changed = message.clone();
    changed.set_number(1, changed.number(1));
    changed.edit(2, |inner| inner.remove(1));
    changed.retain(3, |inner| inner.number(1) == 0);
    let _ = (changed.encode(), message.message(2), message.messages(11));
}

/// A gRPC body: the same bytes pass wherever it is split, and a second pass changes nothing.
fn grpc(bytes: &[u8]) {
    let pass = |pieces: &[&[u8]]| {
        let (mut messages, mut seen) = (Messages::default(), 0);
        let passed: Vec<Bytes> = pieces.iter().map(|piece| messages.pass(piece, |_| seen += 1)).collect();
        (passed.concat(), seen)
    };
    let (whole, seen) = pass(&[bytes]);
    for split in [bytes.len() / 2, bytes.len() / 3, bytes.len().min(4)] {
        assert_eq!(pass(&[&bytes[..split], &bytes[split..]]), (whole.clone(), seen), "split at {split}");
    }
    assert_eq!(pass(&[&whole]), (whole.clone(), seen));
}

/// The body of a watch: if the filter changes nothing, every event passes wherever the body is split, and a line that
/// is not a JSON object passes unchanged.
fn watch(bytes: &[u8]) {
    let pass = |pieces: &[&[u8]]| {
        let mut lines = Lines::new(Box::new(|event| {
            assert!(event.is_object(), "the filter received {event}, which is not an object");
            vec![event]
        }));
        pieces.iter().map(|piece| lines.pass(piece)).collect::<Vec<Bytes>>().concat()
    };
    let passed = pass(&[bytes]);
    let ends = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(ends(&passed), ends(bytes));
    for split in [bytes.len() / 2, bytes.len() / 3] {
        assert_eq!(pass(&[&bytes[..split], &bytes[split..]]), passed, "split at {split}");
    }
    let mut reply = Reply { status: 200, headers: HeaderMap::new(), body: Bytes::copy_from_slice(bytes) };
    reply.edit(|object| assert!(object.is_object(), "the mutant received {object}, which is not an object"));
}

/// Passes a message of a store through each mutant.
fn store(bytes: &[u8]) {
    let Some(message) = Message::parse(bytes) else { return };
    for mutant in all() {
        let (Means::Store(make) | Means::RawStore(make)) = mutant.means else { continue };
        let mut change = make();
        for method in ["Range", "Txn", "Watch", "LeaseGrant", "LeaseTimeToLive", "Compact"] {
            for hook in [&mut change.request, &mut change.reply].into_iter().flatten() {
                for _ in 0..2 {
                    let mut message = message.clone();
                    hook(method, &mut message);
                    assert_eq!(Message::parse(&message.encode()), Some(message));
                }
            }
        }
    }
}

/// A query survives a round trip.
fn query(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let pairs = decoded(&text);
    let written = encoded(&pairs);
    assert!(written.is_ascii() && !written.contains([' ', '#', '+']));
    assert_eq!(decoded(&written), pairs);
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
