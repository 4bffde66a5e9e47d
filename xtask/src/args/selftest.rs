//! `cargo xtask selftest`.

use clap::Args as ClapArgs;
use cli::SourceOptions;
use provider::ProviderOptions;
use suite::Shard;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Each mutant is the real server behind a proxy that breaks one promise, or with wrong flags. The check that the mutant
names must fail on it. The same check must pass behind a proxy that breaks nothing. The exit code is 1 if a mutant
survives: the suite has a gap.

With --regressions, released versions with known defects (targets/regressions.yaml) take the place of the mutants: the
check that an entry names must find the defect within its number of tries, and pass on the fixed version. They run
natively on this machine. The exit code is 1 if a defect was not found, 102 if a version could not be tested.

Examples:
  cargo xtask selftest
  cargo xtask selftest --mutant watch. --seed 7
  cargo xtask selftest --shard 3/10               every tenth mutant
  cargo xtask selftest --skip skew. --skip upgrade.   without those that need earlier minors
  cargo xtask selftest --dry-run                  the table of mutants
  cargo xtask selftest --regressions              every released version with a known defect
  cargo xtask selftest --regressions --regression etcd-18089
  cargo xtask selftest --regressions --dry-run    the versions and commands")]
pub(crate) struct SelftestOptions {
    /// Architecture [default: this machine's]
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: Option<String>,
    /// Mutants whose id starts with this prefix; may be repeated
    #[arg(long = "mutant", value_name = "PREFIX")]
    pub(crate) mutants: Vec<String>,
    /// No mutants whose id starts with this prefix; may be repeated
    #[arg(long, value_name = "PREFIX")]
    pub(crate) skip: Vec<String>,
    /// Only part I of N of these mutants: every N-th one
    #[arg(long, value_name = "I/N")]
    pub(crate) shard: Option<Shard>,
    /// Run released versions with known defects instead of mutants
    #[arg(long, conflicts_with_all = [
        "arch", "mutants", "skip", "shard", "provider", "cluster", "image", "cold", "qemu", "locked", "debian_mirror",
        "kubernetes", "etcd", "kine", "client", "exported", "store",
    ])]
    pub(crate) regressions: bool,
    /// Only the entry of targets/regressions.yaml with this id; may be repeated
    #[arg(long = "regression", value_name = "ID", requires = "regressions")]
    pub(crate) regression_ids: Vec<String>,
    /// Seed of all random choices [default: a new one, which is printed]; each try of a regression adds one
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) provider: ProviderOptions,
    #[command(flatten)]
    pub(crate) sources: SourceOptions,
    /// Only print the mutants or regressions
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
