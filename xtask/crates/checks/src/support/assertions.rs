//! Evidence for the concurrency-control checks: the raw changes of a key and the events of a watch, both complete up to
//! a given revision. This file states no requirement.

use std::fmt::Display;
use std::time::Duration;

use model::history::{Change, Revision};

use suite::object::POD_TEMPLATES;
use suite::prelude::*;
use suite::watch::Watch;

/// An event as the checks compare it: type, object name, resource version.
pub(crate) type Seen = (String, String, u64);

/// The raw changes of the key of `name`, complete up to the write of the resource that returned `until`.
pub(crate) async fn changes(ctx: &Ctx, resource: &Resource, name: &str, until: &Object) -> Verdict<Vec<Revision>> {
    let last_key = ctx.store.key(resource, until.name()).await?;
    let last_rev = until.rv().cast_signed();
    let what = format!("revision {last_rev} of {last_key} in the raw history");
    suite::wait::until(&what, ctx.wait_limit(), Duration::from_millis(10), || async {
        let seen = ctx.store.recorder(resource).changes_of(&last_key);
        let arrived = seen.iter().any(|change| change.rev >= last_rev);
        Ok(if arrived { Ok(()) } else { Err(words(&seen)) })
    })
    .await?;
    let key = ctx.store.key(resource, name).await?;
    let found = ctx.store.recorder(resource).changes_of(&key);
    ctx.count("revisions", found.len() as u64);
    Ok(found)
}

/// All events of the watch up to the write that returned `until`. The watch must deliver that write, too.
pub(crate) async fn events(ctx: &Ctx, watch: &mut Watch, until: &Object) -> Verdict<Vec<Seen>> {
    let events = watch.read_to(until.rv(), ctx.event_limit()).await?;
    ctx.count("events", events.len() as u64);
    Ok(events.iter().map(|e| seen(e.word(), e.object.name(), e.frame.rv)).collect())
}

pub(crate) fn seen(word: &str, name: &str, rv: u64) -> Seen {
    (word.to_owned(), name.to_owned(), rv)
}

/// `put@5, delete@6`.
pub(crate) fn words(changes: &[Revision]) -> String {
    let words = changes.iter().map(|change| match change.kind {
        Change::Put => format!("put@{}", change.rev),
        Change::Delete => format!("delete@{}", change.rev),
    });
    words.collect::<Vec<String>>().join(", ")
}

/// The key must have `puts` puts, then one delete and nothing else; the error shows the changes in the store.
pub(crate) fn put_then_deleted(changes: &[Revision], puts: usize) -> Verdict {
    let kinds: Vec<Change> = changes.iter().map(|change| change.kind).collect();
    let mut expected = vec![Change::Put; puts];
    expected.push(Change::Delete);
    expect!(kinds == expected, "expected {puts} puts and then one delete, the store has: {}", words(changes));
    Ok(())
}

/// The key must have puts at these revisions and nothing else; the error shows the changes in the store.
pub(crate) fn only_put_at(changes: &[Revision], revisions: &[u64]) -> Verdict {
    let expected: Vec<(Change, i64)> = revisions.iter().map(|rev| (Change::Put, rev.cast_signed())).collect();
    let found: Vec<(Change, i64)> = changes.iter().map(|change| (change.kind, change.rev)).collect();
    let right = found == expected;
    expect!(right, "expected puts at {revisions:?} and nothing else, the store has: {}", words(changes));
    Ok(())
}

/// Fails the check if there is a fault, with more lines of evidence.
pub(crate) fn no_fault(fault: Option<String>, what: impl Display, evidence: impl FnOnce() -> Vec<String>) -> Verdict {
    let Some(fault) = fault else { return Ok(()) };
    Err(CheckError::Failed { message: format!("{what}: {fault}"), evidence: evidence() })
}

/// Fails the check if there are faults, with all of them as evidence: `2 of 9 keys are not known, first /a`.
pub(crate) fn none_of(faults: Vec<String>, of: usize, what: &str) -> Verdict {
    let Some(first) = faults.first() else { return Ok(()) };
    let message = format!("{} of {of} {what} {first}", faults.len());
    Err(CheckError::Failed { message, evidence: faults })
}

/// A PodTemplate with one container `c`: it has a generation, and its DELETE returns the object.
pub(crate) fn pod_template(name: &str) -> Object {
    let containers = serde_json::json!([{"name": "c", "image": "example.org/c:1"}]);
    Object::new(&POD_TEMPLATES, name).with("template.spec.containers", containers)
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// A change of one key; the value is `bytes`.
    pub(crate) fn change(kind: Change, rev: i64, bytes: &[u8]) -> Revision {
        let version = i64::from(kind == Change::Put);
        let key = suite::record::key("/registry/x/n/a");
        Revision { at: 0, rev, key, kind, version, create_rev: 1, lease: 0, prev_rev: 0, value: bytes.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::change;
    use super::*;

    #[test]
    fn removal_is_the_puts_and_one_delete() {
        let (put, delete) = (|rev| change(Change::Put, rev, b"v"), |rev| change(Change::Delete, rev, b""));
        put_then_deleted(&[put(1), put(2), delete(3)], 2).unwrap();
        for bad in [
            vec![],
            vec![put(1), put(2)],
            vec![put(1), delete(3)],
            vec![put(1), put(2), delete(3), delete(4)],
            vec![put(1), put(2), put(3), delete(4)],
            vec![put(1), delete(2), put(3)],
        ] {
            assert!(put_then_deleted(&bad, 2).is_err(), "{}", words(&bad));
        }
        assert_eq!(words(&[put(1), delete(3)]), "put@1, delete@3");
    }

    #[test]
    fn every_fault_is_evidence() {
        assert!(none_of(Vec::new(), 9, "").is_ok());
        let faults = vec!["/a".to_owned(), "/b".to_owned()];
        let Err(CheckError::Failed { message, evidence }) = none_of(faults.clone(), 9, "keys are not known, first")
        else {
            panic!("two faults are a failure")
        };
        assert_eq!((message.as_str(), evidence), ("2 of 9 keys are not known, first /a", faults));
    }

    #[test]
    fn puts_are_compared_with_their_revisions() {
        let put = |rev| change(Change::Put, rev, b"v");
        only_put_at(&[put(1), put(4)], &[1, 4]).unwrap();
        for bad in [vec![put(1)], vec![put(1), put(3)], vec![put(1), put(4), put(5)], vec![]] {
            assert!(only_put_at(&bad, &[1, 4]).is_err(), "{}", words(&bad));
        }
        assert!(only_put_at(&[put(1), change(Change::Delete, 4, b"")], &[1, 4]).is_err());
    }
}
