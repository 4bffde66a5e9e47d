//! GET answers compared with the history of the key: its revisions, and the answers before the GET.

use model::history::{Answer, Change, Operation, Revision, Verb};

use super::keys::unsigned;
use super::prepared::Prepared;
use super::query::Query;
use super::recording::{describe, say};
use super::{Findings, Judgement, Violation};

/// A verdict needs at least this many objects read.
const MIN_GETS: u64 = 5;

/// A GET, and the oldest state that its answer may show.
struct Get<'h> {
    operation: &'h Operation,
    key: u32,
    /// The resource version of the object; None for 404.
    rv: Option<u64>,
    /// The state shown must be at this revision or a later one.
    low: u64,
    /// Why, in a message.
    reason: String,
}

/// `rv.get-unset-linearizable`: without a resource version, a GET sees every write of the key that was answered before
/// the GET was sent, and nothing that was sent after its answer.
pub(super) fn unset_linearizable(prepared: &Prepared<'_>) -> Judgement {
    judge(prepared, |query, operation, key| {
        if query.resource_version.is_some() {
            return None;
        }
        let low = prepared.time_bounds.acknowledged_of(key, operation.called);
        Some((low, format!("{low} of the key was answered before the GET was sent")))
    })
}

/// `rv.get-not-older`: with a resource version n, a GET shows a state at n or later.
pub(super) fn not_older(prepared: &Prepared<'_>) -> Judgement {
    judge(prepared, |query, _, _| {
        let low = query.number().filter(|rv| *rv > 0)?;
        Some((low, format!("{low} was asked for")))
    })
}

/// `rv.get-zero-any`: with resource version 0, a GET shows a state that the key once had.
pub(super) fn zero_any(prepared: &Prepared<'_>) -> Judgement {
    judge(prepared, |query, _, _| (query.number() == Some(0)).then(|| (0, "any state was asked for".into())))
}

/// Judges the GETs for which `demand` returns a lowest revision and its reason.
fn judge(prepared: &Prepared<'_>, demand: impl Fn(&Query<'_>, &Operation, u32) -> Option<(u64, String)>) -> Judgement {
    let mut findings = Findings::default();
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
        let get = Get { operation, key, rv, low: low.max(prepared.first), reason };
        if let Some(message) = get.problem(prepared) {
            findings.add(get.violation(prepared, &message));
        }
    }
    findings.at_least("objects", MIN_GETS);
    findings.judgement()
}

impl Get<'_> {
    fn problem(&self, prepared: &Prepared<'_>) -> Option<String> {
        match self.rv {
            Some(rv) => self.wrong_object(prepared, rv),
            None => self.wrong_absence(prepared),
        }
    }

    fn wrong_object(&self, prepared: &Prepared<'_>, rv: u64) -> Option<String> {
        let changes = prepared.keys.changes_of(self.key);
        let after = prepared.keys.changes_until(self.key, rv);
        let existed = match after.checked_sub(1).map(|last| self.revision(prepared, changes[last])) {
            Some(last) if unsigned(last.rev) == rv => last.kind == Change::Put,
            _ => prepared.keys.initial[self.key as usize] == rv,
        };
        if !existed {
            return Some(format!("answered {rv}, which the key never had"));
        }
        let ends = changes.get(after);
        let ends = ends.map(|&change| self.rev(prepared, change)).filter(|ends| *ends <= self.low);
        if let Some(ends) = ends {
            return Some(format!("answered {rv}, which was over at {ends}; {}", self.reason));
        }
        let earliest = prepared.time_bounds.not_before(rv);
        (earliest > self.operation.returned)
            .then(|| format!("answered {rv}, which a write made that was only sent at {earliest} µs"))
    }

    /// A 404 is right if the key was absent at some revision from `low` on that existed before the answer.
    fn wrong_absence(&self, prepared: &Prepared<'_>) -> Option<String> {
        let changes = prepared.keys.changes_of(self.key);
        let next = prepared.keys.changes_until(self.key, self.low);
        let existed = match next.checked_sub(1) {
            Some(last) => self.revision(prepared, changes[last]).kind == Change::Put,
            None => prepared.keys.initial[self.key as usize] > 0,
        };
        if !existed {
            return None;
        }
        let delete = changes[next..].iter().find(|&&change| self.revision(prepared, change).kind == Change::Delete);
        let possible = delete.is_some_and(|&delete| {
            prepared.time_bounds.not_before(self.rev(prepared, delete)) <= self.operation.returned
        });
        (!possible).then(|| format!("answered 404 although the key existed all the time; {}", self.reason))
    }

    fn revision<'h>(&self, prepared: &Prepared<'h>, change: u32) -> &'h Revision {
        &prepared.revisions[change as usize]
    }

    fn rev(&self, prepared: &Prepared<'_>, change: u32) -> u64 {
        unsigned(self.revision(prepared, change).rev)
    }

    /// The changes of the key around the answered and the required revision.
    fn violation(&self, prepared: &Prepared<'_>, message: &str) -> Violation {
        let changes = prepared.keys.changes_of(self.key);
        let from = self.rv.unwrap_or(self.low).min(self.low);
        let start = prepared.keys.changes_until(self.key, from).saturating_sub(2);
        let shown = changes[start..].iter().take(4);
        Violation {
            message: format!("{}: {message}", say(self.operation)),
            evidence: shown.map(|&change| format!("history: {}", describe(self.revision(prepared, change)))).collect(),
        }
    }
}
