//! Validates report files by the project's rules: JUnit, results.json, events.jsonl, history.
//!
//! The rules for JUnit are in `junit`. They describe what consumers read, which is less than a schema allows.

mod junit;

use anyhow::{Result, bail};
use report::Flavour;
use report::results::{Counts, Results, RunResult, SCHEMA_VERSION};

use crate::history;

/// The number of problems that are listed; more are only counted.
const SHOWN: usize = 50;

/// The problems of the file, one per line; empty if it is valid. Errors: the file is not of a kind that is known here.
pub(crate) fn validate(name: &str, bytes: &[u8], flavour: Flavour) -> Result<Vec<String>> {
    let faults = match bytes.trim_ascii_start().first() {
        _ if name.ends_with(".xml") => junit::faults(bytes, flavour),
        None => vec!["the file is empty".into()],
        Some(b'<') => junit::faults(bytes, flavour),
        Some(b'{') if name.ends_with(".ndjson") => of_history(bytes),
        Some(b'{') if name.ends_with(".jsonl") => told(report::parse(bytes)),
        Some(b'{') => of_results(bytes),
        Some(_) => bail!("the file is neither JUnit nor results.json, events.jsonl or history"),
    };
    let more = faults.len().saturating_sub(SHOWN);
    let mut shown: Vec<String> = faults.into_iter().take(SHOWN).collect();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    Ok(shown)
}

fn told<T>(result: Result<T>) -> Vec<String> {
    result.err().map(|error| format!("{error:#}")).into_iter().collect()
}

fn of_history(bytes: &[u8]) -> Vec<String> {
    match std::str::from_utf8(bytes) {
        Ok(text) => told(history::entries(text)),
        Err(error) => vec![error.to_string()],
    }
}

fn of_results(bytes: &[u8]) -> Vec<String> {
    let version = serde_json::from_slice::<serde_json::Value>(bytes).map(|value| value["schema_version"].clone());
    match version {
        Err(error) => return vec![error.to_string()],
        Ok(version) if version != SCHEMA_VERSION => {
            return vec![format!("schema_version is {version}, but only {SCHEMA_VERSION} is known")];
        }
        Ok(_) => {}
    }
    match serde_json::from_slice::<Results>(bytes) {
        Ok(results) if results.runs.is_empty() => vec!["the file has no run".into()],
        Ok(results) => results.runs.iter().flat_map(of_run).collect(),
        Err(error) => vec![error.to_string()],
    }
}

