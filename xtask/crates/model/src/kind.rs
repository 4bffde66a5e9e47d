//! What `targets/kind.yaml` says: the image of a node of Kind, a container that is a machine with systemd and kubeadm.
//!
//! The field comments are the reference for that file. Where the packages come from is in the `fetch` crate, how the image
//! is put together in `node`, how a cluster is made of it in `boot`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::node::covers;

/// `targets/kind.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeImage {
    /// The component set of Kind, whose main module has its own files for a node.
    pub set: String,
    /// The folder of these files in that module.
    pub base: String,
    /// Which of them are programs: paths below the root in which `*` stands for any text.
    pub executable: Vec<String>,
    /// Debian packages of the node's architecture; what they depend on comes with them.
    pub packages: Vec<String>,
    /// Files of the packages and of Kind that are not in the image, written like `executable`.
    pub leave_out: Vec<String>,
    /// Components by the folder that they are in.
    pub programs: BTreeMap<String, Vec<String>>,
    /// The component whose version is in /kind/version: that of Kubernetes.
    pub version_of: String,
    /// Names of images, in /kind/images as `SHORT-NAME.tar`.
    pub images: Vec<String>,
    /// Folders in which there may be nothing.
    pub folders: Vec<String>,
    /// Symbolic links: path without a slash in front to what it points to.
    pub links: BTreeMap<String, String>,
    /// Small files: path without a slash in front to content, in which `{image.NAME}` is the reference of an image.
    pub files: BTreeMap<String, String>,
    /// Environment of the container's first process: "NAME=VALUE".
    pub env: Vec<String>,
    /// What asks that process to end.
    pub stop_signal: String,
    pub entrypoint: Vec<String>,
}

impl NodeImage {
    /// The components that it needs built, without those of its images.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.programs.values().flatten().map(String::as_str)
    }

    /// Whether a file stays out, by its path without a slash in front.
    pub fn leaves_out(&self, path: &str) -> bool {
        self.leave_out.iter().any(|pattern| covers(pattern, path))
    }

    /// Whether a file of Kind is a program.
    pub fn is_executable(&self, path: &str) -> bool {
        self.executable.iter().any(|pattern| covers(pattern, path))
    }
}
