//! Tests of `plan`.

use super::*;
use crate::state::tests::{run, state};

/// Runs the plan to its end with these outcomes; returns the end and the runs.
fn played(mut state: State, mut outcome: impl FnMut(usize, Side) -> Outcome) -> (Step, State) {
    for _ in 0..10_000 {
        match next(&state) {
            Step::Run { commit, side } => state.runs.push(run(commit, side, outcome(commit, side))),
            end => return (end, state),
        }
    }
    panic!("the plan does not end");
}

fn done(step: Step) -> Conclusion {
    match step {
        Step::Done(conclusion) => conclusion,
        other => panic!("{other:?}"),
    }
}

fn refused(step: Step) -> (Exit, String) {
    match step {
        Step::Refuse { exit, text } => (exit, text),
        other => panic!("{other:?}"),
    }
}

fn broken_since(culprit: usize) -> impl Fn(usize, Side) -> Outcome {
    move |commit, side| match side {
        Side::Tested if commit >= culprit => Outcome::Failed,
        _ => Outcome::Passed,
    }
}

#[test]
fn ends_come_first_and_the_control_last() {
    let (end, state) = played(state(9, 1), broken_since(5));
    assert_eq!(done(end).culprit.as_ref(), Some(&state.commits[5].id));
    let order: Vec<(usize, Side)> = state.runs.iter().map(|run| (run.commit, run.side)).collect();
    assert_eq!(order[..2], [(8, Side::Tested), (0, Side::Tested)]);
    assert_eq!(order[order.len() - 2..], [(5, Side::Control), (4, Side::Control)]);
    assert!(order.len() <= 2 + 3 + 2, "{order:?}");
}

#[test]
fn every_culprit_is_found_with_any_number_of_runs() {
    for length in 2..20 {
        for culprit in 1..length {
            for repeat in [1, 3] {
                let (end, state) = played(state(length, repeat), broken_since(culprit));
                assert_eq!(done(end).culprit.as_ref(), Some(&state.commits[culprit].id));
            }
        }
    }
}

#[test]
fn ends_that_are_not_as_stated_are_refused() {
    let of = |at: usize, outcome| {
        let truth = broken_since(2);
        refused(played(state(5, 1), move |commit, side| if commit == at { outcome } else { truth(commit, side) }).0)
    };
    for (at, outcome, exit, part) in [
        (4, Outcome::Passed, Exit::Usage, "--bad"),
        (4, Outcome::OtherFailure, Exit::Usage, "another reason"),
        (4, Outcome::BuildFailed, Exit::Build, "cannot be built"),
        (0, Outcome::Failed, Exit::Usage, "--good"),
        (0, Outcome::OtherFailure, Exit::Usage, "another reason"),
        (0, Outcome::BuildFailed, Exit::Build, "cannot be built"),
    ] {
        let (seen, text) = of(at, outcome);
        assert!(seen == exit && text.contains(part), "{at} {outcome:?}: {seen:?} {text}");
    }
}

#[test]
fn skipped_commits_remain_as_candidates() {
    let truth = broken_since(5);
    let (end, state) = played(state(9, 1), |commit, side| match commit {
        3 | 4 => Outcome::BuildFailed,
        5 => Outcome::OtherFailure,
        _ => truth(commit, side),
    });
    let conclusion = done(end);
    assert_eq!((conclusion.culprit, conclusion.control), (None, None));
    let ids: Vec<String> = state.commits[3..=6].iter().map(|commit| commit.id.clone()).collect();
    assert_eq!(conclusion.candidates, ids);
}

#[test]
fn commits_that_the_user_leaves_out_never_run() {
    let mut start = state(9, 1);
    start.left_out = vec![4, 5];
    let (end, state) = played(start, broken_since(7));
    assert_eq!(done(end).culprit.as_ref(), Some(&state.commits[7].id));
    assert!(state.runs.iter().all(|run| ![4, 5].contains(&run.commit)), "{:?}", state.runs);
}

