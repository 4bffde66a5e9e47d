//! Options of `report support`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

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
