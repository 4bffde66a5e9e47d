//! Streams that break a promise of watches.

use model::history::{FrameKind, History, Selector, Start};

use super::example::{example_history, stream, with_frames};
use super::{accept, refuse};

#[test]
fn example_history_is_accepted() {
    accept(&example_history(), "the story");
}

/// (judge, stream, its frames now, words of the message)
type Case = (&'static str, usize, &'static str, &'static [&'static str]);

const HISTORY: &str = "watch.matches-etcd-history";

const BAD: &[Case] = &[
    // Swapped; equal; back to before the initial state.
    ("watch.ordered", 1, "+a@2 *a@4 +b@3 -b@5 +b@6 *a@7", &["stream 1", "ns/b at 3", "came after", "ns/a at 4"]),
    ("watch.ordered", 1, "+a@2 +b@2 *a@4", &["stream 1", "ns/b at 2"]),
    ("watch.ordered", 3, "+a@4 +b@3 *a@3", &["stream 3", "MODIFIED", "at 3", "came after"]),
    ("watch.ordered", 1, "+a@2 +b@3 !@3 *a@4 -b@5 !@5 *a@4", &["stream 1", "ns/a at 4"]),
    // Twice in a row; twice with others in between; an initial object again as a live event.
    ("watch.unique", 1, "+a@2 +b@3 *a@4 *a@4 -b@5", &["stream 1", "ns/a at 4", "frames 3 and 4"]),
    ("watch.unique", 1, "+a@2 +b@3 *a@4 +a@2", &["stream 1", "ns/a at 2", "frames 1 and 4"]),
    ("watch.unique", 3, "+a@4 +b@3 +b@3 -b@5", &["stream 3", "ns/b at 3"]),
    ("watch.unique", 4, "+a@4 +b@3 !!@4 +a@4 -b@5", &["stream 4", "ns/a at 4"]),
    // Missing in the middle, before a bookmark, in a selection, right after the initial state, at the beginning.
    ("watch.reliable", 1, "+a@2 +b@3 -b@5 +b@6", &["stream 1", "skipped 1 of 5", "MODIFIED", "ns/a at 4"]),
    ("watch.reliable", 1, "+a@2 +b@3 *a@4 !@5", &["stream 1", "DELETED", "ns/b at 5", "BOOKMARK at 5"]),
    ("watch.reliable", 1, "!@9", &["stream 1", "skipped 8 of 8", "ns/a at 2"]),
    ("watch.reliable", 5, "+a@2 +a@7 -a@8", &["stream 5", "color=red", "DELETED", "ns/a at 4"]),
    ("watch.reliable", 4, "+a@4 +b@3 !!@4 +b@6 *a@7", &["stream 4", "DELETED", "ns/b at 5"]),
    ("watch.reliable", 3, "+a@4 +b@3 -b@5 *a@7", &["stream 3", "ns/b at 6"]),
    // Between the initial state and an ADDED that might belong to it.
    ("watch.reliable", 3, "+a@7 +b@6 +c@9", &["stream 3", "skipped 1 of 2", "DELETED", "ns/a at 8"]),
    ("watch.reliable", 2, "+b@6 *a@7", &["stream 2", "ns/b at 5"]),
    // An already seen event comes again; the first one is left out; an event that never happened.
    ("watch.resumable", 2, "*a@4 -b@5 +b@6", &["stream 2", "ns/a at 4", "not after it", "DELETED", "ns/b at 5"]),
    ("watch.resumable", 2, "+b@6 *a@7", &["stream 2", "ns/b at 6", "not the first", "ns/b at 5"]),
    ("watch.resumable", 2, "!@4 *a@7", &["stream 2", "ns/a at 7"]),
    ("watch.resumable", 2, "+c@5 +b@6", &["stream 2", "ns/c at 5"]),
    ("watch.resumable", 5, "-a@4 +a@7", &["stream 5", "ns/a at 4", "ADDED", "ns/a at 2"]),
    // Behind an event; behind a bookmark; an event at it or before it; beyond the store; without a version.
    ("watch.bookmark", 1, "+a@2 +b@3 *a@4 -b@5 !@4", &["stream 1", "BOOKMARK at 4", "ns/b at 5"]),
    ("watch.bookmark", 1, "+a@2 !@3 !@2", &["stream 1", "BOOKMARK at 2", "BOOKMARK at 3"]),
    ("watch.bookmark", 1, "+a@2 !@3 +b@3", &["stream 1", "ns/b at 3", "came after BOOKMARK at 3"]),
    ("watch.bookmark", 1, "+a@2 !@4 +b@3", &["stream 1", "ns/b at 3", "came after BOOKMARK at 4"]),
    ("watch.bookmark", 3, "+a@4 +b@3 !@3", &["stream 3", "BOOKMARK at 3", "ns/a at 4"]),
    ("watch.bookmark", 2, "-b@5 !@99", &["stream 2", "BOOKMARK at 99", "ended at revision 11"]),
    ("watch.bookmark", 2, "!@0", &["stream 2", "no resource version"]),
    // The revision of the previous put; of another key; of the last match instead of its end; of a change that was no
    // deletion.
    ("watch.delete-rv", 1, "+a@2 +b@3 *a@4 -b@3 +b@6", &["stream 1", "DELETED", "ns/b at 3", "ADDED there"]),
    ("watch.delete-rv", 1, "+a@2 +b@3 *a@4 -b@4", &["stream 1", "DELETED", "ns/b at 4", "no change of that object"]),
    ("watch.delete-rv", 5, "+a@2 -a@2 +a@7 -a@8", &["stream 5", "DELETED", "ns/a at 2"]),
    ("watch.delete-rv", 5, "+a@2 -a@4 +a@7 -a@7", &["stream 5", "DELETED", "ns/a at 7"]),
    ("watch.delete-rv", 1, "+a@2 +b@3 -a@4", &["stream 1", "DELETED", "ns/a at 4", "MODIFIED there"]),
    // Wrong types; another namespace; an event that never happened; one that is not selected; an unknown type.
    (HISTORY, 1, "+a@2 *b@3 *a@4", &["stream 1", "MODIFIED", "ns/b at 3", "the store's change is ADDED"]),
    (HISTORY, 1, "+a@2 +b@3 +a@4", &["stream 1", "ADDED", "ns/a at 4", "MODIFIED"]),
    (HISTORY, 1, "+a@2 +b@3 *a@4 *b@5", &["stream 1", "MODIFIED", "ns/b at 5", "DELETED"]),
    (HISTORY, 1, "+c@9 +other/a@10 +d@11", &["stream 1", "other/a at 10", "outside"]),
    (HISTORY, 1, "+a@2 +b@3 *b@4", &["stream 1", "ns/b at 4", "no change of that key"]),
    (HISTORY, 1, "+a@2 +b@3 *a@4 +e@5", &["stream 1", "ns/e at 5", "no change of that key"]),
    (HISTORY, 5, "+a@2 +b@3 -a@4", &["stream 5", "ns/b at 3", "the selector does not match"]),
    (HISTORY, 5, "+a@2 *a@4 +a@7", &["stream 5", "MODIFIED", "ns/a at 4", "DELETED"]),
    (HISTORY, 1, "?a@2", &["stream 1", "CHANGED", "does not exist"]),
    // Wrong order, duplicates and gaps are differences, too.
    (HISTORY, 1, "+a@2 *a@4 +b@3 -b@5", &["stream 1", "ns/b at 3", "came after"]),
    (HISTORY, 1, "+a@2 +b@3 +b@3 *a@4", &["stream 1", "ns/b at 3", "twice"]),
    (HISTORY, 1, "+a@2 +b@3 -b@5", &["stream 1", "1 of", "were not delivered", "ns/a at 4"]),
    (HISTORY, 2, "*a@4 -b@5", &["stream 2", "ns/a at 4", "not after 4"]),
    // The initial state: an object is missing, stale, deleted, superfluous, unknown.
    (HISTORY, 4, "+a@4 !!@4 -b@5", &["stream 4", "revision 4", "ns/b is missing", "at 3"]),
    (HISTORY, 4, "+a@2 +b@3 !!@4 -b@5", &["stream 4", "ns/a is there at 2", "had it at 4"]),
    (HISTORY, 4, "+a@4 +b@3 !!@5 +b@6", &["stream 4", "ns/b is there at 3", "did not have it"]),
    (HISTORY, 4, "+a@4 +b@3 +c@4 !!@4 -b@5", &["stream 4", "ns/c is there at 4"]),
    (HISTORY, 3, "+a@4 +b@6 -a@8", &["stream 3", "1 of", "missing: MODIFIED", "ns/a at 7"]),
    (HISTORY, 3, "+b@3 *a@4 -b@5", &["stream 3", "ns/a is missing"]),
    (HISTORY, 3, "+a@2 +b@6", &["stream 3", "not a state", "ns/a is there at 2"]),
    (HISTORY, 4, "+a@2 !!@2 +b@3", &["stream 4", "end at 2", "before the 3 asked for"]),
];

