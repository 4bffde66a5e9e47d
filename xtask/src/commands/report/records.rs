//! Reading run folders for reports, and writing the files that are made from them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use proc::{foreign, progress, run_dir};
use report::{Known, Picture, Record};

use crate::commands::run_folders::some_folders;
use crate::paths::Paths;

/// Largest file in bytes that a report takes from a run folder.
const FILE_BYTES: u64 = 256 << 20;

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
    let timelines = files(&timelines)?.into_iter().filter_map(|(name, bytes)| picture(folder, name, bytes)).collect();
    Ok(Record { events: report::read(&events)?, logs: files(&logs)?, timelines })
}

/// The picture, or a message why the report leaves it out.
fn picture(folder: &Path, name: String, bytes: Vec<u8>) -> Option<(String, Picture)> {
    match Picture::parse(bytes) {
        Ok(picture) => Some((name, picture)),
        Err(error) => {
            progress::say(&format!("left out the picture {name} of {}: {error:#}", folder.display()));
            None
        }
    }
}

/// The regular files of a folder by name. A missing folder has none; links and devices are left out with a message.
fn files(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let (paths, others) = foreign::list(folder)?;
    if others > 0 {
        progress::say(&format!("left out {others} entries of {}: they are not regular files", folder.display()));
    }
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    paths.iter().map(|path| Ok((name(path), foreign::read(path, FILE_BYTES)?))).collect()
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
    checks::all().map(known).collect()
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
