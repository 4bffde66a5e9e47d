//! One run of one commit: the command line of `ci`, and the conclusion from its exit code and its results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use cli::{Failure, OrExit, Paths};
use model::Exit;
use report::results::{CaseResult, RunResult, Word};
use report::text::{cut_middle, plain, plain_line};
use report::{Results, text};
use sys::exec::{self, ExecError, Shell, cmd};
use sys::progress::Phase;
use sys::{foreign, origin};

use crate::state::{Outcome, Request, Run, Side};

/// Limit for one run: a first build of Kubernetes takes an hour on a slow board, and a guest on it is slow, too.
const LIMIT: Duration = Duration::from_secs(12 * 3600);
/// Time for a run to take its control planes down after Ctrl-C.
const GRACE: Duration = Duration::from_secs(120);
/// Bytes of the largest results.json that is read.
const LARGEST: u64 = 64 << 20;
/// Limits of the texts in bisect.json, in bytes and lines.
const TEXT: usize = 4 << 10;
const EVIDENCE_LINE: usize = 1 << 10;
const EVIDENCE_LINES: usize = 40;
/// Longest line of a run's progress, in bytes.
const STATUS: usize = 100;
/// The environment of a step of GitHub Actions. The runs of a search are not its result.
const OF_THE_STEP: [&str; 3] = ["GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"];

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) commit: usize,
    pub(crate) side: Side,
    /// The folder for the run folder, relative to the output folder.
    pub(crate) folder: String,
    /// The profiles on which the check fails at BAD.
    pub(crate) profiles: Vec<String>,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) outcome: Outcome,
    pub(crate) text: String,
    pub(crate) evidence: Vec<String>,
    pub(crate) profiles: Vec<String>,
}

impl Seen {
    fn of(outcome: Outcome, text: String) -> Seen {
        Seen { outcome, text, evidence: Vec::new(), profiles: Vec::new() }
    }
}

/// The words of `ci` for a tree, without folders.
pub(crate) fn words(request: &Request, side: Side, tree: &str) -> Vec<String> {
    let arch = match side {
        Side::Tested => &request.arch,
        Side::Control => request.control.as_ref().unwrap_or(&request.arch),
    };
    let mut words: Vec<String> = ["ci", "--arch", arch.as_str()].map(str::to_owned).into();
    let mut add = |option: &str, value: &str| words.extend([option.to_owned(), value.to_owned()]);
    if let (Side::Tested, Some(cpu)) = (side, &request.cpu) {
        add("--cpu", cpu);
    }
    add(&format!("--{}", request.set), &format!("checkout:{tree}"));
    add("--check", &request.check);
    if let Some(profile) = &request.profile {
        add("--profile", profile);
    }
    add("--seed", &request.seed.to_string());
    words.extend(request.options.iter().cloned());
    words
}

/// Runs `ci` for the tree in `worktree`, and returns what it shows.
///
/// # Errors
/// The environment failed, nothing ran, or an interrupt; the exit code is that of the run.
pub(crate) fn run(
    paths: &Paths,
    request: &Request,
    out: &Path,
    worktree: &Path,
    trial: &Trial,
    label: &str,
) -> Result<Run, Failure> {
    let (begin, reports) = (Instant::now(), out.join(&trial.folder));
    // A run that was interrupted has left its folder here. The names do not tell which one is newer: the clock of a
    // board may have gone back.
    let before = foreign::folders(&reports).or_exit(Exit::Infrastructure)?;
    let (code, tail) = child(paths, request, &reports, worktree, trial, label)?;
    let all = foreign::folders(&reports).or_exit(Exit::Infrastructure)?;
    let found = all.into_iter().rfind(|folder| !before.contains(folder));
    let result = found.as_deref().map(results).transpose().or_exit(Exit::Infrastructure)?;
    let seen = conclude(code, result.as_ref(), &tail, request, &trial.profiles);
    let seen = on_side(seen, trial.side, result.is_some())?;
    let Seen { outcome, text, evidence, profiles } = seen;
    let name = found.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    Ok(Run {
        commit: trial.commit,
        side: trial.side,
        seed: request.seed,
        outcome,
        text,
        evidence,
        profiles,
        folder: name.map(|name| format!("{}/{name}", trial.folder)).unwrap_or_default(),
        seconds: begin.elapsed().as_secs(),
        execution: result.as_ref().and_then(|result| result.execution.clone()),
        versions: result.as_ref().map(versions).unwrap_or_default(),
    })
}

