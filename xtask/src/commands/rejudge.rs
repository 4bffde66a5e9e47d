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
            // Without its files, nothing is known of the case.
            let outcome = run_judge.judge(check.id, profile).map_or_else(
                || Outcome::errored("rejudge", "the case's profile has no recorded history"),
                |judgement| judged(judgement.outcome(), recorded.as_ref()),
            );
            verdicts.push(Verdict { case, outcome, recorded });
        }
    }
    verdicts
}

/// The verdict, unless only the run itself knew more: a failure that it expected stays expected, and a pass that it did
/// not expect stays unexpected. If the traffic was cut short, which the history does not say, the history can only
/// accuse.
fn judged(outcome: Outcome, recorded: Option<&Outcome>) -> Outcome {
    match (outcome, recorded) {
        (Outcome::Failed { message, .. }, Some(known @ Outcome::ExpectedFailure { message: said, .. }))
            if message == *said =>
        {
            known.clone()
        }
        (failed @ Outcome::Failed { .. }, _) => failed,
        (Outcome::Passed, Some(known @ Outcome::UnexpectedPass { .. })) => known.clone(),
        (_, Some(cut @ Outcome::Errored { phase, .. })) if phase == suite::TRAFFIC_PHASE => cut.clone(),
        (outcome, _) => outcome,
    }
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
    exit(verdicts.iter().map(|verdict| &verdict.outcome))
}

/// As in a run: a failed case wins over one without a verdict.
fn exit<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Exit {
    let exits: Vec<Exit> = outcomes.map(Outcome::exit).collect();
    let failed = exits.iter().find(|exit| **exit == Exit::Conformance);
    failed.or(exits.iter().max()).copied().unwrap_or(Exit::NothingRan)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_run_knew_still_counts() {
        let cut = Outcome::errored(suite::TRAFFIC_PHASE, "the server was late");
        let failed = Outcome::failed("an event is lost");
        let expected_one = |message: &str| Outcome::ExpectedFailure { message: message.into(), issue: "i".into() };
        let unexpected = Outcome::UnexpectedPass { issue: "i".into() };
        let (known, other) = (expected_one("an event is lost"), expected_one("an event came twice"));
        for (outcome, recorded, expected) in [
            (Outcome::Passed, Some(&cut), &cut),
            (failed.clone(), Some(&cut), &failed),
            (failed.clone(), Some(&known), &known),
            (failed.clone(), Some(&other), &failed),
            (Outcome::Passed, Some(&Outcome::errored("not exercised", "x")), &Outcome::Passed),
            (Outcome::Passed, Some(&failed), &Outcome::Passed),
            (Outcome::Passed, Some(&unexpected), &unexpected),
            (failed.clone(), Some(&unexpected), &failed),
            (Outcome::Passed, None, &Outcome::Passed),
        ] {
            assert_eq!(&judged(outcome, recorded), expected, "{recorded:?}");
        }
    }

    #[test]
    fn failure_wins_over_an_error() {
        let (failed, errored) = (Outcome::failed("x"), Outcome::errored("not exercised", "x"));
        assert_eq!(exit([&Outcome::Passed, &failed, &errored].into_iter()), Exit::Conformance);
        assert_eq!(exit([&Outcome::Passed, &errored].into_iter()), Exit::Infrastructure);
        assert_eq!(exit([&Outcome::Passed].into_iter()), Exit::Ok);
        assert_eq!(exit(std::iter::empty()), Exit::NothingRan);
    }

    #[test]
    fn case_without_its_history_is_errored() {
        let check = checks::all().find(|check| matches!(check.run, Run::Judge)).expect("a judge");
        let case = check.case(check.profiles[0]);
        let begun = |case: &str| Event::CaseStarted { at: String::new(), case: case.to_owned() };
        let verdicts = verdicts(&[begun(&case)], &[]);
        assert_eq!(verdicts.len(), 1);
        assert_eq!((&verdicts[0].case, verdicts[0].outcome.exit()), (&case, Exit::Infrastructure));
    }
}
