//! Files with a secret: never readable by other users, and either complete or absent.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use model::Secret;

use crate::Error;

/// A file that does not have its final name yet. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Private {
    file: File,
    part: PathBuf,
    to: PathBuf,
}

impl Private {
    /// Call this before the secret is requested, to check that it can be written: a registered runner whose secret is
    /// lost would have to be deleted again.
    pub(super) fn create(to: &Path) -> Result<Private, Error> {
        if to.is_dir() {
            return Err(Error::Config(format!("{} is a folder: give a file with --out", to.display())));
        }
        let mut part = to.as_os_str().to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(part);
        // `create_new` follows no symbolic link that another user has created.
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&part)
            .map_err(|error| failed(to, &error))?;
        Ok(Private { file, part, to: to.to_owned() })
    }

    /// Replaces an older file; replaces a symbolic link instead of following it.
    pub(super) fn write(mut self, secret: &Secret) -> Result<(), Error> {
        let text = format!("{}\n", secret.expose());
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_all());
        written.and_then(|()| std::fs::rename(&self.part, &self.to)).map_err(|error| failed(&self.to, &error))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // Fails after the file got its final name. Otherwise it is empty or incomplete.
        let _ = std::fs::remove_file(&self.part);
    }
}

fn failed(to: &Path, error: &std::io::Error) -> Error {
    Error::Config(format!("failed to write {}: {error}", to.display()))
}
