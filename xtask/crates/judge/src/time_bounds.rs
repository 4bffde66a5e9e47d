//! Time bounds of revisions: by when a revision existed at the latest, and before when it cannot have existed.
//!
//! Receipt times of the raw store watch prove nothing here, because the watch lags. Only answers do: an answered write
//! existed when its answer came. The revision that a create answered did not exist before the request was sent; the
//! same holds for an update whose answer is another version than the one it was based on.

use model::history::{Answer, Change, History, Micros, Operation, Revision, Verb};

use super::keys::{Keys, unsigned};
use super::prepared;
use super::query::Query;

pub(super) struct TimeBounds {
    /// (time of the answer, highest revision answered by then), sorted by time.
    answered: Vec<(Micros, u64)>,
    /// The same by key: (key, time, highest revision of the key), sorted by key and time.
    answered_by_key: Vec<(u32, Micros, u64)>,
    /// (revision, the latest time at which it or an earlier one was first asked for), sorted by revision.
    earliest: Vec<(u64, Micros)>,
}

impl TimeBounds {
    /// `revs` are the revision numbers of `revisions`.
    pub(super) fn new(history: &History, revisions: &[Revision], revs: &[u64], keys: &Keys<'_>) -> TimeBounds {
        let mut bounds = TimeBounds { answered: Vec::new(), answered_by_key: Vec::new(), earliest: Vec::new() };
        let mut deletions = Vec::new();
        let first = unsigned(history.meta.first_rev);
        for operation in history.operations.iter().filter(|operation| is_write(operation)) {
            match operation.answer {
                Answer::Object { status: 200..=299, rv: 0 } => deletions.push(operation),
                Answer::Object { status: status @ 200..=299, rv } => {
                    bounds.acknowledge(keys, operation, rv);
                    let created = status == 201 && is_creation(operation, prepared::at(revisions, revs, rv));
                    if created || operation.made(rv) {
                        bounds.earliest.push((rv, operation.called));
                    }
                }
                _ => {}
            }
        }
        rising(&mut bounds.answered);
        rising(&mut bounds.earliest);
        // A delete answered with a Status made, at the earliest, the key's first tombstone after the revisions known
        // then.
        let tombstones: Vec<(&Operation, u64)> =
            deletions.into_iter().filter_map(|o| Some((o, bounds.tombstone(o, first, keys)?))).collect();
        for (operation, rev) in tombstones {
            bounds.acknowledge(keys, operation, rev);
        }
        rising(&mut bounds.answered);
        bounds.answered_by_key.sort_unstable();
        for group in bounds.answered_by_key.chunk_by_mut(|a, b| a.0 == b.0) {
            highest_so_far(group.iter_mut().map(|(_, _, rev)| rev));
        }
        bounds
    }

    fn acknowledge(&mut self, keys: &Keys<'_>, operation: &Operation, rev: u64) {
        self.answered.push((operation.returned, rev));
        if let Some(key) = operation.key.as_deref().and_then(|key| keys.id(key)) {
            self.answered_by_key.push((key, operation.returned, rev));
        }
    }

    /// The lowest revision that a deletion answered with a Status can have made. None if it may be from before the
    /// recording, whose first revision is `first`.
    fn tombstone(&self, operation: &Operation, first: u64, keys: &Keys<'_>) -> Option<u64> {
        let Answer::Object { status: 200, rv: 0 } = operation.answer else { return None };
        if operation.verb != Verb::Delete {
            return None;
        }
        let key = keys.id(operation.key.as_deref()?)?;
        let low = self.acknowledged(operation.called);
        if first > 0 && low <= first {
            return None;
        }
        let mut later = keys.changes_after(key, low);
        later.find(|revision| revision.kind == Change::Delete).map(|revision| unsigned(revision.rev))
    }

    /// The highest revision whose write was answered before `time`; 0 if none was.
    pub(super) fn acknowledged(&self, time: Micros) -> u64 {
        last_while(&self.answered, |returned| returned < time)
    }

    /// The same among the writes of one key.
    pub(super) fn acknowledged_of(&self, key: u32, time: Micros) -> u64 {
        let end = self.answered_by_key.partition_point(|(k, returned, _)| (*k, *returned) < (key, time));
        let last = end.checked_sub(1).map(|last| self.answered_by_key[last]);
        last.filter(|(k, _, _)| *k == key).map_or(0, |(_, _, rev)| rev)
    }

    /// The time before which `rev` did not exist.
    pub(super) fn not_before(&self, rev: u64) -> Micros {
        last_while(&self.earliest, |bounded| bounded <= rev)
    }
}

/// Sorts, and replaces each second number by the highest so far.
pub(super) fn rising(pairs: &mut [(u64, u64)]) {
    pairs.sort_unstable();
    highest_so_far(pairs.iter_mut().map(|(_, value)| value));
}

fn highest_so_far<'a>(values: impl Iterator<Item = &'a mut u64>) {
    values.fold(0, |highest, value| {
        *value = highest.max(*value);
        *value
    });
}

/// The second number of the last of the pairs whose first one fits; 0 without such a pair.
pub(super) fn last_while(pairs: &[(u64, u64)], fits: impl Fn(u64) -> bool) -> u64 {
    let end = pairs.partition_point(|(first, _)| fits(*first));
    end.checked_sub(1).map_or(0, |last| pairs[last].1)
}

/// A write that was not a dry run.
fn is_write(operation: &Operation) -> bool {
    let writes = matches!(operation.verb, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete);
    writes && !Query::parse(&operation.query).dry_run
}

/// Whether this request made the revision. A patch without a change answers an old revision; 201 Created is certain
/// only if the revision is the first version of the key. `changes` are those of the revision.
fn is_creation(operation: &Operation, changes: &[Revision]) -> bool {
    changes.iter().any(|revision| {
        revision.kind == Change::Put
            && revision.create_rev == revision.rev
            && operation.key.as_ref().is_none_or(|key| **key == *revision.key)
    })
}
