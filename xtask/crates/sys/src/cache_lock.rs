//! Shared use of cache folders: a process holds a folder until it ends, even if it crashes, and no process removes a
//! held folder.
//!
//! A hold is a shared lock (flock) on the folder itself, so a crash leaves nothing to clean up. Taking it also sets the
//! folder's modification time, which records its last use.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

/// The paths and locks that this process holds until it ends.
static HELD: Mutex<Vec<(PathBuf, File)>> = Mutex::new(Vec::new());

/// Holds a folder or file until this process ends. False: it does not exist, or another process is removing it.
pub fn shared(path: &Path) -> bool {
    let mut held = crate::lock(&HELD);
    // A folder that was removed and created again under the same name is a different folder.
    let same = |file: &File| file.metadata().is_ok_and(|ours| is(path, &ours));
    if held.iter().any(|(known, file)| known == path && same(file)) {
        return true;
    }
    let Ok(file) = File::open(path) else { return false };
    // A process that removes the folder holds the lock for a moment; afterwards the path is no longer this folder. On a
    // file system without locks this fails, but so does `try_exclusive`: no process removes the folder.
    let _ = file.lock_shared();
    if !same(&file) {
        return false;
    }
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    // On a read-only cache this fails, but the cache cannot be pruned either, so the last use is not needed.
    let _ = futimens(&file, &Timestamps { last_access: now, last_modification: now });
    held.push((path.to_owned(), file));
    true
}

/// A folder or file that no process holds; none can hold it until this value is dropped. None: some process holds it.
pub fn try_exclusive(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    file.try_lock().ok()?;
    file.metadata().is_ok_and(|ours| is(path, &ours)).then_some(file)
}

/// When it was last held, as recorded by [`shared`].
pub fn last_use(path: &Path) -> Option<SystemTime> {
    fs::symlink_metadata(path).ok()?.modified().ok()
}

fn is(path: &Path, ours: &fs::Metadata) -> bool {
    fs::metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == (ours.dev(), ours.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_folder_is_not_removed_and_folder_in_removal_is_not_held() {
        let scratch = crate::Scratch::temporary("hold").unwrap();
        let dir = scratch.path();
        let [used, unused] = ["used", "unused"].map(|name| dir.join(name));
        fs::create_dir_all(&used).unwrap();
        fs::create_dir_all(&unused).unwrap();
        assert!(shared(&used) && shared(&used));
        assert!(try_exclusive(&used).is_none());
        let removing = try_exclusive(&unused).unwrap();
        fs::rename(&unused, dir.join("aside")).unwrap();
        drop(removing);
        assert!(!shared(&unused));
        assert!(!shared(&dir.join("nowhere")));
        fs::remove_dir_all(&used).unwrap();
        fs::create_dir_all(&used).unwrap();
        assert!(try_exclusive(&used).is_some(), "a new folder of the same name must not be held");
    }
}