#[test]
fn bad_streams_are_refused_by_their_judge() {
    for (judge, number, text, words) in BAD {
        refuse(&with_frames(*number, text), judge, words, text);
    }
}

/// (stream, its frames now, words of the message)
const DISAGREEING: &[(usize, &str, &[&str])] = &[
    (2, "-b@5 *a@7 -a@8 +c@9", &["at 6", "stream 2", "stream 1", "MODIFIED /registry/configmaps/ns/a at 7"]),
    (2, "-b@5 +b@6 *a@7 +c@9", &["at 8", "stream 2", "stream 1"]),
    (2, "-b@5 +b@6 +a@7 -a@8", &["at 7", "ADDED", "MODIFIED"]),
    (2, "-b@5 *a@7 +b@6 -a@8 +c@9", &["stream 2", "stream 1"]),
    (2, "-b@5 +b@6 +b@6 *a@7", &["at 6", "stream 2"]),
    (2, "!@9", &["at 5", "nothing up to 9", "DELETED"]),
    (4, "+a@4 +b@3 !!@4 +b@6 *a@7", &["at 5", "stream 4"]),
    (3, "+a@4 +b@3 -b@5 *a@7", &["at 6", "stream 3"]),
];

#[test]
fn disagreeing_streams_are_found_without_the_store() {
    for (number, text, words) in DISAGREEING {
        refuse(&with_frames(*number, text), "watch.concurrent-agree", words, text);
    }
}

