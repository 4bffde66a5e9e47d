//! The configuration for `kind create cluster` and kubeadm. https://kind.sigs.k8s.io/docs/user/configuration

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use model::{Profile, StoreKind, minor_of};
use serde_json::{Value, json};

use super::engine::Engine;
use crate::flags::Flags;
use crate::place::PortMapping;

/// The run's private folder in a node, and in its static Pods.
pub(super) const RUN: &str = "/kind/run";
/// The run's log folder, in the same places.
pub(super) const LOGS: &str = "/kind/logs";
/// Programs that are not part of the image, in the same places.
pub(super) const PROGRAMS: &str = "/kind/programs";
/// Where the agent replaces the programs that kubeadm runs, in the same places.
pub(super) const STAND_INS: &str = "/kind/stand-ins";
/// Since this minor release Kind writes kubeadm.k8s.io/v1beta4, where arguments are a list (kind
/// pkg/cluster/internal/kubeadm).
const LISTS: (u32, u32) = (1, 36);
/// The first kubelet that refuses cgroup v1 by default.
const REFUSES_V1: (u32, u32) = (1, 35);
/// How long kubeadm waits on the reference machine for the control plane that it starts. Kind has its own deadline for the
/// whole creation.
const PATIENCE: Duration = Duration::from_secs(480);

/// The inputs of a cluster's configuration.
pub(super) struct ConfigInputs<'a> {
    pub(super) engine: &'a Engine,
    /// The version of Kubernetes.
    pub(super) version: &'a str,
    /// The apiserver's port on this machine.
    pub(super) port: u16,
    /// Other ports that this machine reaches.
    pub(super) port_mappings: Vec<PortMapping>,
    pub(super) mounts: Vec<Mount>,
    /// Additional flags of programs, by manifest.
    pub(super) flags: BTreeMap<&'static str, Flags>,
    /// The folder of kubeadm's patches, as the node sees it.
    pub(super) patches: PathBuf,
    /// Whether to create a complete cluster, and not only a control plane.
    pub(super) whole: bool,
    /// Whether the image is a published one, and not built by the project.
    pub(super) published: bool,
    /// The slowdown of this machine.
    pub(super) factor: f64,
}

/// A file or folder of this machine that is mounted into the node.
pub(super) struct Mount {
    pub(super) host_path: PathBuf,
    pub(super) guest_path: String,
    pub(super) read_only: bool,
}

/// Why this control plane cannot run in a Kind cluster; None if it can. A published image has no program that could run
/// in addition to its Pods.
pub fn unfit(profile: &Profile, published: bool) -> Option<&'static str> {
    match profile {
        // Otherwise a report would name a store that the run did not use.
        _ if profile.stores.iter().any(|store| store.kind != StoreKind::Etcd) => {
            Some("a store other than etcd, which kubeadm does not create")
        }
        _ if !profile.environment.is_empty() => Some("environment variables of components, which kubeadm does not set"),
        _ if profile.previous.is_some() || profile.stores.iter().any(|store| store.earlier > 0) => {
            Some("programs of an earlier release, which kubeadm does not start")
        }
        _ if !published => None,
        _ if profile.stores.len() > 1 || profile.stores.iter().any(|store| store.members > 1) => {
            Some("more stores than the single one of a published image")
        }
        _ if profile.spare || !profile.tools.is_empty() => {
            Some("a second etcd, for which a published image has no program")
        }
        _ if profile.apiservers > 1 => Some("two apiservers, but a published image runs only one"),
        _ => None,
    }
}

/// The whole configuration file, as JSON, which is valid YAML.
pub(super) fn cluster(inputs: &ConfigInputs<'_>) -> String {
    let release = numbers(inputs.version);
    let args = |manifest: &str| -> Value {
        let flags = inputs.flags.get(manifest).into_iter().flatten();
        if release >= LISTS {
            flags.map(|(name, value)| json!({"name": name, "value": value})).collect()
        } else {
            flags.map(|(name, value)| (name.clone(), json!(value))).collect::<serde_json::Map<_, _>>().into()
        }
    };
    let mut configuration = json!({
        "kind": "ClusterConfiguration",
        "etcd": {"local": {"extraArgs": args("etcd")}},
        "apiServer": {"extraArgs": args("kube-apiserver")},
        "controllerManager": {"extraArgs": args("kube-controller-manager")},
        "scheduler": {"extraArgs": args("kube-scheduler")},
    });
    let mut begin = json!({"kind": "InitConfiguration", "patches": {"directory": inputs.patches}});
    if release >= LISTS {
        // Without ServiceAccounts its Pods would be restarted forever.
        configuration["dns"] = json!({"disabled": !inputs.whole});
        // The default is one minute, which an apiserver may exceed if others start too. Older formats cannot change it.
        let patience = format!("{}s", PATIENCE.mul_f64(inputs.factor).as_secs());
        begin["timeouts"] = json!({"kubernetesAPICall": patience, "controlPlaneComponentHealthCheck": patience});
    }
    let mut patches = vec![configuration.to_string(), begin.to_string()];
    if inputs.engine.cgroup_v1 && release >= REFUSES_V1 {
        patches.push(json!({"kind": "KubeletConfiguration", "failCgroupV1": false}).to_string());
    }
    let mounts = inputs.mounts.iter();
    let mounts = mounts.map(
        |Mount { host_path, guest_path, read_only }| json!({"hostPath": host_path, "containerPath": guest_path, "readOnly": read_only}),
    );
    let port_mappings = inputs.port_mappings.iter();
    let port_mappings = port_mappings.map(
        |PortMapping { inside, outside }| json!({"containerPort": inside, "hostPort": outside, "listenAddress": "127.0.0.1"}),
    );
    let node = json!({
        "role": "control-plane",
        "kubeadmConfigPatches": patches,
        "extraPortMappings": port_mappings.collect::<Vec<_>>(),
        "extraMounts": mounts.collect::<Vec<_>>(),
    });
    let mut all = json!({
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"apiServerAddress": "127.0.0.1", "apiServerPort": inputs.port},
        "nodes": [node],
    });
    if !inputs.published {
        // kube-proxy is a service of the node.
        all["networking"]["kubeProxyMode"] = json!("none");
    }
    if !inputs.engine.may_adjust_oom {
        // Otherwise no sandbox starts: "can't get final child's PID from pipe: EOF".
        let patch = "[plugins.\"io.containerd.grpc.v1.cri\"]\n  restrict_oom_score_adj = true\n";
        all["containerdConfigPatches"] = json!([patch]);
    }
    all.to_string()
}

