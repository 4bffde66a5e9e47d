//! Options of `bisect`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use cli::{CpuOptions, SourceOptions};
use provider::ProviderOptions;

/// The component set whose history is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SetArg {
    Kubernetes,
    Etcd,
}

impl SetArg {
    /// The name in `components.yaml`, which is also the name of the option for its source.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SetArg::Kubernetes => "kubernetes",
            SetArg::Etcd => "etcd",
        }
    }
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Finds the first commit on the first-parent line from GOOD to BAD at which the check fails. Each tested commit is checked
out in a worktree of its own, built, and tested by `ci` with the same seed. GOOD and BAD are tested first. A commit that
cannot be built, or fails for another reason, is skipped. At the end the culprit and its parent run on the control
architecture. The output folder then has bisect.json (every run) and issue.md (a report for the project).

Examples:
  cargo xtask bisect --arch ARCH --set etcd --checkout ../etcd --good v3.6.12 --bad v3.6.16 --check storage.create-txn
  cargo xtask bisect … --says 'mod revision'       only failures with this text count
  cargo xtask bisect … --repeat 5                  the failure is a race
  cargo xtask bisect … --provider process --kubernetes 1.35
  cargo xtask bisect … --dry-run                   what would run
  cargo xtask bisect --resume reports/bisect-20261127T120000Z
  cargo xtask bisect --resume DIR --skip COMMIT    go on without a commit that breaks the environment

Exit codes: 0 the commit was found, 2 usage, or GOOD or BAD is not as stated, 4 several commits remain because the
others were skipped, or the check cannot run there, 101 GOOD or BAD cannot be built, 102 boot or other infrastructure
failed, 130 interrupted; after 102 and 130 --resume goes on, and after 4 and 101 it also repeats the builds that
failed.")]
pub struct BisectOptions {
    /// Architecture on which the check fails
    #[arg(long, value_name = "ARCH", required_unless_present = "resume")]
    pub(crate) arch: Option<String>,
    /// Component set whose commits are searched
    #[arg(long, value_enum, value_name = "SET", required_unless_present = "resume")]
    pub(crate) set: Option<SetArg>,
    /// Clone of its repository; it is not changed
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    pub(crate) checkout: Option<PathBuf>,
    /// Commit, tag or branch at which the check passes, on the first-parent line of BAD
    #[arg(long, value_name = "REF", required_unless_present = "resume")]
    pub(crate) good: Option<String>,
    /// Commit, tag or branch at which the check fails
    #[arg(long, value_name = "REF", required_unless_present = "resume")]
    pub(crate) bad: Option<String>,
    /// Id of the check, as `list` prints it
    #[arg(long, value_name = "ID", required_unless_present = "resume")]
    pub(crate) check: Option<String>,
    /// Only on this profile of the check
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Count only failures whose message or evidence contains this text; a commit with another failure is skipped
    #[arg(long, value_name = "TEXT")]
    pub(crate) says: Option<String>,
    /// Architecture on which the result is compared, or `none` [default: this machine's]
    #[arg(long, value_name = "ARCH")]
    pub(crate) control: Option<String>,
    /// Runs of each commit at most, for failures that do not occur in every run [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) repeat: Option<NonZeroUsize>,
    /// Seed of all runs [default: a new one, which is recorded]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Leave this commit out, even if it was tested; may be repeated, also with --resume
    #[arg(long, value_name = "REF")]
    pub(crate) skip: Vec<String>,
    #[command(flatten)]
    pub(crate) provider: ProviderOptions,
    #[command(flatten)]
    pub(crate) cpu: CpuOptions,
    #[command(flatten)]
    pub(crate) sources: SourceOptions,
    /// New folder for the results [default: bisect-TIME in the reports folder]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with the search in this folder; other options must be as before, or absent
    #[arg(long, value_name = "DIR")]
    pub(crate) resume: Option<PathBuf>,
    /// Print the commits and the commands, and do nothing
    #[arg(long, conflicts_with_all = ["resume", "json"])]
    pub(crate) dry_run: bool,
    /// Print the final bisect.json on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
