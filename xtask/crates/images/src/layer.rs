//! A layer as a tar file that depends only on its content and paths: not on times, owners or the order of a file
//! system.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use sys::interrupt;
use tar::{Builder, EntryType, Header};

use crate::digest::{self, Hashing};

/// The mode of programs.
pub(crate) const PROGRAM: u32 = 0o755;
const FOLDER: u32 = 0o755;

/// The content at a path of a layer.
#[derive(Clone, Debug)]
pub enum Entry {
    Folder {
        mode: u32,
    },
    /// A file of this machine. With `sha256` (hexadecimal) it must be the audited one.
    File {
        file: PathBuf,
        mode: u32,
        sha256: Option<String>,
    },
    Text {
        content: Vec<u8>,
        mode: u32,
    },
    Link {
        target: PathBuf,
    },
}

/// Paths without a leading slash, and their content. Parent folders are added.
pub type Entries = BTreeMap<String, Entry>;

/// A layer whose digest and size are known before it is written.
#[derive(Clone, Debug)]
pub struct Layer {
    entries: Entries,
    digest: String,
    size: u64,
}

impl Layer {
    /// Reads all files once.
    ///
    /// # Errors
    /// A file cannot be read, or is not the audited one.
    pub fn new(mut entries: Entries) -> anyhow::Result<Layer> {
        let parents =
            |path: &String| -> Vec<String> { path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect() };
        for folder in entries.keys().flat_map(parents).collect::<Vec<_>>() {
            entries.entry(folder).or_insert(Entry::Folder { mode: FOLDER });
        }
        let mut layer = Layer { entries, digest: String::new(), size: 0 };
        let mut hashing = Hashing::new(io::sink());
        layer.write(&mut hashing)?;
        (layer.digest, layer.size) = hashing.finish();
        Ok(layer)
    }

    /// "sha256:…" of the tar file; the layer is not compressed, so this is its diff ID as well.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// Bytes of the tar file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Writes the tar file.
    ///
    /// # Errors
    /// As for [`Layer::new`], or `out` cannot be written.
    pub fn write(&self, out: impl Write) -> anyhow::Result<()> {
        let mut tar = Builder::new(out);
        // Folders first, so that the parent of each file exists.
        let (folders, others): (Vec<_>, Vec<_>) =
            self.entries.iter().partition(|(_, entry)| matches!(entry, Entry::Folder { .. }));
        for (path, entry) in folders.into_iter().chain(others) {
            interrupt::check()?;
            append(&mut tar, path, entry).with_context(|| format!("failed to pack {path}"))?;
        }
        tar.into_inner()?.flush()?;
        Ok(())
    }
}

fn append(tar: &mut Builder<impl Write>, path: &str, entry: &Entry) -> anyhow::Result<()> {
    match entry {
        Entry::Folder { mode } => {
            Ok(tar.append_data(&mut header(EntryType::Directory, *mode, 0), format!("{path}/"), io::empty())?)
        }
        Entry::Link { target } => Ok(tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?),
        Entry::Text { content, mode } => {
            let mut header = header(EntryType::Regular, *mode, content.len() as u64);
            Ok(tar.append_data(&mut header, path, content.as_slice())?)
        }
        Entry::File { file, mode, sha256 } => append_file(tar, path, file, *mode, sha256.as_deref())
            .with_context(|| format!("failed to add {}", file.display())),
    }
}

fn append_file(
    tar: &mut Builder<impl Write>,
    path: &str,
    file: &Path,
    mode: u32,
    sha256: Option<&str>,
) -> anyhow::Result<()> {
    let file = File::open(file)?;
    let mut header = header(EntryType::Regular, mode, file.metadata()?.len());
    let mut hashing = Hashing::new(BufReader::with_capacity(1 << 18, file));
    tar.append_data(&mut header, path, &mut hashing)?;
    let (found, _) = hashing.finish();
    if let Some(sha256) = sha256.filter(|sha256| digest::digits(&found) != Some(*sha256)) {
        bail!("it has changed since it was audited: expected SHA-256 {sha256}, found {found}; build it again");
    }
    Ok(())
}

/// Owned by root, with the first second of 1970 as its time.
pub(crate) fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

#[cfg(test)]
mod tests {
    use sys::Scratch;

    use super::*;

    fn program(dir: &Scratch, path: &str, content: &str) -> (String, Entry) {
        let file = dir.write(&path.replace('/', "-"), content);
        let sha256 = digest::digits(&digest::of(content.as_bytes())).map(str::to_owned);
        (path.into(), Entry::File { file, mode: PROGRAM, sha256 })
    }

    #[test]
    fn layer_contains_its_programs_and_nothing_of_the_machine() {
        let [one, other] = [1, 2].map(|_| Scratch::temporary("layer").unwrap());
        let layer = |dir: &Scratch, names: [&str; 2]| {
            let layer = Layer::new(names.map(|name| program(dir, name, "x")).into()).unwrap();
            let mut bytes = Vec::new();
            layer.write(&mut bytes).unwrap();
            assert_eq!((digest::of(&bytes), bytes.len() as u64), (layer.digest().to_owned(), layer.size()));
            bytes
        };
        let first = layer(&one, ["usr/local/bin/b", "a"]);
        assert_eq!(layer(&other, ["a", "usr/local/bin/b"]), first);
        assert_ne!(layer(&other, ["a", "usr/local/bin/c"]), first);
        let mut tar = tar::Archive::new(first.as_slice());
        let entries = tar.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
            (entry.path().unwrap().display().to_string(), header.mode().unwrap())
        });
        let names = ["usr/", "usr/local/", "usr/local/bin/", "a", "usr/local/bin/b"].map(|n| (n.to_owned(), 0o755));
        assert_eq!(entries.collect::<Vec<_>>(), names);
    }

    #[test]
    fn program_that_changed_since_its_audit_is_refused() {
        let dir = Scratch::temporary("layer").unwrap();
        let program = program(&dir, "pause", "audited");
        dir.write("pause", "changed");
        let error = format!("{:#}", Layer::new([program].into()).unwrap_err());
        assert!(error.contains("has changed since it was audited"), "{error}");
    }
}
