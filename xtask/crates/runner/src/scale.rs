//! Decides for which waiting jobs machines must be started. `up` starts them.
//!
//! Jobs of runs with a commit from another repository, and of pull requests by bots, start no machine. This saves
//! machines, but is no protection: GitHub gives a job to any runner with its labels; see `exposure`.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::github::{Job, Queued, Runner};
use crate::name::Name;
use crate::plain;

/// A runner that was registered longer ago and is still offline will not come online any more.
const STARTING: Duration = Duration::from_secs(30 * 60);

/// A kind of machine that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startable {
    /// The name of the runner in `targets/matrix.yaml`.
    pub runner: String,
    pub arch: String,
    pub labels: Vec<String>,
    /// The largest number of machines at the same time.
    pub max: u32,
}

/// The number of machines to start, for one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Start {
    pub runner: String,
    pub arch: String,
    /// Waiting jobs with exactly its labels.
    pub waiting: usize,
    /// Runners that are idle or starting.
    pub coming: usize,
    /// Busy runners.
    pub busy: usize,
    pub max: u32,
    /// Number of machines to start now.
    pub start: usize,
}

/// The decision about the waiting jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub starts: Vec<Start>,
    /// Jobs that no kind of machine here fits.
    pub others: Vec<String>,
    /// Jobs of runs with a commit from another repository or of a bot.
    pub skipped: Vec<Skipped>,
}

/// A job that starts no machine, because the commit of its run is from another repository or of a bot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    pub job: String,
    pub labels: Vec<String>,
    pub run: u64,
    pub event: String,
    /// None: the fork was deleted.
    pub head_repository: Option<String>,
    /// The account that caused the run.
    pub actor: Option<String>,
}

/// `kinds` are the kinds of machines that can be started.
pub fn plan(queued: &[Queued], runners: &[Runner], kinds: &[Startable], now: Timestamp) -> Plan {
    let (foreign, own): (Vec<&Queued>, Vec<&Queued>) = queued.iter().partition(|queued| queued.run.is_foreign());
    let jobs: Vec<&Job> = own.iter().map(|queued| &queued.job).collect();
    let wants = |job: &Job, kind: &Startable| set(job.labels.iter()) == set(kind.labels.iter());
    let start = |kind: &Startable| {
        let waiting = jobs.iter().filter(|job| wants(job, kind)).count();
        let own: Vec<&Runner> = runners.iter().filter(|runner| is_kind(runner, kind)).collect();
        let busy = own.iter().filter(|runner| runner.busy).count();
        let coming = own.iter().filter(|runner| !runner.busy && comes(runner, now)).count();
        let room = usize::try_from(kind.max).unwrap_or(usize::MAX).saturating_sub(busy + coming);
        let start = waiting.saturating_sub(coming).min(room);
        Start { runner: kind.runner.clone(), arch: kind.arch.clone(), waiting, coming, busy, max: kind.max, start }
    };
    let others = jobs.iter().filter(|job| !kinds.iter().any(|kind| wants(job, kind)));
    let others = others.map(|job| plain(&format!("{} ({})", job.name, job.labels.join(", ")))).collect();
    let skipped = foreign.into_iter().map(Skipped::of).collect();
    Plan { starts: kinds.iter().map(start).collect(), others, skipped }
}

impl Skipped {
    fn of(Queued { job, run }: &Queued) -> Skipped {
        Skipped {
            job: plain(&job.name),
            labels: job.labels.iter().map(|label| plain(label)).collect(),
            run: run.id,
            event: plain(&run.event),
            head_repository: run.head_repository.as_ref().map(|head| plain(&head.full_name)),
            actor: run.actor.as_ref().map(|actor| plain(&actor.login)),
        }
    }
}

/// For people: the job, the repository of its commit, and the account that caused its run.
impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head = self.head_repository.as_deref().unwrap_or("an unknown repository");
        let actor = self.actor.as_deref().unwrap_or("an unknown account");
        let Skipped { job, run, event, .. } = self;
        write!(f, "{job} ({}) of run {run}: {event} from {head} by {actor}", self.labels.join(", "))
    }
}

/// Whether this program registered the runner for this kind of machine.
fn is_kind(runner: &Runner, kind: &Startable) -> bool {
    let made_here = Name::parse(&runner.name).is_some_and(|name| name.arch == kind.arch);
    made_here && set(kind.labels.iter()).is_subset(&runner.label_names().map(str::to_lowercase).collect())
}

fn comes(runner: &Runner, now: Timestamp) -> bool {
    let young = |name: Name| Duration::try_from(now.duration_since(name.created)).is_ok_and(|age| age < STARTING);
    runner.is_online() || Name::parse(&runner.name).is_some_and(young)
}

