//! `cargo xtask rejudge`: repeats the judges' verdicts from the recorded files of a run.
//!
//! Scenario checks need a live server; their recorded verdicts do not change, and are only counted here.

use std::path::{Path, PathBuf};

use anyhow::Context;
use bench::PEAK;
use cli::{Failure, OrExit, Paths, print_json};
use model::history::History;
use model::{Event, Exit, Outcome};
use serde::Serialize;
use suite::Run;
use sys::{memory, progress, run_dir};

use crate::args::RejudgeOptions;

#[derive(Serialize)]
struct Verdict {
    case: String,
    #[serde(flatten)]
    outcome: Outcome,
    /// The verdict of the run itself; `None` if the case did not end.
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
        return Err(Failure::nothing_ran(format!("{} contains no case that a judge decides", folder.display())));
    }
    if options.json {
        print_json(&verdicts)?;
    }
    Ok(tell(&folder, &events, &verdicts))
}

/// Runs the judges again for every judged case of the run.
fn verdicts(events: &[Event], histories: &[History]) -> Vec<Verdict> {
    let run_judge = judge::RunJudge::new(histories);
    let mut verdicts = Vec::new();
    for check in checks::all().filter(|check| matches!(check.run, Run::Judge)) {
        for profile in check.profiles {
            let case = check.case(profile);
            let Some(recorded) = recorded(events, &case) else { continue };
            if matches!(recorded, Some(Outcome::Skipped { .. })) {
                continue;
            }
            let Some(judgement) = run_judge.judge(check.id, profile) else { continue };
            verdicts.push(Verdict { case, outcome: judgement.outcome(), recorded });
        }
    }
    verdicts
}

/// The recorded outcome of a case: the outer `None` if it was not planned, the inner `None` if it did not end.
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
        let note = if before == word { String::new() } else { format!(" (recorded: {before})") };
        changed += usize::from(before != word);
        let message = verdict.outcome.message();
        let colon = if message.is_empty() { "" } else { ": " };
        progress::say(&format!("{word} {}{note}{colon}{message}", verdict.case));
    }
    let finished = events.iter().filter(|event| matches!(event, Event::CaseFinished { .. })).count();
    progress::say(&format!(
        "{}: {} cases judged again, {changed} differ; {} verdicts of scenarios kept as recorded{}",
        folder.display(),
        verdicts.len(),
        finished.saturating_sub(verdicts.len()),
        peak(),
    ));
    verdicts.iter().map(|verdict| verdict.outcome.exit()).max().unwrap_or(Exit::NothingRan)
}

/// The peak memory for the last line; empty if the kernel does not report it.
fn peak() -> String {
    memory::peak("self").map_or_else(|_| String::new(), |peak| format!("; {PEAK}{peak:.0} MiB"))
}

/// The given folder, a name below `reports/`, or the newest run with histories. Runs that were started together are in
/// a common folder.
fn folder(paths: &Paths, given: Option<&str>) -> anyhow::Result<PathBuf> {
    if let Some(given) = given {
        return super::found(paths, given, Path::is_dir);
    }
    let entries =
        std::fs::read_dir(&paths.reports).with_context(|| format!("no runs in {}", paths.reports.display()))?;
    let folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let below = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let below: Vec<PathBuf> = below.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let runs = folders.into_iter().chain(below).filter(|run| run_dir::recorded(run).1.is_dir());
    runs.max().with_context(|| format!("no run in {} has recorded histories", paths.reports.display()))
}
