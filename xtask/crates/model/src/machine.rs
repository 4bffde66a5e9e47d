//! System VMs as values: the machine of a target file, and the files from which a VM is started.
//!
//! The field comments are the reference for `machine:` in `targets/architectures/<name>.yaml`. The files come from the fetch stage
//! and go to the boot stage.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `machine:` of a target file: the emulated machine and the Debian packages that it is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Debian's name of the architecture.
    pub debian: String,
    /// Debian suites of the guest's packages; a package that is in several suites is taken from the first one.
    pub suites: Vec<String>,
    /// Debian suites of a container that is a node. A container that shares the host's kernel may need older packages
    /// than a guest: systemd since Debian 13 does not start on control groups version 1.
    pub container_suites: Vec<String>,
    /// Debian suites of QEMU and its libraries for hosts of this architecture: QEMU comes from the last suite that has
    /// it, each dependency from the first suite whose version is new enough.
    pub host_suites: Vec<String>,
    /// The kernel's package; metapackages are followed to the image and its modules.
    pub kernel: String,
    /// Kernel modules that are not a dependency of another one, in load order, as `modinfo` names them.
    pub modules: Vec<String>,
    pub qemu: Qemu,
    /// Guest memory.
    pub memory: Memory,
    /// Virtual processors.
    pub cpus: u8,
    /// Whether a guest is healthy after a restore from a memory snapshot; if it is not, every boot is cold.
    #[serde(default = "yes")]
    pub warm: bool,
    /// Set if QEMU does not save the timers of the machine's processors.
    pub lost_timers: Option<LostTimers>,
    /// The kernel's console device, and further kernel arguments.
    pub console: String,
    /// Used instead of the measured slowdown when set.
    pub factor: Option<u32>,
}

/// A machine whose restored memory snapshot lacks pending interrupts, and whose timers would never fire again. It is
/// saved at a moment without pending interrupts, and the guest restarts the timers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostTimers {
    /// Registers in QEMU's `info registers` whose values show that a processor is idle and nothing is pending.
    pub idle: BTreeMap<String, MaskedValue>,
}

/// Of the bits in the mask, the register has exactly these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskedValue {
    pub mask: u64,
    pub value: u64,
}

fn yes() -> bool {
    true
}

/// QEMU's command line for a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qemu {
    /// `qemu-system-*`.
    pub program: String,
    /// Debian packages for the host that hold the program and its firmware.
    pub packages: Vec<String>,
    /// `-machine`.
    pub machine: String,
    /// The bus of the virtio devices, as it is spelled in QEMU's names of them: `pci` for `virtio-net-pci`.
    pub virtio: String,
    /// `-cpu` under emulation.
    pub cpu: String,
    /// Further arguments, unchanged.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// `-bios`: a path inside one of the packages, if the built-in default does not work.
    pub firmware: Option<String>,
}

/// MiB of guest memory: `base` for the guest itself and its files, `profile` for each control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub base: u32,
    pub profile: u32,
}

/// All files from which a VM is started, verified and unpacked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineFiles {
    pub emulator: SystemEmulator,
    /// In the form that `-kernel` takes.
    pub kernel: PathBuf,
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// Uncompressed `.ko` files in load order: dependencies come first.
    pub modules: Vec<PathBuf>,
    /// Statically linked, for the guest's root shell.
    pub busybox: PathBuf,
    /// The unpacked packages of a node, with a merged /usr and without additions: no /lib, no empty folders. None if no
    /// node was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<PathBuf>,
    /// Hexadecimal SHA-256 over the digests of all files above; part of the key of a memory snapshot.
    pub digest: String,
    pub packages: Vec<PackageUsed>,
}

/// A `qemu-system-*` that can be started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemEmulator {
    /// Program and leading arguments: the closure's own dynamic loader, library path, QEMU, `-L` folders, `-bios`.
    pub command: Vec<String>,
    /// "11.1.3".
    pub version: String,
    /// `debian`: the fetched packages; `system`: the program on PATH.
    pub origin: String,
}

/// A package that was used for a VM.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PackageUsed {
    pub name: String,
    pub version: String,
    /// Debian's name of the architecture, or `all`.
    pub arch: String,
    /// SHA-256 of the `.deb` file, hexadecimal.
    pub sha256: String,
    /// Why this version was taken although the lock names another one.
    pub note: Option<String>,
}

/// A running VM, for the record of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// "QEMU 11.1.3".
    pub emulator: String,
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// Why this accelerator was chosen.
    pub reason: String,
    /// As `uname -r` prints it.
    pub kernel: String,
    pub cpus: u8,
    pub memory_mib: u32,
    /// Restored from a memory snapshot; keys and certificates are then those of the run that made it.
    pub warm: bool,
    /// Seconds from QEMU's start to the first answered request after the health gate.
    pub seconds: f64,
    /// Messages for the reader: a dropped snapshot, a package that had to be resolved again.
    pub notes: Vec<String>,
    pub packages: Vec<PackageUsed>,
}
