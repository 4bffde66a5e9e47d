//! The commands `matrix`, `workflows` and `cache keys`, called as a workflow does: with GitHub's files and variables.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::{Ended, Place, architectures, catalogue, copy, edit, targets_copy};
use serde_json::{Value, json};
use sys::exec::{Shell, cmd, run as exec};

fn run(place: &Place, variables: &[(&str, &str)], args: &[&str]) -> Ended {
    let mut command = place.command(args);
    // GitHub or a workflow may have set variables for these tests.
    let set = std::env::vars().map(|(name, _)| name);
    let of_workflow = |name: &String| name.starts_with("GITHUB_") || name.starts_with("ARCHPROOF_");
    let folders = ["ARCHPROOF_CACHE", "ARCHPROOF_REPORTS"];
    set.filter(|name| of_workflow(name) && !folders.contains(&name.as_str())).for_each(|name| {
        command.env_remove(name);
    });
    command.envs(variables.iter().copied());
    place.start_command(command).end()
}

fn matrix(ended: &Ended) -> Vec<Value> {
    assert_eq!(ended.stdout.lines().count(), 1, "{}", ended.stdout);
    ended.json()["include"].as_array().unwrap().clone()
}

fn ids(ended: &Ended) -> Vec<String> {
    matrix(ended).iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
}

/// The payload of a pull request from this repository, by an account of this type.
fn payload(place: &Place, head: &Value, account: &str) -> PathBuf {
    let file = place.root.join("event.json");
    let (base, user) = (json!({"id": 1, "full_name": "us/archproof"}), json!({ "type": account }));
    let pull = json!({"head": {"repo": head}, "user": user});
    std::fs::write(&file, json!({"pull_request": pull, "repository": base, "sender": user}).to_string()).unwrap();
    file
}

#[test]
fn jobs_of_forks_and_bots_run_only_on_github_hosted_machines() {
    let place = Place::new();
    let data = place.root.join("targets");
    targets_copy(&data);
    edit(&data.join("matrix.yaml"), "available: false", "available: true");
    let args = ["matrix", "--targets", &data.display().to_string()];
    let here = json!({"id": 1, "full_name": "us/archproof"});
    let ours = payload(&place, &here, "User").display().to_string();
    let event = [("GITHUB_EVENT_NAME", "pull_request"), ("GITHUB_EVENT_PATH", &ours)];
    let trusted = run(&place, &event, &args).expect(0, &[]);
    assert!(matrix(&trusted).iter().any(|entry| entry["self_hosted"] == true), "{}", trusted.stdout);
    for (head, account) in
        [(json!({"id": 2, "full_name": "them/archproof"}), "User"), (Value::Null, "User"), (here, "Bot")]
    {
        let theirs = payload(&place, &head, account).display().to_string();
        let event = [("GITHUB_EVENT_NAME", "pull_request"), ("GITHUB_EVENT_PATH", &theirs)];
        hosted_only(&run(&place, &event, &args).expect(0, &["forks never run on self-hosted runners"]));
    }
    // Without a payload, the pull request may come from any fork.
    hosted_only(&run(&place, &[("GITHUB_EVENT_NAME", "pull_request")], &args).expect(0, &[]));
    let all = "ibm-ppc64le,osuosl-ppc64le,rise-riscv64,own-loong64,osuosl-arm64";
    let event = [("GITHUB_EVENT_NAME", "pull_request"), ("ARCHPROOF_RUNNERS", all)];
    hosted_only(&run(&place, &event, &args).expect(0, &[]));
    for event in ["pull_request_target", "workflow_run", "issue_comment"] {
        run(&place, &[("GITHUB_EVENT_NAME", event)], &args).expect(2, &[event, "merge_group"]);
    }
}

/// The number of jobs of a schedule: the shards of each target's first way that has an available runner.
fn scheduled_jobs() -> usize {
    let catalogue = catalogue();
    let available = |name: &str| catalogue.matrix.runners.iter().any(|runner| runner.name == name && runner.available);
    let ways = catalogue.targets.iter().filter_map(|target| target.ci.as_ref()).map(|ci| &ci.ways);
    let best = ways.filter_map(|ways| ways.iter().find(|way| available(&way.runner)));
    best.map(|way| usize::try_from(way.shards).unwrap()).sum()
}