/// Runs the command; returns its exit code and the end of its output.
fn child(
    paths: &Paths,
    request: &Request,
    reports: &Path,
    worktree: &Path,
    trial: &Trial,
    label: &str,
) -> Result<(i32, String), Failure> {
    let shell = Shell::new().context("failed to prepare the run")?;
    let program = program()?;
    let words = words(request, trial.side, &worktree.to_string_lossy());
    let (cache, targets) = (&paths.cache, &paths.targets);
    let command = cmd!(shell, "{program} {words...} --quiet --reports {reports} --cache {cache} --targets {targets}");
    let command = OF_THE_STEP.iter().fold(command, |command, name| command.env_remove(name));
    let phase = Phase::start(label);
    let ended = exec::run_orderly(command, LIMIT, GRACE, |line| {
        line.iter().for_each(|line| phase.status(plain_line(without_clock(line), STATUS)));
    });
    drop(phase);
    match ended {
        Ok(_) => Ok((0, String::new())),
        Err(ExecError::Failed { status, tail, command }) => match status.code() {
            Some(code) => Ok((code, plain(&tail))),
            None => Err(anyhow!("`{command}` was killed ({status}):\n{tail}")).or_exit(Exit::Infrastructure),
        },
        Err(error) => Err(anyhow::Error::from(error)).or_exit(Exit::Infrastructure),
    }
}

/// The line without the time of day that the run prints in front of it: this program adds its own.
fn without_clock(line: &str) -> &str {
    match line.split_once(' ') {
        Some((clock, rest)) if clock.len() == 8 && clock.bytes().all(|b| b.is_ascii_digit() || b == b':') => rest,
        _ => line,
    }
}

/// This program. Cargo may replace its file during a long search; the name in /proc stays valid.
fn program() -> Result<PathBuf, Failure> {
    let running = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    if running.exists() {
        return Ok(running);
    }
    Ok(std::env::current_exe().context("failed to find the path of this program")?)
}

/// The results in a run folder.
fn results(folder: &Path) -> anyhow::Result<RunResult> {
    let path = folder.join("results.json");
    let results: Results = serde_json::from_slice(&foreign::read(&path, LARGEST)?)
        .with_context(|| format!("failed to read {}", path.display()))?;
    results.runs.into_iter().next().with_context(|| format!("{} contains no run", path.display()))
}

/// What a run shows, from its exit code, its results and the end of its output. `profiles` are those on which the check
/// fails at BAD.
///
/// # Errors
/// It shows nothing about the commit: the environment failed, or the check did not run.
pub(crate) fn conclude(
    code: i32,
    result: Option<&RunResult>,
    tail: &str,
    request: &Request,
    profiles: &[String],
) -> Result<Seen, Failure> {
    let is = |exit: Exit| code == i32::from(exit.code());
    if is(Exit::Build) {
        return Ok(Seen::of(Outcome::BuildFailed, build_error(result, tail)));
    }
    // A run that skipped all cases has results with the reasons.
    let skipped = is(Exit::NothingRan) && result.is_some();
    if !is(Exit::Ok) && !is(Exit::Conformance) && !skipped {
        return Err(environment(code, result, tail));
    }
    let of_check = |case: &&CaseResult| case.check == request.check;
    let cases: Vec<&CaseResult> = result.iter().flat_map(|result| &result.cases).filter(of_check).collect();
    let violated = |case: &&CaseResult| matches!(case.outcome, Word::Failed | Word::ExpectedFailure);
    let says = |case: &&CaseResult| match &request.says {
        None => true,
        Some(text) => case.message.contains(text) || case.evidence.iter().any(|line| line.contains(text)),
    };
    let failed: Vec<&CaseResult> = cases.iter().copied().filter(violated).collect();
    let counted: Vec<&CaseResult> = failed.iter().copied().filter(says).collect();
    if let Some(case) = counted.first() {
        let profiles = counted.iter().map(|case| case.profile.clone()).collect();
        return Ok(Seen { profiles, ..failure(Outcome::Failed, case) });
    }
    if let Some(case) = failed.first() {
        return Ok(failure(Outcome::OtherFailure, case));
    }
    // The exit code of an unexpected pass hides that a case on another profile broke.
    if cases.iter().any(|case| matches!(case.outcome, Word::Errored | Word::TimedOut)) {
        return Err(environment(code, result, tail));
    }
    let passed = cases.iter().filter(|case| matches!(case.outcome, Word::Passed | Word::UnexpectedPass));
    let passed: Vec<&str> = passed.map(|case| case.profile.as_str()).collect();
    // A commit may lack what a profile needs. A pass on the others would make it good, and a later commit the culprit.
    let missing = profiles.iter().find(|profile| !passed.contains(&profile.as_str()));
    let (on, case) = match missing {
        Some(profile) => {
            let case = cases.iter().find(|case| case.profile == *profile);
            (format!(" on profile {profile}, on which it fails at BAD"), case)
        }
        None if !passed.is_empty() => return Ok(Seen::of(Outcome::Passed, String::new())),
        None => (String::new(), cases.first()),
    };
    let seen = case.map_or("it has no result".to_owned(), |case| format!("{} {}", case.outcome.text(), case.message));
    Err(Failure::nothing_ran(format!("the check {} did not run{on}: {seen}", request.check)))
}

