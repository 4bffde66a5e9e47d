//! What runs could not show: native, under qemu-user, in a VM with TCG and with KVM, and in old records.

use model::Event;

use super::*;
use crate::fixture;

/// The subjects of the entries: the words before the first colon.
fn subjects(entries: &[String]) -> Vec<&str> {
    entries.iter().map(|entry| entry.split(':').next().unwrap()).collect()
}

fn emulated(name: &str, threads: Option<EmulatorThreads>) -> Hardware {
    Hardware { emulator: Some(InstructionEmulator { name: name.into(), threads }), ..fixture::hardware() }
}

#[test]
fn native_run_lacks_extensions_and_page_sizes() {
    let entries = limits(&fixture::hardware());
    assert_eq!(
        entries,
        [
            "Extension wide (vectors): the processor of the run lacked it. Go adds with it.",
            "Other page sizes: the run had pages of 4 KiB, and kernels of this architecture can also have pages of 16 KiB \
             and 64 KiB.",
        ]
    );
}

#[test]
fn native_run_on_the_only_kind_of_processor_lacks_nothing() {
    let processors = Processors { page_sizes: vec![4096], weak_memory: true, extensions: Vec::new() };
    let hardware = Hardware { processors: Some(processors), ..fixture::hardware() };
    assert_eq!(limits(&hardware), [""; 0]);
    let entries = limits(&Hardware { cpus: Some(1), ..hardware });
    assert_eq!(subjects(&entries), ["Memory ordering"]);
}

#[test]
fn user_mode_emulator_lacks_also_ordering_silicon_and_knowledge_of_extensions() {
    let hardware =
        Hardware { cpu_flags: Vec::new(), hwcap: None, ..emulated("qemu-mix64 10.0.2", Some(EmulatorThreads::Multi)) };
    let entries = limits(&hardware);
    assert_eq!(subjects(&entries), ["Weak memory ordering", "Unknown extensions", "Other page sizes", "Silicon"]);
    assert!(entries[1].ends_with("had fast (adders) or wide (vectors)."), "{}", entries[1]);
    assert!(entries[3].contains("qemu-mix64 10.0.2 executed all instructions"), "{}", entries[3]);
}

#[test]
fn emulated_machine_lacks_ordering_and_silicon() {
    for (threads, weak, ordering) in [
        (Some(EmulatorThreads::Multi), true, Some("Weak memory ordering")),
        (Some(EmulatorThreads::Multi), false, None),
        (Some(EmulatorThreads::Single), true, Some("Memory ordering")),
        (Some(EmulatorThreads::Single), false, Some("Memory ordering")),
        (None, true, Some("Weak memory ordering")),
    ] {
        let mut hardware = emulated("QEMU 11.1.3", threads);
        hardware.processors.as_mut().unwrap().weak_memory = weak;
        let expected: Vec<&str> =
            ordering.into_iter().chain(["Extension wide (vectors)", "Other page sizes", "Silicon"]).collect();
        assert_eq!(subjects(&limits(&hardware)), expected, "{threads:?} {weak}");
    }
}

#[test]
fn accelerated_machine_is_like_a_native_run() {
    let kvm = |events: Vec<Event>| {
        let mut events = events;
        for event in &mut events {
            if let Event::Booted { machine: Some(machine), hardware, .. } = event {
                machine.accelerator = "kvm".into();
                *hardware = Some(Box::new(fixture::hardware()));
            }
        }
        events
    };
    let events = kvm(fixture::run_in_machine());
    assert_eq!(not_shown(&View::of(&events)), limits(&fixture::hardware()));
    let emulated = fixture::run_in_machine();
    assert!(subjects(&not_shown(&View::of(&emulated))).contains(&"Silicon"));
}

#[test]
fn record_of_an_older_version_is_read_and_names_its_gap() {
    let booted = fixture::run().into_iter().find(|event| matches!(event, Event::Booted { .. })).unwrap();
    let mut line = serde_json::to_value(booted).unwrap();
    assert!(line.as_object_mut().unwrap().remove("hardware").is_some());
    let events = crate::parse(format!("{line}\n").as_bytes()).unwrap();
    let entries = not_shown(&View::of(&events));
    assert_eq!(subjects(&entries), ["Hardware"]);
    // A run that did not boot has nothing to limit.
    assert_eq!(not_shown(&View::of(&[fixture::started()])), [""; 0]);
}

#[test]
fn unknown_facts_are_named() {
    let unknown = Hardware { processors: fixture::hardware().processors, ..Hardware::default() };
    assert_eq!(subjects(&limits(&unknown)), ["Unknown extensions", "Page sizes"]);
    assert_eq!(subjects(&limits(&Hardware::default())), ["Other processors"]);
    assert_eq!(facts(&Hardware::default()), []);
}

#[test]
fn facts_are_described() {
    let facts = facts(&emulated("QEMU 11.1.3", Some(EmulatorThreads::Multi)));
    let lines: Vec<String> = facts.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    assert_eq!(
        lines,
        [
            "processor: Mix One",
            "processors online: 2",
            "NUMA nodes: 1",
            "page size: 4 KiB",
            "address bits: 47",
            "instructions executed by: QEMU 11.1.3, in several threads",
        ]
    );
}