fn numbers(version: &str) -> (u32, u32) {
    let minor = minor_of(version);
    let mut parts = minor.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(version: &str, old: bool) -> Value {
        made_on(version, old, 1.0)
    }

    fn made_on(version: &str, old: bool, factor: f64) -> Value {
        let engine =
            Engine { name: "Docker".into(), cgroup_v1: old, may_adjust_oom: !old, sysctls: Vec::new(), free: 0 };
        let flags = [("v", "2"), ("etcd-prefix", "/a/b")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let inputs = ConfigInputs {
            engine: &engine,
            version,
            port: 1,
            port_mappings: vec![PortMapping { inside: 2379, outside: 2 }],
            mounts: vec![Mount { host_path: "/private".into(), guest_path: RUN.into(), read_only: false }],
            flags: BTreeMap::from([("kube-apiserver", flags.into())]),
            patches: "/kind/run/p".into(),
            whole: false,
            published: false,
            factor,
        };
        serde_json::from_str(&cluster(&inputs)).unwrap()
    }

    fn patch(all: &Value, number: usize) -> Value {
        serde_json::from_str(all["nodes"][0]["kubeadmConfigPatches"][number].as_str().unwrap()).unwrap()
    }

    #[test]
    fn arguments_have_the_format_of_the_release() {
        let new = patch(&made("v1.36.3", false), 0);
        let expected = json!([{"name": "etcd-prefix", "value": "/a/b"}, {"name": "v", "value": "2"}]);
        assert_eq!(new["apiServer"]["extraArgs"], expected);
        assert_eq!(new["etcd"]["local"]["extraArgs"], json!([]));
        let old = patch(&made("v1.35.4", false), 0);
        assert_eq!(old["apiServer"]["extraArgs"], json!({"etcd-prefix": "/a/b", "v": "2"}));
        assert_eq!(old["etcd"]["local"]["extraArgs"], json!({}));
    }

    #[test]
    fn kubeadm_waits_longer_on_a_slow_machine() {
        for (factor, expected) in [(1.0, "480s"), (7.5, "3600s")] {
            let timeouts = &patch(&made_on("v1.36.3", false, factor), 1)["timeouts"];
            assert_eq!(timeouts["kubernetesAPICall"], expected);
            assert_eq!(timeouts["controlPlaneComponentHealthCheck"], expected);
        }
    }

    #[test]
    fn ports_mounts_and_patches_are_configured() {
        let all = made("v1.36.3", false);
        let node = &all["nodes"][0];
        assert_eq!(node["extraPortMappings"][0]["containerPort"], 2379);
        assert_eq!(node["extraMounts"][0]["containerPath"], RUN);
        assert_eq!(all["networking"]["apiServerPort"], 1);
        assert_eq!(patch(&all, 1)["patches"]["directory"], "/kind/run/p");
    }

    #[test]
    fn restrictions_of_the_machine_are_configured() {
        let (new, old) = (made("v1.36.3", false), made("v1.36.3", true));
        let patches = |all: &Value| all["nodes"][0]["kubeadmConfigPatches"].as_array().unwrap().len();
        assert_eq!((patches(&new), patches(&old), patches(&made("v1.34.4", true))), (2, 3, 2));
        assert!(new.get("containerdConfigPatches").is_none());
        assert!(old["containerdConfigPatches"][0].as_str().unwrap().contains("restrict_oom_score_adj"));
    }

    #[test]
    fn unsupported_profiles_are_refused_with_the_reason() {
        let plain = json!({"name": "p", "summary": "", "prefix": "/a", "stores": [{"name": "main"}]});
        let profile = |field: &str, value: Value| -> Profile {
            let mut odd = plain.clone();
            odd[field] = value;
            serde_json::from_value(odd).unwrap()
        };
        for (field, value, word) in [
            ("spare", json!(true), "second etcd"),
            ("apiservers", json!(2), "apiservers"),
            ("stores", json!([{"name": "main", "members": 3}]), "stores"),
        ] {
            let odd = profile(field, value);
            assert!(unfit(&odd, true).is_some_and(|need| need.contains(word)), "{field}");
            assert_eq!(unfit(&odd, false), None, "{field}");
        }
        let mut elsewhere = profile("apiservers", json!(1));
        assert_eq!(unfit(&elsewhere, true), None);
        elsewhere.stores[0].kind = StoreKind::KineSqlite;
        assert!(unfit(&elsewhere, false).is_some_and(|need| need.contains("other than etcd")));
    }
}
