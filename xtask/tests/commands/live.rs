//! The command line with real components of this machine's architecture: passing runs, interrupts, crashes, kept
//! clusters.
//!
//! The components come from the normal cache, and are built if they are missing. Everything else is in separate folders
//! of the test.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::{Place, Running, architectures, catalogue, edit, entries, send, targets_copy, wait};
use rustix::process::Signal;
use serde_json::Value;
use sys::RunDir;
use sys::deadline::Probe;

/// A first build of Kubernetes takes four minutes on two idle processors, and an hour on slow boards.
const BUILD_LIMIT: Duration = Duration::from_secs(2 * 3600);

/// `--kubernetes` and `--etcd` with the folders of the components in the normal cache.
fn sources() -> [&'static str; 4] {
    static SPECS: OnceLock<(String, String)> = OnceLock::new();
    let (kubernetes, etcd) = SPECS.get_or_init(|| {
        let place = Place::new();
        let mut command = place.command(&["build", "--json"]);
        command.env_remove("ARCHPROOF_CACHE");
        let built = place.start_command(command).end_within(BUILD_LIMIT).expect(0, &[]).json();
        let of_host = built.as_object().unwrap().values().next().unwrap();
        let spec = |component: &str| {
            let path = Path::new(of_host["by_component"][component]["path"].as_str().unwrap());
            format!("prebuilt:{}", path.parent().unwrap().display())
        };
        (spec("kube-apiserver"), spec("etcd"))
    });
    ["--kubernetes", kubernetes, "--etcd", etcd]
}

fn with_sources<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &sources()].concat()
}

/// A run that takes long enough for the test to act on it.
fn busy() -> Vec<&'static str> {
    with_sources(&["ci", "--seed", "1", "--suite", "storage", "--profile", "default"])
}

/// A run whose first case has started.
fn started(args: &[&str]) -> (Place, Running) {
    let place = Place::new();
    let mut running = place.start(args);
    place.wait_for_event(&mut running, "the first case", |event| event["event"] == "case-started");
    (place, running)
}

fn is(event: &Value, name: &str, key: &str, value: &str) -> bool {
    event["event"] == name && event[key] == value
}

fn json(file: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// The cases in junit.xml by name, with the type of their error or failure.
fn junit(run: &Path) -> Vec<(String, Option<String>)> {
    let text = std::fs::read_to_string(run.join("junit.xml")).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
    let read = |case: roxmltree::Node<'_, '_>| {
        let bad = case.children().find(|child| child.has_tag_name("error") || child.has_tag_name("failure"));
        let kind = bad.map(|bad| bad.attribute("type").unwrap().to_owned());
        (case.attribute("name").unwrap().to_owned(), kind)
    };
    cases.map(read).collect()
}

fn kind_of<'a>(cases: &'a [(String, Option<String>)], name: &str) -> Option<&'a str> {
    let found = cases.iter().find(|(case, _)| case == name);
    found.unwrap_or_else(|| panic!("no case `{name}` in {cases:?}")).1.as_deref()
}

fn assert_file(file: PathBuf) {
    let length = std::fs::metadata(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).len();
    assert!(length > 0, "{} is empty", file.display());
}

/// Judges whose cases a passing run must include.
const JUDGED: [&str; 3] = ["watch.ordered", "watch.unique", "rv.list-is-store-revision"];

