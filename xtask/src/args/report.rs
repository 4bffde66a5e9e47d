//! Options of `report`: what is made from recorded runs. A subcommand each, in the order of the alphabet.

mod gcs;
mod prow;
mod site;
mod support;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

pub(crate) use gcs::GcsOptions;
pub(crate) use prow::{JobOptions, ProwOptions};
pub(crate) use site::SiteOptions;
pub(crate) use support::{SupportFormat, SupportOptions};

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
A RUN is a run folder, its name below reports/, or any folder above run folders: that of several architectures, or one
into which the artifacts of a workflow were downloaded.")]
pub(crate) struct ReportOptions {
    #[command(subcommand)]
    pub(crate) command: ReportCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ReportCommand {
    /// Write a badge for each architecture, as shields.io reads it and as a picture
    Badge(BadgeOptions),
    /// Tell what is newly failing, fixed, newly skipped or slower
    Diff(DiffOptions),
    /// Decide over runs of several machines: everything expected is there, and ended well
    Gate(GateOptions),
    /// Upload a run to a bucket that TestGrid or Spyglass reads, in the order that they need
    Gcs(GcsOptions),
    /// Keep what must outlast the run folders
    History(HistoryOptions),
    /// Put runs of several machines together: shards, architectures, attempts
    Merge(MergeOptions),
    /// Write a run as a folder in Prow's layout
    Prow(ProwOptions),
    /// Print the JSON Schema of results.json
    Schema,
    /// Write a static site over recorded runs: a grid of checks × architectures, a page for each check and run
    Site(SiteOptions),
    /// Tell what runs show of each program on each architecture, and what upstream's tiers ask
    Support(SupportOptions),
    /// Tell whether files are what they should be: JUnit, results.json, events.jsonl, history
    Validate(ValidateOptions),
    /// Write the files of recorded runs again
    Write(WriteOptions),
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report merge downloads/
  cargo xtask report merge RUN RUN RUN --out merged
  cargo xtask report merge downloads/ --json | jq '.runs[].verdict'

Shards and architectures stay apart. Of several runs of the same (architecture, provider, sources, shard) the latest one
counts, case by case, except that a failure stays one: only errors can be repeated away.

Exit codes: those of `ci` for the worst run, 4 without any, 2 for a folder that cannot be read.")]
pub(crate) struct MergeOptions {
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Where junit.xml, results.json, run.json and summary.md go [default: a new folder below reports/]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Form of junit.xml
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

An architecture without a result fails, and so does one with a shard missing. An experimental one can only warn.

With --plan, RUN is a folder into which the artifacts of a workflow run were downloaded. A result counts only if the name
of its artifact, its record, the workflow run and the plan agree. Any other one closes the gate, or is reported if its job
is experimental or on a self-hosted machine. Of several attempts the latest counts, but
a failure in any of them stays a failure. Jobs on self-hosted machines may be missing; a failure on one counts, and their
outcomes are compared with those of the other jobs.

Exit codes: 0 passed, otherwise that of `ci` for the worst run; 102 for what is missing, 4 if nothing passed.")]
pub(crate) struct GateOptions {
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Architectures that must be there, separated by commas, or `all` [default: all]
    #[arg(long, value_name = "ARCH", value_delimiter = ',', default_value = "all")]
    pub(crate) arch: Vec<String>,
    /// Architectures whose end is only a warning, beside those whose target file says so; may be repeated
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
pub(crate) enum FlavourArg {
    /// What all known schemas and consumers take
    #[default]
    Strict,
    /// With attempts as Maven's Surefire writes them
    Surefire,
    /// With file and line of each check, and properties of each case
    Extended,
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report write RUN
  cargo xtask report write RUN --junit-flavour extended --out /tmp/extended

The files of a run folder are made from its events.jsonl alone; equal events give equal files.

Exit codes: those of `ci` for the worst run, 4 without any, 2 for a folder that cannot be read.")]
pub(crate) struct WriteOptions {
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Form of the JUnit files
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

Exit codes: 0 all valid, 100 a rule is broken, 2 a file cannot be read or is none of ours.")]
pub(crate) struct ValidateOptions {
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// What JUnit files may hold
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

Cases are compared by architecture and name. A single architecture on each side is compared with the other side's,
whatever it is. Times are compared only between runs of the same provider and accelerator.

Exit codes: 0 nothing newly fails, 100 a failure is new, 102 an error is new or HEAD is not whole, 4 nothing in common.")]
pub(crate) struct DiffOptions {
    /// The older run, or a folder of runs
    #[arg(value_name = "BASE")]
    pub(crate) base: String,
    /// The newer one
    #[arg(value_name = "HEAD")]
    pub(crate) head: String,
    /// A case that takes so many times as long, and a second more, is slower
    #[arg(long, value_name = "RATIO", default_value = "2.0", value_parser = ratio)]
    pub(crate) slower: f64,
    /// Print the difference as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| "a number: 1.5".to_owned())?;
    if (1.0..1e6).contains(&ratio) { Ok(ratio) } else { Err("a number from 1 on: 1.5".into()) }
}

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cargo xtask report badge downloads/ --out site/badges
  cargo xtask report badge RUN --arch ARCH --out badges

Of each architecture <arch>.json and <arch>.svg. One without a run gets a badge that says so.

Exit codes: 0 written, whatever they say; 2 for a folder that cannot be read.")]
pub(crate) struct BadgeOptions {
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Architectures, separated by commas, or `all` [default: all]
    #[arg(long, value_name = "ARCH", value_delimiter = ',', default_value = "all")]
    pub(crate) arch: Vec<String>,
    /// Where the badges go
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
    /// Add a line for each run to <dir>/<arch>/<yyyy-mm>.ndjson; a run that is there is not added again
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
    /// Every run is a line: several nights at once. Else runs of the same sources on one architecture are attempts at
    /// one, and only the last is a line, with what broke in any of them
    #[arg(long)]
    pub(crate) separate: bool,
    /// Print the new lines on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
