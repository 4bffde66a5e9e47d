//! The content of `targets/kind.yaml`: the image of a Kind node, a container that acts as a machine with systemd and
//! kubeadm.
//!
//! The field comments are the reference for that file. The `fetch` crate gets the packages, `node` builds the image,
//! and `boot` makes a cluster of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::node::covers;

/// `targets/kind.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeImage {
    /// Kind's component set. Its main module contains Kind's own files for a node.
    pub set: String,
    /// The folder of these files in that module.
    pub base: String,
    /// Which of these files are programs: paths below the root in which `*` stands for any text.
    pub executable: Vec<String>,
    /// Debian packages of the node's architecture; their dependencies are added.
    pub packages: Vec<String>,
    /// Files of the packages and of Kind that are left out of the image, written like `executable`.
    pub leave_out: Vec<String>,
    /// Components by their folder in the image.
    pub programs: BTreeMap<String, Vec<String>>,
    /// The component whose version is in /kind/version: the version of Kubernetes.
    pub version_of: String,
    /// Names of images that are in /kind/images as `SHORT-NAME.tar`.
    pub images: Vec<String>,
    /// Folders that may be empty.
    pub folders: Vec<String>,
    /// Symbolic links: path without a leading slash to the link's target.
    pub links: BTreeMap<String, String>,
    /// Small files: path without a leading slash to content, in which `{image.NAME}` is the reference of an image.
    pub files: BTreeMap<String, String>,
    /// Environment of the container's first process: "NAME=VALUE".
    pub env: Vec<String>,
    /// The signal that asks that process to exit.
    pub stop_signal: String,
    pub entrypoint: Vec<String>,
}

impl NodeImage {
    /// The components that must be built for the image, without those of its container images.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.programs.values().flatten().map(String::as_str)
    }

    /// Whether a file, given by its path without a leading slash, is left out.
    pub fn leaves_out(&self, path: &str) -> bool {
        self.leave_out.iter().any(|pattern| covers(pattern, path))
    }

    /// Whether a file of Kind is a program.
    pub fn is_executable(&self, path: &str) -> bool {
        self.executable.iter().any(|pattern| covers(pattern, path))
    }
}
