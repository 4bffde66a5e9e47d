//! The jobs that an event creates, and the jobs that it must never create.

use std::collections::BTreeMap;

use model::{ByteOrder, CacheSizes, Ci, ElfFacts, Harness, Level, NativeJob, Owner, Processors, Quick};

use super::*;
use crate::{Prebuilt, examples};

fn runner(name: &str, arch: &str, labels: &[&str], owner: Owner, available: bool) -> Runner {
    let labels = labels.iter().map(|label| (*label).to_owned()).collect();
    Runner { name: name.into(), arch: arch.into(), labels, owner, available, note: "x".into() }
}

/// Marks a way with `programs: source`.
const SOURCE: &str = " source";

fn target(name: &str, experimental: bool, ways: &[(Mode, &str, u32)]) -> Target {
    let way = |&(mode, runner, shards): &(Mode, &str, u32)| {
        let (runner, programs) = match runner.strip_suffix(SOURCE) {
            Some(runner) => (runner, Some(NativeJob::Source)),
            None => (runner, None),
        };
        Way { mode, runner: runner.into(), programs, minutes: 60, shards }
    };
    Target {
        name: name.into(),
        title: name.into(),
        aliases: Vec::new(),
        elf: ElfFacts { class: 64, byte_order: ByteOrder::Little, machine: 1 },
        hardware: Processors { page_sizes: vec![4096], weak_memory: false, extensions: Vec::new() },
        go_env: BTreeMap::new(),
        emulator: None,
        machine: None,
        harness: Some(Harness {
            rust: format!("{name}-unknown-linux-gnu"),
            glibc: "2.28".into(),
            kernel: "5.0".into(),
        }),
        go: None,
        component_env: BTreeMap::new(),
        variants: Vec::new(),
        variant: None,
        ci: Some(Ci { experimental, ways: ways.iter().map(way).collect() }),
    }
}

fn data() -> MatrixData {
    MatrixData {
        runners: vec![
            runner("hosted", "one", &["ubuntu-24.04"], Owner::Github, true),
            runner("board", "two", &["self-hosted", "linux", "two"], Owner::Own, true),
            runner("gift", "three", &["ubuntu-24.04-three"], Owner::Donated, true),
            runner("wish", "four", &["self-hosted", "four"], Owner::Own, false),
        ],
        quick: Quick { level: Level::Must, profiles: vec!["default".into(), "json".into()] },
        documents: vec!["*.md".into(), "LICENSE".into()],
        caches: CacheSizes { limit: 100, cargo: 10, modules: 7, gobuild: 5, components: 3, downloads: 2 },
    }
}

fn targets() -> Vec<Target> {
    vec![
        target("one", false, &[(Mode::Native, "hosted", 1), (Mode::Build, "hosted", 1)]),
        target("two", false, &[(Mode::Native, "board", 1), (Mode::Vm, "hosted", 3), (Mode::Build, "hosted", 1)]),
        target("three", false, &[(Mode::Native, "gift", 1), (Mode::User, "hosted", 1)]),
        target("four", true, &[(Mode::Native, "wish", 1), (Mode::Vm, "hosted", 2), (Mode::Build, "hosted", 1)]),
    ]
}

/// The request of a push.
fn push<'a>(targets: &'a [Target], data: &'a MatrixData) -> Ask<'a> {
    Ask {
        targets,
        data,
        event: Event::Push,
        origin: Origin::Repository,
        only: &[],
        self_hosted: true,
        also: &[],
        source: &[],
        at_most: Mode::Native,
        changed: None,
    }
}