#[test]
fn passing_run_writes_every_report_and_can_be_judged_again() {
    let place = Place::new();
    let known = place.run(&["list", "--json"]).json();
    let known: Vec<&str> = known.as_array().unwrap().iter().map(|row| row["check"].as_str().unwrap()).collect();
    let judged: Vec<&str> = JUDGED.into_iter().filter(|id| known.contains(id)).collect();
    let mut args =
        with_sources(&["ci", "--seed", "7", "--json", "--profile", "default", "--check", "cc.update-conflict"]);
    judged.iter().for_each(|id| args.extend(["--check", id]));
    let ended = place.run(&args).expect(0, &["all as expected (exit 0)"]);
    place.assert_nothing_is_left();

    let run = place.the_run();
    let record = json(&run.join("run.json"));
    assert_eq!(record, ended.json());
    assert_eq!((&record["exit"]["code"], &record["run"]["seed"]), (&0.into(), &7.into()));
    assert_eq!(record["planned"], 1 + judged.len());
    let cases = junit(&run);
    assert!(cases.iter().all(|(_, bad)| bad.is_none()), "{cases:?}");
    for name in ["build", "boot", "suite", "teardown", "run", "cc.update-conflict"] {
        kind_of(&cases, name);
    }
    let events = place.events();
    assert_eq!(
        (&events[0]["event"], &events[events.len() - 1]["event"]),
        (&"run-started".into(), &"run-finished".into())
    );
    for file in ["summary.md", "logs/default.etcd-main.log", "logs/default.kube-apiserver.log"] {
        assert_file(run.join(file));
    }
    assert_file(run.join("history/default.main/meta.json"));
    assert!(!run.join("stores").exists(), "stores are evidence, and a passing run needs none");

    judge_again(&place, &run, &judged);
    let folder = run.display().to_string();
    let measured = place.run(&["list", "--durations", &folder]).expect(0, &[]).stdout;
    let measured = targets::Catalogue::parse_durations("measured", &measured).unwrap();
    assert!(measured.cases.contains_key("cc.update-conflict") && measured.control_plane > 1, "{measured:?}");
}

fn judge_again(place: &Place, run: &Path, judged: &[&str]) {
    let ended = place.run(&["rejudge", &run.display().to_string(), "--json"]);
    if judged.is_empty() {
        ended.expect(4, &["no case that a judge decides"]);
        return;
    }
    let verdicts: Vec<Value> = serde_json::from_str(&ended.expect(0, &[]).stdout).unwrap();
    let cases: BTreeSet<&str> = verdicts.iter().map(|verdict| verdict["case"].as_str().unwrap()).collect();
    assert_eq!(cases, judged.iter().copied().collect());
    for verdict in &verdicts {
        assert_eq!(verdict["outcome"], verdict["recorded"]["outcome"], "{verdict}");
    }
}

#[test]
fn interrupt_in_the_suite_keeps_evidence_and_leaves_no_processes() {
    let (place, running) = started(&busy());
    // With a suspended apiserver the suite cannot end before the interrupt.
    send(place.process("--secure-port"), Signal::STOP);
    running.signal(Signal::INT);
    running.end().expect(130, &["interrupted: collecting evidence", "interrupted (exit 130)"]);
    place.assert_nothing_is_left();

    let run = place.the_run();
    let events = place.events();
    assert!(is(events.last().unwrap(), "run-finished", "exit", "interrupted"), "{events:?}");
    let cases = junit(&run);
    assert_eq!(kind_of(&cases, "run"), Some("interrupted"));
    assert!(kind_of(&cases, "suite").is_some());
    assert_eq!(kind_of(&cases, "teardown"), None);
    assert_eq!(json(&run.join("run.json"))["exit"]["code"], 130);
    for file in ["summary.md", "stores/default.main.db", "history/default.main/meta.json", "logs/default.etcd-main.log"]
    {
        assert_file(run.join(file));
    }
}

/// This machine's architecture, and another one.
fn host_and_foreign() -> (&'static str, &'static str) {
    let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
    let host = catalogue().host_target(&machine).unwrap().name.clone();
    let foreign = architectures().into_iter().find(|name| *name != host).unwrap();
    (host.leak(), foreign.leak())
}

/// The build for the other architecture refuses this machine's binaries.
#[test]
fn failure_of_one_architecture_does_not_stop_another() {
    let place = Place::new();
    let (host, foreign) = host_and_foreign();
    let both = format!("{foreign},{host},{foreign}");
    let args = with_sources(&["ci", "--seed", "1", "--check", "cc.update-conflict", "--arch", &both, "--jobs", "2"]);
    let green = format!("{host}: {host}, provider process: all as expected (exit 0)");
    place.run(&args).expect(101, &[&green, &format!("{foreign}: build errored"), "build failed (exit 101)"]);
    place.assert_nothing_is_left();
    let run = place.the_run();
    let record = json(&run.join("run.json"));
    let codes: Vec<_> = record["children"].as_array().unwrap().iter().map(|child| &child["exit"]["code"]).collect();
    assert_eq!(codes, [101, 0]);
    assert_eq!(json(&run.join(host).join("run.json"))["counts"]["passed"], 1);
    assert_eq!(kind_of(&junit(&run), "build"), Some("infrastructure"));
    place.run(&["rejudge"]).expect(4, &[host, "no case that a judge decides"]);
}

