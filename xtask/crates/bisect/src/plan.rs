//! The next step of a search, and its conclusion, as pure functions of the state.

use model::Exit;

use crate::odds::Odds;
use crate::search::{Next, Verdict, search, steps};
use crate::state::{Conclusion, Control, ControlVerdict, Outcome, Side, State};

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Run this commit.
    Run {
        commit: usize,
        side: Side,
    },
    /// The request does not hold: GOOD or BAD is not as stated.
    Refuse {
        exit: Exit,
        text: String,
    },
    Done(Conclusion),
}

/// The verdict of these outcomes, if `passes` of them make a commit good. None: more runs are needed.
pub(crate) fn verdict(outcomes: impl Iterator<Item = Outcome>, passes: usize) -> Option<Verdict> {
    let mut passed = 0;
    let mut unclear = false;
    for outcome in outcomes {
        match outcome {
            Outcome::Failed => return Some(Verdict::Bad),
            Outcome::Passed => passed += 1,
            Outcome::OtherFailure | Outcome::BuildFailed | Outcome::NotRun => unclear = true,
        }
    }
    match (unclear, passed >= passes) {
        (true, _) => Some(Verdict::Skip),
        (false, true) => Some(Verdict::Good),
        (false, false) => None,
    }
}

/// The verdicts of all commits.
pub(crate) fn verdicts(state: &State, passes: usize) -> Vec<Option<Verdict>> {
    let mut verdicts = vec![None; state.commits.len()];
    for run in &state.runs {
        verdicts[run.commit] = verdict(state.outcomes(run.commit, Side::Tested), passes);
    }
    // Also commits that were tested before `--resume --skip` named them.
    for at in &state.left_out {
        verdicts[*at] = Some(Verdict::Skip);
    }
    verdicts
}

/// The next step: BAD, GOOD, the commits between them, the control architecture.
pub(crate) fn next(state: &State) -> Step {
    let odds = match bad_end(state) {
        Ok(odds) => odds,
        Err(step) => return step,
    };
    if let Some(step) = good_end(state, odds) {
        return step;
    }
    match search(&verdicts(state, odds.passes)) {
        Next::Test(commit) => Step::Run { commit, side: Side::Tested },
        Next::Found(culprit) => match control_commit(state, culprit, odds) {
            Some(commit) => Step::Run { commit, side: Side::Control },
            None => Step::Done(conclusion(state, culprit, culprit, odds)),
        },
        Next::OneOf { first, last } => Step::Done(conclusion(state, first, last, odds)),
        Next::Unbounded => refuse(Exit::Internal, "the search has no ends".to_owned()),
    }
}

/// About how many runs are left, with those on the control architecture.
pub(crate) fn runs_left(state: &State) -> usize {
    let repeat = state.request.repeat;
    let control = if state.request.other_arch().is_some() { 2 } else { 0 };
    let (bad, good) = (state.outcomes(state.last(), Side::Tested).count(), state.outcomes(0, Side::Tested).count());
    // Half of the commits fail at their first run.
    let each = |passes: usize| passes.div_ceil(2).max(1);
    match odds_at_bad(state).and_then(Result::ok) {
        Some(odds) => {
            let Odds { passes, .. } = odds;
            let mut verdicts = verdicts(state, passes);
            // Until GOOD has its verdict, the estimate assumes the stated one.
            verdicts[0].get_or_insert(Verdict::Good);
            let done = state.runs.iter().filter(|run| run.side == Side::Control).count();
            passes.saturating_sub(good) + steps(&verdicts) * each(passes) + (control * passes).saturating_sub(done)
        }
        None => {
            let mut verdicts = vec![None; state.commits.len()];
            (verdicts[0], verdicts[state.last()]) = (Some(Verdict::Good), Some(Verdict::Bad));
            repeat.saturating_sub(bad) + 1 + steps(&verdicts) + control
        }
    }
}

fn refuse(exit: Exit, text: String) -> Step {
    Step::Refuse { exit, text }
}

/// The odds that the runs at BAD give; None until all of them are done.
fn odds_at_bad(state: &State) -> Option<Result<Odds, crate::odds::TooRare>> {
    let outcomes: Vec<Outcome> = state.outcomes(state.last(), Side::Tested).collect();
    if outcomes.len() < state.request.repeat {
        return None;
    }
    let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let failures = count(Outcome::Failed);
    Some(Odds::of(failures, failures + count(Outcome::Passed), state.request.repeat))
}

