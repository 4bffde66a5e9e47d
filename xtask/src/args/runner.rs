//! Options of `runner`.

mod access;
mod gitlab;
mod look;
mod register;

use clap::{Args as ClapArgs, Subcommand};

use super::machines::{RequestOptions, RunnerDoctorOptions, RunnerUpOptions, UserdataOptions};

pub(crate) use access::{Access, Output};
pub(crate) use gitlab::{GitlabAccess, GitlabCommand, GitlabCreateOptions, GitlabOptions, GitlabRmOptions};
pub(crate) use look::{AuditForm, AuditOptions, GcOptions as RunnerGcOptions, ProvidersOptions, ScaleOptions};
pub(crate) use register::{
    JitOptions, LabelsCommand, LabelsOptions, ReachOptions, RmOptions, RunnerListOptions, TokenKind, TokenOptions,
};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask runner providers
  GITHUB_RUNNER_TOKEN=… cargo xtask runner jit --repo OWNER/NAME --arch ARCH --out jit.config
  cargo xtask runner list --org ORG --app-id 7 --installation-id 8 --app-key-file key.pem
  cargo xtask runner audit --repo OWNER/NAME --format markdown
  cargo xtask runner gc --repo OWNER/NAME --dry-run

Exit codes: 0 ok, 2 usage or configuration, 3 no access, 4 conflict or busy, 5 the other side or one of its limits,
6 refused by our own rules, 96 invalid target data, 130 interrupted.")]
pub(crate) struct RunnerOptions {
    #[command(subcommand)]
    pub(crate) command: RunnerCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RunnerCommand {
    /// Tell who gives machines of which architecture, and how one comes to them
    Providers(ProvidersOptions),
    /// Get a token that registers or removes runners by hand
    Token(TokenOptions),
    /// Register a runner for one job, and write what its agent is started with
    Jit(JitOptions),
    /// List the runners
    List(RunnerListOptions),
    /// Show or change the labels of a runner
    Labels(LabelsOptions),
    /// Delete a runner
    Rm(RmOptions),
    /// Delete what earlier runs have left: offline runners that were made here
    Gc(Box<RunnerGcOptions>),
    /// Tell for which waiting jobs machines are missing
    Scale(Box<ScaleOptions>),
    /// Tell how safe and how current the runners are
    Audit(AuditOptions),
    /// Print an application for machines, from answers
    Request(RequestOptions),
    /// Print what a new machine is told at its first start, so that it becomes a runner for one job
    Userdata(UserdataOptions),
    /// Make a server of a cloud that is a runner for one job, or start one here
    #[command(name = "up")]
    Start(Box<RunnerUpOptions>),
    /// Tell, on the machine that is to become a runner, which kinds of jobs it can serve
    Doctor(RunnerDoctorOptions),
    /// Runners for GitLab
    Gitlab(GitlabOptions),
}
