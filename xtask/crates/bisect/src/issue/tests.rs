//! Tests of `issue`.

use super::*;
use crate::plan::{Step, next};
use crate::state::tests::{run, state};

fn concluded(mut state: State, outcome: impl Fn(usize, Side) -> Outcome) -> (State, Conclusion) {
    loop {
        match next(&state) {
            Step::Run { commit, side } => state.runs.push(run(commit, side, outcome(commit, side))),
            Step::Done(conclusion) => return (state, conclusion),
            Step::Refuse { text, .. } => panic!("{text}"),
        }
    }
}

fn text(state: &State, conclusion: &Conclusion) -> String {
    issue(state, conclusion, checks::find("storage.create-txn").unwrap())
}

#[test]
fn issue_names_commit_requirement_evidence_commands_and_control() {
    let mut start = state(6, 1);
    start.commits[3].subject = "server: a | b <b>".into();
    let (state, conclusion) =
        concluded(start, |at, side| if at >= 3 && side == Side::Tested { Outcome::Failed } else { Outcome::Passed });
    let text = text(&state, &conclusion);
    let check = checks::find("storage.create-txn").unwrap();
    for part in [
        "# storage.create-txn fails on riscv64 since 000000000000 (server: a &#124; b &lt;b&gt;)\n",
        &state.commits[3].id,
        "2026-01-02T03:04:05+00:00",
        &cell(check.requirement),
        &cell(check.source),
        "    mod_revision: expected 2, seen 3\n",
        "    store: ADDED /registry/a at 3\n",
        "    git worktree add --detach culprit ",
        "    cargo xtask ci --arch riscv64 --etcd checkout:culprit --check storage.create-txn --seed 7 --provider ",
        "    cargo xtask ci --arch amd64 --etcd checkout:culprit",
        "The defect depends on the architecture. On amd64 the check passes at the culprit.",
        "v3.6.16, go1.26.8",
        "| seed | 7 |",
        "failure rate is unknown",
        "| good | 1 passed |",
        "| bad | 1 failed |",
        "| on amd64 | 1 passed |",
    ] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
    assert!(!text.contains("repo"), "the folder of this machine is in:\n{text}");
}

#[test]
fn failure_at_bad_with_another_text_is_shown() {
    let (mut state, conclusion) = concluded(state(6, 1), |at, side| match side {
        Side::Tested if at >= 3 => Outcome::Failed,
        _ => Outcome::Passed,
    });
    let mut at_bad = |text: &str| {
        state.runs.iter_mut().filter(|run| run.commit == 5).for_each(|run| run.text = text.into());
        other_failure(&state, &conclusion)
    };
    assert_eq!(at_bad("mod_revision: expected 12, seen 14\n\nmore"), None);
    let other = at_bad("the watch ended").unwrap();
    assert!(other.ends_with("it may be another defect: the watch ended"), "{other}");
    assert!(text(&state, &conclusion).contains("the watch ended"));
    state.request.says = Some("x".into());
    assert_eq!(other_failure(&state, &conclusion), None);
}

#[test]
fn remaining_commits_are_listed() {
    let (state, conclusion) = concluded(state(6, 1), |at, _| match at {
        2 | 3 => Outcome::BuildFailed,
        at if at >= 4 => Outcome::Failed,
        _ => Outcome::Passed,
    });
    let text = text(&state, &conclusion);
    assert!(text.starts_with("# storage.create-txn fails on riscv64 since one of 3 commits\n"), "{text}");
    for at in 2..=4 {
        assert!(text.contains(&format!("- {} c{at}\n", state.commits[at].id)), "{text}");
    }
    assert!(text.contains("skipped: the build failed"), "{text}");
}
