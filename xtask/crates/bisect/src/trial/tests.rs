//! Tests of `trial`.

use report::results::PhaseResult;

use super::*;
use crate::state::tests::request;

fn case(check: &str, outcome: Word, message: &str) -> CaseResult {
    serde_json::from_value(serde_json::json!({
        "name": check, "check": check, "group": "storage", "profile": "default", "level": "must",
        "requirement": "", "source": "", "outcome": outcome, "message": message,
        "evidence": ["store: ADDED /registry/a at 3"], "issue": null, "seconds": 1.0, "counters": {}, "repeat": "",
        "attempts": [],
    }))
    .unwrap()
}

fn result(cases: Vec<CaseResult>) -> RunResult {
    serde_json::from_value(serde_json::json!({
        "id": "x", "started": "", "arch": "riscv64", "provider": "process", "harness": "0.1.0", "host": "",
        "sources": {}, "seed": 7, "shard": null, "command": "", "verdict": {"code": 0, "name": "ok", "meaning": ""},
        "trouble": null, "cut_short": null, "seconds": 1.0, "execution": "qemu-user", "factor": 1.0, "versions": {},
        "machine": null, "components": [
            {"name": "etcd", "version": "v3.6.16", "go": "go1.26.8", "sha256": "", "source": "module"},
        ],
        "phases": [], "planned": 1, "counts": report::results::Counts::default(), "cases": cases, "notes": [],
    }))
    .unwrap()
}

const CHECK: &str = "storage.create-txn";

fn outcome(code: i32, cases: Vec<CaseResult>, says: Option<&str>) -> Outcome {
    let request = Request { says: says.map(str::to_owned), ..request(1) };
    conclude(code, Some(&result(cases)), "", &request, &[]).unwrap().outcome
}

/// The conclusion from cases `PROFILE OUTCOME` at exit 0 or 100, for a check that fails on these profiles at BAD.
fn on_profiles(code: i32, cases: &[(&str, Word)], bad: &[&str]) -> Result<Seen, Failure> {
    let of = |(profile, outcome): &(&str, Word)| CaseResult {
        profile: (*profile).to_owned(),
        ..case(CHECK, *outcome, "why it is so")
    };
    let bad: Vec<String> = bad.iter().map(|profile| (*profile).to_owned()).collect();
    conclude(code, Some(&result(cases.iter().map(of).collect())), "", &request(1), &bad)
}

#[test]
fn pass_counts_only_if_the_profiles_that_fail_at_bad_have_run() {
    let failed = on_profiles(100, &[("default", Word::Passed), ("json", Word::Failed)], &[]).unwrap();
    assert_eq!((failed.outcome, failed.profiles), (Outcome::Failed, vec!["json".to_owned()]));
    let both = on_profiles(0, &[("default", Word::Skipped), ("json", Word::Passed)], &["json"]).unwrap();
    assert_eq!((both.outcome, both.profiles.len()), (Outcome::Passed, 0));
    for cases in [&[("default", Word::Passed), ("json", Word::Skipped)][..], &[("default", Word::Passed)]] {
        let failure = on_profiles(0, cases, &["json"]).unwrap_err();
        assert_eq!(failure.exit, Exit::NothingRan);
        let text = failure.error.to_string();
        assert!(text.contains("did not run on profile json, on which it fails at BAD"), "{text}");
    }
    let broken = on_profiles(100, &[("default", Word::UnexpectedPass), ("json", Word::Errored)], &[]).unwrap_err();
    assert_eq!(broken.exit, Exit::Infrastructure);
}

#[test]
fn check_that_does_not_run_is_a_result_only_on_the_control_architecture() {
    let skipped = || on_profiles(4, &[("default", Word::Skipped)], &[]);
    let seen = on_side(skipped(), Side::Control, true).unwrap();
    assert_eq!(seen.outcome, Outcome::NotRun);
    assert!(seen.text.contains("did not run: skipped why it is so"), "{}", seen.text);
    assert_eq!(on_side(skipped(), Side::Tested, true).unwrap_err().exit, Exit::NothingRan);
    let without = conclude(4, None, "in /a/folder", &request(1), &[]);
    assert_eq!(on_side(without, Side::Control, false).unwrap().text, "no case of the check can run there");
    let broken = conclude(102, None, "no route", &request(1), &[]);
    assert_eq!(on_side(broken, Side::Control, false).unwrap_err().exit, Exit::Infrastructure);
}

