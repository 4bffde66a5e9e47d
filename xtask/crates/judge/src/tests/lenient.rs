//! What looks odd and is right: false alarms cost more trust than anything else.

use std::sync::Arc;

use model::history::{Answer, Change, End, History, Selector, Start, Verb};

use super::story::{PREFIX, frames, key, object, story, stream};
use super::{Prepared, accept, judge, refuse};

/// (stream, its frames now)
const GOOD: &[(usize, &str)] = &[
    // Cut anywhere, also before anything came.
    (1, ""),
    (1, "+a@2"),
    (1, "+a@2 +b@3 *a@4 !@4 !@4 -b@5"),
    (2, "!@4"),
    // The tail lies beyond the recording.
    (1, "+a@2 +b@3 *a@4 -b@5 +b@6 *a@7 -a@8 +c@9 +d@11 +e@12 *e@13"),
    // Initial states of different moments; with the creates that follow at once; cut within.
    (3, "+a@2 +b@3 *a@4"),
    (3, "+a@2"),
    (3, "+b@3"),
    (3, "+a@4"),
    (3, "+b@3 +a@2 *a@4 -b@5 +b@6 *a@7 -a@8"),
    (3, "+b@6 +c@9 +d@11"),
    (3, "!@1 +a@2"),
    (3, "+a@4 !@5 +b@6"),
    // Initial events that were overtaken by changes before their end.
    (4, "+a@2 +b@3 *a@4 -b@5 !!@5 +b@6"),
    (4, "+a@4 +b@3"),
    (4, "+a@4 !!@5"),
];

#[test]
fn good_streams_are_accepted() {
    for (number, text) in GOOD {
        let mut history = story();
        history.streams[number - 1].frames = frames(text);
        accept(&history, text);
    }
}

#[test]
fn a_refused_stream_shows_nothing() {
    let mut history = story();
    history.streams[0].end = End::Refused { status: 410, reason: "Expired".into() };
    history.streams[0].frames.clear();
    accept(&history, "refused");
}

#[test]
fn a_stream_whose_selector_cannot_be_evaluated_is_counted() {
    for (labels, fields) in [("size>3", ""), ("", "spec.nodeName=n"), ("", "status.phase=Running")] {
        let mut history = story();
        let selector = Selector { labels: labels.into(), fields: fields.into() };
        stream(&mut history, Start::After(1), Some(selector), "*a@4 +c@9");
        accept(&history, "left out");
        let judgement = judge(&Prepared::new(&history), "watch.matches-etcd-history").unwrap();
        assert_eq!(judgement.exercised["streams left out"], 1);
        // Order and doubles need no selector.
        history.streams[5].frames = frames("+c@9 *a@4");
        refuse(&history, "watch.ordered", &["stream 6"], "left out but out of order");
    }
}

#[test]
fn values_that_hide_their_labels_leave_their_selections_out() {
    let mut history = story();
    for revision in &mut history.revisions {
        if revision.kind == Change::Put {
            revision.value = Arc::from(b"k8s:enc:aescbc:v1:key:0123456789abcdef".as_slice());
        }
    }
    accept(&history, "encrypted");
    let judgement = judge(&Prepared::new(&history), "watch.reliable").unwrap();
    assert_eq!((judgement.exercised["streams"], judgement.exercised["streams left out"]), (4, 1));
    // uids cannot be compared then, all else can.
    history.streams[0].frames[2].uid = "another".into();
    assert!(super::violations(&history, "watch.matches-etcd-history").is_empty());
    history.streams[0].frames.remove(2);
    refuse(&history, "watch.reliable", &["stream 1", "ns/a at 4"], "encrypted, with a gap");
}

/// a and b end with their lease, at one revision.
fn lease_ends() -> History {
    let mut history = story();
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
        let mut history = lease_ends();
        stream(&mut history, Start::After(1), None, "+a@2 +b@3 *a@4 -a@5 -b@5 !@5");
        stream(&mut history, Start::After(1), None, text);
        accept(&history, text);
    }
    for (text, judge) in [
        ("+a@2 +b@3 *a@4 -b@5 !@5", "watch.reliable"),
        ("+a@2 +b@3 *a@4 -b@5 !@5", "watch.concurrent-agree"),
        ("+a@2 +b@3 *a@4 -b@5 -b@5", "watch.ordered"),
        ("+a@2 +b@3 *a@4 -b@5 -b@5", "watch.unique"),
        ("+a@2 +b@3 *a@4 -b@5 -a@5 -b@5", "watch.unique"),
    ] {
        let mut history = lease_ends();
        stream(&mut history, Start::After(1), None, "+a@2 +b@3 *a@4 -a@5 -b@5 !@5");
        stream(&mut history, Start::After(1), None, text);
        refuse(&history, judge, &["stream 2"], text);
    }
}

#[test]
fn writes_that_change_nothing_prove_nothing() {
    let mut history = story();
    // A PUT of what is there answers the old version; sent after revision 9, it does not make 7 younger than that.
    let mut noop = history.operations[5].clone();
    (noop.called, noop.returned, noop.based_on, noop.answer) = (96, 98, Some(7), object(7));
    // The story has removed the object by then; nobody shall say when.
    history.operations.retain(|operation| operation.verb != Verb::Delete || operation.key != noop.key);
    history.operations.push(noop.clone());
    accept(&history, "a no-op");
    // A rehearsed create answers nothing that was stored.
    (noop.query, noop.answer) = ("dryRun=All".into(), Answer::Object { status: 201, rv: 40 });
    history.operations.push(noop);
    accept(&history, "a dry run");
}

#[test]
fn a_chain_that_begins_elsewhere_is_the_clients_choice() {
    let mut history = story();
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
fn the_whole_collection_is_a_prefix_too() {
    let mut history = story();
    stream(&mut history, Start::After(7), None, "-a@8 +c@9 +other/a@10 +d@11");
    history.streams[5].prefix = "/registry/configmaps/".into();
    accept(&history, "all namespaces");
    history.streams[5].frames = frames("-a@8 +c@9 +d@11");
    refuse(&history, "watch.reliable", &["stream 6", "other/a at 10"], "all namespaces with a gap");
    assert!(history.streams[0].prefix.starts_with(PREFIX));
}
