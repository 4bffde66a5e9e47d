//! The system VM of a run, in words: what it was, how it came up, what a reader should know of it.
//!
//! The list of its packages is in `run.json` alone.

use std::collections::BTreeMap;

use model::{MachineInfo, PackageUsed};

use crate::text::duration;

/// What `warm` means for everything that was checked.
const WARM: &str = "restored from a memory snapshot: keys and certificates are those of the run that made it";
/// Packages that a note names before it only counts.
const NAMED: usize = 4;

/// Name and value of each fact.
pub(crate) fn facts(machine: &MachineInfo) -> Vec<(&'static str, String)> {
    let MachineInfo { emulator, accelerator, reason, kernel, cpus, memory_mib, packages, .. } = machine;
    let start = if machine.warm { format!("warm, {WARM}") } else { "cold, from power-on".to_owned() };
    vec![
        ("emulator", emulator.clone()),
        ("accelerator", format!("{accelerator}: {reason}")),
        ("guest", format!("Linux {kernel}, {cpus} processors, {memory_mib} MiB")),
        ("start", format!("{start}; ready after {}", duration(machine.seconds))),
        ("packages", format!("{}, named in run.json", packages.len())),
    ]
}

/// The facts in one line.
pub(crate) fn line(machine: &MachineInfo) -> String {
    let MachineInfo { emulator, accelerator, reason, kernel, cpus, memory_mib, .. } = machine;
    let start = if machine.warm { "warm" } else { "cold" };
    let time = duration(machine.seconds);
    format!(
        "{emulator}, {accelerator} ({reason}), Linux {kernel}, {cpus} processors, {memory_mib} MiB, {start} in {time}"
    )
}

/// Everything that is not as usual, a line each.
pub(crate) fn notes(machine: &MachineInfo) -> Vec<String> {
    let mut notes = machine.notes.clone();
    let mut by_note: BTreeMap<&str, Vec<&PackageUsed>> = BTreeMap::new();
    for package in &machine.packages {
        if let Some(note) = &package.note {
            by_note.entry(note).or_default().push(package);
        }
    }
    for (note, packages) in by_note {
        let named = |package: &&PackageUsed| format!("{} {} {}", package.name, package.version, package.arch);
        let names: Vec<String> = packages.iter().take(NAMED).map(named).collect();
        let more = packages.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        notes.push(format!("{}{more}: {note}", names.join(", ")));
    }
    notes
}

/// The notes for whoever reads nothing else: also that keys are older than the run.
pub(crate) fn warnings(machine: &MachineInfo) -> Vec<String> {
    machine.warm.then(|| WARM.to_owned()).into_iter().chain(notes(machine)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_cold_start_without_notes_has_nothing_to_tell() {
        let machine = MachineInfo { warm: false, notes: Vec::new(), packages: Vec::new(), ..fixture::machine() };
        assert_eq!(warnings(&machine), Vec::<String>::new());
        assert!(line(&machine).ends_with(", cold in 1.25 s"), "{}", line(&machine));
        assert!(facts(&machine).contains(&("start", "cold, from power-on; ready after 1.25 s".into())));
    }

    #[test]
    fn packages_with_the_same_note_are_one_note() {
        let package =
            |number: usize| PackageUsed { name: format!("p{number}"), ..fixture::machine().packages[1].clone() };
        let with = |note: &str, number| PackageUsed { note: Some(note.into()), ..package(number) };
        let packages = (0..6).map(|number| with("rotated", number)).chain([with("other", 6), package(7)]).collect();
        let machine = MachineInfo { notes: vec!["first".into()], packages, ..fixture::machine() };
        let expected =
            ["first", "p6 1.0 all: other", "p0 1.0 all, p1 1.0 all, p2 1.0 all, p3 1.0 all and 2 more: rotated"];
        assert_eq!(notes(&machine), expected);
    }
}
