//! Providers of CI machines, and how a machine becomes a runner: `targets/runners.yaml`.
//!
//! The runners' labels and architectures are only in `targets/matrix.yaml`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `targets/runners.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerData {
    /// Organisations that provide machines.
    pub providers: Vec<Provider>,
    /// Programs that take jobs from GitHub.
    pub agents: Vec<Agent>,
    /// Maximum size in bytes of an agent's archive whose size is not known.
    pub agent_limit: u64,
    /// Debian packages of machines that are prepared for a kind of job.
    pub prepared: Prepared,
    /// OpenStack clouds.
    pub clouds: Vec<Cloud>,
    /// The provider of each runner in `targets/matrix.yaml`, by the runner's name, and how the runner is made.
    pub machines: Vec<MachineSpec>,
    /// The architecture label that the official agent gives itself, by GOARCH. A port of the agent that does not know
    /// its architecture uses the label of another one.
    pub default_labels: BTreeMap<String, String>,
}

/// `prepared:` of runners.yaml: packages from a suite that is newer than the machine's Debian.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// A Debian suite that has all of them for every architecture.
    pub suite: String,
    /// The oldest release of Debian on which packages of the suite can be installed.
    pub oldest: u32,
    /// For GitHub's own actions, where the agent has no Node.js.
    pub node: Vec<String>,
    /// For jobs that compile the harness.
    pub source: Vec<String>,
}

/// A provider of machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provider {
    pub name: String,
    /// For people.
    pub title: String,
    /// How to get a machine.
    pub apply: String,
    /// What a user must know before: quotas, terms, what does not work there.
    pub limits: Vec<String>,
    pub links: Vec<String>,
}

/// A program that takes jobs from GitHub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    pub name: String,
    /// Without a leading `v`.
    pub version: String,
    /// Whether GitHub enforces its version; `deprecations/{version}` then reports it.
    #[serde(default)]
    pub official: bool,
    /// Whether its archive contains Node.js, which GitHub's own actions need.
    #[serde(default)]
    pub has_node: bool,
    /// Where the program comes from.
    pub source: String,
    /// What a user must know about it.
    pub note: String,
    /// By GOARCH.
    pub downloads: BTreeMap<String, Download>,
}

/// The expected size of a file, known before the download. Without a bound a server could fill the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Exact(u64),
    /// An upper limit for a file whose size is not known.
    AtMost(u64),
}

/// An agent's archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Download {
    pub url: String,
    /// SHA-256 of the archive, in lower-case hexadecimal digits.
    pub sha256: String,
    /// Size of the archive in bytes. Without it `agent_limit` applies.
    pub size: Option<u64>,
}

/// An OpenStack cloud. Its address and credentials are in the user's `clouds.yaml` or environment, not here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cloud {
    pub name: String,
    /// The highest microversion of Nova that a request may ask for.
    pub microversion: String,
    pub dashboard: Option<String>,
}

/// How a runner of `targets/matrix.yaml` is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSpec {
    /// Its name in `targets/matrix.yaml`.
    pub runner: String,
    /// One of `providers`.
    pub provider: String,
    /// The agent that runs on it; none if the provider brings its own.
    pub agent: Option<String>,
    /// Maximum number of runners at the same time.
    #[serde(default)]
    pub max: u32,
    /// The server that `up` creates; none without a cloud.
    pub server: Option<ServerShape>,
}

/// The shape of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerShape {
    /// One of `clouds`.
    pub cloud: String,
    /// The flavour's name in that cloud.
    pub flavor: String,
    /// The image's name in that cloud.
    pub image: String,
    /// The network's name in that cloud; none: the cloud's only network.
    pub network: Option<String>,
    #[serde(default)]
    pub security_groups: Vec<String>,
}

impl Size {
    /// Maximum size; a larger file is refused.
    pub fn most(self) -> u64 {
        match self {
            Size::Exact(bytes) | Size::AtMost(bytes) => bytes,
        }
    }

    pub fn exact(self) -> Option<u64> {
        match self {
            Size::Exact(bytes) => Some(bytes),
            Size::AtMost(_) => None,
        }
    }

    /// The error of a file that has at least `found` bytes, if it is too large.
    pub fn exceeded(self, found: u64) -> Option<String> {
        let expected = match self {
            Size::Exact(bytes) => format!("{bytes} bytes"),
            Size::AtMost(bytes) => format!("at most {bytes} bytes"),
        };
        (found > self.most()).then(|| format!("expected {expected}, found more"))
    }

    /// Whether a file that ends after `found` bytes is incomplete.
    pub fn is_short(self, found: u64) -> bool {
        self.exact().is_some_and(|bytes| found < bytes)
    }
}

impl RunnerData {
    /// The size of an agent's archive: the exact one if it is known.
    pub fn agent_size(&self, known: Option<u64>) -> Size {
        known.map_or(Size::AtMost(self.agent_limit), Size::Exact)
    }

    pub fn provider(&self, name: &str) -> Option<&Provider> {
        self.providers.iter().find(|provider| provider.name == name)
    }

    pub fn agent(&self, name: &str) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.name == name)
    }

    pub fn cloud(&self, name: &str) -> Option<&Cloud> {
        self.clouds.iter().find(|cloud| cloud.name == name)
    }

    /// How the runner of this name in `targets/matrix.yaml` is made.
    pub fn machine_spec(&self, runner: &str) -> Option<&MachineSpec> {
        self.machines.iter().find(|machine| machine.runner == runner)
    }
}