fn hosted_only(ended: &Ended) {
    let entries = matrix(ended);
    assert!(entries.len() >= architectures().len(), "{entries:?}");
    for entry in entries {
        let label = entry["runs_on"].as_str().unwrap_or_default();
        assert!(["ubuntu-24.04", "ubuntu-24.04-arm"].contains(&label) && entry["self_hosted"] == false, "{entry}");
    }
}

#[test]
fn outputs_go_to_github_files_and_empty_variables_are_ignored() {
    let place = Place::new();
    let (output, summary) = (place.root.join("output"), place.root.join("summary"));
    std::fs::write(&output, "before=1\n").unwrap();
    let (output_name, summary_name) = (output.display().to_string(), summary.display().to_string());
    let variables = [
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_EVENT_NAME", "schedule"),
        ("GITHUB_OUTPUT", &output_name),
        ("GITHUB_STEP_SUMMARY", &summary_name),
        ("ARCHPROOF_ONLY", ""),
        ("ARCHPROOF_MODE", ""),
        ("ARCHPROOF_RUNNERS", ""),
        ("ARCHPROOF_SINCE", ""),
    ];
    let jobs = scheduled_jobs();
    let expected = format!("schedule: {jobs} jobs");
    let ended = run(&place, &variables, &["matrix", "--github-output"]).expect(0, &[&expected]);
    let text = std::fs::read_to_string(&output).unwrap();
    let value = |name: &str| {
        let prefix = format!("{name}=");
        text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    assert!(text.starts_with("before=1\n"), "{text}");
    assert_eq!(format!("{}\n", value("matrix")), ended.stdout);
    assert_eq!((value("has_jobs"), value("reason")), ("true", "all architectures"));
    assert_eq!(value("count"), jobs.to_string());
    assert_eq!(value("tested"), architectures().join(","));
    let of = |name: &str| serde_json::from_str::<Value>(value(name)).unwrap();
    let experimental = of("experimental")["include"].as_array().unwrap().clone();
    assert!(!experimental.is_empty() && experimental.iter().all(|job| job["experimental"] == true), "{experimental:?}");
    assert_eq!(of("required")["include"].as_array().unwrap().len() + experimental.len(), jobs);
    assert_eq!((value("has_required"), value("has_additional")), ("true", "false"));
    assert_eq!((&of("plan")["attempt"], of("plan")["jobs"].as_array().unwrap().len()), (&1.into(), jobs));
    let shown = std::fs::read_to_string(&summary).unwrap();
    assert!(shown.contains("| riscv64-vm-1of2 | ubuntu-24.04 | 150 |"), "{shown}");
    assert!(shown.contains("cargo xtask ci --like-ci loong64-vm-2of2"), "{shown}");
}

#[test]
fn options_select_the_jobs() {
    let place = Place::new();
    let of = |args: &[&str]| ids(&run(&place, &[], &[&["matrix"], args].concat()).expect(0, &[]));
    assert_eq!(of(&["--only", "x86_64,riscv64"]), ["amd64-native", "riscv64-vm-quick"]);
    assert_eq!(of(&["--only", "riscv64", "--runners", "rise-riscv64"]), ["riscv64-native", "riscv64-vm-quick"]);
    assert_eq!(of(&["--only", "riscv64", "--runners", "rise-riscv64", "--no-self-hosted"]), ["riscv64-vm-quick"]);
    assert_eq!(of(&["--only", "riscv64,loong64", "--mode", "user"]), ["loong64-build", "riscv64-user-quick"]);
    assert_eq!(of(&["--changed", "targets/architectures/ppc64le.lock"]), ["ppc64le-vm-quick"]);
    assert_eq!(of(&["--changed", "README.md,xtask/README.md"]), [""; 0]);
    let list = place.root.join("list");
    std::fs::write(&list, "README.md\ntargets/architectures/arm64.yaml\n").unwrap();
    assert_eq!(of(&["--changed", &format!("@{}", list.display())]), ["arm64-native"]);
    assert_eq!(of(&["--machines"]), ["github-amd64-machine", "github-arm64-machine"]);
    let board = ["--only", "riscv64", "--runners", "rise-riscv64", "--source", "rise-riscv64", "--event"];
    let nightly = ["riscv64-native", "riscv64-native-source", "riscv64-vm-1of2", "riscv64-vm-2of2"];
    assert_eq!(of(&[&board[..], &["schedule"]].concat()), nightly);
    assert_eq!(of(&[&board[..], &["push"]].concat()), ["riscv64-native", "riscv64-vm-quick"]);
    for (args, parts) in [
        (&["--only", "mips"][..], &["`mips`", "riscv64"][..]),
        (&["--runners", "rise"], &["`rise`", "rise-riscv64"]),
        (&["--mode", "fast"], &["fast", "native, vm, user, build"]),
        (&["--since", "no-such-revision"], &["no-such-revision"]),
        (&["--since=--output=x"], &["is not a revision"]),
        (&["--event-file", "nowhere.json"], &["nowhere.json"]),
    ] {
        run(&place, &[], &[&["matrix"], args].concat()).expect(2, parts);
    }
}

#[test]
fn like_ci_runs_the_command_of_a_job() {
    let place = Place::new();
    let binaries = place.root.join("binaries");
    std::fs::create_dir(&binaries).unwrap();
    for name in ["etcd", "etcdctl", "etcdutl", "kube-apiserver", "kube-controller-manager"] {
        std::fs::write(binaries.join(name), "").unwrap();
    }
    let source = format!("prebuilt:{}", binaries.display());
    let planned = |args: &[&str]| {
        let all = [&["ci", "--dry-run", "--kubernetes", &source, "--etcd", &source], args].concat();
        run(&place, &[], &all).expect(0, &[]).stdout
    };
    let quick = ["--level", "must", "--profile", "default", "--profile", "json", "--profile", "encrypted"];
    let quick = [&["--arch", "riscv64"], &quick[..], &["--profile", "disruptive"]].concat();
    assert_eq!(planned(&["--like-ci", "riscv64-vm-quick"]), planned(&quick));
    let shard = ["--arch", "ppc64le", "--provider", "qemu", "--shard", "2/2"];
    assert_eq!(planned(&["--like-ci", "ppc64le-vm-2of2"]), planned(&shard));
    run(&place, &[], &["ci", "--like-ci", "riscv64-vm"]).expect(2, &["unknown job `riscv64-vm`", "riscv64-vm-1of2"]);
    run(&place, &[], &["ci", "--like-ci", "riscv64-vm-quick", "--level", "must"]).expect(2, &["cannot be used with"]);
    let foreign = if std::env::consts::ARCH == "riscv64" { "ppc64le" } else { "riscv64" };
    for id in ["native", "native-source"].map(|job| format!("{foreign}-{job}")) {
        run(&place, &[], &["ci", "--like-ci", &id])
            .expect(2, &["needs a machine of the architecture", &format!("{foreign}-vm-quick")]);
    }
    // A job that only builds leaves no record if the build fails.
    let id = format!("{foreign}-build");
    std::fs::create_dir(place.root.join("empty")).unwrap();
    let source = format!("prebuilt:{}", place.root.join("empty").display());
    let failing = ["ci", "--like-ci", &id, "--kubernetes", &source, "--etcd", &source];
    run(&place, &[], &failing).expect(101, &["neither"]);
    assert!(place.runs().is_empty());
    // Nor does it leave that of an earlier build.
    let record = place.reports().join(&id).join("build.json");
    std::fs::create_dir_all(record.parent().unwrap()).unwrap();
    std::fs::write(&record, "{}").unwrap();
    run(&place, &[], &failing).expect(101, &["neither"]);
    assert!(!record.exists());
}

/// A copy of the target data in which this machine's architecture has jobs on self-hosted machines.
fn with_own_machine(place: &Place) -> (String, String) {
    let arch = catalogue().host_target(std::env::consts::ARCH).unwrap().name.clone();
    let data = place.root.join("targets");
    targets_copy(&data);
    let runner = format!(
        "runners:\n  - {{ name: mine, arch: {arch}, labels: [self-hosted, {arch}], owner: own, available: true, note: x }}\n"
    );
    edit(&data.join("matrix.yaml"), "runners:\n", &runner);
    let ways = "  ways:\n    - { mode: native, runner: mine, minutes: 9 }\n    \
                - { mode: native, runner: mine, programs: source, minutes: 9 }\n";
    edit(&data.join(format!("architectures/{arch}.yaml")), "  ways:\n", ways);
    let machine = "machines:\n  - { runner: mine, provider: local, agent: actions-runner, max: 1 }\n";
    edit(&data.join("runners.yaml"), "machines:\n", machine);
    (arch, data.display().to_string())
}

#[test]
fn like_ci_runs_both_native_jobs_of_a_self_hosted_machine() {
    let place = Place::new();
    let (arch, data) = with_own_machine(&place);
    std::fs::create_dir(place.root.join("empty")).unwrap();
    let source = format!("prebuilt:{}", place.root.join("empty").display());
    let like = |job: &str, args: &[&str]| {
        let id = format!("{arch}-{job}");
        run(&place, &[], &[&["ci", "--targets", &data, "--like-ci", &id], args].concat())
    };
    for job in ["native", "native-source"] {
        like(job, &["--kubernetes", &source, "--etcd", &source]).expect(101, &["neither"]);
    }
    let claimed: Vec<String> = place.runs().iter().map(|run| run.display().to_string()).collect();
    assert!(claimed.iter().any(|run| run.ends_with("-native-source")), "{claimed:?}");
    // A prebuilt job would be recorded under the name of the other one.
    let instead = format!("give --components to {arch}-native");
    like("native-source", &["--components", "empty"]).expect(2, &[&instead]);
    like("native", &["--components", "empty"]).expect(101, &["components-"]);
}

/// The gate compares these fields with the plan.
#[test]
fn run_of_a_job_names_the_job_and_the_attempt() {
    let place = Place::new();
    let id = format!("{}-native", catalogue().host_target(std::env::consts::ARCH).unwrap().name);
    std::fs::create_dir(place.root.join("empty")).unwrap();
    let source = format!("prebuilt:{}", place.root.join("empty").display());
    let args = ["ci", "--like-ci", &id, "--kubernetes", &source, "--etcd", &source];
    run(&place, &[("GITHUB_RUN_ATTEMPT", "3"), ("GITHUB_RUN_ID", "47")], &args).expect(101, &[]);
    assert!(place.the_run().file_name().unwrap().to_str().unwrap().ends_with(&id), "{:?}", place.runs());
    assert_eq!(place.events()[0]["run"]["job"], json!({"id": id, "attempt": 3, "workflow_run": "47"}));
}

#[test]
fn outputs_separate_prebuilt_jobs_from_jobs_that_check_out() {
    let place = Place::new();
    let output = place.root.join("output");
    let output_name = output.display().to_string();
    let outputs = |args: &[&str]| -> std::collections::BTreeMap<String, String> {
        let variables = [
            ("GITHUB_ACTIONS", "true"),
            ("GITHUB_OUTPUT", output_name.as_str()),
            ("ARCHPROOF_RUNNERS", "rise-riscv64,osuosl-ppc64le"),
            ("ARCHPROOF_SOURCE", "osuosl-ppc64le"),
        ];
        std::fs::write(&output, "").unwrap();
        run(&place, &variables, &[&["matrix", "--github-output"], args].concat()).expect(0, &[]);
        let text = std::fs::read_to_string(&output).unwrap();
        text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    let of = |outputs: &std::collections::BTreeMap<String, String>, name: &str, key: &str| -> Vec<String> {
        let list: Value = serde_json::from_str(&outputs[name]).unwrap();
        let all = list["include"].as_array().unwrap();
        all.iter().map(|entry| entry[key].as_str().unwrap().to_owned()).collect()
    };
    let nightly = outputs(&["--event", "schedule"]);
    assert_eq!(of(&nightly, "prebuilt", "arch"), ["ppc64le", "riscv64"]);
    assert_eq!(of(&nightly, "prebuilt", "rust"), ["powerpc64le-unknown-linux-gnu", "riscv64gc-unknown-linux-gnu"]);
    assert_eq!(of(&nightly, "source", "id"), ["ppc64le-native-source"]);
    assert_eq!([&nightly["has_prebuilt"], &nightly["has_source"], &nightly["has_additional"]], ["true"; 3]);
    let push = outputs(&[]);
    assert_eq!([&push["has_prebuilt"], &push["has_source"], &push["has_additional"]], ["true", "false", "true"]);
    let machines = outputs(&["--machines"]);
    assert_eq!(of(&machines, "source", "machine"), ["github-amd64", "github-arm64"]);
    assert_eq!(of(&machines, "prebuilt", "arch"), ["ppc64le", "riscv64"]);
}

#[test]
fn workflow_verdict_depends_on_the_results_of_its_jobs() {
    let place = Place::new();
    let output = place.root.join("output");
    let output_name = output.display().to_string();
    let variables = [("GITHUB_ACTIONS", "true"), ("GITHUB_OUTPUT", output_name.as_str())];
    run(&place, &variables, &["matrix", "--only", "amd64,loong64", "--github-output"]).expect(0, &[]);
    let text = std::fs::read_to_string(&output).unwrap();
    let outputs: Value = text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v)).collect();
    let needs = json!({
        "plan": {"result": "success", "outputs": outputs},
        "check": {"result": "success", "outputs": {}},
        "arch": {"result": "success", "outputs": {}},
        "experimental": {"result": "failure", "outputs": {}},
    });
    let needs = needs.to_string();
    let variables = [("ARCHPROOF_NEEDS", needs.as_str())];
    let args = ["workflows", "verdict", "--results", "got"];
    let missing = run(&place, &variables, &args).expect(102, &["amd64-native has left no results"]);
    assert!(missing.stdout.contains("::error::amd64-native has left no results\n"), "{}", missing.stdout);
    let folder = place.root.join("got/results-amd64-native-1/20261121T120558Z-amd64-native");
    std::fs::create_dir_all(&folder).unwrap();
    run(&place, &variables, &args).expect(102, &["amd64-native has left no results"]);
    let at = "2026-11-21T10:00:00.000Z";
    let started = json!({"event": "run-started", "at": at, "run": {
        "id": "r", "started": at, "harness": "0.1.0", "arch": "amd64", "provider": "process", "host": "Linux", "seed": 1,
        "sources": {}, "job": {"id": "amd64-native", "attempt": 1}, "command": "cargo xtask ci",
    }});
    std::fs::write(folder.join("events.jsonl"), format!("{started}\n")).unwrap();
    let ended = run(&place, &variables, &args).expect(0, &["Results of 1 of 2 jobs are there."]);
    assert!(
        ended.stdout.contains("::warning::loong64-vm-quick has left no results (experimental)"),
        "{}",
        ended.stdout
    );
    run(&place, &[("ARCHPROOF_NEEDS", "[")], &args).expect(2, &["toJSON(needs)"]);
}

