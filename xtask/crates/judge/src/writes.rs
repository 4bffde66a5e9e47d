//! `suite.writes`: compares the answers to writes with what the store recorded about them.
//!
//! Every answered write is in the history under the resource version of its answer, replaced the version it was based
//! on, and comes after everything that was answered before it was sent. A write without an answer is not judged here.

use model::history::{Answer, Change, Operation, Revision, Verb};

use super::keys::unsigned;
use super::prepared::Prepared;
use super::query::Query;
use super::recording::{history_line, say};
use super::{Findings, Violation};

/// A verdict about answers needs at least this many answered writes.
const MIN_WRITES: u64 = 10;
/// Maximum number of changes of a key in evidence.
const SHOWN: usize = 5;

/// An answer that names a revision: (resource version, key, the operation that got it).
type Claim<'h> = (u64, &'h str, &'h Operation);

pub(super) fn writes(prepared: &Prepared<'_>, findings: &mut Findings) {
    let mut claims: Vec<Claim<'_>> = Vec::new();
    for operation in &prepared.history.operations {
        if Query::parse(&operation.query).dry_run {
            continue;
        }
        let problem = match (operation.verb, &operation.answer) {
            (Verb::Create | Verb::Update | Verb::Patch, Answer::Object { status: 200..=299, rv })
                if *rv > prepared.first && *rv <= prepared.last =>
            {
                findings.count("writes", 1);
                write(prepared, &mut claims, operation, *rv)
            }
            (Verb::Delete, Answer::Object { status: 200, rv: 0 }) => {
                findings.count("deletions", 1);
                deletion(prepared, operation)
            }
            _ => None,
        };
        if let Some((message, evidence)) = problem {
            findings.add(Violation { message: format!("{} {message}", say(operation)), evidence });
        }
    }
    claims.sort_by_key(|(rv, key, operation)| (*rv, *key, operation.called));
    for pair in claims.windows(2).filter(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1)) {
        let [(rv, _, one), (_, _, other)] = pair else { continue };
        findings.add(Violation::plain(format!("{} and {} both answered {rv}", say(one), say(other))));
    }
    findings.at_least("writes", MIN_WRITES);
}

/// The error of an answer, as the end of a sentence, and the evidence.
type Problem = (String, Vec<String>);

fn write<'h>(
    prepared: &Prepared<'h>,
    claims: &mut Vec<Claim<'h>>,
    operation: &'h Operation,
    rv: u64,
) -> Option<Problem> {
    let Some(revision) = stored(prepared, operation, rv) else {
        let there = prepared.revisions_at(rv).iter().map(history_line).collect();
        return Some((format!("answered resource version {rv}, at which the store changed no such key"), there));
    };
    let evidence = || around(prepared, &revision.key, rv);
    match (operation.verb, operation.based_on) {
        // A creation by another verb may be answered late; the answer to a POST names the revision of the creation.
        (Verb::Create, _) if revision.create_rev != revision.rev => {
            let created = matches!(operation.answer, Answer::Object { status: 201, .. });
            return created.then(|| (format!("answered 201 and {rv}, at which nothing was created"), evidence()));
        }
        (Verb::Create, _) => {}
        (Verb::Update, Some(based_on)) if based_on == rv && operation.changes => {
            return Some((
                format!("answered {rv}, the version it was based on, although it changes something"),
                evidence(),
            ));
        }
        (Verb::Update, Some(based_on)) if based_on == rv => {
            let over = over_before(prepared, operation, rv)?;
            let text = format!("answered {rv} as if it were there, but {over} had replaced it before it was sent");
            return Some((text, evidence()));
        }
        (Verb::Update, Some(based_on)) => {
            if let Some(replaced) = replaced(prepared, revision).filter(|replaced| *replaced != based_on) {
                let text = format!("was based on {based_on} and answered {rv}, but what {rv} replaced is {replaced}");
                return Some((text, evidence()));
            }
        }
        _ if operation.made(rv) => {}
        _ => return None,
    }
    claims.push((rv, &revision.key, operation));
    let before = prepared.time_bounds.acknowledged(operation.called);
    let text = || format!("answered {rv} although a write with {before} was answered before it was sent");
    (rv <= before).then(|| (text(), evidence()))
}

/// If the answer says that a deletion is complete, it has left a tombstone.
fn deletion(prepared: &Prepared<'_>, operation: &Operation) -> Option<Problem> {
    let text = operation.key.as_deref()?;
    // Nothing is known about an object that the store never held, not even that this is its key.
    let key = prepared.keys.id(text)?;
    let low = prepared.time_bounds.acknowledged(operation.called);
    // The tombstone may be older than the recording.
    if prepared.first > 0 && low <= prepared.first {
        return None;
    }
    let deleted = prepared.keys.changes_after(key, low).any(|revision| {
        revision.kind == Change::Delete && prepared.time_bounds.not_before(unsigned(revision.rev)) <= operation.returned
    });
    (!deleted).then(|| {
        (format!("was answered as complete, but after {low} the store did not delete it"), around(prepared, text, low))
    })
}

/// The change of the key that ended `rv` and was answered before the operation was sent.
fn over_before(prepared: &Prepared<'_>, operation: &Operation, rv: u64) -> Option<u64> {
    let key = prepared.keys.id(operation.key.as_deref()?)?;
    let next = unsigned(prepared.keys.changes_after(key, rv).next()?.rev);
    (next <= prepared.time_bounds.acknowledged_of(key, operation.called)).then_some(next)
}

/// The version of the key that a revision replaced; 0 if the key did not exist. None: it is older than the recording.
fn replaced(prepared: &Prepared<'_>, revision: &Revision) -> Option<u64> {
    let key = prepared.keys.id(&revision.key)?;
    match prepared.keys.last_change(key, unsigned(revision.rev).saturating_sub(1)) {
        Some(last) if last.kind == Change::Put => Some(unsigned(last.rev)),
        Some(_) => Some(0),
        None => Some(prepared.keys.initial[key as usize]).filter(|rev| *rev > 0 || prepared.first == 0),
    }
}

/// The revision that an answer names.
fn stored<'h>(prepared: &Prepared<'h>, operation: &Operation, rv: u64) -> Option<&'h Revision> {
    prepared.revisions_at(rv).iter().find(|revision| match &operation.key {
        Some(key) => revision.key == *key,
        None => revision.key.starts_with(&*operation.prefix),
    })
}

/// The changes of a key around a revision.
fn around(prepared: &Prepared<'_>, text: &str, rv: u64) -> Vec<String> {
    let Some(key) = prepared.keys.id(text) else { return Vec::new() };
    prepared.keys.changes_around(key, rv, SHOWN / 2).take(SHOWN).map(history_line).collect()
}
