//! The archive: the programs, the target data, the licence and the digests of all files; the same bytes for the same files.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use flate2::{Compression, GzBuilder};
use images::{Entries, Entry, Layer};
use sys::exec::{self, Shell, cmd};
use sys::store;

use crate::Archive;
use crate::compile::Program;

/// Committed files that an archive contains, next to the programs.
const DATA: [&str; 2] = ["LICENSE", "targets"];
const SUMS: &str = "SHA256SUMS";
const SUFFIX: &str = ".tar.gz";
const MODE: u32 = 0o644;
const PROGRAM_MODE: u32 = 0o755;
const QUESTION: Duration = Duration::from_secs(60);

/// Files that are the same in all archives: path in the archive and content.
pub(crate) struct Content(Vec<(String, Vec<u8>)>);

impl Content {
    /// The committed files of the checkout, with uncommitted changes; files that git does not know stay out.
    pub(crate) fn of(checkout: &Path) -> anyhow::Result<Content> {
        let shell = Shell::new()?;
        let list = cmd!(shell, "git -C {checkout} ls-files -z --").args(DATA);
        let list = exec::run(list, QUESTION).context("the files of an archive are those that git lists")?.stdout;
        let read = |path: &str| {
            let file = checkout.join(path);
            let bytes = fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?;
            Ok((path.to_owned(), bytes))
        };
        let files = list.split_terminator('\0').map(read).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(!files.is_empty(), "git lists none of {} in {}", DATA.join(", "), checkout.display());
        Ok(Content(files))
    }

    /// Writes `OUT/NAME.tar.gz` with one folder `NAME`.
    pub(crate) fn write(&self, programs: &[Program], name: &str, out: &Path) -> anyhow::Result<Archive> {
        let mut entries = Entries::new();
        let mut sums = Vec::new();
        let programs = programs.iter().map(|program| (program.name, program.bytes.as_slice(), PROGRAM_MODE));
        let data = self.0.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice(), MODE));
        for (path, bytes, mode) in programs.chain(data) {
            sums.push((build::sha256(bytes), path));
            entries.insert(format!("{name}/{path}"), Entry::Text { content: bytes.to_owned(), mode });
        }
        entries.insert(format!("{name}/{SUMS}"), Entry::Text { content: lines(sums).into_bytes(), mode: MODE });
        // Without a file name and a time.
        let mut gzip = GzBuilder::new().write(Vec::new(), Compression::best());
        Layer::new(entries)?.write(&mut gzip)?;
        let bytes = gzip.finish()?;
        fs::create_dir_all(out).with_context(|| format!("failed to create {}", out.display()))?;
        let path = out.join(format!("{name}{SUFFIX}"));
        store::write(&path, &bytes, MODE)?;
        let (sha256, size) = (build::sha256(&bytes), bytes.len() as u64);
        Ok(Archive { path, sha256, size, arch: String::new(), program_size: 0, glibc: String::new() })
    }
}

/// Writes `SHA256SUMS` of all archives in the folder.
pub(crate) fn write_sums(out: &Path) -> anyhow::Result<()> {
    let mut sums = Vec::new();
    for entry in fs::read_dir(out).with_context(|| format!("failed to list {}", out.display()))? {
        let file = entry?.path();
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.ends_with(SUFFIX) {
            sums.push((build::sha256(&fs::read(&file)?), name));
        }
    }
    store::write(&out.join(SUMS), lines(sums).as_bytes(), MODE)
}

/// The format of `sha256sum --check`, sorted by file.
fn lines(mut sums: Vec<(String, impl AsRef<str>)>) -> String {
    sums.sort_by(|a, b| a.1.as_ref().cmp(b.1.as_ref()));
    sums.iter().map(|(sum, file)| format!("{sum}  {}\n", file.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    use sys::Scratch;

    use super::*;

    #[test]
    fn archive_depends_on_its_files_only_and_verifies_them() {
        let dir = Scratch::temporary("dist").unwrap();
        let content = Content(vec![("targets/one.yaml".into(), b"one".to_vec()), ("LICENSE".into(), Vec::new())]);
        let programs = [Program { name: "archproof", bytes: b"program".to_vec() }];
        let [first, second] = ["first", "second"].map(|out| {
            let archive = content.write(&programs, "archproof-1-x", &dir.path().join(out)).unwrap();
            write_sums(&dir.path().join(out)).unwrap();
            archive
        });
        assert_eq!((first.sha256, first.size), (second.sha256, second.size));
        let shell = Shell::new().unwrap();
        shell.change_dir(dir.path().join("first"));
        exec::run(cmd!(shell, "sha256sum --check --strict SHA256SUMS"), QUESTION).unwrap();
        exec::run(cmd!(shell, "tar -xf archproof-1-x.tar.gz"), QUESTION).unwrap();
        shell.change_dir("archproof-1-x");
        exec::run(cmd!(shell, "test -x archproof -a ! -x LICENSE"), QUESTION).unwrap();
        let verified = exec::run(cmd!(shell, "sha256sum --check --strict SHA256SUMS"), QUESTION).unwrap().stdout;
        assert_eq!(verified, "LICENSE: OK\narchproof: OK\ntargets/one.yaml: OK\n");
        fs::write(dir.path().join("first/archproof-1-x/archproof"), "altered").unwrap();
        assert!(exec::run(cmd!(shell, "sha256sum --check --strict SHA256SUMS"), QUESTION).is_err());
    }
}
