//! Compares the writes of clients that contend for one object with the store's history: every acknowledged write is one
//! revision, made from the version on which it was based, and there are no other revisions.
//!
//! Not here: the program that logs the writes (`targets/programs/client`).

use std::collections::BTreeMap;

use model::history::{Change, Revision};

use crate::informer::Line;
use crate::keys::unsigned;

/// What the clients did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contended {
    /// Writes that a client was told had succeeded.
    pub acknowledged: u64,
    /// Writes that were refused because the object had changed.
    pub refused: u64,
    /// Writes whose answer did not come.
    pub unknown: u64,
    /// The values of the acknowledged writes in the order of their revisions.
    pub values: Vec<String>,
}

/// Judges the writes of all clients to one object. `made` is the revision at which the check created it, or 0.
///
/// # Errors
/// What is wrong, in a sentence.
pub fn judge(writes: &[&Line], changes: &[Revision], made: u64) -> Result<Contended, String> {
    let mut found = Contended::default();
    let mut by_version: BTreeMap<u64, &Line> = BTreeMap::new();
    for &write in writes {
        match write.status {
            200..300 => {
                if let Some(other) = by_version.insert(write.rv, write) {
                    let both = format!("{} and {}", say(other), say(write));
                    return Err(format!("two writes made version {}: {both}", write.rv));
                }
            }
            409 => found.refused += 1,
            429 => {}
            _ => found.unknown += 1,
        }
    }
    found.acknowledged = by_version.len() as u64;
    let mut before = 0;
    let mut unclaimed = 0;
    for change in changes {
        let revision = unsigned(change.rev);
        if change.kind == Change::Delete {
            return Err(format!("the object was deleted at {revision}, but no client deleted it"));
        }
        match by_version.remove(&revision) {
            Some(write) if write.old_rv != before => {
                return Err(format!("{} replaced version {before}, on which it was not based", say(write)));
            }
            Some(write) => found.values.push(write.value.clone()),
            None if revision != made => unclaimed += 1,
            None => {}
        }
        before = revision;
    }
    if let Some(write) = by_version.values().next() {
        return Err(format!("{} was acknowledged, but the store has no such version", say(write)));
    }
    if unclaimed > found.unknown {
        let unknown = found.unknown;
        return Err(format!("the store has {unclaimed} versions that no client made; {unknown} writes have no answer"));
    }
    Ok(found)
}

fn say(write: &Line) -> String {
    let Line { informer, value, old_rv, rv, .. } = write;
    format!("the write of {value:?} by {informer} (based on {old_rv}, answered with {rv})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(rev: i64, kind: Change) -> Revision {
        let (key, value) = ("/registry/leases/n/l".into(), Vec::new().into());
        Revision { at: 0, rev, key, kind, version: 1, create_rev: 5, lease: 0, prev_rev: 0, value }
    }

    fn write(client: &str, (old_rv, rv): (u64, u64), status: u16, value: &str) -> Line {
        let (informer, value) = (client.into(), value.into());
        Line { informer, event: "write".into(), old_rv, rv, status, value, ..Line::default() }
    }

    fn changes() -> Vec<Revision> {
        [5, 7, 9].map(|rev| revision(rev, Change::Put)).into()
    }

    fn writes() -> Vec<Line> {
        vec![
            write("a", (0, 5), 201, "a"),
            write("b", (0, 0), 409, "b"),
            write("a", (5, 7), 200, "a"),
            write("b", (7, 9), 200, "b"),
            write("c", (7, 0), 409, "c"),
        ]
    }

    fn judged(writes: &[Line], changes: &[Revision], made: u64) -> Result<Contended, String> {
        judge(&writes.iter().collect::<Vec<_>>(), changes, made)
    }

    #[test]
    fn writes_in_turn_pass() {
        let found = judged(&writes(), &changes(), 0).unwrap();
        assert_eq!((found.acknowledged, found.refused, found.unknown), (3, 2, 0));
        assert_eq!(found.values, ["a", "a", "b"]);
        let found = judged(&writes()[2..], &changes(), 5).unwrap();
        assert_eq!(found.values, ["a", "b"], "the suite made the first version");
    }

    #[test]
    fn a_write_without_an_answer_may_be_in_the_store() {
        let mut writes = writes();
        writes[2] = write("a", (5, 0), 0, "a");
        assert_eq!(judged(&writes, &changes(), 0).unwrap().unknown, 1);
        let why = judged(&[&writes[..2], &writes[3..]].concat(), &changes(), 0).unwrap_err();
        assert!(why.contains("1 versions that no client made"), "{why}");
    }

    #[test]
    fn violations_are_refused() {
        let refused = |at: usize, instead: Line, what: &str| {
            let mut writes = writes();
            writes[at] = instead;
            let why = judged(&writes, &changes(), 0).unwrap_err();
            assert!(why.contains(what), "{why}");
        };
        // Two holders: both were told that they took the lease over.
        refused(4, write("c", (7, 9), 200, "c"), "two writes made version 9");
        refused(4, write("c", (7, 7), 200, "c"), "two writes made version 7");
        refused(4, write("c", (7, 11), 200, "c"), "the store has no such version");
        // A lost increment: the write was based on an older version.
        refused(3, write("b", (5, 9), 200, "b"), "replaced version 7");
        refused(3, write("b", (0, 9), 200, "b"), "replaced version 7");
        let why = judged(&writes(), &[changes(), vec![revision(10, Change::Delete)]].concat(), 0).unwrap_err();
        assert!(why.contains("deleted at 10"), "{why}");
    }
}
