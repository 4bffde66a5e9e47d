//! The command line. Environment variables are read here and nowhere else.

mod build;
mod cluster;
mod doctor;
mod fetch;
mod fuzz;
mod images;
mod internal;
mod look;
mod machines;
mod provider;
mod report;
mod runner;
mod selftest;
mod test;
mod upstream;
mod workflows;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::OsStringValueParser;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use model::{CiJob, Level, Source, StoreKind};
use suite::{Selection, Shard};

pub(crate) use build::BuildOptions;
pub(crate) use cluster::{KubectlOptions, LogsOptions, NameOptions, ShellOptions, UpOptions};
pub(crate) use doctor::DoctorOptions;
pub(crate) use fetch::FetchOptions;
pub(crate) use fuzz::FuzzOptions;
pub(crate) use images::{
    FormatArg, ImageSelection, ImagesAuditOptions, ImagesBuildOptions, ImagesCommand, ImagesNodeOptions, ImagesOptions,
};
pub(crate) use internal::{SuperviseOptions, WayOutOptions};
pub(crate) use look::{CompareOptions, InspectOptions};
pub(crate) use machines::*;
pub(crate) use provider::{ClusterArg, MachineOptions, ProviderArg, ProviderOptions, QemuArg};
pub(crate) use report::*;
pub(crate) use runner::*;
pub(crate) use selftest::SelftestOptions;
pub(crate) use test::TestOptions;
pub(crate) use upstream::UpstreamOptions;
pub(crate) use workflows::*;

/// Proves that Kubernetes keeps its storage and watch promises on a CPU architecture.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) places: Places,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask ci                                  build, boot, test and report on this machine's architecture
  cargo xtask ci --arch ARCH --provider process   the same for another one (see `cargo xtask targets`), under qemu-user
  cargo xtask ci --check watch. --seed 7          only the watch checks, with a given seed
  cargo xtask explain watch.expired-410           what a check wants, and how to see it by hand
  cargo xtask up && cargo xtask down              a control plane to play with

Exit codes: 0 all as expected, 2 usage, 4 nothing ran, 96 invalid target data, 100 conformance failures,
101 build failed, 102 boot or other infrastructure failed, 130 interrupted, 1 a bug of the harness.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build, boot, test, report: the whole pipeline
    Ci(CiOptions),
    /// Test a cluster that somebody else runs, given by a kubeconfig
    Test(TestOptions),
    /// Cross-build and audit the components
    Build(BuildOptions),
    /// Make OCI images of the components, or audit any image for programs of the wrong architecture
    Images(ImagesOptions),
    /// Download, verify and unpack what system VMs are started from
    Fetch(FetchOptions),
    /// Tell what this machine has of what a run needs, and how to cure what is missing
    Doctor(DoctorOptions),
    /// Tell what lies in the cache, or make it smaller
    Cache(CacheOptions),
    /// Start control planes and leave them running
    Up(UpOptions),
    /// End what `up` started
    Down(NameOptions),
    /// Print the log of a component that `up` started
    Logs(LogsOptions),
    /// Open a root shell in a VM that `up` started, or run a command there
    Shell(ShellOptions),
    /// Run kubectl on a cluster that `up` started
    Kubectl(KubectlOptions),
    /// List the checks
    List(ListOptions),
    /// Tell what a check wants, where that comes from, and how to see it by hand
    Explain(ExplainOptions),
    /// Print the architectures and the pinned releases, or what is wrong with their files
    Targets(JsonOptions),
    /// Prove that the suite can fail: break the server's promises one by one
    Selftest(SelftestOptions),
    /// Judge a recorded run again, from its files alone
    Rejudge(RejudgeOptions),
    /// Tell what differs between recorded runs: stored bytes, outcomes, times
    Compare(CompareOptions),
    /// Make report files anew from recorded runs: a site and more
    Report(ReportOptions),
    /// List and decode what lies in the store of a cluster that `up` started
    Inspect(InspectOptions),
    /// Print the jobs of CI for an event, as JSON
    Matrix(MatrixOptions),
    /// Render the workflows of CI, look at them, and tell how one has ended
    Workflows(WorkflowsOptions),
    /// Machines of rare architectures as runners of CI: who gives them, registering, watching, deleting
    Runner(RunnerOptions),
    /// Measure the harness against floors taken in the same run
    Bench(BenchOptions),
    /// Run generated inputs through everything that reads foreign data
    Fuzz(FuzzOptions),
    /// Carry a connection of a guest to this machine; for QEMU only
    #[command(hide = true)]
    WayOut(WayOutOptions),
    /// Run a program and end it with everything that it has started; for `runner up --local` only
    #[command(hide = true)]
    Supervise(SuperviseOptions),
}

