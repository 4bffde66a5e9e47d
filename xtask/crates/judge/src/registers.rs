//! `cc.linearizable-history`: the answers about each object have one order that respects time.
//!
//! An answer with a resource version names its place in the store's history, where other judges check it. This judge
//! decides about the objects for which some answer has no resource version: a DELETE answered with a Status, a 404, a
//! refused creation, a request that was never answered. `linear` is the search itself.

use std::collections::{BTreeMap, BTreeSet};

use model::history::{Answer, Change, Micros, Operation, Verb};

use super::keys::unsigned;
use super::linear::{Effect, Found, Op, search};
use super::prepared::Prepared;
use super::query::Query;
use super::recording::say;
use super::{Findings, Violation};

/// A verdict needs at least this many answers without a resource version.
const MIN_ANSWERS: u64 = 20;
/// A verdict needs at least this many deletions that must have found their object absent. The traffic sends several.
const MIN_ABSENCES: u64 = 1;
/// The name of their count.
const ABSENCES: &str = "deletions of objects that were certainly absent";
/// Search steps per object. A history of a few hundred operations with a dozen clients needs a few thousand.
const STEPS: usize = 200_000;
/// The count of objects whose search needs more. A search that finds no order takes longest, so such an object may be the
/// one with the violation.
const UNDECIDED: &str = "objects without a verdict";
/// Lines of evidence.
const SHOWN: usize = 8;

pub(super) fn linearizable(prepared: &Prepared<'_>, findings: &mut Findings) {
    let (base, begin) = base(prepared);
    for (key, mut operations) in by_key(prepared) {
        // An operation answered before the first revision was asked for took effect before that revision: its effect is
        // in the state with which the search begins. An operation that was answered later, or never, may have taken
        // effect on either side. An operation sent before that time that changed nothing can be left out.
        operations.retain(|operation| {
            let changes = operation.verb != Verb::Get && !matches!(operation.answer, Answer::Refused { .. });
            operation.called >= begin || is_open(&operation.answer) || (changes && operation.returned >= begin)
        });
        let effects: Option<Vec<Effect>> = operations.iter().map(|operation| effect(prepared, operation)).collect();
        let Some(effects) = effects else {
            findings.count("objects that were removed in two steps", 1);
            continue;
        };
        let without_version = effects.iter().filter(|effect| is_without_version(effect)).count();
        if without_version == 0 {
            continue;
        }
        let cleared = cleared(prepared, key);
        let early = operations.iter().any(|operation| operation.called < begin);
        if early || changed_by_others(prepared, key, base, &effects, cleared.len()) {
            findings.count("objects that others changed too", 1);
            continue;
        }
        findings.count("objects", 1);
        findings.count("operations", operations.len() as u64);
        findings.count("answers without a resource version", without_version as u64);
        findings.count(ABSENCES, certain_absences(&operations, &effects));
        let known = operations.iter().zip(&effects).map(|(operation, &effect)| {
            let returned = (!is_open(&operation.answer)).then_some(operation.returned);
            Op { called: operation.called, returned, effect }
        });
        let ops: Vec<Op> = known.chain(cleared).collect();
        judge(findings, key, initial(prepared, key, base), &operations, &ops);
    }
    findings.at_least("answers without a resource version", MIN_ANSWERS);
    findings.at_least(ABSENCES, MIN_ABSENCES);
    findings.none_of(UNDECIDED);
}

/// The deletions that were refused while no other request could change the object: a success instead of any of these
/// refusals would leave no order. If another write was under way, or has no answer, the search may accept the success.
fn certain_absences(operations: &[&Operation], effects: &[Effect]) -> u64 {
    if operations.iter().any(|operation| is_open(&operation.answer)) {
        return 0;
    }
    let is_alone = |one: &Operation| {
        let others = operations.iter().filter(|other| other.verb != Verb::Get && !std::ptr::eq(**other, one));
        others.into_iter().all(|other| other.returned < one.called || other.called > one.returned)
    };
    let refused = operations.iter().zip(effects).filter(|(operation, effect)| {
        operation.verb == Verb::Delete && **effect == Effect::Absent && is_alone(operation)
    });
    refused.count() as u64
}