/// On the control architecture a check that does not run is a result: the commit is found, and the search must end.
fn on_side(seen: Result<Seen, Failure>, side: Side, has_results: bool) -> Result<Seen, Failure> {
    match seen {
        Err(Failure { exit: Exit::NothingRan, error }) if side == Side::Control => {
            // Without results the error is the output of the run, which may name folders of this machine.
            let why = if has_results { format!("{error:#}") } else { "no case of the check can run there".to_owned() };
            Ok(Seen::of(Outcome::NotRun, plain_line(&why, EVIDENCE_LINE)))
        }
        seen => seen,
    }
}

fn failure(outcome: Outcome, case: &CaseResult) -> Seen {
    let line = |line: &String| plain_line(line, EVIDENCE_LINE);
    let text = cut_middle(plain(&case.message), TEXT);
    let evidence = case.evidence.iter().take(EVIDENCE_LINES).map(line).collect();
    Seen { evidence, ..Seen::of(outcome, text) }
}

/// The error of the build phase, or the end of the output; without the command that repeats the build, which is only
/// for this machine.
fn build_error(result: Option<&RunResult>, tail: &str) -> String {
    let of_phase = result.and_then(|result| result.phases.iter().find(|phase| phase.name == "build"));
    let message = of_phase.map(|phase| phase.message.as_str()).filter(|message| !message.is_empty());
    let text = plain(message.unwrap_or(tail));
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("to repeat it: ")).collect();
    cut_middle(lines.join("\n"), TEXT)
}

/// The failure of a run that shows nothing about its commit, with the run's exit code.
fn environment(code: i32, result: Option<&RunResult>, tail: &str) -> Failure {
    let known = [Exit::Usage, Exit::NothingRan, Exit::TargetData, Exit::Internal, Exit::Interrupted];
    let exit = known.into_iter().find(|exit| code == i32::from(exit.code())).unwrap_or(Exit::Infrastructure);
    let phases = result.iter().flat_map(|result| &result.phases).map(|phase| &phase.message);
    let broken = |case: &&CaseResult| matches!(case.outcome, Word::Errored | Word::TimedOut);
    let cases = result.iter().flat_map(|result| &result.cases).filter(broken).map(|case| &case.message);
    let why = phases.chain(cases).find(|message| !message.is_empty()).cloned();
    let why = plain(&why.unwrap_or_else(|| tail.to_owned()));
    Failure { exit, error: anyhow!("the run ended with {code} and shows nothing about the commit: {why}") }
}

fn versions(result: &RunResult) -> BTreeMap<String, String> {
    let version = |component: &report::results::ComponentResult| {
        let line = |word: &str| text::plain_line(word, STATUS);
        (line(&component.name), format!("{}, {}", line(&component.version), line(&component.go)))
    };
    let mut versions: BTreeMap<String, String> = result.components.iter().map(version).collect();
    versions.insert(origin::IN_ARCHIVE.to_owned(), result.harness.clone());
    versions
}

#[cfg(test)]
mod tests;