#[test]
fn interrupt_ends_all_architectures_and_keeps_evidence_of_those_that_ran() {
    let (host, foreign) = host_and_foreign();
    let both = format!("{host},{foreign}");
    let (place, running) = started(&[&busy()[..], &["--arch", &both, "--jobs", "1"]].concat());
    send(place.process("--secure-port"), Signal::STOP);
    running.signal(Signal::INT);
    running.end().expect(130, &["interrupted: collecting evidence", &format!("{foreign}: error: it was not started")]);
    place.assert_nothing_is_left();
    let run = place.the_run();
    let record = json(&run.join("run.json"));
    assert_eq!((&record["exit"]["code"], &record["children"][1]["record"]), (&130.into(), &Value::Null));
    for file in ["junit.xml", "stores/default.main.db", "history/default.main/meta.json"] {
        assert_file(run.join(host).join(file));
    }
    assert_eq!(kind_of(&junit(&run), "harness"), Some("interrupted"), "a run that was not started is an error");
}

#[test]
fn interrupt_in_boot_or_teardown_exits_with_130() {
    for phase in ["boot", "teardown"] {
        let place = Place::new();
        let mut running = place.start(&with_sources(&["ci", "--check", "cc.update-conflict", "--profile", "default"]));
        place.wait_for_event(&mut running, phase, |event| is(event, "phase-started", "phase", phase));
        running.signal(Signal::INT);
        running.end().expect(130, &["interrupted (exit 130)"]);
        place.assert_nothing_is_left();
        assert_eq!(kind_of(&junit(&place.the_run()), "run"), Some("interrupted"));
    }
}

#[test]
fn interrupt_during_a_go_build_ends_the_compilers() {
    let place = Place::new();
    let mut command = place.command(&["build", "--component", "etcd"]);
    // With a cold cache, the build takes longer than the time until the interrupt.
    command.env("GOCACHE", place.root.join("go-cache"));
    let running = place.start_command(command);
    wait("go build", || {
        let builds = place.processes().into_iter().any(|(_, line)| line.contains("build -v"));
        if builds { Probe::Ready(()) } else { Probe::NotYet(running.stderr()) }
    });
    running.signal(Signal::INT);
    running.end().expect(130, &["`", "was stopped: interrupted"]);
    place.assert_nothing_runs();
    assert_eq!(entries(&place.cache().join("components")), Vec::<PathBuf>::new());
}

#[test]
fn kill_9_leaves_no_process_and_the_next_run_removes_the_rest() {
    let (place, running) = started(&busy());
    assert!(place.processes().len() >= 2, "{:?}", place.processes());
    running.signal(Signal::KILL);
    assert!(running.end().status.code().is_none());
    place.assert_nothing_runs();
    assert_eq!(place.private().len(), 1, "a killed run cannot remove its folder");

    place.run(&["ci", "--etcd", "prebuilt:/nonexistent"]).expect(101, &["neither"]);
    assert_eq!(place.private(), Vec::<PathBuf>::new());
}

#[test]
fn dead_component_is_named_and_no_later_case_passes() {
    for (part, name) in [("--secure-port", "kube-apiserver"), ("--listen-peer-urls", "etcd-main")] {
        let (place, running) = started(&busy());
        send(place.process(part), Signal::KILL);
        let log = format!("logs/default.{name}.log");
        let died = format!("default/{name} ended by itself (signal: 9");
        let ended = running.end().expect(102, &[&died, "the last lines of", &log, "infrastructure failed (exit 102)"]);
        place.assert_nothing_runs();

        let run = place.the_run();
        let text = std::fs::read_to_string(run.join(&log)).unwrap();
        let words: String = text.lines().last().unwrap().chars().take(60).collect();
        assert!(ended.stderr.contains(&words), "{words}\n{}", ended.stderr);
        let record = json(&run.join("run.json"));
        assert_eq!(record["exit"]["code"], 102);
        assert!(record["counts"]["passed"].as_u64() < record["planned"].as_u64(), "{record}");
        assert_eq!(kind_of(&junit(&run), "suite"), Some("infrastructure"));
        assert_file(run.join("stores/default.main.db"));
    }
}

