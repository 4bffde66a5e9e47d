//! Collects facts about processors and memory: on this machine, or from what an agent read in a guest.

use std::fs;

use model::{EmulatorThreads, Hardware, InstructionEmulator, Target};
use serde::Deserialize;

/// The pages that qemu-user shows to programs, on hosts with any page size.
/// <https://www.qemu.org/docs/master/user/main.html>
const USER_MODE_PAGE: u64 = 4096;
/// Types of entries of the auxiliary vector: include/uapi/linux/auxvec.h of Linux.
const AT_PAGESZ: u64 = 6;
const AT_HWCAP: u64 = 16;
const AT_HWCAP2: u64 = 26;
/// The lines of /proc/cpuinfo that list extensions, and the character between words; ports of Linux use different ones.
const FLAGS: [(&str, char); 3] = [("flags", ' '), ("features", ' '), ("isa", '_')];
/// The lines with the name of the processor, the most specific first.
const MODELS: [&str; 4] = ["model name", "cpu model", "cpu", "uarch"];
/// Pairs of lines with numbers that identify a processor without a name.
const IDS: [[&str; 2]; 2] = [["cpu implementer", "cpu part"], ["mvendorid", "marchid"]];

/// The texts and values from which the facts follow. Empty: the system does not have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Sources {
    /// The auxiliary vector of a process: type and value of each entry.
    auxv: Vec<(u64, u64)>,
    /// `/proc/cpuinfo`.
    cpuinfo: String,
    /// `/proc/self/maps`.
    maps: String,
    /// `/sys/devices/system/cpu/online`: "0-3,8".
    cpus: String,
    /// `/sys/devices/system/node/online`.
    nodes: String,
}

/// The facts for components that run natively on this machine.
pub(crate) fn native(target: &Target) -> Hardware {
    of_machine(target, &Sources::read())
}

/// The facts for components that the user-mode emulator `name` runs. It shows its own processor, which the harness
/// cannot ask, and the memory layout that it chose.
pub(crate) fn user_mode(target: &Target, name: &str) -> Hardware {
    let host = Sources::read();
    Hardware {
        page_size: Some(USER_MODE_PAGE),
        cpu_model: Some(format!("the default of {name}")),
        cpus: count(&host.cpus),
        numa_nodes: count(&host.nodes),
        // Every thread of a program is a thread of the emulator.
        emulator: Some(InstructionEmulator { name: name.to_owned(), threads: Some(EmulatorThreads::Multi) }),
        processors: Some(target.hardware.clone()),
        ..Hardware::default()
    }
}

/// The facts that the sources of a machine of the target's architecture contain.
pub(crate) fn of_machine(target: &Target, sources: &Sources) -> Hardware {
    let value = |wanted: u64| sources.auxv.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| *value);
    Hardware {
        page_size: value(AT_PAGESZ),
        address_bits: address_bits(&sources.maps),
        cpu_model: cpu_model(&sources.cpuinfo),
        cpu_flags: cpu_flags(&sources.cpuinfo),
        hwcap: value(AT_HWCAP),
        hwcap2: value(AT_HWCAP2),
        cpus: count(&sources.cpus),
        numa_nodes: count(&sources.nodes),
        emulator: None,
        processors: Some(target.hardware.clone()),
    }
}

impl Sources {
    /// Those of this machine.
    fn read() -> Sources {
        let text = |file: &str| fs::read_to_string(file).unwrap_or_default();
        Sources {
            auxv: entries(&fs::read("/proc/self/auxv").unwrap_or_default()),
            cpuinfo: text("/proc/cpuinfo"),
            maps: text("/proc/self/maps"),
            cpus: text("/sys/devices/system/cpu/online"),
            nodes: text("/sys/devices/system/node/online"),
        }
    }
}

/// The entries of this process's auxiliary vector.
fn entries(bytes: &[u8]) -> Vec<(u64, u64)> {
    let (words, _) = bytes.as_chunks::<{ size_of::<usize>() }>();
    let words: Vec<u64> = words.iter().map(|word| usize::from_ne_bytes(*word) as u64).collect();
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().map(|[kind, value]| (*kind, *value)).collect()
}

/// The first value of a line of /proc/cpuinfo with this key, in any case.
fn cpuinfo_value<'a>(cpuinfo: &'a str, wanted: &str) -> Option<&'a str> {
    let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(key, _)| key.trim().eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim());
    values.find(|value| !value.is_empty())
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let name = MODELS.iter().find_map(|key| cpuinfo_value(cpuinfo, key)).map(str::to_owned);
    let id = |keys: &[&str; 2]| {
        let [first, second] = keys.map(|key| Some(format!("{key} {}", cpuinfo_value(cpuinfo, key)?)));
        Some(format!("{}, {}", first?, second?))
    };
    name.or_else(|| IDS.iter().find_map(id))
}

fn cpu_flags(cpuinfo: &str) -> Vec<String> {
    let found = FLAGS.iter().find_map(|(key, between)| Some((cpuinfo_value(cpuinfo, key)?, *between)));
    let (line, between) = found.unwrap_or_default();
    line.split(between).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The kernel puts the stack of a process at the highest addresses.
fn address_bits(maps: &str) -> Option<u8> {
    let stack = maps.lines().find(|line| line.ends_with("[stack]"))?;
    let (_, end) = stack.split_whitespace().next()?.split_once('-')?;
    let last = u64::from_str_radix(end, 16).ok()?.checked_sub(1)?;
    u8::try_from(u64::BITS - last.leading_zeros()).ok()
}

/// The number of entries of a list such as "0-3,8".
fn count(list: &str) -> Option<u32> {
    let size = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let [first, last] = [first, last].map(|number| number.parse::<u32>().ok());
        last?.checked_sub(first?)?.checked_add(1)
    };
    list.trim().split(',').map(size).try_fold(0_u32, |sum, size| sum.checked_add(size?))
}

#[cfg(test)]
pub(crate) mod tests;
