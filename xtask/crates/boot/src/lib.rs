//! Boots a control plane for each profile: real etcd and kube-apiserver, TLS everywhere, loopback only.
//!
//! The result is a [`model::Cluster`] for the suite and a guard that takes it down. Other crates decide what to check
//! on the cluster and from which sources to build its components.

mod agent;
mod auxiliary;
mod booted;
mod component;
mod component_names;
mod control_plane;
mod execution;
pub mod existing;
mod flags;
#[doc(hidden)]
pub mod fuzzing;
mod hardware;
mod host;
pub mod kind;
mod kubeconfig;
mod node;
mod pki;
mod place;
mod plan;
mod process;
pub mod qemu;
mod snapshot;
mod starts;

pub use agent::INIT;
pub use booted::{Booted, HostForward, Saved};
pub use component_names::{CONTROLLER_MANAGER, SCHEDULER};
pub use execution::{command, user_emulator};
pub use place::NodeRequest;
pub use process::{Ports, Starting, script, up, up_early, up_mixed, up_on};

/// Which control planes to start.
#[derive(Clone, Debug)]
pub struct Topology {
    pub profiles: Vec<model::Profile>,
    /// The node that turns one of them into a complete cluster, in a VM.
    pub node: Option<NodeRequest>,
}
