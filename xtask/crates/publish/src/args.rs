//! Options of `compare`, and of `report`, which creates files from recorded runs.

mod prow;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use model::Secret;
use runner::Access;

pub(crate) use prow::{JobOptions, ProwOptions};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
A RUN is a run folder, its name below reports/, or any folder that contains run folders: for example a run of several
architectures, or the downloaded artifacts of a workflow.")]
pub struct ReportOptions {
    #[command(subcommand)]
    pub(crate) command: ReportCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ReportCommand {
    /// Open a GitHub issue for each architecture that is red, and close it when a night is green
    Alerts(AlertOptions),
    /// Write a badge for each architecture, as JSON for shields.io and as a picture
    Badge(BadgeOptions),
    /// List the cases that are newly failing, fixed, newly skipped or slower
    Diff(DiffOptions),
    /// Decide whether the runs of several machines are complete and passed
    Gate(GateOptions),
    /// Upload a run to a bucket for TestGrid or Spyglass, in the order that they need
    Gcs(GcsOptions),
    /// Keep results longer than the run folders
    History(HistoryOptions),
    /// Merge runs of several machines: shards, architectures, attempts
    Merge(MergeOptions),
    /// Write a run as a folder in Prow's layout
    Prow(ProwOptions),
    /// Print the JSON Schema of results.json
    Schema,
    /// Write a static site for recorded runs: a grid of checks × architectures, a page for each check and run
    Site(SiteOptions),
    /// Report what runs show about each program on each architecture, next to the requirements of upstream's tiers
    Support(SupportOptions),
    /// Validate files: JUnit, results.json, events.jsonl, history
    Validate(ValidateOptions),
    /// Write the files of recorded runs again
    Write(WriteOptions),
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  GITHUB_RUNNER_TOKEN=… cargo xtask report alerts --repo OWNER/NAME --history results-data
  cargo xtask report alerts --repo OWNER/NAME --history results-data --dry-run

Red: two red nights in a row, no result for three days, or no native result for three days on an architecture that had
one. A night with a lost shard is red. Issues have the label `archproof-alert`; the token needs permission to write issues.
Exit codes: those of `runner`.")]
pub(crate) struct AlertOptions {
    #[command(flatten)]
    pub(crate) access: Access,
    /// The folder of `report history append`
    #[arg(long, value_name = "DIR")]
    pub(crate) history: PathBuf,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report merge downloads/
  cargo xtask report merge RUN RUN RUN --out merged
  cargo xtask report merge downloads/ --json | jq '.runs[].verdict'

Shards and architectures stay separate. Of several runs of the same (architecture, provider, sources, store, cluster, shard,
and CI job or kind of host), the latest result of each case counts. A failure stays a failure: only errors can be fixed by
repeating a run. A skip replaces no result.

Exit codes: those of `ci` for the worst run, 4 without any run, 2 for a folder that cannot be read.")]
pub(crate) struct MergeOptions {
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Where junit.xml, results.json, run.json and summary.md go [default: a new folder below reports/]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Format of junit.xml
    #[arg(long, value_enum, value_name = "FLAVOUR", default_value = "strict")]
    pub(crate) junit_flavour: FlavourArg,
    /// Print results.json on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report gate downloads/
  cargo xtask report gate downloads/ --arch ARCH,ARCH --experimental ARCH
  cargo xtask report gate downloads/ --json | jq -r '.architectures[] | select(.standing != \"passed\") | .why[]'
  cargo xtask report gate downloads/ --plan \"$PLAN\" --out merged

An architecture without a result or with a missing shard fails. An experimental architecture can only warn.

With --plan, RUN is a folder with the downloaded artifacts of a workflow run. A result counts only if the name of its
artifact, its record, the workflow run and the plan agree. Any other result closes the gate, or is only reported if its
job is experimental or on a self-hosted machine. Of several attempts the latest counts, but a failure in any of them
stays a failure. Jobs on self-hosted machines may be missing; a failure on one counts, and their outcomes are compared
with those of the other jobs.

Exit codes: 0 passed, otherwise that of `ci` for the worst run; 102 for missing results, 4 if nothing passed.")]
pub(crate) struct GateOptions {
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Required architectures, separated by commas, or `all` [default: all]
    #[arg(long, value_name = "ARCH", value_delimiter = ',', default_value = "all")]
    pub(crate) arch: Vec<String>,
    /// Architectures that can only warn, in addition to those whose target file says so; may be repeated
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    pub(crate) experimental: Vec<String>,
    /// The output `plan` of `cargo xtask matrix --github-output`
    #[arg(long, value_name = "JSON", env = "ARCHPROOF_PLAN", hide_env_values = true, conflicts_with_all = ["arch", "experimental"])]
    pub(crate) plan: Option<String>,
    /// Decide over the plan's jobs on self-hosted machines instead of the others
    #[arg(long)]
    pub(crate) additional: bool,
    /// The attempt of the workflow run
    #[arg(long, hide = true, value_name = "N", default_value = "1", env = "GITHUB_RUN_ATTEMPT")]
    pub(crate) attempt: u32,
    /// Also write gate.json, and junit.xml, results.json, run.json and summary.md over all runs, into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the decision as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FlavourArg {
    /// Only what all known schemas and consumers accept
    #[default]
    Strict,
    /// With attempts in the format of Maven's Surefire
    Surefire,
    /// With file and line of each check, and properties of each case
    Extended,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report write RUN
  cargo xtask report write RUN --junit-flavour extended --out /tmp/extended

The command creates the files of a run folder from its events.jsonl alone; equal events give equal files.

Exit codes: those of `ci` for the worst run, 4 without any run, 2 for a folder that cannot be read.")]
pub(crate) struct WriteOptions {
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Format of the JUnit files
    #[arg(long, value_enum, value_name = "FLAVOUR", default_value = "strict")]
    pub(crate) junit_flavour: FlavourArg,
    /// Where the files of a single run go [default: its own folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report validate reports/RUN/junit.xml reports/RUN/results.json
  cargo xtask report validate --junit-flavour extended other.xml

Exit codes: 0 all files are valid, 100 a file breaks a rule, 2 a file cannot be read or is of an unknown kind.")]
pub(crate) struct ValidateOptions {
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// JUnit flavour to validate against
    #[arg(long, value_enum, value_name = "FLAVOUR", default_value = "strict")]
    pub(crate) junit_flavour: FlavourArg,
    /// Print the faults as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report diff BASE HEAD
  cargo xtask report diff yesterday/ today/ --slower 1.5
  cargo xtask report diff BASE HEAD --json | jq -r '.newly_failing[].case'

Cases are compared by architecture and name. If each side has a single architecture, the two are compared even if they
differ. Otherwise HEAD is incomplete if it lacks an architecture of BASE, or one whose run did not begin. Times are
compared only between runs with the same provider and accelerator.

Exit codes: 0 no new failure, 100 a new failure, 102 a new error or an incomplete HEAD, 4 nothing in common, or HEAD
skipped all of it.")]
pub(crate) struct DiffOptions {
    /// The older run, or a folder of runs
    #[arg(value_name = "BASE")]
    pub(crate) base: String,
    /// The newer run, or a folder of runs
    #[arg(value_name = "HEAD")]
    pub(crate) head: String,
    /// A case is slower if it takes more than this many times as long, and more than one second longer
    #[arg(long, value_name = "RATIO", default_value = "2.0", value_parser = ratio)]
    pub(crate) slower: f64,
    /// Print the difference as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| "expected a number, for example 1.5".to_owned())?;
    if (1.0..1e6).contains(&ratio) { Ok(ratio) } else { Err("expected a number of at least 1, for example 1.5".into()) }
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report badge downloads/ --out site/badges
  cargo xtask report badge RUN --arch ARCH --out badges

The command writes <arch>.json and <arch>.svg for each architecture. A badge also says if an architecture has no run.

Exit codes: 0 written, regardless of the results; 2 for a folder that cannot be read.")]
pub(crate) struct BadgeOptions {
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Architectures, separated by commas, or `all` [default: all]
    #[arg(long, value_name = "ARCH", value_delimiter = ',', default_value = "all")]
    pub(crate) arch: Vec<String>,
    /// Output folder for the badges
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report history append downloads/ --dir results-data/history --commit \"$GITHUB_SHA\"")]
pub(crate) struct HistoryOptions {
    #[command(subcommand)]
    pub(crate) command: HistoryCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    /// Add a line for each run to <dir>/<arch>/<yyyy-mm>.ndjson; skip runs that it already contains
    Append(AppendOptions),
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct AppendOptions {
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// The folder of the history
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The commit that was tested
    #[arg(long, value_name = "SHA", env = "GITHUB_SHA", hide_env_values = true)]
    pub(crate) commit: Option<String>,
    /// Write a line for every run, for example for several nights at once. Otherwise runs of the same sources on one
    /// architecture count as attempts: only the last becomes a line, with the failures of all of them
    #[arg(long)]
    pub(crate) separate: bool,
    /// Print the new lines on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask compare RUN RUN
  cargo xtask compare 20261121T120558Z-all          a folder of several architectures includes all of them
  cargo xtask compare RUN RUN --json | jq .values
  cargo xtask compare RUN --golden >targets/golden/1.36.yaml

Exit codes: 0 equal, 100 different, 4 a run has nothing that another run has, or did not begin, 2 usage.")]
pub struct CompareOptions {
    /// Run folders, or their names below reports/; at least two runs in all
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Print the lengths and digests of one run's stored values, as in targets/golden/, instead of comparing
    #[arg(long, conflicts_with = "json")]
    pub(crate) golden: bool,
    /// Where junit-compare.xml, compare.json and compare.txt go [default: the runs' common folder, or a new one]
    #[arg(long, value_name = "DIR", conflicts_with = "golden")]
    pub(crate) out: Option<PathBuf>,
    /// Print the comparison as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report gcs RUN --bucket gs://BUCKET --dry-run
  GOOGLE_OAUTH_ACCESS_TOKEN=… cargo xtask report gcs RUN --bucket gs://BUCKET/PREFIX --job ci-etcd-ARCH
  cargo xtask report gcs RUN --bucket gs://BUCKET --endpoint http://127.0.0.1:4443")]
pub(crate) struct GcsOptions {
    /// Run folder, or its name below reports/; a folder of several architectures includes all of them
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) job: JobOptions,
    /// Print the objects and their sizes in upload order, and upload nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// JSON API of the storage; plain http only for this machine
    #[arg(long, value_name = "URL", default_value = "https://storage.googleapis.com")]
    pub(crate) endpoint: String,
    /// Access token; from the variable, because other users can read the command line
    #[arg(long, hide = true, env = "GOOGLE_OAUTH_ACCESS_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report site RUN RUN
  cargo xtask report site 20261121T120558Z-all --out site     a folder of several architectures includes all of them
  cargo xtask report site reports/* --out site                everything; other folders are skipped")]
pub(crate) struct SiteOptions {
    /// Run folders, or their names below reports/
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Output folder; the files of an older site in it are replaced [default: site below reports/]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// History from `report history append`; shows how earlier runs ended
    #[arg(long, value_name = "DIR")]
    pub(crate) history: Option<PathBuf>,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report support RUN RUN >support.md
  cargo xtask report support reports/* --format html --out support")]
pub(crate) struct SupportOptions {
    /// Run folders, or their names below reports/
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Markdown goes to stdout or to a file; html is the whole site, with the page support.html
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "markdown")]
    pub(crate) format: SupportFormat,
    /// The file, or the site's folder [default: stdout, or site below reports/]
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SupportFormat {
    Markdown,
    Html,
}
