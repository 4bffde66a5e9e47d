//! Files and folders of the cache that appear atomically, even when several processes create them or one is killed.
//!
//! The unfinished entry is called `NAME.part`, and the process that creates it locks it (flock). So two processes that
//! create the same entry wait for each other, and a free lock shows that the process which left a `NAME.part` is dead.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use crate::deadline::{OnInterrupt, Probe, until};
use crate::process::unique_name;

const PART: &str = "part";
/// Only guards against a hang: another process may need long to create the same entry on a slow disk.
const OTHERS: Duration = Duration::from_secs(1800);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// An unfinished file or folder that only this process writes. Dropping it removes it; [`AtomicDir::publish`] renames it.
#[derive(Debug)]
pub struct AtomicDir {
    lock: File,
    part: PathBuf,
    to: PathBuf,
    done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
}

/// Claims `to` in order to create it. None: another process is creating it right now.
pub fn claim(to: &Path, kind: Kind) -> anyhow::Result<Option<AtomicDir>> {
    let part = part_of(to);
    try_claim(&part, to, kind).with_context(|| format!("failed to write {}: {}", part.display(), hint()))
}

/// Replaces a file by these bytes with this mode, so that an interrupted write leaves no half of it.
pub fn write(to: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let claimed = claim(to, Kind::File)?.with_context(|| format!("another process is writing {}", to.display()))?;
    let failed = || format!("failed to write {}: {}", claimed.part.display(), hint());
    let mut file = claimed.file();
    file.write_all(bytes).with_context(failed)?;
    file.set_permissions(fs::Permissions::from_mode(mode)).with_context(failed)?;
    claimed.publish()
}

/// [`claim`] for a folder, as soon as no other process creates it. By then the finished folder may exist.
pub fn claim_folder(to: &Path) -> anyhow::Result<AtomicDir> {
    if let Some(folder) = to.parent() {
        sweep(folder);
    }
    claim_when_free(to, Kind::Folder)
}

/// [`claim`] for a file, as soon as no other process writes it. If every process reads and replaces a file only under its
/// claim, no change is lost.
pub fn claim_file(to: &Path) -> anyhow::Result<AtomicDir> {
    claim_when_free(to, Kind::File)
}

fn claim_when_free(to: &Path, kind: Kind) -> anyhow::Result<AtomicDir> {
    let what = format!("{}, which another process is creating", to.display());
    let claimed = until(&what, OTHERS, LOOK_EVERY, OnInterrupt::Stop, || match claim(to, kind) {
        Ok(Some(claim)) => Probe::Ready(claim),
        Ok(None) => Probe::NotYet("it is not finished".to_owned()),
        Err(error) => Probe::Hopeless(error),
    });
    Ok(claimed?)
}

/// The hint for errors when the cache cannot be written.
pub fn hint() -> &'static str {
    "free space with `cargo xtask cache prune`, or choose another folder with --cache"
}

/// Removes the unfinished entries of dead processes from a folder. Never fails, so that it cannot block the caller.
pub fn sweep(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == PART)) {
        if let Ok(lock) = File::open(&path)
            && lock.try_lock().is_ok()
        {
            remove(&path);
        }
    }
}

impl AtomicDir {
    /// The path of the unfinished file or folder.
    pub fn path(&self) -> &Path {
        &self.part
    }

    /// The file itself, opened for writing and empty.
    pub fn file(&self) -> &File {
        &self.lock
    }

    /// Renames the finished entry to its final name, and replaces an existing one.
    pub fn publish(mut self) -> anyhow::Result<()> {
        let made = || {
            if self.lock.metadata()?.is_dir() {
                self.replace_folder()
            } else {
                self.lock.sync_all()?;
                fs::rename(&self.part, &self.to)
            }
        };
        made().with_context(|| format!("failed to write {}: {}", self.to.display(), hint()))?;
        self.done = true;
        Ok(())
    }

    fn replace_folder(&self) -> std::io::Result<()> {
        match fs::rename(&self.part, &self.to) {
            // A damaged folder is in the way. This process holds the claim, so no other process changes it.
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
                let aside = self.to.with_extension(format!("old-{}.{PART}", unique_name()));
                fs::rename(&self.to, &aside)?;
                let renamed = fs::rename(&self.part, &self.to);
                remove(&aside);
                renamed
            }
            other => other,
        }
    }
}

impl Drop for AtomicDir {
    fn drop(&mut self) {
        if !self.done {
            remove(&self.part);
        }
    }
}

fn try_claim(part: &Path, to: &Path, kind: Kind) -> std::io::Result<Option<AtomicDir>> {
    if let Some(dir) = part.parent() {
        fs::create_dir_all(dir)?;
    }
    let lock = match kind {
        Kind::File => OpenOptions::new().create(true).truncate(false).write(true).open(part)?,
        Kind::Folder => {
            fs::create_dir_all(part)?;
            match File::open(part) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                other => other?,
            }
        }
    };
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(None),
        other => other?,
    }
    // The last owner may have renamed or removed it between the open and the lock.
    let same = fs::symlink_metadata(part).is_ok_and(|now| lock.metadata().is_ok_and(|ours| now.ino() == ours.ino()));
    if !same {
        return Ok(None);
    }
    let claim = AtomicDir { lock, part: part.to_owned(), to: to.to_owned(), done: false };
    match kind {
        Kind::File => claim.lock.set_len(0)?,
        Kind::Folder => {
            for entry in fs::read_dir(part)?.flatten() {
                remove(&entry.path());
            }
        }
    }
    Ok(Some(claim))
}

fn part_of(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(PART);
    to.with_file_name(name)
}

/// If the removal fails, a later sweep removes the entry.
fn remove(path: &Path) {
    let folder = fs::symlink_metadata(path).is_ok_and(|data| data.is_dir());
    let _ = if folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}
