//! System VMs as values: what a target file says about its machine, and the files a VM is started from.
//!
//! The field comments are the reference for `machine:` in `targets/<name>.yaml`. The files come from the fetch stage and
//! go to the boot stage.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `machine:` of a target file: the emulated machine and the Debian packages it is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Debian's name of the architecture.
    pub debian: String,
    /// Debian suites of the guest's packages; of a package in several, the one in the first suite is taken.
    pub suites: Vec<String>,
    /// Debian suites of a container that is a node. One that shares this machine's kernel may have to be older than a guest:
    /// systemd since Debian 13 does not start where control groups are those of version 1.
    pub container_suites: Vec<String>,
    /// Debian suites of QEMU and its libraries where this architecture is the host: QEMU from the last one that has it,
    /// what it depends on from the first that is new enough.
    pub host_suites: Vec<String>,
    /// The kernel's package; metapackages are followed to the image and its modules.
    pub kernel: String,
    /// Kernel modules that no other one pulls in, in load order, as `modinfo` names them.
    pub modules: Vec<String>,
    pub qemu: Qemu,
    /// Guest memory.
    pub memory: Memory,
    /// Virtual processors.
    pub cpus: u8,
    /// Whether a guest comes up healthy from a memory snapshot; where it does not, every boot is cold.
    #[serde(default = "yes")]
    pub warm: bool,
    /// What QEMU needs told about a machine whose processors' timers it does not save.
    #[serde(default)]
    pub lost_timers: Option<LostTimers>,
    /// The kernel's console device, and what the kernel is told beyond it.
    pub console: String,
    /// Used instead of the measured slowness when set.
    #[serde(default)]
    pub factor: Option<u32>,
}

/// A machine that comes back from a memory snapshot with timers that nothing will ever start again, and without the
/// interrupts that were pending. It is saved at a moment when none are, and the guest starts the timers anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LostTimers {
    /// Registers of QEMU's `info registers` that tell of each processor that it idles and nothing is pending.
    pub idle: BTreeMap<String, MaskedValue>,
}

/// A register has these bits, of those in the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskedValue {
    pub mask: u64,
    pub value: u64,
}

fn yes() -> bool {
    true
}

/// How QEMU is called for a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qemu {
    /// `qemu-system-*`.
    pub program: String,
    /// Debian packages for the host that hold the program and its firmware.
    pub packages: Vec<String>,
    /// `-machine`.
    pub machine: String,
    /// `-cpu` under emulation.
    pub cpu: String,
    /// Further arguments, as they are.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// `-bios`: a path inside one of the packages, where the built-in choice does not do.
    #[serde(default)]
    pub firmware: Option<String>,
}

/// MiB of guest memory: `base` for the guest itself and its files, `profile` for each control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    pub base: u32,
    pub profile: u32,
}

/// Everything a VM is started from, verified and unpacked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineFiles {
    pub emulator: SystemEmulator,
    /// As `-kernel` takes it.
    pub kernel: PathBuf,
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// Uncompressed `.ko` files in load order, dependencies before what needs them.
    pub modules: Vec<PathBuf>,
    /// Statically linked, for the guest's root shell.
    pub busybox: PathBuf,
    /// The unpacked packages of a node, with a merged /usr and no more than they hold: no /lib, no empty folders. None
    /// where none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<PathBuf>,
    /// Hexadecimal SHA-256 over the digests of everything above; part of the key of a memory snapshot.
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
    /// `debian`: the fetched packages; `system`: the one on PATH.
    pub origin: String,
}

/// A package that went into a VM.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PackageUsed {
    pub name: String,
    pub version: String,
    /// Debian's name, or `all`.
    pub arch: String,
    /// Of the `.deb` file, hexadecimal.
    pub sha256: String,
    /// Why this one was taken although the lock names another.
    #[serde(default)]
    pub note: Option<String>,
}

/// A VM that runs, for the record of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// "QEMU 11.1.3".
    pub emulator: String,
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// Why this accelerator and no other.
    pub reason: String,
    /// As `uname -r` prints it.
    pub kernel: String,
    pub cpus: u8,
    pub memory_mib: u32,
    /// Restored from a memory snapshot; keys and certificates are then those of the run that made it.
    pub warm: bool,
    /// Seconds from QEMU's start to the first request that was answered after the health gate.
    pub seconds: f64,
    /// What a reader should know: a snapshot that was dropped, a package that had to be resolved again.
    pub notes: Vec<String>,
    pub packages: Vec<PackageUsed>,
}
