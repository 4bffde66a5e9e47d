//! The git commands of `pins`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::Secret;
use sys::exec::{self, Shell, cmd};

const LIMIT: Duration = Duration::from_secs(300);
const NAME: &str = "archproof";
const MAIL: &str = "archproof@users.noreply.github.com";

/// A checkout.
pub(crate) struct Git {
    shell: Shell,
    /// Its root.
    pub(crate) root: PathBuf,
    /// Settings of each command, through the environment, so that no command line contains a token.
    environment: Vec<(String, String)>,
}

impl Git {
    /// The checkout that contains `folder`.
    ///
    /// # Errors
    /// git is missing, or the folder is not in a checkout.
    pub(crate) fn of(folder: &Path) -> anyhow::Result<Git> {
        let mut git = Git { shell: Shell::new()?, root: folder.to_owned(), environment: Vec::new() };
        let root = git.run(&["rev-parse", "--show-toplevel"]);
        let advice = || format!("{} is not in a git checkout; `--no-commit` needs none", folder.display());
        git.root = root.with_context(advice)?.trim_end().into();
        Ok(git)
    }

    /// The same checkout in another folder, with access to `server` and a name for commits.
    pub(crate) fn publishing(&self, root: &Path, server: &str, token: Option<&Secret>) -> anyhow::Result<Git> {
        let mut settings = vec![("user.name".to_owned(), NAME.to_owned()), ("user.email".to_owned(), MAIL.to_owned())];
        if let Some(token) = token.filter(|token| !token.is_empty()) {
            let basic = STANDARD.encode(format!("x-access-token:{}", token.expose()));
            settings.push((format!("http.{server}/.extraheader"), format!("AUTHORIZATION: basic {basic}")));
        }
        let mut environment = vec![
            ("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned()),
            ("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string()),
        ];
        for (number, (key, value)) in settings.into_iter().enumerate() {
            environment.push((format!("GIT_CONFIG_KEY_{number}"), key));
            environment.push((format!("GIT_CONFIG_VALUE_{number}"), value));
        }
        Ok(Git { shell: Shell::new()?, root: root.to_owned(), environment })
    }

    /// Runs a git command in the checkout; returns its standard output.
    pub(crate) fn run(&self, words: &[&str]) -> anyhow::Result<String> {
        let root = &self.root;
        let cmd = cmd!(self.shell, "git -C {root} {words...}").envs(self.environment.iter().cloned());
        Ok(exec::run(cmd, LIMIT)?.stdout)
    }

    /// Refuses files with changes that are not committed.
    ///
    /// # Errors
    /// A file has changes.
    pub(crate) fn require_clean(&self, files: &[PathBuf]) -> anyhow::Result<()> {
        let changed = self.with_files(&["status", "--porcelain"], files)?;
        if !changed.trim().is_empty() {
            bail!("these files have changes: commit or restore them first\n{}", changed.trim_end());
        }
        Ok(())
    }

    /// Commits the changes of these files, and nothing else.
    ///
    /// # Errors
    /// There is no change, or git refuses the commit.
    pub(crate) fn commit(&self, files: &[PathBuf], subject: &str) -> anyhow::Result<()> {
        self.with_files(&["add"], files)?;
        self.with_files(&["commit", "--quiet", "--message", subject], files).map(drop)
    }

    fn with_files(&self, words: &[&str], files: &[PathBuf]) -> anyhow::Result<String> {
        let files: Vec<String> = files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
        let words: Vec<&str> = words.iter().copied().chain(["--"]).chain(files.iter().map(String::as_str)).collect();
        self.run(&words)
    }
}
