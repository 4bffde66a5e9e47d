//! What `kind create cluster` and kubeadm are told of a profile. https://kind.sigs.k8s.io/docs/user/configuration

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use model::{Profile, StoreKind, minor_of};
use serde_json::{Value, json};

use super::engine::Engine;
use super::plugins::Unit;
use crate::flags::{self, Flags};

/// The profile's folder in its node; the apiserver's container has it under the same name.
pub(super) const RUN: &str = "/kind/run";
/// etcd's port for clients in the node.
const ETCD: u16 = 2379;
/// Since this minor release Kind writes kubeadm.k8s.io/v1beta4, where arguments are a list (kind pkg/cluster/internal/kubeadm).
const LISTS: (u32, u32) = (1, 36);
/// The first kubelet that refuses control groups of version 1 unless it is told not to.
const REFUSES_V1: (u32, u32) = (1, 35);
/// What kubeadm waits for the control plane that it starts. Kind's own deadline is that of the whole.
const PATIENCE: &str = "8m0s";
/// As on planes of the other providers: nobody makes ServiceAccounts, and a Pod without one is admitted.
const NO_ACCOUNTS: (&str, &str) = ("disable-admission-plugins", "ServiceAccount");
/// As there too: so the log tells the flags, where checks read them.
const VERBOSITY: (&str, &str) = ("v", "2");

/// What a cluster is made from beside its profile.
pub(super) struct Making<'a> {
    pub(super) engine: &'a Engine,
    /// The version of Kubernetes.
    pub(super) version: &'a str,
    /// On this machine, for etcd.
    pub(super) port: u16,
    /// The profile's folder on this machine.
    pub(super) folder: &'a Path,
    /// Services of the node that the profile brings.
    pub(super) units: &'a [Unit],
    /// Whether it is to be a whole cluster, and not a control plane alone.
    pub(super) whole: bool,
    /// Whether the image is somebody else's.
    pub(super) published: bool,
}

/// Why kubeadm cannot make this control plane; None where it can.
pub(super) fn unfit(profile: &Profile) -> Option<&'static str> {
    let odd = |store: &model::ProfileStore| store.members > 1 || store.wrapper.is_some();
    match profile {
        // Else a report would name a store that was never there.
        _ if profile.stores.iter().any(|store| store.kind != StoreKind::Etcd) => {
            Some("a store other than etcd, which kubeadm does not make")
        }
        _ if profile.stores.len() > 1 => Some("stores for single resources, of which kubeadm makes none"),
        _ if profile.stores.iter().any(odd) => {
            Some("a store of several members or on a slow disk, which kubeadm does not make")
        }
        _ if profile.apiservers > 1 => Some("two apiservers, of which kubeadm makes one"),
        _ if profile.plugins.iter().any(|plugin| plugin.relays.is_some()) => {
            Some("a relay between apiserver and store, for which kubeadm has no place")
        }
        _ if profile.spare || !profile.tools.is_empty() => Some("a further etcd beside the cluster's own"),
        _ if !profile.controllers.is_empty() => Some("chosen controllers: those of kubeadm are all or none"),
        _ => None,
    }
}

