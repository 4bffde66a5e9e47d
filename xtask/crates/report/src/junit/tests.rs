//! Two independent readers read the file back: an XML parser, and nextest's JUnit reader.

use roxmltree::{Document, Node};

use super::*;
use crate::fixture;

fn text_of(events: &[Event]) -> String {
    String::from_utf8(junit(events, &JunitOptions::default()).unwrap()).unwrap()
}

/// A case as a consumer sees it: class name, name, then element, type, message and text of its result element.
fn cases<'a>(file: &'a Document<'_>) -> Vec<[&'a str; 6]> {
    let row = |case: Node<'a, '_>| {
        let mark = case.children().find(|node| ["failure", "error", "skipped"].contains(&node.tag_name().name()));
        let of_mark = |name| mark.and_then(|mark| mark.attribute(name)).unwrap_or("");
        [
            case.attribute("classname").unwrap(),
            case.attribute("name").unwrap(),
            mark.map_or("", |mark| mark.tag_name().name()),
            of_mark("type"),
            of_mark("message"),
            mark.and_then(|mark| mark.text()).unwrap_or(""),
        ]
    };
    file.descendants().filter(|node| node.has_tag_name("testcase")).map(row).collect()
}

fn is_red(file: &str) -> bool {
    let file = Document::parse(file).unwrap();
    cases(&file).iter().any(|case| ["failure", "error"].contains(&case[2]))
}

#[test]
fn every_outcome_has_its_element() {
    let text = text_of(&fixture::run());
    let file = Document::parse(&text).unwrap();
    let shown: Vec<[&str; 5]> = cases(&file).iter().map(|[a, b, c, d, e, _]| [*a, *b, *c, *d, *e]).collect();
    #[rustfmt::skip]
    let wanted = [
        ["archproof.mix64.phases", "build", "", "", ""],
        ["archproof.mix64.phases", "boot", "", "", ""],
        ["archproof.mix64.phases", "suite", "", "", ""],
        ["archproof.mix64.phases", "teardown", "", "", ""],
        ["archproof.mix64.phases", "run", "", "", ""],
        ["archproof.mix64.cc", "cc.g[json]", "skipped", "", "needs control over the store"],
        ["archproof.mix64.list", "list.f", "skipped", "", "expected failure: a bookmark is missing (https://example.org/issues/8)"],
        ["archproof.mix64.rv", "rv.e", "error", "timeout", "timed out waiting for a bookmark"],
        ["archproof.mix64.storage", "storage.c", "failure", "conformance", "passed, but a failure is expected: https://example.org/issues/7"],
        ["archproof.mix64.storage", "storage.d", "error", "infrastructure", "request: connection reset"],
        ["archproof.mix64.watch", "watch.a", "", "", ""],
        ["archproof.mix64.watch", "watch.ordered", "failure", "conformance", "revision 7 was delivered after 9"],
    ];
    assert_eq!(shown, wanted);
    let failure = cases(&file).last().unwrap()[5];
    assert_eq!(
        failure,
        "Requirement (must): What watch.ordered asks for.\n\
         Outcome: failed\nMessage: revision 7 was delivered after 9\nin stream 3\n\
         Evidence:\n  rev 9 MODIFIED a\n  rev 7 MODIFIED a\n\
         Source: https://example.org/api.md#watch\nProfile: default\n\
         Repeat: cargo xtask ci --check watch.ordered --seed 42\n"
    );
}

#[test]
fn phases_output_describes_the_machine() {
    let text = text_of(&fixture::run_in_machine());
    for line in [
        "\nemulator: QEMU 11.1.3 (debian)\n",
        "\naccelerator: tcg: the guest is of another architecture than the host\n",
        "\nstart: warm, restored from a memory snapshot: keys and certificates come from the run that created it;",
        "\npackages: 2, listed in run.json\n",
        "\nnote: the lock is old\n",
    ] {
        assert!(text.contains(line), "`{line}` is missing in:\n{text}");
    }
}