#[test]
fn outcome_is_that_of_the_check_and_not_of_others() {
    let pass = || case(CHECK, Word::Passed, "");
    let fail = || case(CHECK, Word::Failed, "mod_revision: expected 2, seen 3");
    assert_eq!(outcome(0, vec![pass()], None), Outcome::Passed);
    assert_eq!(outcome(100, vec![pass(), fail()], None), Outcome::Failed);
    // `--check` also selects ids that only begin like this one.
    assert_eq!(outcome(100, vec![pass(), case("storage.create-txn-more", Word::Failed, "")], None), Outcome::Passed);
    // Entries of targets/expectations.yaml do not change what was seen.
    assert_eq!(outcome(0, vec![case(CHECK, Word::ExpectedFailure, "x")], None), Outcome::Failed);
    assert_eq!(outcome(100, vec![case(CHECK, Word::UnexpectedPass, "x")], None), Outcome::Passed);
}

#[test]
fn failure_without_the_text_is_another_failure() {
    let fail = || vec![case(CHECK, Word::Failed, "mod_revision: expected 2, seen 3")];
    assert_eq!(outcome(100, fail(), Some("expected 2")), Outcome::Failed);
    assert_eq!(outcome(100, fail(), Some("ADDED /registry/a")), Outcome::Failed, "the evidence counts");
    assert_eq!(outcome(100, fail(), Some("expected 9")), Outcome::OtherFailure);
}

#[test]
fn build_error_comes_from_the_phase_or_the_output() {
    let mut built = result(vec![]);
    let seen = conclude(101, None, "the last lines", &request(1), &[]).unwrap();
    assert_eq!((seen.outcome, seen.text.as_str()), (Outcome::BuildFailed, "the last lines"));
    built.phases.push(PhaseResult {
        name: "build".into(),
        outcome: Word::Errored,
        message: "build: undefined: x\nto repeat it: cd DIR && go build".into(),
        seconds: None,
    });
    assert_eq!(conclude(101, Some(&built), "tail", &request(1), &[]).unwrap().text, "build: undefined: x");
}

#[test]
fn run_without_a_result_is_an_error_with_its_exit_code() {
    let timed_out = result(vec![case(CHECK, Word::TimedOut, "timed out waiting for x")]);
    for (code, exit) in [
        (102, Exit::Infrastructure),
        (130, Exit::Interrupted),
        (96, Exit::TargetData),
        (4, Exit::NothingRan),
        (2, Exit::Usage),
        (1, Exit::Internal),
        (77, Exit::Infrastructure),
    ] {
        let failure = conclude(code, Some(&timed_out), "", &request(1), &[]).unwrap_err();
        assert_eq!(failure.exit, exit, "{code}");
        assert!(failure.error.to_string().contains("waiting for x"), "{}", failure.error);
    }
    for cases in [vec![], vec![case(CHECK, Word::Skipped, "needs a node")]] {
        let failure = conclude(0, Some(&result(cases)), "", &request(1), &[]).unwrap_err();
        assert_eq!(failure.exit, Exit::NothingRan);
    }
    assert!(conclude(0, None, "", &request(1), &[]).is_err(), "a run without results is no pass");
}

#[test]
fn words_are_a_command_line_for_each_side() {
    let request = Request { cpu: Some("rva23".into()), profile: Some("json".into()), ..request(1) };
    assert_eq!(
        words(&request, Side::Tested, "T").join(" "),
        "ci --arch riscv64 --cpu rva23 --etcd checkout:T --check storage.create-txn --profile json --seed 7 --provider \
         process"
    );
    assert_eq!(
        words(&request, Side::Control, "T").join(" "),
        "ci --arch amd64 --etcd checkout:T --check storage.create-txn --profile json --seed 7 --provider process"
    );
}

#[test]
fn clock_of_the_run_is_left_out() {
    assert_eq!(without_clock("14:55:17 boot passed"), "boot passed");
    for line in ["boot passed", "14:55:17", "12345678x y", ""] {
        assert_eq!(without_clock(line), line);
    }
}

#[test]
fn versions_name_the_go_release() {
    let versions = versions(&result(vec![]));
    assert_eq!(versions["etcd"], "v3.6.16, go1.26.8");
}
