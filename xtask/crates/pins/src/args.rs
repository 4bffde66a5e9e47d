//! The arguments of `cargo xtask pins`.

use clap::{Args as ClapArgs, Subcommand};
use model::Secret;

use crate::version::{Minor, Version};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask pins check                           the newest versions of everything that is pinned
  cargo xtask pins bump --set kine                 pin the newest release of a set, as one commit
  cargo xtask pins bump --set etcd --minor --dry-run
  cargo xtask pins pr --repo OWNER/NAME            one pull request for each set with a newer patch")]
pub struct PinsOptions {
    #[command(subcommand)]
    pub(crate) command: PinsCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PinsCommand {
    /// Compare the pinned versions with the newest ones upstream
    Check(CheckOptions),
    /// Pin newer versions, with one commit for each release
    Bump(BumpOptions),
    /// Pin newer patches on branches, and open a pull request for each
    Pr(PrOptions),
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask pins check
  cargo xtask pins check --set kubernetes --set go
  cargo xtask pins check --json | jq '.[] | select(.overdue)'

States: `current`, `patch available`, `minor missing` (with the days since the first such release), `pre-release`,
`not checked` (a lock, with its age), `unknown` (with the reason).

Exit codes: 0 everything is current, or newer versions are at most 14 days old; 100 a version is overdue: a newer patch,
or a missing minor that upstream supports, is older; 102 a version is unknown. 100 wins.")]
pub(crate) struct CheckOptions {
    /// A set of targets/components.yaml, `go`, `actions`, `agents` or `debian`; may be repeated [default: all]
    #[arg(long = "set", value_name = "NAME")]
    pub(crate) sets: Vec<String>,
    #[command(flatten)]
    pub(crate) json: cli::JsonOptions,
    #[command(flatten)]
    pub(crate) hub: HubOptions,
}

/// GitHub's API.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct HubOptions {
    /// GitHub's API; plain http only to this machine
    #[arg(long, value_name = "URL", env = "GITHUB_API_URL", default_value = "https://api.github.com", hide = true)]
    pub(crate) api_url: String,
    /// From the variable, because other users can read the command line
    #[arg(long, hide = true, env = "GITHUB_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask pins bump --dry-run
  cargo xtask pins bump --set kine
  cargo xtask pins bump --set kubernetes --to v1.35.8
  cargo xtask pins bump --set etcd --minor 3.8

A set with `releases` gets the newest patch of each minor; another set gets its newest release. A set that follows
another one changes only with --to. With --minor, the command drafts a new minor and lists the remaining steps.")]
pub(crate) struct BumpOptions {
    /// A set of targets/components.yaml; may be repeated [default: all sets]
    #[arg(long = "set", value_name = "NAME")]
    pub(crate) sets: Vec<String>,
    /// This version instead of the newest; it selects the release of its minor
    #[arg(long, value_name = "VERSION", value_parser = version, requires = "sets", conflicts_with = "minor")]
    pub(crate) to: Option<Version>,
    /// Draft this minor, or the newest missing one
    #[arg(long, value_name = "MINOR", value_parser = minor, num_args = 0..=1, requires = "sets")]
    pub(crate) minor: Option<Option<Minor>>,
    /// Print what would be pinned, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Change the files without a commit
    #[arg(long)]
    pub(crate) no_commit: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  GITHUB_TOKEN=… cargo xtask pins pr --repo OWNER/NAME
  cargo xtask pins pr --repo OWNER/NAME --set etcd --dry-run

Each branch is named pins/SET-VERSION. A branch with an open pull request is left alone.

Exit codes: 0 done, 2 usage, 3 no access, 5 a remote error or limit, 102 a version could not be pinned or pushed,
130 interrupted.")]
pub(crate) struct PrOptions {
    /// The repository on GitHub
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) repo: String,
    /// A set of targets/components.yaml; may be repeated [default: all sets]
    #[arg(long = "set", value_name = "NAME")]
    pub(crate) sets: Vec<String>,
    /// Print the branches and requests, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) hub: HubOptions,
    /// The address to push to [default: that of the repository on SERVER]
    #[arg(long, value_name = "URL")]
    pub(crate) remote: Option<String>,
    #[arg(long, value_name = "URL", default_value = "https://github.com", env = "GITHUB_SERVER_URL", hide = true)]
    pub(crate) server: String,
}

fn version(text: &str) -> Result<Version, String> {
    Version::parse(text).ok_or_else(|| "expected a release such as v1.36.3".to_owned())
}

fn minor(text: &str) -> Result<Minor, String> {
    Minor::parse(text).ok_or_else(|| "expected a minor such as 1.36".to_owned())
}
