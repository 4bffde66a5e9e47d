//! `cargo xtask report` on recorded runs: exit codes, files, and output for GitHub Actions.

use std::path::Path;

use crate::harness::Place;
use serde_json::{Value, json};

/// Writes a recorded run with these outcomes below the test's reports folder.
fn run(place: &Place, name: &str, arch: &str, shard: Option<&str>, cases: &[(&str, &str)]) {
    let cases: Vec<(&str, Value)> = cases
        .iter()
        .map(|(case, outcome)| match *outcome {
            "failed" => {
                (*case, json!({"outcome": "failed", "message": "::error::a hostile server\n::set-output name=a::b"}))
            }
            "errored" => (*case, json!({"outcome": "errored", "phase": "request", "message": "reset"})),
            other => (*case, json!({ "outcome": other })),
        })
        .collect();
    let facts = json!({"arch": arch, "shard": shard});
    crate::recorded::write(&place.reports().join(name), "2026-11-21T10:00:00.000Z", facts, &cases);
}

fn json_of(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

#[test]
fn gate_requires_every_architecture_and_shard() {
    let place = Place::new();
    run(&place, "a", "amd64", Some("1/2"), &[("rv.a", "passed")]);
    run(&place, "b", "riscv64", None, &[("rv.a", "failed")]);
    let gate = |args: &[&str]| place.run(&[&["report", "gate"], args].concat());
    gate(&["a", "--arch", "amd64"]).expect(102, &["no result of shard 2/2", "closed"]);
    run(&place, "c", "amd64", Some("2/2"), &[("rv.b", "passed")]);
    gate(&["a", "c", "--arch", "amd64"]).expect(0, &["2 passed"]);
    gate(&["a", "c"]).expect(102, &["ppc64le  failed", "its job was lost"]);
    gate(&["--arch", "amd64"]).expect(102, &["its job was lost"]);
    gate(&["a", "b", "c", "--arch", "amd64,riscv64"]).expect(100, &["conformance failures"]);
    let out = place.root.join("gate");
    let out = out.to_str().unwrap();
    gate(&["a", "b", "c", "--arch", "x86_64", "--experimental", "riscv64", "--out", out]).expect(0, &["warning"]);
    let gate = json_of(&place.root.join("gate/gate.json"));
    assert_eq!((&gate["passed"], &gate["architectures"][1]["standing"]), (&true.into(), &"warning".into()));
}

#[test]
fn merged_runs_have_files_that_are_valid() {
    let place = Place::new();
    run(&place, "a", "amd64", None, &[("rv.a", "passed"), ("rv.b", "errored")]);
    run(&place, "b", "riscv64", None, &[("rv.a", "failed")]);
    // A folder above runs includes all of them.
    let out = place.root.join("merged");
    let reports = place.reports();
    let merged = place.run(&["report", "merge", reports.to_str().unwrap(), "--out", out.to_str().unwrap(), "--json"]);
    let merged = merged.expect(102, &["amd64", "riscv64"]);
    let results = json_of(&out.join("results.json"));
    assert_eq!(merged.json(), results);
    assert_eq!(results["runs"].as_array().unwrap().len(), 2);
    let [junit, results] = ["junit.xml", "results.json"].map(|name| out.join(name).display().to_string());
    place.run(&["report", "validate", &junit, &results]).expect(0, &["valid"]);
    let text = std::fs::read_to_string(&junit).unwrap();
    std::fs::write(&junit, text.replacen("tests=\"", "tests=\"1", 1)).unwrap();
    place.run(&["report", "validate", &junit]).expect(100, &["not the sum"]);
    place.run(&["report", "write", "a", "b"]).expect(102, &["conformance failures"]);
    assert!(place.reports().join("a/junit/junit_amd64-rv.xml").is_file());
}

#[test]
fn diff_exits_with_the_worst_new_result() {
    let place = Place::new();
    run(&place, "a", "amd64", None, &[("rv.a", "passed"), ("rv.b", "errored")]);
    run(&place, "b", "amd64", None, &[("rv.a", "failed"), ("rv.b", "passed")]);
    place.run(&["report", "diff", "a", "b"]).expect(100, &["newly failing: amd64 rv.a", "fixed: amd64 rv.b"]);
    place.run(&["report", "diff", "b", "a"]).expect(102, &["newly failing: amd64 rv.b errored"]);
    place.run(&["report", "diff", "a", "a"]).expect(0, &["0 newly failing", "of 2 in both"]);
    // An architecture of one side alone is not an equal one.
    run(&place, "several/amd64", "amd64", None, &[("rv.a", "passed"), ("rv.b", "errored")]);
    run(&place, "several/riscv64", "riscv64", None, &[("rv.a", "passed")]);
    place.run(&["report", "diff", "several", "a"]).expect(102, &["riscv64: HEAD has no run of it"]);
    place.run(&["report", "diff", "a", "several"]).expect(0, &["riscv64: BASE has no run of it"]);
    // A run that did not begin is only in the record of the command.
    let began = json!({"arch": "amd64", "record": "amd64/run.json"});
    let record = json!({"children": [began, {"arch": "s390x", "record": null}]});
    std::fs::write(place.reports().join("several/run.json"), record.to_string()).unwrap();
    place.run(&["report", "diff", "several", "several"]).expect(102, &["s390x: HEAD has no run of it"]);
    place.run(&["compare", "several"]).expect(4, &["s390x is not compared"]);
}

#[test]
fn history_adds_a_run_once_and_badges_cover_all_architectures() {
    let place = Place::new();
    run(&place, "a", "amd64", None, &[("rv.a", "passed")]);
    let dir = place.root.join("history");
    let append = ["report", "history", "append", "a", "--commit", "abc", "--dir", dir.to_str().unwrap()];
    place.run(&append).expect(0, &["1 added"]);
    place.run(&append).expect(0, &["0 added, 1 already present"]);
    let line = json_of(&dir.join("amd64/2026-11.ndjson"));
    assert_eq!((&line["sha"], &line["tests"], &line["verdict"]), (&"abc".into(), &1.into(), &"ok".into()));
    // Two runs of one architecture count as attempts, unless --separate is given.
    run(&place, "b", "amd64", None, &[("rv.a", "passed")]);
    let both = ["report", "history", "append", "a", "b", "--dir"];
    for (more, added) in [(&[][..], "1 added"), (&["--separate"][..], "2 added")] {
        let other = place.root.join(added);
        place.run(&[&both[..], &[other.to_str().unwrap()], more].concat()).expect(0, &[added]);
    }
    let badges = place.root.join("badges");
    place.run(&["report", "badge", "a", "--out", badges.to_str().unwrap()]).expect(0, &["amd64: 1/1 passed"]);
    assert_eq!(json_of(&badges.join("amd64.json"))["message"], "1/1 passed");
    assert_eq!(json_of(&badges.join("loong64.json"))["message"], "no result");
}

/// The runner accepts commands only from the harness: text from servers is between the stop and resume commands.
#[test]
fn actions_commands_come_only_from_the_harness() {
    let place = Place::new();
    run(&place, "a", "amd64", None, &[("rv.a", "failed")]);
    let [summary, output] = ["summary", "output"].map(|name| place.root.join(name));
    let mut command = place.command(&["report", "merge", "a"]);
    command.env("GITHUB_ACTIONS", "true").env("GITHUB_STEP_SUMMARY", &summary).env("GITHUB_OUTPUT", &output);
    let ended = place.start_command(command).end().expect(100, &["::error title=rv.a on amd64%3A failed::"]);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let token = lines[0].strip_prefix("::stop-commands::").unwrap();
    assert_eq!(lines.last(), Some(&format!("::{token}::").as_str()));
    let mut stopped = false;
    for line in lines {
        match line {
            _ if line == format!("::stop-commands::{token}") => stopped = true,
            _ if line == format!("::{token}::") => stopped = false,
            _ if stopped => {}
            _ => assert!(line.starts_with("::error title="), "the runner sees {line}"),
        }
    }
    assert!(std::fs::read_to_string(summary).unwrap().contains("rv.a"));
    let output = std::fs::read_to_string(output).unwrap();
    assert!(output.starts_with("result=conformance\nexit=100\n") && output.lines().count() == 4, "{output}");
}

#[test]
fn missing_inputs_are_named() {
    let place = Place::new();
    let table: &[(&[&str], u8, &[&str])] = &[
        (&["report", "merge", "nope"], 2, &["no run `nope`", "reports"]),
        (&["report", "merge", "."], 4, &["no recorded run"]),
        (&["report", "gate", "--arch", "mips"], 2, &["`mips`", "riscv64"]),
        (&["report", "diff", "."], 2, &["HEAD"]),
        (&["report", "diff", ".", ".", "--slower", "0.5"], 2, &["at least 1"]),
        (&["report", "validate", "nope.xml"], 2, &["failed to read nope.xml"]),
        (&["report", "history", "append", ".", "--dir", "x"], 4, &["no recorded run"]),
        (&["report"], 2, &["merge", "gate", "validate"]),
    ];
    for (args, code, parts) in table {
        place.run(args).expect((*code).into(), parts);
    }
}
