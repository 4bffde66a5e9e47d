//! Who uses a folder of the cache: a process holds it until it ends, however it ends, and nobody removes it meanwhile.
//!
//! A hold is a shared lock (flock) on the folder itself, so nothing has to be cleaned up after a crash. Taking it also
//! notes the time in the folder, as its last use.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, futimens};

/// What this process holds until its end.
static HELD: Mutex<Vec<(PathBuf, File)>> = Mutex::new(Vec::new());

/// Holds a folder, or a file, until this process ends. False: it is not there, or is just being removed.
pub fn hold(path: &Path) -> bool {
    let mut held = HELD.lock().unwrap_or_else(|e| e.into_inner());
    // One that was removed and made again is another one.
    let same = |file: &File| file.metadata().is_ok_and(|ours| is(path, &ours));
    if held.iter().any(|(known, file)| known == path && same(file)) {
        return true;
    }
    let Ok(file) = File::open(path) else { return false };
    // Who is removing it has it for a moment, and then it is no longer this one.
    if flock(&file, FlockOperation::LockShared).is_err() || !same(&file) {
        return false;
    }
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    // On a read-only cache nobody will ask for the last use.
    let _ = futimens(&file, &Timestamps { last_access: now, last_modification: now });
    held.push((path.to_owned(), file));
    true
}

/// A folder or file that nobody holds, and nobody can hold before this value is dropped. None: somebody holds it.
pub fn unheld(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    file.metadata().is_ok_and(|ours| is(path, &ours)).then_some(file)
}

/// When it was last held.
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
    fn what_is_held_is_not_removed_and_what_is_being_removed_is_not_held() {
        let dir = std::env::temp_dir().join(format!("archproof-hold-{}", std::process::id()));
        let [used, unused] = ["used", "unused"].map(|name| dir.join(name));
        fs::create_dir_all(&used).unwrap();
        fs::create_dir_all(&unused).unwrap();
        assert!(hold(&used) && hold(&used));
        assert!(unheld(&used).is_none());
        let removing = unheld(&unused).unwrap();
        fs::rename(&unused, dir.join("aside")).unwrap();
        drop(removing);
        assert!(!hold(&unused));
        assert!(!hold(&dir.join("nowhere")));
        fs::remove_dir_all(&used).unwrap();
        fs::create_dir_all(&used).unwrap();
        assert!(unheld(&used).is_some(), "it is another folder of the same name");
        fs::remove_dir_all(dir).unwrap();
    }
}
