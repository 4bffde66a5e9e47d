//! Turns an event into the list of jobs, in the format of GitHub's `strategy.matrix`.

use std::collections::BTreeSet;

use model::{MatrixData, Mode, Runner, Target, Way};
use serde::Serialize;

use crate::changed::{Scope, scope};
use crate::event::{Event, Origin};
use crate::job::{Breadth, Job};
use crate::plan::{Plan, PlannedJob, Role};

/// GitHub's limit of jobs in one matrix.
pub const MOST_JOBS: usize = 256;

/// Minutes to inspect a machine, and to compile the harness if there is no archive for it.
const LOOK: u32 = 60;

/// The request for a matrix.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    pub targets: &'a [Target],
    pub data: &'a MatrixData,
    pub event: Event,
    pub origin: Origin,
    /// GOARCHes; empty means all.
    pub only: &'a [String],
    /// Whether self-hosted runners may be used.
    pub self_hosted: bool,
    /// Names of runners that this repository has in addition to those that the data marks as available.
    pub also: &'a [String],
    /// Names of self-hosted runners whose machines can also compile: they get a second job, from source.
    pub source: &'a [String],
    /// The best mode that is allowed; modes that prove more are left out.
    pub at_most: Mode,
    /// The files of the change; None: not known.
    pub changed: Option<&'a [String]>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Matrix {
    /// Ordered by id.
    pub include: Vec<Entry>,
    /// Why the matrix has these jobs, or no jobs.
    #[serde(skip)]
    pub reason: String,
    /// The reasons why an architecture does not use its best way.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// One job. `workflows/*.yml` read the keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    pub id: String,
    pub arch: String,
    /// The name of the runner in `targets/matrix.yaml`.
    pub machine: String,
    pub mode: Mode,
    pub runs_on: RunsOn,
    /// Minutes.
    pub timeout: u32,
    /// Whether GitHub shows a failure as a success.
    pub experimental: bool,
    pub self_hosted: bool,
    /// Whether the machine gets the harness and the components from a job on one of GitHub's machines.
    pub prebuilt: bool,
    pub role: Role,
    /// `--provider` of the run; None: the job only builds.
    #[serde(skip)]
    pub provider: Option<&'static str>,
    /// `2/3`: the shard of the checks that the job runs.
    #[serde(skip)]
    pub shard: Option<String>,
    /// For people: the command that `cargo xtask ci --like-ci ID` runs.
    pub command: String,
}

/// `runs-on` accepts one label or several.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RunsOn {
    One(String),
    All(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    #[error("{0} jobs exceed GitHub's limit of {MOST_JOBS} in one matrix; use fewer shards, or --only")]
    TooMany(usize),
    #[error("unknown runner `{given}`; valid: {}", .valid.join(", "))]
    UnknownRunner { given: String, valid: Vec<String> },
    #[error("{arch}: none of its `ci` ways can run here: {}", .why.join("; "))]
    NoWay { arch: String, why: Vec<String> },
    /// A bug in this program, found before the job could start.
    #[error("job {0} would run code of an untrusted author on a self-hosted runner")]
    Stranger(String),
}

/// The jobs for a request.
pub fn matrix(ask: &Ask<'_>) -> Result<Matrix, MatrixError> {
    let valid = || ask.data.runners.iter().map(|runner| runner.name.clone());
    if let Some(given) = ask.also.iter().chain(ask.source).find(|name| !valid().any(|valid| valid == **name)) {
        return Err(MatrixError::UnknownRunner { given: given.clone(), valid: valid().collect() });
    }
    let (concerned, reason) = concerned(ask);
    let mut matrix = Matrix { include: Vec::new(), reason, notes: Vec::new() };
    for target in concerned {
        add(&mut matrix, ask, target)?;
    }
    matrix.include.sort_by(|a, b| a.id.cmp(&b.id));
    if matrix.include.len() > MOST_JOBS {
        return Err(MatrixError::TooMany(matrix.include.len()));
    }
    guard(&matrix, ask)?;
    Ok(matrix)
}