#[test]
fn rendered_files_are_current_and_follow_the_rules() {
    let place = Place::new();
    run(&place, &[], &["workflows", "render", "--check"]).expect(0, &["files are up to date"]);
    // Without third-party linters, which may not be installed.
    run(&place, &[("PATH", "")], &["workflows", "lint"])
        .expect(0, &["project rules: 0 faults", "zizmor: not installed"]);
    run(&place, &[("PATH", "")], &["workflows", "lint", "--all-tools"]).expect(102, &["actionlint is not installed"]);
}

#[test]
fn stale_or_foreign_file_is_shown_with_the_command_to_fix_it() {
    let place = Place::new();
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    copy(&checkout.join("workflows"), &place.root.join("workflows"));
    copy(&checkout.join(".github"), &place.root.join(".github"));
    let root = place.root.display().to_string();
    let workflows =
        |command: &[&str]| run(&place, &[("PATH", "")], &[&["workflows", "--root", &root], command].concat());
    let render = |check: bool| workflows(if check { &["render", "--check"] } else { &["render"] });
    render(true).expect(0, &[]);
    edit(&place.root.join("workflows/ci.yml"), "name: ci", "name: seaside");
    std::fs::write(place.root.join(".github/workflows/mine.yml"), "on: push\n").unwrap();
    let stale = render(true).expect(96, &["2 files differ", "run `cargo xtask workflows render`"]);
    assert!(stale.stdout.contains("-name: ci\n+name: seaside\n"), "{}", stale.stdout);
    assert!(stale.stdout.contains("mine.yml: has no source"), "{}", stale.stdout);
    render(false).expect(0, &["rendered .github/workflows/ci.yml", "removed .github/workflows/mine.yml"]);
    render(true).expect(0, &[]);
    edit(&place.root.join(".github/workflows/ci.yml"), "cargo xtask targets", "cargo xtask marks && true");
    let ended = workflows(&["lint"]).expect(96, &["1 faults"]);
    assert!(ended.stdout.contains("ci.yml: job check, step 4: \"&\" in run"), "{}", ended.stdout);
    edit(&place.root.join(".github/workflows/ci.yml"), "cargo xtask marks && true", "cargo xtask marks");
    let ended = workflows(&["lint"]).expect(96, &["1 faults"]);
    assert!(ended.stdout.contains("unrecognized subcommand 'marks'"), "{}", ended.stdout);
}

