//! A booted cluster as the suite sees it: addresses, credentials, and control over its components.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hardware::Hardware;
use crate::machine::MachineInfo;
use crate::store::StoreKind;
use crate::target::ByteOrder;

/// A running cluster. Dropping it stops nothing: the boot stage's guard does.
#[derive(Clone)]
pub struct Cluster {
    pub info: ClusterInfo,
    /// None if the provider cannot control the processes; checks that need control are then skipped.
    pub control: Option<Arc<dyn Control>>,
}

/// The part that can be written to `cluster.json` and read by another command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterInfo {
    /// GOARCH of the components.
    pub arch: String,
    /// Of that architecture; None for an external cluster and in files of older versions.
    #[serde(default)]
    pub byte_order: Option<ByteOrder>,
    /// `process`, `qemu`, `kind`, `existing`.
    pub provider: String,
    /// How the code is executed: `native`, or the emulator with its version.
    pub execution: String,
    /// The slowdown of this machine against the reference; every deadline is multiplied by it. At least 1.
    pub factor: f64,
    /// How many control planes may run at the same time; the others are suspended until the suite needs them. None if
    /// all control planes always run. See [`Control::resume`].
    #[serde(rename = "awake")]
    pub max_active: Option<usize>,
    /// By profile name.
    pub profiles: BTreeMap<String, ProfileInfo>,
    /// The system VM that everything runs in, if there is one.
    pub machine: Option<MachineInfo>,
    /// The processors and the memory under the components. None: unknown, as in files of older versions.
    #[serde(default)]
    pub hardware: Option<Hardware>,
    /// Set for an external cluster.
    #[serde(rename = "shared")]
    pub external: Option<External>,
    /// The node on which Pods run, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeInfo>,
}

impl ClusterInfo {
    /// From this factor on a machine counts as slow, like an emulated one: control planes are suspended, servers get
    /// less work, and cases spend more time waiting than working.
    pub const SLOW: f64 = 4.0;
}

/// A node of one of the control planes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    pub profile: String,
    /// The images on the node that can run: names in `images.yaml` to references.
    pub images: BTreeMap<String, String>,
}

/// Rules for a cluster that others use and operate: their clients write too, and the suite must be able to distinguish
/// its own objects and to remove all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct External {
    /// The suffix of the names of everything that this run creates, and the value of the label [`External::LABEL`] on
    /// objects without a namespace.
    #[serde(rename = "mark")]
    pub run_label: String,
    /// Whether a controller creates objects in each new namespace, as the controller manager does.
    pub fills_namespaces: bool,
    /// Whether the endpoint did not choose HTTP/2 when both protocols were offered, for example a reverse proxy without
    /// it.
    #[serde(default)]
    pub http1_only: bool,
}

impl External {
    /// The label that names the run to which a namespace or another object without a namespace belongs.
    pub const LABEL: &str = "archproof.example/run";
}

/// One control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileInfo {
    pub name: String,
    /// `https://127.0.0.1:PORT`.
    pub apiserver: String,
    /// All apiservers on these stores, `apiserver` first. Empty in files of older versions.
    #[serde(default)]
    pub apiservers: Vec<String>,
    /// Administrator credentials for the apiserver.
    pub tls: TlsFiles,
    /// A file with a bearer token of the same administrator. If it exists, the suite sends it instead of the
    /// certificate. kube-apiserver verifies a client certificate anew in every request: under emulation, where Go has
    /// no assembly for P-256, that takes a sixth of all its processor time.
    pub token: Option<PathBuf>,
    /// The server at `apiserver` refuses clients without a certificate, even with a token: a client sends both.
    #[serde(default)]
    pub client_certificate_required: bool,
    pub kubeconfig: PathBuf,
    /// `--etcd-prefix`, with a leading slash and without a trailing one.
    pub prefix: String,
    /// The first one holds every resource that no other one lists.
    pub stores: Vec<StoreInfo>,
    /// The flags the apiserver was started with, without dashes.
    pub flags: BTreeMap<String, String>,
    /// Apiservers with other flags on the same stores, by name. Empty in files of older versions.
    #[serde(default)]
    pub variants: BTreeMap<String, VariantInfo>,
    /// The profile's own folder (keys, configuration files).
    pub dir: PathBuf,
}

/// An apiserver that runs only while a check uses it, with other flags than the profile's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantInfo {
    /// `https://127.0.0.1:PORT`.
    pub apiserver: String,
    /// All of its flags, without dashes.
    pub flags: BTreeMap<String, String>,
    /// Whether its program is that of the minor before the one under test.
    #[serde(default)]
    pub previous: bool,
}

/// One store: etcd, or kine in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreInfo {
    pub name: String,
    /// `https://127.0.0.1:PORT`. Empty if only the apiserver can be reached and not its store.
    pub endpoint: String,
    /// The endpoints of all members, `endpoint` first. Empty in files of older versions.
    #[serde(default)]
    pub members: Vec<String>,
    pub tls: TlsFiles,
    /// `group/resource` entries kept here; empty for the first store.
    pub resources: Vec<String>,
    /// Etcd in files of older versions.
    #[serde(default)]
    pub kind: StoreKind,
    /// The programs that its members can run, the oldest release first, with which they start; see
    /// [`Action::ChangeProgram`]. Empty if they can run only one.
    #[serde(default)]
    pub programs: Vec<String>,
}

