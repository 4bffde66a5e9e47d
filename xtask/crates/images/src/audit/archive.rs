//! Random access to the content of an image archive: the folder of an OCI layout, or a tar file, compressed or not.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::de::DeserializeOwned;
use sys::{Scratch, interrupt};
use tar::EntryType;

use super::budget::{Budget, Stop};
use super::limits::{Allowance, decompressed, is_compressed};
use super::{NoImage, Rules, tree};

/// Maximum size of a manifest, as in registries. https://github.com/opencontainers/distribution-spec
const LONGEST_JSON: u64 = 4 << 20;
/// Maximum size of the header of one entry of a tar file, with long names and extensions.
pub(crate) const HEADER: u64 = 1 << 20;
/// Maximum length of a chain of links.
const LONGEST_CHAIN: usize = 16;

pub(crate) enum Archive {
    Folder(PathBuf),
    Tar { file: PathBuf, entries: BTreeMap<String, Place>, _scratch: Option<Scratch> },
}

/// Where an entry of a tar file is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// `whole` is false if the archive ends before the end of the entry.
    Data {
        offset: u64,
        size: u64,
        whole: bool,
    },
    Link(String),
}

/// Why a part of the archive is not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("it is not in the archive")]
    Missing,
    #[error("the archive ends in the middle of it")]
    CutOff,
    #[error("it is longer than {LONGEST_JSON} bytes, the limit of registries")]
    TooLong,
    #[error("it is not the expected JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("its digest is {found}, expected {expected}")]
    Digest { found: String, expected: String },
    // CVE-2021-41190: some tools read it as an index, some as a manifest.
    #[error("it is an index and a manifest at the same time")]
    Ambiguous,
    #[error("its indexes are nested too deeply")]
    TooDeep,
    #[error(transparent)]
    Stopped(#[from] Stop),
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}

impl Archive {
    /// Opens a folder or a tar file; a compressed file is first decompressed into the cache.
    pub(crate) fn open(path: &Path, rules: &Rules, budget: &Budget) -> anyhow::Result<Archive> {
        if path.is_dir() {
            return Ok(Archive::Folder(path.to_owned()));
        }
        let cannot = || format!("failed to read {}", path.display());
        let mut start = [0; 4];
        let count = File::open(path).and_then(|mut file| file.read(&mut start)).with_context(cannot)?;
        let (file, scratch) = if is_compressed(&start[..count]) {
            let scratch = Scratch::create(&rules.cache, "images-audit")?;
            let plain = scratch.path().join("archive.tar");
            unpack(path, &plain, rules.max_size).with_context(cannot)?;
            (plain, Some(scratch))
        } else {
            (path.to_owned(), None)
        };
        let entries = entries(&file, budget).with_context(cannot)?;
        if entries.is_empty() {
            return Err(NoImage(path.to_owned(), "it is not a tar file".into()).into());
        }
        interrupt::check()?;
        Ok(Archive::Tar { file, entries, _scratch: scratch })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        let Some(name) = self::name(name.as_bytes()) else { return false };
        match self {
            Archive::Folder(dir) => dir.join(name).is_file(),
            Archive::Tar { entries, .. } => entries.contains_key(&name),
        }
    }

    /// The content of an entry and its size.
    ///
    /// The name is untrusted: without normalisation, a name that begins with a slash would name a file of this machine.
    pub(crate) fn read(&self, name: &str) -> Result<(Box<dyn Read + '_>, u64), Fault> {
        let name = &self::name(name.as_bytes()).ok_or(Fault::Missing)?;
        match self {
            Archive::Folder(dir) => {
                if !self.has(name) {
                    return Err(Fault::Missing);
                }
                let file = File::open(dir.join(name))?;
                let size = file.metadata()?.len();
                Ok((Box::new(file), size))
            }
            Archive::Tar { file, entries, .. } => {
                let (offset, size) = place(entries, name)?;
                let mut file = File::open(file)?;
                file.seek(SeekFrom::Start(offset))?;
                Ok((Box::new(file.take(size)), size))
            }
        }
    }

    /// The whole content of a short entry.
    pub(crate) fn bytes(&self, name: &str, budget: &Budget) -> Result<Vec<u8>, Fault> {
        let (content, size) = self.read(name)?;
        if size > LONGEST_JSON {
            return Err(Fault::TooLong);
        }
        budget.json(size)?;
        let mut bytes = Vec::new();
        content.take(LONGEST_JSON).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn json<T: DeserializeOwned>(&self, name: &str, budget: &Budget) -> Result<T, Fault> {
        Ok(serde_json::from_slice(&self.bytes(name, budget)?)?)
    }
}

fn place(entries: &BTreeMap<String, Place>, name: &str) -> Result<(u64, u64), Fault> {
    let mut name = name;
    for _ in 0..LONGEST_CHAIN {
        match entries.get(name) {
            Some(Place::Data { offset, size, whole: true }) => return Ok((*offset, *size)),
            Some(Place::Data { .. }) => return Err(Fault::CutOff),
            Some(Place::Link(target)) => name = target,
            None => break,
        }
    }
    Err(Fault::Missing)
}

fn unpack(from: &Path, to: &Path, max_size: u64) -> io::Result<()> {
    // The archive's layers have a separate budget.
    let budget = Budget::of(max_size);
    let mut content = budget.metered(decompressed(File::open(from)?)?, Budget::unpack);
    let mut out = File::create(to)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match content.read(&mut buffer)? {
            0 => return Ok(()),
            count => io::Write::write_all(&mut out, &buffer[..count])?,
        }
    }
}

/// The entries by name, as far as the file can be read: a missing entry at its end is reported when it is needed.
fn entries(file: &Path, budget: &Budget) -> io::Result<BTreeMap<String, Place>> {
    let length = fs::metadata(file)?.len();
    let headers = Allowance::of(0);
    let mut archive = tar::Archive::new(headers.limit(BufReader::new(File::open(file)?)));
    let mut found = BTreeMap::new();
    let mut entries = archive.entries_with_seek()?;
    loop {
        budget.visit(1)?;
        headers.set(HEADER);
        let Some(Ok(entry)) = entries.next() else { return Ok(found) };
        let Some(name) = name(&entry.path_bytes()) else { continue };
        let place = match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => {
                let (offset, size) = (entry.raw_file_position(), entry.size());
                let whole = offset.checked_add(size).is_some_and(|end| end <= length);
                Place::Data { offset, size, whole }
            }
            EntryType::Link | EntryType::Symlink => {
                // `docker save` before 25 links equal layers: `../ID/layer.tar`.
                let target = entry.link_name_bytes().unwrap_or_default().to_vec();
                let base = if entry.header().entry_type() == EntryType::Link { "" } else { folder(&name) };
                match self::name(&[base.as_bytes(), b"/", &target].concat()) {
                    Some(target) => Place::Link(target),
                    None => continue,
                }
            }
            _ => continue,
        };
        found.insert(name, place);
    }
}

/// An entry's name without `./` and the like; None if it leads out of the archive.
fn name(path: &[u8]) -> Option<String> {
    let parts = tree::parts(path)?;
    String::from_utf8(parts.join(&b'/')).ok()
}

fn folder(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}