#[test]
fn suites_have_names_counts_times_and_facts() {
    let text = text_of(&fixture::run());
    let file = Document::parse(&text).unwrap();
    let suites: Vec<Node<'_, '_>> = file.root_element().children().filter(Node::is_element).collect();
    let names: Vec<&str> = suites.iter().map(|suite| suite.attribute("name").unwrap()).collect();
    let groups = ["phases", "cc", "list", "rv", "storage", "watch"];
    assert_eq!(names, groups.map(|group| format!("archproof.mix64.process.{group}")));
    let storage: Vec<(&str, &str)> = suites[4].attributes().map(|a| (a.name(), a.value())).collect();
    #[rustfmt::skip]
    let wanted = [
        ("id", "4"), ("name", "archproof.mix64.process.storage"), ("tests", "2"), ("failures", "1"), ("errors", "1"),
        ("skipped", "0"), ("time", "1.000"), ("timestamp", "2026-11-21T10:00:00Z"), ("hostname", "Linux 6.12.0 mix64"),
    ];
    assert_eq!(storage, wanted);
    let facts = suites[0].children().next_back().unwrap();
    assert!(facts.has_tag_name("system-out"));
    for line in ["seed: 42", "execution: native", "version of etcd: 3.6.16", "note: namespace a-1 was left behind"] {
        assert!(facts.text().unwrap().lines().any(|fact| fact == line), "{line} in {facts:?}");
    }
}

#[test]
fn two_readers_read_back_hostile_text_in_every_field() {
    for raw in fixture::hostile_texts() {
        let text = text_of(&fixture::hostile(&raw));
        let file = Document::parse(&text).unwrap_or_else(|error| panic!("{error} for {raw:.80?}"));
        let cases = cases(&file);
        assert_eq!(cases.len(), 7 + 7 + 1);
        // The XML reader sees exactly the content of `XmlText`.
        let name = XmlText::name(&raw);
        // All cases of this run have the same name, so all but the first were renamed.
        let names: Vec<XmlText> = (2..9).map(|n| XmlText::name(format!("({n}) {}", name.as_str()))).collect();
        let failures: Vec<&[&str; 6]> = cases.iter().filter(|case| case[2] == "failure" && case[1] != "run").collect();
        assert_eq!(failures.len(), 2);
        for failure in failures {
            let empty = name.as_str().trim().is_empty() && failure[1].ends_with("(no name)");
            assert!(empty || names.iter().any(|name| failure[1] == name.as_str()), "{:?}", failure[1]);
        }
        let failed = cases.iter().find(|case| case[2] == "failure").unwrap();
        assert_eq!(failed[4], XmlText::message(&raw).as_str());
        let body = XmlText::failure(&raw);
        if body.as_str().len() < 4096 {
            assert!(failed[5].contains(body.as_str().trim_end()), "{:?} in {:?}", body, failed[5]);
        }
        // The JUnit reader finds the same cases.
        let report = quick_junit::Report::deserialize_from_str(&text).unwrap_or_else(|e| panic!("{e} for {raw:.80?}"));
        let seen: Vec<String> =
            report.test_suites.iter().flat_map(|suite| &suite.test_cases).map(|case| case.name.to_string()).collect();
        assert_eq!(seen.len(), cases.len());
    }
}

#[test]
fn no_prefix_of_a_run_is_green() {
    let events = fixture::run();
    for end in 0..events.len() {
        let text = text_of(&events[..end]);
        let file = Document::parse(&text).unwrap();
        let run = *cases(&file).iter().find(|case| case[1] == "run").unwrap();
        assert_eq!((run[2], run[3]), ("error", "interrupted"), "after {end} events");
        assert!(run[4].starts_with("run was cut short: "), "{}", run[4]);
    }
}