/// `ops` are the operations, followed by the deletions of the whole collection.
fn judge(findings: &mut Findings, key: &str, initial: Option<u64>, operations: &[&Operation], ops: &[Op]) {
    match search(initial, ops, STEPS) {
        Found::Linearizable => {}
        Found::Undecided => findings.count(UNDECIDED, 1),
        Found::NotLinearizable { ordered, blocked } => {
            let line = |op: &usize| {
                let who =
                    operations.get(*op).map_or("the deletion of the collection".into(), |operation| say(operation));
                format!("{:?}: {who}", ops[*op].effect)
            };
            let last = ordered.iter().rev().take(SHOWN).rev();
            let placed = last.map(|op| format!("in order: {}", line(op)));
            let blocked = blocked.iter().take(SHOWN).map(|op| format!("cannot follow: {}", line(op)));
            findings.add(Violation {
                message: format!(
                    "no order of the {} answers about {key} respects time: after {} of them nothing can follow",
                    ops.len(),
                    ordered.len()
                ),
                evidence: placed.chain(blocked).collect(),
            });
        }
    }
}

/// The first revision that an answer says it has made, and when it was asked for. Older content of the store is from
/// another run: each case begins with the creation of its namespace.
fn base(prepared: &Prepared<'_>) -> (u64, Micros) {
    let created = prepared.history.operations.iter().filter_map(|operation| match operation.answer {
        Answer::Object { status: 201, rv } if rv > 0 && is_of_now(operation) => Some((rv, operation.called)),
        _ => None,
    });
    created.min().unwrap_or_default()
}

/// The version of the object before `base`.
fn initial(prepared: &Prepared<'_>, key: &str, base: u64) -> Option<u64> {
    prepared.keys.version_at(prepared.keys.id(key)?, base.saturating_sub(1))
}

/// Deletions of the whole collection. Each may have deleted the object: the answer does not say so.
fn cleared(prepared: &Prepared<'_>, key: &str) -> Vec<Op> {
    let all = prepared.history.operations.iter().filter(|operation| operation.verb == Verb::DeleteCollection);
    let of_key = all.filter(|operation| key.starts_with(&*operation.prefix) && !Query::parse(&operation.query).dry_run);
    of_key.map(|operation| Op { called: operation.called, returned: None, effect: Effect::LostDelete }).collect()
}

/// The operations on each object that the search can use, in the order of the calls.
fn by_key<'h>(prepared: &Prepared<'h>) -> BTreeMap<&'h str, Vec<&'h Operation>> {
    let mut by_key: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in prepared.history.operations.iter().filter(|operation| is_of_now(operation)) {
        if let Some(key) = operation.key.as_deref() {
            by_key.entry(key).or_default().push(operation);
        }
    }
    by_key
}

/// Whether the search can use the operation: a write that was not a dry run, or an answered GET without a resource
/// version.
fn is_of_now(operation: &Operation) -> bool {
    let query = Query::parse(&operation.query);
    match (operation.verb, &operation.answer) {
        (Verb::List | Verb::DeleteCollection, _) | (_, Answer::List { .. }) => false,
        (verb, answer) if is_open(answer) => verb != Verb::Get && !query.dry_run,
        (Verb::Get, _) if query.resource_version.is_some() => false,
        (Verb::Create, Answer::Refused { status, reason }) => *status == 409 && reason == "AlreadyExists",
        (_, Answer::Refused { status, reason }) => *status == 404 && reason == "NotFound",
        _ => !query.dry_run,
    }
}