#[test]
fn component_that_does_not_start_shows_its_log() {
    let place = Place::new();
    let data = place.root.join("data");
    targets_copy(&data);
    edit(&data.join("profiles.yaml"), "etcd-compaction-interval: \"0\"", "no-such-flag: \"1\"");
    let data = data.display().to_string();
    let args = with_sources(&["ci", "--check", "cc.update-conflict", "--profile", "default", "--targets", &data]);
    let parts = ["default/kube-apiserver ended (exit status: 1)", "unknown flag: --no-such-flag", "exit 102"];
    place.run(&args).expect(102, &parts);
    place.assert_nothing_runs();
    assert!(kind_of(&junit(&place.the_run()), "boot").is_some());
}

#[test]
fn kept_cluster_is_found_by_name_until_it_stops() {
    let place = Place::new();
    let up = with_sources(&["up", "--json", "--name", "kept"]);
    let info = place.run(&up).expect(0, &[]).json();
    assert_file(info["profiles"]["default"]["kubeconfig"].as_str().unwrap().into());
    place.run(&up).expect(2, &["a cluster `kept` is running", "cargo xtask down --name kept"]);
    let logs = place.run(&["logs", "--name", "kept"]).expect(0, &[]);
    assert_eq!(logs.stdout, "default/etcd-main\ndefault/kube-apiserver\n");
    let log = place.run(&["logs", "--name", "kept", "default/etcd-main"]).expect(0, &[]);
    assert!(log.stdout.contains("ready to serve client requests"), "{}", log.stdout);
    place.run(&["logs", "--name", "kept", "default/kubelet"]).expect(2, &["default/kube-apiserver"]);
    place.run(&["shell", "--name", "kept", "--", "true"]).expect(2, &["no guest", "--provider qemu"]);
    place.run(&["down", "--name", "other"]).expect(2, &["running clusters: kept"]);
    place.run(&["down", "--name", "kept"]).expect(0, &["stopped"]);
    place.assert_nothing_is_left();
}

/// A search writes objects, definitions and many dry runs; then the store has the keys that it had before.
#[test]
fn differential_leaves_nothing_in_an_external_cluster() {
    let place = Place::new();
    let info = place.run(&with_sources(&["up", "--json"])).expect(0, &[]).json();
    let kubeconfig = info["profiles"]["default"]["kubeconfig"].as_str().unwrap();
    let keys = || {
        let listed = place.run(&["inspect", "--json"]).expect(0, &[]).json();
        let keys = listed.as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap().to_owned());
        keys.collect::<BTreeSet<String>>()
    };
    // kube-apiserver writes its own Service, its endpoints and leases after it is ready.
    let own = [
        "/masterleases/",
        "/peerserverleases/",
        "/services/specs/default/kubernetes",
        "/services/endpoints/default/kubernetes",
        "/endpointslices/default/kubernetes",
    ];
    let before = wait("what kube-apiserver writes for itself", || {
        let keys = keys();
        match own.iter().find(|own| !keys.iter().any(|key| key.contains(**own))) {
            Some(own) => Probe::NotYet(format!("no key with {own}")),
            None => Probe::Ready(keys),
        }
    });
    let differential =
        with_sources(&["differential", "--level", "live", "--kubeconfig", kubeconfig, "--cases", "150", "--json"]);
    let found = place.run(&differential).expect(0, &[]).json();
    assert!(found["accepted"].as_u64().unwrap() > 20, "{found}");
    assert_eq!(found["groups"], Value::Array(Vec::new()));
    let after = keys();
    let changed: Vec<&String> = after.symmetric_difference(&before).collect();
    assert_eq!(changed, Vec::<&String>::new());
    place
        .run(&["differential", "--level", "live", "--kubeconfig", kubeconfig, "--arch", host_and_foreign().1])
        .expect(2, &["the cluster reports the architecture"]);
    place.run(&["down"]).expect(0, &["stopped"]);
    place.assert_nothing_runs();
}

