//! The owner of the runners, and the credentials: options of all commands that talk to GitHub.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use model::Secret;

use crate::{App, Credentials, Error, Scope};

/// An option names a variable or a file that holds the token: every user of the machine can read the command line.
#[derive(Clone, Debug, ClapArgs)]
pub struct Access {
    /// Runners of this repository
    #[arg(long, value_name = "OWNER/NAME", conflicts_with = "org")]
    pub(crate) repo: Option<String>,
    /// Runners of this organisation
    #[arg(long, value_name = "ORG")]
    pub(crate) org: Option<String>,
    /// GitHub's API; plain http only to this machine
    #[arg(long, value_name = "URL", env = "GITHUB_API_URL", default_value = "https://api.github.com")]
    pub(crate) api_url: String,
    /// The environment variable with the token
    #[arg(long, value_name = "NAME", default_value = "GITHUB_RUNNER_TOKEN")]
    pub(crate) token_env: String,
    /// A file with the token
    #[arg(long, value_name = "FILE", conflicts_with = "app_id")]
    pub(crate) token_file: Option<PathBuf>,
    /// A GitHub App, by its id or client id
    #[arg(long, value_name = "ID", requires_all = ["installation_id", "app_key_file"])]
    pub(crate) app_id: Option<String>,
    /// Id of the App's installation
    #[arg(long, value_name = "N", requires = "app_id")]
    pub(crate) installation_id: Option<u64>,
    /// The App's private key, a PEM file
    #[arg(long, value_name = "FILE", requires = "app_id")]
    pub(crate) app_key_file: Option<PathBuf>,
    /// Longest wait for a rate limit of the server, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub(crate) max_wait: u64,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, ClapArgs)]
pub(crate) struct Output {
    /// Print the requests, with secrets as ***, and send none that changes anything
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

impl Access {
    pub(crate) fn scope(&self) -> Result<Scope, Error> {
        match (&self.repo, &self.org) {
            (Some(repo), _) => Scope::repo(repo),
            (None, Some(org)) => Scope::org(org),
            (None, None) => {
                Err(Error::Config("no owner of the runners is given: add --repo OWNER/NAME or --org ORG".into()))
            }
        }
    }

    /// The token from the environment variable.
    pub(crate) fn token(&self) -> Option<Secret> {
        from_env(&self.token_env)
    }

    /// Whether `api_url` is the API of this GitHub server: its own address, or `api.` before it.
    pub(crate) fn is_api_of(&self, host: &str) -> bool {
        let after_scheme = self.api_url.split_once("://").map_or("", |(_, rest)| rest);
        let api = after_scheme.split(['/', ':', '?']).next().unwrap_or_default();
        api.eq_ignore_ascii_case(host) || api.eq_ignore_ascii_case(&format!("api.{host}"))
    }

    /// The credentials. A dry run works without them.
    pub(crate) fn credentials(&self, scope: &Scope) -> Result<Credentials, Error> {
        if let (Some(id), Some(installation), Some(file)) = (&self.app_id, self.installation_id, &self.app_key_file) {
            return Ok(Credentials::App(Box::new(App::new(id, installation, &from_file(file)?, scope)?)));
        }
        stored_token(&self.token_env, self.token_file.as_deref(), self.output, |name| {
            format!(
                "no token: put one into the variable {name}, or give --token-env, --token-file or --app-id; it needs \
                 Administration: write on the repository, or Self-hosted runners: write on the organisation"
            )
        })
    }
}

/// The token from a file or from the variable `name`. A dry run works without one.
pub(super) fn stored_token(
    name: &str,
    file: Option<&Path>,
    output: Output,
    missing: impl Fn(&str) -> String,
) -> Result<Credentials, Error> {
    match file.map_or_else(|| Ok(from_env(name)), |file| from_file(file).map(Some))? {
        Some(token) => Ok(Credentials::Token(token)),
        None if output.dry_run => Ok(Credentials::None),
        None => Err(Error::Config(missing(name))),
    }
}

/// The value of the variable with this name; `None` if it is unset or empty.
fn from_env(name: &str) -> Option<Secret> {
    let secret = Secret::new(&std::env::var(name).ok()?);
    (!secret.is_empty()).then_some(secret)
}

/// The content of a file, which other users must not be able to read.
fn from_file(file: &Path) -> Result<Secret, Error> {
    read(file).map_err(|error| Error::Config(format!("{error:#}")))
}

fn read(file: &Path) -> anyhow::Result<Secret> {
    use std::os::unix::fs::PermissionsExt;
    let what = || format!("failed to read the secret in {}", file.display());
    let meta = std::fs::metadata(file).with_context(what)?;
    // A pipe from the shell's `<(…)` is not a regular file, and other users cannot open it.
    if meta.is_file() && meta.permissions().mode() & 0o077 != 0 {
        bail!("other users can read {0}: run `chmod 600 {0}`, and consider a new secret", file.display());
    }
    let secret = Secret::new(&std::fs::read_to_string(file).with_context(what)?);
    if secret.is_empty() {
        bail!("{} is empty", file.display());
    }
    Ok(secret)
}
