//! The command line. Environment variables are read here and nowhere else.

mod audit;
mod build;
mod cluster;
mod fetch;
mod inspect;
mod internal;
mod selftest;
mod test;
mod upstream;

use std::num::NonZeroUsize;

use bench::BenchOptions;
use bisect::BisectOptions;
use clap::{Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use cli::{CpuOptions, JsonOptions, Places, SourceOptions, size};
use differential::DifferentialOptions;
use dist::DistOptions;
use doctor::DoctorOptions;
use fuzzer::FuzzOptions;
use model::{CiJob, Level};
use pins::PinsOptions;
use provider::ProviderOptions;
use publish::{CompareOptions, FlavourArg, ReportOptions};
use runner::RunnerOptions;
use suite::{Selection, Shard};
use workflows::{KeysOptions, MatrixOptions, WorkflowRun, WorkflowsOptions};

pub(crate) use audit::AuditOptions;
pub(crate) use build::BuildOptions;
pub(crate) use cluster::{KubectlOptions, LogsOptions, NameOptions, ShellOptions, UpOptions};
pub(crate) use fetch::FetchOptions;
use images::ImagesOptions;
pub(crate) use inspect::InspectOptions;
pub(crate) use internal::{HostForwardOptions, SuperviseOptions};
pub(crate) use selftest::SelftestOptions;
pub(crate) use test::TestOptions;
pub(crate) use upstream::UpstreamOptions;

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
  cargo xtask ci --arch ARCH --provider process   another architecture under qemu-user; see `cargo xtask targets`
  cargo xtask ci --check watch. --seed 7          only the watch checks, with a given seed
  cargo xtask explain watch.expired-410           what a check requires, and how to reproduce it by hand
  cargo xtask up && cargo xtask down              a control plane to experiment with

Exit codes: 0 all as expected, 2 usage, 4 nothing ran, 96 invalid target data, 100 conformance failures,
101 build failed, 102 boot or other infrastructure failed, 130 interrupted, 1 a bug in the harness.";

/// The commands by purpose, in the order of the help.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Run the checks", &["ci", "test", "bisect", "doctor", "build", "audit", "images", "dist", "fetch", "cache"]),
    (
        "Look at checks and clusters",
        &["list", "explain", "targets", "up", "down", "logs", "shell", "kubectl", "inspect"],
    ),
    ("Prove that the results are right", &["selftest", "differential", "rejudge", "compare", "fuzz", "bench"]),
    ("Publish results, run in CI", &["report", "matrix", "workflows"]),
    ("Keep up with upstream", &["pins"]),
    ("Manage machines", &["runner"]),
];

