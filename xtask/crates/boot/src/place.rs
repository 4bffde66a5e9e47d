//! Where components run: on this machine, in a guest or in a container, with the paths and ports of that place.
//!
//! The providers (`process`, `qemu`, `kind`) create a [`Place`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use model::{Artifact, Artifacts, ClusterInfo, Node, NodeInfo};

use crate::host::Host;

pub(crate) const SLOW: f64 = ClusterInfo::SLOW;
/// The address of a guest in QEMU's user network.
pub(crate) const ADDRESS: &str = "10.0.2.15";
/// The guest's address for this machine, as far as the guest may reach it.
pub(crate) const OUTSIDE: &str = "10.0.2.100";

/// Where components run.
pub(crate) struct Place<'a> {
    pub(crate) host: Arc<dyn Host>,
    /// At least 1; every deadline is multiplied by it.
    pub(crate) factor: f64,
    /// The address on which servers listen in that place.
    pub(crate) listen: &'static str,
    pub(crate) root: Root,
    /// Returns the port of a listener by its name.
    pub(crate) port_mappings: &'a (dyn Fn(&str) -> anyhow::Result<PortMapping> + Sync),
    /// Returns the program and leading arguments that run a component in that place.
    pub(crate) command: &'a (dyn Fn(&Artifact) -> (PathBuf, Vec<String>) + Sync),
    /// How many components start at the same time: a start is pure CPU work, and too many in parallel only make each
    /// other miss their deadlines.
    pub(crate) width: usize,
}

/// The run's private folder: its path on this machine, and the path that the components see.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) host_path: PathBuf,
    pub(crate) guest_path: PathBuf,
}

/// A port as the component sees it (`inside`), and as this machine reaches it (`outside`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortMapping {
    pub(crate) inside: u16,
    pub(crate) outside: u16,
}

/// A node and its disk.
#[derive(Clone, Debug)]
pub struct NodeRequest {
    pub node: Node,
    pub disk: PathBuf,
    /// Key of the disk's content.
    pub key: String,
    /// Image names to references.
    pub images: BTreeMap<String, String>,
}

impl NodeRequest {
    pub(crate) fn info(&self) -> NodeInfo {
        NodeInfo { profile: self.node.profile.clone(), images: self.images.clone() }
    }
}

impl Root {
    /// The path under which the components see a path of this machine.
    pub(crate) fn in_guest(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.host_path).map_or_else(|_| path.to_owned(), |rest| self.guest_path.join(rest))
    }
}

pub(crate) fn artifact<'a>(artifacts: &'a Artifacts, component: &str) -> anyhow::Result<&'a Artifact> {
    match artifacts.by_component.get(component) {
        Some(artifact) => Ok(artifact),
        None => bail!("{component} was not built: build it with `cargo xtask build --component {component}`"),
    }
}
