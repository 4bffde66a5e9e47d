//! Events for tests: a run with one case of each outcome, and single events.

use std::collections::BTreeMap;

use model::{
    Artifact, BuildStep, CiJob, EmulatorThreads, Event, Exit, Extension, Hardware, InstructionEmulator, Level,
    MachineInfo, Outcome, PackageUsed, Processors, RunInfo, Source,
};

pub fn at(second: u32) -> String {
    format!("2026-11-21T10:{:02}:{:02}.250Z", second / 60, second % 60)
}

pub fn info() -> RunInfo {
    RunInfo {
        id: "20261121T100000Z-mix64".into(),
        started: at(0),
        harness: "0.1.0 (abc1234)".into(),
        arch: "mix64".into(),
        provider: "process".into(),
        host: "Linux 6.12.0 mix64".into(),
        sources: BTreeMap::from([
            ("etcd".into(), "module".into()),
            ("kubernetes".into(), "checkout:../kubernetes".into()),
        ]),
        seed: 42,
        shard: None,
        job: None,
        command: "cargo xtask ci --arch mix64 --seed 42".into(),
    }
}

pub fn started() -> Event {
    Event::RunStarted { at: at(0), run: info() }
}

/// The data of the start event.
pub fn info_of(events: &mut [Event]) -> &mut RunInfo {
    let Some(Event::RunStarted { run, .. }) = events.first_mut() else { panic!("no start event") };
    run
}

pub fn finished(exit: Exit) -> Event {
    Event::RunFinished { at: at(75), exit, seconds: 75.25 }
}

pub fn planned(cases: usize) -> Event {
    Event::SuitePlanned { at: at(6), cases, seed: 42 }
}

pub fn phase(name: &str, outcome: Outcome) -> Event {
    Event::PhaseFinished { at: at(70), phase: name.into(), outcome, seconds: 1.5 }
}

pub fn case(name: &str, outcome: Outcome) -> Event {
    Event::CaseFinished {
        at: at(20),
        case: name.into(),
        check: name.split('[').next().unwrap_or(name).into(),
        profile: "default".into(),
        level: Level::Must,
        requirement: format!("What {name} asks for."),
        source: "https://example.org/api.md#watch".into(),
        outcome,
        seconds: 0.5,
        counters: BTreeMap::from([("events".into(), 30), ("operations".into(), 12)]),
        repeat: format!("cargo xtask ci --check {name} --seed 42"),
    }
}

pub fn built() -> Event {
    let artifact = Artifact {
        component: "etcd".into(),
        path: "cache/etcd".into(),
        sha256: "ab".repeat(32),
        size: 25_000_000,
        source: Source::Module(None),
        version: "v3.6.16".into(),
        go: "go1.26.8".into(),
        step: BuildStep::Built { key: "k".into(), why: "flags changed".into(), seconds: 31.0 },
        experimental_flags: Vec::new(),
        unknown_values: Vec::new(),
    };
    Event::Built { at: at(2), artifact }
}

pub fn every_outcome() -> [Outcome; 7] {
    [
        Outcome::Passed,
        Outcome::Failed {
            message: "revision 7 was delivered after 9\nin stream 3".into(),
            evidence: vec!["rev 9 MODIFIED a".into(), "rev 7 MODIFIED a".into()],
        },
        Outcome::UnexpectedPass { issue: "https://example.org/issues/7".into() },
        Outcome::errored("request", "connection reset"),
        Outcome::TimedOut { what: "a bookmark".into() },
        Outcome::ExpectedFailure {
            message: "a bookmark is missing".into(),
            issue: "https://example.org/issues/8".into(),
        },
        Outcome::Skipped { need: "control over the store".into() },
    ]
}

