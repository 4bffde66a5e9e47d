//! A booted cluster as the suite sees it: addresses, credentials, and control over its components.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::machine::MachineInfo;

/// A running cluster. Dropping it takes nothing down: the boot stage's guard does.
#[derive(Clone)]
pub struct Cluster {
    pub info: ClusterInfo,
    /// None where the provider cannot touch the processes; checks that need it are then skipped.
    pub control: Option<Arc<dyn Control>>,
}

/// The part that can be written to `cluster.json` and read by another command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterInfo {
    /// GOARCH of the components.
    pub arch: String,
    /// `process`, `qemu`, `kind`, `existing`.
    pub provider: String,
    /// How the code is executed: `native`, or the emulator with its version.
    pub execution: String,
    /// How much slower than the reference this machine is; every deadline is multiplied by it. At least 1.
    pub factor: f64,
    /// How many control planes may be awake at the same time; the others rest until the suite comes to them. None where
    /// all always run. See [`Control::wake`].
    #[serde(default)]
    pub awake: Option<usize>,
    /// By profile name.
    pub profiles: BTreeMap<String, ProfileInfo>,
    /// The system VM that everything runs in, if it does.
    #[serde(default)]
    pub machine: Option<MachineInfo>,
    /// Set where the cluster is somebody else's.
    #[serde(default)]
    pub shared: Option<Shared>,
    /// The node on which Pods run, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeInfo>,
}

impl ClusterInfo {
    /// From this factor on a machine is slow, as an emulated one is: control planes rest, servers are spared work, and cases
    /// wait more than they work.
    pub const SLOW: f64 = 4.0;
}

/// A node of one of the control planes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    pub profile: String,
    /// What is on it and can run: names in `images.yaml` to references.
    pub images: BTreeMap<String, String>,
}

/// What has to be respected in a cluster that others use and run: they write too, and all that is made there must be
/// told from theirs and removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Ends the names of everything that this run makes, and is the value of the label [`Shared::LABEL`] of what has no
    /// namespace.
    pub mark: String,
    /// Whether somebody puts something into each new namespace, as the controller manager does.
    pub fills_namespaces: bool,
    /// Whether the endpoint did not choose HTTP/2 when both protocols were offered, as a reverse proxy without it.
    #[serde(default)]
    pub http1_only: bool,
}

impl Shared {
    /// Names the run that a namespace or another object without a namespace belongs to.
    pub const LABEL: &str = "archproof.example/run";
}

/// One control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileInfo {
    pub name: String,
    /// `https://127.0.0.1:PORT`.
    pub apiserver: String,
    /// All apiservers on these stores, that one first. Empty in what older versions wrote down.
    #[serde(default)]
    pub apiservers: Vec<String>,
    /// Administrator credentials for the apiserver.
    pub tls: TlsFiles,
    /// A file with a bearer token of the same administrator. Where there is one the suite shows it instead of the
    /// certificate, which an apiserver verifies anew in every request: where Go has no assembly for P-256 and an
    /// emulator runs it, that is a sixth of all that the apiserver does.
    #[serde(default)]
    pub token: Option<PathBuf>,
    /// The server at `apiserver` refuses clients without a certificate, also with a token: a client shows both.
    #[serde(default)]
    pub client_certificate_required: bool,
    pub kubeconfig: PathBuf,
    /// `--etcd-prefix`, with a leading slash and without a trailing one.
    pub prefix: String,
    /// The first one holds whatever no other one lists.
    pub stores: Vec<StoreInfo>,
    /// The flags the apiserver was started with, without dashes.
    pub flags: BTreeMap<String, String>,
    /// The profile's private folder (keys, configuration files).
    pub dir: PathBuf,
}