/// Makes the matrix for the data above; `change` changes the request.
fn ask<R>(change: impl FnOnce(&mut Ask<'_>), look: impl FnOnce(Result<Matrix, MatrixError>) -> R) -> R {
    let (targets, data) = (targets(), data());
    let mut ask = push(&targets, &data);
    change(&mut ask);
    look(matrix(&ask))
}

fn ids(change: impl FnOnce(&mut Ask<'_>)) -> Vec<String> {
    ask(change, |matrix| matrix.unwrap().include.into_iter().map(|entry| entry.id).collect())
}

/// The jobs of a push.
const EVERYTHING: &[&str] =
    &["four-vm-quick", "one-native", "three-native", "three-user-quick", "two-native", "two-vm-quick"];

#[test]
fn self_hosted_machine_is_additional_and_never_alone() {
    let roles: Vec<(String, Role)> =
        ask(|_| (), |matrix| matrix.unwrap().include.into_iter().map(|entry| (entry.id, entry.role)).collect());
    let expected = [
        ("four-vm-quick", Role::Experimental),
        ("one-native", Role::Required),
        ("three-native", Role::Additional),
        ("three-user-quick", Role::Required),
        ("two-native", Role::Additional),
        ("two-vm-quick", Role::Required),
    ];
    assert_eq!(roles, expected.map(|(id, role)| (id.to_owned(), role)));
    let matrix = ask(|_| (), |matrix| matrix.unwrap());
    assert_eq!(matrix.of(Role::Additional).include.len(), 2);
    assert_eq!(matrix.tested().into_iter().collect::<Vec<_>>(), ["four", "one", "three", "two"]);
    let plan = matrix.plan(3, Some("7".into()));
    assert_eq!((plan.attempt, plan.jobs.len()), (3, 6));
    assert_eq!(plan.job("two-vm-quick").unwrap().provider.as_deref(), Some("qemu"));
    // A self-hosted way that proves no more than the GitHub-hosted one is left out.
    let own = target("five", false, &[(Mode::Native, "board", 1), (Mode::Native, "hosted", 1)]);
    let own = std::slice::from_ref(Box::leak(Box::new(own)));
    assert_eq!(ids(|ask| ask.targets = own), ["five-native"]);
}

#[test]
fn each_architecture_gets_its_best_way() {
    assert_eq!(ids(|_| ()), EVERYTHING);
    let nightly = ids(|ask| ask.event = Event::Schedule);
    let three = ["three-native", "three-user"];
    let two = ["two-native", "two-vm-1of3", "two-vm-2of3", "two-vm-3of3"];
    assert_eq!(nightly, [&["four-vm-1of2", "four-vm-2of2", "one-native"], &three[..], &two].concat());
    let own = ["wish".to_owned()];
    let (targets, data) = (targets(), data());
    let ask = Ask { also: &own, ..push(&targets, &data) };
    assert!(matrix(&ask).unwrap().include.iter().any(|entry| entry.id == "four-native"));
    let unknown = ["wisch".to_owned()];
    let error = matrix(&Ask { also: &unknown, ..ask }).unwrap_err();
    assert_eq!(error.to_string(), "unknown runner `wisch`; valid: hosted, board, gift, wish");
}

/// The jobs of an architecture with a second way on its board and on another runner.
fn with_source(event: Event, source: &[&str]) -> Matrix {
    let board = format!("board{SOURCE}");
    let ways =
        [(Mode::Native, "board", 1), (Mode::Native, &board, 2), (Mode::Vm, "hosted", 1), (Mode::Build, "hosted", 1)];
    let (targets, data) = ([target("two", false, &ways)], data());
    let source: Vec<String> = source.iter().map(|name| (*name).to_owned()).collect();
    matrix(&Ask { event, source: &source, ..push(&targets, &data) }).unwrap()
}

#[test]
fn job_from_source_is_planned_by_choice_and_only_if_no_developer_waits() {
    let ids = |event, source: &[&str]| -> Vec<String> {
        with_source(event, source).include.into_iter().map(|entry| entry.id).collect()
    };
    for event in [Event::Schedule, Event::WorkflowDispatch] {
        assert_eq!(ids(event, &[]), ["two-native", "two-vm"]);
        let both = ["two-native", "two-native-source-1of2", "two-native-source-2of2", "two-vm"];
        assert_eq!(ids(event, &["board"]), both);
        assert_eq!(ids(event, &["gift"]), ["two-native", "two-vm"]);
    }
    for event in [Event::Push, Event::PullRequest, Event::MergeGroup] {
        assert_eq!(ids(event, &["board"]), ["two-native", "two-vm-quick"]);
    }
    let notes = with_source(Event::Push, &["board"]).notes;
    assert_eq!(notes, ["two: not native from source on board: only a schedule or a manual start has jobs from source"]);
    assert_eq!(with_source(Event::Push, &[]).notes, [""; 0]);
    let jobs = with_source(Event::Schedule, &["board"]).include;
    let of: Vec<(bool, Role)> = jobs.iter().map(|job| (job.prebuilt, job.role)).collect();
    let source = (false, Role::Additional);
    assert_eq!(of, [(true, Role::Additional), source, source, (false, Role::Required)]);
    let (targets, data) = (targets(), data());
    let unknown = ["bord".to_owned()];
    let error = matrix(&Ask { source: &unknown, ..push(&targets, &data) }).unwrap_err();
    assert!(error.to_string().starts_with("unknown runner `bord`"), "{error}");
}

#[test]
fn prebuilt_jobs_are_grouped_by_architecture_and_separate_from_the_others() {
    let matrix = with_source(Event::Schedule, &["board"]);
    let ids = |matrix: &Matrix| matrix.include.iter().map(|entry| entry.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&matrix.of(Role::Additional).checked_out()), ["two-native-source-1of2", "two-native-source-2of2"]);
    let (targets, data) = (targets(), data());
    let all = super::matrix(&push(&targets, &data)).unwrap();
    let groups = Prebuilt::of(&all, &targets);
    let of: Vec<_> = groups.include.iter().map(|group| (&*group.arch, &*group.rust, ids(&group.jobs))).collect();
    let native = |id: &str| vec![id.to_owned()];
    let (two, three) = ("two-unknown-linux-gnu", "three-unknown-linux-gnu");
    assert_eq!(of, [("two", two, native("two-native")), ("three", three, native("three-native"))]);
    assert!(
        groups
            .json()
            .starts_with(r#"{"include":[{"arch":"two","rust":"two-unknown-linux-gnu","jobs":{"include":[{"id":"#)
    );
    let hosted = super::matrix(&Ask { self_hosted: false, ..push(&targets, &data) }).unwrap();
    assert_eq!(Prebuilt::of(&hosted, &targets).include, []);
    assert_eq!(hosted.checked_out().include, hosted.include);
}

#[test]
fn machines_are_inspected_with_an_archive_if_there_can_be_one() {
    let (mut targets, data) = (targets(), data());
    targets[2].harness = None;
    let of = machines(&push(&targets, &data)).unwrap().include;
    let of: Vec<(&str, bool)> = of.iter().map(|entry| (&*entry.machine, entry.prebuilt)).collect();
    assert_eq!(of, [("hosted", false), ("board", true), ("gift", false)]);
}

#[test]
fn examples_for_other_systems_have_jobs_of_ordinary_machines_only() {
    let (targets, data) = (targets(), data());
    let gitlab = examples::gitlab(&targets, &data);
    let ids: Vec<&str> = gitlab.lines().filter_map(|line| line.split_once("--like-ci ").map(|(_, id)| id)).collect();
    let quick = ["one-native", "two-vm-quick", "three-user-quick", "four-vm-quick"];
    let shards = ["two-vm-1of3", "two-vm-2of3", "two-vm-3of3", "three-user", "four-vm-1of2", "four-vm-2of2"];
    assert_eq!(ids, [&quick[..], &shards].concat());
    assert!(examples::periodics(&targets, &data).contains("ci-archproof-one-native\n"));
}

#[test]
fn falls_back_without_self_hosted_runners_or_with_a_lower_mode() {
    assert_eq!(ids(|ask| ask.self_hosted = false), ["four-vm-quick", "one-native", "three-user-quick", "two-vm-quick"]);
    assert_eq!(ids(|ask| ask.at_most = Mode::Vm), ["four-vm-quick", "one-build", "three-user-quick", "two-vm-quick"]);
    let none = ask(|ask| ask.at_most = Mode::Build, |matrix| matrix.unwrap_err().to_string());
    let expected = "three: none of its `ci` ways can run here: native on gift: a lower mode was requested; user on \
                    hosted: a lower mode was requested";
    assert_eq!(none, expected);
}

#[test]
fn untrusted_code_only_runs_on_github_hosted_runners() {
    for event in Event::ALL {
        for also in [&[][..], &["wish".to_owned(), "board".to_owned(), "gift".to_owned()]] {
            let (targets, data) = (targets(), data());
            let ask = Ask { event, origin: Origin::Stranger, also, ..push(&targets, &data) };
            let matrix = matrix(&ask).unwrap();
            assert_eq!(matrix.include.iter().map(|entry| &entry.arch).collect::<BTreeSet<_>>().len(), 4);
            for entry in &matrix.include {
                let on = (entry.runs_on.to_string(), entry.self_hosted);
                assert_eq!(on, ("ubuntu-24.04".to_owned(), false), "{entry:?}");
            }
            // The emulated job is required, as for every other change.
            let two = matrix.include.iter().find(|entry| entry.arch == "two").unwrap();
            assert!(two.role == Role::Required && two.id.starts_with("two-vm"), "{two:?}");
            assert!(matrix.notes.iter().any(|note| note.contains("forks never run on self-hosted runners")));
        }
    }
}

#[test]
fn guard_refuses_self_hosted_entries_for_untrusted_code() {
    let (targets, data) = (targets(), data());
    let ask = Ask { event: Event::PullRequest, origin: Origin::Stranger, ..push(&targets, &data) };
    let good = matrix(&ask).unwrap();
    let with = |change: fn(&mut Entry)| {
        let mut matrix = good.clone();
        change(&mut matrix.include[1]);
        guard(&matrix, &ask).is_err()
    };
    assert!(!with(|_| ()));
    assert!(with(|entry| entry.self_hosted = true));
    assert!(with(|entry| entry.runs_on = RunsOn::One("ubuntu-24.04-three".into())));
    assert!(with(|entry| entry.runs_on = RunsOn::All(vec!["self-hosted".into(), "linux".into(), "two".into()])));
    // The rules of the target data refuse a runner that is wrongly declared as GitHub's.
}

#[test]
fn changed_files_decide_the_jobs() {
    for (files, expected) in [
        (&["README.md", "xtask/README.md", "LICENSE"][..], &[][..]),
        (&["targets/architectures/two.yaml"], &["two-native", "two-vm-quick"]),
        (
            &["targets/architectures/two.lock", "targets/architectures/three.yaml", "a/README.md"],
            &["three-native", "three-user-quick", "two-native", "two-vm-quick"],
        ),
        // Jobs of all architectures run on machines of this one, with the emulators in its lock.
        (&["targets/architectures/one.lock"], EVERYTHING),
        (&["targets/architectures/two.lock", "targets/architectures/one.yaml"], EVERYTHING),
        (&["targets/architectures/two.yaml", "xtask/src/main.rs"], EVERYTHING),
        (&["targets/profiles.yaml"], EVERYTHING),
        (&["targets/new.yaml"], EVERYTHING),
        (&["x/targets/architectures/two.yaml"], EVERYTHING),
        (&[".md"], EVERYTHING),
        (&[], EVERYTHING),
    ] {
        let files: &[String] = files.iter().map(|file| (*file).to_owned()).collect::<Vec<_>>().leak();
        assert_eq!(ids(|ask| ask.changed = Some(files)), expected, "{files:?}");
    }
    let documents = vec!["x.md".to_owned()].leak();
    let reason = ask(|ask| ask.changed = Some(documents), |matrix| matrix.unwrap().reason);
    assert_eq!(reason, "only documents have changed: there is nothing to test");
    let none = ids(|ask| {
        ask.only = vec!["one".to_owned()].leak();
        ask.changed = Some(vec!["targets/architectures/two.yaml".to_owned()].leak());
    });
    assert!(none.is_empty(), "{none:?}");
}

#[test]
fn more_jobs_than_github_allows_are_refused() {
    let many: Vec<Target> = (0..20)
        .map(|n| target(&format!("t{n}"), false, &[(Mode::Vm, "hosted", 13), (Mode::Build, "hosted", 1)]))
        .collect();
    let data = data();
    let refused = matrix(&Ask { event: Event::Schedule, ..push(&many, &data) }).unwrap_err();
    assert_eq!(refused, MatrixError::TooMany(260));
}

#[test]
fn json_has_the_keys_that_workflows_read() {
    let json =
        ask(|ask| ask.only = vec!["two".to_owned()].leak(), |matrix| matrix.unwrap().of(Role::Additional).json());
    let expected = concat!(
        r#"{"include":[{"id":"two-native","arch":"two","machine":"board","mode":"native","runs_on":["self-hosted","linux","two"],"timeout":60,"#,
        r#""experimental":false,"self_hosted":true,"prebuilt":true,"role":"additional","command":"cargo xtask ci --arch two --provider process"}]}"#
    );
    assert_eq!(json, expected);
    assert!(!json.contains('\n'));
}

#[test]
fn id_identifies_one_command() {
    let mut commands: BTreeMap<String, String> = BTreeMap::new();
    let board = format!("board{SOURCE}");
    let five =
        target("five", false, &[(Mode::Native, "board", 1), (Mode::Native, &board, 1), (Mode::Native, "hosted", 1)]);
    for job in Job::all(&[&targets()[..], &[five]].concat()) {
        let id = job.id();
        assert!(id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{id}");
        let command = job.words(&data().quick).join(" ");
        assert_eq!(commands.insert(id.clone(), command), None, "{id} occurs twice");
    }
    assert_eq!(commands["two-vm-quick"], "ci --arch two --provider qemu --level must --profile default --profile json");
    assert_eq!(commands["two-vm-2of3"], "ci --arch two --provider qemu --shard 2/3");
    let native = "ci --arch five --provider process";
    assert_eq!([&commands["five-native"], &commands["five-native-source"]], [native; 2]);
    assert_eq!(commands["two-build"], "build --arch two");
    // `commands` contains every job of every event.
    for event in Event::ALL {
        for self_hosted in [true, false] {
            for id in ids(|ask| (ask.event, ask.self_hosted) = (event, self_hosted)) {
                assert!(commands.contains_key(&id), "{id}");
            }
        }
    }
}

#[test]
fn caches_are_counted_only_for_github_hosted_runners() {
    let (targets, data) = (targets(), data());
    let counted: Vec<(&str, usize, u32)> =
        crate::kept(&targets, &data).iter().map(|kept| (kept.kind, kept.of.len(), kept.total())).collect();
    let expected =
        [("cargo", 1, 10), ("modules", 1, 7), ("gobuild", 4, 20), ("components", 10, 30), ("downloads", 2, 4)];
    assert_eq!(counted, expected);
    let built = crate::kept(&targets[1..2], &data).into_iter().find(|kept| kept.kind == "components").unwrap().of;
    assert_eq!(built.into_iter().collect::<Vec<_>>(), ["two-vm-1of3", "two-vm-2of3", "two-vm-3of3", "two-vm-quick"]);
}
