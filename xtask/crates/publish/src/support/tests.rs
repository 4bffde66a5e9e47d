//! The support table for generated runs.

use model::Event;

use super::*;
use crate::fixture;

fn arches() -> Vec<Arch> {
    ["mix64", "other64"].map(|name| Arch { name: name.into(), title: name.to_uppercase() }).into()
}

fn record(events: Vec<Event>) -> Record {
    Record { events, ..Record::default() }
}

/// One check of level must with this number of cases.
fn known(cases: usize) -> Vec<Known> {
    vec![crate::record::known("watch.a", cases)]
}

fn tiers() -> Tiers {
    let criterion = |kind| criteria::Criterion {
        tier: "Tier 2".into(),
        text: "It works.".into(),
        evidence: kind,
        component: "etcd".into(),
        note: "people decide".into(),
        facts: BTreeMap::from([("mix64".into(), "yes".into())]),
    };
    use criteria::Kind;
    let criteria = [Kind::Built, Kind::Started, Kind::Checked, Kind::Fact, Kind::Elsewhere].map(criterion).into();
    let project =
        criteria::Project { name: "p".into(), source: "s".into(), read: "r".into(), listed: BTreeMap::new(), criteria };
    Tiers { projects: vec![project] }
}

fn green() -> Vec<Event> {
    let mut events = fixture::run();
    events.retain(|event| !matches!(event, Event::CaseFinished { outcome, .. } if *outcome != Outcome::Passed));
    events.retain(|event| !matches!(event, Event::CaseStarted { case, .. } if case != "watch.a"));
    events
}

fn words(support: &Support, column: usize) -> Vec<&'static str> {
    support.projects[0].rows.iter().map(|row| row[column].weight.word()).collect()
}

#[test]
fn architecture_without_runs_has_no_evidence() {
    let support = support(&[record(green())], &known(1), &arches(), &tiers(), &[]);
    assert_eq!(words(&support, 0), ["shown", "shown", "shown", "shown", "no evidence"]);
    assert_eq!(words(&support, 1), ["no evidence"; 5]);
    let page = markdown(&support);
    let row = "| etcd v3.6.16 | built and audited (20261121T100000Z-mix64)<br>native, on etcd: Must 1 of 1 passed; 1 run, \
               2026-11-21 (20261121T100000Z-mix64) | no evidence |";
    assert!(page.contains(row), "{page}");
}

#[test]
fn failure_emulator_or_missing_cases_prevent_shown() {
    let judged = |events, cases| words(&support(&[record(events)], &known(cases), &arches(), &tiers(), &[]), 0)[2];
    assert_eq!(judged(green(), 1), "shown");
    assert_eq!(judged(green(), 2), "partly shown", "the suite has more cases");
    assert_eq!(judged(fixture::run(), 1), "not met");
    // Upstream's specs, removed checks and renamed profiles do not replace cases of the suite.
    let others = ["upstream.[sig-api-machinery] a [Conformance]", "watch.removed", "watch.a[renamed]"];
    let others = others.map(|name| fixture::case(name, Outcome::Passed));
    assert_eq!(judged([green(), others.to_vec()].concat(), 2), "partly shown");
    let emulated = green().into_iter().map(|mut event| {
        if let Event::Booted { machine, .. } = &mut event {
            *machine = Some(Box::new(fixture::machine()));
        }
        event
    });
    assert_eq!(judged(emulated.collect(), 1), "partly shown");
    assert_eq!(judged(vec![fixture::started(), fixture::built()], 1), "no evidence");
}

#[test]
fn own_programs_and_those_of_earlier_minors_get_no_evidence() {
    let programs = |own: &[String]| {
        let mut events = green();
        for name in ["client", "etcd-previous", "etcd-before-previous"] {
            let mut event = fixture::built();
            if let Event::Built { artifact, .. } = &mut event {
                artifact.component = name.into();
            }
            events.push(event);
        }
        let support = support(&[record(events)], &known(1), &arches(), &tiers(), own);
        let names = support.programs.into_iter().map(|program| program.component);
        names.filter(|name| name.starts_with("etcd") || name == "client").collect::<Vec<_>>()
    };
    assert_eq!(programs(&[]), ["client", "etcd"]);
    assert_eq!(programs(&["client".into()]), ["etcd"]);
}

#[test]
fn newest_result_of_a_case_counts() {
    let later = |mut events: Vec<Event>| {
        let run = fixture::info_of(&mut events);
        (run.id, run.started) = ("later".into(), "2026-12-01T00:00:00.000Z".into());
        events
    };
    // The order of the records does not matter.
    let support = support(&[record(later(green())), record(fixture::run())], &known(1), &arches(), &tiers(), &[]);
    let execution = support.programs[0].cells[0].executions.values().next().unwrap();
    assert_eq!(execution.sustained(), "2 runs, 2026-11-21 to 2026-12-01");
    assert_eq!(execution.tally(Level::Must), Tally { passed: 1, known: 1, failed: 2, open: 2, skipped: 1 });
    assert_eq!(execution.newest(), "later");
}

#[test]
fn hostile_text_makes_no_html() {
    for text in fixture::hostile_texts() {
        let mut events = fixture::hostile(&text);
        events.push(fixture::built());
        let arch = Arch { name: text.clone(), title: text };
        let page = markdown(&support(&[record(events)], &known(1), &[arch], &tiers(), &[]));
        assert!(
            !page.contains("<a ") && !page.contains("<!--") && !page.contains(|c: char| c.is_control() && c != '\n'),
            "{page}"
        );
    }
}
