//! A valid workflow, and a violation of each rule.

use std::collections::BTreeSet;

use super::*;

const GOOD: &str = r#"
on:
  push:
  pull_request:
permissions: {}
concurrency: {group: "a-${{ github.ref }}"}
jobs:
  plan:
    runs-on: ubuntu-24.04
    timeout-minutes: 5
    permissions: {contents: read}
    steps:
      - uses: actions/checkout@COMMIT
        with: {persist-credentials: false}
      - env: {ID: "${{ inputs.id }}"}
        run: cargo xtask known "$ID" --flag
      - run: sudo apt-get update
      - run: cargo xtask known results/*/*
  arch:
    needs: plan
    if: ${{ needs.plan.outputs.has_jobs == 'true' }}
    permissions: {contents: read}
    strategy:
      fail-fast: false
      matrix: ${{ fromJSON(needs.plan.outputs.matrix) }}
    uses: ./.github/workflows/w.yml
  run:
    runs-on: ${{ fromJSON(inputs.runs_on) }}
    timeout-minutes: ${{ inputs.timeout }}
    permissions: {}
    steps:
      - run: rm --recursive --force harness prebuilt results
      - run: tar --extract --gzip --one-top-level=harness --strip-components=1 --file prebuilt/archproof-*-"$ARCH".tar.gz
      - run: sha256sum --check --strict --quiet SHA256SUMS
        working-directory: harness
      - run: harness/archproof known --like-ci "$NAME"
      - run: cargo fmt
      - uses: actions/cache/save@COMMIT2
        if: ${{ runner.environment == 'github-hosted' }}
      - uses: actions/upload-artifact@COMMIT3
        with: {name: "a-${{ github.run_attempt }}"}
"#;

fn faults(text: &str) -> Vec<String> {
    let actions = ["checkout", "cache", "upload-artifact"];
    let lock: String = actions.iter().map(|name| format!("actions/{name} v7 {}\n", "1".repeat(40))).collect();
    let lock = Lock::parse(&lock).unwrap();
    let text =
        ["COMMIT3", "COMMIT2", "COMMIT"].iter().fold(text.to_owned(), |text, name| text.replace(name, &"1".repeat(40)));
    let takes = |words: &[&str]| if words[0] == "known" { Ok(()) } else { Err(format!("no {}", words[0])) };
    lint(&[(".github/workflows/w.yml", &text)], &lock, &takes)
}

#[test]
fn valid_workflow_has_no_faults() {
    assert_eq!(faults(GOOD), [""; 0]);
}

#[test]
fn each_rule_finds_its_violation() {
    let moved = "2".repeat(40);
    let known = "run: cargo xtask known \"$ID\" --flag";
    let start = "step 2: must start with one of: cargo, sudo";
    let call = "uses: ./.github/workflows/w.yml";
    let none = "    permissions: {}\n";
    let hosted = "cache/save@COMMIT2\n        if: ${{ runner.environment == 'github-hosted' }}";
    for (from, to, expected) in [
        ("  pull_request:\n", "  pull_request_target:\n", "on: pull_request_target runs with"),
        ("  pull_request:\n", "  workflow_run:\n", "on: workflow_run runs with"),
        ("\npermissions: {}\n", "\n", "permissions: must be {} at the top"),
        ("\npermissions: {}\n", "\npermissions: write-all\n", "permissions: must be {} at the top"),
        ("\nconcurrency:", "\nx:", "concurrency: needs a group"),
        ("ID: \"${{ inputs.id }}\"", "ID: \"${{ runner.arch }}\"", "runner.arch is wrong"),
        (none, "", "job run: must declare its permissions"),
        (none, "    permissions: write-all\n", "job run: must declare its permissions"),
        (
            none,
            "    permissions: {contents: write}\n",
            "job run: contents: write in a workflow that runs code of untrusted",
        ),
        ("    timeout-minutes: 5\n", "", "job plan: needs timeout-minutes"),
        ("== 'true'", "!= 'false'", "job arch: a matrix that may be empty needs"),
        ("      fail-fast: false\n", "", "job arch: needs fail-fast: false"),
        (call, "uses: ./.github/workflows/x.yml", "job arch: calls ./.github/workflows/x.yml"),
        (call, "uses: a/b/.github/workflows/w.yml@main", "job arch: calls a/b"),
        ("ubuntu-24.04", "ubuntu-24.04-board", "job plan: runs-on must be"),
        ("ubuntu-24.04", "self-hosted", "job plan: runs-on must be"),
        ("ubuntu-24.04", "[self-hosted, linux]", "job plan: runs-on must be"),
        ("ubuntu-24.04", "\"ubuntu-${{ inputs.x }}\"", "job plan: runs-on must be"),
        ("checkout@COMMIT\n", "checkout@v7\n", "step 1: actions/checkout@v7 is not pinned to a commit"),
        ("checkout@COMMIT\n", &format!("checkout@{moved}\n"), "is not at the commit of the lock"),
        ("actions/checkout@COMMIT\n", "some/action@COMMIT\n", "step 1: some/action is not in workflows/actions.lock"),
        ("persist-credentials: false", "fetch-depth: 1", "step 1: needs persist-credentials: false"),
        ("\"$ID\"", "${{ inputs.id }}", "step 2: no ${{ }} in run"),
        (known, "run: cargo xtask known | tee x", "step 2: \"|\" in run"),
        (known, "run: 'cargo xtask known && true'", "step 2: \"&\" in run"),
        (known, "run: cargo xtask known $(id)", "step 2: \"$(\" in run"),
        (known, "run: \"cargo xtask known\\ncargo x\"", "step 2: \"\\n\" in run"),
        (known, "run: ./do-it", start),
        (known, "run: chmod +x x", start),
        (known, "run: .ci/rust-version --now", start),
        ("prebuilt results", "prebuilt results /", "step 1: must start with one of: cargo"),
        ("--file prebuilt/", "--file ", "step 2: must start with one of: cargo"),
        ("--check --strict", "--check", "step 3: must start with one of: cargo"),
        ("run: sha256sum --check", "run: sudo apt-get update", "step 4: starts the harness of an archive"),
        ("directory: harness", "directory: prebuilt", "step 4: starts the harness of an archive"),
        ("directory: harness", "directory: harness\n        if: x", "step 4: starts the harness of an archive"),
        (
            "directory: harness",
            "directory: harness\n        continue-on-error: true",
            "step 4: starts the harness of an archive",
        ),
        (
            "run: harness/archproof known",
            &format!("run: {UNPACK}other\n      - run: harness/archproof known"),
            "step 5: starts the harness of an archive",
        ),
        ("harness/archproof known", "harness/openpgp known", "step 4: must start with one of: cargo"),
        ("harness/archproof known", "harness/archproof gone", "is not a valid command: no gone"),
        ("--like-ci \"$NAME\"", "--like-ci x; id", "step 4: \";\" in run"),
        (known, "run: pipx install x==1", start),
        (known, "run: cargo test -- --locked", "step 2: `cargo test` without --locked"),
        (known, "run: target/tools/bin/pip install x==1", "step 2: `pip install` without --require-hashes"),
        (known, "run: cargo xtask gone", "`cargo xtask gone` is not a valid command: no gone"),
        ("- run: cargo fmt", "- name: x", "job run, step 5: has neither run nor uses"),
        (hosted, "cache/save@COMMIT2", "saves a cache"),
        ("a-${{ github.run_attempt }}", "a", "the artifact's name needs github.run_attempt"),
        ("jobs:", "job:", "jobs: the workflow has no jobs"),
    ] {
        assert_eq!(GOOD.matches(from).count(), 1, "{from:?} must occur once");
        let faults = faults(&GOOD.replace(from, to));
        assert!(faults.iter().any(|fault| fault.contains(expected)), "{to:?}: {faults:?}");
    }
    assert!(faults("a: [")[0].contains("is not YAML"));
}

#[test]
fn commands_that_resolve_versions_themselves_are_found() {
    for good in [
        "cargo xtask ci --arch x",
        "cargo fmt --all --check",
        "cargo test --locked --workspace",
        "step test cargo test --locked --workspace",
        "cargo +1.89 build --quiet --locked",
        "(cd \"$root\" && cargo build --locked --quiet) || exit 1",
        "bin/cargo-deny --locked check",
        "step advisories .ci/advisories/run target/tools/bin/cargo-deny",
        "\"$python\" -m pip install --quiet --require-hashes --requirement x",
        "x/bin/pip install --require-hashes --requirement x && go install y@v1",
        "# cargo build, and pip install x",
        "echo 'neither a cargo ship nor a pip'",
    ] {
        assert_eq!(unlocked(good), None, "{good}");
    }
    for (bad, expected) in [
        ("cargo test --workspace", "`cargo test` without --locked"),
        ("cargo test --workspace -- --locked", "`cargo test` without --locked"),
        ("cargo build --locked && cargo run", "`cargo run` without --locked"),
        ("(cd \"$root\" && cargo build --quiet) || exit 1", "`cargo build` without --locked"),
        ("cargo install cargo-deny@0.20.2", "`cargo install` without --locked"),
        ("cargo +1.89 clippy", "`cargo clippy` without --locked"),
        ("bin/cargo-deny check", "`cargo-deny` without --locked"),
        ("\"$python\" -m pip install x==1", "`pip install` without --require-hashes"),
        ("x/bin/pip3 download x", "`pip3 download` without --require-hashes"),
        ("pip install --require-hashes --requirement x; pip install y", "`pip install` without --require-hashes"),
        ("pipx install zizmor==1.32.0", "`pipx` does not support hashes"),
    ] {
        let found = unlocked(bad).unwrap_or_default();
        assert!(found.starts_with(expected), "{bad}: {found:?}");
    }
}

/// The caller has an entry in its own matrix for each list that it passes on.
#[test]
fn only_a_called_workflow_takes_a_matrix_from_its_inputs() {
    let text = |on: &str| {
        format!(
            "on: {on}\npermissions: {{}}\nconcurrency: {{group: a}}\njobs:\n  run:\n    runs-on: ${{{{ matrix.runs_on }}}}\n    \
             timeout-minutes: 5\n    permissions: {{}}\n    strategy: {{fail-fast: false, matrix: \"${{{{ \
             fromJSON(inputs.jobs) }}}}\"}}\n    steps:\n      - run: cargo fmt\n"
        )
    };
    assert_eq!(faults(&text("workflow_call")), [""; 0]);
    for on in ["workflow_dispatch", "[workflow_call, workflow_dispatch]"] {
        let faults = faults(&text(on));
        assert!(faults[0].contains("job run: a matrix that may be empty needs"), "{on}: {faults:?}");
    }
}

#[test]
fn labels_of_a_matrix_in_the_workflow_itself_are_refused() {
    let text = "on: push\npermissions: {}\nconcurrency: {group: a}\njobs:\n  run:\n    runs-on: ${{ matrix.runs_on }}\n    \
                timeout-minutes: 5\n    permissions: {}\n    strategy: {matrix: {runs_on: [self-hosted]}}\n    steps:\n      \
                - run: cargo fmt\n";
    let faults = faults(text);
    assert!(faults.len() == 1 && faults[0].contains("job run: runs-on must be"), "{faults:?}");
}

/// A called workflow with a job that has write permission, and one additional step.
fn writing(step: &str) -> Vec<String> {
    let text = format!(
        "on: workflow_call\npermissions: {{}}\njobs:\n  push:\n    runs-on: ubuntu-24.04\n    timeout-minutes: 5\n    \
         permissions: {{contents: write}}\n    steps:\n      - run: cargo fmt\n{step}  site:\n    runs-on: ubuntu-24.04\n    \
         timeout-minutes: 5\n    permissions: {{contents: read}}\n    steps:\n      - run: cargo fmt\n{step}"
    );
    faults(&text)
}

#[test]
fn workflow_with_write_permission_restores_no_cache() {
    assert_eq!(writing(""), [""; 0]);
    for action in ["actions/cache", "actions/cache/restore", "actions/cache/save"] {
        let step = format!("      - uses: {action}@COMMIT\n        if: runner.environment == 'github-hosted'\n");
        let faults = writing(&step);
        // Also in the job that only reads: the next job publishes its output.
        assert_eq!(faults.len(), 2, "{action}: {faults:?}");
        assert!(faults[0].contains("job push, step 2: no cache in a workflow with a job that has write"), "{faults:?}");
    }
}

/// The file of the checkout with this name in `workflows`.
fn source(name: &str) -> Value {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    serde_yaml::from_str(&std::fs::read_to_string(root.join("workflows").join(name)).unwrap()).unwrap()
}

/// GitHub evaluates the condition, and only a change of the workflow file can change it.
#[test]
fn only_pull_requests_of_persons_in_this_repository_start_self_hosted_jobs() {
    let workflow = source("ci.yml");
    let condition = workflow["jobs"]["self-hosted"]["if"].as_str().unwrap();
    let guard = "(github.event_name != 'pull_request' || (github.event.pull_request.head.repo.full_name == \
                 github.repository && github.event.pull_request.user.type == 'User' && github.event.sender.type == \
                 'User'))";
    assert!(condition.ends_with(&format!("&& {guard} }}}}")), "{condition}");
}

#[test]
fn machine_of_a_prebuilt_job_needs_no_checkout_and_no_compiler() {
    let job = &source("prebuilt.yml")["jobs"]["run"];
    let step = |step: &Value| [&step["uses"], &step["run"]].map(|text| text.as_str().unwrap_or_default().to_owned());
    let steps: Vec<String> = job["steps"].as_sequence().unwrap().iter().flat_map(step).collect();
    let commands: BTreeSet<&str> = steps.iter().filter_map(|text| text.split_whitespace().next()).collect();
    let actions = ["actions/download-artifact", "actions/upload-artifact"];
    let expected = [&actions[..], &["chmod", "harness/archproof", "rm", "sha256sum", "tar"]].concat();
    assert_eq!(commands.into_iter().collect::<Vec<_>>(), expected);
    // A prepared machine sets the variable to its own archive.
    assert_eq!(job["env"]["ARCHPROOF_ROOT"], "${{ github.workspace }}/harness");
}

fn catalogue() -> targets::Catalogue {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    targets::Catalogue::load(&root.join("targets")).unwrap()
}

#[test]
fn release_tests_every_archive_for_which_the_image_has_an_emulator() {
    let workflow = source("release.yml");
    let listed = workflow["jobs"]["test"]["strategy"]["matrix"]["arch"].as_sequence().unwrap();
    let listed: Vec<&str> = listed.iter().filter_map(Value::as_str).collect();
    let catalogue = catalogue();
    // Where a newer emulator is needed, the one in the image of GitHub's machines is too old.
    let tested = |target: &&model::Target| {
        target.harness.is_some() && target.emulator.as_ref().is_none_or(|emulator| emulator.minimum.is_none())
    };
    let names: Vec<&str> = catalogue.targets.iter().filter(tested).map(|target| &*target.name).collect();
    assert_eq!(listed, names);
}

#[test]
fn heads_of_every_set_have_a_test() {
    let workflow = source("heads.yml");
    let steps = workflow["jobs"].as_mapping().unwrap().values();
    let steps = steps.filter_map(|job| job["steps"].as_sequence()).flatten();
    let conditions: Vec<&str> = steps.filter_map(|step| step["if"].as_str()).collect();
    for head in catalogue().upstreams.heads {
        let condition = format!("${{{{ matrix.set == '{}' }}}}", head.set);
        assert!(conditions.contains(&&*condition), "{}: no step has the condition {condition}", head.id);
    }
}

#[test]
fn differential_runs_are_of_every_architecture_and_variant() {
    let workflow = source("differential.yml");
    let rows = |job: &str, key: &str| workflow["jobs"][job]["strategy"]["matrix"][key].as_sequence().unwrap().clone();
    let listed: Vec<String> = rows("search", "arch").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let catalogue = catalogue();
    let user =
        |target: &&model::Target| target.ci.iter().flat_map(|ci| &ci.ways).any(|way| way.mode == model::Mode::User);
    let names = catalogue.targets.iter().filter(user).map(|target| target.name.clone());
    assert_eq!(listed, names.collect::<Vec<String>>());

    let label = |row: &Value| Some(format!("{}-{}", row["arch"].as_str()?, row["cpu"].as_str()?));
    let listed: Vec<String> = rows("variants", "include").iter().filter_map(label).collect();
    assert_eq!(listed, catalogue.targets.iter().flat_map(model::Target::variant_labels).collect::<Vec<String>>());
}
