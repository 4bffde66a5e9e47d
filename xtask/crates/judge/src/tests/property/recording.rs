//! The recording itself: revisions lost, duplicated, swapped and changed, and a wrong state at the end.

use fastrand::Rng;
use model::history::{Change, History, Revision, Snapshot};

use super::Kind;

const TRUTH: &str = "suite.truth";

pub(super) const KINDS: &[Kind] = &[
    ("a revision is lost", TRUTH, |h, r| {
        let place = r.usize(0..h.revisions.len());
        let gone = h.revisions.remove(place);
        // The loss shows at the next revision, at the next change of the key, or at the end.
        let shared = h.revisions.iter().any(|revision| revision.rev == gone.rev);
        let previous = h.revisions[..place].last().map_or(0, |revision| revision.rev);
        Some(vec![if shared { gone.key.to_string() } else { previous.to_string() }])
    }),
    ("a revision comes twice", TRUTH, |h, r| {
        let place = r.usize(0..h.revisions.len());
        let again = h.revisions[place].clone();
        let words = format!("revision {} of {} twice", again.rev, again.key);
        h.revisions.insert(place, again);
        Some(vec![words])
    }),
    ("two revisions are swapped", TRUTH, |h, r| {
        let pairs = (1..h.revisions.len()).filter(|place| h.revisions[place - 1].rev < h.revisions[*place].rev);
        let place = r.choice(pairs.collect::<Vec<_>>())?;
        h.revisions.swap(place - 1, place);
        let [early, late] = [&h.revisions[place], &h.revisions[place - 1]];
        Some(vec![format!("delivered revision {} ({})", early.rev, early.key), format!("after {}", late.rev)])
    }),
    ("a revision is of another key", TRUTH, |h, r| {
        let place = r.usize(0..h.revisions.len());
        let (rev, was) = (h.revisions[place].rev, h.revisions[place].key.clone());
        // A deletion whose previous value was compacted may be of any live key: it is missed before the key's next
        // change.
        let of_any = h.revisions[place].kind == Change::Delete && h.revisions[place].prev_rev == 0;
        let others = h.revisions.iter().map(|revision| &revision.key).filter(|key| **key != was);
        let key = r.choice(others.collect::<Vec<_>>())?.clone();
        h.revisions[place].key = key;
        Some(vec![if of_any { was.to_string() } else { rev.to_string() }])
    }),
    ("a put is a deletion", TRUTH, |h, r| {
        // A deletion has no version and no creation; the next change does not follow from it.
        let revision = put(h, r, |_| true)?;
        (revision.kind, revision.version, revision.create_rev) = (Change::Delete, 0, 0);
        Some(vec![revision.key.to_string()])
    }),
    ("a version is skipped", TRUTH, |h, r| {
        let revision = put(h, r, |_| true)?;
        revision.version += 1;
        Some(vec![format!("revision {} of {}: its version is {}", revision.rev, revision.key, revision.version)])
    }),
    ("a creation is of another revision", TRUTH, |h, r| {
        let revision = put(h, r, |_| true)?;
        revision.create_rev -= 1;
        Some(vec![format!("revision {} of {}", revision.rev, revision.key), "created at".into()])
    }),
    ("a previous value is of another revision", TRUTH, |h, r| {
        let revision = put(h, r, |revision| revision.prev_rev > 1)?;
        revision.prev_rev -= 1;
        Some(vec![format!("revision {} of {}: its previous value", revision.rev, revision.key)])
    }),
    ("all versions are lost", TRUTH, |h, _| {
        h.meta.versioned = Some(true);
        h.revisions.iter_mut().for_each(|revision| revision.version = 0);
        h.meta.last.iter_mut().for_each(|snapshot| snapshot.version = 0);
        Some(vec!["its version is 0, not 1".into()])
    }),
    ("the end lacks a key", TRUTH, |h, r| {
        let place = r.usize(0..h.meta.last.len());
        let gone = h.meta.last.remove(place);
        Some(vec![format!("does not hold {} at the end", gone.key)])
    }),
    ("the end has another revision of a key", TRUTH, |h, r| {
        let end = r.choice(&mut h.meta.last)?;
        end.mod_rev -= 1;
        Some(vec![format!("end state of {}", end.key)])
    }),
    ("the end has a key that no change led to", TRUTH, |h, _| {
        let key: model::history::Key = "/registry/configmaps/ns-0/stranger".into();
        h.meta.last.push(Snapshot { key: key.clone(), create_rev: 9, mod_rev: 9, version: 1 });
        Some(vec![format!("holds {key}")])
    }),
];

fn put<'h>(history: &'h mut History, random: &mut Rng, fits: impl Fn(&Revision) -> bool) -> Option<&'h mut Revision> {
    let puts = history.revisions.iter_mut().filter(|revision| revision.kind == Change::Put && fits(revision));
    random.choice(puts.collect::<Vec<_>>())
}