/// Folders, for all commands.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Places {
    /// Cache for binaries and running clusters [default: archproof in the user's cache folder]
    #[arg(long, global = true, value_name = "DIR", env = "ARCHPROOF_CACHE", hide_env_values = true)]
    pub(crate) cache: Option<PathBuf>,
    /// Where run folders go [default: reports/ of the checkout]
    #[arg(long, global = true, value_name = "DIR", env = "ARCHPROOF_REPORTS", hide_env_values = true)]
    pub(crate) reports: Option<PathBuf>,
    /// Target data [default: targets/ of the checkout]
    #[arg(long, global = true, value_name = "DIR", hide = true)]
    pub(crate) targets: Option<PathBuf>,
    // These may be empty, which means that they are not set.
    #[arg(long, global = true, hide = true, env = "XDG_CACHE_HOME", value_parser = OsStringValueParser::new())]
    pub(crate) xdg_cache: Option<OsString>,
    #[arg(long, global = true, hide = true, env = "HOME", value_parser = OsStringValueParser::new())]
    pub(crate) home: Option<OsString>,
    #[arg(long, global = true, hide = true, env = "GOPROXY")]
    pub(crate) goproxy: Option<String>,
    #[arg(long, global = true, hide = true, env = "NO_COLOR", value_parser = OsStringValueParser::new())]
    pub(crate) no_color: Option<OsString>,
    #[arg(long, global = true, hide = true, env = "TERM", value_parser = OsStringValueParser::new())]
    pub(crate) term: Option<OsString>,
    #[command(flatten)]
    pub(crate) github: GithubPlaces,
}

