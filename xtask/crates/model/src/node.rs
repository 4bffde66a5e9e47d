//! What `targets/node.yaml` says: what makes a guest a node with containers, and its control plane a whole cluster.
//!
//! The field comments are the reference for that file. Where the packages and modules come from is in the `fetch` crate,
//! how the disk is made in `node`, how the processes are started in `boot`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `targets/node.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Debian packages of the guest's architecture; what they depend on comes with them.
    pub packages: Vec<String>,
    /// Files of the packages that are not unpacked: paths below the root in which `*` stands for any text, slashes
    /// included.
    pub leave_out: Vec<String>,
    /// Kernel modules beside those of the machine, in load order, as `modinfo` names them.
    pub modules: Vec<String>,
    /// Modules that a kernel may lack without harm. They are loaded before `modules`.
    pub optional_modules: Vec<String>,
    pub disk: NodeDisk,
    /// The profile whose control plane becomes the cluster.
    pub profile: String,
    /// MiB of the guest beside those of its control planes.
    pub memory: u32,
    /// kube-apiserver flags beside those of the profile; an empty value takes a flag away. In values, as in `files`, the
    /// processes' `flags` and `objects`, are filled in: `{address}` of the node, `{pki}` (the folder with the run's
    /// certificates), `{port.NAME}` of a process, `{image.NAME}` (the reference of
    /// an image), and `{run}` as in a profile.
    pub apiserver: BTreeMap<String, String>,
    pub identities: Vec<Identity>,
    /// Files written below `{run}` before the start, by name.
    pub files: BTreeMap<String, String>,
    /// Lines of shell that run once on the node, before any process; the first that fails ends the boot.
    pub prepare: String,
    /// In the order of their start.
    pub processes: Vec<NodeProcess>,
    /// Made when all processes are ready.
    pub objects: Vec<NodeObject>,
    /// What must be true before the cluster counts as ready.
    pub ready: Vec<NodeCondition>,
}

/// What is on the disk that is the node's root, beside the packages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeDisk {
    /// Components in /usr/bin.
    pub programs: Vec<String>,
    /// Components in /opt/cni/bin.
    pub cni: Vec<String>,
    /// Names of images, in /images as `SHORT-NAME.tar`.
    pub images: Vec<String>,
    /// Small files: path without a slash in front to content.
    pub files: BTreeMap<String, String>,
}

/// A user of the apiserver: a certificate `{pki}/NAME.crt` with its key, and a kubeconfig `{run}/NAME.kubeconfig`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub name: String,
    pub user: String,
    #[serde(default)]
    pub groups: Vec<String>,
    /// Names and addresses under which it serves with the same certificate.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Signed by `{pki}/NAME.ca.crt`, which signs nothing else, instead of the run's CA. Then it has no kubeconfig.
    #[serde(default)]
    pub own_ca: bool,
}

/// A process of the node: the component `PROFILE/NAME` under control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeProcess {
    pub name: String,
    /// The component of `components.yaml` that it runs.
    pub component: String,
    /// Whether it is started with the stores; otherwise when the apiserver is ready.
    #[serde(default)]
    pub early: bool,
    /// Name without dashes to value.
    pub flags: BTreeMap<String, String>,
    /// What answers 200 when it is ready, on its port: "https /healthz".
    pub ready: String,
    /// Programs of the disk that run to their end when it is ready.
    #[serde(default)]
    pub then: Vec<Vec<String>>,
}

/// An object of the cluster itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeObject {
    /// Of the collection.
    pub path: String,
    /// Without apiVersion and kind, which the path tells.
    pub object: Value,
}

/// A condition in the status of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeCondition {
    /// Of the object.
    pub path: String,
    /// The `type` of the condition.
    pub condition: String,
}

impl Node {
    /// The components that it needs built, without those of its images.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.disk.programs.iter().chain(&self.disk.cni).map(String::as_str)
    }

    /// Whether a file of the packages stays out, by its path without a slash in front.
    pub fn leaves_out(&self, path: &str) -> bool {
        self.leave_out.iter().any(|pattern| covers(pattern, path))
    }
}

/// Whether the whole of `path` is what `pattern` says.
pub(crate) fn covers(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((start, rest)) => path.strip_prefix(start).is_some_and(|path| {
            // A pattern is short, and so is a path: every place where the star may end is tried.
            let ends = (0..=path.len()).filter(|end| path.is_char_boundary(*end));
            rest.is_empty() || ends.into_iter().any(|end| covers(rest, &path[end..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
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
