//! `cargo xtask report site`: writes HTML pages for recorded runs.

use std::path::Path;

use cli::{Failure, OrExit, Paths};
use model::Exit;
use sys::progress;

use super::{history, records, support};
use crate::args::SiteOptions;
use crate::differential;
use crate::history::Entry;

pub(super) fn run(paths: &Paths, options: &SiteOptions) -> Result<Exit, Failure> {
    let past = options.history.as_deref().map(history::read).transpose().or_exit(Exit::Usage)?;
    write(paths, &options.runs, options.out.as_deref(), &past.unwrap_or_default())
}

/// `report support --format html` uses it as well.
pub(super) fn write(paths: &Paths, runs: &[String], out: Option<&Path>, past: &[Entry]) -> Result<Exit, Failure> {
    let differentials = differential::read_all(paths, runs).or_exit(Exit::Usage)?;
    let with_events: Vec<String> = runs.iter().filter(|word| !differential::is_only(paths, word)).cloned().collect();
    let records = match with_events.is_empty() && !differentials.is_empty() {
        true => Vec::new(),
        false => records::read_all(paths, &with_events).or_exit(Exit::Usage)?,
    };
    let out = out.map_or_else(|| paths.reports.join("site"), Path::to_owned);
    let support = support::table(paths, &records)?;
    let files = crate::site::site(&records, &records::known(), &support, past, &differentials);
    records::write(&out, &files).or_exit(Exit::Infrastructure)?;
    let runs = records.len() + differentials.len();
    progress::say(&format!("{runs} runs, {} files: {}", files.len(), out.join("index.html").display()));
    Ok(Exit::Ok)
}
