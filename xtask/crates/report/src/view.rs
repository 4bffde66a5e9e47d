//! Orders a list of events: what ran, how it ended, what never ended. Every report file renders this view.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::{Artifact, Event, Exit, Hardware, Level, MachineInfo, Outcome, RunInfo};

use crate::counts::{Counts, Word};

/// One run.
#[derive(Default)]
pub struct View<'a> {
    pub run: Option<&'a RunInfo>,
    /// In the order of their start.
    pub phases: Vec<Phase<'a>>,
    /// Ordered by name, independent of concurrency.
    pub cases: Vec<Case<'a>>,
    /// The last `Booted` event.
    pub booted: Option<Booted<'a>>,
    pub artifacts: Vec<&'a Artifact>,
    pub notes: Vec<&'a str>,
    pub planned: usize,
    pub finished: Option<(Exit, f64)>,
    /// The start of the run, or of its first event; empty without events.
    pub started: &'a str,
}

pub struct Phase<'a> {
    pub name: &'a str,
    /// None: the phase never finished.
    pub ended: Option<&'a Outcome>,
    pub seconds: f64,
}

pub struct Case<'a> {
    pub name: &'a str,
    pub group: &'a str,
    /// None: the case started, but never finished.
    pub facts: Option<Facts<'a>>,
    pub outcome: Cow<'a, Outcome>,
    pub seconds: f64,
}

/// The data of `CaseFinished` except the outcome.
pub struct Facts<'a> {
    pub check: &'a str,
    pub profile: &'a str,
    pub level: Level,
    pub requirement: &'a str,
    pub source: &'a str,
    pub counters: &'a BTreeMap<String, u64>,
    pub repeat: &'a str,
}

pub struct Booted<'a> {
    pub execution: &'a str,
    pub factor: f64,
    pub versions: &'a BTreeMap<String, String>,
    pub machine: Option<&'a MachineInfo>,
    /// None: unknown, as in records of older versions.
    pub hardware: Option<&'a Hardware>,
}

impl<'a> View<'a> {
    pub fn of(events: &'a [Event]) -> View<'a> {
        let mut view = View::default();
        let mut running: BTreeMap<&str, usize> = BTreeMap::new();
        for event in events {
            view.add(event, &mut running);
        }
        for (name, times) in running {
            for _ in 0..times {
                view.cases.push(Case::unfinished(name));
            }
        }
        view.cases.sort_by_key(|case| case.name);
        view
    }

    fn add(&mut self, event: &'a Event, running: &mut BTreeMap<&'a str, usize>) {
        if self.started.is_empty() {
            self.started = at(event);
        }
        match event {
            Event::RunStarted { run, .. } => {
                self.started = &run.started;
                self.run = Some(run);
            }
            Event::PhaseStarted { phase, .. } => self.phases.push(Phase { name: phase, ended: None, seconds: 0.0 }),
            Event::PhaseFinished { phase, outcome, seconds, .. } => self.end_phase(phase, outcome, *seconds),
            Event::Built { artifact, .. } => self.artifacts.push(artifact),
            Event::Booted { execution, factor, versions, machine, hardware, .. } => {
                let (machine, hardware) = (machine.as_deref(), hardware.as_deref());
                self.booted = Some(Booted { execution, factor: *factor, versions, machine, hardware });
            }
            Event::SuitePlanned { cases, .. } => self.planned = self.planned.saturating_add(*cases),
            Event::CaseStarted { case, .. } => *running.entry(case).or_default() += 1,
            Event::CaseFinished {
                at: _,
                case,
                check,
                profile,
                level,
                requirement,
                source,
                outcome,
                seconds,
                counters,
                repeat,
            } => {
                if let Some(times) = running.get_mut(case.as_str()) {
                    *times = times.saturating_sub(1);
                }
                let facts = Facts { check, profile, level: *level, requirement, source, counters, repeat };
                self.cases.push(Case {
                    name: case,
                    group: group(check),
                    facts: Some(facts),
                    outcome: Cow::Borrowed(outcome),
                    seconds: *seconds,
                });
            }
            Event::Note { text, .. } => self.notes.push(text),
            Event::ProcessorTime { .. } => {}
            Event::RunFinished { exit, seconds, .. } => self.finished = Some((*exit, *seconds)),
        }
    }

    fn end_phase(&mut self, name: &'a str, outcome: &'a Outcome, seconds: f64) {
        let ended = Phase { name, ended: Some(outcome), seconds };
        match self.phases.iter_mut().rev().find(|phase| phase.name == name && phase.ended.is_none()) {
            Some(phase) => *phase = ended,
            None => self.phases.push(ended),
        }
    }

    pub fn arch(&self) -> &'a str {
        self.run.map_or("unknown", |run| &run.arch)
    }