/// The odds, or the step that must precede them.
fn bad_end(state: &State) -> Result<Odds, Step> {
    let (last, repeat) = (state.last(), state.request.repeat);
    if let Some(run) = state.runs_of(last, Side::Tested).find(|run| run.outcome == Outcome::BuildFailed) {
        let label = state.commits[last].label();
        return Err(refuse(Exit::Build, format!("--bad {label} cannot be built: {}", run.text)));
    }
    let Some(odds) = odds_at_bad(state) else { return Err(Step::Run { commit: last, side: Side::Tested }) };
    odds.map_err(|rare| {
        let label = state.commits[last].label();
        let seen = seen(state, last);
        if rare.needed == usize::MAX {
            let hint =
                if repeat == 1 { "name a commit that fails, or add --repeat for a race" } else { "raise --repeat" };
            return refuse(Exit::Usage, format!("--bad {label} does not fail as stated: {seen}; {hint}"));
        }
        let needed = rare.needed;
        refuse(
            Exit::Usage,
            format!(
                "the failure at --bad {label} is too rare for --repeat {repeat}: {seen}; at this rate a broken commit \
                 passes by chance until it has run {needed} times, so start again with --repeat {needed} or more"
            ),
        )
    })
}

/// The step that GOOD still needs.
fn good_end(state: &State, odds: Odds) -> Option<Step> {
    let label = || state.commits[0].label();
    match verdict(state.outcomes(0, Side::Tested), odds.passes) {
        None => Some(Step::Run { commit: 0, side: Side::Tested }),
        Some(Verdict::Good) => None,
        Some(_) if state.outcomes(0, Side::Tested).any(|outcome| outcome == Outcome::BuildFailed) => {
            Some(refuse(Exit::Build, format!("--good {} cannot be built: {}", label(), seen(state, 0))))
        }
        Some(_) => Some(refuse(
            Exit::Usage,
            format!("--good {} does not pass: {}; name an older commit that passes", label(), seen(state, 0)),
        )),
    }
}

/// The outcomes of a commit in words.
fn seen(state: &State, commit: usize) -> String {
    let outcomes: Vec<String> = state
        .runs_of(commit, Side::Tested)
        .map(|run| match run.outcome {
            Outcome::Passed => "the check passed".to_owned(),
            Outcome::Failed => format!("the check failed: {}", run.text),
            Outcome::OtherFailure => format!("the check failed for another reason: {}", run.text),
            Outcome::BuildFailed => format!("the build failed: {}", run.text),
            Outcome::NotRun => run.text.clone(),
        })
        .collect();
    let mut words: Vec<String> = Vec::new();
    for outcome in &outcomes {
        let times = outcomes.iter().filter(|other| *other == outcome).count();
        let word = if times == 1 { outcome.clone() } else { format!("in {times} runs {outcome}") };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join("; ")
}

/// The commit that the control architecture must still run: the culprit, then its parent.
fn control_commit(state: &State, culprit: usize, odds: Odds) -> Option<usize> {
    state.request.other_arch()?;
    let open = |commit: &usize| verdict(state.outcomes(*commit, Side::Control), odds.passes).is_none();
    [culprit, culprit - 1].into_iter().find(open)
}

fn conclusion(state: &State, first: usize, last: usize, odds: Odds) -> Conclusion {
    let found = first == last;
    let good = verdicts(state, odds.passes).iter().filter(|verdict| **verdict == Some(Verdict::Good)).count();
    Conclusion {
        culprit: found.then(|| state.commits[last].id.clone()),
        candidates: state.commits[first..=last].iter().map(|commit| commit.id.clone()).collect(),
        odds,
        good_verdicts: good,
        control: found.then(|| control(state, last, odds)),
    }
}

fn control(state: &State, culprit: usize, odds: Odds) -> Control {
    let of = |verdict, why: String| Control { verdict, why };
    let Some(arch) = state.request.other_arch() else {
        let why = match &state.request.control {
            None => "`--control none` was given.".to_owned(),
            Some(arch) => format!("{arch} is the architecture under test itself."),
        };
        return of(ControlVerdict::NotCompared, why);
    };
    let at = |commit| verdict(state.outcomes(commit, Side::Control), odds.passes);
    let text = state.runs_of(culprit, Side::Control).map(|run| run.text.as_str()).find(|text| !text.is_empty());
    let text = text.unwrap_or_default();
    match (at(culprit), at(culprit - 1)) {
        (Some(Verdict::Good), _) => {
            let times = if odds.passes == 1 { String::new() } else { format!(" {} times", odds.passes) };
            of(ControlVerdict::Architecture, format!("On {arch} the check passes{times} at the culprit."))
        }
        (Some(Verdict::Bad), Some(Verdict::Good)) => of(
            ControlVerdict::Everybody,
            format!("On {arch} the check also fails at the culprit, and passes at its parent."),
        ),
        (Some(Verdict::Bad), _) => of(
            ControlVerdict::Undecided,
            format!(
                "On {arch} the check fails at the culprit, and does not pass at its parent: it may fail there for \
                     another cause: {text}"
            ),
        ),
        (Some(Verdict::Skip) | None, _) => of(
            ControlVerdict::Undecided,
            format!("On {arch} the culprit could not be tested, or fails for another reason: {text}"),
        ),
    }
}

#[cfg(test)]
mod tests;
