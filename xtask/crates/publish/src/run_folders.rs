//! Finds the run folders that command-line arguments name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use cli::Paths;
use serde_json::Value;
use sys::{foreign, run_dir};

/// Folder levels below a named folder: artifact, common folder, architecture, and one in reserve.
const DEPTH: usize = 4;
/// Largest record of runs that were started together, in bytes: it has a few lines for each run.
const RECORD_BYTES: u64 = 16 << 20;

/// Every run that the arguments name, without duplicates, in the order of the arguments and then of the folder names.
/// An argument is a path or a name below `reports/`. A folder above runs names all of them; without runs it names none.
pub(crate) fn folders(paths: &Paths, words: &[String]) -> anyhow::Result<Vec<PathBuf>> {
    each(paths, words, |_, _| Ok(()))
}

/// The same, but each argument must name at least one run.
pub(crate) fn some_folders(paths: &Paths, words: &[String]) -> anyhow::Result<Vec<PathBuf>> {
    each(paths, words, |folder, found| {
        ensure!(!found.is_empty(), "{} is not a run folder and contains none: no events found", folder.display());
        Ok(())
    })
}

/// The architectures whose runs did not begin, and so have no folder, as the records of the named common folders say.
pub(crate) fn not_begun(paths: &Paths, words: &[String]) -> anyhow::Result<BTreeSet<String>> {
    let mut archs = BTreeSet::new();
    for word in words {
        let record = resolve(paths, word)?.join("run.json");
        if record.is_file() {
            let read: Value = serde_json::from_slice(&foreign::read(&record, RECORD_BYTES)?)
                .with_context(|| format!("{} is not the record of a run", record.display()))?;
            let children = read["children"].as_array().into_iter().flatten();
            let lost = children.filter(|child| child["record"].is_null());
            archs.extend(lost.filter_map(|child| child["arch"].as_str().map(str::to_owned)));
        }
    }
    Ok(archs)
}

/// The folder that an argument names.
fn resolve(paths: &Paths, word: &str) -> anyhow::Result<PathBuf> {
    let candidates = [PathBuf::from(word), paths.reports.join(word)];
    let Some(folder) = candidates.into_iter().find(|folder| folder.is_dir()) else {
        bail!("no run `{word}`: it is neither a path nor in {}", paths.reports.display());
    };
    folder.canonicalize().with_context(|| format!("failed to resolve {}", folder.display()))
}

fn each(
    paths: &Paths,
    words: &[String],
    check: impl Fn(&Path, &[PathBuf]) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = Vec::new();
    for word in words {
        let folder = resolve(paths, word)?;
        let mut found = Vec::new();
        search(&folder, DEPTH, &mut found)?;
        check(&folder, &found)?;
        found.sort();
        found.retain(|run| !all.contains(run));
        all.append(&mut found);
    }
    Ok(all)
}

fn search(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if run_dir::recorded(folder).0.is_file() {
        found.push(folder.to_owned());
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    let unreadable = || format!("failed to read {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        if path.is_dir() && !path.is_symlink() {
            search(&path, depth - 1, found)?;
        }
    }
    Ok(())
}
