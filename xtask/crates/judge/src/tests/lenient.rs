//! Unusual but correct histories are accepted: false alarms cost more trust than anything else.

use std::sync::Arc;

use model::history::{Answer, Change, End, History, Selector, Start, Verb};

use super::example::{PREFIX, example_history, frames, key, object, stream, with_frames};
use super::{Prepared, accept, judge, refuse};

/// (stream, its frames now)
const GOOD: &[(usize, &str)] = &[
    // Ends anywhere, even before the first frame.
    (1, ""),
    (1, "+a@2"),
    (1, "+a@2 +b@3 *a@4 !@4 !@4 -b@5"),
    (2, "!@4"),
    // The tail is after the end of the recording.
    (1, "+a@2 +b@3 *a@4 -b@5 +b@6 *a@7 -a@8 +c@9 +d@11 +e@12 *e@13"),
    // Initial states of different moments; followed directly by creates; cut within.
    (3, "+a@2 +b@3 *a@4"),
    (3, "+a@2"),
    (3, "+b@3"),
    (3, "+a@4"),
    (3, "+b@3 +a@2 *a@4 -b@5 +b@6 *a@7 -a@8"),
    (3, "+b@6 +c@9 +d@11"),
    (3, "!@1 +a@2"),
    (3, "+a@4 !@5 +b@6"),
    // Initial events that changes overtook before their end.
    (4, "+a@2 +b@3 *a@4 -b@5 !!@5 +b@6"),
    (4, "+a@4 +b@3"),
    (4, "+a@4 !!@5"),
];

#[test]
fn good_streams_are_accepted() {
    for (number, text) in GOOD {
        accept(&with_frames(*number, text), text);
    }
}

#[test]
fn refused_stream_is_not_judged() {
    let mut history = example_history();
    history.streams[0].end = End::Refused { status: 410, reason: "Expired".into() };
    history.streams[0].frames.clear();
    accept(&history, "refused");
}

#[test]
fn stream_whose_selector_cannot_be_evaluated_is_counted() {
    for (labels, fields) in [("size>3", ""), ("", "spec.nodeName=n"), ("", "status.phase=Running")] {
        let mut history = example_history();
        let selector = Selector { labels: labels.into(), fields: fields.into() };
        stream(&mut history, Start::After(1), Some(selector), "*a@4 +c@9");
        accept(&history, "left out");
        let judgement = judge(&Prepared::new(&history), "watch.matches-etcd-history").unwrap();
        assert_eq!(judgement.exercised["streams left out"], 1);
        // Order and duplicates are judged without the selector.
        history.streams[5].frames = frames("+c@9 *a@4");
        refuse(&history, "watch.ordered", &["stream 6"], "left out but out of order");
    }
}

#[test]
fn unreadable_labels_skip_streams_with_selectors() {
    let mut history = example_history();
    for revision in &mut history.revisions {
        if revision.kind == Change::Put {
            revision.value = Arc::from(b"k8s:enc:aescbc:v1:key:0123456789abcdef".as_slice());
        }
    }
    accept(&history, "encrypted");
    let judgement = judge(&Prepared::new(&history), "watch.reliable").unwrap();
    assert_eq!((judgement.exercised["streams"], judgement.exercised["streams left out"]), (4, 1));
    // Then uids cannot be compared, but everything else can.
    history.streams[0].frames[2].uid = "another".into();
    assert!(super::violations(&history, "watch.matches-etcd-history").is_empty());
    history.streams[0].frames.remove(2);
    refuse(&history, "watch.reliable", &["stream 1", "ns/a at 4"], "encrypted, with a gap");
}

/// a and b end with their lease, at one revision; a good stream, and this one.
fn lease_ends(text: &str) -> History {
    let mut history = example_history();
    history.revisions.truncate(3);
    for name in ["a", "b"] {
        history.revisions.push(model::history::Revision {
            rev: 5,
            key: key(name),
            prev_rev: if name == "a" { 4 } else { 3 },
            kind: Change::Delete,
            version: 0,
            create_rev: 0,
            value: Arc::default(),
            ..history.revisions[0].clone()
        });
    }
    history.operations.truncate(3);
    history.streams.clear();
    history.meta.last_rev = 5;
    history.meta.last.clear();
    stream(&mut history, Start::After(1), None, "+a@2 +b@3 *a@4 -a@5 -b@5 !@5");
    stream(&mut history, Start::After(1), None, text);
    history
}

#[test]
fn one_revision_may_change_several_keys() {
    for text in [
        "+a@2 +b@3 *a@4 -a@5 -b@5",
        "+a@2 +b@3 *a@4 -b@5 -a@5",
        // Cut between the two.
        "+a@2 +b@3 *a@4 -b@5",
        "+a@2 +b@3 *a@4 -a@5",
    ] {
        accept(&lease_ends(text), text);
    }
    for (text, judge) in [
        ("+a@2 +b@3 *a@4 -b@5 !@5", "watch.reliable"),
        ("+a@2 +b@3 *a@4 -b@5 !@5", "watch.concurrent-agree"),
        ("+a@2 +b@3 *a@4 -b@5 -b@5", "watch.ordered"),
        ("+a@2 +b@3 *a@4 -b@5 -b@5", "watch.unique"),
        ("+a@2 +b@3 *a@4 -b@5 -a@5 -b@5", "watch.unique"),
    ] {
        refuse(&lease_ends(text), judge, &["stream 2"], text);
    }
}

#[test]
fn noop_writes_prove_nothing() {
    let mut history = example_history();
    // A PUT without a change answers the old version; sent after revision 9, it does not make 7 newer than that.
    let mut noop = history.operations[5].clone();
    (noop.called, noop.returned, noop.based_on, noop.answer) = (96, 98, Some(7), object(7));
    // By then the history has removed the object; without the delete operation, the time of the removal is unknown.
    history.operations.retain(|operation| operation.verb != Verb::Delete || operation.key != noop.key);
    history.operations.push(noop.clone());
    accept(&history, "a no-op");
    // A dry-run create answers a version that was never stored.
    (noop.query, noop.answer) = ("dryRun=All".into(), Answer::Object { status: 201, rv: 40 });
    history.operations.push(noop);
    accept(&history, "a dry run");
}

#[test]
fn chain_may_begin_at_another_version() {
    let mut history = example_history();
    history.streams[1].resumes = Some(1);
    accept(&history, "stream 1 ended at 11, stream 2 begins after 4");
    let chains = |history: &History| {
        let judgement = judge(&Prepared::new(history), "watch.resumable").unwrap();
        judgement.exercised["chains joined where the stream before ended"]
    };
    assert_eq!(chains(&history), 0);
    history.streams[0].frames = frames("+a@2 +b@3 *a@4");
    assert_eq!(chains(&history), 1);
}

#[test]
fn prefix_of_all_namespaces_is_judged() {
    let mut history = example_history();
    stream(&mut history, Start::After(7), None, "-a@8 +c@9 +other/a@10 +d@11");
    history.streams[5].prefix = "/registry/configmaps/".into();
    accept(&history, "all namespaces");
    history.streams[5].frames = frames("-a@8 +c@9 +d@11");
    refuse(&history, "watch.reliable", &["stream 6", "other/a at 10"], "all namespaces with a gap");
    assert!(history.streams[0].prefix.starts_with(PREFIX));
}