/// GitHub compares labels independent of case and order.
fn set<'a>(labels: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    labels.map(|label| label.to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_795_000_000).unwrap()
    }

    fn kind(max: u32) -> Startable {
        let labels = ["self-hosted", "linux", "riscv64"].map(String::from).into();
        Startable { runner: "own".into(), arch: "riscv64".into(), labels, max }
    }

    fn job(id: u64, labels: &[&str]) -> Queued {
        queued(id, labels, serde_json::json!({"id": 7, "full_name": "o/r"}), "User")
    }

    fn queued(id: u64, labels: &[&str], head: serde_json::Value, account: &str) -> Queued {
        let job = serde_json::json!({"id": id, "name": "j", "status": "queued", "labels": labels});
        let run = serde_json::json!({"id": 1, "event": "pull_request", "repository": {"id": 7, "full_name": "o/r"},
            "head_repository": head, "actor": {"login": "one", "type": account}});
        Queued { job: serde_json::from_value(job).unwrap(), run: serde_json::from_value(run).unwrap() }
    }

    fn runner(minutes: u64, arch: &str, status: &str, busy: bool, labels: &[&str]) -> Runner {
        let name = Name::fresh(arch, now() - Duration::from_secs(minutes * 60));
        let labels: Vec<_> = labels.iter().map(|label| serde_json::json!({"name": label})).collect();
        let value = serde_json::json!({"id": 1, "name": name, "status": status, "busy": busy, "labels": labels});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn machines_are_started_for_jobs_with_exactly_their_labels_up_to_the_limit() {
        const LABELS: [&str; 3] = ["self-hosted", "linux", "riscv64"];
        let wait =
            |count| -> Vec<Queued> { (0..count).map(|id| job(id, &["RISCV64", "self-hosted", "Linux"])).collect() };
        let idle = || runner(500, "riscv64", "online", false, &LABELS);
        let busy = || runner(500, "riscv64", "online", true, &LABELS);
        let coming = || runner(5, "riscv64", "offline", false, &LABELS);
        let dead = || runner(31, "riscv64", "offline", false, &LABELS);
        let other = || runner(5, "loong64", "online", false, &LABELS);
        let bare = || runner(5, "riscv64", "online", false, &["riscv64"]);
        for (jobs, runners, max, expected) in [
            (wait(0), vec![], 2, 0),
            (wait(1), vec![], 2, 1),
            (wait(5), vec![], 2, 2),
            (wait(5), vec![busy()], 2, 1),
            (wait(5), vec![busy(), busy(), busy()], 2, 0),
            (wait(1), vec![idle()], 2, 0),
            (wait(1), vec![coming()], 2, 0),
            (wait(2), vec![coming()], 2, 1),
            (wait(2), vec![dead(), other(), bare()], 2, 2),
            (wait(1), vec![], 0, 0),
            (vec![job(1, &["riscv64"])], vec![], 2, 0),
            (vec![job(1, &["self-hosted", "linux", "riscv64", "gpu"])], vec![], 2, 0),
        ] {
            let plan = plan(&jobs, &runners, &[kind(max)], now());
            assert_eq!(plan.starts[0].start, expected, "{plan:?}");
        }
        let plan = plan(&[job(1, &["gpu"])], &[], &[kind(2)], now());
        assert_eq!(plan.others, ["j (gpu)"]);
    }

    #[test]
    fn jobs_of_forks_and_bots_start_no_machine_and_are_named() {
        const LABELS: [&str; 3] = ["self-hosted", "linux", "riscv64"];
        let json = |text: &str| serde_json::from_str(text).unwrap();
        for (head, account, shown) in [
            (r#"{"id": 8, "full_name": "them/r"}"#, "User", "pull_request from them/r"),
            // A fork with the repository's former name.
            (r#"{"id": 8, "full_name": "o/r"}"#, "User", "pull_request from o/r"),
            ("null", "User", "pull_request from an unknown repository"),
            // Dependabot's branches are in the repository itself.
            (r#"{"id": 7, "full_name": "o/r"}"#, "Bot", "pull_request from o/r by one"),
        ] {
            let plan = plan(&[queued(3, &LABELS, json(head), account), job(4, &LABELS)], &[], &[kind(2)], now());
            assert_eq!((plan.starts[0].waiting, plan.starts[0].start), (1, 1), "{plan:?}");
            assert_eq!(plan.skipped.len(), 1, "{plan:?}");
            assert!(plan.skipped[0].to_string().contains(shown), "{}", plan.skipped[0]);
        }
    }

    #[test]
    fn only_a_pull_request_needs_a_person() {
        const LABELS: [&str; 3] = ["self-hosted", "linux", "riscv64"];
        for event in ["push", "schedule", "merge_group"] {
            let mut queued = queued(1, &LABELS, serde_json::json!({"id": 7, "full_name": "o/r"}), "Bot");
            queued.run.event = event.into();
            let plan = plan(&[queued], &[], &[kind(2)], now());
            assert_eq!((plan.starts[0].start, plan.skipped.len()), (1, 0), "{event}: {plan:?}");
        }
    }
}
