//! `issue.md`: the result of a search as the text of an issue for the project whose commit was found. A pure function
//! of the state and the check; it contains no path of this machine.

use std::fmt::Write;

use cli::quoted;
use model::Level;
use report::cell;
use report::text::plain_line;
use suite::Check;

use crate::history::Commit;
use crate::plan;
use crate::search::Verdict;
use crate::state::{Conclusion, Control, ControlVerdict, Outcome, Run, Side, State};
use crate::trial;

/// The worktree in the commands of the issue.
const TREE: &str = "culprit";
/// Bytes of the reason why a commit was skipped.
const REASON: usize = 300;

/// The text of the issue.
pub(crate) fn issue(state: &State, conclusion: &Conclusion, check: &Check) -> String {
    let found = last_candidate(state, conclusion);
    let failure = state.runs_of(found, Side::Tested).find(|run| run.outcome == Outcome::Failed);
    let mut text = format!("# {}\n\n{}\n\n", title(state, conclusion), summary(state, conclusion, failure));
    text += &facts(state, conclusion, check, failure);
    text += &candidates(state, conclusion);
    if let Some(run) = failure {
        text += &format!("## The failure\n\n{}\n", indented(&run.text));
        if !run.evidence.is_empty() {
            text += &format!("Evidence:\n\n{}\n", indented(&run.evidence.join("\n")));
        }
    }
    if let Some(other) = other_failure(state, conclusion) {
        text += &format!("{}\n\n", cell(&other));
    }
    text += &repeat(state, found);
    text += &by_hand(check);
    text += &search(state, conclusion);
    text
}

/// The position of the culprit, or of the youngest candidate.
fn last_candidate(state: &State, conclusion: &Conclusion) -> usize {
    let last = conclusion.candidates.last();
    state.commits.iter().position(|commit| Some(&commit.id) == last).unwrap_or(state.last())
}

pub(crate) fn title(state: &State, conclusion: &Conclusion) -> String {
    let check = &state.request.check;
    let everybody = conclusion.control.as_ref().is_some_and(|control| control.verdict == ControlVerdict::Everybody);
    let on = if everybody { String::new() } else { format!(" on {}", state.request.arch) };
    match &conclusion.culprit {
        Some(_) => {
            let Commit { subject, .. } = &state.commits[last_candidate(state, conclusion)];
            let short = state.commits[last_candidate(state, conclusion)].short();
            format!("{check} fails{on} since {short} ({})", cell(subject))
        }
        None => format!("{check} fails{on} since one of {} commits", conclusion.candidates.len()),
    }
}

fn summary(state: &State, conclusion: &Conclusion, failure: Option<&Run>) -> String {
    let execution = failure.and_then(|run| run.execution.as_deref()).unwrap_or("unknown execution");
    let arch = &state.request.arch;
    let (check, set) = (&state.request.check, &state.request.set);
    match &conclusion.culprit {
        Some(_) => format!(
            "The check `{check}` fails on {arch} ({}) at this commit of {set}, and passes at its parent.",
            cell(execution)
        ),
        None => format!(
            "The check `{check}` fails on {arch} ({}) since one of the commits of {set} below. The others could not be \
             tested.",
            cell(execution)
        ),
    }
}

fn facts(state: &State, conclusion: &Conclusion, check: &Check, failure: Option<&Run>) -> String {
    let mut text = "| | |\n| --- | --- |\n".to_owned();
    let mut row = |name: &str, value: &str| text.push_str(&format!("| {name} | {value} |\n"));
    if conclusion.culprit.is_some() {
        let found = last_candidate(state, conclusion);
        let Commit { id, subject, date } = &state.commits[found];
        row("commit", id);
        row("subject", &cell(subject));
        row("author date", &cell(date));
        row("parent", &state.commits[found.saturating_sub(1)].id);
    }
    let level = match check.level {
        Level::Must => "must",
        Level::Should => "should",
        Level::Extra => "extra",
    };
    row("check", &format!("`{}` ({level})", check.id));
    row("requirement", &cell(check.requirement));
    row("source", &cell(check.source));
    if let Some(control) = &conclusion.control {
        row("other architectures", &cell(&sentence(control)));
    }
    row("seed", &state.request.seed.to_string());
    for (component, version) in failure.iter().flat_map(|run| &run.versions) {
        row(&cell(component), &cell(version));
    }
    text + "\n"
}

/// A sentence if the check fails at the culprit and at BAD with different texts: without `--says` each failure counts,
/// and these may be two defects.
pub(crate) fn other_failure(state: &State, conclusion: &Conclusion) -> Option<String> {
    if conclusion.culprit.is_none() || state.request.says.is_some() {
        return None;
    }
    let failures = |at: usize| state.runs_of(at, Side::Tested).filter(|run| run.outcome == Outcome::Failed);
    let here: Vec<String> = failures(last_candidate(state, conclusion)).map(|run| masked(&run.text)).collect();
    let bad = state.last();
    if failures(bad).any(|run| here.contains(&masked(&run.text))) {
        return None;
    }
    let text = plain_line(&failures(bad).next()?.text, REASON);
    let short = state.commits[bad].short();
    Some(format!("At {short} the check fails with another text, so it may be another defect: {text}"))
}

