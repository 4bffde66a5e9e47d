//! `run.json`: a summary of the run for programs: what ran and how it ended. `events.jsonl` contains the cases.

use std::collections::BTreeMap;

use model::{Artifact, Event, Hardware, MachineInfo, RunInfo};
use serde::Serialize;

use crate::counts::{Counts, Word};
use crate::text::pretty;
use crate::verdict::{self, Verdict};
use crate::view::View;

/// The fields are in the order of the written keys.
#[derive(Serialize)]
struct RunFile<'a> {
    /// None: the log has no start event.
    run: Option<&'a RunInfo>,
    exit: Verdict,
    /// Why the result is incomplete; null if it is complete.
    cut_short: Option<String>,
    /// Duration of the run; null if the run was killed.
    seconds: Option<f64>,
    execution: Option<&'a str>,
    factor: Option<f64>,
    /// Versions that the servers report.
    versions: BTreeMap<String, String>,
    /// The system VM; null without one.
    machine: Option<&'a MachineInfo>,
    /// The processors and the memory under the components; null if they are unknown.
    hardware: Option<&'a Hardware>,
    artifacts: Vec<&'a Artifact>,
    phases: Vec<PhaseEntry<'a>>,
    planned: usize,
    counts: BTreeMap<&'static str, usize>,
    groups: BTreeMap<&'a str, BTreeMap<&'static str, usize>>,
    notes: &'a [&'a str],
}

#[derive(Serialize)]
struct PhaseEntry<'a> {
    phase: &'a str,
    outcome: &'static str,
    /// Null if the phase never finished.
    seconds: Option<f64>,
}

/// Pretty JSON with a final newline; equal events give equal bytes.
pub fn run_json(events: &[Event]) -> String {
    let view = View::of(events);
    let booted = view.booted.as_ref();
    pretty(&RunFile {
        run: view.run,
        exit: Verdict::of(verdict::exit(events)),
        cut_short: view.cut_short(),
        seconds: view.finished.map(|(_, seconds)| seconds),
        execution: booted.map(|booted| booted.execution),
        factor: booted.map(|booted| booted.factor),
        versions: booted.map(|booted| booted.versions.clone()).unwrap_or_default(),
        machine: view.machine(),
        hardware: view.hardware(),
        artifacts: view.artifacts.clone(),
        phases: view.phases.iter().map(phase).collect(),
        planned: view.planned,
        counts: view.counts().iter().collect(),
        groups: groups(&view),
        notes: &view.notes,
    })
}

fn phase<'a>(phase: &crate::view::Phase<'a>) -> PhaseEntry<'a> {
    PhaseEntry { phase: phase.name, outcome: phase.outcome().word(), seconds: phase.ended.map(|_| phase.seconds) }
}

fn groups<'a>(view: &View<'a>) -> BTreeMap<&'a str, BTreeMap<&'static str, usize>> {
    // All counts including zeros, so that a reader need not know the outcome words.
    let count = |cases: Vec<&crate::view::Case<'a>>| {
        let counts: Counts = cases.iter().map(|case| Word::of(&case.outcome)).collect();
        counts.iter().collect()
    };
    view.by_group().into_iter().map(|(group, cases)| (group, count(cases))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn summarises_run_and_verdict() {
        let value: serde_json::Value = serde_json::from_str(&run_json(&fixture::run())).unwrap();
        assert_eq!(value["run"]["arch"], "mix64");
        assert_eq!(value["exit"]["code"], 100);
        assert_eq!(value["exit"]["name"], "conformance");
        assert_eq!(value["cut_short"], serde_json::Value::Null);
        assert_eq!(value["versions"]["etcd"], "3.6.16");
        assert_eq!(value["machine"], serde_json::Value::Null);
        assert_eq!(value["artifacts"][0]["component"], "etcd");
        assert_eq!(value["phases"][3]["phase"], "teardown");
        assert_eq!(value["counts"]["timed out"], 1);
        assert_eq!(value["groups"]["watch"]["failed"], 1);
        assert_eq!(value["groups"]["watch"]["skipped"], 0);
    }

    #[test]
    fn machine_has_all_its_packages() {
        let value: serde_json::Value = serde_json::from_str(&run_json(&fixture::run_in_machine())).unwrap();
        assert_eq!(value["machine"]["accelerator"], "tcg");
        assert_eq!(value["machine"]["warm"], true);
        assert_eq!(value["machine"]["packages"][0]["name"], "busybox-static");
    }

    #[test]
    fn hardware_has_facts_and_the_description_of_the_architecture() {
        let value: serde_json::Value = serde_json::from_str(&run_json(&fixture::run_in_machine())).unwrap();
        let hardware = &value["hardware"];
        assert_eq!((&hardware["page_size"], &hardware["cpu_model"]), (&4096.into(), &"Mix One".into()));
        assert_eq!(hardware["emulator"]["threads"], "multi");
        assert_eq!(hardware["processors"]["weak_memory"], true);
        let value: serde_json::Value = serde_json::from_str(&run_json(&[fixture::started()])).unwrap();
        assert_eq!(value["hardware"], serde_json::Value::Null);
    }

    #[test]
    fn killed_run_is_marked() {
        let events = fixture::run();
        let value: serde_json::Value = serde_json::from_str(&run_json(&events[..events.len() - 6])).unwrap();
        assert_eq!(value["exit"]["code"], 130);
        assert!(value["cut_short"].as_str().unwrap().contains("case cc.g[json]"), "{value}");
        assert_eq!(value["seconds"], serde_json::Value::Null);
        let suite = &value["phases"][2];
        assert_eq!((&suite["outcome"], &suite["seconds"]), (&"errored".into(), &serde_json::Value::Null));
    }
}
