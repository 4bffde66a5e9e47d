//! A small history in a compact notation, so that a test shows what it changes.
//!
//! | revision | change | a | b |
//! | --- | --- | --- | --- |
//! | 2 | a created, red | 2 | |
//! | 3 | b created, blue | 2 | 3 |
//! | 4 | a changed, blue | 4 | 3 |
//! | 5 | b deleted | 4 | |
//! | 6 | b created, blue | 4 | 6 |
//! | 7 | a changed, red | 7 | 6 |
//! | 8 | a deleted | | 6 |
//! | 9 | c created, blue | | 6 |
//! | 10 | a of another namespace created, red | | 6 |
//! | 11 | d created, blue | | 6 |
//!
//! Revision n is requested at 10 n, and answered at 10 n + 5; its event is received at 10 n + 6.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::history::{
    Answer, Change, End, Frame, FrameKind, History, Key, Meta, Micros, Operation, Revision, Selector, Snapshot, Start,
    Stream, Verb,
};

use crate::generate::operation;
use crate::generate::values::{Color, Identity};

pub(super) const PREFIX: &str = "/registry/configmaps/ns/";
pub(super) const ELSEWHERE: &str = "/registry/configmaps/other/";

/// (revision, change, name, color): `+` creates, `*` changes, `-` deletes.
const CHANGES: &[(i64, char, &str, Color)] = &[
    (2, '+', "a", Color::Red),
    (3, '+', "b", Color::Blue),
    (4, '*', "a", Color::Blue),
    (5, '-', "b", Color::Blue),
    (6, '+', "b", Color::Blue),
    (7, '*', "a", Color::Red),
    (8, '-', "a", Color::Red),
    (9, '+', "c", Color::Blue),
    (10, '+', "other/a", Color::Red),
    (11, '+', "d", Color::Blue),
];

pub(super) fn key(name: &str) -> Key {
    match name.strip_prefix("other/") {
        Some(name) => format!("{ELSEWHERE}{name}").into(),
        None => format!("{PREFIX}{name}").into(),
    }
}

/// The history of a correct server, with five streams and some reads.
pub(super) fn example_history() -> History {
    let mut history = History {
        meta: Meta { profile: "default".into(), store: "main".into(), last_rev: 11, ..Meta::default() },
        ..History::default()
    };
    let mut alive: BTreeMap<Key, Snapshot> = BTreeMap::new();
    for (rev, change, name, color) in CHANGES {
        write(&mut history, &mut alive, *rev, *change, name, *color);
    }
    history.meta.last = alive.into_values().collect();
    let red = Some(Selector { labels: "color=red".into(), fields: String::new() });
    stream(&mut history, Start::After(1), None, "+a@2 +b@3 *a@4 -b@5 !@5 +b@6 *a@7 -a@8 +c@9 +d@11");
    stream(&mut history, Start::After(4), None, "-b@5 +b@6 *a@7 !@7 -a@8 +c@9");
    stream(&mut history, Start::Unset, None, "+a@4 +b@3 -b@5 +b@6 *a@7");
    stream(&mut history, Start::InitialEvents(3), None, "+a@4 +b@3 !!@4 -b@5 +b@6 *a@7");
    stream(&mut history, Start::After(1), red, "+a@2 -a@4 +a@7 !@7 -a@8");
    read(&mut history, Verb::List, None, "", 46, list(4, "a@4 b@3"));
    read(&mut history, Verb::List, None, "resourceVersion=6&resourceVersionMatch=Exact", 96, list(6, "a@4 b@6"));
    read(&mut history, Verb::List, None, "resourceVersion=3&resourceVersionMatch=NotOlderThan", 56, list(5, "a@4"));
    read(&mut history, Verb::List, None, "resourceVersion=0", 76, list(3, "a@2 b@3"));
    read(&mut history, Verb::Get, Some("a"), "", 46, object(4));
    read(&mut history, Verb::Get, Some("b"), "", 56, not_found());
    read(&mut history, Verb::Get, Some("a"), "resourceVersion=3", 56, object(4));
    read(&mut history, Verb::Get, Some("a"), "resourceVersion=0", 76, object(2));
    history
}

/// The history in which this stream, by its id, has other frames.
pub(super) fn with_frames(number: usize, text: &str) -> History {
    let mut history = example_history();
    history.streams[number - 1].frames = frames(text);
    history
}