/// Rules that a schema cannot express.
fn of_run(run: &RunResult) -> Vec<String> {
    let mut faults = Vec::new();
    let counted: Counts = run.cases.iter().map(|case| case.outcome).collect();
    if counted != run.counts {
        faults.push(format!("counts say {}, but the cases are {}", run.counts.sentence(), counted.sentence()));
    }
    for pair in run.cases.windows(2) {
        if pair[0].name >= pair[1].name {
            faults.push(format!("case {} must come before {}", pair[1].name, pair[0].name));
        }
    }
    let red = run.cases.iter().find(|case| case.outcome.is_red());
    if let Some(case) = red.filter(|_| run.verdict.is_ok()) {
        faults.push(format!("the verdict is ok, but {} {}", case.name, case.outcome.text()));
    }
    if run.verdict.is_ok() && (run.cut_short.is_some() || counted.total() == 0 || run.planned > counted.total()) {
        faults.push("the verdict is ok, but the run is incomplete or has no case".into());
    }
    for case in run.cases.iter().filter(|case| case.outcome.is_red() && case.message.is_empty()) {
        faults.push(format!("case {} {} without a message", case.name, case.outcome.text()));
    }
    let label = run.label();
    faults.into_iter().map(|fault| format!("{label}: {fault}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Exit;
    use report::results::Verdict;
    use report::{Child, Joint, JunitOptions};

    use crate::fixture;

    fn files(events: Vec<model::Event>) -> Vec<(&'static str, Vec<u8>)> {
        let results = Results::of(&[Child::of(events.clone())]).json().into_bytes();
        vec![("junit.xml", report::junit(&events, &JunitOptions::default()).unwrap()), ("results.json", results)]
    }

    #[test]
    fn written_files_are_valid() {
        let whole = fixture::run();
        let mut runs: Vec<Vec<model::Event>> = (0..whole.len()).map(|end| whole[..end].to_vec()).collect();
        runs.extend([whole, fixture::run_in_machine()]);
        for events in runs {
            for (name, bytes) in files(events) {
                assert_eq!(validate(name, &bytes, Flavour::Strict).unwrap(), Vec::<String>::new(), "{name}");
            }
        }
    }

    #[test]
    fn every_flavour_of_every_hostile_text_is_valid() {
        for text in fixture::hostile_texts() {
            let events = fixture::hostile(&text);
            let earlier = [("x", model::Outcome::failed(&text)), ("y", model::Outcome::errored(&text, &text))];
            let attempt =
                |(run, outcome): (&str, model::Outcome)| report::Attempt { run: run.into(), outcome, seconds: -1.0 };
            let earlier = [(text.clone(), earlier.map(attempt).to_vec())].into();
            let children = vec![Child { earlier, ..Child::of(events.clone()) }];
            let (id, started, command) = (text.clone(), text.clone(), text.clone());
            let joint = Joint { id, started, command, jobs: 1, children, ..Joint::default() };
            for flavour in [Flavour::Strict, Flavour::Surefire, Flavour::Extended] {
                let locations = [(text.clone(), (text.clone(), 7))].into();
                let options = JunitOptions { flavour, locations };
                let own = report::junit(&events, &options).unwrap();
                let joint = report::joint_junit(&joint, &options).unwrap();
                let stages = report::stages(&events, &options).unwrap().into_iter().map(|(_, bytes)| bytes);
                for bytes in [own, joint].into_iter().chain(stages) {
                    let faults = validate("junit.xml", &bytes, flavour).unwrap();
                    assert_eq!(faults, Vec::<String>::new(), "{flavour:?} {text:.80?}");
                }
            }
        }
    }

    #[test]
    fn ten_thousand_cases_with_long_texts_stay_below_the_size_limit() {
        let mut events = vec![fixture::started(), fixture::planned(10_000)];
        for number in 0..10_000 {
            let outcome = model::Outcome::failed("x".repeat(10_000));
            events.push(fixture::case(&format!("watch.n{number:05}"), outcome));
        }
        events.push(fixture::finished(model::Exit::Conformance));
        let bytes = report::junit(&events, &JunitOptions::default()).unwrap();
        assert!(bytes.len() < 30 << 20, "{} bytes", bytes.len());
        assert_eq!(validate("junit.xml", &bytes, Flavour::Strict).unwrap(), Vec::<String>::new());
        let report = quick_junit::Report::deserialize_from_str(std::str::from_utf8(&bytes).unwrap()).unwrap();
        assert_eq!(report.test_suites.iter().map(|suite| suite.test_cases.len()).sum::<usize>(), 10_001);
    }

    #[test]
    fn contradictory_result_is_refused() {
        let good = Results::of(&[Child::of(fixture::run())]);
        let with = |change: fn(&mut RunResult)| {
            let mut results = good.clone();
            change(&mut results.runs[0]);
            results.json()
        };
        let green = |run: &mut RunResult| run.verdict = Verdict::of(Exit::Ok);
        let table = [
            (with(|run| run.counts.passed += 1), "counts say"),
            (with(|run| run.cases.reverse()), "must come before"),
            (with(green), "the verdict is ok, but rv.e timed out"),
            (with(|run| (run.verdict, run.planned) = (Verdict::of(Exit::Ok), 8)), "the run is incomplete"),
            (with(|run| run.cases[2].message.clear()), "without a message"),
            (good.json().replace("\"schema_version\": 1", "\"schema_version\": 2"), "schema_version is 2"),
            (good.json().replace("\"seed\": 42", "\"seed\": -1"), "invalid value"),
            ("{\"$schema\": \"\", \"schema_version\": 1, \"runs\": []}".into(), "no run"),
            (good.json()[..500].into(), "EOF"),
        ];
        for (text, part) in table {
            let faults = validate("results.json", text.as_bytes(), Flavour::Strict).unwrap();
            assert!(faults.iter().any(|fault| fault.contains(part)), "{part}: {faults:?}");
        }
    }

    #[test]
    fn file_kind_depends_on_the_name() {
        let event = serde_json::to_string(&fixture::started()).unwrap() + "\n";
        assert_eq!(validate("events.jsonl", event.as_bytes(), Flavour::Strict).unwrap(), Vec::<String>::new());
        assert_eq!(validate("events.jsonl", b"{}\n", Flavour::Strict).unwrap().len(), 1);
        assert_eq!(validate("2026-11.ndjson", b"{}\n", Flavour::Strict).unwrap().len(), 1);
        assert_eq!(validate("x.xml", b"", Flavour::Strict).unwrap(), ["the file is empty"]);
        assert!(validate("x", b"PK", Flavour::Strict).is_err());
    }
}