#[test]
fn unfinished_phases_and_cases_are_errors() {
    let at = String::new;
    let events = [
        fixture::started(),
        Event::PhaseStarted { at: at(), phase: "suite".into() },
        Event::CaseStarted { at: at(), case: "rv.a".into() },
        Event::CaseStarted { at: at(), case: "rv.b".into() },
        fixture::case("rv.a", Outcome::Passed),
        fixture::finished(Exit::Interrupted),
    ];
    let text = text_of(&events);
    let file = Document::parse(&text).unwrap();
    let shown: Vec<[&str; 4]> =
        cases(&file).iter().map(|[_, name, mark, kind, message, _]| [*name, *mark, *kind, *message]).collect();
    #[rustfmt::skip]
    let wanted = [
        ["suite", "error", "interrupted", "suite: the run ended during this phase"],
        ["run", "error", "interrupted", "run was cut short: it was interrupted; unfinished: phase suite, case rv.b"],
        ["rv.a", "", "", ""],
        ["rv.b", "error", "interrupted", "suite: the run ended while this case was running"],
    ];
    assert_eq!(shown, wanted);
}

#[test]
fn file_is_red_exactly_when_the_verdict_is_red() {
    let started = fixture::started;
    let finished = |exit| fixture::finished(exit);
    let skip = || fixture::case("rv.a", Outcome::Skipped { need: "control".into() });
    let pass = || fixture::case("rv.b", Outcome::Passed);
    #[rustfmt::skip]
    let table: Vec<(Vec<Event>, bool)> = vec![
        (vec![], true),
        (vec![started(), finished(Exit::Ok)], true),
        (vec![started(), skip(), finished(Exit::Ok)], true),
        (vec![started(), skip(), pass(), finished(Exit::Ok)], false),
        (vec![started(), pass(), finished(Exit::Internal)], true),
        (vec![started(), pass(), fixture::phase("teardown", Outcome::failed("x")), finished(Exit::Ok)], true),
        (vec![started(), fixture::planned(2), pass(), finished(Exit::Ok)], true),
        (vec![started(), fixture::planned(1), pass(), finished(Exit::Ok)], false),
    ];
    for (events, wanted) in table {
        assert_eq!(is_red(&text_of(&events)), wanted, "{events:?}");
        assert_eq!(verdict::exit(&events) != Exit::Ok, wanted, "{events:?}");
    }
}

#[test]
fn broken_build_is_not_a_conformance_failure() {
    let events =
        [fixture::started(), fixture::phase("build", Outcome::failed("undefined: x")), fixture::finished(Exit::Build)];
    let text = text_of(&events);
    let file = Document::parse(&text).unwrap();
    assert_eq!(cases(&file)[0][1..5], ["build", "error", "infrastructure", "undefined: x"]);
}

#[test]
fn order_of_concurrent_cases_does_not_matter() {
    let mut events = fixture::run();
    let text = text_of(&events);
    assert_eq!(text, text_of(&fixture::run()));
    events.retain(|event| !matches!(event, Event::CaseStarted { .. }));
    let is_case = |event: &Event| matches!(event, Event::CaseFinished { .. });
    let first = events.iter().position(is_case).unwrap();
    let last = events.iter().rposition(is_case).unwrap();
    events[first..=last].reverse();
    assert_eq!(text, text_of(&events));
}

/// A check has the same name in every shard. Cases that every shard has must not have the same name.
#[test]
fn shard_is_only_in_the_names_of_suites_and_phases() {
    let mut events = fixture::run();
    fixture::info_of(&mut events).shard = Some("2/4".into());
    let text = text_of(&events);
    let file = Document::parse(&text).unwrap();
    let suites: Vec<&str> = file
        .descendants()
        .filter(|node| node.has_tag_name("testsuite"))
        .map(|suite| suite.attribute("name").unwrap())
        .collect();
    assert!(suites.iter().all(|name| name.starts_with("archproof.mix64.process.shard-2-of-4.")), "{suites:?}");
    let cases = cases(&file);
    assert_eq!(cases[0][..2], ["archproof.mix64.shard-2-of-4.phases", "build"]);
    assert_eq!(cases.last().unwrap()[..2], ["archproof.mix64.watch", "watch.ordered"]);
    assert!(text.contains("shard: 2/4"), "{text}");
}
