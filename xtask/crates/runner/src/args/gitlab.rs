//! Options of `runner gitlab`.

use std::path::PathBuf;

use clap::{ArgGroup, Args as ClapArgs, Subcommand};

use super::Output;
use super::access::stored_token;
use crate::{Credentials, Error};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  GITLAB_TOKEN=… cargo xtask runner gitlab create --project 17 --arch ARCH --out config.toml
  cargo xtask runner gitlab rm 4711

GitLab Runner is released for every architecture here: https://docs.gitlab.com/runner/install/")]
pub(crate) struct GitlabOptions {
    #[command(subcommand)]
    pub(crate) command: GitlabCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum GitlabCommand {
    /// Create a runner, and write the config.toml of its agent
    Create(GitlabCreateOptions),
    /// Delete a runner
    Rm(GitlabRmOptions),
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct GitlabAccess {
    /// GitLab server; plain http only for this machine
    #[arg(long, value_name = "URL", env = "CI_SERVER_URL", default_value = "https://gitlab.com")]
    pub(crate) url: String,
    /// The environment variable with the token; it needs the scope `create_runner` or `manage_runner`
    #[arg(long, value_name = "NAME", default_value = "GITLAB_TOKEN")]
    pub(crate) token_env: String,
    /// A file with the token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(group = ArgGroup::new("owner").required(true).args(["project", "of_group"]))]
pub(crate) struct GitlabCreateOptions {
    #[command(flatten)]
    pub(crate) access: GitlabAccess,
    /// Project of the runner, by its number
    #[arg(long, value_name = "N")]
    pub(crate) project: Option<u64>,
    /// Group of the runner, by its number
    #[arg(long = "group", id = "of_group", value_name = "N")]
    pub(crate) of_group: Option<u64>,
    /// Architecture of the machine; it becomes a tag
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: String,
    /// Further tags, separated by commas
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    pub(crate) tags: Vec<String>,
    /// Executor of the jobs
    #[arg(long, value_name = "EXECUTOR", default_value = "shell", value_parser = ["shell", "docker"])]
    pub(crate) executor: String,
    /// Image for jobs that name none, with --executor docker
    #[arg(long, value_name = "IMAGE", default_value = "debian:stable-slim")]
    pub(crate) image: String,
    /// Output file for config.toml; it contains the runner's token, and only its owner can read it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct GitlabRmOptions {
    #[command(flatten)]
    pub(crate) access: GitlabAccess,
    #[arg(value_name = "ID")]
    pub(crate) id: u64,
}

impl GitlabAccess {
    pub(crate) fn credentials(&self) -> Result<Credentials, Error> {
        stored_token(&self.token_env, self.token_file.as_deref(), self.output, |name| {
            format!(
                "no token: put one with the scope `create_runner` into the variable {name}, or give --token-env or \
                 --token-file"
            )
        })
    }
}