/// Whether the result of a write is unknown, so that it may still take effect: it has no answer, or one of a server
/// that does not know. If the store dies during a DELETE, kube-apiserver answers 500 although the key is gone.
fn is_open(answer: &Answer) -> bool {
    match answer {
        Answer::Lost { .. } => true,
        Answer::Refused { status, .. } => *status >= 500,
        Answer::Object { .. } | Answer::List { .. } => false,
    }
}

/// None: the answer leaves the effect open. One such answer is that of a DELETE that only marks the object: the update
/// that removes the last finalizer then deletes it, and is answered with the version that the object had.
fn effect(prepared: &Prepared<'_>, operation: &Operation) -> Option<Effect> {
    Some(match (operation.verb, &operation.answer) {
        (Verb::Create, answer) if is_open(answer) => Effect::LostCreate,
        (Verb::Delete, answer) if is_open(answer) => Effect::LostDelete,
        (_, answer) if is_open(answer) => Effect::LostWrite,
        (Verb::Create, Answer::Refused { .. }) => Effect::Present,
        (_, Answer::Refused { .. } | Answer::Lost { .. }) => Effect::Absent,
        (Verb::Get, Answer::Object { rv, .. }) => Effect::Read(*rv),
        (Verb::Delete, Answer::Object { rv: 0, .. }) => Effect::Delete(None),
        (_, Answer::Object { status: 201, rv }) => Effect::Create(*rv),
        (_, Answer::Object { rv, .. }) => match (operation.verb, change(prepared, operation, *rv)) {
            (_, Some(Change::Delete)) => Effect::Delete(Some(*rv)),
            (Verb::Delete, Some(Change::Put)) | (_, None) => return None,
            (_, Some(Change::Put)) => written(operation, *rv),
        },
        (_, Answer::List { .. }) => return None,
    })
}

/// The effect of an answered write. A write without a change is answered with the existing version, which any client
/// may have made, perhaps with a write without an answer. So the write must not claim this version for itself.
fn written(operation: &Operation, rv: u64) -> Effect {
    match operation.based_on {
        _ if operation.made(rv) => Effect::Write(rv),
        Some(_) => Effect::Read(rv),
        None => Effect::Touch(rv),
    }
}

/// The change of the operation's object at the revision.
fn change(prepared: &Prepared<'_>, operation: &Operation, rv: u64) -> Option<Change> {
    let key = operation.key.as_deref()?;
    prepared.revisions_at(rv).iter().find(|revision| &*revision.key == key).map(|revision| revision.kind)
}

fn is_without_version(effect: &Effect) -> bool {
    use Effect::{Create, Delete, Read, Touch, Write};
    !matches!(effect, Create(_) | Write(_) | Touch(_) | Delete(Some(_)) | Read(_))
}

/// Whether the store has changes of the object that no recorded request can have made: an expired lease, a controller,
/// a request that was not recorded. Their time is unknown.
fn changed_by_others(prepared: &Prepared<'_>, key: &str, base: u64, effects: &[Effect], cleared: usize) -> bool {
    let Some(id) = prepared.keys.id(key) else { return false };
    let version = |effect: &Effect| match effect {
        Effect::Create(rv) | Effect::Write(rv) | Effect::Touch(rv) => Some(*rv),
        _ => None,
    };
    let written: BTreeSet<u64> = effects.iter().filter_map(version).collect();
    // Older answers are unknown, those of an earlier run as well as those before a late begin of the recording.
    if written.first().is_some_and(|rv| *rv < base || *rv <= prepared.first) {
        return true;
    }
    let count = |which: fn(&Effect) -> bool| effects.iter().filter(|effect| which(effect)).count();
    let changes = || prepared.keys.changes_after(id, base.saturating_sub(1));
    let puts = changes().filter(|c| c.kind == Change::Put && !written.contains(&unsigned(c.rev))).count();
    let deletes = changes().filter(|c| c.kind == Change::Delete).count();
    puts > count(|effect| matches!(effect, Effect::LostCreate | Effect::LostWrite))
        || deletes > cleared + count(|effect| matches!(effect, Effect::Delete(_) | Effect::LostDelete))
}
