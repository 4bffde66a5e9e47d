//! The events of the runs that command-line arguments name.

use std::path::PathBuf;

use cli::{Failure, OrExit, Paths};
use model::{Event, Exit};
use report::Child;
use sys::run_dir;

use crate::run_folders::folders;

/// A recorded run.
pub(super) struct Recorded {
    pub(super) folder: PathBuf,
    pub(super) events: Vec<Event>,
}

/// Every run that the arguments name.
pub(super) fn read(paths: &Paths, words: &[String]) -> Result<Vec<Recorded>, Failure> {
    let read = |folder: PathBuf| {
        let events = report::read(&run_dir::recorded(&folder).0).or_exit(Exit::Usage)?;
        Ok(Recorded { folder, events })
    };
    folders(paths, words).or_exit(Exit::Usage)?.into_iter().map(read).collect()
}

/// The same, merged.
pub(super) fn merged(paths: &Paths, words: &[String]) -> Result<Vec<Child>, Failure> {
    let runs = read(paths, words)?;
    Ok(report::merge(runs.into_iter().map(|run| run.events).collect()))
}
