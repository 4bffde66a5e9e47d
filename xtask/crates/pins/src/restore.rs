//! Restores files after a failure.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::Context;
use sys::progress;

/// The content of files before a change. Dropping it restores them, unless [`Restore::keep`] was called.
pub(crate) struct Restore {
    /// None: the file did not exist.
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
    /// Removed with their content.
    folders: Vec<PathBuf>,
}

impl Restore {
    /// Reads the files. A folder in `new` must not exist yet.
    ///
    /// # Errors
    /// A file cannot be read, or a new folder exists.
    pub(crate) fn of(files: &[PathBuf], new: &[PathBuf]) -> anyhow::Result<Restore> {
        for folder in new {
            anyhow::ensure!(!folder.exists(), "{} exists already: remove it first", folder.display());
        }
        let content = |file: &PathBuf| match fs::read(file) {
            Ok(bytes) => Ok((file.clone(), Some(bytes))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok((file.clone(), None)),
            Err(error) => Err(error).with_context(|| format!("failed to read {}", file.display())),
        };
        let files = files.iter().map(content).collect::<anyhow::Result<_>>()?;
        Ok(Restore { files, folders: new.to_vec() })
    }

    /// Keeps the changes.
    pub(crate) fn keep(mut self) {
        self.files.clear();
        self.folders.clear();
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        let restored = self.files.iter().map(|(file, content)| match content {
            Some(bytes) => (file, fs::write(file, bytes)),
            None if file.exists() => (file, fs::remove_file(file)),
            None => (file, Ok(())),
        });
        let removed = self.folders.iter().filter(|folder| folder.exists());
        let removed = removed.map(|folder| (folder, fs::remove_dir_all(folder)));
        for (path, result) in restored.chain(removed) {
            if let Err(error) = result {
                progress::say(&format!("{} could not be restored: {error}; use git", path.display()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sys::Scratch;

    use super::*;

    #[test]
    fn dropped_changes_are_undone_and_kept_ones_stay() {
        let dir = Scratch::temporary("restore").unwrap();
        let (old, new, folder) = (dir.write("old", "1"), dir.path().join("new"), dir.path().join("folder"));
        let change = || {
            let restore = Restore::of(&[old.clone(), new.clone()], std::slice::from_ref(&folder)).unwrap();
            dir.write("old", "2");
            dir.write("new", "2");
            dir.write("folder/file", "2");
            restore
        };
        drop(change());
        assert_eq!(fs::read_to_string(&old).unwrap(), "1");
        assert!(!new.exists() && !folder.exists());
        change().keep();
        assert_eq!(fs::read_to_string(&old).unwrap(), "2");
        assert!(new.exists() && folder.exists());
        assert!(Restore::of(&[], &[folder]).is_err(), "an existing folder would be removed");
    }
}