/// A complete run with one case of each outcome. The order is not the order of names.
pub fn run() -> Vec<Event> {
    let names = ["watch.a", "watch.ordered", "storage.c", "storage.d", "rv.e", "list.f", "cc.g[json]"];
    let mut events = vec![
        started(),
        Event::PhaseStarted { at: at(0), phase: "build".into() },
        built(),
        phase("build", Outcome::Passed),
        Event::PhaseStarted { at: at(3), phase: "boot".into() },
        Event::Booted {
            at: at(5),
            execution: "native".into(),
            factor: 1.25,
            versions: BTreeMap::from([("etcd".into(), "3.6.16".into()), ("kubernetes".into(), "v1.36.3".into())]),
            machine: None,
            hardware: Some(Box::new(hardware())),
        },
        phase("boot", Outcome::Passed),
        Event::PhaseStarted { at: at(6), phase: "suite".into() },
        planned(names.len()),
    ];
    for (name, outcome) in names.iter().zip(every_outcome()) {
        events.push(Event::CaseStarted { at: at(10), case: (*name).into() });
        events.push(case(name, outcome));
    }
    events.push(phase("suite", Outcome::Passed));
    events.push(Event::Note { at: at(71), text: "namespace a-1 was left behind".into() });
    events.push(Event::PhaseStarted { at: at(71), phase: "teardown".into() });
    events.push(phase("teardown", Outcome::Passed));
    events.push(finished(Exit::Conformance));
    events
}

/// A machine with two processors, which have one of two extensions.
pub fn hardware() -> Hardware {
    let extension = |name: &str, flag: Option<&str>, hwcap: Option<u8>, reason: &str| Extension {
        name: name.into(),
        flag: flag.map(str::to_owned),
        hwcap,
        hwcap2: None,
        reason: reason.into(),
    };
    let extensions = vec![
        extension("fast (adders)", Some("fast"), None, "Go counts with it."),
        extension("wide (vectors)", None, Some(21), "Go adds with it."),
    ];
    Hardware {
        page_size: Some(4096),
        address_bits: Some(47),
        cpu_model: Some("Mix One".into()),
        cpu_flags: vec!["fast".into()],
        hwcap: Some(1),
        hwcap2: Some(0),
        cpus: Some(2),
        numa_nodes: Some(1),
        emulator: None,
        processors: Some(Processors { page_sizes: vec![4096, 16384, 65536], weak_memory: true, extensions }),
    }
}

/// A system VM that was restored from a snapshot.
pub fn machine() -> MachineInfo {
    let package = |name: &str, note: Option<&str>| PackageUsed {
        name: name.into(),
        version: "1.0".into(),
        arch: "all".into(),
        sha256: "cd".repeat(32),
        note: note.map(str::to_owned),
    };
    MachineInfo {
        emulator: "QEMU 11.1.3 (debian)".into(),
        accelerator: "tcg".into(),
        reason: "the guest is of another architecture than the host".into(),
        kernel: "6.12.107-mix64".into(),
        cpus: 2,
        memory_mib: 1088,
        warm: true,
        seconds: 1.25,
        notes: vec!["the lock is old".into()],
        packages: vec![
            package("busybox-static", Some("the locked 0.9 is no longer on the mirror")),
            package("linux-image-mix64", None),
        ],
    }
}

/// [`run`] in [`machine`].
pub fn run_in_machine() -> Vec<Event> {
    let mut events = run();
    for event in &mut events {
        if let Event::Booted { machine, hardware, .. } = event {
            *machine = Some(Box::new(self::machine()));
            let threads = Some(EmulatorThreads::Multi);
            let emulator = Some(InstructionEmulator { name: "QEMU 11.1.3".into(), threads });
            *hardware = Some(Box::new(Hardware { emulator, ..self::hardware() }));
        }
    }
    events
}