/// PEM files of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsFiles {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Control over the components of a cluster. Components are named `PROFILE/kube-apiserver`, `PROFILE/etcd-STORE` and,
/// for a plugin, `PROFILE/NAME`. A profile may add `PROFILE/kube-controller-manager` and `PROFILE/etcd-spare`, which do
/// not run before a check starts them. If the components have another architecture than the host, the spare etcd is
/// accompanied by `PROFILE/etcd-native`, which has the host's architecture and runs on the host.
///
/// Calls block until the action is complete: a start or restart returns when the component is ready again.
pub trait Control: Send + Sync {
    fn components(&self) -> Vec<String>;
    /// Waits until a control plane that is still starting has started. Returns where it is only if it was planned
    /// elsewhere, because another process had taken a port: a caller may have changed the addresses, to those of proxies.
    fn started(&self, _profile: &str) -> Result<Option<ProfileInfo>, ControlError> {
        Ok(None)
    }
    fn apply(&self, component: &str, action: &Action) -> Result<(), ControlError>;
    /// Writes a file into a profile's folder, both where its components run and on the host. Concurrent readers see the
    /// old content or the new one.
    fn write(&self, profile: &str, file: &str, content: &[u8]) -> Result<(), ControlError>;
    /// Runs one of the profile's tools to its end where its components run, and returns its output. In `args`, `{run}`
    /// is the profile's folder there. `native/TOOL` is the host's tool, and runs on the host. A tool that runs longer than
    /// `limit` is an error.
    fn run(&self, profile: &str, tool: &str, args: &[String], limit: Duration) -> Result<String, ControlError>;
    /// The address and credentials of `PROFILE/etcd-spare` while it runs.
    fn spare(&self, profile: &str) -> Option<StoreInfo>;
    /// The same for `PROFILE/etcd-native`.
    fn native(&self, profile: &str) -> Option<StoreInfo>;
    /// The whole log of the component so far, over all its restarts.
    fn log(&self, component: &str) -> Result<String, ControlError>;
    /// Resumes the components of a suspended profile, and returns when they are ready.
    ///
    /// An idle control plane takes a few percent of a native processor, and under emulation most of one. So on slow
    /// machines, control planes without work are suspended (SIGSTOP).
    fn resume(&self, profile: &str) -> Result<(), ControlError>;
    /// Suspends the profile again, or when its cases have ended. Both are no-ops where no profile can be suspended.
    fn suspend(&self, profile: &str) -> Result<(), ControlError>;
    /// A component that exited unexpectedly, with the last lines of its log.
    fn first_failure(&self) -> Option<String>;
}

/// An action on a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Start after a stop or kill, with the last flags.
    Start,
    /// Like `Start`, but this time without one variable of its environment.
    StartWithout { variable: String },
    /// TERM, then KILL after a grace period. A no-op for a component that ended by itself.
    Stop,
    /// SIGKILL. An error if the component ended by itself before, as for `Restart` and `ChangeProgram`.
    Kill,
    /// SIGSTOP.
    Pause,
    /// SIGCONT.
    Resume,
    /// Stop, and start with these flags changed; an empty value removes the flag, an empty map keeps all flags. `{run}`
    /// and `{store.NAME}` are filled in as in `profiles.yaml`; `{store.spare}` is the etcd that is not recorded, and
    /// `{store.spare-peer}` its peer URL; likewise for `native`. `{apiserver.NAME}` is the URL of a variant.
    Restart { flags: BTreeMap<String, String> },
    /// Stop, and start with the program and the flags of another release, on the same data. Flags that a restart has
    /// changed are those of the release again.
    ChangeProgram { program: String },
    /// Start the component, or resume it if it is suspended; it is ready afterwards.
    Use,
    /// Suspend the component until its next use.
    Release,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ControlError(pub String);

impl ProfileInfo {
    /// Whether the suite can look into the stores.
    pub fn shows_its_stores(&self) -> bool {
        self.stores.iter().all(|store| !store.endpoint.is_empty())
    }

    /// The store that holds `group/resource`.
    pub fn store_for(&self, group: &str, plural: &str) -> &StoreInfo {
        // events.k8s.io is a second view of the core events: kube-apiserver uses the override of the core events for
        // both and none of events.k8s.io (kubernetes pkg/kubeapiserver/default_storage_factory_builder.go,
        // AddCohabitatingResources).
        let group = if (group, plural) == ("events.k8s.io", "events") { "" } else { group };
        let wanted = format!("{group}/{plural}");
        self.stores.iter().find(|s| s.resources.contains(&wanted)).unwrap_or(&self.stores[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(name: &str, resources: &[&str]) -> StoreInfo {
        let tls = TlsFiles { ca: PathBuf::new(), cert: PathBuf::new(), key: PathBuf::new() };
        let resources = resources.iter().map(ToString::to_string).collect();
        let (endpoint, members, kind, programs) = Default::default();
        StoreInfo { name: name.into(), endpoint, members, tls, resources, kind, programs }
    }

    #[test]
    fn events_of_both_groups_are_in_the_store_of_the_core_events() {
        let stores = vec![store("main", &[]), store("events", &["/events"]), store("apps", &["apps/deployments"])];
        let tls = stores[0].tls.clone();
        let profile = ProfileInfo {
            name: "split".into(),
            apiserver: String::new(),
            apiservers: Vec::new(),
            tls,
            token: None,
            client_certificate_required: false,
            kubeconfig: PathBuf::new(),
            prefix: "/registry".into(),
            stores,
            flags: BTreeMap::new(),
            variants: BTreeMap::new(),
            dir: PathBuf::new(),
        };
        for (group, plural, expected) in [
            ("", "events", "events"),
            ("events.k8s.io", "events", "events"),
            ("apps", "deployments", "apps"),
            ("", "configmaps", "main"),
            ("example.org", "events", "main"),
        ] {
            assert_eq!(profile.store_for(group, plural).name, expected, "{group}/{plural}");
        }
    }
}
