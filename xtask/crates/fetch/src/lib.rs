//! Verified downloads and unpacked packages in one cache: what a VM is started from. Nothing else touches the network.
//!
//! The public surface is [`machine`], and [`plan`] for a dry run. Which packages there are is data: `machine:` in a target
//! file says which are needed, `targets/node.yaml` which more for a node, `targets/<arch>.lock` which files those are. A
//! package is trusted through the lock, which was made from the archive's signed index; or, when the lock does not do,
//! through that index itself. Nothing here starts a VM.

mod agent;
mod archive;
mod bundle;
pub mod cache;
mod control;
mod deb;
mod digest;
mod elf;
mod emulator;
#[doc(hidden)]
pub mod fuzzing;
mod go;
mod guest;
mod http;
mod lock;
mod machine;
mod mirror;
mod packages;
mod plan;
mod reach;
mod record;
mod release;
mod resolve;
mod sets;
#[cfg(test)]
mod testing;
mod tree;
mod update;
mod verified;
mod version;

use std::path::PathBuf;

use model::{Node, NodeImage};

pub use agent::{agent, agent_unpacks};
pub use bundle::{bundle, import};
pub use emulator::system as system_emulator;
pub use go::{go_pinned, go_toolchain};
pub use machine::{Root, container, machine, machines};
pub use plan::{Missing, Plan, plan};
pub use reach::{Reached, reach};
pub use update::update_lock;
pub use verified::{Verify, signed_text};

/// Where to look, and what may be done.
#[derive(Clone, Debug)]
pub struct Options {
    /// Everything goes below `debian/` in it.
    pub cache: PathBuf,
    /// Holds `<arch>.lock` and the keys of the archive.
    pub targets_dir: PathBuf,
    /// Download nothing: fail with the list of what is missing.
    pub offline: bool,
    /// Take what the lock names or fail.
    pub locked: bool,
    /// The root of a Debian mirror, instead of the one in the host's apt sources.
    pub mirror: Option<String>,
    pub qemu: QemuChoice,
    /// What guests need beside to be nodes; none where they are not to be.
    pub node: Option<Node>,
    /// Verifies a signed index.
    pub verify: Verify,
    /// What containers need to be nodes, for locks, bundles and plans; none where they are not to be.
    pub container: Option<NodeImage>,
}

/// Whose QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QemuChoice {
    /// Debian's packages, fetched.
    Debian,
    /// The one on PATH.
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
