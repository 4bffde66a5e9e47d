//! Tests of `drive`.

use sys::Scratch;

use super::*;
use crate::history::tests::Fixture;
use crate::history::{Repo, Worktree};
use crate::state::tests::{request, run};
use crate::state::{ControlVerdict, Request};

/// A repository whose commits from `culprit` on fail, and the state of a search in it.
fn search(fixture: &Fixture, repeat: usize) -> State {
    let commits = fixture.line("HEAD~8", "HEAD").unwrap();
    let (good, bad) = (commits[0].id.clone(), commits[8].id.clone());
    State::new(Request { good, bad, ..request(repeat) }, commits, Vec::new())
}

/// Runs the search; the fake run reads the file of the commit in the worktree. It fails at the call `stop_at`.
fn searched(
    repo: &Repo,
    out: &Scratch,
    state: &mut State,
    culprit: usize,
    stop_at: Option<usize>,
) -> Result<Conclusion, Failure> {
    let worktree = Worktree::create(repo, &out.path().join("worktree"), "HEAD").unwrap();
    let mut save = |state: &State| state.write(out.path()).map_err(Failure::from);
    let mut calls = 0;
    drive(state, &mut save, &mut |state, trial| {
        calls += 1;
        if Some(calls) == stop_at {
            return Err(Failure { exit: Exit::Infrastructure, error: anyhow::anyhow!("boot failed") });
        }
        worktree.move_to(&state.commits[trial.commit].id)?;
        let number: usize = std::fs::read_to_string(worktree.path().join("n")).unwrap().parse().unwrap();
        assert_eq!(state.commits[trial.commit].subject, format!("c{number}"));
        let fails = number >= culprit && trial.side == Side::Tested;
        Ok(run(trial.commit, trial.side, if fails { Outcome::Failed } else { Outcome::Passed }))
    })
}

#[test]
fn culprit_is_found_in_a_repository() {
    let (fixture, out) = (Fixture::new(9), Scratch::temporary("bisect-out").unwrap());
    let repo = fixture.repo();
    for culprit in 1..9 {
        let mut state = search(&fixture, 1);
        let conclusion = searched(&repo, &out, &mut state, culprit, None).unwrap();
        assert_eq!(conclusion.culprit.as_ref(), Some(&state.commits[culprit].id));
        assert_eq!(conclusion.control.unwrap().verdict, ControlVerdict::Architecture);
        assert_eq!(State::read(out.path()).unwrap(), state, "the file is not the final state");
        assert!(!out.path().join("worktree").exists());
    }
}

#[test]
fn search_goes_on_after_any_interruption_without_repeating_a_run() {
    let fixture = Fixture::new(9);
    let repo = fixture.repo();
    let whole = {
        let (mut state, out) = (search(&fixture, 1), Scratch::temporary("bisect-out").unwrap());
        searched(&repo, &out, &mut state, 6, None).unwrap();
        state
    };
    for stop_at in 1..=whole.runs.len() {
        let out = Scratch::temporary("bisect-out").unwrap();
        let mut state = search(&fixture, 1);
        state.write(out.path()).unwrap();
        let stopped = searched(&repo, &out, &mut state, 6, Some(stop_at)).unwrap_err();
        assert_eq!(stopped.exit, Exit::Infrastructure);
        assert!(!out.path().join("worktree").exists(), "the worktree is left after an error");
        let mut resumed = State::read(out.path()).unwrap();
        assert_eq!((resumed.runs.len(), resumed.conclusion.as_ref()), (stop_at - 1, None));
        searched(&repo, &out, &mut resumed, 6, None).unwrap();
        assert_eq!(resumed, whole);
    }
}

#[test]
fn lines_name_the_commit_the_result_and_the_runs_left() {
    let fixture = Fixture::new(9);
    let mut state = search(&fixture, 1);
    let trial = Trial { commit: 8, side: Side::Tested, folder: String::new(), profiles: Vec::new() };
    assert!(label(&state, &trial).starts_with("BAD ") && label(&state, &trial).ends_with("run 1"));
    state.runs.push(run(8, Side::Tested, Outcome::Failed));
    let text = line(&state);
    for part in ["\"c8\"", "fails: mod_revision", "about 6 runs left"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(folder(&state, 0).starts_with("runs/002-"));
}
