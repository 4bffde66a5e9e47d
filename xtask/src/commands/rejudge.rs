//! `cargo xtask rejudge`: repeats the verdicts of the judges from a run's recorded files alone.
//!
//! Scenario checks asked a live server; their verdicts stand as they were recorded and are only counted here.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use model::history::History;
use model::{Event, Exit, Outcome};
use proc::{progress, run_dir};
use serde::Serialize;
use suite::Run;

use super::{memory, print_json};
use crate::args::RejudgeOptions;
use crate::failure::{Failure, OrExit};
use crate::paths::Paths;

/// Stands before the number in the last line, where the benchmark looks for it.
pub(crate) const PEAK: &str = "peak memory ";

#[derive(Serialize)]
struct Verdict {
    case: String,
    #[serde(flatten)]
    outcome: Outcome,
    /// What the run itself said; none if the case did not end in it.
    recorded: Option<Outcome>,
}

pub(crate) fn run(paths: &Paths, options: &RejudgeOptions) -> Result<Exit, Failure> {
    let folder = folder(paths, options.run.as_deref()).or_exit(Exit::Usage)?;
    let (events, histories) = run_dir::recorded(&folder);
    let events = report::read(&events).or_exit(Exit::Usage)?;
    let histories = suite::history_files::read_all(&histories).or_exit(Exit::Usage)?;
    if options.only_read {
        let revisions: usize = histories.iter().map(|history| history.revisions.len()).sum();
        progress::say(&format!("{}: {revisions} revisions read{}", folder.display(), peak()));
        return Ok(Exit::Ok);
    }
    let verdicts = verdicts(&events, &histories);
    if verdicts.is_empty() {
        return Err(Failure::nothing_ran(format!("{} holds nothing that a judge decides", folder.display())));
    }
    if options.json {
        print_json(&verdicts)?;
    }
    Ok(tell(&folder, &events, &verdicts))
}

/// Every judged case of the run, judged again.
fn verdicts(events: &[Event], histories: &[History]) -> Vec<Verdict> {
    let court = judge::Court::new(histories);
    let mut verdicts = Vec::new();
    for check in checks::all().filter(|check| matches!(check.run, Run::Judge)) {
        for profile in check.profiles {
            let case = check.case(profile);
            let Some(recorded) = recorded(events, &case) else { continue };
            if matches!(recorded, Some(Outcome::Skipped { .. })) {
                continue;
            }
            let Some(judgement) = court.judge(check.id, profile) else { continue };
            verdicts.push(Verdict { case, outcome: judgement.outcome(), recorded });
        }
    }
    verdicts
}

/// What the run said about a case: outer none if it was not planned, inner none if it did not end.
fn recorded(events: &[Event], name: &str) -> Option<Option<Outcome>> {
    let mut found = None;
    for event in events {
        match event {
            Event::CaseStarted { case, .. } if case == name => found = Some(None),
            Event::CaseFinished { case, outcome, .. } if case == name => found = Some(Some(outcome.clone())),
            _ => {}
        }
    }
    found
}

fn tell(folder: &Path, events: &[Event], verdicts: &[Verdict]) -> Exit {
    let mut changed = 0;
    for verdict in verdicts {
        let before = verdict.recorded.as_ref().map_or("unfinished", Outcome::word);
        let word = verdict.outcome.word();
        let note = if before == word { String::new() } else { format!(" (the run said {before})") };
        changed += usize::from(before != word);
        let message = verdict.outcome.message();
        let colon = if message.is_empty() { "" } else { ": " };
        progress::say(&format!("{word} {}{note}{colon}{message}", verdict.case));
    }
    let finished = events.iter().filter(|event| matches!(event, Event::CaseFinished { .. })).count();
    progress::say(&format!(
        "{}: {} cases judged again, {changed} differ; {} verdicts of scenarios stand as recorded{}",
        folder.display(),
        verdicts.len(),
        finished.saturating_sub(verdicts.len()),
        peak(),
    ));
    verdicts.iter().map(|verdict| verdict.outcome.exit()).max().unwrap_or(Exit::NothingRan)
}

/// What it took, for the last line; nothing where the kernel does not tell.
fn peak() -> String {
    memory::peak("self").map_or_else(|_| String::new(), |peak| format!("; {PEAK}{peak:.0} MiB"))
}

/// A folder, a name below `reports/`, or the newest run that has histories; runs that were started together lie in a
/// common folder.
fn folder(paths: &Paths, given: Option<&str>) -> anyhow::Result<PathBuf> {
    if let Some(given) = given {
        let candidates = [PathBuf::from(given), paths.reports.join(given)];
        return match candidates.iter().find(|folder| folder.is_dir()) {
            Some(folder) => Ok(folder.clone()),
            None => bail!("there is no run `{given}`, neither as a path nor in {}", paths.reports.display()),
        };
    }
    let entries =
        std::fs::read_dir(&paths.reports).with_context(|| format!("no runs in {}", paths.reports.display()))?;
    let folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let below = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let below: Vec<PathBuf> = below.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let runs = folders.into_iter().chain(below).filter(|run| run_dir::recorded(run).1.is_dir());
    runs.max().with_context(|| format!("no run in {} has recorded histories", paths.reports.display()))
}
