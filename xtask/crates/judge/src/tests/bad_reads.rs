//! Reads of a state that never existed, does not exist yet, or no longer exists.

use model::history::{Answer, Micros, Verb};

use super::example::{example_history, list, not_found, object, read};
use super::{accept, refuse, violations};

/// (judge, query, sent at, list rv, items, words of the message)
type Case = (&'static str, &'static str, Micros, u64, &'static str, &'static [&'static str]);

const EXACT: &str = "resourceVersion=6&resourceVersionMatch=Exact";
const EXACT_PAGE: &str = "resourceVersion=6&resourceVersionMatch=Exact&limit=1";
const NOT_OLDER: &str = "resourceVersion=5&resourceVersionMatch=NotOlderThan";
const UNSET: &str = "rv.list-is-store-revision";

const BAD: &[Case] = &[
    // An item is missing, superfluous, stale, too new, duplicated.
    (UNSET, "", 66, 6, "a@4", &["ns/b is missing", "at 6"]),
    (UNSET, "", 66, 6, "a@4 b@6 c@9", &["ns/c is there at 9", "did not have it"]),
    (UNSET, "", 66, 6, "a@2 b@6", &["ns/a is there at 2", "had it at 4"]),
    (UNSET, "", 66, 6, "a@7 b@6", &["ns/a is there at 7", "had it at 4"]),
    (UNSET, "", 66, 6, "a@4 a@4", &["ns/a is there twice"]),
    (UNSET, "", 66, 6, "a@4 b@6 b@6", &["ns/b is there twice"]),
    (UNSET, "", 66, 6, "", &["ns/a is missing"]),
    // A revision lower than that of its items; older than an answered write or delete; from the future.
    (UNSET, "", 66, 5, "a@4 b@6", &["resource version 5", "is older than 6"]),
    (UNSET, "", 76, 6, "a@4 b@6", &["resource version 6", "is older than 7"]),
    (UNSET, "", 86, 7, "a@7 b@6", &["resource version 7", "is older than 8"]),
    (UNSET, "", 66, 9, "b@6 c@9", &["resource version 9", "did not exist yet", "90 µs"]),
    (UNSET, "", 66, 0, "a@4 b@6", &["no resource version"]),
    // A first page contains the first keys of the state.
    (UNSET, "limit=1", 66, 6, "b@6 …", &["ns/b is there at 6"]),
    (UNSET, "limit=1", 66, 6, "a@4", &["ns/b is missing"]),
    ("list.match-exact", EXACT, 96, 7, "a@7 b@6", &["resource version 7", "is not the 6 asked for"]),
    ("list.match-exact", EXACT, 96, 5, "a@4", &["resource version 5", "is not the 6 asked for"]),
    ("list.match-exact", EXACT, 96, 6, "a@7 b@6", &["ns/a is there at 7"]),
    ("list.match-exact", EXACT, 96, 6, "b@6", &["ns/a is missing"]),
    ("list.match-exact", EXACT_PAGE, 96, 6, "b@6 …", &["ns/b is there at 6"]),
    ("list.match-not-older", NOT_OLDER, 66, 4, "a@4 b@3", &["resource version 4", "is older than the 5 asked for"]),
    ("list.match-not-older", NOT_OLDER, 66, 5, "a@4 b@3", &["ns/b is there at 3", "did not have it"]),
    ("list.match-not-older", NOT_OLDER, 76, 7, "a@4 b@6", &["ns/a is there at 4", "had it at 7"]),
    ("list.match-not-older", "resourceVersion=5", 66, 4, "a@4 b@3", &["is older than the 5 asked for"]),
    ("list.rv-zero", "resourceVersion=0", 76, 3, "a@2", &["ns/b is missing"]),
    ("list.rv-zero", "resourceVersion=0", 76, 4, "a@2 b@3", &["ns/a is there at 2"]),
    ("list.rv-zero", "resourceVersion=0", 76, 9, "b@6 c@9", &["resource version 9", "did not exist yet"]),
];

#[test]
fn bad_lists_are_refused_by_their_judge() {
    for (judge, query, called, rv, items, words) in BAD {
        let mut history = example_history();
        read(&mut history, Verb::List, None, query, *called, list(*rv, items));
        let mut words = words.to_vec();
        words.extend(["List /registry/configmaps/ns/", "by reader"]);
        refuse(&history, judge, &words, &format!("{query} {rv}: {items}"));
    }
}

#[test]
fn good_lists_are_accepted() {
    for (query, called, rv, items) in [
        ("", 66, 6, "a@4 b@6"),
        // Revision 7 is asked for at 70: a list sent before that time may or may not show it.
        ("", 66, 6, "b@6 a@4"),
        ("", 72, 7, "a@7 b@6"),
        ("", 72, 6, "a@4 b@6"),
        ("", 106, 10, "b@6 c@9"),
        ("limit=1", 66, 6, "a@4 …"),
        ("limit=5", 66, 6, "a@4 b@6"),
        (EXACT, 66, 6, "a@4 b@6"),
        (EXACT_PAGE, 96, 6, "a@4 …"),
        (NOT_OLDER, 66, 5, "a@4"),
        (NOT_OLDER, 76, 6, "a@4 b@6"),
        ("resourceVersion=0", 96, 2, "a@2"),
        ("resourceVersion=0", 96, 1, ""),
        // With a selector, or the continuation of a page: other checks cover them.
        ("labelSelector=color%3Dred", 66, 6, ""),
        ("continue=abc&limit=1", 66, 6, "b@6"),
    ] {
        let mut history = example_history();
        read(&mut history, Verb::List, None, query, called, list(rv, items));
        accept(&history, &format!("{query} {rv}: {items}"));
    }
}

/// (judge, name, query, sent at, answer, words of the message)
type GetCase = (&'static str, &'static str, &'static str, Micros, Answer, &'static [&'static str]);

fn bad_gets() -> Vec<GetCase> {
    const UNSET: &str = "rv.get-unset-linearizable";
    const NOT_OLDER: &str = "rv.get-not-older";
    const ZERO: &str = "rv.get-zero-any";
    vec![
        // Stale after an answered update, and after an answered delete; absent after an answered create.
        (UNSET, "a", "", 46, object(2), &["answered 2", "over at 4", "answered before the GET"]),
        (UNSET, "b", "", 56, object(3), &["answered 3", "over at 5"]),
        (UNSET, "b", "", 66, not_found(), &["404", "existed all the time", "6 of the key"]),
        // A version that was never stored; of another key; of a tombstone; from the future.
        (UNSET, "a", "", 46, object(3), &["answered 3", "never had"]),
        (UNSET, "b", "", 56, object(5), &["answered 5", "never had"]),
        (UNSET, "e", "", 46, object(4), &["answered 4", "never held the key"]),
        (UNSET, "c", "", 66, object(9), &["answered 9", "only sent at 90 µs"]),
        (NOT_OLDER, "a", "resourceVersion=4", 66, object(2), &["answered 2", "over at 4", "4 was asked for"]),
        (NOT_OLDER, "a", "resourceVersion=7", 76, object(4), &["answered 4", "over at 7", "7 was asked for"]),
        (NOT_OLDER, "c", "resourceVersion=9", 106, not_found(), &["404", "existed all the time"]),
        (NOT_OLDER, "a", "resourceVersion=3", 66, object(3), &["answered 3", "never had"]),
        (ZERO, "a", "resourceVersion=0", 66, object(3), &["answered 3", "never had"]),
        (ZERO, "c", "resourceVersion=0", 66, object(9), &["answered 9", "only sent at 90 µs"]),
        (ZERO, "e", "resourceVersion=0", 66, object(9), &["never held the key"]),
    ]
}

#[test]
fn bad_gets_are_refused_by_their_judge() {
    for (judge, name, query, called, answer, words) in bad_gets() {
        let mut history = example_history();
        read(&mut history, Verb::Get, Some(name), query, called, answer.clone());
        let get = format!("Get /registry/configmaps/ns/{name}");
        let mut words = words.to_vec();
        words.push(&get);
        refuse(&history, judge, &words, &format!("{name} {query} {answer:?}"));
    }
}

#[test]
fn good_gets_are_accepted() {
    for (name, query, called, answer) in [
        ("a", "", 46, object(4)),
        // During an update, both versions are right.
        ("a", "", 71, object(4)),
        ("a", "", 71, object(7)),
        ("b", "", 51, object(3)),
        ("b", "", 51, not_found()),
        ("b", "", 58, object(6)),
        ("e", "", 46, not_found()),
        ("a", "resourceVersion=4", 96, object(4)),
        ("a", "resourceVersion=4", 96, object(7)),
        ("a", "resourceVersion=4", 96, not_found()),
        ("a", "resourceVersion=0", 96, object(2)),
        ("a", "resourceVersion=0", 96, not_found()),
        // The resource was not served: such a 404 says nothing about the object.
        ("a", "", 46, Answer::Refused { status: 404, reason: String::new() }),
        ("a", "", 46, Answer::Refused { status: 429, reason: "TooManyRequests".into() }),
        ("a", "", 46, Answer::Lost { error: "connection reset".into() }),
    ] {
        let mut history = example_history();
        read(&mut history, Verb::Get, Some(name), query, called, answer.clone());
        // The create of b is asked for at 60: the GET above overlaps it.
        history.operations.last_mut().unwrap().returned = called + 4;
        accept(&history, &format!("{name} {query} {answer:?}"));
    }
}

#[test]
fn unanswered_write_may_or_may_not_take_effect() {
    for shown in [object(4), object(7)] {
        let mut history = example_history();
        // The update at 7 was never answered.
        let update = history.operations.iter_mut().find(|o| o.called == 70).unwrap();
        update.answer = Answer::Lost { error: "connection reset".into() };
        read(&mut history, Verb::Get, Some("a"), "", 76, shown.clone());
        assert!(violations(&history, "rv.get-unset-linearizable").is_empty(), "{shown:?}");
    }
}
