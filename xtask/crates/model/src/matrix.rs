//! What the matrix of CI jobs is made from: `ci` of `targets/<name>.yaml`, and `targets/matrix.yaml`.

use serde::{Deserialize, Serialize};

use crate::outcome::Level;

/// The jobs of one architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ci {
    /// Whether a failure is only a warning for the whole.
    #[serde(default)]
    pub experimental: bool,
    /// From the one that proves most to the one that proves least: a job takes the first that its event permits and
    /// whose runner is available.
    pub ways: Vec<Way>,
}

/// One way to run an architecture in CI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    pub mode: Mode,
    /// A runner of `targets/matrix.yaml`.
    pub runner: String,
    /// Until the job is ended.
    pub minutes: u32,
    /// Jobs among which the checks are divided, where a run is a whole one.
    #[serde(default = "one")]
    pub shards: u32,
}

/// How the components of a job are run; the first proves most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Processes on a machine of the architecture.
    Native,
    /// A system VM, emulated where the machine has no KVM for it.
    Vm,
    /// Processes under user-mode emulation.
    User,
    /// Built and audited, and not run.
    Build,
}

impl Mode {
    pub const ALL: [Mode; 4] = [Mode::Native, Mode::Vm, Mode::User, Mode::Build];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Vm => "vm",
            Mode::User => "user",
            Mode::Build => "build",
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// `targets/matrix.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixData {
    pub runners: Vec<Runner>,
    /// What emulated jobs take on a push or a pull request, where somebody waits for them.
    pub quick: Quick,
    /// Files whose change concerns no job: names, or endings such as `*.md`.
    pub documents: Vec<String>,
    pub caches: CacheSizes,
}

/// MiB of the caches that jobs on GitHub's machines save, as `actions/cache` compresses them: the largest of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSizes {
    /// What GitHub keeps for a repository.
    pub limit: u32,
    /// The compiled harness; one for each machine.
    pub cargo: u32,
    /// The sources of Go modules; one in all.
    pub modules: u32,
    /// Go's build cache; one for each architecture on each machine.
    pub gobuild: u32,
    /// The audited binaries; likewise.
    pub components: u32,
    /// Debian packages and Go toolchains; one for each architecture that runs in a VM.
    pub downloads: u32,
}

/// A part of the checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    pub level: Level,
    pub profiles: Vec<String>,
}

/// A kind of machine that takes jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runner {
    pub name: String,
    /// The GOARCH of the machine.
    pub arch: String,
    /// What a job asks for. Several mean: all of them.
    pub labels: Vec<String>,
    pub owner: Owner,
    /// Whether this repository has it. A job for a runner that nobody has waits for a day.
    pub available: bool,
    /// How one comes to it, and what is special about it.
    pub note: String,
}

/// Whose machine it is, which decides what may run on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// GitHub's own: a new VM for each job, also for that of a stranger.
    Github,
    /// Offered to open source by somebody else, as self-hosted runners.
    Donated,
    /// The project's.
    Own,
}

impl Owner {
    /// Not for code of people who may not write to the repository.
    pub fn is_self_hosted(self) -> bool {
        self != Owner::Github
    }
}

fn one() -> u32 {
    1
}
