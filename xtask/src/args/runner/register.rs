//! Options of what registers, changes and deletes runners.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::Access;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner token --repo OWNER/NAME --kind register > token
  cargo xtask runner token --org ORG --kind remove --reveal

With such a token anybody registers as many runners as he likes for an hour, also ones that stay. `runner jit` registers
one, for one job.")]
pub(crate) struct TokenOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// What it is for
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) kind: TokenKind,
    /// Print it although stdout is a terminal
    #[arg(long)]
    pub(crate) reveal: bool,
    /// Although the repository is public: jobs of strangers could run on a runner that stays
    #[arg(long)]
    pub(crate) allow_persistent_public: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenKind {
    Register,
    Remove,
}

/// Where a new runner is registered, and which workflows reach it there.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ReachOptions {
    /// A runner group of the organisation, by name or id
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Register a runner of a public repository although any workflow can reach it: only the approval of runs from forks
    /// protects it then
    #[arg(long)]
    pub(crate) allow_any_workflow: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner jit --repo OWNER/NAME --arch ARCH --out jit.config
  cargo xtask runner jit --org ORG --group GROUP --arch ARCH --runner NAME --out jit.config
  cargo xtask runner jit --repo OWNER/NAME --arch ARCH --out jit.config --dry-run

A runner that pull requests from forks can reach is refused with exit code 6: GitHub's settings must require an approval
for all external contributors, and the runner group must be restricted to named workflows.

On the machine, as a user without rights, the agent takes it from its environment:
  ACTIONS_RUNNER_INPUT_JITCONFIG=$(cat jit.config) ./run.sh")]
pub(crate) struct JitOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// The architecture of the machine
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: String,
    /// Which of the architecture's runners in targets/matrix.yaml it is [default: the project's own]
    #[arg(long, value_name = "RUNNER")]
    pub(crate) runner: Option<String>,
    /// Its name [default: archproof-ARCH-TIME-XXXX; `gc` knows only those]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) reach: ReachOptions,
    /// Other labels than those of the runner, separated by commas
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    pub(crate) labels: Vec<String>,
    /// Where the configuration goes; it holds a private key, and only you can read it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct RunnerListOptions {
    #[command(flatten)]
    pub(crate) access: Access,
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
    /// Print them
    Show(RunnerOf),
    /// Replace all that GitHub did not give
    Set {
        #[command(flatten)]
        of: RunnerOf,
        #[arg(value_name = "LABEL")]
        labels: Vec<String>,
    },
    /// Add some
    Add {
        #[command(flatten)]
        of: RunnerOf,
        #[arg(value_name = "LABEL", required = true)]
        labels: Vec<String>,
    },
    /// Take some away
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
    pub(crate) access: Access,
    #[arg(value_name = "ID|NAME")]
    pub(crate) runner: String,
    /// Ask GitHub to delete it although it is busy
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
