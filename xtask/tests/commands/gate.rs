//! A rehearsal of the gate: runs the steps of the job `gate` of `.github/workflows/ci.yml` one after the other, on
//! results that are laid out as `actions/download-artifact` unpacks them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::harness::Place;
use serde_json::{Value, json};
use serde_yaml::Value as Yaml;

/// The result of one `ci` job: the case `rv.a` and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    Errored,
    /// The record is not a list of events.
    Unreadable,
}

/// The id of the rehearsed workflow run.
const WORKFLOW_RUN: &str = "4711";

/// An artifact, with the claims of the run that it contains.
#[derive(Clone, Debug)]
struct Artifact {
    name: String,
    id: String,
    attempt: u32,
    workflow_run: &'static str,
    arch: String,
    provider: &'static str,
    shard: Option<String>,
    end: End,
}

/// A workflow run whose jobs have finished.
struct Workflow {
    place: Place,
    outputs: BTreeMap<String, String>,
    jobs: Vec<Value>,
    artifacts: Vec<Artifact>,
    /// The attempt of the gate.
    attempt: u32,
    /// GitHub's result for the jobs that the gate requires.
    arch: &'static str,
}

/// The result of the gate.
struct Ended {
    passed: bool,
    transcript: String,
    folder: PathBuf,
}

impl Workflow {
    /// A nightly plan of these architectures, with the machines in the repository's variable.
    fn planned(only: &str, runners: &str) -> Workflow {
        Workflow::planned_with_source(only, runners, "")
    }

    /// The same, and with jobs from source on some of these machines.
    fn planned_with_source(only: &str, runners: &str, source: &str) -> Workflow {
        let place = Place::new();
        let output = place.root.join("plan-outputs");
        let mut command = place.command(&["matrix", "--event", "schedule", "--only", only, "--github-output"]);
        command.env("GITHUB_ACTIONS", "true").env("GITHUB_OUTPUT", &output).env("ARCHPROOF_RUNNERS", runners);
        command.env("ARCHPROOF_SOURCE", source).env("GITHUB_RUN_ID", WORKFLOW_RUN);
        let ended = place.start_command(command).end().expect(0, &[]);
        let text = std::fs::read_to_string(&output).unwrap();
        let outputs = text.lines().filter_map(|line| line.split_once('='));
        let outputs = outputs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let jobs = ended.json()["include"].as_array().unwrap().clone();
        Workflow { place, outputs, jobs, artifacts: Vec::new(), attempt: 1, arch: "success" }
    }

    /// The only job of the plan for this architecture and mode, or its first shard.
    fn job(&self, arch: &str, mode: &str) -> Value {
        let wanted = |job: &&Value| job["arch"] == arch && job["mode"] == mode;
        self.jobs.iter().find(wanted).unwrap_or_else(|| panic!("no {mode} job of {arch} in {:?}", self.jobs)).clone()
    }

    fn artifact(&self, job: &Value, attempt: u32, end: End) -> Artifact {
        let id = job["id"].as_str().unwrap().to_owned();
        let parts = id.rsplit('-').next().and_then(|last| last.split_once("of"));
        let shard = parts.map(|(index, of)| format!("{index}/{of}"));
        let provider = if job["mode"] == "vm" { "qemu" } else { "process" };
        let arch = job["arch"].as_str().unwrap().to_owned();
        let (name, workflow_run) = (artifact_name(&id, attempt), WORKFLOW_RUN);
        Artifact { name, id, attempt, workflow_run, arch, provider, shard, end }
    }

    fn upload(&mut self, job: &Value, attempt: u32, end: End) {
        let artifact = self.artifact(job, attempt, end);
        self.artifacts.push(artifact);
    }

    /// Every job of the plan has a result from the first attempt.
    fn upload_all(&mut self, end: impl Fn(&Value) -> End) {
        for job in self.jobs.clone() {
            self.upload(&job, 1, end(&job));
        }
    }

