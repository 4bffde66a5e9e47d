//! Decides whether a fault broke a promise: compares what the clients of a workload wrote, read and received while
//! servers were killed, stopped or disconnected with what the store recorded.
//!
//! A watcher continues through faults with one watch after the other: its segments. Each segment continues from the
//! last resource version of the one before, or from a new list after a 410. All segments together must be the store's
//! history; only events that a list replaced may be missing. A write without an answer may have been applied once, or
//! not at all.

mod watchers;
mod writes;

#[cfg(test)]
mod generate;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::history::{Change, Frame, Key, Micros, Revision};

use super::keys::unsigned;
use super::{Findings, Judgement, Violation};

/// The complete record of a workload under a fault.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultHistory {
    /// What the store recorded below the prefixes of the watchers, in order. These prefixes were empty before.
    pub revisions: Vec<Revision>,
    /// The result of a Range below these prefixes at the end: keys and their revisions.
    pub end: BTreeMap<Key, u64>,
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
    pub watchers: Vec<Watcher>,
    /// Keys written last, one below each prefix: every watcher must have seen the marker of its prefix.
    pub markers: Vec<Key>,
}

/// One attempt to change one key. Every put has a unique id inside the value, see [`id_in`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub client: String,
    pub id: String,
    pub key: Key,
    pub kind: Change,
    /// The revision that the key must have for the write to take effect; 0: the key must not exist.
    pub based_on: u64,
    pub called: Micros,
    pub returned: Micros,
    pub result: WriteResult,
}

/// What the client knows about the result of its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// Acknowledged with this resource version; 0 if the answer carries none, which only that of a delete may do.
    Done(u64),
    /// Answered with a refusal: the write has no effect, now or later.
    Refused,
    /// No answer, or an answer that leaves the result open.
    Unknown,
}

/// One read of a key without a resource version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub client: String,
    pub key: Key,
    pub called: Micros,
    /// None: the object did not exist.
    pub rv: Option<u64>,
}

/// A client that watches one collection from the beginning to its marker.
#[derive(Clone, Debug, PartialEq)]
pub struct Watcher {
    pub client: String,
    /// With a trailing slash.
    pub prefix: Key,
    pub segments: Vec<WatchSegment>,
}

/// One watch of a watcher: how it began, and its frames.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchSegment {
    pub begin: Begin,
    pub frames: Vec<Frame>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// A list without a resource version, sent at `called`, and a watch from the version of its answer.
    Listed { called: Micros, rv: u64, items: Vec<(Key, u64)> },
    /// A watch from the last event or bookmark of the watch before.
    Resumed { rv: u64 },
}

/// The delimiters of the id in the stored value of a put; all encodings of values keep such text unchanged.
const ID_BEGIN: &str = "by(";
const ID_END: u8 = b')';

/// The text that a put must store somewhere in its value, so that the judge recognises it.
pub fn id_text(id: &str) -> String {
    format!("{ID_BEGIN}{id})")
}

/// The id of the put that stored this value.
pub fn id_in(value: &[u8]) -> Option<&str> {
    let begin = value.windows(ID_BEGIN.len()).position(|window| window == ID_BEGIN.as_bytes())?;
    let rest = &value[begin + ID_BEGIN.len()..];
    let end = rest.iter().position(|byte| *byte == ID_END)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// No acknowledged write is lost, no write appears twice, no read shows an old state, and every watcher saw every
/// change or had to list again. The caller decides from the counts whether enough was exercised for a verdict.
pub fn judge_fault_history(history: &FaultHistory) -> Judgement {
    let mut findings = Findings::default();
    findings.count("revisions", history.revisions.len() as u64);
    recorded(&mut findings, history);
    // Nothing can be compared with a record that is inconsistent in itself.
    if findings.0.violations.is_empty() {
        writes::judge(&mut findings, history);
        watchers::judge(&mut findings, history);
    }
    findings.0
}

/// The revisions of the record must rise, follow from each other, and lead to what the store holds at the end. A store
/// that forgot an acknowledged write, or used a revision twice, ends in another state than the recorded one.
fn recorded(findings: &mut Findings, history: &FaultHistory) {
    let mut state: BTreeMap<&Key, u64> = BTreeMap::new();
    let mut previous = 0;
    for revision in &history.revisions {
        let rev = unsigned(revision.rev);
        if rev <= previous {
            findings.add(Violation::plain(format!("the store gave revision {rev} after {previous}")));
        }
        previous = rev;
        let before = state.get(&revision.key).copied().unwrap_or(0);
        let named_prev = unsigned(revision.prev_rev);
        // It is also 0 if the previous value is compacted, or if the recorder's watch was opened again and its first
        // events came before etcd had noted that the watch wants previous values (docs/findings.md).
        if named_prev != before && named_prev != 0 {
            let message = format!(
                "revision {rev} of {}: the store names {named_prev} as the revision before it, not {before}",
                revision.key
            );
            findings.add(Violation::plain(message));
        }
        match revision.kind {
            Change::Put => state.insert(&revision.key, rev),
            Change::Delete => state.remove(&revision.key),
        };
    }
    let end: BTreeMap<&Key, u64> = history.end.iter().map(|(key, rev)| (key, *rev)).collect();
    for (key, rev) in state.iter().filter(|(key, rev)| end.get(*key) != Some(rev)) {
        let there = end.get(key).map_or("nothing".to_owned(), |rev| format!("revision {rev}"));
        findings.add(Violation::plain(format!("the store had {key} at {rev}; at the end it has {there}")));
    }
    for (key, rev) in end.iter().filter(|(key, _)| !state.contains_key(*key)) {
        findings.add(Violation::plain(format!(
            "the store has {key} at {rev} at the end, but no recorded change led to it"
        )));
    }
}
