//! A branch that holds only data, such as the history of runs: fetched into a folder, and pushed from it.
//!
//! A workflow step alone cannot do this: the branch does not exist at first, and a folder without changes must not be
//! pushed. git gets the token through its environment, so that no command line and no file of the checkout contains it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cli::{Failure, OrExit};
use model::Exit;
use sys::exec::{Output, Shell, cmd, run as exec};
use sys::progress;

use crate::args::DataOptions;

const LIMIT: Duration = Duration::from_secs(300);
const NAME: &str = "archproof";
const MAIL: &str = "archproof@users.noreply.github.com";

/// Creates a folder with the branch's newest commit, or an empty one if the branch does not exist yet.
pub(super) fn fetch(options: &DataOptions) -> Result<Exit, Failure> {
    run(options, Git::fetch)
}

/// Commits and pushes the changes in the folder. Fails if another process has pushed in the meantime.
pub(super) fn push(options: &DataOptions) -> Result<Exit, Failure> {
    run(options, Git::push)
}

fn run<'a>(options: &'a DataOptions, work: fn(&Git<'a>) -> anyhow::Result<String>) -> Result<Exit, Failure> {
    let git = Git::new(options).or_exit(Exit::Usage)?;
    progress::say(&work(&git).or_exit(Exit::Infrastructure)?);
    Ok(Exit::Ok)
}

struct Git<'a> {
    shell: Shell,
    dir: &'a Path,
    branch: &'a str,
    remote: String,
    /// The settings for access with the token, if there is one.
    environment: Vec<(String, String)>,
}

impl<'a> Git<'a> {
    fn new(options: &'a DataOptions) -> anyhow::Result<Git<'a>> {
        let DataOptions { branch, dir, remote, server, repository, token } = options;
        if branch.starts_with('-') || branch.contains(char::is_whitespace) || branch.is_empty() {
            bail!("`{branch}` is not a branch name");
        }
        let remote = match remote {
            Some(remote) => remote.clone(),
            None => format!("{server}/{}", repository.as_deref().context("--repository is missing")?),
        };
        let mut environment = vec![("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned())];
        if let Some(token) = token.as_ref().filter(|token| !token.is_empty()) {
            let basic = STANDARD.encode(format!("x-access-token:{}", token.expose()));
            let settings = [
                ("GIT_CONFIG_COUNT", "1".to_owned()),
                ("GIT_CONFIG_KEY_0", format!("http.{server}/.extraheader")),
                ("GIT_CONFIG_VALUE_0", format!("AUTHORIZATION: basic {basic}")),
            ];
            environment.extend(settings.map(|(name, value)| (name.to_owned(), value)));
        }
        Ok(Git { shell: Shell::new()?, dir, branch, remote, environment })
    }

    fn run(&self, words: &[&str]) -> anyhow::Result<Output> {
        let dir = self.dir;
        let cmd = cmd!(self.shell, "git -C {dir} {words...}").envs(self.environment.iter().cloned());
        Ok(exec(cmd, LIMIT)?)
    }

    fn fetch(&self) -> anyhow::Result<String> {
        let Git { dir, branch, remote, .. } = self;
        std::fs::create_dir_all(dir).with_context(|| format!("failed to create {}", dir.display()))?;
        let head = format!("refs/heads/{branch}");
        self.run(&["init", "--quiet"])?;
        self.run(&["symbolic-ref", "HEAD", &head])?;
        if self.run(&["ls-remote", remote, &head])?.stdout.trim().is_empty() {
            return Ok(format!("branch {branch} does not exist yet"));
        }
        self.run(&["fetch", "--quiet", "--depth", "1", remote, &head])?;
        self.run(&["reset", "--quiet", "--hard", "FETCH_HEAD"])?;
        Ok(format!("fetched {branch}"))
    }

    fn push(&self) -> anyhow::Result<String> {
        let Git { branch, remote, .. } = self;
        self.run(&["add", "--all"])?;
        if self.run(&["status", "--porcelain"])?.stdout.trim().is_empty() {
            return Ok("no changes".into());
        }
        let (name, mail) = (format!("user.name={NAME}"), format!("user.email={MAIL}"));
        self.run(&["-c", &name, "-c", &mail, "commit", "--quiet", "--message", "Results of a run"])?;
        // Without force, so that lines from other jobs stay.
        self.run(&["push", "--quiet", remote, &format!("HEAD:refs/heads/{branch}")])?;
        Ok(format!("pushed {branch}"))
    }
}
