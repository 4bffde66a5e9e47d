//! The sources of the CI job matrix: `ci` of `targets/architectures/<name>.yaml`, and `targets/matrix.yaml`.

use serde::{Deserialize, Serialize};

use crate::outcome::Level;

/// The jobs of one architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ci {
    /// Whether a failure is only a warning for the whole matrix.
    #[serde(default)]
    pub experimental: bool,
    /// Sorted by how much they prove, most first: a job takes the first run that its event permits and whose runner is
    /// available.
    pub ways: Vec<Way>,
}

/// One way to run an architecture in CI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    pub mode: Mode,
    /// A runner of `targets/matrix.yaml`.
    pub runner: String,
    /// Where the harness and the components of a native job come from. Only for self-hosted runners, where None stands
    /// for prebuilt: GitHub's own have Rust, Go and caches, and always compile.
    #[serde(default)]
    pub programs: Option<NativeJob>,
    /// Time limit of the job.
    pub minutes: u32,
    /// Number of jobs among which the checks are divided, in a run of all checks.
    #[serde(default = "one")]
    pub shards: u32,
}

impl Way {
    /// Whether a machine with this owner gets the harness and the components from a job on one of GitHub's machines.
    pub fn is_prebuilt(&self, owner: Owner) -> bool {
        self.mode == Mode::Native && owner.is_self_hosted() && !self.is_from_source()
    }

    /// Whether the machine compiles harness and components, in addition to a prebuilt job.
    pub fn is_from_source(&self) -> bool {
        self.programs == Some(NativeJob::Source)
    }
}

/// Where the programs of a job on a machine of the tested architecture come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NativeJob {
    /// The harness from an archive of `dist`, and components that another machine has built.
    Prebuilt,
    /// Both compiled on the machine.
    Source,
}

impl NativeJob {
    pub const ALL: [NativeJob; 2] = [NativeJob::Prebuilt, NativeJob::Source];

    /// As in target files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            NativeJob::Prebuilt => "prebuilt",
            NativeJob::Source => "source",
        }
    }

    /// For people.
    pub fn summary(self) -> &'static str {
        match self {
            NativeJob::Prebuilt => {
                "The harness from an archive of `dist`, and components that another machine has built"
            }
            NativeJob::Source => "Both compiled on the machine",
        }
    }
}

/// How the components of a job are run; the first one proves most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Processes on a machine of the architecture.
    Native,
    /// A system VM, emulated if the machine has no KVM for it.
    Vm,
    /// Processes under user-mode emulation.
    User,
    /// Built and audited, but not run.
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
pub struct MatrixData {
    pub runners: Vec<Runner>,
    /// The selection of emulated jobs on a push or a pull request, where people wait for the result.
    pub quick: Quick,
    /// Files whose change affects no job: names, or endings such as `*.md`.
    pub documents: Vec<String>,
    pub caches: CacheSizes,
}

/// MiB of the caches that jobs on GitHub's machines save, as compressed by `actions/cache`: the largest of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheSizes {
    /// GitHub's limit for a repository.
    pub limit: u32,
    /// The compiled harness; one for each machine.
    pub cargo: u32,
    /// The sources of Go modules; one cache in all.
    pub modules: u32,
    /// Go's build cache; one for each architecture on each machine.
    pub gobuild: u32,
    /// The audited binaries; one for each job, on average.
    pub components: u32,
    /// Debian packages and Go toolchains; one for each architecture that runs in a VM.
    pub downloads: u32,
}

/// A part of the checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quick {
    pub level: Level,
    pub profiles: Vec<String>,
}

/// A kind of machine that runs jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runner {
    pub name: String,
    /// The GOARCH of the machine.
    pub arch: String,
    /// The labels that a job asks for. A runner must have all of them.
    pub labels: Vec<String>,
    pub owner: Owner,
    /// Whether this repository has the runner. A job for a runner that does not exist waits for a day.
    pub available: bool,
    /// How to get it, and its peculiarities.
    pub note: String,
}

/// The owner of the machine, which decides what may run on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// GitHub's own: a new VM for each job, even a job of an external contributor.
    Github,
    /// Offered to open source projects by a third party, as self-hosted runners.
    Donated,
    /// The project's own.
    Own,
}

impl Owner {
    /// Whether code of people without write access to the repository must not run on it.
    pub fn is_self_hosted(self) -> bool {
        self != Owner::Github
    }
}

fn one() -> u32 {
    1
}
