//! Options of `runner`.

use clap::{Args as ClapArgs, Subcommand};

use super::machines::{RequestOptions, UserdataOptions};

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct RunnerOptions {
    #[command(subcommand)]
    pub(crate) command: RunnerCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RunnerCommand {
    /// Print what a new machine is told at its first start, so that it becomes a runner for one job
    Userdata(UserdataOptions),
    /// Print an application for machines, from answers
    Request(RequestOptions),
}