/// One job for each kind of machine that the repository has. The jobs inspect the machines themselves.
pub fn machines(ask: &Ask<'_>) -> Result<Matrix, MatrixError> {
    let there = ask.data.runners.iter().filter(|runner| permitted(ask, Mode::Build, runner).is_ok());
    let has_archive = |arch: &str| ask.targets.iter().any(|target| target.name == arch && target.harness.is_some());
    let entry = |runner: &Runner| Entry {
        id: format!("{}-machine", runner.name),
        arch: runner.arch.clone(),
        machine: runner.name.clone(),
        mode: Mode::Native,
        runs_on: RunsOn::new(&runner.labels),
        timeout: LOOK,
        experimental: false,
        self_hosted: runner.owner.is_self_hosted(),
        prebuilt: runner.owner.is_self_hosted() && has_archive(&runner.arch),
        role: Role::Required,
        provider: None,
        shard: None,
        command: format!("cargo xtask doctor --arch {}", runner.arch),
    };
    let matrix =
        Matrix { include: there.map(entry).collect(), reason: "each kind of machine".into(), notes: Vec::new() };
    guard(&matrix, ask)?;
    Ok(matrix)
}

/// The architectures that get jobs, and the reason for this selection.
fn concerned<'a>(ask: &Ask<'a>) -> (Vec<&'a Target>, String) {
    let scope = ask.changed.map_or(Scope::Everything, |files| scope(files, ask.targets, ask.data));
    let wanted = |target: &&Target| ask.only.is_empty() || ask.only.contains(&target.name);
    let all = ask.targets.iter().filter(|target| target.ci.is_some()).filter(wanted);
    let asked = if ask.only.is_empty() { "all architectures" } else { "the requested architectures" };
    match scope {
        Scope::Everything => (all.collect(), asked.to_owned()),
        Scope::Documents => (Vec::new(), "only documents have changed: there is nothing to test".into()),
        Scope::Architectures(names) => {
            let reason = format!("only files of {} have changed", names.join(", "));
            (all.filter(|target| names.contains(&target.name)).collect(), reason)
        }
    }
}

/// The best way on a GitHub-hosted runner, and additionally the best way on a self-hosted runner if it proves more. A
/// self-hosted runner that can compile gets a second job, from source.
///
/// GitHub cancels a job for an offline runner only after 24 hours, so nothing may depend on such a job alone.
fn add(matrix: &mut Matrix, ask: &Ask<'_>, target: &Target) -> Result<(), MatrixError> {
    let Some(ci) = &target.ci else { return Ok(()) };
    let mut passed_over: Vec<(&Way, &str)> = Vec::new();
    let (mut best, mut from_source) = (None, None);
    for way in &ci.ways {
        let Some(runner) = ask.data.runners.iter().find(|runner| runner.name == way.runner) else { continue };
        if way.is_from_source() && !ask.source.contains(&runner.name) {
            continue;
        }
        if let Err(refusal) = permitted(ask, way.mode, runner).and_then(|()| in_time(ask, way)) {
            passed_over.push((way, refusal));
            continue;
        }
        if runner.owner.is_self_hosted() {
            let place = if way.is_from_source() { &mut from_source } else { &mut best };
            place.get_or_insert((way, runner));
            continue;
        }
        let note = |(over, why): &(&Way, &str)| {
            let source = if over.is_from_source() { " from source" } else { "" };
            format!("{}: not {}{source} on {}: {why}", target.name, over.mode, over.runner)
        };
        matrix.notes.extend(passed_over.iter().map(note));
        let role = if ci.experimental { Role::Experimental } else { Role::Required };
        let additional = best.into_iter().chain(from_source).filter(|(own, _)| own.mode < way.mode);
        let additional = additional.map(|(way, runner)| (way, runner, Role::Additional));
        for (way, runner, role) in additional.chain([(way, runner, role)]) {
            let jobs = Job::of(target, way, breadth(way.mode, ask.event));
            matrix.include.extend(jobs.iter().map(|job| entry(ask, job, way, runner, (role, ci.experimental))));
        }
        return Ok(());
    }
    let why = passed_over.iter().map(|(way, why)| format!("{} on {}: {why}", way.mode, way.runner));
    Err(MatrixError::NoWay { arch: target.name.clone(), why: why.collect() })
}

