//! Unpacked packages in the cache: a folder named after everything that determines its content, with a manifest.
//!
//! Before a tree is used, each file's size, time and inode are compared with the manifest; if they differ (because the
//! cache was copied, or a file was altered), the digest of the content decides.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use sys::cache_lock;

use crate::deb::Unpacker;
use crate::digest;
use sys::store::{self, Kind};

const MANIFEST: &str = "manifest";
const FILES: &str = "files";
/// The manifest's last line: without it the manifest is incomplete.
const END: &str = "end";
/// Lines before those of the files: the maker's metadata, and the title.
const HEAD: usize = 2;

/// A complete tree.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// The folder of the files.
    pub(crate) root: PathBuf,
    /// Metadata that its maker stored.
    pub(crate) info: String,
}

/// How thoroughly the files are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Content only if size, time or inode differ.
    Quick,
    /// The content of every file.
    Full,
}

/// The tree at `dir`, if it exists and is intact; otherwise what is wrong with it, or None if it does not exist.
///
/// The tree is locked until this process ends, so that no other process removes it while it is in use.
pub(crate) fn open(dir: &Path, look: Look) -> Result<Tree, Option<String>> {
    if cache_lock::shared(dir) { look_at(dir, look) } else { Err(None) }
}

/// Like [`open`], for callers that do not use the tree.
pub(crate) fn look_at(dir: &Path, look: Look) -> Result<Tree, Option<String>> {
    let text = match fs::read_to_string(dir.join(MANIFEST)) {
        Ok(text) => text,
        Err(error) => return Err(Some(format!("its manifest cannot be read: {error}"))),
    };
    let root = dir.join(FILES);
    let mut stale = false;
    let mut lines = text.lines();
    let info = lines.next().unwrap_or_default().to_owned();
    let _title = lines.next();
    let mut ended = false;
    for line in lines {
        ended = line == END;
        if !ended {
            stale |= check(&root, line, look).map_err(|error| Some(format!("{error:#}")))?;
        }
    }
    if !ended {
        return Err(Some("its manifest is cut off".to_owned()));
    }
    if stale {
        // A failure does no harm: the next check computes the digests again.
        let _ = restamp(dir, &root, &text);
    }
    Ok(Tree { root, info })
}

/// The title of the tree at `dir`.
pub(crate) fn title(dir: &Path) -> Option<String> {
    fs::read_to_string(dir.join(MANIFEST)).ok()?.lines().nth(1).map(str::to_owned)
}

/// Makes the tree at `dir` with `fill`, which returns metadata to store; if another process is making it, waits for
/// that.
pub(crate) fn make(
    dir: &Path,
    title: &str,
    fill: impl FnOnce(&mut Unpacker) -> anyhow::Result<String>,
) -> anyhow::Result<Tree> {
    let claim = store::claim_folder(dir)?;
    if let Ok(tree) = open(dir, Look::Quick) {
        return Ok(tree);
    }
    let root = claim.path().join(FILES);
    fs::create_dir_all(&root).with_context(|| format!("failed to make {}: {}", root.display(), store::hint()))?;
    let mut unpacker = Unpacker::new(root.clone());
    let info = fill(&mut unpacker)?;
    let mut text = format!("{}\n{title}\n", info.lines().collect::<String>());
    for (path, sha256) in &unpacker.files {
        text.push_str(&line(&root, path, sha256)?);
    }
    for path in &unpacker.links {
        let target = fs::read_link(root.join(path))?;
        text.push_str(&format!("link {} {path}\n", target.display()));
    }
    text.push_str(END);
    text.push('\n');
    let manifest = claim.path().join(MANIFEST);
    fs::write(&manifest, text).with_context(|| format!("failed to write {}: {}", manifest.display(), store::hint()))?;
    claim.publish().with_context(|| format!("failed to finish {}", dir.display()))?;
    open(dir, Look::Quick).map_err(|why| {
        let why = why.unwrap_or("it no longer exists".to_owned());
        anyhow!("{} was altered while it was made: {why}", dir.display())
    })
}

/// `file SHA-256 SIZE TIME INODE PATH`.
pub(crate) fn line(root: &Path, path: &str, sha256: &str) -> anyhow::Result<String> {
    let file = root.join(path);
    let data = fs::symlink_metadata(&file).with_context(|| format!("failed to look at {}", file.display()))?;
    Ok(format!("file {sha256} {} {} {} {path}\n", data.len(), time(&data), data.ino()))
}

fn time(data: &fs::Metadata) -> String {
    format!("{}.{:09}", data.mtime(), data.mtime_nsec())
}

/// Whether the line's time or inode is stale although the file is intact.
fn check(root: &Path, line: &str, look: Look) -> anyhow::Result<bool> {
    let mut words = line.splitn(2, ' ');
    let (kind, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if kind == "link" {
        let (target, path) = rest.split_once(' ').context("its manifest is damaged")?;
        let found = fs::read_link(root.join(path)).with_context(|| format!("`{path}` is missing"))?;
        if found != Path::new(target) {
            bail!("`{path}` points to {}, expected {target}", found.display());
        }
        return Ok(false);
    }
    let words: Vec<&str> = rest.splitn(5, ' ').collect();
    let ("file", [sha256, size, modified, inode, path]) = (kind, words.as_slice()) else {
        bail!("its manifest is damaged");
    };
    let file = root.join(path);
    let data = fs::symlink_metadata(&file).with_context(|| format!("`{path}` is missing"))?;
    if !data.is_file() || data.len().to_string() != **size {
        bail!("`{path}` has {} bytes, expected {size}", data.len());
    }
    let fresh = time(&data) == **modified && data.ino().to_string() == **inode;
    if !fresh || look == Look::Full {
        let (found, _) = digest::of_file(&file)?;
        if found != **sha256 {
            bail!("`{path}` has SHA-256 {found}, expected {sha256}");
        }
    }
    Ok(!fresh)
}

/// Records the current times and inodes of files that were found intact.
fn restamp(dir: &Path, root: &Path, text: &str) -> anyhow::Result<()> {
    let mut fresh = String::new();
    for (number, old) in text.lines().enumerate() {
        // The first two lines are the maker's.
        let file = old.strip_prefix("file ").filter(|_| number >= HEAD);
        match file.and_then(|rest| Some((rest.split(' ').next()?, rest.splitn(5, ' ').nth(4)?))) {
            Some((sha256, path)) => fresh.push_str(&line(root, path, sha256)?),
            None => {
                fresh.push_str(old);
                fresh.push('\n');
            }
        }
    }
    let manifest = dir.join(MANIFEST);
    if let Some(claim) = store::claim(&manifest, Kind::File)? {
        std::io::Write::write_all(&mut claim.file(), fresh.as_bytes())?;
        claim.publish()?;
    }
    Ok(())
}
