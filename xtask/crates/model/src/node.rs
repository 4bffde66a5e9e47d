//! The content of `targets/node.yaml`: it makes a guest a node with containers, and its control plane a whole cluster.
//!
//! The field comments are the reference for that file. The `fetch` crate gets the packages and modules, `node` makes
//! the disk, and `boot` starts the processes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `targets/node.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Debian packages of the guest's architecture; their dependencies are added.
    pub packages: Vec<String>,
    /// Files of the packages that are not unpacked: paths below the root in which `*` stands for any text, slashes
    /// included.
    pub leave_out: Vec<String>,
    /// Kernel modules in addition to those of the machine, in load order, as `modinfo` names them.
    pub modules: Vec<String>,
    /// Modules that a kernel may lack. They are loaded before `modules`.
    pub optional_modules: Vec<String>,
    pub disk: NodeDisk,
    /// The profile whose control plane becomes the cluster.
    pub profile: String,
    /// MiB of guest memory in addition to that of its control planes.
    pub memory: u32,
    /// kube-apiserver flags in addition to those of the profile; an empty value removes a flag. The values here, in
    /// `files`, in `objects` and in the processes' `flags` may contain placeholders: `{address}` of the node, `{pki}`
    /// (the folder with the run's certificates), `{port.NAME}` of a process, `{image.NAME}` (the reference of an
    /// image), and `{run}` as in a profile.
    pub apiserver: BTreeMap<String, String>,
    pub identities: Vec<Identity>,
    /// Files written below `{run}` before the start, by name.
    pub files: BTreeMap<String, String>,
    /// Shell commands that run once on the node, before any process; the first one that fails ends the boot.
    pub prepare: String,
    /// Listed in start order.
    pub processes: Vec<NodeProcess>,
    /// Created when all processes are ready.
    pub objects: Vec<NodeObject>,
    /// Conditions that must be true before the cluster counts as ready.
    pub ready: Vec<NodeCondition>,
}

/// The content of the disk that is the node's root, in addition to the packages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDisk {
    /// Components in /usr/bin.
    pub programs: Vec<String>,
    /// Components in /opt/cni/bin.
    pub cni: Vec<String>,
    /// Names of images that are in /images as `SHORT-NAME.tar`.
    pub images: Vec<String>,
    /// Small files: path without a leading slash to content.
    pub files: BTreeMap<String, String>,
}

/// A user of the apiserver: a certificate `{pki}/NAME.crt` with its key, and a kubeconfig `{run}/NAME.kubeconfig`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub name: String,
    pub user: String,
    #[serde(default)]
    pub groups: Vec<String>,
    /// Names and addresses of a server that uses the same certificate.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Signed by `{pki}/NAME.ca.crt`, which signs nothing else, instead of the run's CA. The identity has no
    /// kubeconfig.
    #[serde(default)]
    pub own_ca: bool,
}

/// A process of the node: the component `PROFILE/NAME` under control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProcess {
    pub name: String,
    /// The component of `components.yaml` that it runs.
    pub component: String,
    /// Whether it is started with the stores; otherwise it starts when the apiserver is ready.
    #[serde(default)]
    pub early: bool,
    /// Flag names without dashes to values.
    pub flags: BTreeMap<String, String>,
    /// Scheme and path on its port that answer 200 when it is ready: "https /healthz".
    pub ready: String,
    /// Programs of the disk that run to completion when it is ready.
    #[serde(default)]
    pub then: Vec<Vec<String>>,
}

/// An object that is part of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeObject {
    /// The path of the collection.
    pub path: String,
    /// The object without apiVersion and kind, which follow from the path.
    pub object: Value,
}

/// A condition in the status of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCondition {
    /// The path of the object.
    pub path: String,
    /// The `type` of the condition.
    pub condition: String,
}

impl Node {
    /// The components that must be built for the node, without those of its container images.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.disk.programs.iter().chain(&self.disk.cni).map(String::as_str)
    }

    /// Whether a file of the packages, given by its path without a leading slash, is left out.
    pub fn leaves_out(&self, path: &str) -> bool {
        self.leave_out.iter().any(|pattern| covers(pattern, path))
    }
}

/// Whether `pattern` matches the whole of `path`.
pub(crate) fn covers(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((start, rest)) => path.strip_prefix(start).is_some_and(|path| {
            // Patterns and paths are short: try every place where the star may end.
            let ends = (0..=path.len()).filter(|end| path.is_char_boundary(*end));
            rest.is_empty() || ends.into_iter().any(|end| covers(rest, &path[end..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_text() {
        for (pattern, covered, not) in [
            ("usr/share/*", "usr/share/doc/a usr/share/", "usr/sharex usr/lib/usr/share/a"),
            ("usr/lib/*/gconv/*", "usr/lib/x/gconv/a usr/lib/x/y/gconv/a/b", "usr/lib/gconv/a usr/lib/x/gconv"),
            ("*.a", "usr/lib/x/libc.a .a", "usr/lib/libc.a/x libc.ab"),
            ("etc/x", "etc/x", "etc/xy a/etc/x"),
            ("*", "a ä/b", ""),
        ] {
            covered.split_whitespace().for_each(|path| assert!(covers(pattern, path), "{pattern} covers {path}"));
            not.split_whitespace().for_each(|path| assert!(!covers(pattern, path), "{pattern} does not cover {path}"));
        }
    }
}