    pub fn provider(&self) -> &'a str {
        self.run.map_or("unknown", |run| &run.provider)
    }

    /// Why the result is incomplete: the run has no end or was interrupted, or a phase or case has no result.
    pub fn cut_short(&self) -> Option<String> {
        let phases =
            self.phases.iter().filter(|phase| phase.ended.is_none()).map(|phase| format!("phase {}", phase.name));
        let cases = self.cases.iter().filter(|case| case.facts.is_none()).map(|case| format!("case {}", case.name));
        let open: Vec<String> = phases.chain(cases).collect();
        let why = match self.finished {
            None => "the events have no end: the harness was killed",
            Some((Exit::Interrupted, _)) => "it was interrupted",
            Some(_) if !open.is_empty() => "a phase or case never finished",
            Some(_) if self.missing() > 0 => {
                return Some(format!("run was cut short: {} planned cases have no result", self.missing()));
            }
            Some(_) => return None,
        };
        let open = if open.is_empty() { String::new() } else { format!("; unfinished: {}", open.join(", ")) };
        Some(format!("run was cut short: {why}{open}"))
    }

    /// The number of planned cases without any event.
    pub fn missing(&self) -> usize {
        self.planned.saturating_sub(self.cases.len())
    }

    /// The system VM, if it has booted.
    pub fn machine(&self) -> Option<&'a MachineInfo> {
        self.booted.as_ref().and_then(|booted| booted.machine)
    }

    /// The processors and the memory under the components, if they are known.
    pub fn hardware(&self) -> Option<&'a Hardware> {
        self.booted.as_ref().and_then(|booted| booted.hardware)
    }

    /// Whether at least one case says something about the product or the environment. A skip does not.
    pub fn anything_ran(&self) -> bool {
        self.cases.iter().any(|case| !matches!(*case.outcome, Outcome::Skipped { .. }))
    }

    pub fn counts(&self) -> Counts {
        self.cases.iter().map(|case| Word::of(&case.outcome)).collect()
    }

    pub fn by_group(&self) -> BTreeMap<&'a str, Vec<&Case<'a>>> {
        let mut groups: BTreeMap<&str, Vec<&Case<'_>>> = BTreeMap::new();
        for case in &self.cases {
            groups.entry(case.group).or_default().push(case);
        }
        groups
    }
}

impl<'a> Case<'a> {
    fn unfinished(name: &'a str) -> Case<'a> {
        let outcome = Outcome::errored("suite", "the run ended while this case was running");
        Case { name, group: group(name), facts: None, outcome: Cow::Owned(outcome), seconds: 0.0 }
    }

    pub fn repeat(&self) -> &'a str {
        self.facts.as_ref().map_or("", |facts| facts.repeat)
    }
}

impl Facts<'_> {
    pub fn level_word(&self) -> &'static str {
        match self.level {
            Level::Must => "must",
            Level::Should => "should",
            Level::Extra => "extra",
        }
    }
}

impl Phase<'_> {
    /// The outcome of the phase, or an error if the phase never finished.
    pub fn outcome(&self) -> Cow<'_, Outcome> {
        match self.ended {
            Some(outcome) => Cow::Borrowed(outcome),
            None => Cow::Owned(Outcome::errored(self.name, "the run ended during this phase")),
        }
    }
}

/// The time of the event.
pub fn at(event: &Event) -> &str {
    match event {
        Event::RunStarted { at, .. }
        | Event::PhaseStarted { at, .. }
        | Event::PhaseFinished { at, .. }
        | Event::Built { at, .. }
        | Event::Booted { at, .. }
        | Event::SuitePlanned { at, .. }
        | Event::CaseStarted { at, .. }
        | Event::CaseFinished { at, .. }
        | Event::Note { at, .. }
        | Event::ProcessorTime { at, .. }
        | Event::RunFinished { at, .. } => at,
    }
}

/// `storage` of `storage.key-layout`.
fn group(id: &str) -> &str {
    match id.split_once('.') {
        Some((group, _)) if !group.is_empty() => group,
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_from_the_id() {
        let table = [("storage.key-layout", "storage"), ("rv.x.y[json]", "rv"), ("odd", "other"), (".x", "other")];
        for (id, wanted) in table {
            assert_eq!(group(id), wanted);
        }
    }
}
