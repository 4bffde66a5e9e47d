//! The folders and the environment of all commands.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::OsStringValueParser;

/// Folders, and the environment of all commands.
#[derive(Clone, Debug, Args)]
pub struct Places {
    /// Cache for binaries and running clusters [default: archproof in the user's cache folder]
    #[arg(long, global = true, value_name = "DIR", env = "ARCHPROOF_CACHE", hide_env_values = true)]
    pub cache: Option<PathBuf>,
    /// Where run folders go [default: reports/ of the checkout or, from a release archive, of the current folder]
    #[arg(long, global = true, value_name = "DIR", env = "ARCHPROOF_REPORTS", hide_env_values = true)]
    pub reports: Option<PathBuf>,
    /// Folder with `targets/` [default: the folder of the program in a release archive, else the checkout]
    #[arg(
        id = "archproof_root",
        long = "archproof-root",
        global = true,
        value_name = "DIR",
        env = "ARCHPROOF_ROOT",
        hide = true
    )]
    pub root: Option<PathBuf>,
    /// Target data [default: targets/ of the root]
    #[arg(long, global = true, value_name = "DIR", hide = true)]
    pub targets: Option<PathBuf>,
    // An empty variable counts as unset.
    #[arg(long, global = true, hide = true, env = "XDG_CACHE_HOME", value_parser = OsStringValueParser::new())]
    pub xdg_cache: Option<OsString>,
    #[arg(long, global = true, hide = true, env = "HOME", value_parser = OsStringValueParser::new())]
    pub home: Option<OsString>,
    #[arg(long, global = true, hide = true, env = "GOPROXY")]
    pub goproxy: Option<String>,
    #[arg(long, global = true, hide = true, env = "NO_COLOR", value_parser = OsStringValueParser::new())]
    pub no_color: Option<OsString>,
    #[arg(long, global = true, hide = true, env = "TERM", value_parser = OsStringValueParser::new())]
    pub term: Option<OsString>,
    #[command(flatten)]
    pub github: GithubPlaces,
}

/// The environment of a step of GitHub Actions.
#[derive(Clone, Debug, Default, Args)]
pub struct GithubPlaces {
    #[arg(long, global = true, hide = true, env = "GITHUB_ACTIONS")]
    pub github_actions: Option<String>,
    #[arg(long, global = true, hide = true, env = "GITHUB_STEP_SUMMARY", value_parser = OsStringValueParser::new())]
    pub github_step_summary: Option<OsString>,
    // Not the option `--github-output` of some commands.
    #[arg(long, global = true, hide = true, env = "GITHUB_OUTPUT", value_parser = OsStringValueParser::new())]
    pub github_step_output: Option<OsString>,
}
