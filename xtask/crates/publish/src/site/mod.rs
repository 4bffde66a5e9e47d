//! A static site over recorded runs: a grid of checks × architectures, a page for each check and each run, and the
//! support table, and differential runs. Pure functions from records to files: equal records give equal bytes.
//!
//! The pages need no script, no network and no server. The caller reads the run folders and writes the files.

mod check_page;
mod differences_page;
mod index_page;
mod model;
mod names;
mod page;
mod run_page;
mod runs_page;
mod support_page;

use std::collections::BTreeMap;

use model::Runs;
use report::text::cut_middle;

use crate::differential::Differential;
use crate::history::Entry;
use crate::record::{Known, Record, in_order};
use crate::support::Support;
pub(crate) use names::{plain_name, timeline_of};

/// Longest log in the site, in bytes; the run folder has the complete log.
const LOG_BYTES: usize = 256 << 10;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("filter.js");

/// The files of the site, by path below its folder. `past` has the history entries of runs without a record.
pub(crate) fn site(
    records: &[Record],
    known: &[Known],
    support: &Support,
    past: &[Entry],
    differentials: &[Differential],
) -> BTreeMap<String, Vec<u8>> {
    let runs = Runs::of(records, known, past);
    let mut files = BTreeMap::new();
    let mut put = |path: String, text: String| files.insert(path, text.into_bytes());
    put("style.css".into(), STYLE.into());
    put("filter.js".into(), SCRIPT.into());
    put("index.html".into(), index_page::page(&runs));
    put("runs.html".into(), runs_page::page(&runs));
    put("support.html".into(), support_page::page(&runs, support));
    put("differences.html".into(), differences_page::index(differentials));
    for (number, run) in differentials.iter().enumerate() {
        put(differences_page::file(number), differences_page::page(run));
    }
    for check in runs.checks() {
        put(format!("checks/{}.html", check.slug), check_page::page(&runs, check));
    }
    for run in &runs.runs {
        put(format!("runs/{}.html", run.slug), run_page::page(&runs, run));
        let below = |path: &str| format!("runs/{}/{path}", run.slug);
        put(below("run.json"), report::run_json(&run.record.events));
        put(below("summary.txt"), report::markdown(&run.record.events));
        for (name, slug) in &run.logs {
            put(below(slug), cut_middle(page::text(&String::from_utf8_lossy(&run.record.logs[*name])), LOG_BYTES));
        }
    }
    for run in &runs.runs {
        for (name, slug) in &run.timelines {
            files.insert(format!("runs/{}/{slug}", run.slug), run.record.timelines[*name].bytes().to_owned());
        }
    }
    files
}

#[cfg(test)]
mod tests;
