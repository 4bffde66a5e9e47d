//! All joint report formats for two runs and one run that did not begin.

use roxmltree::Document;

use super::*;
use crate::fixture;
use crate::junit::{JunitOptions, joint_junit};

fn child(arch: &str, events: Vec<Event>, exit: Exit) -> Child {
    let folder = (!events.is_empty()).then(|| arch.to_owned());
    Child { arch: arch.into(), provider: "process".into(), exit, folder, ..Child::of(events) }
}

fn joint() -> Joint {
    let mut green = vec![fixture::started(), fixture::planned(1), fixture::case("watch.a", model::Outcome::Passed)];
    green.push(fixture::finished(Exit::Ok));
    let lost =
        Child { trouble: Some("no folder:\n<disk> full".into()), ..child("big", Vec::new(), Exit::Infrastructure) };
    Joint {
        id: "20261121T100000Z-all".into(),
        started: fixture::at(0),
        command: "cargo xtask ci --arch all --shard 2/4".into(),
        seconds: 90.0,
        shard: Some("2/4".into()),
        jobs: 2,
        children: vec![child("mix64", green, Exit::Ok), child("tiny", fixture::run(), Exit::Conformance), lost],
    }
}

#[test]
fn worst_verdict_counts() {
    assert_eq!(joint().exit(), Exit::Infrastructure);
    for (children, expected) in [
        (vec![], Exit::NothingRan),
        (vec![Exit::Ok, Exit::Ok], Exit::Ok),
        (vec![Exit::Ok, Exit::Conformance, Exit::NothingRan], Exit::Conformance),
        (vec![Exit::Interrupted, Exit::Build], Exit::Interrupted),
    ] {
        let children = children.into_iter().map(|exit| child("x", Vec::new(), exit)).collect();
        assert_eq!(Joint { children, ..joint() }.exit(), expected);
    }
}

#[test]
fn summary_has_a_line_for_each_run() {
    assert_eq!(
        joint().summary("reports/x"),
        "mix64, tiny, big: infrastructure failed (exit 102) in 1 min 30 s\n\
         \x20 mix64  all as expected in 1 min 15 s; 1 passed\n\
         \x20 tiny   conformance failures in 1 min 15 s; 1 passed, 1 failed, 1 unexpected pass, 1 errored, 1 timed out, \
         1 expected failure, 1 skipped\n\
         \x20 big    infrastructure failed; no cases; no folder: <disk> full\n\
         \x20 files: reports/x (summary.md, junit.xml, run.json, a folder each)"
    );
}

#[test]
fn summary_survives_a_name_of_any_length() {
    let mut joint = joint();
    joint.children[0].arch = "x".repeat(70_000);
    assert!(joint.summary("reports/x").contains(&joint.children[0].arch));
}

#[test]
fn record_lists_the_runs() {
    let record: serde_json::Value = serde_json::from_str(&joint().run_json()).unwrap();
    assert_eq!((&record["exit"]["code"], &record["shard"], &record["jobs"]), (&102.into(), &"2/4".into(), &2.into()));
    let children = record["children"].as_array().unwrap();
    assert_eq!((&children[0]["record"], &children[0]["counts"]["passed"]), (&"mix64/run.json".into(), &1.into()));
    assert_eq!((&children[1]["exit"]["name"], &children[1]["planned"]), (&"conformance".into(), &7.into()));
    assert_eq!((&children[2]["record"], &children[2]["exit"]["code"]), (&serde_json::Value::Null, &102.into()));
}

#[test]
fn page_lists_what_the_runs_could_not_show() {
    let mut joint = joint();
    joint.children.push(child("tiny", fixture::run(), Exit::Conformance));
    joint
        .children
        .push(Child { provider: "qemu".into(), ..child("far", fixture::run_in_machine(), Exit::Conformance) });
    let page = joint.markdown();
    let (_, section) = page.split_once("## What these runs could not show\n\n").unwrap();
    let lines: Vec<&str> = section.trim_end().lines().collect();
    assert_eq!(lines.len(), 4, "{section}");
    let shared = "- tiny (process), far (qemu): Extension wide (vectors): the processor of the run lacked it.";
    assert!(lines[0].starts_with(shared), "{section}");
    assert!(lines[3].starts_with("- far (qemu): Silicon: QEMU 11.1.3 executed"), "{section}");
}

