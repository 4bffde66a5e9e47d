//! The newest index of each suite that was used on this machine. Older indexes are refused.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sys::progress;

use crate::lock::{Lock, Suite};
use crate::release::Release;

/// In the cache, next to the indexes; it has the format of a lock without packages.
const FILE: &str = "suites.lock";

pub(crate) struct Record {
    pub(crate) file: PathBuf,
    lock: RefCell<Lock>,
}

impl Record {
    /// Reads the record; if it cannot be read, starts a new one.
    pub(crate) fn load(debian: &Path) -> Record {
        let file = debian.join(FILE);
        let lock = Lock::load(&file).unwrap_or_else(|error| {
            progress::say(&format!("note: {error:#}; a new record is started"));
            Lock::default()
        });
        Record { file, lock: RefCell::new(lock) }
    }

    /// The date of the newest index of a suite.
    pub(crate) fn date(&self, suite: &str) -> Option<Timestamp> {
        self.lock.borrow().suites.get(suite).map(|suite| suite.date)
    }

    /// Records an accepted index, if it is newer than the recorded one.
    pub(crate) fn add(&self, suite: &str, release: &Release) -> anyhow::Result<()> {
        if self.date(suite).is_some_and(|noted| noted >= release.date) {
            return Ok(());
        }
        let used = (suite.to_owned(), release.used()?);
        // If another process is writing the record, skip it; the lock of the resolved packages contains the date as
        // well.
        let amended = Lock::amend(&self.file, |lock| {
            lock.suites = Suite::newest(lock.suites.iter().chain([(&used.0, &used.1)]));
        })?;
        if let Some(lock) = amended {
            self.lock.replace(lock);
        }
        Ok(())
    }
}