fn write(history: &mut History, alive: &mut BTreeMap<Key, Snapshot>, rev: i64, change: char, name: &str, color: Color) {
    let key = key(name);
    let before = alive.remove(&key);
    let put = change != '-';
    let before_rev = before.as_ref().filter(|_| change == '*').map(|before| before.mod_rev.cast_unsigned());
    let version = before.as_ref().map_or(1, |before| before.version + 1);
    let create_rev = before.as_ref().map_or(rev, |before| before.create_rev);
    let at = rev.cast_unsigned() * 10;
    history.revisions.push(Revision {
        at: at + 40,
        rev,
        key: Arc::clone(&key),
        kind: if put { Change::Put } else { Change::Delete },
        version: if put { version } else { 0 },
        create_rev: if put { create_rev } else { 0 },
        lease: 0,
        prev_rev: before.map_or(0, |before| before.mod_rev),
        value: if put { identity(&key).value(color).into() } else { Arc::default() },
    });
    if put {
        alive.insert(Arc::clone(&key), Snapshot { key: Arc::clone(&key), create_rev, mod_rev: rev, version });
    }
    let (verb, answer) = match change {
        '+' => (Verb::Create, Answer::Object { status: 201, rv: rev.cast_unsigned() }),
        '*' => (Verb::Update, object(rev.cast_unsigned())),
        _ => (Verb::Delete, object(0)),
    };
    let prefix = Key::from(&key[..=key.rfind('/').unwrap()]);
    let done = operation(verb, &prefix, Some(&key), String::new(), (at, at + 5), answer);
    history.operations.push(Operation { client: "writer".into(), based_on: before_rev, ..done });
}

/// The same for every life of a key; that is enough here.
fn identity(key: &str) -> Identity {
    Identity::new(key, &mut fastrand::Rng::with_seed(key.len() as u64))
}

/// Adds a stream; its id is its place, from 1.
pub(super) fn stream(history: &mut History, start: Start, selector: Option<Selector>, text: &str) {
    let frames = frames(text);
    history.streams.push(Stream {
        id: history.streams.len() as u64 + 1,
        client: "watcher".into(),
        transport: "http/2".into(),
        prefix: PREFIX.into(),
        selector,
        start,
        query: "watch=true&resourceVersion=3".into(),
        resumes: None,
        opened: 30,
        closed: frames.iter().map(|frame| frame.at).max().unwrap_or(30) + 1,
        frames,
        end: End::Client,
    });
}

/// Frames in a compact notation: `+a@2` ADDED, `*` MODIFIED, `-` DELETED, `!@5` BOOKMARK, `!!@5` the one after initial
/// events, `E` an ERROR, `?a@2` a type that does not exist.
pub(super) fn frames(text: &str) -> Vec<Frame> {
    let frame = |word: &str| {
        let (head, rv) = word.split_once('@').unwrap_or((word, "0"));
        let rv: u64 = rv.parse().unwrap();
        let sign = head.chars().take_while(|c| !c.is_ascii_lowercase()).collect::<String>();
        let name = &head[sign.len()..];
        let kind = match sign.as_str() {
            "+" => FrameKind::Added,
            "*" => FrameKind::Modified,
            "-" => FrameKind::Deleted,
            "!" => FrameKind::Bookmark { end_of_initial: false },
            "!!" => FrameKind::Bookmark { end_of_initial: true },
            "E" => FrameKind::Error { code: 410, reason: "Expired".into(), message: "too old".into() },
            _ => FrameKind::Unknown { name: "CHANGED".into() },
        };
        let key = if name.is_empty() { "".into() } else { key(name) };
        let uid = if name.is_empty() { "".into() } else { identity(&key).uid };
        Frame { at: rv * 10 + 6, kind, key, rv, uid }
    };
    text.split_whitespace().map(frame).collect()
}

/// Adds a read that was answered within four microseconds.
pub(super) fn read(history: &mut History, verb: Verb, name: Option<&str>, query: &str, called: Micros, answer: Answer) {
    let key = name.map(key);
    let done = operation(verb, &PREFIX.into(), key.as_ref(), query.into(), (called, called + 3), answer);
    history.operations.push(Operation { client: "reader".into(), ..done });
}

/// A LIST answer from words like `a@4`; `…` at the end means that more items follow.
pub(super) fn list(rv: u64, items: &str) -> Answer {
    let words = items.split_whitespace().filter(|word| *word != "…");
    let items_of = words.map(|word| {
        let (name, rv) = word.split_once('@').unwrap();
        (key(name), rv.parse().unwrap())
    });
    Answer::List { status: 200, rv, items: items_of.collect(), more: items.ends_with('…') }
}

pub(super) fn object(rv: u64) -> Answer {
    Answer::Object { status: 200, rv }
}

pub(super) fn not_found() -> Answer {
    Answer::Refused { status: 404, reason: "NotFound".into() }
}