#[test]
fn page_repeats_unexpected_results() {
    let page = joint().markdown();
    assert!(page.contains("\n| [tiny](tiny/summary.md) | Conformance failures (100) | 1 passed, 1 failed,"), "{page}");
    assert!(page.contains("\n| big | Infrastructure failed (102) | no cases |  |  |  |\n"), "{page}");
    assert!(page.contains("## tiny: not as expected\n\n### watch.ordered: failed\n"), "{page}");
    assert!(page.contains("## big\n\n```text\nno folder:\n<disk> full\n```\n"), "{page}");
    let mut broken = joint();
    broken.children[0].events.push(fixture::phase("build", model::Outcome::errored("build", "no compiler")));
    assert!(broken.markdown().contains("## mix64: build errored\n\n```text\nbuild: no compiler\n```\n"));
    assert!(!page.contains("mix64: not as expected"), "{page}");
}

/// A suite for each architecture. Cases equal those of the runs' own files; a run that did not begin is an error.
#[test]
fn junit_has_a_suite_for_each_run() {
    let text = String::from_utf8(joint_junit(&joint(), &JunitOptions::default()).unwrap()).unwrap();
    let file = Document::parse(&text).unwrap();
    let suites: Vec<_> = file.descendants().filter(|node| node.has_tag_name("testsuite")).collect();
    let names: Vec<&str> = suites.iter().map(|suite| suite.attribute("name").unwrap()).collect();
    assert_eq!(names, ["archproof.mix64.process", "archproof.tiny.process", "archproof.big.process"]);
    let cases = |index: usize| -> Vec<(String, bool)> {
        let cases = suites[index].children().filter(|node| node.has_tag_name("testcase"));
        let red = |case: &roxmltree::Node<'_, '_>| {
            case.children().any(|c| c.has_tag_name("error") || c.has_tag_name("failure"))
        };
        cases.map(|case| (case.attribute("name").unwrap().to_owned(), red(&case))).collect()
    };
    assert_eq!(cases(0), [("run".to_owned(), false), ("watch.a".to_owned(), false)]);
    let own = String::from_utf8(crate::junit(&fixture::run(), &JunitOptions::default()).unwrap()).unwrap();
    let own = Document::parse(&own).unwrap().descendants().filter(|node| node.has_tag_name("testcase")).count();
    assert_eq!(cases(1).len(), own);
    assert_eq!(cases(2), [("harness".to_owned(), true)]);
}

/// The cause of a red joint verdict is red in the file too, even if no event reports it.
#[test]
fn red_verdict_makes_a_red_file() {
    for exit in [Exit::Infrastructure, Exit::Internal, Exit::Interrupted] {
        let mut joint = joint();
        joint.children.truncate(1);
        joint.children[0].exit = exit;
        let text = String::from_utf8(joint_junit(&joint, &JunitOptions::default()).unwrap()).unwrap();
        assert!(text.contains("<error"), "{exit}: {text}");
    }
}

#[test]
fn hostile_text_stays_text() {
    for text in fixture::hostile_texts() {
        let mut joint = joint();
        joint.children[1].events = fixture::hostile(&text);
        joint.children[2].trouble = Some(text.clone());
        let xml = String::from_utf8(joint_junit(&joint, &JunitOptions::default()).unwrap()).unwrap();
        Document::parse(&xml).unwrap_or_else(|error| panic!("{error}: {text:?}"));
        assert!(joint.markdown().len() <= FILE_BYTES);
        assert!(!joint.summary("x").contains(|c: char| c.is_control() && c != '\n'));
    }
}
