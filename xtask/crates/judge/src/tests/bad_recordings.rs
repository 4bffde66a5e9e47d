//! Recordings that are not sound in themselves, and answers to writes that contradict the store.

use model::Outcome;
use model::history::{Answer, Change, History, Snapshot, Verb};

use super::example::{example_history, key, object};
use super::{accept, judge_all, refuse, violations};

/// (what, change, words of the message)
type Case = (&'static str, fn(&mut History), &'static [&'static str]);

const UNSOUND: &[Case] = &[
    ("a create is missing", |h| drop(h.revisions.remove(0)), &["revisions 0 and 3"]),
    ("an update is missing", |h| drop(h.revisions.remove(2)), &["7", "ns/a", "previous value", "4"]),
    ("a delete is missing", |h| drop(h.revisions.remove(3)), &["6", "ns/b", "previous value"]),
    (
        "a create and its delete are missing",
        |h| drop(h.revisions.drain(3..5)),
        &["no change between revisions 4 and 7"],
    ),
    ("the last one is missing", |h| drop(h.revisions.pop()), &["no change between revision 10 and the end, 11"]),
    ("two swapped", |h| h.revisions.swap(2, 3), &["delivered revision 4", "after 5"]),
    ("one twice", |h| h.revisions.insert(3, h.revisions[2].clone()), &["revision 4", "ns/a", "twice"]),
    ("a wrong version", |h| h.revisions[2].version = 3, &["revision 4", "version is 3, not 2"]),
    ("a new key with an old version", |h| h.revisions[4].version = 2, &["revision 6", "version is 2, not 1"]),
    ("a wrong creation", |h| h.revisions[2].create_rev = 3, &["revision 4", "created at 2, not 3"]),
    ("a new key with an old creation", |h| h.revisions[4].create_rev = 3, &["revision 6", "created at 3"]),
    ("a wrong previous value", |h| h.revisions[2].prev_rev = 3, &["revision 4", "of revision 3, not 2"]),
    (
        "no previous value, and nothing else identifies it",
        |h| {
            h.meta.versioned = Some(false);
            h.revisions[2].prev_rev = 0;
        },
        &["revision 4", "of revision 0, not 2"],
    ),
    ("a previous value that never existed", |h| h.revisions[0].prev_rev = 1, &["revision 2", "of revision 1, not 0"]),
    (
        "a delete of nothing",
        |h| {
            h.revisions[7].kind = Change::Delete;
            h.revisions[7].version = 0;
        },
        &["does not exist"],
    ),
    ("the end lacks a key", |h| drop(h.meta.last.remove(0)), &["does not hold", "ns/b", "revision 6"]),
    ("the end has another version", |h| h.meta.last[0].version = 2, &["end state of", "ns/b"]),
    ("the end has another revision", |h| h.meta.last[0].mod_rev = 9, &["end state of", "ns/b"]),
    (
        "the end has a key too many",
        |h| h.meta.last.push(Snapshot { key: key("e"), create_rev: 9, mod_rev: 9, version: 1 }),
        &["holds", "ns/e", "did not deliver"],
    ),
    (
        "the largest version, after which none can come",
        |h| {
            h.revisions[0].version = i64::MAX;
            h.revisions[2].version = i64::MIN;
        },
        &["revision 4", "version is -9223372036854775808, not 9223372036854775808"],
    ),
    (
        "a gap that is longer than an i64",
        |h| {
            h.meta.first_rev = i64::MIN;
            h.meta.last_rev = i64::MAX;
            h.revisions.iter_mut().for_each(|revision| revision.rev = i64::MAX);
        },
        &["no change between revisions -9223372036854775808 and 9223372036854775807"],
    ),
    ("no end", |h| h.meta.last_rev = 0, &["not completed"]),
];

#[test]
fn unsound_recordings_are_refused_and_not_judged_further() {
    for (what, change, words) in UNSOUND {
        let mut history = example_history();
        change(&mut history);
        refuse(&history, "suite.truth", words, what);
        for (id, judgement) in judge_all(&history).into_iter().filter(|(id, _)| *id != "suite.truth") {
            assert!(judgement.violations.is_empty(), "{what}: {id} judges");
            let Outcome::Errored { .. } = judgement.outcome() else { panic!("{what}: {id} passes") };
            assert!(judgement.not_exercised.unwrap().contains("not sound"), "{what}: {id}");
        }
    }
}

/// etcd sends a new watch the events that it missed without their previous values, if it does so before it has noted
/// that the watch wants them.
#[test]
fn missing_previous_value_is_refused_and_the_other_judges_still_decide() {
    let mut history = example_history();
    history.revisions[2].prev_rev = 0;
    refuse(&history, "suite.truth", &["revision 4", "its previous value is missing"], "no previous value");
    for (id, judgement) in judge_all(&history).into_iter().filter(|(id, _)| *id != "suite.truth") {
        assert!(judgement.violations.is_empty(), "{id}: {:?}", judgement.violations);
        assert!(!judgement.not_exercised.unwrap_or_default().contains("not sound"), "{id}");
    }
    history.revisions.pop();
    let unsound = violations(&history, "suite.truth");
    assert!(!unsound.is_empty());
    assert!(unsound.iter().all(|violation| !violation.message.contains("is missing")), "{unsound:?}");
}

#[test]
fn previous_value_removed_by_a_compaction_is_not_missing() {
    let mut history = example_history();
    history.revisions[2].prev_rev = 0;
    history.meta.compactions.push((50, 2));
    accept(&history, "revision 2 was compacted before revision 4 was sent");
    history.meta.compactions[0].1 = 1;
    refuse(&history, "suite.truth", &["revision 4"], "revision 2 was not compacted");
}

#[test]
fn store_without_versions_may_leave_gaps() {
    let mut history = example_history();
    history.revisions.iter_mut().for_each(|revision| revision.version = 0);
    history.meta.last.iter_mut().for_each(|snapshot| snapshot.version = 0);
    // No recorded request changed `other/a`, and the store does not report revision 10.
    history.revisions.remove(8);
    history.meta.last.retain(|snapshot| snapshot.key != key("other/a"));
    history.operations.retain(|operation| operation.key != Some(key("other/a")));
    accept(&history, "kine");
    history.revisions.remove(2);
    refuse(&history, "suite.truth", &["revision 7", "ns/a"], "a gap that the next change reveals");
}

#[test]
fn recording_may_begin_late() {
    let mut history = example_history();
    history.meta.first_rev = 4;
    history.revisions.drain(..3);
    let snapshot = |name, create_rev, mod_rev, version| Snapshot { key: key(name), create_rev, mod_rev, version };
    history.meta.initial = vec![snapshot("a", 2, 4, 2), snapshot("b", 3, 3, 1)];
    accept(&history, "from revision 4 on");
    history.streams[0].frames.remove(4);
    history.streams[0].frames.remove(3);
    refuse(&history, "watch.reliable", &["stream 1", "ns/b at 5"], "a gap after the begin");
    history.meta.initial[0].version = 1;
    refuse(&history, "suite.truth", &["revision 7", "version is 3, not 2"], "another state at the begin");
}

/// (what, change, words of the message)
const WRONG_ANSWERS: &[Case] = &[
    ("of another key", |h| h.operations[2].answer = object(3), &["Update", "ns/a", "answered resource version 3"]),
    (
        "of a tombstone of another key",
        |h| h.operations[1].answer = object(8),
        &["Create", "ns/b", "answered resource version 8"],
    ),
    ("created before an answered write", |h| h.operations[7].called = 101, &["Create", "ns/c", "answered 9", "10"]),
    (
        "a change that echoes the version it was based on",
        |h| (h.operations[2].changes, h.operations[2].answer) = (true, object(2)),
        &["Update", "ns/a", "answered 2", "although it changes"],
    ),
    ("a patch that was not done", |h| lost_patch(h, object(2)), &["Patch", "ns/a", "both answered 2"]),
    (
        "a patch that another client made before",
        |h| (lost_patch(h, object(4)), h.operations[2].called = 52).0,
        &["Patch", "ns/a", "answered 4", "answered before"],
    ),
    ("created twice", |h| h.operations.push(h.operations[1].clone()), &["Create", "ns/b", "both answered 3"]),
];

fn lost_patch(history: &mut History, answer: Answer) {
    let operation = &mut history.operations[2];
    (operation.verb, operation.based_on, operation.changes, operation.answer) = (Verb::Patch, None, true, answer);
}

#[test]
fn answers_that_contradict_the_store_are_refused() {
    for (what, change, words) in WRONG_ANSWERS {
        let mut history = example_history();
        change(&mut history);
        refuse(&history, "suite.writes", words, what);
    }
}