#[test]
fn keys_of_caches_differ_by_architecture() {
    let place = Place::new();
    let keys = |arch: &str| run(&place, &[], &["cache", "keys", "--arch", arch, "--json"]).expect(0, &[]).json();
    let (one, other) = (keys("riscv64"), keys("loong64"));
    for name in ["gobuild", "components", "downloads", "snapshots"] {
        assert_ne!(one[name]["key"], other[name]["key"], "{name}");
    }
    assert_eq!((&one["modules"], &one["cargo"]), (&other["modules"], &other["cargo"]));
    let printed = run(&place, &[], &["cache", "keys", "--github-output"]).expect(0, &[]).stdout;
    assert!(printed.lines().any(|line| line.starts_with("components_restore=")), "{printed}");
}

#[test]
fn ci_caches_stay_below_githubs_limit() {
    let place = Place::new();
    let sizes = run(&place, &[], &["cache", "keys", "--sizes"]).expect(0, &[]).stdout;
    assert!(sizes.contains("total") && sizes.lines().count() == 6, "{sizes}");
    let data = place.root.join("targets");
    targets_copy(&data);
    edit(&data.join("matrix.yaml"), "limit: 10240", "limit: 1024");
    let data = data.display().to_string();
    run(&place, &[], &["cache", "keys", "--sizes", "--targets", &data])
        .expect(96, &["the CI caches take", "GitHub keeps only 1024 MiB", "`caches` in targets/matrix.yaml"]);
}