    /// Like `download-artifact` 8.0.1: a folder for each artifact, but none for a single artifact; of several artifacts
    /// with the same name it keeps one.
    /// <https://github.com/actions/download-artifact/blob/v8.0.1/src/download-artifact.ts>
    fn download(&self) {
        let results = self.place.root.join("results");
        let kept: BTreeMap<&str, &Artifact> = self.artifacts.iter().map(|a| (a.name.as_str(), a)).collect();
        for artifact in kept.values() {
            let folder = if kept.len() == 1 { results.clone() } else { results.join(&artifact.name) };
            artifact.unpack(&folder);
        }
    }

    /// Downloads the artifacts and runs the steps.
    fn gate(&self) -> Ended {
        self.download();
        let workflow = rendered("ci.yml");
        let job = &workflow["jobs"]["gate"];
        let mut failed = false;
        let mut transcript = String::new();
        for step in job["steps"].as_sequence().unwrap() {
            let Some(run) = step["run"].as_str().and_then(|run| run.strip_prefix("cargo xtask ")) else { continue };
            let condition = step["if"].as_str().unwrap_or("success()");
            let tested = !condition.contains("tested != ''") || !self.outputs["tested"].is_empty();
            if !tested || (failed && !condition.contains("!cancelled()")) {
                continue;
            }
            let (ok, output) = self.step(job, step, run);
            failed |= !ok;
            transcript += &format!("$ {run}\n{output}");
        }
        Ended { passed: !failed, transcript, folder: self.place.root.clone() }
    }

    fn step(&self, job: &Yaml, step: &Yaml, run: &str) -> (bool, String) {
        let mut env = BTreeMap::from([("GITHUB_RUN_ATTEMPT".to_owned(), self.attempt.to_string())]);
        for (name, value) in step["env"].as_mapping().into_iter().flatten() {
            env.insert(name.as_str().unwrap().to_owned(), self.expression(job, value.as_str().unwrap()));
        }
        let words: Vec<String> = run
            .split_whitespace()
            .map(|word| match word.strip_prefix("\"$").and_then(|word| word.strip_suffix('"')) {
                Some(name) => env[name].clone(),
                None => word.to_owned(),
            })
            .collect();
        let mut command = self.place.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        command.envs(&env);
        let ended = self.place.start_command(command).end();
        (ended.status.success(), ended.stdout + &ended.stderr)
    }

    fn expression(&self, job: &Yaml, text: &str) -> String {
        let inner = text.strip_prefix("${{ ").and_then(|text| text.strip_suffix(" }}")).unwrap();
        if let Some(name) = inner.strip_prefix("needs.plan.outputs.") {
            return self.outputs.get(name).unwrap_or_else(|| panic!("the plan has no output {name}")).clone();
        }
        assert_eq!(inner, "toJSON(needs)");
        let needed = job["needs"].as_sequence().unwrap().iter().map(|name| name.as_str().unwrap());
        let needs = needed.map(|name| match name {
            "plan" => (name, json!({"result": "success", "outputs": self.outputs})),
            "arch" => (name, json!({"result": self.arch, "outputs": {}})),
            _ => (name, json!({"result": "success", "outputs": {}})),
        });
        json!(needs.collect::<BTreeMap<_, _>>()).to_string()
    }
}

impl Artifact {
    fn unpack(&self, folder: &Path) {
        let run = folder.join(format!("20261121T10000{}Z-{}", self.attempt, self.id));
        let facts = json!({
            "arch": self.arch, "provider": self.provider, "shard": self.shard,
            "job": {"id": self.id, "attempt": self.attempt, "workflow_run": self.workflow_run},
        });
        let outcome = match self.end {
            End::Passed => json!({"outcome": "passed"}),
            End::Failed => json!({"outcome": "failed", "message": "seen"}),
            End::Unreadable => Value::Null,
            End::Errored => json!({"outcome": "errored", "phase": "request", "message": "reset"}),
        };
        let at = format!("2026-11-21T10:00:0{}.000Z", self.attempt);
        crate::recorded::write(&run, &at, facts, &[("rv.a", outcome)]);
        std::fs::write(run.join("run.json"), "{}").unwrap();
    }
}

impl Ended {
    #[track_caller]
    fn open(self) -> Ended {
        assert!(self.passed, "the gate is closed:\n{}", self.transcript);
        self
    }

