//! What is known of those who give machines to CI, and how a machine becomes a runner: `targets/runners.yaml`.
//!
//! Labels and architectures of the runners are in `targets/matrix.yaml`, and only there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `targets/runners.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunnerData {
    /// Those who give machines.
    pub providers: Vec<Provider>,
    /// Programs that take jobs from GitHub.
    pub agents: Vec<Agent>,
    /// Bytes that an agent's archive may have if its size is not known.
    pub agent_limit: u64,
    /// OpenStack clouds.
    pub clouds: Vec<Cloud>,
    /// Who gives the runners of `targets/matrix.yaml`, by their names, and how one is made.
    pub machines: Vec<Machinery>,
    /// The label of its architecture that the official agent gives itself, by GOARCH. A port that does not know its
    /// architecture takes that of another one.
    pub default_labels: BTreeMap<String, String>,
}

/// Somebody who gives machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    pub name: String,
    /// For people.
    pub title: String,
    /// How one comes to a machine.
    pub apply: String,
    /// What one must know before: quotas, terms, what does not work there.
    pub limits: Vec<String>,
    pub links: Vec<String>,
}

/// A program that takes jobs from GitHub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    pub name: String,
    /// Without a leading `v`.
    pub version: String,
    /// Whether GitHub enforces its version: then `deprecations/{version}` knows it.
    #[serde(default)]
    pub official: bool,
    /// Where it comes from.
    pub source: String,
    /// What one must know of it.
    pub note: String,
    /// By GOARCH.
    pub downloads: BTreeMap<String, Download>,
}

/// The number of bytes of a file, as it is known before the download. Without a bound a server could fill the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Exact(u64),
    /// An upper limit, for a file whose size is not known.
    AtMost(u64),
}

/// An archive with an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Download {
    pub url: String,
    /// Of the archive, in lower-case hexadecimal digits.
    pub sha256: String,
    /// Bytes of the archive. Without it `agent_limit` applies.
    #[serde(default)]
    pub size: Option<u64>,
}

/// An OpenStack cloud. Where it is and who may use it is in the user's `clouds.yaml` or environment, not here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cloud {
    pub name: String,
    /// The highest microversion of Nova that may be asked for.
    pub microversion: String,
    #[serde(default)]
    pub dashboard: Option<String>,
}

/// How a runner of `targets/matrix.yaml` comes to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machinery {
    /// Its name in `targets/matrix.yaml`.
    pub runner: String,
    /// A provider above.
    pub provider: String,
    /// The program on it; none where the provider brings its own.
    #[serde(default)]
    pub agent: Option<String>,
    /// Runners at the same time.
    #[serde(default)]
    pub max: u32,
    /// The server that `up` creates; none where there is no cloud.
    #[serde(default)]
    pub server: Option<ServerShape>,
}

/// What a server is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerShape {
    /// A cloud above.
    pub cloud: String,
    /// The flavour's name in that cloud.
    pub flavor: String,
    /// The image's name in that cloud.
    pub image: String,
    /// The network's name in that cloud; none: the only one there is.
    #[serde(default)]
    pub network: Option<String>,
    #[serde(default)]
    pub security_groups: Vec<String>,
}

impl Size {
    /// A larger file is refused.
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

    /// What is wrong with a file that has at least so many bytes.
    pub fn exceeded(self, found: u64) -> Option<String> {
        let expected = match self {
            Size::Exact(bytes) => format!("{bytes} bytes"),
            Size::AtMost(bytes) => format!("at most {bytes} bytes"),
        };
        (found > self.most()).then(|| format!("expected {expected}, found more"))
    }

    /// Whether bytes are missing in a file that ends after so many.
    pub fn is_short(self, found: u64) -> bool {
        self.exact().is_some_and(|bytes| found < bytes)
    }
}

impl RunnerData {
    /// The size of an agent's archive: the exact one where it is known.
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

    /// How the runner with this name in `targets/matrix.yaml` comes to be.
    pub fn machinery(&self, runner: &str) -> Option<&Machinery> {
        self.machines.iter().find(|machine| machine.runner == runner)
    }
}
