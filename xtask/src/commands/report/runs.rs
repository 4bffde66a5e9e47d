//! The run folders that words on the command line stand for, and their events.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use model::{Event, Exit};
use proc::run_dir;
use report::Child;

use crate::failure::{Failure, OrExit};
use crate::paths::Paths;

/// Below a named folder: artifact, common folder, architecture, and one to spare.
const DEPTH: usize = 4;

/// A recorded run.
pub(super) struct Recorded {
    pub(super) folder: PathBuf,
    pub(super) events: Vec<Event>,
}

/// Every run that the words stand for, once, in the order of the words and then of the folders' names.
pub(super) fn read(paths: &Paths, words: &[String]) -> Result<Vec<Recorded>, Failure> {
    let mut runs: Vec<Recorded> = Vec::new();
    for word in words {
        for folder in folders(paths, word).or_exit(Exit::Usage)? {
            if !runs.iter().any(|run| run.folder == folder) {
                let events = report::read(&run_dir::recorded(&folder).0).or_exit(Exit::Usage)?;
                runs.push(Recorded { folder, events });
            }
        }
    }
    Ok(runs)
}

/// The same, merged.
pub(super) fn merged(paths: &Paths, words: &[String]) -> Result<Vec<Child>, Failure> {
    let runs = read(paths, words)?;
    Ok(report::merge(runs.into_iter().map(|run| run.events).collect()))
}

/// Of a folder without any run there are none: what must be there is for the caller to say.
fn folders(paths: &Paths, word: &str) -> anyhow::Result<Vec<PathBuf>> {
    let candidates = [PathBuf::from(word), paths.reports.join(word)];
    let Some(folder) = candidates.into_iter().find(|folder| folder.is_dir()) else {
        bail!("there is no run `{word}`, neither as a path nor in {}", paths.reports.display());
    };
    let folder = folder.canonicalize().with_context(|| format!("failed to resolve {}", folder.display()))?;
    let mut found = Vec::new();
    search(&folder, DEPTH, &mut found)?;
    found.sort();
    Ok(found)
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
