//! Options of `report`: what is made from recorded runs. A subcommand each.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

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
    /// Decide over runs of several machines: everything expected is there, and ended well
    Gate(GateOptions),
    /// Put runs of several machines together: shards, architectures, attempts
    Merge(MergeOptions),
    /// Print the JSON Schema of results.json
    Schema,
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

An architecture without a result fails, and so does one with a shard missing. An experimental one can only warn.

Exit codes: 0 passed, otherwise that of `ci` for the worst run; 102 for what is missing, 4 if nothing passed.")]
pub(crate) struct GateOptions {
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Architectures that must be there, separated by commas, or `all` [default: all]
    #[arg(long, value_name = "ARCH", value_delimiter = ',', default_value = "all")]
    pub(crate) arch: Vec<String>,
    /// Architectures whose end is only a warning; may be repeated
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    pub(crate) experimental: Vec<String>,
    /// Also write gate.json into this folder
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
