//! Compares the file with its types, its schema and the events that it is made from.

use super::*;
use crate::fixture;
use crate::merge::merge;

const COMMITTED: &str = include_str!("../../results.schema.json");

fn of(events: Vec<model::Event>) -> Results {
    Results::of(&merge(vec![events]))
}

#[test]
fn committed_schema_matches_the_types() {
    assert!(
        Results::schema() == COMMITTED,
        "the types have changed: run cargo xtask report schema >xtask/crates/report/results.schema.json"
    );
}

#[test]
fn complete_run_round_trips() {
    let results = of(fixture::run_in_machine());
    let read: Results = serde_json::from_str(&results.json()).unwrap();
    assert_eq!(read, results);
    let run = &read.runs[0];
    assert_eq!((run.id.as_str(), run.arch.as_str(), run.verdict.code), ("20261121T100000Z-mix64", "mix64", 100));
    assert_eq!(run.verdict.name, "conformance");
    assert_eq!(run.machine.as_ref().unwrap().accelerator, "tcg");
    assert!(run.not_shown.iter().any(|entry| entry.starts_with("Silicon: QEMU 11.1.3 ")), "{:?}", run.not_shown);
    assert_eq!(run.components[0].version, "v3.6.16");
    let each =
        Counts { passed: 1, failed: 1, expected_failure: 1, unexpected_pass: 1, skipped: 1, errored: 1, timed_out: 1 };
    assert_eq!((run.counts, run.counts.total(), run.planned), (each, 7, 7));
    let failed = run.cases.iter().find(|case| case.outcome == Word::Failed).unwrap();
    assert_eq!((failed.name.as_str(), failed.group.as_str()), ("watch.ordered", "watch"));
    assert_eq!(failed.evidence.len(), 2);
    assert_eq!(failed.repeat, "cargo xtask ci --check watch.ordered --seed 42");
    assert_eq!(failed.level, Some(LevelWord::Must));
}

#[test]
fn file_of_an_older_version_is_read() {
    let mut file: serde_json::Value = serde_json::from_str(&of(fixture::run()).json()).unwrap();
    assert!(file["runs"][0].as_object_mut().unwrap().remove("not_shown").is_some());
    let read: Results = serde_json::from_value(file).unwrap();
    assert_eq!(read.runs[0].not_shown, [""; 0]);
}

#[test]
fn hostile_text_round_trips() {
    for text in fixture::hostile_texts() {
        let results = of(fixture::hostile(&text));
        let read: Results = serde_json::from_str(&results.json()).unwrap();
        assert_eq!(read, results);
        assert!(read.runs[0].cases.iter().all(|case| case.name == text));
    }
}

#[test]
fn no_prefix_of_a_run_is_complete() {
    let events = fixture::run();
    for end in 1..events.len() {
        let results = of(events[..end].to_vec());
        let run = &results.runs[0];
        assert!(run.cut_short.is_some() && run.verdict.code == 130 && run.seconds.is_none(), "after {end} events");
    }
    assert_eq!(of(vec![]).runs[0].verdict.name, "nothing-ran");
}
