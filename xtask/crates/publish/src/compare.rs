//! `cargo xtask compare`: compares recorded runs of different architectures or versions.
//!
//! It compares the masked stored values from `storage.arch-bytes-identical`, the answers to all requests that timing
//! does not change, and the outcome of each case. It reports times, but a difference in times does not make runs
//! different. `recorded` reads a run, `differ` and `answers` compare.

mod answers;
mod differ;
mod recorded;

use std::path::{Path, PathBuf};

use cli::{Failure, OrExit, Paths, print, print_json};
use model::{Exit, ExpectedDifference};
use report::text::pretty;
use sys::{Together, progress};
use targets::Catalogue;

use crate::args::CompareOptions;
use crate::output::{create_folder, write_file};
use crate::run_folders::{not_begun, some_folders};

use answers::Known;
use differ::Comparison;
use recorded::Recorded;

pub fn run(paths: &Paths, options: &CompareOptions) -> Result<Exit, Failure> {
    let folders = some_folders(paths, &options.runs).or_exit(Exit::Usage)?;
    let runs = read(&folders).or_exit(Exit::Usage)?;
    if options.golden {
        return golden(&runs);
    }
    if runs.len() < 2 {
        return Err(Failure::usage(anyhow::anyhow!("one run cannot be compared: give two runs, or a common folder")));
    }
    let known = Catalogue::load(&paths.targets)?.differences;
    let absent = not_begun(paths, &options.runs).or_exit(Exit::Usage)?;
    let comparison = Comparison::of(&runs, Known { entries: &known, today: &today() }).with_absent(&absent);
    let out = out(paths, options, &folders).or_exit(Exit::Infrastructure)?;
    write(&out, &comparison).or_exit(Exit::Infrastructure)?;
    comparison.lines().iter().for_each(|line| progress::say(line));
    progress::say(&format!("files: {} (junit-compare.xml, compare.json, compare.txt)", out.display()));
    if options.json {
        print_json(&comparison)?;
    }
    Ok(comparison.exit())
}

/// Compares the runs of one command in their common folder; prints only differences and the result.
pub fn together(common: &Path, folders: &[PathBuf], entries: &[ExpectedDifference]) -> Result<Exit, Failure> {
    let known = Known { entries, today: &today() };
    let comparison = Comparison::of(&read(folders).or_exit(Exit::Infrastructure)?, known);
    write(common, &comparison).or_exit(Exit::Infrastructure)?;
    comparison.lines().iter().for_each(|line| progress::say(line));
    // If the runs have nothing in common, each run still has its own verdict.
    Ok(if comparison.exit() == Exit::NothingRan { Exit::Ok } else { comparison.exit() })
}

/// `2026-11-26`, in UTC.
fn today() -> String {
    progress::timestamp().chars().take(10).collect()
}

fn read(folders: &[PathBuf]) -> anyhow::Result<Vec<Recorded>> {
    folders.iter().map(|folder| recorded::read(folder)).collect()
}

/// Prints a golden file from this run: later runs of a single architecture are compared with it.
fn golden(runs: &[Recorded]) -> Result<Exit, Failure> {
    let [run] = runs else { return Err(Failure::usage(anyhow::anyhow!("--golden takes one run"))) };
    let rows = run.golden().or_exit(Exit::Usage)?;
    if rows.is_empty() {
        let check = "cargo xtask ci --check storage.arch-bytes-identical";
        return Err(Failure::nothing_ran(format!("{} has no stored values: run `{check}`", run.row.label)));
    }
    print(&recorded::golden_file(&rows));
    Ok(Exit::Ok)
}

/// The given folder, or the common folder of runs that were started together, or a new one.
fn out(paths: &Paths, options: &CompareOptions, folders: &[PathBuf]) -> anyhow::Result<PathBuf> {
    if let Some(out) = &options.out {
        create_folder(out)?;
        return Ok(out.clone());
    }
    let common = folders[0].parent().filter(|parent| folders.iter().all(|folder| folder.parent() == Some(parent)));
    match common.filter(|common| common.join("run.json").is_file()) {
        Some(common) => Ok(common.to_owned()),
        None => Ok(Together::create(&paths.reports, &paths.cache, "compare")?.public().to_owned()),
    }
}

fn write(folder: &Path, comparison: &Comparison) -> anyhow::Result<()> {
    let junit = report::single_suite("archproof.compare", &progress::timestamp(), &comparison.cases())?;
    let text = comparison.lines().join("\n") + "\n";
    write_file(&folder.join("junit-compare.xml"), &junit)?;
    write_file(&folder.join("compare.json"), pretty(comparison).as_bytes())?;
    write_file(&folder.join("compare.txt"), text.as_bytes())
}