/// A cache from another compiler would be useless, and would grow with each compiler.
#[test]
fn keys_of_compiled_caches_name_the_compiler() {
    for name in ["ci.yml", "arch.yml", "lint.yml", "runner-audit.yml"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/workflows").join(name);
        let text = std::fs::read_to_string(file).unwrap();
        let keys: Vec<&str> = text.lines().filter(|line| line.contains("key") && line.contains("-cargo-")).collect();
        assert!(!keys.is_empty(), "{name}");
        assert!(keys.iter().all(|key| key.contains("steps.rust.outputs.version")), "{name}: {keys:?}");
    }
}

/// A quick job saves first and has fewer components: under a common key, jobs with more would compile the rest every time.
#[test]
fn keys_of_built_components_name_the_job() {
    for (name, keys) in [
        ("arch.yml", &["components }}-${{ inputs.id }}", "components }}-", "components }}-${{ inputs.id }}"][..]),
        ("prebuilt.yml", &["components }}-prebuilt", "components }}-"]),
    ] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/workflows").join(name);
        let text = std::fs::read_to_string(file).unwrap();
        let of_keys = text.lines().filter_map(|line| Some(line.split_once("steps.keys.outputs.")?.1));
        let found: Vec<&str> = of_keys.filter(|key| key.starts_with("components")).collect();
        assert_eq!(found, keys, "{name}");
    }
}

