//! Tests of `request`.

use clap::Parser;
use sys::Scratch;

use super::*;
use crate::history::tests::Fixture;
use crate::odds::Odds;
use crate::state::Conclusion;

#[derive(Parser)]
struct Alone {
    #[command(flatten)]
    options: BisectOptions,
}

fn catalogue() -> Catalogue {
    Catalogue::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../targets")).unwrap()
}

fn options(words: &[&str]) -> BisectOptions {
    Alone::try_parse_from([&["x"], words].concat()).map(|alone| alone.options).unwrap()
}

fn words<'a>(fixture: &'a Fixture, more: &[&'a str]) -> Vec<&'a str> {
    let root = fixture.root.to_str().unwrap();
    let line = ["--arch", "riscv64", "--set", "etcd", "--checkout", root, "--good", "HEAD~3", "--bad", "HEAD"];
    [&line[..], &["--check", "storage.create-txn"], more].concat()
}

fn state(fixture: &Fixture, more: &[&str]) -> Result<State, Failure> {
    new(&catalogue(), &options(&words(fixture, more)))
}

#[test]
fn request_has_resolved_commits_and_the_options_of_the_runs() {
    let fixture = Fixture::new(5);
    let more =
        ["--provider", "process", "--kubernetes", "1.35", "--seed", "9", "--control", "amd64", "--skip", "HEAD~1"];
    let State { request, commits, left_out, .. } = state(&fixture, &more).unwrap();
    assert_eq!((commits.len(), request.good.as_str()), (4, commits[0].id.as_str()));
    assert_eq!((request.seed, request.repeat, left_out), (9, 1, vec![2]));
    assert_eq!(
        request.options.join(" "),
        "--provider process --kubernetes module:1.35".replace("module:1.35", &shown("1.35"))
    );
    assert_eq!(state(&fixture, &["--control", "none"]).unwrap().request.control, None);
    let relative = state(&fixture, &["--kubernetes", "checkout:../k"]).unwrap().request.options.join(" ");
    assert!(relative.starts_with("--kubernetes checkout:/") && relative.ends_with("/k"), "{relative}");
}

/// A source as the command line shows it.
fn shown(text: &str) -> String {
    text.parse::<Source>().unwrap().to_string()
}

#[test]
fn wrong_options_are_usage_errors() {
    let fixture = Fixture::new(5);
    for more in [
        &["--profile", "nonsense"][..],
        &["--repeat", "100000"],
        &["--says", ""],
        &["--cpu", "nonsense"],
        &["--control", "nonsense"],
        &["--skip", "HEAD"],
        &["--etcd", "3.5"],
        &["--store", "kine-sqlite"],
        &["--components", "dir"],
    ] {
        let refused = state(&fixture, more).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage, "{more:?}: {:#}", refused.error);
    }
    let check = new(&catalogue(), &BisectOptions { check: Some("storage.".into()), ..options(&words(&fixture, &[])) });
    assert!(check.unwrap_err().error.to_string().contains("no check matches `storage.`"));
    assert!(Alone::try_parse_from(["x", "--arch", "riscv64"]).is_err(), "the other options are required");
}

#[test]
fn resumed_search_repeats_the_builds_that_decided_its_end() {
    use crate::state::tests::{run, state};
    let mut stopped = state(4, 1);
    let tried = [
        (3, Side::Tested, Outcome::Failed),
        (0, Side::Tested, Outcome::BuildFailed),
        (1, Side::Tested, Outcome::BuildFailed),
        (2, Side::Control, Outcome::BuildFailed),
    ];
    stopped.runs = tried.map(|(commit, side, outcome)| run(commit, side, outcome)).into();
    let left = |mut state: State| {
        repeat_builds(&mut state);
        assert_eq!(state.conclusion, None);
        state.runs.iter().map(|run| run.commit).collect::<Vec<_>>()
    };
    assert_eq!(left(stopped.clone()), [3, 1]);
    let conclusion = Conclusion {
        culprit: None,
        candidates: Vec::new(),
        odds: Odds { failures: 1, runs: 1, passes: 1 },
        good_verdicts: 1,
        control: None,
    };
    assert_eq!(left(State { conclusion: Some(conclusion), ..stopped }), [3]);
}

#[test]
fn resumed_search_accepts_only_its_own_request() {
    let (fixture, out) = (Fixture::new(5), Scratch::temporary("bisect-out").unwrap());
    let recorded = state(&fixture, &["--seed", "9", "--control", "amd64", "--provider", "process"]).unwrap();
    recorded.write(out.path()).unwrap();
    let folder = out.path().to_str().unwrap();
    let resume = |more: &[&str]| {
        let options = options(&[&["--resume", folder], more].concat());
        resumed(&catalogue(), &options, out.path())
    };
    assert_eq!(resume(&[]).unwrap(), recorded);
    assert_eq!(resume(&["--seed", "9", "--check", "storage.create-txn", "--bad", "main"]).unwrap(), recorded);
    assert_eq!(resume(&words(&fixture, &["--provider", "process", "--control", "amd64"])).unwrap(), recorded);
    assert_eq!(resume(&["--skip", "HEAD~2"]).unwrap().left_out, [1]);
    for more in [
        &["--seed", "8"][..],
        &["--arch", "amd64"],
        &["--set", "kubernetes"],
        &["--bad", "HEAD~1"],
        &["--repeat", "2"],
        &["--says", "x"],
        &["--control", "none"],
        &["--provider", "qemu"],
        &["--skip", "HEAD~4"],
    ] {
        let refused = resume(more).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage, "{more:?}: {:#}", refused.error);
    }
}
