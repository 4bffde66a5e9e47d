//! Describes the system VM of a run: its properties, its start, and notes for the reader.
//!
//! Only `run.json` has the list of its packages.

use std::collections::BTreeMap;

use model::{MachineInfo, PackageUsed};

use crate::text::duration;

/// The consequence of `warm` for every check.
const WARM: &str = "restored from a memory snapshot: keys and certificates come from the run that created it";
/// The number of packages that a note names; it counts the rest.
const NAMED: usize = 4;

/// Name and value of each fact.
pub fn facts(machine: &MachineInfo) -> Vec<(&'static str, String)> {
    let MachineInfo { emulator, accelerator, reason, kernel, cpus, memory_mib, packages, .. } = machine;
    let start = if machine.warm { format!("warm, {WARM}") } else { "cold, from power-on".to_owned() };
    vec![
        ("emulator", emulator.clone()),
        ("accelerator", format!("{accelerator}: {reason}")),
        ("guest", format!("Linux {kernel}, {cpus} processors, {memory_mib} MiB")),
        ("start", format!("{start}; ready after {}", duration(machine.seconds))),
        ("packages", format!("{}, listed in run.json", packages.len())),
    ]
}

/// The facts in one line.
pub fn line(machine: &MachineInfo) -> String {
    let MachineInfo { emulator, accelerator, reason, kernel, cpus, memory_mib, .. } = machine;
    let start = if machine.warm { "warm" } else { "cold" };
    let time = duration(machine.seconds);
    format!(
        "{emulator}, {accelerator} ({reason}), Linux {kernel}, {cpus} processors, {memory_mib} MiB, {start} in {time}"
    )
}

/// Everything unusual, one line each.
pub fn notes(machine: &MachineInfo) -> Vec<String> {
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

/// The notes, and a warning if the keys are older than the run. For readers who read nothing else.
pub fn warnings(machine: &MachineInfo) -> Vec<String> {
    machine.warm.then(|| WARM.to_owned()).into_iter().chain(notes(machine)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn cold_start_without_notes_has_no_warnings() {
        let machine = MachineInfo { warm: false, notes: Vec::new(), packages: Vec::new(), ..fixture::machine() };
        assert_eq!(warnings(&machine), Vec::<String>::new());
        assert!(line(&machine).ends_with(", cold in 1.25 s"), "{}", line(&machine));
        assert!(facts(&machine).contains(&("start", "cold, from power-on; ready after 1.25 s".into())));
    }

    #[test]
    fn packages_with_the_same_note_share_one_line() {
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
