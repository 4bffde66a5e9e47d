//! Did a fault cost anything? Judges what the clients of a workload wrote, read and were told while servers were killed,
//! stopped or cut off, against what the store recorded.
//!
//! A client that watches lives on through faults: its life is a list of watches, joined by the resource version it had
//! come to, or by a fresh list after a 410. The whole life must be the store's history, with nothing missing but what a
//! list replaced. A write without an answer may be there once, or not at all.

mod lives;
mod writes;

#[cfg(test)]
mod generate;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::history::{Change, Frame, Key, Micros, Revision};

use super::keys::unsigned;
use super::{Findings, Judgement, Violation};

/// Everything that a workload under a fault leaves behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// What the store recorded below the prefixes of the lives, in order. Nothing was there before.
    pub revisions: Vec<Revision>,
    /// What a Range showed below these prefixes at the end: keys and their revisions.
    pub end: BTreeMap<Key, u64>,
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
    pub lives: Vec<Life>,
    /// Keys written last, one below each prefix: whoever watches must have seen his.
    pub markers: Vec<Key>,
}

/// One attempt to change one key. Every put has an id of its own inside the value, see [`id_in`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub client: String,
    pub id: String,
    pub key: Key,
    pub kind: Change,
    /// The revision of the key that must be there for it to take effect; 0: the key must not exist.
    pub based_on: u64,
    pub called: Micros,
    pub returned: Micros,
    pub fate: Fate,
}

/// What the client knows of its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Acknowledged with this resource version; 0 where the answer carries none, as that of a delete.
    Done(u64),
    /// Answered with a refusal: it has no effect, now or later.
    Refused,
    /// No answer, or one that does not say.
    Unknown,
}

/// One read of a key without a resource version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub client: String,
    pub key: Key,
    pub called: Micros,
    /// None: there was no such object.
    pub rv: Option<u64>,
}

/// A client that watches one collection from its begin to its marker.
#[derive(Clone, Debug, PartialEq)]
pub struct Life {
    pub client: String,
    /// With a trailing slash.
    pub prefix: Key,
    pub legs: Vec<Leg>,
}

/// A part of a life: how it began, and what one watch brought from there.
#[derive(Clone, Debug, PartialEq)]
pub struct Leg {
    pub begin: Begin,
    pub frames: Vec<Frame>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// A list without a resource version, sent at this time, and a watch from what it answered.
    Listed { called: Micros, rv: u64, items: Vec<(Key, u64)> },
    /// A watch from the last event or bookmark before.
    Resumed { rv: u64 },
}

/// The id of a put stands in the stored value between these; all encodings of values keep such text as it is.
const ID_BEGIN: &str = "by(";
const ID_END: u8 = b')';

/// What a put has to store somewhere, so that it is recognised.
pub fn id_text(id: &str) -> String {
    format!("{ID_BEGIN}{id})")
}

/// The id of the put that stored this value.
pub fn id_in(value: &[u8]) -> Option<&str> {
    let begin = find(value, ID_BEGIN.as_bytes())? + ID_BEGIN.len();
    let rest = &value[begin..];
    let end = rest.iter().position(|byte| *byte == ID_END)?;
    std::str::from_utf8(&rest[..end]).ok()
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

/// Nothing acknowledged is lost, nothing appears twice, nobody travels back in time, and every watcher has seen all of it
/// or was told to list anew. What must have been exercised for a verdict is the caller's business: the counts say it.
pub fn judge_account(account: &Account) -> Judgement {
    let mut findings = Findings::default();
    findings.count("revisions", account.revisions.len() as u64);
    recorded(&mut findings, account);
    // Against a record that is no record nothing else can be held.
    if findings.0.violations.is_empty() {
        writes::judge(&mut findings, account);
        lives::judge(&mut findings, account);
    }
    findings.judgement()
}

/// The record must rise, follow from itself, and lead to what the store holds at the end. A store that forgot what it had
/// acknowledged, or gave a revision out twice, ends in another state than the one that was recorded.
fn recorded(findings: &mut Findings, account: &Account) {
    let mut state: BTreeMap<&Key, u64> = BTreeMap::new();
    let mut previous = 0;
    for revision in &account.revisions {
        let rev = unsigned(revision.rev);
        if rev <= previous {
            findings.add(Violation::plain(format!("the store gave revision {rev} after {previous}")));
        }
        previous = rev;
        let before = state.get(&revision.key).copied().unwrap_or(0);
        let told = unsigned(revision.prev_rev);
        // 0 also where the previous value is compacted.
        if told != before && told != 0 {
            let message =
                format!("revision {rev} of {}: the store says that {told} came before it, not {before}", revision.key);
            findings.add(Violation::plain(message));
        }
        match revision.kind {
            Change::Put => state.insert(&revision.key, rev),
            Change::Delete => state.remove(&revision.key),
        };
    }
    let end: BTreeMap<&Key, u64> = account.end.iter().map(|(key, rev)| (key, *rev)).collect();
    for (key, rev) in state.iter().filter(|(key, rev)| end.get(*key) != Some(rev)) {
        let there = end.get(key).map_or("nothing".to_owned(), |rev| format!("revision {rev}"));
        findings.add(Violation::plain(format!("the store had {key} at {rev}; at the end it has {there}")));
    }
    for (key, rev) in end.iter().filter(|(key, _)| !state.contains_key(*key)) {
        findings.add(Violation::plain(format!("the store has {key} at {rev} at the end, which nothing led to")));
    }
}
