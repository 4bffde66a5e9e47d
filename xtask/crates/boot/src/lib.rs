//! Boots a control plane for each profile: real etcd and kube-apiserver, TLS everywhere, loopback only.
//!
//! The result is a [`model::Cluster`] for the suite and a guard that takes it down. What is checked on the cluster,
//! and what its components are built from, is decided elsewhere.

mod agent;
mod beside;
mod booted;
mod component;
mod execution;
pub mod existing;
mod flags;
#[doc(hidden)]
pub mod fuzzing;
mod host;
pub mod kind;
mod kubeconfig;
mod members;
mod node;
mod pki;
mod plan;
mod process;
pub mod qemu;

pub use agent::INIT;
pub use booted::{Booted, Saved, WayOut};
pub use execution::user_emulator;
pub use members::CONTROLLER_MANAGER;
pub use node::NodeRequest;
pub use process::{Ports, script, up, up_on};

/// Which control planes to start.
#[derive(Clone, Debug)]
pub struct Topology {
    pub profiles: Vec<model::Profile>,
    /// What makes one of them a whole cluster, in a VM.
    pub node: Option<NodeRequest>,
}
