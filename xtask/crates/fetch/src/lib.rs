//! Verified downloads and unpacked packages in one cache: the files from which a VM is started. No other crate
//! downloads packages.
//!
//! The public surface is [`machine`], and [`plan`] for a dry run. The packages are data: `machine:` in a target file
//! lists those of a guest, `targets/node.yaml` the additional ones of a node, and `targets/architectures/<arch>.lock` the exact
//! files. A package is trusted through the lock, which was made from the archive's signed index; if the lock does not
//! cover it, it is trusted through that index directly. Nothing here starts a VM.

mod agent;
mod archive;
mod bundle;
pub mod cache;
mod control;
mod deb;
mod debian_go;
mod digest;
mod elf;
mod emulator;
#[doc(hidden)]
pub mod fuzzing;
mod go;
mod guest;
mod http;
mod listed;
mod lock;
mod machine;
mod mirror;
mod packages;
mod piece;
mod plan;
mod reach;
mod record;
mod release;
mod resolve;
mod sets;
#[cfg(test)]
mod testing;
mod toolchain;
mod tree;
mod update;
mod verified;
mod version;

use std::path::PathBuf;

use model::{Node, NodeImage};

pub use agent::{agent, agent_unpacks};
pub use bundle::{bundle, import};
pub use emulator::system as system_emulator;
pub use listed::{Listed, Order, listed};
pub use machine::{Root, container, machine, machines};
pub use mirror::public_mirror;
pub use plan::{Missing, Plan, plan};
pub use reach::{Reached, reach};
pub use toolchain::{Go, GoPlan, go_plan, go_toolchain};
pub use update::update_lock;
pub use verified::{Verify, signed_text};

/// Where to search, and what is permitted.
#[derive(Clone, Debug)]
pub struct Options {
    /// Everything is stored below its folder `debian/`.
    pub cache: PathBuf,
    /// Holds `<arch>.lock` and the keys of the archive.
    pub targets_dir: PathBuf,
    /// Download nothing: fail with a list of the missing files.
    pub offline: bool,
    /// Take the packages that the lock names, or fail.
    pub locked: bool,
    /// The root of a Debian mirror, instead of the one in the host's apt sources.
    pub mirror: Option<String>,
    pub qemu: QemuChoice,
    /// The additions that make guests nodes; None for plain guests.
    pub node: Option<Node>,
    /// Verifies a signed index.
    pub verify: Verify,
    /// The packages of containers that are nodes, for locks, bundles and plans; None without such containers.
    pub container: Option<NodeImage>,
}

/// Where QEMU comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QemuChoice {
    /// Debian's packages, downloaded.
    Debian,
    /// The program on PATH.
    System,
}

impl Options {
    fn debian(&self) -> PathBuf {
        self.cache.join("debian")
    }

    fn keys(&self) -> PathBuf {
        self.targets_dir.join("debian-archive-keys.asc")
    }
}
