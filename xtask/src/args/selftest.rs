//! `cargo xtask selftest`.

use clap::Args as ClapArgs;
use cli::SourceOptions;
use provider::ProviderOptions;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Each mutant is the real server behind a proxy that breaks one promise, or with wrong flags. The check that the mutant
names must fail on it. The same check must pass behind a proxy that breaks nothing. The exit code is 1 if a mutant
survives: the suite has a gap.

Examples:
  cargo xtask selftest
  cargo xtask selftest --mutant watch. --seed 7
  cargo xtask selftest --dry-run                  the table of mutants")]
pub(crate) struct SelftestOptions {
    /// Architecture [default: this machine's]
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: Option<String>,
    /// Mutants whose id starts with this prefix; may be repeated
    #[arg(long = "mutant", value_name = "PREFIX")]
    pub(crate) mutants: Vec<String>,
    /// Seed of all random choices [default: a new one, which is printed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) provider: ProviderOptions,
    #[command(flatten)]
    pub(crate) sources: SourceOptions,
    /// Only print the mutants
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
