//! A small history, the log of a correct informer, and one fault each.

use super::*;

const PREFIX: &str = "/registry/configmaps/n/";

fn change(name: &str, rev: i64, uid: &str, team: &str) -> Revision {
    let value =
        format!(r#"{{"metadata":{{"labels":{{"team":"{team}"}},"name":"{name}","namespace":"n","uid":"{uid}"}}}}"#);
    let kind = if uid.is_empty() { Change::Delete } else { Change::Put };
    let value = if uid.is_empty() { Vec::new() } else { value.into_bytes() };
    Revision {
        at: 0,
        rev,
        key: format!("{PREFIX}{name}").into(),
        kind,
        version: 1,
        create_rev: 1,
        lease: 0,
        prev_rev: 0,
        value: value.into(),
    }
}

fn history() -> Vec<Revision> {
    vec![
        change("a", 5, "u1", "a"),
        change("a", 7, "u1", "b"),
        change("b", 8, "u2", "a"),
        change("a", 9, "", ""),
        change("a", 11, "u3", "a"),
        change("marker", 12, "u4", "a"),
    ]
}

fn line(event: &str, key: &str, (old_rv, rv): (u64, u64), uid: &str) -> Line {
    let (event, key, uid) = (event.into(), format!("n/{key}"), uid.into());
    Line { informer: "typed".into(), event, key, rv, old_rv, uid, ..Line::default() }
}

fn request(text: &str) -> Line {
    Line {
        event: "request".into(),
        request: format!("GET /api/v1/namespaces/n/configmaps?{text}"),
        status: 200,
        ..Line::default()
    }
}

fn log() -> Vec<Line> {
    let indexed = |key: &str| Line { team: "a".into(), ..line("indexed", key, (0, 0), "") };
    vec![
        request("limit=500&resourceVersion=0"),
        line("add", "a", (0, 5), "u1"),
        request("watch=true&resourceVersion=5"),
        line("update", "a", (5, 7), "u1"),
        // A resync.
        line("update", "a", (7, 7), "u1"),
        line("add", "b", (0, 8), "u2"),
        line("delete", "a", (0, 9), "u1"),
        line("add", "a", (0, 11), "u3"),
        line("add", "marker", (0, 12), "u4"),
        line("cached", "a", (0, 11), "u3"),
        line("cached", "b", (0, 8), "u2"),
        line("cached", "marker", (0, 12), "u4"),
        indexed("a"),
        indexed("b"),
        indexed("marker"),
    ]
}

fn judged(lines: &[Line]) -> Result<Examined, String> {
    judged_with(lines, &BTreeMap::new(), (5, 9))
}

fn judged_with(lines: &[Line], contents: &BTreeMap<u64, u64>, broken: (u64, u64)) -> Result<Examined, String> {
    judge(lines, &Scene { changes: &history(), prefix: PREFIX, contents, first: 0, broken, last: 12 })
}

#[test]
fn correct_informer_is_accepted() {
    assert_eq!(judged(&log()), Ok(Examined { deltas: 7, ..Examined::default() }));
}

#[test]
fn versions_may_be_skipped_only_by_a_new_list() {
    let mut lines = log();
    lines.drain(3..7);
    lines[3] = line("update", "a", (5, 11), "u3");
    lines.insert(4, line("add", "b", (0, 8), "u2"));
    assert!(judged(&lines).unwrap_err().contains("at 7 was not delivered, and there was no new list"));
    lines.insert(3, request("limit=500&resourceVersion=5"));
    assert_eq!(judged(&lines), Ok(Examined { deltas: 4, relists: 1, skipped: 2, compared: 0 }));
    lines.insert(3, request("watch=true&sendInitialEvents=true"));
    assert_eq!(judged(&lines).unwrap().relists, 2);
    let refused = judged_with(&lines, &BTreeMap::new(), (7, 9)).unwrap_err();
    assert!(refused.contains("at 7 was not delivered by an unbroken watch"));
}

#[test]
fn tombstone_has_the_last_version_that_was_held() {
    let mut lines = log();
    lines.insert(6, request("limit=500"));
    lines[7] = Line { tombstone: true, ..line("delete", "a", (0, 7), "u1") };
    assert_eq!(judged(&lines).unwrap().skipped, 1);
    lines[7].rv = 5;
    assert!(judged(&lines).unwrap_err().contains("the store deleted no such object"));
}

#[test]
fn new_list_without_a_stored_object_is_refused_before_the_end() {
    let mut lines = log();
    lines.insert(8, request("limit=500"));
    lines.insert(9, Line { tombstone: true, ..line("delete", "b", (0, 8), "u2") });
    // A later event that brings the object back does not excuse the list.
    lines.insert(10, line("add", "b", (0, 8), "u2"));
    assert!(judged(&lines).unwrap_err().contains("the store has not deleted the object since"));
}

#[test]
fn round_without_a_break_excuses_no_skip() {
    let mut lines = log();
    lines.remove(3);
    lines[3] = line("update", "a", (5, 7), "u1");
    assert_eq!(judged_with(&lines, &BTreeMap::new(), (0, 0)).unwrap().skipped, 0);
    lines.remove(3);
    lines.insert(3, request("limit=500&resourceVersion=5"));
    let refused = judged_with(&lines, &BTreeMap::new(), (0, 0)).unwrap_err();
    assert!(refused.contains("at 7 was not delivered by an unbroken watch"), "{refused}");
}

#[test]
fn each_fault_is_refused() {
    type Fault = (&'static str, fn(&mut Vec<Line>));
    let faults: &[Fault] = &[
        ("the change of n/a at 7 was not delivered", |log| drop(log.drain(3..5))),
        ("the informer held the later 7", |log| log.insert(5, line("update", "a", (7, 5), "u1"))),
        ("replaces 5, but the informer held 7", |log| log[4].old_rv = 5),
        ("the informer held the object u1", |log| log[6].uid = "u2".into()),
        ("the store deleted no such object at that revision", |log| log[6].rv = 7),
        ("the informer did not hold the object", |log| log.insert(7, line("delete", "a", (0, 9), "u1"))),
        ("the informer held the object at 8 already", |log| log.insert(6, line("add", "b", (0, 8), "u2"))),
        ("the store has no such version", |log| log[5].rv = 6),
        ("the stored object is u2", |log| log[5].uid = "u9".into()),
        ("the cache holds n/a at 7; its last version is 11", |log| log[9].rv = 7),
        ("the cache does not hold n/b", |log| drop(log.remove(10))),
        ("the cache holds n/z at 8, which the store does not", |log| log.push(line("cached", "z", (0, 8), "u2"))),
        ("the index does not hold n/b under \"a\"", |log| drop(log.remove(13))),
        ("the index holds n/b under \"b\"", |log| {
            log.push(Line { team: "b".into(), ..line("indexed", "b", (0, 0), "") });
        }),
    ];
    for (why, fault) in faults {
        let mut lines = log();
        fault(&mut lines);
        let refused = judged(&lines).unwrap_err();
        assert!(refused.contains(why), "{refused}, expected {why}");
    }
}

#[test]
fn requests_are_shown_with_their_times() {
    let at = |at, took, status, text: &str| Line { at, took, status, ..request(text) };
    let lines = [at(20, 0, 200, "limit=500"), at(3149, 99, 502, "watch=true"), at(7000, 60_012, 504, "limit=500")];
    assert_eq!(requests(&lines), "list 200 at 0.0 s, watch 502 at 3.1 s, list 504 at 7.0 s after 60.0 s");
}

#[test]
fn objects_of_handlers_are_the_stored_ones() {
    // Without the marker, as if its value could not be decoded.
    let contents = BTreeMap::from([(5, 50), (7, 70), (8, 80), (11, 110)]);
    let mut lines = log();
    for line in lines.iter_mut().filter(|line| line.is_delta()) {
        // A deletion shows the last state.
        let state = if line.event == "delete" { 7 } else { line.rv };
        line.object = Some(Object { json: "{}".into(), digest: state * 10 });
    }
    assert_eq!(judged_with(&lines, &contents, (5, 9)).unwrap().compared, 6);
    for (at, rev) in [(1, 5), (4, 7), (6, 7), (7, 11)] {
        let mut lines = lines.clone();
        lines[at].object = Some(Object { json: "{}".into(), digest: 1 });
        let refused = judged_with(&lines, &contents, (5, 9)).unwrap_err();
        assert!(refused.contains(&format!("its object is not the one that was stored at {rev}: {{}}")), "{refused}");
    }
}

#[test]
fn log_is_parsed_by_informer() {
    let log = r#"{"informer":"typed","event":"add","key":"n/a","rv":5,"uid":"u1","object":{"metadata":{}}}
I1127 a message of client-go
{"event":"timeout"}
"#;
    let lines = parse(log).unwrap();
    let typed = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#;
    let object = Object { json: r#"{"metadata":{}}"#.into(), digest: crate::object_digest::of_object(typed).unwrap() };
    let expected = Line { object: Some(object), ..line("add", "a", (0, 5), "u1") };
    assert_eq!((lines.len(), lines["typed"].as_slice()), (1, &[expected][..]));
    assert!(parse("{\"event\":7}").unwrap_err().contains("7"));
}
