//! `bisect.json`: the request, the commits, and every run of a search. It is written completely after each run, so that
//! a search can go on after it was interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use sys::foreign;

use crate::history::{Commit, is_hash};
use crate::odds::Odds;

/// The name of the file in the output folder.
pub(crate) const FILE: &str = "bisect.json";
/// The version that this program writes.
const SCHEMA_VERSION: u32 = 1;
/// Bytes of the largest file that is read. A commit takes about 200 bytes, and Kubernetes has 140,000 of them.
const LARGEST: u64 = 64 << 20;
/// Runs of one commit at most: a larger number is a mistake.
pub(crate) const MOST_REPEATS: usize = 1000;

/// Everything about one search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) schema_version: u32,
    pub(crate) request: Request,
    /// GOOD, the commits after it on the first-parent line, BAD.
    pub(crate) commits: Vec<Commit>,
    /// Positions of the commits that the user leaves out.
    pub(crate) left_out: Vec<usize>,
    pub(crate) runs: Vec<Run>,
    /// Null until the search has ended.
    pub(crate) conclusion: Option<Conclusion>,
}

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) arch: String,
    /// Variant of the architecture's processor.
    pub(crate) cpu: Option<String>,
    /// Null: no comparison.
    pub(crate) control: Option<String>,
    /// `kubernetes` or `etcd`.
    pub(crate) set: String,
    pub(crate) checkout: PathBuf,
    /// Hash.
    pub(crate) good: String,
    /// Hash.
    pub(crate) bad: String,
    pub(crate) check: String,
    pub(crate) profile: Option<String>,
    pub(crate) says: Option<String>,
    /// Runs of one commit at most.
    pub(crate) repeat: usize,
    pub(crate) seed: u64,
    /// Other options of each run.
    pub(crate) options: Vec<String>,
}

/// Where a commit is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Side {
    /// On the architecture under test.
    Tested,
    /// On the control architecture.
    Control,
}

/// The result of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Passed,
    /// The check failed, with the text of `--says` if one was given.
    Failed,
    /// The check failed, but without that text.
    OtherFailure,
    BuildFailed,
    /// The check did not run; only on the control architecture. Elsewhere it ends the search.
    NotRun,
}

/// One run of one commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Position in the list of commits.
    pub(crate) commit: usize,
    pub(crate) side: Side,
    pub(crate) seed: u64,
    pub(crate) outcome: Outcome,
    /// The failure, or the error of the build; empty for a pass.
    pub(crate) text: String,
    /// The lines that show the failure.
    pub(crate) evidence: Vec<String>,
    /// The profiles on which the check failed so. Absent in files of older versions.
    #[serde(default)]
    pub(crate) profiles: Vec<String>,
    /// The run folder, relative to the output folder; empty if the run has none.
    pub(crate) folder: String,
    /// Whole seconds, with the build.
    pub(crate) seconds: u64,
    /// `native`, or the emulator; null if the run did not boot.
    pub(crate) execution: Option<String>,
    /// Versions of the components, with the Go release that built them.
    pub(crate) versions: BTreeMap<String, String>,
}

/// The result of the search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conclusion {
    /// The first bad commit; null if several commits remain.
    pub(crate) culprit: Option<String>,
    /// The commits among which the first bad one is, oldest first.
    pub(crate) candidates: Vec<String>,
    pub(crate) odds: Odds,
    /// Commits that were judged good.
    pub(crate) good_verdicts: usize,
    /// Null without a culprit.
    pub(crate) control: Option<Control>,
}

/// What the control architecture shows about the culprit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Control {
    pub(crate) verdict: ControlVerdict,
    /// The reason, as a sentence.
    pub(crate) why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ControlVerdict {
    /// The check passes there at the culprit: the defect depends on the architecture.
    Architecture,
    /// The check fails there too, and passes at the parent: the defect is in the commit on every architecture.
    Everybody,
    Undecided,
    /// There was no comparison.
    NotCompared,
}

