//! Options of the commands that register, change and delete runners.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::Access;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner token --repo OWNER/NAME --kind register > token
  cargo xtask runner token --org ORG --kind remove --reveal

For one hour, anyone with such a token can register any number of runners, also persistent ones. `runner jit` registers
one runner for one job.")]
pub(crate) struct TokenOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// Purpose of the token
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) kind: TokenKind,
    /// Print the token even if stdout is a terminal
    #[arg(long)]
    pub(crate) reveal: bool,
    /// Allow a public repository, although jobs of strangers could run on a persistent runner
    #[arg(long)]
    pub(crate) allow_persistent_public: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenKind {
    Register,
    Remove,
}

/// Where a new runner is registered, and which workflows can reach it.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ReachOptions {
    /// Runner group of the organisation, by name or id
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Allow a runner of a public repository that any workflow can reach; then only the approval of runs from forks
    /// protects it
    #[arg(long)]
    pub(crate) allow_any_workflow: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner jit --repo OWNER/NAME --arch ARCH --out jit.config
  cargo xtask runner jit --org ORG --group GROUP --arch ARCH --runner NAME --out jit.config
  cargo xtask runner jit --repo OWNER/NAME --arch ARCH --out jit.config --dry-run

The command refuses a runner that pull requests from forks can reach, with exit code 6: GitHub's settings must require
an approval for all external contributors, and must restrict the runner group to named workflows.

On the machine, start the agent as an unprivileged user; it reads the configuration from its environment:
  ACTIONS_RUNNER_INPUT_JITCONFIG=$(cat jit.config) ./run.sh")]
pub(crate) struct JitOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// The architecture of the machine
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: String,
    /// Name of the architecture's runner in targets/matrix.yaml [default: the project's own]
    #[arg(long, value_name = "RUNNER")]
    pub(crate) runner: Option<String>,
    /// Name of the new runner [default: archproof-ARCH-TIME-XXXX; `gc` deletes only such names]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) reach: ReachOptions,
    /// Labels to use instead of the runner's, separated by commas
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    pub(crate) labels: Vec<String>,
    /// Output file for the configuration; it contains a private key, and only its owner can read it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner labels show board-1 --repo OWNER/NAME
  cargo xtask runner labels set board-1 self-hosted linux ARCH --repo OWNER/NAME
  cargo xtask runner labels rm 17 X64 --repo OWNER/NAME")]
pub(crate) struct LabelsOptions {
    #[command(subcommand)]
    pub(crate) command: LabelsCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LabelsCommand {
    /// Print the labels
    Show(RunnerOf),
    /// Replace all labels that GitHub did not assign
    Set {
        #[command(flatten)]
        of: RunnerOf,
        #[arg(value_name = "LABEL")]
        labels: Vec<String>,
    },
    /// Add labels
    Add {
        #[command(flatten)]
        of: RunnerOf,
        #[arg(value_name = "LABEL", required = true)]
        labels: Vec<String>,
    },
    /// Remove labels
    Rm {
        #[command(flatten)]
        of: RunnerOf,
        #[arg(value_name = "LABEL", required = true)]
        labels: Vec<String>,
    },
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct RunnerOf {
    #[command(flatten)]
    pub(crate) access: Access,
    #[arg(value_name = "ID|NAME")]
    pub(crate) runner: String,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner rm --repo OWNER/NAME board-1
  cargo xtask runner rm --org ORG 17 --force")]
pub(crate) struct RmOptions {
    #[command(flatten)]
    pub(crate) of: RunnerOf,
    /// Ask GitHub to delete the runner even if it is busy
    #[arg(long)]
    pub(crate) force: bool,
}

impl LabelsCommand {
    pub(crate) fn of(&self) -> &RunnerOf {
        match self {
            LabelsCommand::Show(of)
            | LabelsCommand::Set { of, .. }
            | LabelsCommand::Add { of, .. }
            | LabelsCommand::Rm { of, .. } => of,
        }
    }
}