/// The whole file, which is JSON and so YAML.
pub(super) fn cluster(profile: &Profile, making: &Making<'_>) -> anyhow::Result<String> {
    let release = numbers(making.version);
    let args = |flags: &BTreeMap<String, String>| -> Value {
        if release >= LISTS {
            flags.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
        } else {
            json!(flags)
        }
    };
    let store = profile.stores.first().context("a profile has at least one store")?;
    let mut configuration =
        json!({"kind": "ClusterConfiguration", "etcd": {"local": {"extraArgs": args(&store.flags)}}});
    let volume = json!({"name": "run", "hostPath": RUN, "mountPath": RUN, "pathType": "DirectoryOrCreate"});
    let flags = apiserver(profile, making.whole)?;
    configuration["apiServer"] = json!({"extraArgs": args(&flags), "extraVolumes": [volume]});
    let mut patches = vec![configuration.to_string()];
    if release >= LISTS {
        // A minute, which an apiserver between others may take to start; before that form nobody can say otherwise.
        let timeouts = json!({"kubernetesAPICall": PATIENCE, "controlPlaneComponentHealthCheck": PATIENCE});
        patches.push(json!({"kind": "InitConfiguration", "timeouts": timeouts}).to_string());
    }
    if making.engine.cgroup_v1 && release >= REFUSES_V1 {
        patches.push(json!({"kind": "KubeletConfiguration", "failCgroupV1": false}).to_string());
    }
    let mut mounts = vec![json!({"hostPath": making.folder, "containerPath": RUN})];
    let units = making.units.iter();
    mounts.extend(units.map(|Unit { place, file }| json!({"hostPath": file, "containerPath": place})));
    let node = json!({
        "role": "control-plane",
        "kubeadmConfigPatches": patches,
        "extraPortMappings": [{"containerPort": ETCD, "hostPort": making.port, "listenAddress": "127.0.0.1"}],
        "extraMounts": mounts,
    });
    let mut all = json!({"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [node]});
    if !making.published {
        // It is a service of the node.
        all["networking"] = json!({"kubeProxyMode": "none"});
    }
    if !making.engine.may_adjust_oom {
        // Else no sandbox starts: "can't get final child's PID from pipe: EOF".
        let patch = "[plugins.\"io.containerd.grpc.v1.cri\"]\n  restrict_oom_score_adj = true\n";
        all["containerdConfigPatches"] = json!([patch]);
    }
    Ok(all.to_string())
}

/// The profile's own flags; kubeadm gives all others.
fn apiserver(profile: &Profile, whole: bool) -> anyhow::Result<Flags> {
    let filled = profile
        .apiserver
        .iter()
        .map(|(name, value)| Ok((name.clone(), flags::fill(value, Path::new(RUN), &BTreeMap::new())?)));
    let mut all = filled.collect::<anyhow::Result<Flags>>()?;
    if profile.prefix != flags::DEFAULT_PREFIX {
        all.insert("etcd-prefix".into(), profile.prefix.clone());
    }
    let usual = [VERBOSITY].into_iter().chain((!whole).then_some(NO_ACCOUNTS));
    for (name, value) in usual {
        all.entry(name.into()).or_insert_with(|| value.into());
    }
    Ok(all)
}

fn numbers(version: &str) -> (u32, u32) {
    let minor = minor_of(version);
    let mut parts = minor.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        serde_json::from_value(json!({
            "name": "prefix", "summary": "", "prefix": "/a/b",
            "apiserver": {"encryption-provider-config": "{run}/encryption.yaml"},
            "stores": [{"name": "main", "flags": {"log-level": "debug"}}],
        }))
        .unwrap()
    }

    fn engine(old: bool) -> Engine {
        Engine { name: "Docker".into(), cgroup_v1: old, may_adjust_oom: !old, sysctls: Vec::new() }
    }

    fn made(version: &str, old: bool, whole: bool) -> Value {
        let (engine, folder) = (engine(old), Path::new("/private/prefix"));
        let units = [Unit { place: "/etc/systemd/system/kms.service".into(), file: "/private/kms.service".into() }];
        let making = Making { engine: &engine, version, port: 1, folder, units: &units, whole, published: false };
        serde_json::from_str(&cluster(&profile(), &making).unwrap()).unwrap()
    }

    #[test]
    fn arguments_have_the_form_of_the_release() {
        let patch = |version: &str| -> Value {
            let all = made(version, false, false);
            serde_json::from_str(all["nodes"][0]["kubeadmConfigPatches"][0].as_str().unwrap()).unwrap()
        };
        let new = patch("v1.36.3");
        let expected = json!([
            {"name": "disable-admission-plugins", "value": "ServiceAccount"},
            {"name": "encryption-provider-config", "value": "/kind/run/encryption.yaml"},
            {"name": "etcd-prefix", "value": "/a/b"},
            {"name": "v", "value": "2"},
        ]);
        assert_eq!(new["apiServer"]["extraArgs"], expected);
        assert_eq!(new["etcd"]["local"]["extraArgs"], json!([{"name": "log-level", "value": "debug"}]));
        assert_eq!(patch("v1.35.4")["apiServer"]["extraArgs"]["etcd-prefix"], json!("/a/b"));
    }

    #[test]
    fn services_of_the_profile_are_mounted_where_systemd_finds_them() {
        let all = made("v1.36.3", false, false);
        let mounts = all["nodes"][0]["extraMounts"].as_array().unwrap();
        let places: Vec<&str> = mounts.iter().filter_map(|mount| mount["containerPath"].as_str()).collect();
        assert_eq!(places, [RUN, "/etc/systemd/system/kms.service"]);
    }

    #[test]
    fn an_old_machine_is_told_of() {
        let (new, old) = (made("v1.36.3", false, true), made("v1.36.3", true, true));
        let patches = |all: &Value| all["nodes"][0]["kubeadmConfigPatches"].as_array().unwrap().len();
        assert_eq!((patches(&new), patches(&old), patches(&made("v1.34.4", true, true))), (2, 3, 1));
        assert!(new.get("containerdConfigPatches").is_none());
        assert!(old["containerdConfigPatches"][0].as_str().unwrap().contains("restrict_oom_score_adj"));
    }

    #[test]
    fn what_kubeadm_cannot_make_is_named() {
        assert_eq!(unfit(&profile()), None);
        for (field, value, word) in [
            ("spare", json!(true), "further etcd"),
            ("controllers", json!(["a"]), "controllers"),
            ("apiservers", json!(2), "apiservers"),
            ("stores", json!([{"name": "main", "members": 3}]), "several members"),
            ("plugins", json!([{"name": "relay", "component": "faults", "relays": "main"}]), "relay"),
        ] {
            let mut odd = serde_json::to_value(profile()).unwrap();
            odd[field] = value;
            let odd: Profile = serde_json::from_value(odd).unwrap();
            assert!(unfit(&odd).is_some_and(|need| need.contains(word)), "{field}");
        }
        let mut elsewhere = profile();
        elsewhere.stores[0].kind = StoreKind::KineSqlite;
        assert!(unfit(&elsewhere).is_some_and(|need| need.contains("other than etcd")));
    }
}