#[test]
fn killed_keeper_takes_its_cluster_down_and_a_name_has_one_keeper() {
    let place = Place::new();
    let up = with_sources(&["up"]);
    let both = [place.start(&up), place.start(&up)].map(|running| running.end());
    let mut codes: Vec<Option<i32>> = both.iter().map(|ended| ended.status.code()).collect();
    codes.sort();
    assert_eq!(codes, [Some(0), Some(2)], "{both:?}");

    send(place.process("--foreground"), Signal::KILL);
    place.assert_nothing_runs();
    place.run(&["logs"]).expect(2, &["no cluster `default`"]);
    place.run(&["down"]).expect(0, &["had already stopped", "killed"]);
    assert_eq!(place.private(), Vec::<PathBuf>::new());
    place.run(&["down"]).expect(2, &["no cluster `default`"]);
}

#[test]
fn failed_keeper_passes_on_its_error_and_exit_code() {
    let place = Place::new();
    place.run(&["up", "--etcd", "prebuilt:/nonexistent"]).expect(101, &["did not start", "neither /nonexistent"]);
    place.assert_nothing_runs();
}

#[test]
fn compiler_errors_are_shown() {
    let place = Place::new();
    let server = place.root.join("etcd/server");
    std::fs::create_dir_all(&server).unwrap();
    std::fs::write(server.join("go.mod"), "module go.etcd.io/etcd/server/v3\n\ngo 1.21\n").unwrap();
    std::fs::write(server.join("main.go"), "package main\n\nfunc main() {\n\tmissing(\n}\n").unwrap();
    let spec = format!("checkout:{}", place.root.join("etcd").display());
    let parts = ["main.go:5:1: syntax error", "to repeat it: cd "];
    place.run(&["build", "--component", "etcd", "--etcd", &spec]).expect(101, &parts);
}

/// The listeners occupy, one after the other, the store's client port, its HTTP port, its peer port and the apiserver's
/// port.
#[test]
fn port_conflict_costs_one_attempt() {
    let place = Place::new();
    let catalogue = catalogue();
    let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
    let target = catalogue.host_target(&machine).unwrap();
    let [_, kubernetes, _, etcd] = sources();
    let sources =
        [("kubernetes", kubernetes), ("etcd", etcd)].map(|(set, spec)| (set.to_owned(), spec.parse().unwrap()));
    let artifacts = build::build(&build::Request {
        target,
        components: &catalogue.components,
        targets_dir: &place.root,
        cache_dir: &place.cache(),
        sources: sources.into(),
        only: None,
        offline: true,
        exported: None,
        go: None,
    })
    .unwrap();
    let run = RunDir::create(&place.reports(), &place.cache(), "ports").unwrap();

    let [client, http, peer, apiserver] = [0, 5, 10, 15];
    let asked = AtomicUsize::new(0);
    let taken = std::sync::Mutex::new(Vec::new());
    let ports = || {
        let number = asked.fetch_add(1, Ordering::SeqCst);
        if ![client, http, peer, apiserver].contains(&number) {
            return sys::ports::free();
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        taken.lock().unwrap().push(listener);
        Ok(port)
    };
    let topology = boot::Topology { profiles: vec![catalogue.profile("default").unwrap().clone()], node: None };
    let booted = boot::up_on(target, &artifacts, &topology, &run, &ports).unwrap();

    assert_eq!(asked.load(Ordering::SeqCst), 20, "four ports for each of four failed attempts and a good one");
    let left = place.processes();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.iter().any(|(_, line)| line.contains("/default/5/main")), "the last attempt's store runs: {left:?}");
    booted.end(None).unwrap();
    place.assert_nothing_runs();
}
