//! Options of `matrix`, `workflows` and `cache keys`. They also come from GitHub's environment variables.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use model::{Mode, Secret};
use runner::Access;

use crate::Event;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask matrix
  cargo xtask matrix --event schedule --only ARCH
  cargo xtask matrix --event schedule --runners NAME --source NAME
  cargo xtask matrix --since origin/main
  cargo xtask matrix --event pull_request --event-file event.json --github-output")]
pub struct MatrixOptions {
    /// push, pull_request, merge_group, schedule or workflow_dispatch
    #[arg(long, value_name = "EVENT", default_value = "push", env = "GITHUB_EVENT_NAME", value_parser = event)]
    pub(crate) event: Event,
    /// Payload of the event; without it a pull request counts as one from a fork
    #[arg(long, value_name = "FILE", env = "GITHUB_EVENT_PATH")]
    pub(crate) event_file: Option<PathBuf>,
    /// Only these architectures, separated by commas
    #[arg(long, value_name = "ARCH", value_delimiter = ',', env = "ARCHPROOF_ONLY")]
    pub(crate) only: Vec<String>,
    /// Changed files, separated by commas, or `@FILE` with one per line
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub(crate) changed: Vec<String>,
    /// Git revision; the files that differ from it are the changed files
    #[arg(long, value_name = "REV", env = "ARCHPROOF_SINCE", conflicts_with = "changed")]
    pub(crate) since: Option<String>,
    /// Print a job for each kind of machine instead, to inspect the machines
    #[arg(long, conflicts_with_all = ["changed", "only"])]
    pub(crate) machines: bool,
    /// Print a job for each branch of upstream in targets/upstreams.yaml instead
    #[arg(long, conflicts_with_all = ["changed", "machines", "only"])]
    pub(crate) heads: bool,
    /// Only GitHub-hosted machines
    #[arg(long)]
    pub(crate) no_self_hosted: bool,
    /// Additional runners of targets/matrix.yaml that are available, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', env = "ARCHPROOF_RUNNERS")]
    pub(crate) runners: Vec<String>,
    /// Self-hosted runners whose machines have Rust and a C compiler, separated by commas: on a schedule and a manual
    /// start they get a second job, from source
    #[arg(long, value_name = "NAME", value_delimiter = ',', env = "ARCHPROOF_SOURCE")]
    pub(crate) source: Vec<String>,
    /// Strongest mode: native, vm, user or build
    #[arg(long, value_name = "MODE", default_value = "native", env = "ARCHPROOF_MODE", value_parser = mode)]
    pub(crate) mode: Mode,
    /// Also write the plan, the matrix of each role, has_jobs, count and reason to GITHUB_OUTPUT, with a summary
    #[arg(long)]
    pub(crate) github_output: bool,
    #[command(flatten)]
    pub(crate) workflow_run: WorkflowRun,
}