    #[track_caller]
    fn closed(self, because: &str) {
        assert!(!self.passed, "the gate is open:\n{}", self.transcript);
        assert!(self.transcript.contains(because), "`{because}` is missing in:\n{}", self.transcript);
    }

    #[track_caller]
    fn says(self, text: &str) -> Ended {
        assert!(self.transcript.contains(text), "`{text}` is missing in:\n{}", self.transcript);
        self
    }
}

fn rendered(name: &str) -> Yaml {
    serde_yaml::from_str(&std::fs::read_to_string(workflows_folder().join(name)).unwrap()).unwrap()
}

fn workflows_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/workflows")
}

/// The artifact's name, as the workflows set it.
fn artifact_name(id: &str, attempt: u32) -> String {
    let [name, prebuilt] =
        [("arch.yml", "${{ inputs.id }}"), ("prebuilt.yml", "${{ matrix.id }}")].map(|(file, own)| {
            let workflow = rendered(file);
            let steps = workflow["jobs"]["run"]["steps"].as_sequence().unwrap();
            let upload =
                |step: &&Yaml| step["uses"].as_str().is_some_and(|uses| uses.starts_with("actions/upload-artifact@"));
            let name = steps.iter().find(upload).unwrap()["with"]["name"].as_str().unwrap();
            name.replace(own, id).replace("${{ github.run_attempt }}", &attempt.to_string())
        });
    assert_eq!(name, prebuilt);
    name
}

const PASSED: fn(&Value) -> End = |_| End::Passed;

