//! The loop of a search: plans the next step, runs it, records it, until the search ends.
//!
//! It knows neither git nor the harness: the caller passes a function that runs one commit, and one that writes the
//! state.

use cli::Failure;
use model::Exit;
use sys::interrupt;
use sys::progress::{elapsed, say};

use crate::plan::{self, Step};
use crate::state::{Conclusion, Outcome, Run, Side, State};
use crate::trial::Trial;

/// Runs the search to its end, and stores the conclusion in the state.
///
/// # Errors
/// GOOD or BAD is not as stated, the environment failed, or an interrupt. The state then has all completed runs.
pub(crate) fn drive(
    state: &mut State,
    save: &mut dyn FnMut(&State) -> Result<(), Failure>,
    run: &mut dyn FnMut(&State, &Trial) -> Result<Run, Failure>,
) -> Result<Conclusion, Failure> {
    loop {
        interrupt::check().map_err(anyhow::Error::from)?;
        match plan::next(state) {
            Step::Refuse { exit, text } => return Err(Failure { exit, error: anyhow::anyhow!("{text}") }),
            Step::Done(conclusion) => {
                state.conclusion = Some(conclusion.clone());
                save(state)?;
                return Ok(conclusion);
            }
            Step::Run { commit, side } => {
                let trial = Trial { commit, side, folder: folder(state, commit), profiles: state.bad_profiles() };
                let ended = run(state, &trial)?;
                state.runs.push(ended);
                save(state)?;
                say(&line(state));
            }
        }
    }
}

/// `runs/003-0123456789ab`. A run that was interrupted has the same number as the run that replaces it.
fn folder(state: &State, commit: usize) -> String {
    format!("runs/{:03}-{}", state.runs.len() + 1, state.commits[commit].short())
}

/// The step of a trial in words, for the line that shows it while it runs.
pub(crate) fn label(state: &State, trial: &Trial) -> String {
    let Trial { commit, side, .. } = trial;
    let at = match *commit {
        0 => "GOOD",
        last if last == state.last() => "BAD",
        _ => "commit",
    };
    let number = state.outcomes(*commit, *side).count() + 1;
    let arch = match (side, state.request.other_arch()) {
        (Side::Control, Some(arch)) => format!(" on {arch}"),
        _ => String::new(),
    };
    format!("{at} {}{arch}, run {number}", state.commits[*commit].short())
}

/// The result of the last run.
fn line(state: &State) -> String {
    let Some(run) = state.runs.last() else { return String::new() };
    let word = match run.outcome {
        Outcome::Passed => "passes".to_owned(),
        Outcome::Failed => format!("fails: {}", short(&run.text)),
        Outcome::OtherFailure => format!("fails for another reason, skipped: {}", short(&run.text)),
        Outcome::BuildFailed => format!("cannot be built, skipped: {}", short(&run.text)),
        Outcome::NotRun => format!("shows nothing: {}", short(&run.text)),
    };
    let on = match (run.side, state.request.other_arch()) {
        (Side::Control, Some(arch)) => format!(" on {arch}"),
        _ => String::new(),
    };
    let left = plan::runs_left(state);
    let time = elapsed(std::time::Duration::from_secs(run.seconds));
    let commit = state.commits[run.commit].label();
    format!("bisect: {commit}{on} {word} ({time}); about {left} runs left")
}

/// The text on one line.
fn short(text: &str) -> String {
    report::text::plain_line(text, 240)
}

/// Whether `--resume` can go on after this exit: the others would repeat themselves. A build may have failed because of
/// the network or a full disk.
pub(crate) fn can_resume(exit: Exit) -> bool {
    matches!(exit, Exit::Infrastructure | Exit::Interrupted | Exit::Internal | Exit::Build)
}

#[cfg(test)]
mod tests;