#[test]
fn race_needs_as_many_passes_as_its_rate_demands() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut wrong = 0;
    for _ in 0..300 {
        let culprit = random.usize(1..16);
        let truth = broken_since(culprit);
        // The failure occurs in half of the runs.
        let (end, state) = played(state(16, 12), |commit, side| match truth(commit, side) {
            Outcome::Failed if random.bool() => Outcome::Passed,
            outcome => outcome,
        });
        let Step::Done(conclusion) = end else { continue };
        let runs = state.outcomes(0, Side::Tested).count();
        assert_eq!(runs, conclusion.odds.passes);
        let found = state.commits.iter().position(|commit| Some(&commit.id) == conclusion.culprit.as_ref()).unwrap();
        assert!(found >= culprit, "a passing commit was called bad");
        wrong += usize::from(found != culprit);
    }
    assert!(wrong <= 30, "{wrong} of 300 searches blamed a later commit");
}

#[test]
fn failure_that_is_too_rare_is_refused_with_the_needed_number() {
    let mut runs = 0;
    let (exit, text) = refused(
        played(state(4, 4), |_, _| {
            runs += 1;
            if runs == 2 { Outcome::Failed } else { Outcome::Passed }
        })
        .0,
    );
    // A rate of 1 of 4 needs 14 passes.
    assert!(exit == Exit::Usage && text.contains("--repeat 14"), "{text}");
    assert_eq!(runs, 4, "only BAD ran");
}

#[test]
fn failure_ends_the_runs_of_a_commit() {
    let truth = broken_since(2);
    let mut runs_at_bad = 0;
    let (end, state) = played(state(4, 6), |commit, side| {
        let first = commit == 3 && {
            runs_at_bad += 1;
            runs_at_bad == 1
        };
        if first { Outcome::Passed } else { truth(commit, side) }
    });
    // 5 of 6 runs fail at BAD: three passes are needed.
    assert_eq!(done(end).odds.passes, 3);
    assert_eq!(state.outcomes(2, Side::Tested).collect::<Vec<_>>(), [Outcome::Failed]);
    assert_eq!(state.outcomes(1, Side::Tested).count(), 3);
    assert_eq!(state.outcomes(1, Side::Control).count(), 3);
}

#[test]
fn control_separates_architectures_from_common_defects() {
    let verdict = |at_culprit: Outcome, at_parent: Outcome| {
        let truth = broken_since(2);
        let (end, _) = played(state(4, 1), move |commit, side| match (side, commit) {
            (Side::Control, 2) => at_culprit,
            (Side::Control, _) => at_parent,
            _ => truth(commit, side),
        });
        done(end).control.unwrap().verdict
    };
    use ControlVerdict::{Architecture, Everybody, Undecided};
    assert_eq!(verdict(Outcome::Passed, Outcome::Passed), Architecture);
    assert_eq!(verdict(Outcome::Failed, Outcome::Passed), Everybody);
    assert_eq!(verdict(Outcome::Failed, Outcome::Failed), Undecided);
    assert_eq!(verdict(Outcome::Failed, Outcome::BuildFailed), Undecided);
    assert_eq!(verdict(Outcome::OtherFailure, Outcome::Passed), Undecided);
    assert_eq!(verdict(Outcome::NotRun, Outcome::NotRun), Undecided);
}

#[test]
fn commit_that_is_left_out_after_its_test_has_no_verdict() {
    let (end, mut state) = played(state(9, 1), broken_since(4));
    assert_eq!(done(end).culprit.as_ref(), Some(&state.commits[4].id));
    state.left_out = vec![4];
    let (end, state) = played(state, broken_since(4));
    assert_eq!(done(end).candidates, [&state.commits[4], &state.commits[5]].map(|commit| commit.id.clone()));
}

#[test]
fn control_is_not_compared_with_itself() {
    let mut start = state(4, 1);
    start.request.control = Some(start.request.arch.clone());
    let (end, state) = played(start, broken_since(2));
    let control = done(end).control.unwrap();
    assert_eq!(control.verdict, ControlVerdict::NotCompared);
    assert!(control.why.contains("itself") && state.runs.iter().all(|run| run.side == Side::Tested));
}

#[test]
fn estimate_reaches_zero_at_the_end() {
    let truth = broken_since(11);
    let mut estimates = vec![runs_left(&state(17, 1))];
    let mut state = state(17, 1);
    while let Step::Run { commit, side } = next(&state) {
        state.runs.push(run(commit, side, truth(commit, side)));
        estimates.push(runs_left(&state));
    }
    assert_eq!(estimates, [8, 7, 6, 5, 4, 3, 2, 1, 0]);
}