/// The command line; its help lists the commands by purpose.
fn command() -> clap::Command {
    let command = Args::command();
    let line = |name: &&str| {
        let about = command.find_subcommand(name).and_then(clap::Command::get_about);
        format!("  {name:<13}{}\n", about.map(ToString::to_string).unwrap_or_default())
    };
    let group =
        |(title, names): &(&str, &[&str])| format!("{title}:\n{}\n", names.iter().map(line).collect::<String>());
    let groups: String = GROUPS.iter().map(group).collect();
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

/// Parses the arguments of this process.
pub(crate) fn parse() -> Result<Args, clap::Error> {
    Args::from_arg_matches(&command().try_get_matches()?)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build, boot, test, report: the whole pipeline
    Ci(CiOptions),
    /// Test an external cluster through its kubeconfig
    Test(TestOptions),
    /// Send the same generated requests to two architectures, and show what differs
    Differential(DifferentialOptions),
    /// Find the commit of Kubernetes or etcd since which a check fails
    Bisect(BisectOptions),
    /// Cross-build and audit the components
    Build(BuildOptions),
    /// Name the known defects of the Go release that built a program
    Audit(AuditOptions),
    /// Build OCI images of the components, or audit an image for programs of the wrong architecture
    Images(ImagesOptions),
    /// Build archives of the harness for machines of any architecture
    Dist(DistOptions),
    /// Download, verify and unpack the packages for system VMs
    Fetch(FetchOptions),
    /// Check whether this machine is ready for a run, and print fixes for the problems
    Doctor(DoctorOptions),
    /// List, prune and verify the cache; print cache keys for CI
    Cache(CacheOptions),
    /// Start control planes and leave them running
    Up(UpOptions),
    /// Stop a cluster that `up` started
    Down(NameOptions),
    /// Print the log of a component that `up` started
    Logs(LogsOptions),
    /// Open a root shell in a VM that `up` started, or run a command there
    Shell(ShellOptions),
    /// Run kubectl on a cluster that `up` started
    Kubectl(KubectlOptions),
    /// List the checks
    List(ListOptions),
    /// Explain a check: its requirement, the source, and how to reproduce it by hand
    Explain(ExplainOptions),
    /// Print the architectures and the pinned releases, or the errors in their files
    Targets(JsonOptions),
    /// Prove that the checks can fail: run them against mutants, servers that each break one promise
    Selftest(SelftestOptions),
    /// Judge a recorded run again, from its files alone
    Rejudge(RejudgeOptions),
    /// Compare recorded runs: stored bytes, answers, outcomes, times
    Compare(CompareOptions),
    /// Create reports from recorded runs: JUnit, a site, badges, history and more
    Report(ReportOptions),
    /// List and decode the keys in the store of a cluster that `up` started
    Inspect(InspectOptions),
    /// Print the CI jobs for an event, as JSON
    Matrix(MatrixOptions),
    /// Render and lint the CI workflows, and evaluate their results
    Workflows(WorkflowsOptions),
    /// Compare the pinned versions with upstream, and pin newer ones
    Pins(PinsOptions),
    /// Manage CI runners on machines of rare architectures: find, register, audit, delete
    Runner(RunnerOptions),
    /// Measure the harness against baselines taken in the same run
    Bench(BenchOptions),
    /// Run generated inputs through all parsers of external data
    Fuzz(FuzzOptions),
    /// Forward a connection from a guest to this machine; only QEMU runs this
    #[command(hide = true)]
    HostForward(HostForwardOptions),
    /// Run a program, and end it together with all its descendants; only `runner up --local` runs this
    #[command(hide = true)]
    Supervise(SuperviseOptions),
}

/// Whether these words are a valid command line. A placeholder for a variable counts as a word.
pub(crate) fn accepts(words: &[&str]) -> Result<(), String> {
    match Args::try_parse_from(["cargo xtask"].iter().chain(words)) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct SelectionOptions {
    /// Check id, prefix (`watch.`) or glob (`*.media-type-*`); may be repeated
    #[arg(long = "check", value_name = "PATTERN")]
    pub(crate) checks: Vec<String>,
    /// Checks of this level and stronger ones [default for runs: should, or any level for checks named by --check]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) level: Option<LevelArg>,
    /// storage, watch, list, rv, cc, client, apf, fault, stress, cluster or suite, for `ci` also upstream; may be repeated
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
    /// Run the same as this job of the matrix; see `cargo xtask matrix`
    #[arg(long, value_name = "ID", conflicts_with_all = ["arch", "provider", "checks", "level", "suites", "profiles", "shard", "durations"])]
    pub(crate) like_ci: Option<String>,
    #[command(flatten)]
    pub(crate) workflow_run: WorkflowRun,
    /// The CI job that this run represents; `--like-ci` sets it.
    #[arg(skip)]
    pub(crate) job: Option<CiJob>,
    #[command(flatten)]
    pub(crate) provider: ProviderOptions,
    #[command(flatten)]
    pub(crate) cpu: CpuOptions,
    #[command(flatten)]
    pub(crate) sources: SourceOptions,
    #[command(flatten)]
    pub(crate) selection: SelectionOptions,
    #[command(flatten)]
    pub(crate) upstream: UpstreamOptions,
    /// Seed of all random choices [default: a new one, which is printed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Only this shard of the selected checks; 2/4 is the second of four
    #[arg(long, value_name = "I/N")]
    pub(crate) shard: Option<Shard>,
    /// Durations that balance the shards: a run folder or a YAML file [default: targets/durations.yaml]
    #[arg(long, value_name = "RUN|FILE", requires = "shard")]
    pub(crate) durations: Option<String>,
    /// Number of architectures to run at the same time [default: as many as processors and memory allow]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Number of checks to run at the same time, on each architecture
    #[arg(long, value_name = "N", default_value = "12")]
    pub(crate) parallel_checks: NonZeroUsize,
    /// Keep the private folder (keys, store data) until the next run; a VM stays up until Ctrl-C or `down`
    #[arg(long)]
    pub(crate) keep: bool,
    /// Let every check remove its objects, and report those that remain; a cluster with a node and external clusters always
    /// do. Otherwise they end with the control planes
    #[arg(long)]
    pub(crate) clean_up: bool,
    /// Open a root shell in the VM before its teardown if a result is unexpected
    #[arg(long, conflicts_with = "json")]
    pub(crate) shell_on_fail: bool,
    /// Print what would be built, started and checked, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Format of the JUnit files
    #[arg(long, value_enum, value_name = "FLAVOUR", default_value = "strict")]
    pub(crate) junit_flavour: FlavourArg,
    /// Print the run's record (run.json) on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Show every pass
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Show only problems
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
    /// List the entries, with size and last use
    List(JsonOptions),
    /// Remove entries that have not been used for a long time; entries in use stay
    Prune(PruneOptions),
    /// Print the keys under which a CI system caches slow build results and downloads
    Keys(KeysOptions),
    /// Verify every download and unpacked file, and remove damaged ones
    Verify,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct PruneOptions {
    /// Keep entries that were used within this many days
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) keep_days: u32,
    /// Keep the most recently used entries, up to this total size: 500M, 10G
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "keep_days")]
    pub(crate) max_size: Option<u64>,
    /// Keep only entries in use
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
    /// Print a new targets/durations.yaml, computed from this run folder; may be repeated
    #[arg(long, value_name = "RUN", conflicts_with_all = ["checks", "level", "suites", "profiles", "json"])]
    pub(crate) durations: Vec<String>,
    /// Print the table as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ExplainOptions {
    /// Id of the check, as `list` prints it
    pub(crate) id: String,
    /// Print it as JSON
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
    /// Read the files without judging them: the baseline of a benchmark
    #[arg(long, hide = true)]
    pub(crate) only_read: bool,
}

impl SelectionOptions {
    /// The default selection of a run: `extra` checks only if `--level` or `--check` selects them.
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

    /// The options as command-line arguments.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_each_command_once_with_its_purpose() {
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let args = Args::command();
        let mut visible: Vec<&str> =
            args.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name).collect();
        listed.sort_unstable();
        visible.sort_unstable();
        assert_eq!(listed, visible);
        let help = command().render_help().to_string();
        assert!(help.contains("  explain      Explain a check: its requirement"), "{help}");
    }
}
