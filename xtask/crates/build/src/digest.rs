//! SHA-256 of bytes, of lists of fields, and of folders.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use ring::digest::{Context, SHA256, digest};

/// Lower-case hexadecimal SHA-256.
pub fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// A digest over fields, each prefixed by its length, so that moving a byte from one field to the next changes it.
pub struct Fields(Context);

impl Default for Fields {
    fn default() -> Fields {
        Fields(Context::new(&SHA256))
    }
}

impl Fields {
    pub fn add(&mut self, field: impl AsRef<[u8]>) {
        let bytes = field.as_ref();
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Adds a file by name and content. A missing file and a file of another type count too.
    pub(crate) fn add_file(&mut self, root: &Path, relative: &Path) -> anyhow::Result<()> {
        let path = root.join(relative);
        self.add(relative.as_os_str().as_encoded_bytes());
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => {
                self.add("link");
                self.add(fs::read_link(&path)?.as_os_str().as_encoded_bytes());
            }
            Ok(meta) if meta.is_file() => {
                self.add("file");
                self.add(fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?);
            }
            Ok(_) => self.add("other"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.add("none"),
            Err(error) => return Err(error).with_context(|| format!("failed to inspect {}", path.display())),
        }
        Ok(())
    }

    /// Adds every file below `dir`, sorted by name, without the `.git` folder.
    pub(crate) fn add_folder(&mut self, dir: &Path) -> anyhow::Result<()> {
        let mut pending = vec![std::path::PathBuf::new()];
        while let Some(relative) = pending.pop() {
            let folder = dir.join(&relative);
            let entries = fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))?;
            let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let inner = relative.join(entry.file_name());
                if !entry.file_type()?.is_dir() {
                    self.add_file(dir, &inner)?;
                } else if entry.file_name() != ".git" {
                    pending.push(inner);
                }
            }
        }
        Ok(())
    }

    /// Lower-case hexadecimal digits.
    pub fn finish(self) -> String {
        hex(self.0.finish().as_ref())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use sys::Scratch;

    use super::*;

    #[test]
    fn known_answer() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn fields_are_framed() {
        let of = |fields: &[&str]| {
            let mut digest = Fields::default();
            fields.iter().for_each(|f| digest.add(f));
            digest.finish()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
    }

    #[test]
    fn folder_digest_covers_names_and_contents() {
        let of = |dir: &Scratch| {
            let mut digest = Fields::default();
            digest.add_folder(dir.path()).unwrap();
            digest.finish()
        };
        let dir = Scratch::temporary("digest").unwrap();
        dir.write("a/b.go", "package b");
        dir.write("c.go", "package c");
        let first = of(&dir);
        assert_eq!(of(&dir), first);
        dir.write(".git/index", "not source");
        assert_eq!(of(&dir), first);
        dir.write("a/b.go", "package B");
        assert_ne!(of(&dir), first);
        dir.write("a/b.go", "package b");
        assert_eq!(of(&dir), first);
        std::fs::rename(dir.path().join("c.go"), dir.path().join("d.go")).unwrap();
        assert_ne!(of(&dir), first);
    }
}