impl Request {
    /// The control architecture, if it differs from the architecture under test.
    pub(crate) fn other_arch(&self) -> Option<&str> {
        self.control.as_deref().filter(|control| *control != self.arch || self.cpu.is_some())
    }

    /// The option's words and values as the user sees them, to compare two requests.
    pub(crate) fn named(&self) -> BTreeMap<&'static str, String> {
        let Request { arch, cpu, control, set, checkout, good, bad, check, profile, says, repeat, seed, options } =
            self;
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        BTreeMap::from([
            ("--arch", arch.clone()),
            ("--cpu", text(cpu)),
            ("--control", text(control)),
            ("--set", set.clone()),
            ("--checkout", checkout.display().to_string()),
            ("--good", good.clone()),
            ("--bad", bad.clone()),
            ("--check", check.clone()),
            ("--profile", text(profile)),
            ("--says", text(says)),
            ("--repeat", repeat.to_string()),
            ("--seed", seed.to_string()),
            ("options of the runs", options.join(" ")),
        ])
    }
}

impl State {
    pub(crate) fn new(request: Request, commits: Vec<Commit>, left_out: Vec<usize>) -> State {
        State { schema_version: SCHEMA_VERSION, request, commits, left_out, runs: Vec::new(), conclusion: None }
    }

    /// The position of BAD.
    pub(crate) fn last(&self) -> usize {
        self.commits.len().saturating_sub(1)
    }

    /// The outcomes of one commit, in the order of the runs.
    pub(crate) fn outcomes(&self, commit: usize, side: Side) -> impl Iterator<Item = Outcome> {
        self.runs_of(commit, side).map(|run| run.outcome)
    }

    pub(crate) fn runs_of(&self, commit: usize, side: Side) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| (run.commit, run.side) == (commit, side))
    }

    /// The profiles on which the check fails at BAD: a pass on other profiles says nothing about the failure.
    pub(crate) fn bad_profiles(&self) -> Vec<String> {
        let failed = self.runs_of(self.last(), Side::Tested).flat_map(|run| run.profiles.iter().cloned());
        failed.collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// # Errors
    /// The file is missing, too large or invalid.
    pub(crate) fn read(folder: &Path) -> anyhow::Result<State> {
        let path = folder.join(FILE);
        let hint = || format!("{} is not the folder of a search", folder.display());
        let bytes = foreign::read(&path, LARGEST).with_context(hint)?;
        parse(&bytes).with_context(|| format!("failed to read {}", path.display()))
    }

    /// Replaces the file. An interrupted write leaves the old one.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        report::replace(folder, FILE, report::text::pretty(self).as_bytes())
    }
}

/// Reads a state, and checks everything that other functions rely on.
///
/// # Errors
/// It is not such a file, or it contradicts itself.
pub(crate) fn parse(bytes: &[u8]) -> anyhow::Result<State> {
    let state: State = serde_json::from_slice(bytes)?;
    let State { schema_version, request, commits, left_out, runs, .. } = &state;
    ensure!(
        *schema_version == SCHEMA_VERSION,
        "its version is {schema_version}, and this program reads {SCHEMA_VERSION}"
    );
    ensure!(commits.len() >= 2, "it lists fewer than two commits");
    ensure!(commits.iter().all(|commit| is_hash(&commit.id)), "a commit has no hash");
    let ends = (commits.first().map(|commit| &commit.id), commits.last().map(|commit| &commit.id));
    ensure!(ends == (Some(&request.good), Some(&request.bad)), "the commits do not begin at GOOD and end at BAD");
    ensure!((1..=MOST_REPEATS).contains(&request.repeat), "`repeat` is not a number from 1 to {MOST_REPEATS}");
    let inner = |at: &usize| (1..commits.len() - 1).contains(at);
    ensure!(left_out.iter().all(inner), "it leaves out a commit that is not between GOOD and BAD");
    ensure!(runs.iter().all(|run| run.commit < commits.len()), "a run is of an unknown commit");
    Ok(state)
}

#[cfg(test)]
pub(crate) mod tests {
    use sys::Scratch;