/// What a step of GitHub Actions has in its environment.
#[derive(Clone, Debug, Default, ClapArgs)]
pub(crate) struct GithubPlaces {
    #[arg(long, global = true, hide = true, env = "GITHUB_ACTIONS")]
    pub(crate) github_actions: Option<String>,
    #[arg(long, global = true, hide = true, env = "GITHUB_STEP_SUMMARY", value_parser = OsStringValueParser::new())]
    pub(crate) github_step_summary: Option<OsString>,
    // `--github-output` of some commands is another thing.
    #[arg(long, global = true, hide = true, env = "GITHUB_OUTPUT", value_parser = OsStringValueParser::new())]
    pub(crate) github_step_output: Option<OsString>,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct SourceOptions {
    /// Where Kubernetes comes from: VERSION (`targets` prints those that are pinned), module[:VERSION], checkout:PATH or
    /// prebuilt:DIR
    #[arg(long, value_name = "SPEC", default_value = "module")]
    pub(crate) kubernetes: Source,
    /// Where etcd comes from: the same
    #[arg(long, value_name = "SPEC", default_value = "module")]
    pub(crate) etcd: Source,
    /// Where kine comes from, with a store of it
    #[arg(long, value_name = "SPEC", default_value = "module")]
    pub(crate) kine: Source,
    /// What keeps the data under the apiservers
    #[arg(long, value_enum, value_name = "STORE", default_value = "etcd")]
    pub(crate) store: StoreArg,
    /// Fail rather than download anything
    #[arg(long)]
    pub(crate) offline: bool,
}

impl SourceOptions {
    /// Whether nothing else was asked for than what is pinned.
    pub(crate) fn are_usual(&self) -> bool {
        let pinned = [&self.kubernetes, &self.etcd, &self.kine].iter().all(|source| **source == Source::Module(None));
        pinned && self.store == StoreArg::Etcd
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreArg {
    Etcd,
    /// kine on SQLite
    KineSqlite,
    /// kine on a NATS server of its own
    KineNats,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct SelectionOptions {
    /// Check id, prefix (`watch.`) or glob (`*.media-type-*`); may be repeated
    #[arg(long = "check", value_name = "PATTERN")]
    pub(crate) checks: Vec<String>,
    /// Checks of this level and stronger ones [default for runs: should, or any level for checks named by --check]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) level: Option<LevelArg>,
    /// storage, watch, list, rv, cc, fault or cluster, for `ci` also upstream; may be repeated
    #[arg(long = "suite", value_name = "SUITE")]
    pub(crate) suites: Vec<String>,
    /// Only on this profile; may be repeated
    #[arg(long = "profile", value_name = "NAME")]
    pub(crate) profiles: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LevelArg {
    Must,
    Should,
    Extra,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask ci
  cargo xtask ci --arch ARCH --provider process
  cargo xtask ci --arch all --jobs 2
  cargo xtask ci --suite storage --level must
  cargo xtask ci --shard 2/4
  cargo xtask ci --like-ci ARCH-vm-quick
  cargo xtask ci --kubernetes 1.35 --etcd 3.5
  cargo xtask ci --kubernetes checkout:../kubernetes
  cargo xtask ci --check storage.key-layout --seed 7 --keep")]
pub(crate) struct CiOptions {
    /// Architectures, separated by commas, or `all`; GOARCHes or other common names [default: this machine's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    pub(crate) arch: Vec<String>,
    /// What a job of the matrix runs, by its id: see `cargo xtask matrix`
    #[arg(long, value_name = "ID", conflicts_with_all = ["arch", "provider", "checks", "level", "suites", "profiles", "shard", "durations"])]
    pub(crate) like_ci: Option<String>,
    #[command(flatten)]
    pub(crate) workflow_run: WorkflowRun,
    /// The job of CI that this is; `--like-ci` sets it.
    #[arg(skip)]
    pub(crate) job: Option<CiJob>,
    #[command(flatten)]
    pub(crate) provider: ProviderOptions,
    #[command(flatten)]
    pub(crate) sources: SourceOptions,
    #[command(flatten)]
    pub(crate) selection: SelectionOptions,
    #[command(flatten)]
    pub(crate) upstream: UpstreamOptions,
    /// Seed of all random choices [default: a new one, which is printed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Only this part of the selected checks: the second of four is 2/4
    #[arg(long, value_name = "I/N")]
    pub(crate) shard: Option<Shard>,
    /// Balance the shards by a run folder, or a file like targets/durations.yaml, instead of that file
    #[arg(long, value_name = "RUN|FILE", requires = "shard")]
    pub(crate) durations: Option<String>,
    /// Architectures at the same time [default: what processors and memory allow]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Checks at the same time, on each architecture
    #[arg(long, value_name = "N", default_value = "12")]
    pub(crate) parallel_checks: NonZeroUsize,
    /// Leave the private folder (keys, store data) in place until the next run; a VM stays up until Ctrl-C or `down`
    #[arg(long)]
    pub(crate) keep: bool,
    /// Open a root shell in the VM, before it is taken down, when something is not as expected
    #[arg(long, conflicts_with = "json")]
    pub(crate) shell_on_fail: bool,
    /// Print what would be built, started and checked, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Form of the JUnit files
    #[arg(long, value_enum, value_name = "FLAVOUR", default_value = "strict")]
    pub(crate) junit_flavour: FlavourArg,
    /// Print the run's record (run.json) on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Show every pass
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Show only what went wrong
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask cache list
  cargo xtask cache prune --keep-days 7
  cargo xtask cache prune --max-size 10G --dry-run
  cargo xtask cache prune --all")]
pub(crate) struct CacheOptions {
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// What lies in it, with size and last use
    List(JsonOptions),
    /// Remove what was not used for long; never what is in use
    Prune(PruneOptions),
    /// Under which keys a CI system keeps what is slow to make
    Keys(KeysOptions),
    /// Look at the content of every download and unpacked file, and remove what is damaged
    Verify,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct PruneOptions {
    /// Keep what was used within so many days
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) keep_days: u32,
    /// Keep what was used last, up to this size together: 500M, 10G
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "keep_days")]
    pub(crate) max_size: Option<u64>,
    /// Keep only what is in use
    #[arg(long, conflicts_with_all = ["keep_days", "max_size"])]
    pub(crate) all: bool,
    /// Print what would be removed, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ListOptions {
    #[command(flatten)]
    pub(crate) selection: SelectionOptions,
    /// Print targets/durations.yaml made anew from run folders; may be repeated
    #[arg(long, value_name = "RUN")]
    pub(crate) durations: Vec<String>,
    /// Print the table as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ExplainOptions {
    /// The check's id, as `list` prints it
    pub(crate) id: String,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct JsonOptions {
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct RejudgeOptions {
    /// A run folder, or its name below reports/ [default: the newest]
    pub(crate) run: Option<String>,
    /// Print the verdicts as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Read the files and judge nothing: the floor of a benchmark
    #[arg(long, hide = true)]
    pub(crate) only_read: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask bench
  cargo xtask bench --only ready --runs 5
  cargo xtask bench --only cold-build --json
  cargo xtask bench --boot --arch all
  cargo xtask bench --boot --arch ARCH --runs 1
  cargo xtask bench --cluster --arch ARCH")]
pub(crate) struct BenchOptions {
    /// Only these benchmarks; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "machines")]
    pub(crate) only: Vec<String>,
    /// Measure system VMs instead: cold and warm starts, snapshots, memory, downloads
    #[arg(long, group = "machines")]
    pub(crate) boot: bool,
    /// Measure whole clusters instead: nodes in VMs, cold and warm, until a Pod runs, and Kind where there is an engine
    #[arg(long, group = "machines")]
    pub(crate) cluster: bool,
    /// Architectures of the VMs, separated by commas, or `all` [default: this machine's]
    #[arg(long, value_name = "ARCH", value_delimiter = ',', requires = "machines")]
    pub(crate) arch: Vec<String>,
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// Runs of each; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) runs: usize,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Bytes, with K, M, G or T for powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match text[number.len()..].to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return Err("a number of bytes, or with K, M, G or T: 500M, 10G".into()),
    };
    let number = number.parse::<u64>().map_err(|_| "a whole number, with K, M, G or T: 500M, 10G".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "too large".into())
}

impl SelectionOptions {
    /// What a run takes: rare and expensive checks only where they are asked for.
    pub(crate) fn usual(&self) -> Selection {
        let level = if self.checks.is_empty() { Some(Level::Should) } else { None };
        let given = self.selection();
        Selection { level: given.level.or(level), ..given }
    }

    pub(crate) fn selection(&self) -> Selection {
        Selection {
            checks: self.checks.clone(),
            level: self.level.map(Level::from),
            suites: self.suites.clone(),
            profiles: self.profiles.clone(),
        }
    }

    /// The options as they are written.
    pub(crate) fn words(&self) -> Vec<String> {
        let level = self.level.and_then(|level| level.to_possible_value()).map(|value| value.get_name().to_owned());
        let lists = [
            ("--check", &self.checks),
            ("--level", &level.into_iter().collect()),
            ("--suite", &self.suites),
            ("--profile", &self.profiles),
        ];
        let both = |option: &'static str, value: &String| [option.to_owned(), value.clone()];
        lists.iter().flat_map(|(option, values)| values.iter().flat_map(|value| both(option, value))).collect()
    }
}

impl From<LevelArg> for Level {
    fn from(level: LevelArg) -> Level {
        match level {
            LevelArg::Must => Level::Must,
            LevelArg::Should => Level::Should,
            LevelArg::Extra => Level::Extra,
        }
    }
}

impl SourceOptions {
    /// By the set's name in `components.yaml`; only the sets that are used.
    pub(crate) fn by_set(&self) -> std::collections::BTreeMap<String, Source> {
        let store = match self.store {
            StoreArg::Etcd => ("etcd", &self.etcd),
            StoreArg::KineSqlite | StoreArg::KineNats => ("kine", &self.kine),
        };
        [("kubernetes", &self.kubernetes), store].map(|(set, source)| (set.to_owned(), source.clone())).into()
    }

    pub(crate) fn store(&self) -> StoreKind {
        match self.store {
            StoreArg::Etcd => StoreKind::Etcd,
            StoreArg::KineSqlite => StoreKind::KineSqlite,
            StoreArg::KineNats => StoreKind::KineNats,
        }
    }
}
