//! `cargo xtask fuzz`.

use std::ffi::OsString;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap::builder::OsStringValueParser;

#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
The first run compiles an instrumented program, which needs a C++ compiler and takes minutes. New inputs are kept in the
cache and read again by the next run. An input that crashes, hangs or takes too much memory goes to fuzz/ in the reports
folder: fix the defect, and add the input to xtask/fuzz/corpus/TARGET under a name that describes the defect.

Examples:
  cargo xtask fuzz --list
  cargo xtask fuzz fetch-lock --seconds 600
  cargo xtask fuzz fetch- images- --jobs 2         all targets whose names start with these prefixes
  cargo xtask fuzz --replay                        the committed corpora, without the instrumented program
  cargo xtask fuzz fetch-lock --input FILE         one input, for example of a finding
  cargo xtask fuzz --totals                        the totals of all runs

Exit codes: 0 no findings, 1 a finding, 2 no such target, 101 the program cannot be built, 102 the fuzzer failed,
130 interrupted.")]
pub struct FuzzOptions {
    // Not `targets`: clap knows the global option by that name.
    /// Targets, by name or by a prefix of their names [default: all]
    #[arg(value_name = "TARGET")]
    pub(crate) names: Vec<String>,
    /// Seconds for each target
    #[arg(long, value_name = "N", default_value = "60")]
    pub(crate) seconds: NonZeroU64,
    /// Targets at the same time [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Print the targets
    #[arg(long)]
    pub(crate) list: bool,
    /// Only run the committed corpora, without the instrumented program
    #[arg(long, conflicts_with = "list")]
    pub(crate) replay: bool,
    /// Only run this input, without the instrumented program
    #[arg(long, value_name = "FILE", requires = "names", conflicts_with_all = ["list", "replay"])]
    pub(crate) input: Option<PathBuf>,
    /// Print executions and seconds of all runs so far
    #[arg(long, conflicts_with_all = ["list", "replay", "input"])]
    pub(crate) totals: bool,
    /// Print the result as JSON on stdout
    #[arg(long, conflicts_with_all = ["replay", "input"])]
    pub(crate) json: bool,
    /// The C++ compiler, from the variable that the build of libFuzzer reads.
    #[arg(long, hide = true, env = "CXX", value_parser = OsStringValueParser::new())]
    pub(crate) cxx: Option<OsString>,
}
