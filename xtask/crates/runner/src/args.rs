//! Options of `runner`.

mod access;
mod gitlab;
mod look;
mod machines;
mod register;

use clap::{Args as ClapArgs, Subcommand};

pub use access::Access;

pub(crate) use access::Output;
pub(crate) use gitlab::{GitlabAccess, GitlabCommand, GitlabCreateOptions, GitlabOptions, GitlabRmOptions};
pub(crate) use look::{AuditForm, AuditOptions, GcOptions, ProvidersOptions, ScaleOptions};
pub(crate) use machines::{
    CloudOptions, MakeOptions, RequestOptions, RunnerDoctorOptions, RunnerUpOptions, UserdataOptions, WorkerOptions,
};
pub(crate) use register::{JitOptions, LabelsCommand, LabelsOptions, ReachOptions, RmOptions, TokenKind, TokenOptions};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner providers
  GITHUB_RUNNER_TOKEN=… cargo xtask runner jit --repo OWNER/NAME --arch ARCH --out jit.config
  cargo xtask runner list --org ORG --app-id 7 --installation-id 8 --app-key-file key.pem
  cargo xtask runner audit --repo OWNER/NAME --format markdown
  cargo xtask runner gc --repo OWNER/NAME --dry-run

Exit codes: 0 ok, 2 usage or configuration, 3 no access, 4 conflict or busy, 5 a remote error or limit,
6 refused by a rule, 96 invalid target data, 130 interrupted.")]
pub struct RunnerOptions {
    #[command(subcommand)]
    pub(crate) command: RunnerCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RunnerCommand {
    /// List who provides machines of which architecture, and how to get one
    Providers(ProvidersOptions),
    /// Get a token that registers or removes runners by hand
    Token(TokenOptions),
    /// Register a runner for one job, and write the configuration of its agent
    Jit(JitOptions),
    /// List the runners
    List(Access),
    /// Show or change the labels of a runner
    Labels(LabelsOptions),
    /// Delete a runner
    Rm(RmOptions),
    /// Delete leftovers of earlier runs: offline runners and servers that this command made
    Gc(Box<GcOptions>),
    /// Start machines for waiting jobs
    Scale(Box<ScaleOptions>),
    /// Check how safe and how current the runners are
    Audit(AuditOptions),
    /// Print an application for machines from a file of answers
    Request(RequestOptions),
    /// Print the cloud-init user data that turns a new server into a runner for one job
    Userdata(UserdataOptions),
    /// Start a runner for one job, on a new cloud server or on this machine
    #[command(name = "up")]
    Start(Box<RunnerUpOptions>),
    /// Check which kinds of jobs this machine can run as a runner
    Doctor(RunnerDoctorOptions),
    /// Manage runners for GitLab
    Gitlab(GitlabOptions),
}
