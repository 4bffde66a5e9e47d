//! `results.json`: all results of a run, case by case, for programs. The format is stable.
//!
//! The types below define the file; `results.schema.json` is generated from them. Within a version, fields may be
//! added, so readers must ignore unknown fields. Removing a field or changing its meaning makes a new version.

use std::collections::BTreeMap;

use model::{Level, Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::counts::{Counts, Word};
use crate::hardware;
use crate::joint::{Attempt, Child};
use crate::text::{millis, pretty};
pub use crate::verdict::Verdict;
use crate::view::{Case, View};

/// The version that this program writes.
pub const SCHEMA_VERSION: u32 = 1;
/// The value of `$schema`: the file name of the schema.
const SCHEMA: &str = "results.schema.json";

/// One run, or several runs that belong together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    #[serde(rename = "$schema")]
    pub schema: String,
    /// 1.
    pub schema_version: u32,
    pub runs: Vec<RunResult>,
}

/// One run of the checks on one architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// Name of the run folder; empty for a run that did not begin.
    pub id: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// GOARCH under test.
    pub arch: String,
    /// How the components were run: `process`, `qemu`, …
    pub provider: String,
    /// Version of the harness.
    pub harness: String,
    /// `uname -srm` of the host.
    pub host: String,
    /// Where each component set came from.
    pub sources: BTreeMap<String, String>,
    /// The seed of all random choices.
    pub seed: u64,
    /// `2/4`: the second of four parts of the selected cases; null: all selected cases.
    pub shard: Option<String>,
    /// The command line that repeats the run.
    pub command: String,
    pub verdict: Verdict,
    /// Why the run did not begin, or what is wrong with its record; null if there is no problem.
    pub trouble: Option<String>,
    /// Why the result is incomplete; null if it is complete.
    pub cut_short: Option<String>,
    /// Duration of the run; null if the run was killed.
    pub seconds: Option<f64>,
    /// `native`, or the emulator; null if the run did not boot.
    pub execution: Option<String>,
    /// Measured slowdown, relative to the machine for which the deadlines were chosen; null if the run did not boot.
    pub factor: Option<f64>,
    /// Versions that the servers report.
    pub versions: BTreeMap<String, String>,
    /// The system VM; null without one.
    pub machine: Option<MachineResult>,
    /// What the run could not show, because of its hardware and its emulator. Absent in files of older versions.
    #[serde(default)]
    pub not_shown: Vec<String>,
    pub components: Vec<ComponentResult>,
    pub phases: Vec<PhaseResult>,
    /// Number of planned cases.
    pub planned: usize,
    pub counts: Counts,
    /// Ordered by name; names are unique.
    pub cases: Vec<CaseResult>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The system VM that the components ran in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineResult {
    pub emulator: String,
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// Why this accelerator was chosen.
    pub reason: String,
    pub kernel: String,
    pub cpus: u8,
    pub memory_mib: u32,
    /// Whether the VM was restored from a memory snapshot.
    pub warm: bool,
    /// Time from the start of the emulator to the first answered request.
    pub seconds: f64,
}

/// A program that was tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentResult {
    pub name: String,
    pub version: String,
    /// The Go release that built the program.
    pub go: String,
    pub sha256: String,
    pub source: String,
}

/// A phase: `fetch`, `build`, `boot`, `suite` or `teardown`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseResult {
    pub name: String,
    pub outcome: Word,
    /// Empty if the phase passed.
    pub message: String,
    /// Null if the phase never finished.
    pub seconds: Option<f64>,
}

/// One check on one profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseResult {
    /// Stable across runs: the check's id, followed by the profile in brackets unless it is the check's first profile.
    pub name: String,
    /// The check's id; empty if the case never finished.
    pub check: String,
    /// The part of the id before the first dot.
    pub group: String,
    pub profile: String,
    /// Null if the case never finished.
    pub level: Option<LevelWord>,
    pub requirement: String,
    /// The source of the requirement.
    pub source: String,
    pub outcome: Word,
    /// The violation, the unmet need or the error; empty if the case passed.
    pub message: String,
    /// The evidence for the message, line by line.
    pub evidence: Vec<String>,
    /// The issue of an expected failure, or of an unexpected pass.
    pub issue: Option<String>,
    pub seconds: f64,
    /// Numbers of what the case exercised: operations, events, streams and so on.
    pub counters: BTreeMap<String, u64>,
    /// The command that repeats only this case.
    pub repeat: String,
    /// Results of the same case in other attempts, which do not count. Only present after a merge.
    pub attempts: Vec<AttemptResult>,
}

/// A result that was replaced by the result of another attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptResult {
    pub run: String,
    pub outcome: Word,
    pub message: String,
    pub seconds: f64,
}

/// How strong a requirement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LevelWord {
    Must,
    Should,
    Extra,
}

impl Results {
    /// The results of runs that belong together. For a single run, pass a list of one.
    pub fn of(children: &[Child]) -> Results {
        let runs = children.iter().map(RunResult::of).collect();
        Results { schema: SCHEMA.into(), schema_version: SCHEMA_VERSION, runs }
    }

    /// Pretty JSON with a final newline; equal events give equal bytes.
    pub fn json(&self) -> String {
        pretty(self)
    }

    /// The JSON Schema of the file.
    pub fn schema() -> String {
        let mut schema = schemars::schema_for!(Results);
        schema.insert("title".into(), "Archproof results".into());
        pretty(&schema)
    }
}

