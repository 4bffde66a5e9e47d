//! How many architectures run at the same time: as many as processors and memory of the machine allow.
//!
//! Pure functions of the requested runs and the machine. Too many runs at once are not only slow: they miss deadlines.

use model::Target;

/// Processors that a run keeps busy: a virtual machine has two, and a control plane with its store uses about as many.
const PROCESSORS: usize = 2;
/// MiB of the harness itself for one run: clients and recorded histories.
const HARNESS: u64 = 256;
/// MiB of a native control plane with its store; measured, with some reserve.
const CONTROL_PLANE: u64 = 448;
/// The same under qemu-user, which keeps translated code in memory.
const EMULATED_CONTROL_PLANE: u64 = 768;
/// MiB of QEMU in addition to the guest's memory.
const SYSTEM_EMULATOR: u64 = 256;

/// The resources of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    pub processors: usize,
    /// MiB; `None` if it is unknown.
    pub memory: Option<u64>,
}

/// How the components run, as far as this affects memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Native,
    Emulated,
    /// In the virtual machine that the target describes.
    Machine,
}

impl Host {
    pub fn this() -> Host {
        Host { processors: sys::host::processors(), memory: sys::host::available_memory() }
    }
}

/// MiB that a run with this many apiservers takes.
pub fn memory(target: &Target, way: Way, apiservers: usize) -> u64 {
    let apiservers = apiservers as u64;
    let components = match (way, &target.machine) {
        (Way::Machine, Some(machine)) => {
            let memory = machine.memory;
            SYSTEM_EMULATOR + u64::from(memory.base) + apiservers * u64::from(memory.profile)
        }
        (Way::Emulated | Way::Machine, _) => apiservers * EMULATED_CONTROL_PLANE,
        (Way::Native, _) => apiservers * CONTROL_PLANE,
    };
    HARNESS + components
}

/// How many of these runs (MiB each) may run at the same time, in any combination; at least one.
pub fn side_by_side(host: Host, runs: &[u64]) -> usize {
    let mut largest_first = runs.to_vec();
    largest_first.sort_unstable_by(|a, b| b.cmp(a));
    let mut sum = 0u64;
    let fitting = largest_first.iter().take_while(|memory| {
        sum = sum.saturating_add(**memory);
        host.memory.is_none_or(|available| sum <= available)
    });
    fitting.count().min(host.processors / PROCESSORS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_and_memory_limit_parallel_runs() {
        for (processors, memory, runs, expected) in [
            (2, Some(22_000), &[5_000, 5_000][..], 1),
            (3, Some(22_000), &[5_000, 5_000], 1),
            (4, Some(22_000), &[5_000, 5_000], 2),
            (64, Some(22_000), &[5_000; 5], 4),
            (64, Some(25_000), &[5_000; 5], 5),
            (64, Some(100_000), &[5_000; 5], 5),
            (64, None, &[5_000; 5], 5),
            // Any two of these must fit, also the two largest.
            (64, Some(9_000), &[1_000, 8_000, 2_000], 1),
            (64, Some(10_000), &[1_000, 8_000, 2_000], 2),
            // Runs that do not fit at all still run, one at a time.
            (64, Some(100), &[5_000, 5_000], 1),
            (1, None, &[5_000, 5_000], 1),
            (64, Some(u64::MAX), &[u64::MAX, u64::MAX], 2),
        ] {
            let host = Host { processors, memory };
            assert_eq!(side_by_side(host, runs), expected, "{host:?} {runs:?}");
        }
    }

    #[test]
    fn memory_grows_with_apiservers_and_follows_the_target_file() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../targets");
        let catalogue = targets::Catalogue::load(&folder).unwrap();
        let target = catalogue.target("riscv64").unwrap();
        let machine = target.machine.as_ref().unwrap().memory;
        for way in [Way::Native, Way::Emulated, Way::Machine] {
            assert!(memory(target, way, 9) > memory(target, way, 1), "{way:?}");
        }
        assert!(memory(target, Way::Emulated, 1) > memory(target, Way::Native, 1));
        let one_more = memory(target, Way::Machine, 2) - memory(target, Way::Machine, 1);
        assert_eq!(one_more, u64::from(machine.profile));
        let without = Target { machine: None, ..target.clone() };
        assert_eq!(memory(&without, Way::Machine, 3), memory(&without, Way::Emulated, 3));
    }
}