#[test]
fn many_artifacts_open_the_gate() {
    let mut workflow = Workflow::planned("", "");
    workflow.upload_all(PASSED);
    let ended = workflow.gate().open();
    let merged = std::fs::read_to_string(ended.folder.join("merged/results.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&merged).unwrap()["runs"].as_array().unwrap().len(), workflow.jobs.len());
}

#[test]
fn single_artifact_unpacked_without_its_folder_opens_the_gate() {
    let mut workflow = Workflow::planned("amd64", "");
    workflow.upload_all(PASSED);
    assert_eq!(workflow.artifacts.len(), 1);
    workflow.gate().open();
}

#[test]
fn a_lost_job_closes_the_gate() {
    let mut workflow = Workflow::planned("", "");
    workflow.upload_all(PASSED);
    let lost = workflow.job("riscv64", "vm")["id"].as_str().unwrap().to_owned();
    workflow.artifacts.retain(|artifact| artifact.id != lost);
    workflow.gate().closed(&format!("{lost} has left no results"));
}

#[test]
fn a_failed_or_lost_experimental_job_does_not_close_the_gate() {
    for end in [Some(End::Failed), Some(End::Errored), Some(End::Unreadable), None] {
        let mut workflow = Workflow::planned("", "");
        workflow.upload_all(|job| if job["experimental"] == true { end.unwrap_or(End::Passed) } else { End::Passed });
        let experimental = workflow.jobs.iter().filter(|job| job["experimental"] == true);
        let experimental: Vec<String> = experimental.map(|job| job["arch"].as_str().unwrap().to_owned()).collect();
        assert!(!experimental.is_empty());
        if end.is_none() {
            workflow.artifacts.retain(|artifact| !experimental.contains(&artifact.arch));
        }
        let ended = workflow.gate();
        assert!(ended.passed, "{end:?}:\n{}", ended.transcript);
        ended.says("warning");
    }
}

#[test]
fn a_failure_closes_the_gate_and_its_repetition_does_not_open_it() {
    for (ends, opens) in [
        (&[End::Failed][..], false),
        (&[End::Errored], false),
        (&[End::Unreadable], false),
        // The unreadable result may have been a failure.
        (&[End::Unreadable, End::Passed], false),
        (&[End::Errored, End::Passed], true),
        (&[End::Failed, End::Passed], false),
        (&[End::Failed, End::Errored, End::Passed], false),
        (&[End::Errored, End::Passed, End::Errored], false),
    ] {
        let mut workflow = Workflow::planned("", "");
        let job = workflow.job("riscv64", "vm");
        workflow.upload_all(PASSED);
        workflow.artifacts.retain(|artifact| artifact.id != job["id"]);
        for (attempt, end) in (1..).zip(ends) {
            workflow.upload(&job, attempt, *end);
            workflow.attempt = attempt;
        }
        // GitHub reports only the newest attempt.
        workflow.arch = if ends.last() == Some(&End::Passed) { "success" } else { "failure" };
        let ended = workflow.gate();
        assert_eq!(ended.passed, opens, "{ends:?}:\n{}", ended.transcript);
        if opens {
            ended.says("flaky: rv.a");
        }
    }
}

#[test]
fn earlier_result_does_not_replace_a_lost_repetition() {
    // The artifact of the first attempt exists; the job of the second attempt failed without a result.
    let mut workflow = Workflow::planned("amd64,arm64", "");
    workflow.upload_all(PASSED);
    (workflow.attempt, workflow.arch) = (2, "failure");
    workflow.gate().closed("the required jobs: failure");
    // All jobs were repeated, the plan first.
    let mut workflow = Workflow::planned("amd64,arm64", "");
    workflow.upload_all(PASSED);
    let plan = workflow.outputs["plan"].replacen("\"attempt\":1", "\"attempt\":2", 1);
    workflow.outputs.insert("plan".into(), plan);
    workflow.attempt = 2;
    workflow.gate().closed("has left no results since attempt 2");
}

#[test]
fn result_that_claims_another_job_than_its_artifact_is_refused() {
    type Change = fn(&mut Artifact);
    // The wrong claim of a record, and how to make it.
    let changes: [(&str, Change); 7] = [
        ("another job", |a| a.id = "arm64-native".into()),
        ("another attempt", |a| a.attempt = 2),
        ("another workflow run", |a| a.workflow_run = "4710"),
        ("another architecture", |a| a.arch = "arm64".into()),
        ("another provider", |a| a.provider = "qemu"),
        ("a part of the checks", |a| a.shard = Some("1/2".into())),
        ("no planned job", |a| a.name = artifact_name("amd64-vm-quick", 1)),
    ];
    for (what, change) in changes {
        let mut workflow = Workflow::planned("amd64,arm64", "");
        workflow.attempt = 2;
        workflow.upload_all(PASSED);
        let artifact = workflow.artifacts.iter_mut().find(|artifact| artifact.id == "amd64-native").unwrap();
        change(artifact);
        let ended = workflow.gate();
        assert!(!ended.passed && ended.transcript.contains("refused"), "{what}:\n{}", ended.transcript);
    }
}

#[test]
fn artifact_of_no_planned_job_closes_the_gate() {
    for (id, attempt) in [("amd64-vm-quick", 1), ("amd64-native", 2), ("amd64-native", 0)] {
        let mut workflow = Workflow::planned("amd64,arm64", "");
        workflow.upload_all(PASSED);
        let job = workflow.job("amd64", "native");
        let mut more = workflow.artifact(&job, attempt, End::Passed);
        more.name = artifact_name(id, attempt);
        more.id = id.into();
        workflow.artifacts.push(more);
        workflow.gate().closed("refused");
    }
    // A single artifact has no name except that of the run in it.
    let mut workflow = Workflow::planned("amd64", "");
    let job = workflow.job("amd64", "native");
    let foreign = Artifact { id: "arm64-native".into(), ..workflow.artifact(&job, 1, End::Passed) };
    workflow.artifacts.push(foreign);
    workflow.gate().closed("refused");
}

#[test]
fn offline_machine_does_not_close_the_gate_but_its_failure_does() {
    for (end, opens, line) in [
        (None, true, "riscv64-native has left no results yet"),
        (Some(End::Passed), true, "the gate is passed"),
        (Some(End::Errored), true, "riscv64-native"),
        (Some(End::Unreadable), true, "artifact results-riscv64-native-1 is refused"),
        (Some(End::Failed), false, "rv.a: failed in riscv64-native, passed in riscv64-vm-1of2"),
    ] {
        let mut workflow = Workflow::planned("", "rise-riscv64");
        workflow.upload_all(PASSED);
        let native = workflow.job("riscv64", "native");
        workflow.artifacts.retain(|artifact| artifact.id != native["id"]);
        if let Some(end) = end {
            workflow.upload(&native, 1, end);
        }
        let ended = workflow.gate().says(line);
        assert_eq!(ended.passed, opens, "{end:?}:\n{}", ended.transcript);
        // The VM of the same architecture has still run.
        assert!(workflow.jobs.iter().any(|job| job["arch"] == "riscv64" && job["mode"] == "vm"));
    }
}

/// Runs the gate over self-hosted machines, the last job of `self-hosted.yml`.
fn compare(workflow: &Workflow) -> crate::harness::Ended {
    workflow.download();
    let steps = rendered("self-hosted.yml")["jobs"]["compare"]["steps"].clone();
    let step = steps.as_sequence().unwrap().last().unwrap()["run"].as_str().unwrap().to_owned();
    let words: Vec<&str> = step.strip_prefix("cargo xtask ").unwrap().split(' ').collect();
    let mut command = workflow.place.command(&words);
    command.env("ARCHPROOF_PLAN", &workflow.outputs["plan"]);
    workflow.place.start_command(command).end()
}

#[test]
fn self_hosted_results_have_a_separate_gate() {
    for (end, hosted, code, line) in [
        (Some(End::Passed), Some(End::Passed), 0, "the gate is passed"),
        (Some(End::Passed), None, 0, "the gate is passed"),
        (Some(End::Passed), Some(End::Failed), 100, "rv.a: failed in riscv64-vm-1of2, passed in riscv64-native"),
        (Some(End::Failed), None, 100, "the gate is closed"),
        (Some(End::Unreadable), None, 102, "is refused"),
        (None, Some(End::Passed), 102, "it has no result"),
    ] {
        let mut workflow = Workflow::planned("riscv64", "rise-riscv64");
        let native = workflow.job("riscv64", "native");
        for job in workflow.jobs.clone() {
            let end = if job["id"] == native["id"] { end } else { hosted };
            if let Some(end) = end {
                workflow.upload(&job, 1, end);
            }
        }
        compare(&workflow).expect(code, &[line]);
    }
}

#[test]
fn lost_self_hosted_job_closes_its_gate_although_another_one_left_a_result() {
    // One of the architectures is experimental.
    for (arch, runner, code) in [("riscv64", "rise-riscv64", 102), ("loong64", "own-loong64", 0)] {
        let mut workflow = Workflow::planned_with_source(arch, runner, runner);
        workflow.upload_all(PASSED);
        let lost = format!("{arch}-native-source");
        let count = workflow.artifacts.len();
        workflow.artifacts.retain(|artifact| artifact.id != lost);
        assert_eq!(workflow.artifacts.len(), count - 1);
        compare(&workflow).expect(code, &[&format!("{lost} has left no results")]);
    }
}

#[test]
fn only_accepted_results_are_published() {
    let mut workflow = Workflow::planned("amd64,arm64", "");
    workflow.upload_all(PASSED);
    let job = workflow.job("amd64", "native");
    let foreign = Artifact { name: artifact_name("amd64-user", 1), ..workflow.artifact(&job, 1, End::Passed) };
    workflow.artifacts.push(foreign);
    workflow.download();
    let mut command = workflow.place.command(&["workflows", "accept", "--results", "results", "--out", "accepted"]);
    command.env("ARCHPROOF_PLAN", &workflow.outputs["plan"]);
    let ended = workflow.place.start_command(command).end().expect(0, &["2 results accepted, 1 refused"]);
    assert!(ended.stdout.contains("artifact results-amd64-user-1 is refused"), "{}", ended.stdout);
    let accepted = crate::harness::entries(&workflow.place.root.join("accepted"));
    assert!(accepted.iter().all(|run| run.join("events.jsonl").is_file()), "{accepted:?}");
    assert_eq!(accepted.len(), 2, "{accepted:?}");
    let publish = std::fs::read_to_string(workflows_folder().join("publish.yml")).unwrap();
    for command in ["history append accepted", "report site accepted"] {
        assert!(publish.contains(command), "{command}");
    }
}
