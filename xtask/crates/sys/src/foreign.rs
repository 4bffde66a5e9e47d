//! Reads files from folders that another machine may have written: downloaded artifacts, other people's run folders.
//!
//! A symbolic link in such a folder would copy a file of this machine into a published report, and a FIFO would block
//! the reader. This module refuses both. The caller validates the content of the files.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// Opens a regular file. Errors: a symbolic link as the last component, a device, a FIFO, a directory.
pub fn open(path: &Path) -> anyhow::Result<File> {
    let open = || {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags.bits().cast_signed());
        let file = options.open(path)?;
        ensure!(file.metadata()?.is_file(), "it is not a regular file");
        Ok(file)
    };
    open().with_context(|| format!("failed to read {}", path.display()))
}

/// Reads a regular file of at most `limit` bytes. Errors: as for [`open`], and for a longer file.
pub fn read(path: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes);
    read.with_context(|| format!("failed to read {}", path.display()))?;
    ensure!(bytes.len() as u64 <= limit, "failed to read {}: it is larger than {limit} bytes", path.display());
    Ok(bytes)
}

/// The regular files of a folder, sorted, and the number of other entries. A missing folder has no files; a folder that
/// is a symbolic link is an error.
pub fn list(folder: &Path) -> anyhow::Result<(Vec<PathBuf>, usize)> {
    let (files, _, others) = entries(folder)?;
    Ok((files, others))
}

/// The folders in a folder, sorted, without symbolic links. A missing folder has none; a folder that is a symbolic
/// link is an error.
pub fn folders(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    Ok(entries(folder)?.1)
}

/// Files, folders, and the number of other entries.
fn entries(folder: &Path) -> anyhow::Result<(Vec<PathBuf>, Vec<PathBuf>, usize)> {
    let failed = || format!("failed to read {}", folder.display());
    match folder.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new(), 0)),
        Err(error) => return Err(error).with_context(failed),
        Ok(metadata) => ensure!(metadata.is_dir(), "{}: it is not a folder", failed()),
    }
    let (mut files, mut folders, mut others) = (Vec::new(), Vec::new(), 0);
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        // Does not follow links.
        let kind = entry.file_type().with_context(failed)?;
        if kind.is_file() {
            files.push(entry.path());
        } else if kind.is_dir() {
            folders.push(entry.path());
        } else {
            others += 1;
        }
    }
    files.sort();
    folders.sort();
    Ok((files, folders, others))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{FileType, Mode, mknodat};

    use super::*;
    use crate::Scratch;

    #[test]
    fn links_and_fifos_are_refused() {
        let scratch = Scratch::temporary("foreign").unwrap();
        let dir = scratch.path();
        scratch.write("secret", "key");
        scratch.write("logs/a.log", "a");
        symlink(dir.join("secret"), dir.join("logs/b.log")).unwrap();
        symlink(dir.join("logs"), dir.join("linked")).unwrap();
        let fifo = dir.join("logs/c.log");
        mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert_eq!(list(&dir.join("logs")).unwrap(), (vec![dir.join("logs/a.log")], 2));
        assert_eq!(read(&dir.join("logs/a.log"), 1).unwrap(), b"a");
        assert!(read(&dir.join("logs/a.log"), 0).unwrap_err().to_string().contains("larger than 0 bytes"));
        for refused in ["logs/b.log", "logs/c.log", "logs"] {
            assert!(read(&dir.join(refused), 10).is_err(), "{refused}");
        }
        assert!(list(&dir.join("linked")).is_err());
        assert_eq!(list(&dir.join("missing")).unwrap(), (vec![], 0));
        assert_eq!(folders(dir).unwrap(), [dir.join("logs")]);
    }
}
