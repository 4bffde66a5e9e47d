//! Writes and reads: acknowledged writes are in the store, refused writes are not, and no read shows an old state.

use std::collections::{BTreeMap, BTreeSet};

use model::history::{Change, Key, Revision};

use super::{FaultHistory, Findings, Read, Violation, Write, WriteResult, id_in};
use crate::keys::unsigned;
use crate::time_bounds::{last_while, rising};

pub(super) fn judge(findings: &mut Findings, history: &FaultHistory) {
    let known: BTreeMap<&str, &Write> = history.writes.iter().map(|write| (write.id.as_str(), write)).collect();
    let effects: Vec<(&Write, Vec<&Revision>)> =
        history.writes.iter().map(|write| (write, effects(history, write))).collect();
    let mut acknowledged = Vec::new();
    for (write, effects) in &effects {
        if let Some(message) = problem(history, write, effects) {
            findings.add(Violation { message, evidence: evidence(history, &write.key) });
        }
        count(findings, write, effects);
        if let (WriteResult::Done(_), [effect]) = (write.result, effects.as_slice()) {
            acknowledged.push((*write, unsigned(effect.rev)));
        }
    }
    unrequested_changes(findings, history, &known, &effects);
    let highest = Acknowledged::new(&acknowledged);
    in_order(findings, &acknowledged, &highest);
    for read in &history.reads {
        findings.count("reads", 1);
        if let Some(message) = stale(history, read, highest.at(read.called)) {
            findings.add(Violation { message, evidence: evidence(history, &read.key) });
        }
    }
}

/// The revisions that this write made: a put is recognised by its id, a delete by the revision that it deleted.
fn effects<'a>(history: &'a FaultHistory, write: &Write) -> Vec<&'a Revision> {
    let of_key = history.revisions.iter().filter(|revision| revision.key == write.key && revision.kind == write.kind);
    match write.kind {
        Change::Put => of_key.filter(|revision| id_in(&revision.value) == Some(write.id.as_str())).collect(),
        Change::Delete if may_be_of_another(history, write) => Vec::new(),
        Change::Delete => of_key.filter(|revision| before(history, revision) == write.based_on).collect(),
    }
}

/// Whether a delete was refused, and the deletion may be the effect of another delete of the same revision.
///
/// A delete without an answer may take effect after a read that still shows its object. The client then sends the
/// delete again, and the second one is refused because the first one has taken effect meanwhile.
fn may_be_of_another(history: &FaultHistory, write: &Write) -> bool {
    let same = |other: &&Write| (&other.key, other.kind, other.based_on) == (&write.key, write.kind, write.based_on);
    let mut others = history.writes.iter().filter(same);
    write.result == WriteResult::Refused && others.any(|other| other.result != WriteResult::Refused)
}

/// The key's revision that this one replaced; 0 if there was none.
fn before(history: &FaultHistory, revision: &Revision) -> u64 {
    let earlier = history.revisions.iter().rfind(|r| r.key == revision.key && r.rev < revision.rev);
    earlier.filter(|earlier| earlier.kind == Change::Put).map_or(0, |earlier| unsigned(earlier.rev))
}

fn problem(history: &FaultHistory, write: &Write, effects: &[&Revision]) -> Option<String> {
    let what = say(write);
    let revs = || effects.iter().map(|effect| effect.rev.to_string()).collect::<Vec<_>>().join(", ");
    match (write.result, effects) {
        (WriteResult::Done(rv), []) => Some(format!("{what} was acknowledged at {rv} and is lost")),
        (WriteResult::Done(0), _) if write.kind == Change::Put => {
            Some(format!("{what} was acknowledged without a resource version"))
        }
        (WriteResult::Done(rv), [effect]) if rv != 0 && rv != unsigned(effect.rev) => {
            Some(format!("{what} was acknowledged at {rv}, but the store has it at {}", effect.rev))
        }
        (WriteResult::Refused, [_, ..]) => Some(format!("{what} was refused, but the store has it at {}", revs())),
        (_, [_, _, ..]) => Some(format!("{what} is in the store more than once, at {}", revs())),
        (_, [effect]) if write.kind == Change::Put => {
            // Not the revision that the store names: etcd may omit it. `recorded` has compared it if it is there.
            let replaced = before(history, effect);
            let text = || format!("{what} was based on {}, but it replaced {replaced}", write.based_on);
            (replaced != write.based_on).then(text)
        }
        _ => None,
    }
}