/// One etcd.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreInfo {
    pub name: String,
    /// `https://127.0.0.1:PORT`. Empty where the apiserver can be reached and its store cannot.
    pub endpoint: String,
    /// The endpoints of all members, that one first. Empty in what older versions wrote down.
    #[serde(default)]
    pub members: Vec<String>,
    pub tls: TlsFiles,
    /// `group/resource` entries kept here; empty for the first store.
    pub resources: Vec<String>,
    /// What all keys begin with, as far as this store can be asked: nothing for etcd. kine compares keys as texts and has
    /// no range without an end, so it is asked for what is below a slash.
    #[serde(default)]
    pub root: String,
}

impl StoreInfo {
    /// Whether it counts the writes of each key and leaves no revision out. kine does neither; it is known by its root.
    pub fn counts_versions(&self) -> bool {
        self.root.is_empty()
    }
}

/// PEM files of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsFiles {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Power over the components of a cluster. Components are named `PROFILE/kube-apiserver`, `PROFILE/etcd-STORE` and, for
/// a plugin, `PROFILE/NAME`. Where the profile says so there are `PROFILE/kube-controller-manager` and
/// `PROFILE/etcd-spare`, which do not run before they are started. Where the components are of another architecture than
/// this machine there is, beside the spare etcd, `PROFILE/etcd-native`, which is of this machine's own and runs on it.
///
/// Calls block until the action is complete: a start or restart returns when the component is ready again.
pub trait Control: Send + Sync {
    fn components(&self) -> Vec<String>;
    fn apply(&self, component: &str, action: &Action) -> Result<(), ControlError>;
    /// Puts a file into a profile's private folder, in the place where its components run and on this side. Whoever reads
    /// it meanwhile sees the old content or the new one.
    fn write(&self, profile: &str, file: &str, content: &[u8]) -> Result<(), ControlError>;
    /// Runs one of the profile's tools to its end, in the place where its components run, and gives what it printed. In
    /// `args` `{run}` is the profile's private folder there. `native/TOOL` is the one of this machine, and runs on it.
    fn run(&self, profile: &str, tool: &str, args: &[String]) -> Result<String, ControlError>;
    /// How `PROFILE/etcd-spare` is reached while it runs.
    fn spare(&self, profile: &str) -> Option<StoreInfo>;
    /// How `PROFILE/etcd-native` is.
    fn native(&self, profile: &str) -> Option<StoreInfo>;
    /// The whole log of the component so far, over all its restarts.
    fn log(&self, component: &str) -> Result<String, ControlError>;
    /// Lets the components of a resting profile run, and returns when they are ready.
    ///
    /// An idle control plane costs a few percent of a native processor, and under emulation most of one. So where code is
    /// executed slowly, control planes that nobody uses are stopped (SIGSTOP) as long as that lasts.
    fn wake(&self, profile: &str) -> Result<(), ControlError>;
    /// Stops them again. Neither does anything where no profile rests.
    fn rest(&self, profile: &str) -> Result<(), ControlError>;
    /// A component that has ended although nobody asked for it, with the last lines of its log.
    fn casualty(&self) -> Option<String>;
}

/// What can be done to a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Start after a stop or kill, with the last flags.
    Start,
    /// Like `Start`, this once without a variable of its environment.
    StartWithout { variable: String },
    /// TERM, then KILL after a grace period.
    Stop,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Pause,
    /// SIGCONT.
    Resume,
    /// Stop and start with these flags changed; an empty value removes the flag, an empty map keeps all. `{run}` and
    /// `{store.NAME}` are filled in as in `profiles.yaml`; `{store.spare}` is the etcd that is not recorded,
    /// `{store.spare-peer}` what it says to other members, and so for `native`.
    Restart { flags: BTreeMap<String, String> },
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
        // events.k8s.io is a second view of the core events: the server looks for an override of those and for none of
        // its own (kubernetes pkg/kubeapiserver/default_storage_factory_builder.go, AddCohabitatingResources).
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
        let (endpoint, members, root) = Default::default();
        StoreInfo { name: name.into(), endpoint, members, tls, resources, root }
    }

    #[test]
    fn both_views_of_events_are_in_the_store_of_the_core_events() {
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
