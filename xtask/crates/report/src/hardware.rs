//! Describes the hardware of a run, and what a run on it could not show.
//!
//! Everything follows from the `Booted` event alone, so the reports of an old run can be written again.

use model::{EmulatorThreads, Hardware, InstructionEmulator, Processors};

use crate::view::View;

/// The heading of [`not_shown`].
pub const NOT_SHOWN: &str = "What this run could not show";

/// What the run could not show, one entry each: the subject, a colon, and the reason. Empty if the run did not boot.
pub fn not_shown(view: &View<'_>) -> Vec<String> {
    match (&view.booted, view.hardware()) {
        (None, _) => Vec::new(),
        (Some(_), None) => vec![
            "Hardware: the record of the run contains neither page size nor extensions nor emulator, so the limits that \
             follow from them are unknown."
                .to_owned(),
        ],
        (Some(_), Some(hardware)) => limits(hardware),
    }
}

fn limits(hardware: &Hardware) -> Vec<String> {
    let mut limits = Vec::new();
    limits.extend(memory_ordering(hardware));
    match &hardware.processors {
        Some(processors) => {
            limits.extend(extensions(hardware, processors));
            limits.extend(page_sizes(hardware, processors));
        }
        None => limits.push(
            "Other processors: the record of the run does not describe the processors of the architecture.".to_owned(),
        ),
    }
    limits.extend(hardware.emulator.as_ref().map(silicon));
    limits
}

fn memory_ordering(hardware: &Hardware) -> Option<String> {
    let is_weak = hardware.processors.as_ref().is_some_and(|processors| processors.weak_memory);
    match &hardware.emulator {
        Some(InstructionEmulator { name, threads: Some(EmulatorThreads::Single) }) => Some(format!(
            "Memory ordering: {name} executes all processors in one thread, so no two of them access memory at the same \
             time."
        )),
        Some(InstructionEmulator { name, .. }) if is_weak => Some(format!(
            "Weak memory ordering: {name} reorders memory accesses at most as the host's processors do. Reorderings that \
             only processors of this architecture make did not happen, so a missing barrier stays unnoticed."
        )),
        _ if hardware.cpus == Some(1) => Some(
            "Memory ordering: the system had one processor, so no two processors accessed memory at the same time."
                .to_owned(),
        ),
        _ => None,
    }
}

fn extensions(hardware: &Hardware, processors: &Processors) -> Vec<String> {
    let with = |answer: Option<bool>| processors.extensions.iter().filter(move |one| hardware.has(one) == answer);
    let lacked = with(Some(false))
        .map(|one| format!("Extension {}: the processor of the run lacked it. {}", one.name, one.reason));
    let unknown: Vec<&str> = with(None).map(|one| one.name.as_str()).collect();
    let unknown = (!unknown.is_empty()).then(|| {
        format!(
            "Unknown extensions: the record of the run does not show whether its processor had {}.",
            listed(&unknown, "or")
        )
    });
    lacked.chain(unknown).collect()
}

fn page_sizes(hardware: &Hardware, processors: &Processors) -> Option<String> {
    let others: Vec<String> = processors
        .page_sizes
        .iter()
        .filter(|size| Some(**size) != hardware.page_size)
        .map(|size| bytes(*size))
        .collect();
    if others.is_empty() {
        return None;
    }
    let others = listed(&others, "and");
    Some(match hardware.page_size {
        Some(size) => format!(
            "Other page sizes: the run had pages of {}, and kernels of this architecture can also have pages of {others}.",
            bytes(size)
        ),
        None => format!(
            "Page sizes: the page size of the run is unknown, and kernels of this architecture can have pages of {others}."
        ),
    })
}

fn silicon(emulator: &InstructionEmulator) -> String {
    format!(
        "Silicon: {} executed all instructions, and no processor of this architecture did. So defects and timing of real \
         processors stay untested.",
        emulator.name
    )
}

/// Name and value of each known fact.
pub fn facts(hardware: &Hardware) -> Vec<(&'static str, String)> {
    let Hardware { page_size, address_bits, cpu_model, cpus, numa_nodes, emulator, .. } = hardware;
    let rows = [
        ("processor", cpu_model.clone()),
        ("processors online", cpus.map(|number| number.to_string())),
        ("NUMA nodes", numa_nodes.map(|number| number.to_string())),
        ("page size", page_size.map(bytes)),
        ("address bits", address_bits.map(|bits| bits.to_string())),
        ("instructions executed by", emulator.as_ref().map(executed_by)),
    ];
    rows.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn executed_by(emulator: &InstructionEmulator) -> String {
    let threads = match emulator.threads {
        Some(EmulatorThreads::Single) => ", all in one thread",
        Some(EmulatorThreads::Multi) => ", in several threads",
        None => "",
    };
    format!("{}{threads}", emulator.name)
}

/// A size as people write it: 4 KiB.
fn bytes(size: u64) -> String {
    if size.is_multiple_of(1024) { format!("{} KiB", size / 1024) } else { format!("{size} bytes") }
}

/// "a, b and c".
fn listed(words: &[impl AsRef<str>], last: &str) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.split_last() {
        Some((end, [])) => (*end).to_owned(),
        Some((end, first)) => format!("{} {last} {end}", first.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests;