/// The first line of a failure without words with digits: numbers differ between runs of the same defect.
fn masked(text: &str) -> String {
    let has_number = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.split_whitespace().map(|word| if has_number(word) { "#" } else { word }).collect::<Vec<_>>().join(" ")
}

/// The verdict of the control architecture, as shown to people.
pub(crate) fn sentence(control: &Control) -> String {
    let verdict = match control.verdict {
        ControlVerdict::Architecture => "The defect depends on the architecture.",
        ControlVerdict::Everybody => "The defect does not depend on the architecture.",
        ControlVerdict::Undecided => "Whether the defect depends on the architecture is undecided.",
        ControlVerdict::NotCompared => "The result was not compared with another architecture.",
    };
    format!("{verdict} {}", control.why)
}

fn candidates(state: &State, conclusion: &Conclusion) -> String {
    if conclusion.culprit.is_some() {
        return String::new();
    }
    let commits = state.commits.iter().filter(|commit| conclusion.candidates.contains(&commit.id));
    let rows: String = commits.map(|commit| format!("- {} {}\n", commit.id, cell(&commit.subject))).collect();
    format!("## One of these commits\n\n{rows}\n")
}

fn repeat(state: &State, found: usize) -> String {
    let id = &state.commits[found].id;
    let command = |side| {
        let words = trial::words(&state.request, side, TREE);
        words.iter().fold("    cargo xtask".to_owned(), |line, word| format!("{line} {}", quoted(word))) + "\n"
    };
    let mut text = format!(
        "## How to repeat it\n\nIn a clone of {}:\n\n    git worktree add --detach {TREE} {id}\n{}\n",
        state.request.set,
        command(Side::Tested)
    );
    if let Some(arch) = state.request.other_arch() {
        let _ = write!(text, "The same on {arch}:\n\n{}\n", command(Side::Control));
    }
    text
}

fn by_hand(check: &Check) -> String {
    format!("Without this project:\n\n{}\n", indented(check.by_hand))
}

fn search(state: &State, conclusion: &Conclusion) -> String {
    let verdicts = plan::verdicts(state, conclusion.odds.passes);
    let mut text = format!(
        "## How it was found\n\nA search in the {} commits of the first-parent line from {} to {}:\n\n\
         | commit | subject | verdict | runs |\n| --- | --- | --- | --- |\n",
        state.last(),
        state.commits[0].short(),
        state.commits[state.last()].short()
    );
    for (at, commit) in state.commits.iter().enumerate() {
        let word = match verdicts[at] {
            Some(Verdict::Good) => "good".to_owned(),
            Some(Verdict::Bad) => "bad".to_owned(),
            Some(Verdict::Skip) => format!("skipped: {}", skipped(state, at)),
            None => continue,
        };
        let subject = cell(&commit.subject);
        let _ = writeln!(text, "| {} | {subject} | {} | {} |", commit.short(), word, runs(state, at, Side::Tested));
    }
    if let Some(arch) = state.request.other_arch() {
        for at in 0..state.commits.len() {
            let runs = runs(state, at, Side::Control);
            if !runs.is_empty() {
                let subject = cell(&state.commits[at].subject);
                let _ = writeln!(text, "| {} | {subject} | on {arch} | {runs} |", state.commits[at].short());
            }
        }
    }
    text + &format!("\n{}\n", conclusion.odds.text(conclusion.good_verdicts))
}

/// Why a commit was skipped.
fn skipped(state: &State, at: usize) -> String {
    let unclear = |run: &&Run| matches!(run.outcome, Outcome::OtherFailure | Outcome::BuildFailed);
    match state.runs_of(at, Side::Tested).find(unclear) {
        Some(run) => {
            let why = if run.outcome == Outcome::BuildFailed { "the build failed" } else { "another failure" };
            format!("{why}: {}", cell(&plain_line(&run.text, REASON)))
        }
        None => "left out with --skip".to_owned(),
    }
}

/// `2 passed, 1 failed`.
fn runs(state: &State, at: usize, side: Side) -> String {
    let words = [
        (Outcome::Passed, "passed"),
        (Outcome::Failed, "failed"),
        (Outcome::OtherFailure, "failed otherwise"),
        (Outcome::BuildFailed, "not built"),
        (Outcome::NotRun, "not run"),
    ];
    let count = |outcome| state.outcomes(at, side).filter(|seen| *seen == outcome).count();
    let parts = words.iter().map(|(outcome, word)| (count(*outcome), word)).filter(|(count, _)| *count > 0);
    parts.map(|(count, word)| format!("{count} {word}")).collect::<Vec<String>>().join(", ")
}

/// The lines as a code block.
fn indented(text: &str) -> String {
    report::text::plain(text).lines().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests;
