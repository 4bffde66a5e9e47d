//! Options of `matrix`, `workflows` and `cache keys`. What GitHub says through the environment is read here.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use model::{Mode, Secret};
use workflows::Event;

use super::Access;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask matrix
  cargo xtask matrix --event schedule --only ARCH
  cargo xtask matrix --since origin/main
  cargo xtask matrix --event pull_request --event-file event.json --github-output")]
pub(crate) struct MatrixOptions {
    /// push, pull_request, merge_group, schedule or workflow_dispatch
    #[arg(long, value_name = "EVENT", default_value = "push", env = "GITHUB_EVENT_NAME", value_parser = event)]
    pub(crate) event: Event,
    /// What came with the event; a pull request without it counts as one from a fork
    #[arg(long, value_name = "FILE", env = "GITHUB_EVENT_PATH")]
    pub(crate) event_file: Option<PathBuf>,
    /// Only these architectures, separated by commas
    #[arg(long, value_name = "ARCH", value_delimiter = ',', env = "ARCHPROOF_ONLY")]
    pub(crate) only: Vec<String>,
    /// The files of the change, separated by commas, or `@FILE` with one on each line
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub(crate) changed: Vec<String>,
    /// The files that differ from this revision of git
    #[arg(long, value_name = "REV", env = "ARCHPROOF_SINCE", conflicts_with = "changed")]
    pub(crate) since: Option<String>,
    /// A job for each kind of machine instead, to look at the machine
    #[arg(long, conflicts_with_all = ["changed", "only"])]
    pub(crate) machines: bool,
    /// Only GitHub's own machines
    #[arg(long)]
    pub(crate) no_self_hosted: bool,
    /// Runners of targets/matrix.yaml that are available beside those that it says, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', env = "ARCHPROOF_RUNNERS")]
    pub(crate) runners: Vec<String>,
    /// At most this: native, vm, user or build
    #[arg(long, value_name = "MODE", default_value = "native", env = "ARCHPROOF_MODE", value_parser = mode)]
    pub(crate) mode: Mode,
    /// Also write the plan, the matrix of each role, has_jobs, count and reason to GitHub's outputs, with a summary
    #[arg(long)]
    pub(crate) github_output: bool,
    #[command(flatten)]
    pub(crate) workflow_run: WorkflowRun,
}

/// The workflow run of GitHub that a job belongs to.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct WorkflowRun {
    /// The attempt of the workflow run
    #[arg(long, hide = true, value_name = "N", default_value = "1", env = "GITHUB_RUN_ATTEMPT")]
    pub(crate) attempt: u32,
    /// The id of the workflow run
    #[arg(long = "workflow-run", hide = true, value_name = "ID", env = "GITHUB_RUN_ID")]
    pub(crate) run_id: Option<String>,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask workflows render
  cargo xtask workflows render --check
  cargo xtask workflows lint --tools DIR --all-tools")]
pub(crate) struct WorkflowsOptions {
    #[command(subcommand)]
    pub(crate) command: WorkflowsCommand,
    /// The checkout [default: that of this program]
    #[arg(long, global = true, value_name = "DIR", hide = true)]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum WorkflowsCommand {
    /// Write .github/workflows and the examples from workflows/ and the target data
    Render(RenderOptions),
    /// Hold the rendered files against our rules, and against the linters that are installed
    Lint(LintOptions),
    /// Fetch a branch that holds data into a new folder
    FetchData(DataOptions),
    /// Commit what has changed in that folder and push it
    PushData(DataOptions),
    /// Ask GitHub which settings the workflows need that the repository does not have
    Setup(Box<SetupOptions>),
    /// Tell from GitHub's `needs` and the results of the jobs how a workflow has ended
    Verdict(VerdictOptions),
    /// Move the records of a workflow run that its plan accepts into another folder, to be published
    Accept(AcceptOptions),
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  GITHUB_RUNNER_TOKEN=… cargo xtask workflows setup --check --repo OWNER/NAME
  cargo xtask workflows setup --check --repo OWNER/NAME --json

Exit codes: 0 nothing is missing, 2 usage, 3 no access, 5 the other side or one of its limits, 6 something is missing,
130 interrupted. Nothing is changed: each line has the command that sets what is missing.")]
pub(crate) struct SetupOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// Look and change nothing
    #[arg(long, required = true)]
    pub(crate) check: bool,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct RenderOptions {
    /// Write nothing; fail with a diff if a file is not as it would be rendered
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct LintOptions {
    /// A folder with actionlint, check-jsonschema or zizmor, beside those on PATH
    #[arg(long, value_name = "DIR")]
    pub(crate) tools: Option<PathBuf>,
    /// Fail if one of them is not installed
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
    /// The command line is no place for it
    #[arg(long, hide = true, env = "GITHUB_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct VerdictOptions {
    /// `toJSON(needs)`
    #[arg(long, value_name = "JSON", env = "ARCHPROOF_NEEDS", hide_env_values = true, default_value = "")]
    pub(crate) needs: String,
    /// Where the artifacts `results-ID-ATTEMPT` were unpacked
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
    /// Where the artifacts `results-ID-ATTEMPT` were unpacked
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(crate) results: PathBuf,
    /// A new folder for the accepted records
    #[arg(long, value_name = "DIR", default_value = "accepted")]
    pub(crate) out: PathBuf,
    /// The attempt of the workflow run
    #[arg(long, hide = true, value_name = "N", default_value = "1", env = "GITHUB_RUN_ATTEMPT")]
    pub(crate) attempt: u32,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct KeysOptions {
    /// The architecture [default: this machine's]
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: Option<String>,
    /// Print JSON instead of lines
    #[arg(long)]
    pub(crate) json: bool,
    /// Give NAME and NAME_restore of each key to GitHub instead
    #[arg(long, conflicts_with = "json")]
    pub(crate) github_output: bool,
    /// Print how much all caches of CI take instead; exit 96 if GitHub keeps less
    #[arg(long, conflicts_with_all = ["json", "github_output", "arch"])]
    pub(crate) sizes: bool,
}

fn event(text: &str) -> Result<Event, String> {
    let names = || Event::ALL.map(Event::name).join(", ");
    Event::ALL.into_iter().find(|event| event.name() == text).ok_or_else(|| format!("valid: {}", names()))
}

/// Nothing is what a workflow says that was not asked.
fn mode(text: &str) -> Result<Mode, String> {
    let names = || Mode::ALL.map(Mode::name).join(", ");
    let text = if text.is_empty() { Mode::Native.name() } else { text };
    Mode::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| format!("valid: {}", names()))
}

/// Without what is empty: a variable that a workflow has not set.
pub(crate) fn given(values: &[String]) -> Vec<String> {
    values.iter().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()).collect()
}
