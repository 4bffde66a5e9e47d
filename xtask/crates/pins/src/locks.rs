//! The age of the Debian locks. Only `fetch --update-lock` finds out whether a lock is outdated.

use std::path::Path;

use anyhow::Context;
use jiff::Timestamp;

use crate::pinned::read;
use crate::state::{Line, State, days};

/// The name in the first column.
pub(crate) const SET: &str = "debian";
const FOLDER: &str = "architectures";

/// A row for each lock of an architecture.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn check(targets: &Path, now: Timestamp) -> anyhow::Result<Vec<Line>> {
    let folder = targets.join(FOLDER);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))?;
    let mut locks: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    locks.retain(|path| path.extension().is_some_and(|extension| extension == "lock"));
    locks.sort();
    let row = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(row(&name, &read(path)?, now))
    };
    locks.iter().map(row).collect()
}

/// The newest index that the lock was resolved from is its age.
fn row(name: &str, lock: &str, now: Timestamp) -> Line {
    let dates = lock.lines().filter_map(|line| line.strip_prefix("suite ")?.split_whitespace().nth(1)?.parse().ok());
    let Some(newest) = dates.max() else {
        return Line::unknown(SET, name, "-", "the lock names no index");
    };
    let (age, date) = (days(newest, now), newest.strftime("%Y-%m-%d").to_string());
    let note = "`cargo xtask fetch --update-lock` resolves it again".to_owned();
    Line { pinned: Some(date), days: Some(age), note, ..Line::new(SET, name, State::NotChecked) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_that_of_the_newest_index() {
        let now = "2026-11-27T00:00:00Z".parse().unwrap();
        let lock = "# suite: name\nsuite old 2026-07-11T10:16:37Z x\nsuite new 2026-11-21T09:15:44Z x\npackage a\n";
        let line = row("board", lock, now);
        assert_eq!((line.pinned.as_deref(), line.days, line.overdue), (Some("2026-11-21"), Some(5), false));
        assert_eq!(row("board", "suite\n", now).state, State::Unknown);
    }
}