    use super::*;

    pub(crate) fn request(repeat: usize) -> Request {
        Request {
            arch: "riscv64".into(),
            cpu: None,
            control: Some("amd64".into()),
            set: "etcd".into(),
            checkout: "repo".into(),
            good: hash(0),
            bad: hash(1),
            check: "storage.create-txn".into(),
            profile: None,
            says: None,
            repeat,
            seed: 7,
            options: vec!["--provider".into(), "process".into()],
        }
    }

    pub(crate) fn hash(n: usize) -> String {
        format!("{n:040x}")
    }

    /// A search in a history of this many commits.
    pub(crate) fn state(commits: usize, repeat: usize) -> State {
        let commit = |n| Commit { id: hash(n), subject: format!("c{n}"), date: "2026-01-02T03:04:05+00:00".into() };
        let request = Request { bad: hash(commits - 1), ..request(repeat) };
        State::new(request, (0..commits).map(commit).collect(), Vec::new())
    }

    pub(crate) fn run(commit: usize, side: Side, outcome: Outcome) -> Run {
        let text = if outcome == Outcome::Passed { "" } else { "mod_revision: expected 2, seen 3" };
        Run {
            commit,
            side,
            seed: 7,
            outcome,
            text: text.into(),
            evidence: vec!["store: ADDED /registry/a at 3".into()],
            profiles: if outcome == Outcome::Failed { vec!["default".into()] } else { Vec::new() },
            folder: "runs/001/x".into(),
            seconds: 2,
            execution: Some("qemu-user".into()),
            versions: BTreeMap::from([("etcd".into(), "v3.6.16, go1.26.8".into())]),
        }
    }

    #[test]
    fn written_state_is_read_again() {
        let dir = Scratch::temporary("bisect-state").unwrap();
        let mut state = state(4, 3);
        state.runs.push(run(3, Side::Tested, Outcome::Failed));
        state.write(dir.path()).unwrap();
        assert_eq!(State::read(dir.path()).unwrap(), state);
        let error = format!("{:#}", State::read(&dir.path().join("x")).unwrap_err());
        assert!(error.contains("is not the folder of a search"), "{error}");
    }

    #[test]
    fn profiles_of_bad_are_those_of_its_failures_on_the_tested_side() {
        let mut state = state(4, 2);
        let mut add = |commit, side, profile: &str| {
            let run = run(commit, side, Outcome::Failed);
            state.runs.push(Run { profiles: vec![profile.into()], ..run });
        };
        add(3, Side::Tested, "json");
        add(3, Side::Tested, "default");
        add(3, Side::Control, "encrypted");
        add(2, Side::Tested, "disruptive");
        assert_eq!(state.bad_profiles(), ["default", "json"]);
    }

    #[test]
    fn contradictory_states_are_refused() {
        let change = |change: &dyn Fn(&mut State)| {
            let mut state = state(4, 3);
            change(&mut state);
            parse(report::text::pretty(&state).as_bytes())
        };
        assert!(change(&|_| {}).is_ok());
        assert!(change(&|state| state.schema_version = 2).is_err());
        assert!(change(&|state| state.commits.truncate(1)).is_err());
        assert!(change(&|state| state.commits[1].id = "main".into()).is_err());
        assert!(change(&|state| state.request.good = hash(9)).is_err());
        assert!(change(&|state| state.request.repeat = 0).is_err());
        assert!(change(&|state| state.left_out.push(3)).is_err());
        assert!(change(&|state| state.runs.push(run(4, Side::Tested, Outcome::Passed))).is_err());
        assert!(parse(b"{}").is_err());
    }

    #[test]
    fn control_is_another_architecture_or_the_same_without_the_variant() {
        let same = Request { control: Some("riscv64".into()), ..request(1) };
        assert_eq!(same.other_arch(), None);
        assert_eq!(Request { cpu: Some("rva23".into()), ..same }.other_arch(), Some("riscv64"));
        assert_eq!(request(1).other_arch(), Some("amd64"));
    }
}
