//! A layer of programs as a tar file that depends on nothing but the programs and their places: no times, no owners, no
//! order of a file system.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use tar::{Builder, EntryType, Header};

use crate::digest::{self, Hashing};

const PROGRAM: u32 = 0o755;
const FOLDER: u32 = 0o755;

/// A program and its place.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// In the image, without a slash before it.
    pub(crate) path: String,
    pub(crate) file: PathBuf,
    /// Hexadecimal SHA-256 of what was audited.
    pub(crate) sha256: String,
}

/// A layer whose digest and size are known before it is written.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    programs: Vec<Program>,
    digest: String,
    size: u64,
}

impl Layer {
    /// Reads all programs once.
    ///
    /// # Errors
    /// A program cannot be read, or is not what was audited.
    pub(crate) fn of(mut programs: Vec<Program>) -> anyhow::Result<Layer> {
        programs.sort_by(|a, b| a.path.cmp(&b.path));
        let mut layer = Layer { programs, digest: String::new(), size: 0 };
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

    pub(crate) fn write(&self, out: impl Write) -> anyhow::Result<()> {
        let mut tar = Builder::new(out);
        let parents =
            |path: &str| -> Vec<String> { path.match_indices('/').map(|(at, _)| path[..=at].to_owned()).collect() };
        let folders: BTreeSet<String> = self.programs.iter().flat_map(|program| parents(&program.path)).collect();
        for folder in folders {
            let mut header = header(EntryType::Directory, FOLDER, 0);
            tar.append_data(&mut header, &folder, io::empty())?;
        }
        for program in &self.programs {
            append(&mut tar, program).with_context(|| format!("failed to pack {}", program.file.display()))?;
        }
        tar.into_inner()?.flush()?;
        Ok(())
    }
}

fn append(tar: &mut Builder<impl Write>, program: &Program) -> anyhow::Result<()> {
    let file = File::open(&program.file)?;
    let mut header = header(EntryType::Regular, PROGRAM, file.metadata()?.len());
    let mut hashing = Hashing::new(BufReader::new(file));
    tar.append_data(&mut header, &program.path, &mut hashing)?;
    let (found, _) = hashing.finish();
    if digest::digits(&found) != Some(program.sha256.as_str()) {
        bail!(
            "it has changed since it was audited: expected SHA-256 {}, found {found}; build it again",
            program.sha256
        );
    }
    Ok(())
}

/// Of root, and of the first second of 1970.
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
    use super::*;
    use crate::testing::TempDir;

    fn program(dir: &TempDir, path: &str, content: &str) -> Program {
        let file = dir.write(&path.replace('/', "-"), content);
        let sha256 = digest::digits(&digest::of(content.as_bytes())).unwrap().to_owned();
        Program { path: path.into(), file, sha256 }
    }

    #[test]
    fn a_layer_is_its_programs_and_nothing_of_the_machine() {
        let (one, other) = (TempDir::new(), TempDir::new());
        let layer = |dir: &TempDir, names: [&str; 2]| {
            let programs = names.map(|name| program(dir, name, "x")).to_vec();
            let layer = Layer::of(programs).unwrap();
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
    fn a_program_that_changed_since_its_audit_is_refused() {
        let dir = TempDir::new();
        let program = program(&dir, "pause", "audited");
        dir.write("pause", "changed");
        let error = format!("{:#}", Layer::of(vec![program]).unwrap_err());
        assert!(error.contains("has changed since it was audited"), "{error}");
    }
}