#[test]
fn data_branch_starts_empty_and_grows() {
    let place = Place::new();
    let (remote, token) = (place.root.join("remote.git"), "secret-of-a-job");
    let shell = Shell::new().unwrap();
    exec(cmd!(shell, "git init --quiet --bare {remote}"), Duration::from_secs(60)).unwrap();
    let remote = remote.display().to_string();
    let data = |command: &str, dir: &str| {
        let args = ["workflows", command, "--branch", "results-data", "--dir", dir, "--remote", &remote];
        run(&place, &[("GITHUB_TOKEN", token)], &args)
    };
    data("fetch-data", "one").expect(0, &["branch results-data does not exist yet"]);
    data("push-data", "one").expect(0, &["no changes"]);
    std::fs::write(place.root.join("one/history"), "a\n").unwrap();
    data("push-data", "one").expect(0, &["pushed results-data"]);
    data("fetch-data", "two").expect(0, &["fetched results-data"]);
    std::fs::write(place.root.join("two/history"), "a\nb\n").unwrap();
    data("push-data", "two").expect(0, &["pushed results-data"]);
    // Lines from other jobs are never lost.
    std::fs::write(place.root.join("one/history"), "a\nc\n").unwrap();
    let late = data("push-data", "one").expect(102, &["rejected"]);
    assert!(!late.stderr.contains(token));
    assert!(!std::fs::read_to_string(place.root.join("one/.git/config")).unwrap().contains("extraheader"));
}