/// The workflow run of GitHub that a job belongs to.
#[derive(Clone, Debug, ClapArgs)]
pub struct WorkflowRun {
    /// The attempt of the workflow run
    #[arg(long, hide = true, value_name = "N", default_value = "1", env = "GITHUB_RUN_ATTEMPT")]
    pub attempt: u32,
    /// The id of the workflow run
    #[arg(long = "workflow-run", hide = true, value_name = "ID", env = "GITHUB_RUN_ID")]
    pub run_id: Option<String>,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask workflows render
  cargo xtask workflows render --check
  cargo xtask workflows lint --tools DIR --all-tools")]
pub struct WorkflowsOptions {
    #[command(subcommand)]
    pub(crate) command: WorkflowsCommand,
    /// The checkout [default: the one that this program was built from]
    #[arg(long, global = true, value_name = "DIR", hide = true)]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum WorkflowsCommand {
    /// Write .github/workflows and the examples from workflows/ and the target data
    Render(RenderOptions),
    /// Check the rendered files with the project's rules and the installed linters
    Lint(LintOptions),
    /// Fetch a data branch into a new folder
    FetchData(DataOptions),
    /// Commit the changes in the folder of a data branch, and push them
    PushData(DataOptions),
    /// List the GitHub settings that the workflows need and the repository does not have
    Setup(Box<SetupOptions>),
    /// Decide from GitHub's `needs` and the results of the jobs how a workflow ended
    Verdict(VerdictOptions),
    /// Move the records that the plan of a workflow run accepts into another folder, for publication
    Accept(AcceptOptions),
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  GITHUB_RUNNER_TOKEN=… cargo xtask workflows setup --check --repo OWNER/NAME
  cargo xtask workflows setup --check --repo OWNER/NAME --json

Exit codes: 0 nothing is missing, 2 usage, 3 no access, 5 a remote error or limit, 6 a setting is missing,
130 interrupted. The command changes nothing: each line contains the command for a missing setting.")]
pub(crate) struct SetupOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// Check the settings without changing them
    #[arg(long, required = true)]
    pub(crate) check: bool,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct RenderOptions {
    /// Write nothing; fail with a diff if a file differs from its rendered form
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct LintOptions {
    /// Folder with actionlint, check-jsonschema or zizmor, in addition to PATH
    #[arg(long, value_name = "DIR")]
    pub(crate) tools: Option<PathBuf>,
    /// Fail if one of these linters is not installed
    #[arg(long)]
    pub(crate) all_tools: bool,
    #[arg(long, hide = true, env = "PATH", default_value = "")]
    pub(crate) path: String,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct DataOptions {
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: String,
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The repository's address [default: SERVER/OWNER/NAME]
    #[arg(long, value_name = "URL")]
    pub(crate) remote: Option<String>,
    #[arg(long, value_name = "URL", default_value = "https://github.com", env = "GITHUB_SERVER_URL")]
    pub(crate) server: String,
    #[arg(long, value_name = "OWNER/NAME", env = "GITHUB_REPOSITORY")]
    pub(crate) repository: Option<String>,
    /// From the variable, because other users can read the command line
    #[arg(long, hide = true, env = "GITHUB_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct VerdictOptions {
    /// `toJSON(needs)`
    #[arg(long, value_name = "JSON", env = "ARCHPROOF_NEEDS", hide_env_values = true, default_value = "")]
    pub(crate) needs: String,
    /// Folder of the unpacked artifacts `results-ID-ATTEMPT`
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(crate) results: PathBuf,
    /// The attempt of the workflow run
    #[arg(long, hide = true, value_name = "N", default_value = "1", env = "GITHUB_RUN_ATTEMPT")]
    pub(crate) attempt: u32,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct AcceptOptions {
    /// The output `plan` of `cargo xtask matrix --github-output`
    #[arg(long, value_name = "JSON", env = "ARCHPROOF_PLAN", hide_env_values = true, default_value = "")]
    pub(crate) plan: String,
    /// Folder of the unpacked artifacts `results-ID-ATTEMPT`
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(crate) results: PathBuf,
    /// New folder for the accepted records
    #[arg(long, value_name = "DIR", default_value = "accepted")]
    pub(crate) out: PathBuf,
    /// The attempt of the workflow run
    #[arg(long, hide = true, value_name = "N", default_value = "1", env = "GITHUB_RUN_ATTEMPT")]
    pub(crate) attempt: u32,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct KeysOptions {
    /// The architecture [default: this machine's]
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: Option<String>,
    /// Print JSON instead of lines
    #[arg(long)]
    pub(crate) json: bool,
    /// Write NAME and NAME_restore of each key to GITHUB_OUTPUT instead
    #[arg(long, conflicts_with = "json")]
    pub(crate) github_output: bool,
    /// Print the total size of all CI caches instead; exit with 96 if it exceeds GitHub's limit
    #[arg(long, conflicts_with_all = ["json", "github_output", "arch"])]
    pub(crate) sizes: bool,
}

fn event(text: &str) -> Result<Event, String> {
    let names = || Event::ALL.map(Event::name).join(", ");
    Event::ALL.into_iter().find(|event| event.name() == text).ok_or_else(|| format!("valid: {}", names()))
}

/// An empty text is the default: a workflow passes it for an input that is not set.
fn mode(text: &str) -> Result<Mode, String> {
    let names = || Mode::ALL.map(Mode::name).join(", ");
    let text = if text.is_empty() { Mode::Native.name() } else { text };
    Mode::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| format!("valid: {}", names()))
}

/// Drops empty values: a workflow passes them for a variable that is not set.
pub(crate) fn given(values: &[String]) -> Vec<String> {
    values.iter().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()).collect()
}