/// Texts that have broken XML writers, Markdown and terminals.
pub fn hostile_texts() -> Vec<String> {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    vec![
        String::new(),
        "nul \0, bell \x07, escape \x1b, delete \x7f, next line \u{85}, csi \u{9b}2J".into(),
        "\x1b[1;31mred\x1b[0m \x1b]0;title\x07 \x1b]8;;https://a\x1b\\link".into(),
        "]]> ]]]]>> <![CDATA[ ]]".into(),
        "]]>".repeat(1000),
        "<a href=\"x\">&amp;&nbsp;&#0;</a> <!-- --> <?x?>".into(),
        "\u{fffe}\u{ffff}\u{fdd0}\u{1ffff}".into(),
        lossy(b"surrogates \xed\xa0\x80\xed\xbf\xbf and \xff"),
        // Longer than every limit of `text`.
        "x".repeat(300 << 10),
        "line\nbreaks\r\nof\rall\tkinds\n\n".into(),
        "emoji 🦀👩‍👩‍👧 \u{202e}reversed\u{2028}separator".into(),
        "| `pipe` | ``` | **bold** | [link](javascript:x) |\n```\n# heading\n".into(),
    ]
}

/// A run in which every text field holds `text`, with one case and one phase of each outcome.
pub fn hostile(text: &str) -> Vec<Event> {
    let text = || text.to_owned();
    let map = || BTreeMap::from([(text(), text())]);
    let outcomes = || {
        [
            Outcome::Passed,
            Outcome::Failed { message: text(), evidence: vec![text(), text()] },
            Outcome::UnexpectedPass { issue: text() },
            Outcome::Errored { phase: text(), message: text() },
            Outcome::TimedOut { what: text() },
            Outcome::ExpectedFailure { message: text(), issue: text() },
            Outcome::Skipped { need: text() },
        ]
    };
    let run = RunInfo {
        id: text(),
        started: text(),
        harness: text(),
        arch: text(),
        provider: text(),
        host: text(),
        sources: map(),
        seed: u64::MAX,
        shard: Some(text()),
        job: Some(CiJob { id: text(), attempt: u32::MAX, workflow_run: Some(text()) }),
        command: text(),
    };
    let mut events = vec![Event::RunStarted { at: text(), run }];
    let package = PackageUsed { name: text(), version: text(), arch: text(), sha256: text(), note: Some(text()) };
    let machine = MachineInfo {
        emulator: text(),
        accelerator: text(),
        reason: text(),
        kernel: text(),
        notes: vec![text()],
        packages: vec![package],
        ..machine()
    };
    let machine = Some(Box::new(machine));
    let extension = Extension { name: text(), flag: Some(text()), hwcap: None, hwcap2: None, reason: text() };
    let hardware = Hardware {
        cpu_model: Some(text()),
        cpu_flags: vec!["other".into()],
        emulator: Some(InstructionEmulator { name: text(), threads: None }),
        processors: Some(Processors {
            page_sizes: vec![0, 1, u64::MAX],
            weak_memory: true,
            extensions: vec![extension],
        }),
        ..hardware()
    };
    let hardware = Some(Box::new(hardware));
    events.push(Event::Booted { at: text(), execution: text(), factor: 1.0, versions: map(), machine, hardware });
    events.push(Event::Note { at: text(), text: text() });
    events.push(Event::ProcessorTime { at: text(), parts: BTreeMap::from([(text(), 1.0)]) });
    events.push(Event::CaseStarted { at: text(), case: text() });
    events.push(Event::PhaseStarted { at: text(), phase: text() });
    for outcome in outcomes() {
        events.push(Event::PhaseFinished { at: text(), phase: text(), outcome: outcome.clone(), seconds: -1.0 });
        events.push(Event::CaseFinished {
            at: text(),
            case: text(),
            check: text(),
            profile: text(),
            level: Level::Extra,
            requirement: text(),
            source: text(),
            outcome,
            seconds: 1e300,
            counters: BTreeMap::from([(text(), u64::MAX)]),
            repeat: text(),
        });
    }
    events.push(finished(Exit::Conformance));
    events
}