impl RunResult {
    fn of(child: &Child) -> RunResult {
        let view = View::of(&child.events);
        let run = view.run;
        let text = |get: fn(&model::RunInfo) -> &String| run.map(|run| get(run).clone()).unwrap_or_default();
        let booted = view.booted.as_ref();
        RunResult {
            id: text(|run| &run.id),
            started: view.started.to_owned(),
            arch: child.arch.clone(),
            provider: child.provider.clone(),
            harness: text(|run| &run.harness),
            host: text(|run| &run.host),
            sources: run.map(|run| run.sources.clone()).unwrap_or_default(),
            seed: run.map_or(0, |run| run.seed),
            shard: run.and_then(|run| run.shard.clone()),
            command: text(|run| &run.command),
            verdict: Verdict::of(child.exit),
            trouble: child.trouble.clone(),
            cut_short: view.cut_short(),
            seconds: view.finished.map(|(_, seconds)| rounded(seconds)),
            execution: booted.map(|booted| booted.execution.to_owned()),
            factor: booted.map(|booted| booted.factor),
            versions: booted.map(|booted| booted.versions.clone()).unwrap_or_default(),
            machine: view.machine().map(MachineResult::of),
            not_shown: hardware::not_shown(&view),
            components: view.artifacts.iter().map(|artifact| ComponentResult::of(artifact)).collect(),
            phases: view.phases.iter().map(PhaseResult::of).collect(),
            planned: view.planned,
            counts: view.cases.iter().map(|case| Word::of(&case.outcome)).collect(),
            cases: view.cases.iter().map(|case| CaseResult::of(case, child.earlier.get(case.name))).collect(),
            notes: view.notes.iter().map(|note| (*note).to_owned()).collect(),
        }
    }

    /// The architecture, with the properties that distinguish this run from others on the same architecture.
    pub fn label(&self) -> String {
        let shard = self.shard.as_ref().map_or_else(String::new, |shard| format!(", shard {shard}"));
        format!("{}, {}{shard}", self.arch, self.provider)
    }
}

impl MachineResult {
    fn of(machine: &model::MachineInfo) -> MachineResult {
        MachineResult {
            emulator: machine.emulator.clone(),
            accelerator: machine.accelerator.clone(),
            reason: machine.reason.clone(),
            kernel: machine.kernel.clone(),
            cpus: machine.cpus,
            memory_mib: machine.memory_mib,
            warm: machine.warm,
            seconds: rounded(machine.seconds),
        }
    }
}

impl ComponentResult {
    fn of(artifact: &model::Artifact) -> ComponentResult {
        ComponentResult {
            name: artifact.component.clone(),
            version: artifact.version.clone(),
            go: artifact.go.clone(),
            sha256: artifact.sha256.clone(),
            source: artifact.source.to_string(),
        }
    }
}

impl PhaseResult {
    fn of(phase: &crate::view::Phase<'_>) -> PhaseResult {
        let outcome = phase.outcome();
        PhaseResult {
            name: phase.name.to_owned(),
            outcome: Word::of(&outcome),
            message: outcome.message(),
            seconds: phase.ended.map(|_| rounded(phase.seconds)),
        }
    }
}

impl CaseResult {
    fn of(case: &Case<'_>, earlier: Option<&Vec<Attempt>>) -> CaseResult {
        let facts = case.facts.as_ref();
        let issue = match &*case.outcome {
            Outcome::ExpectedFailure { issue, .. } | Outcome::UnexpectedPass { issue } => Some(issue.clone()),
            _ => None,
        };
        CaseResult {
            name: case.name.to_owned(),
            check: facts.map_or("", |facts| facts.check).to_owned(),
            group: case.group.to_owned(),
            profile: facts.map_or("", |facts| facts.profile).to_owned(),
            level: facts.map(|facts| facts.level.into()),
            requirement: facts.map_or("", |facts| facts.requirement).to_owned(),
            source: facts.map_or("", |facts| facts.source).to_owned(),
            outcome: Word::of(&case.outcome),
            message: case.outcome.message(),
            evidence: case.outcome.evidence().to_vec(),
            issue,
            seconds: rounded(case.seconds),
            counters: facts.map(|facts| facts.counters.clone()).unwrap_or_default(),
            repeat: case.repeat().to_owned(),
            attempts: earlier.into_iter().flatten().map(AttemptResult::of).collect(),
        }
    }

    /// The case passed, and another attempt of it did not.
    pub fn is_flaky(&self) -> bool {
        self.outcome == Word::Passed && self.attempts.iter().any(|attempt| attempt.outcome.is_red())
    }
}

impl AttemptResult {
    fn of(attempt: &Attempt) -> AttemptResult {
        AttemptResult {
            run: attempt.run.clone(),
            outcome: Word::of(&attempt.outcome),
            message: attempt.outcome.message(),
            seconds: rounded(attempt.seconds),
        }
    }
}

impl From<Level> for LevelWord {
    fn from(level: Level) -> LevelWord {
        match level {
            Level::Must => LevelWord::Must,
            Level::Should => LevelWord::Should,
            Level::Extra => LevelWord::Extra,
        }
    }
}

/// Rounded to milliseconds. A value that is not a duration becomes 0.
fn rounded(seconds: f64) -> f64 {
    millis(seconds) as f64 / 1000.0
}

#[cfg(test)]
mod tests;