#[test]
fn error_common_to_all_streams_is_not_a_disagreement() {
    let mut history = with_frames(1, "+a@2 +b@3 -b@5 +b@6");
    history.streams.truncate(1);
    stream(&mut history, Start::After(2), None, "+b@3 -b@5 +b@6");
    assert!(super::violations(&history, "watch.concurrent-agree").is_empty());
    refuse(&history, "watch.reliable", &["stream 2", "ns/a at 4"], "both lack a@4");
}

#[test]
fn wrong_uid_is_refused() {
    for (number, place) in [(1, 2), (1, 3), (3, 0), (4, 1), (5, 1)] {
        let mut history = example_history();
        history.streams[number - 1].frames[place].uid = "another".into();
        let stream = format!("stream {number}");
        refuse(&history, HISTORY, &[&stream, "uid another", "stored object's uid is"], "uid");
    }
    let mut history = example_history();
    history.streams[1].frames[2].uid = "another".into();
    refuse(&history, "watch.concurrent-agree", &["at 7", "uid another"], "uid");
}

#[test]
fn bookmark_from_before_its_revision_was_requested_is_refused() {
    let mut history = with_frames(1, "+a@2 +b@3 *a@4 -b@5 +b@6 *a@7 -a@8 +c@9 !@9");
    let bookmark = history.streams[0].frames.last_mut().unwrap();
    // c, created at 9, was asked for at 90.
    bookmark.at = 89;
    refuse(&history, "watch.bookmark", &["stream 1", "BOOKMARK at 9", "89 µs", "90 µs"], "too early");
    let mut history = example_history();
    history.streams[0].frames.last_mut().unwrap().at = 90;
    accept(&history, "just in time");
}

#[test]
fn initial_events_without_a_version_are_as_new_as_every_answer() {
    let mut history = example_history();
    let fresh = &mut history.streams[3];
    fresh.start = Start::InitialEvents(0);
    fresh.query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".into();
    fresh.opened = 46;
    accept(&history, "revision 4 was answered at 45");
    history.streams[3].opened = 56;
    // Revision 5, a delete answered with a Status, was answered at 55.
    let words = ["stream 4", "end at 4", "5 was answered before"];
    refuse(&history, HISTORY, &words, "stale initial events");
}

#[test]
fn streams_selected_by_name_are_judged() {
    let by_name = |text: &str| -> History {
        let mut history = example_history();
        let selector = Selector { labels: String::new(), fields: "metadata.name=b".into() };
        stream(&mut history, Start::After(2), Some(selector), text);
        history
    };
    accept(&by_name("+b@3 -b@5 +b@6"), "only b");
    refuse(&by_name("+b@3 +b@6"), "watch.reliable", &["stream 6", "ns/b at 5"], "gap");
    refuse(&by_name("+b@3 *a@4"), HISTORY, &["stream 6", "ns/a at 4"], "not selected");
}

#[test]
fn frames_after_an_error_are_refused() {
    accept(&with_frames(1, "+a@2 +b@3 E"), "an error at the end");
    let history = with_frames(1, "+a@2 +b@3 E +a@2 -a@2");
    refuse(&history, HISTORY, &["stream 1", "ns/a at 2", "after an ERROR"], "after the error");
    let history = with_frames(1, "+a@2 +b@3 -b@5 E");
    refuse(&history, "watch.reliable", &["stream 1", "ns/a at 4"], "before the error");
    assert!(matches!(history.streams[0].frames[3].kind, FrameKind::Error { .. }));
}
