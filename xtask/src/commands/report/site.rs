//! `cargo xtask report site`: a folder of HTML pages over recorded runs.

use std::path::Path;

use model::Exit;
use proc::progress;

use super::{records, support};
use crate::args::SiteOptions;
use crate::failure::{Failure, OrExit};
use crate::paths::Paths;

pub(super) fn run(paths: &Paths, options: &SiteOptions) -> Result<Exit, Failure> {
    write(paths, &options.runs, options.out.as_deref())
}

/// Also for `report support --format html`.
pub(super) fn write(paths: &Paths, runs: &[String], out: Option<&Path>) -> Result<Exit, Failure> {
    let records = records::read_all(paths, runs).or_exit(Exit::Usage)?;
    let out = out.map_or_else(|| paths.reports.join("site"), Path::to_owned);
    let support = support::table(paths, &records)?;
    let files = report::site(&records, &records::known(), &support);
    records::write(&out, &files).or_exit(Exit::Infrastructure)?;
    progress::say(&format!("{} runs, {} files: {}", records.len(), files.len(), out.join("index.html").display()));
    Ok(Exit::Ok)
}
