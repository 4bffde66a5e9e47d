//! The events of a run, one per line in `events.jsonl`. Every report file is made from these and from nothing else.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Artifact, Exit, Hardware, Level, MachineInfo, Outcome};

/// UTC, `YYYY-MM-DDTHH:MM:SS.mmmZ`.
pub type Timestamp = String;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// Always the first.
    RunStarted {
        at: Timestamp,
        run: RunInfo,
    },
    PhaseStarted {
        at: Timestamp,
        phase: String,
    },
    /// A phase (`build`, `boot`, `suite`, `teardown`) is a case in the reports.
    PhaseFinished {
        at: Timestamp,
        phase: String,
        outcome: Outcome,
        seconds: f64,
    },
    /// The result of the build stage.
    Built {
        at: Timestamp,
        artifact: Artifact,
    },
    /// Facts that are known only after boot: execution, factor, and the versions that the servers report.
    Booted {
        at: Timestamp,
        execution: String,
        factor: f64,
        versions: BTreeMap<String, String>,
        /// The system VM, if there is one.
        machine: Option<Box<MachineInfo>>,
        /// None: unknown, as in records of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hardware: Option<Box<Hardware>>,
    },
    /// How many cases follow.
    SuitePlanned {
        at: Timestamp,
        cases: usize,
        seed: u64,
    },
    CaseStarted {
        at: Timestamp,
        case: String,
    },
    CaseFinished {
        at: Timestamp,
        /// Stable across runs: `storage.key-layout`, or `storage.roundtrip[json]` away from the check's first profile.
        case: String,
        check: String,
        profile: String,
        level: Level,
        requirement: String,
        source: String,
        outcome: Outcome,
        seconds: f64,
        /// What the case exercised, by name: operations, events, streams, resumes.
        counters: BTreeMap<String, u64>,
        /// The command that repeats only this.
        repeat: String,
    },
    /// A message for the reader: a warning, a residue, a correction.
    Note {
        at: Timestamp,
        text: String,
    },
    /// The processor time of the run by part, in seconds. That of components is measured where they run.
    ProcessorTime {
        at: Timestamp,
        parts: BTreeMap<String, f64>,
    },
    /// Always the last, unless the harness was killed.
    RunFinished {
        at: Timestamp,
        exit: Exit,
        seconds: f64,
    },
}

/// The facts known before anything starts: `run.json` is this plus what `Built` and `Booted` add.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Name of the run folder.
    pub id: String,
    pub started: Timestamp,
    /// Version of the harness and, if known, its commit.
    pub harness: String,
    /// GOARCH under test, or a variant of it: `ARCH-VARIANT`, see [`Target::label`](crate::Target::label).
    pub arch: String,
    pub provider: String,
    /// `uname -srm` of the host.
    pub host: String,
    /// Source spec of each component set.
    pub sources: BTreeMap<String, String>,
    pub seed: u64,
    /// `2/4`: the second of four parts of the selection. None: the whole selection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The CI job that the run belongs to. None: the run was not started as a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<CiJob>,
    /// The command line that repeats the run.
    pub command: String,
}

/// A CI job, as a run claims it. The gate compares the claim with the plan and with the name of the artifact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CiJob {
    /// Id in the plan: `ARCH-vm-1of2`.
    pub id: String,
    /// Attempt of the workflow run, from 1.
    pub attempt: u32,
    /// GitHub's id of the workflow run, which belongs to one commit. None: GitHub did not start the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_run: Option<String>,
}
