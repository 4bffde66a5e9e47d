//! GET answers compared with the history of the key: its revisions, and the answers before the GET.

use model::history::{Answer, Change, Operation, Verb};

use super::keys::unsigned;
use super::prepared::Prepared;
use super::query::Query;
use super::recording::{history_line, say};
use super::{Findings, Violation};

/// A verdict needs at least this many objects read.
const MIN_GETS: u64 = 5;

/// A GET, and the oldest state that its answer may show.
struct Get<'h> {
    operation: &'h Operation,
    key: u32,
    /// The state shown must be at this revision or a later one.
    low: u64,
    /// Why, in a message.
    reason: String,
}

/// `rv.get-unset-linearizable`: without a resource version, a GET sees every write of the key that was answered before
/// the GET was sent, and nothing that was sent after its answer.
pub(super) fn unset_linearizable(prepared: &Prepared<'_>, findings: &mut Findings) {
    judge(prepared, findings, |query, operation, key| {
        if query.resource_version.is_some() {
            return None;
        }
        let low = prepared.time_bounds.acknowledged_of(key, operation.called);
        Some((low, format!("{low} of the key was answered before the GET was sent")))
    })
}

/// `rv.get-not-older`: with a resource version n, a GET shows a state at n or later.
pub(super) fn not_older(prepared: &Prepared<'_>, findings: &mut Findings) {
    judge(prepared, findings, |query, _, _| {
        let low = query.number().filter(|rv| *rv > 0)?;
        Some((low, format!("{low} was asked for")))
    })
}

/// `rv.get-zero-any`: with resource version 0, a GET shows a state that the key once had.
pub(super) fn zero_any(prepared: &Prepared<'_>, findings: &mut Findings) {
    judge(prepared, findings, |query, _, _| (query.number() == Some(0)).then(|| (0, "any state was asked for".into())))
}

/// Judges the GETs for which `demand` returns a lowest revision and its reason.
fn judge(
    prepared: &Prepared<'_>,
    findings: &mut Findings,
    demand: impl Fn(&Query<'_>, &Operation, u32) -> Option<(u64, String)>,
) {
    for operation in prepared.history.operations.iter().filter(|operation| operation.verb == Verb::Get) {
        let Some(text) = operation.key.as_deref() else { continue };
        let rv = match &operation.answer {
            Answer::Object { status: 200, rv } if *rv > 0 => Some(*rv),
            // A 404 with another reason is about the resource, not about the object.
            Answer::Refused { status: 404, reason } if reason == "NotFound" => None,
            _ => continue,
        };
        let query = Query::parse(&operation.query);
        let Some(key) = prepared.keys.id(text) else {
            // The store never held the key: only an answer with an object can be wrong.
            if let Some(rv) = rv.filter(|rv| demand(&query, operation, u32::MAX).is_some() && *rv <= prepared.last) {
                findings.add(Violation::plain(format!(
                    "{} answered {rv}, but the store never held the key",
                    say(operation)
                )));
            }
            continue;
        };
        let Some((low, reason)) = demand(&query, operation, key) else { continue };
        // States before and after the recording are unknown.
        if rv.is_some_and(|rv| rv > prepared.last) || (low < prepared.first && query.resource_version.is_some()) {
            findings.count("reads outside of the recording", 1);
            continue;
        }
        findings.count(if rv.is_some() { "objects" } else { "absences" }, 1);
        let get = Get { operation, key, low: low.max(prepared.first), reason };
        let problem = match rv {
            Some(rv) => get.wrong_object(prepared, rv),
            None => get.wrong_absence(prepared),
        };
        if let Some(message) = problem {
            findings.add(get.violation(prepared, rv, &message));
        }
    }
    findings.at_least("objects", MIN_GETS);
}

impl Get<'_> {
    fn wrong_object(&self, prepared: &Prepared<'_>, rv: u64) -> Option<String> {
        let existed = match prepared.keys.last_change(self.key, rv) {
            Some(last) if unsigned(last.rev) == rv => last.kind == Change::Put,
            _ => prepared.keys.initial[self.key as usize] == rv,
        };
        if !existed {
            return Some(format!("answered {rv}, which the key never had"));
        }
        let next = prepared.keys.changes_after(self.key, rv).next();
        if let Some(ends) = next.map(|next| unsigned(next.rev)).filter(|ends| *ends <= self.low) {
            return Some(format!("answered {rv}, which was over at {ends}; {}", self.reason));
        }
        let earliest = prepared.time_bounds.not_before(rv);
        (earliest > self.operation.returned)
            .then(|| format!("answered {rv}, which a write made that was only sent at {earliest} µs"))
    }

    /// A 404 is right if the key was absent at some revision from `low` on that existed before the answer.
    fn wrong_absence(&self, prepared: &Prepared<'_>) -> Option<String> {
        prepared.keys.version_at(self.key, self.low)?;
        let deleted = prepared.keys.changes_after(self.key, self.low).find(|change| change.kind == Change::Delete);
        let possible = deleted
            .is_some_and(|deleted| prepared.time_bounds.not_before(unsigned(deleted.rev)) <= self.operation.returned);
        (!possible).then(|| format!("answered 404 although the key existed all the time; {}", self.reason))
    }

    /// The changes of the key around the answered and the required revision.
    fn violation(&self, prepared: &Prepared<'_>, rv: Option<u64>, message: &str) -> Violation {
        let from = rv.unwrap_or(self.low).min(self.low);
        Violation {
            message: format!("{}: {message}", say(self.operation)),
            evidence: prepared.keys.changes_around(self.key, from, 2).take(4).map(history_line).collect(),
        }
    }
}