/// Every change belongs to a write of the workload, and a put is of the key that was written.
fn unrequested_changes(
    findings: &mut Findings,
    history: &FaultHistory,
    known: &BTreeMap<&str, &Write>,
    effects: &[(&Write, Vec<&Revision>)],
) {
    let asked_for: BTreeSet<i64> = effects.iter().flat_map(|(_, made)| made).map(|revision| revision.rev).collect();
    for revision in &history.revisions {
        let own = match revision.kind {
            Change::Put => {
                let write = id_in(&revision.value).and_then(|id| known.get(id));
                write.is_some_and(|write| write.key == revision.key)
            }
            Change::Delete => asked_for.contains(&revision.rev),
        };
        if !own {
            let (key, rev) = (&revision.key, revision.rev);
            findings.add(Violation::plain(format!("the store changed {key} at {rev}, but no client asked for it")));
        }
    }
}

/// A write that was sent after another one was acknowledged has a higher revision.
fn in_order(findings: &mut Findings, acknowledged: &[(&Write, u64)], highest: &Acknowledged) {
    for (write, rev) in acknowledged {
        let before = highest.at(write.called);
        if *rev <= before {
            let message = format!("{} got {rev}, although {before} was acknowledged before it was sent", say(write));
            findings.add(Violation::plain(message));
        }
    }
}

/// Why the answer to a read is older than a write that was acknowledged before the read was sent.
fn stale(history: &FaultHistory, read: &Read, highest: u64) -> Option<String> {
    let changes = || history.revisions.iter().filter(|revision| revision.key == read.key);
    let Read { client, key, rv, .. } = read;
    let seen = rv.map_or("nothing".to_owned(), |rv| format!("resource version {rv}"));
    let is_seen = |state: Option<&Revision>| match (state, rv) {
        (Some(revision), Some(rv)) => revision.kind == Change::Put && unsigned(revision.rev) == *rv,
        (Some(revision), None) => revision.kind == Change::Delete,
        (None, rv) => rv.is_none(),
    };
    // The state at the highest, or any later one.
    let at_highest = changes().take_while(|revision| unsigned(revision.rev) <= highest).last();
    let later = changes().filter(|revision| unsigned(revision.rev) > highest);
    if is_seen(at_highest) || later.into_iter().any(|revision| is_seen(Some(revision))) {
        return None;
    }
    Some(format!(
        "{client} read {seen} of {key}, which it never had since {highest}; {highest} was acknowledged before the read"
    ))
}

/// The highest revision that was acknowledged before some time.
pub(super) struct Acknowledged(Vec<(u64, u64)>);

impl Acknowledged {
    pub(super) fn new(acknowledged: &[(&Write, u64)]) -> Acknowledged {
        let mut times: Vec<(u64, u64)> = acknowledged.iter().map(|(write, rev)| (write.returned, *rev)).collect();
        rising(&mut times);
        Acknowledged(times)
    }

    /// The highest of the answered writes of the history.
    pub(super) fn of(history: &FaultHistory) -> Acknowledged {
        let answered = history.writes.iter().filter_map(|write| match write.result {
            WriteResult::Done(rv) if rv > 0 => Some((write, rv)),
            _ => None,
        });
        Acknowledged::new(&answered.collect::<Vec<_>>())
    }

    pub(super) fn at(&self, time: u64) -> u64 {
        last_while(&self.0, |returned| returned < time)
    }
}

fn count(findings: &mut Findings, write: &Write, effects: &[&Revision]) {
    let what = match (write.result, effects.is_empty()) {
        (WriteResult::Done(_), _) => "writes acknowledged",
        (WriteResult::Refused, _) => "writes refused",
        (WriteResult::Unknown, true) => "writes without an answer, not there",
        (WriteResult::Unknown, false) => "writes without an answer, there once",
    };
    findings.count(what, 1);
}

fn say(write: &Write) -> String {
    let kind = match (write.kind, write.based_on) {
        (Change::Put, 0) => "create",
        (Change::Put, _) => "update",
        (Change::Delete, _) => "delete",
    };
    format!("the {kind} {} of {} by {}", write.id, write.key, write.client)
}

fn evidence(history: &FaultHistory, key: &Key) -> Vec<String> {
    const SHOWN: usize = 8;
    let changes = history.revisions.iter().filter(|revision| revision.key == *key).rev().take(SHOWN);
    changes.map(crate::recording::history_line).collect()
}
