//! The processors and the memory under the components of a run, as facts of the running system.

use serde::{Deserialize, Serialize};

use crate::target::{Extension, Processors};

/// Facts about the system that the components see. None or empty: unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hardware {
    /// Bytes of a memory page.
    pub page_size: Option<u64>,
    /// Bits of the highest address of a process, as the kernel lays processes out by default.
    pub address_bits: Option<u8>,
    pub cpu_model: Option<String>,
    /// Names of instruction-set extensions in `/proc/cpuinfo`.
    pub cpu_flags: Vec<String>,
    /// `AT_HWCAP` of the auxiliary vector: the bits with which the kernel announces extensions to programs.
    pub hwcap: Option<u64>,
    /// `AT_HWCAP2`.
    pub hwcap2: Option<u64>,
    /// Online processors.
    pub cpus: Option<u32>,
    pub numa_nodes: Option<u32>,
    /// None: processors of the machine executed the instructions, directly or in a virtual machine.
    pub emulator: Option<InstructionEmulator>,
    /// The architecture's processors according to its target file, so that the record of a run suffices for reports.
    pub processors: Option<Processors>,
}

/// The program that executed the instructions of the components.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstructionEmulator {
    /// "QEMU 11.1.3".
    pub name: String,
    pub threads: Option<EmulatorThreads>,
}

/// How an emulator distributes its work over threads of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EmulatorThreads {
    /// One thread executes all emulated processors in turn.
    Single,
    /// Each emulated processor, or each thread of an emulated program, has its own thread.
    Multi,
}

impl Hardware {
    /// Whether programs may use the extension. None: unknown.
    pub fn has(&self, extension: &Extension) -> Option<bool> {
        let bit = |word: Option<u64>, bit: u8| Some(word?.checked_shr(u32::from(bit))? & 1 == 1);
        match (&extension.flag, extension.hwcap, extension.hwcap2) {
            (Some(_), ..) if self.cpu_flags.is_empty() => None,
            (Some(flag), ..) => Some(self.cpu_flags.contains(flag)),
            (None, Some(number), _) => bit(self.hwcap, number),
            (None, None, number) => bit(self.hwcap2, number?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(flag: Option<&str>, hwcap: Option<u8>, hwcap2: Option<u8>) -> Extension {
        Extension { name: "x".into(), flag: flag.map(str::to_owned), hwcap, hwcap2, reason: "r".into() }
    }

    #[test]
    fn extension_is_found_by_flag_or_bit() {
        let hardware = Hardware {
            cpu_flags: vec!["fast".into(), "wide".into()],
            hwcap: Some(0b100),
            hwcap2: Some(1 << 63),
            ..Hardware::default()
        };
        for (extension, expected) in [
            (extension(Some("wide"), None, None), Some(true)),
            (extension(Some("wid"), None, None), Some(false)),
            (extension(None, Some(2), None), Some(true)),
            (extension(None, Some(1), None), Some(false)),
            (extension(None, None, Some(63)), Some(true)),
            (extension(None, None, Some(62)), Some(false)),
            (extension(None, Some(64), None), None),
            (extension(None, None, None), None),
        ] {
            assert_eq!(hardware.has(&extension), expected, "{extension:?}");
            assert_eq!(Hardware::default().has(&extension), None, "{extension:?}");
        }
    }
}