fn entry(ask: &Ask<'_>, job: &Job, way: &Way, runner: &Runner, (role, experimental): (Role, bool)) -> Entry {
    Entry {
        id: job.id(),
        arch: job.arch.clone(),
        machine: runner.name.clone(),
        mode: job.mode,
        runs_on: RunsOn::new(&runner.labels),
        timeout: way.minutes,
        experimental,
        self_hosted: runner.owner.is_self_hosted(),
        prebuilt: way.is_prebuilt(runner.owner),
        role,
        provider: job.provider(),
        shard: job.shard.map(|(i, n)| format!("{i}/{n}")),
        command: format!("cargo xtask {}", job.words(&ask.data.quick).join(" ")),
    }
}

/// Emulation is slow: if developers wait for the event, an emulated job runs only a part of the checks.
pub(crate) fn breadth(mode: Mode, event: Event) -> Breadth {
    if mode == Mode::Native || event.is_patient() { Breadth::Whole } else { Breadth::Quick }
}

/// Checks the availability first: a runner that the repository does not have is not withheld from a stranger.
fn permitted(ask: &Ask<'_>, mode: Mode, runner: &Runner) -> Result<(), &'static str> {
    let self_hosted = runner.owner.is_self_hosted();
    if mode < ask.at_most {
        return Err("a lower mode was requested");
    }
    if !runner.available && !ask.also.contains(&runner.name) {
        return Err("this repository does not have that runner");
    }
    if self_hosted && ask.origin == Origin::Stranger {
        return Err("pull requests by bots or from forks never run on self-hosted runners");
    }
    if self_hosted && !ask.self_hosted {
        return Err("self-hosted runners are disabled");
    }
    Ok(())
}

/// Compiling takes hours on a slow board: no developer waits for it.
fn in_time(ask: &Ask<'_>, way: &Way) -> Result<(), &'static str> {
    if way.is_from_source() && !ask.event.is_patient() {
        return Err("only a schedule or a manual start has jobs from source");
    }
    Ok(())
}

/// Checks only the labels, independent of the code that chose them.
fn guard(matrix: &Matrix, ask: &Ask<'_>) -> Result<(), MatrixError> {
    let hosted = ask.data.runners.iter().filter(|runner| !runner.owner.is_self_hosted());
    let hosted: Vec<RunsOn> = hosted.map(|runner| RunsOn::new(&runner.labels)).collect();
    let bad = |entry: &&Entry| entry.self_hosted || !hosted.contains(&entry.runs_on);
    match matrix.include.iter().find(bad) {
        Some(entry) if ask.origin == Origin::Stranger => Err(MatrixError::Stranger(entry.id.clone())),
        _ => Ok(()),
    }
}

impl RunsOn {
    fn new(labels: &[String]) -> RunsOn {
        match labels {
            [label] => RunsOn::One(label.clone()),
            _ => RunsOn::All(labels.to_vec()),
        }
    }
}

impl std::fmt::Display for RunsOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunsOn::One(label) => f.write_str(label),
            RunsOn::All(labels) => f.write_str(&labels.join(" + ")),
        }
    }
}

impl Matrix {
    /// The architectures whose checks the gate requires or reports as experimental.
    pub fn tested(&self) -> BTreeSet<&str> {
        let gated = |entry: &&Entry| entry.mode != Mode::Build && entry.role != Role::Additional;
        self.include.iter().filter(gated).map(|entry| entry.arch.as_str()).collect()
    }

    /// The matrix with only the jobs of this role.
    pub fn of(&self, role: Role) -> Matrix {
        let include = self.include.iter().filter(|entry| entry.role == role).cloned().collect();
        Matrix { include, reason: self.reason.clone(), notes: Vec::new() }
    }

    /// The jobs that check the project out and compile it.
    pub fn checked_out(&self) -> Matrix {
        let include = self.include.iter().filter(|entry| !entry.prebuilt).cloned().collect();
        Matrix { include, reason: self.reason.clone(), notes: Vec::new() }
    }

    /// The plan that the gate compares the results with.
    pub fn plan(&self, attempt: u32, workflow_run: Option<String>) -> Plan {
        let job = |entry: &Entry| PlannedJob {
            id: entry.id.clone(),
            arch: entry.arch.clone(),
            role: entry.role,
            provider: entry.provider.map(str::to_owned),
            shard: entry.shard.clone(),
        };
        Plan { attempt, workflow_run, jobs: self.include.iter().map(job).collect() }
    }

    /// The matrix as one line of JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
