//! Reading run folders for reports, and writing the files that are made from them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use proc::{progress, run_dir};
use report::{Known, Record};

use crate::commands::run_folders::some_folders;
use crate::paths::Paths;

/// Marks a folder as ours, so that its content may be replaced.
const MARK: &str = ".archproof-site";

/// The runs that the words stand for, in their order. What holds no events is left out, which is said.
pub(super) fn read_all(paths: &Paths, words: &[String]) -> anyhow::Result<Vec<Record>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for word in words {
        match some_folders(paths, std::slice::from_ref(word)) {
            Ok(runs) => runs.into_iter().for_each(|run| {
                if !found.contains(&run) {
                    found.push(run);
                }
            }),
            Err(error) if words.len() > 1 => progress::say(&format!("left out: {error:#}")),
            Err(error) => return Err(error),
        }
    }
    if found.is_empty() {
        bail!("none of these is a run");
    }
    found.iter().map(|folder| read(folder)).collect()
}

pub(super) fn read(folder: &Path) -> anyhow::Result<Record> {
    let (events, _) = run_dir::recorded(folder);
    let (logs, timelines) = run_dir::recorded_files(folder);
    Ok(Record { events: report::read(&events)?, logs: files(&logs)?, timelines: files(&timelines)? })
}

/// The files of a folder by name; none where there is no folder.
fn files(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    if !folder.is_dir() {
        return Ok(files);
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            let bytes = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
            files.insert(name.to_string_lossy().into_owned(), bytes);
        }
    }
    Ok(files)
}

/// The suite's table of checks.
pub(super) fn known() -> Vec<Known> {
    let known = |check: &suite::Check| Known {
        id: check.id.into(),
        level: check.level,
        requirement: check.requirement.into(),
        source: check.source.into(),
        observed: check.observed.into(),
        by_hand: check.by_hand.into(),
        cases: check.profiles.len(),
    };
    suite::all().map(known).collect()
}

/// Makes `out` hold these files and nothing else. A folder with content that is not from here is refused.
pub(super) fn write(out: &Path, files: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
    if out.is_dir() && out.read_dir()?.next().is_some() {
        if !out.join(MARK).is_file() {
            bail!("{} holds files that are no site of ours; give another folder, or empty it", out.display());
        }
        std::fs::remove_dir_all(out).with_context(|| format!("failed to empty {}", out.display()))?;
    }
    let put = |name: &str, bytes: &[u8]| {
        let path = out.join(name);
        let folder = path.parent().unwrap_or(out);
        std::fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
        std::fs::write(&path, bytes).with_context(|| format!("failed to write {}", path.display()))
    };
    put(MARK, b"")?;
    files.iter().try_for_each(|(name, bytes)| put(name, bytes))
}
