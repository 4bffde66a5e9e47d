//! Reads one layer: hashes it, and applies its changes to the tree.

use std::collections::BTreeMap;
use std::io::{self, Read};

use build::GoScan;
use model::{ByteOrder, ElfFacts};
use sys::interrupt;
use tar::EntryType;

use crate::digest::Hashing;

use super::archive::{Archive, HEADER};
use super::budget::{Budget, drain};
use super::claims::Claimed;
use super::limits::{Allowance, decompressed};
use super::tree::{self, Entry, Tree};
use super::{Finding, Kind};

/// Bytes at the beginning of a file that are sufficient to identify its machine.
const START: usize = 20;
/// Limits of the number of ELF files and of the length of a path: no real image reaches them, and all are kept in
/// memory.
const MOST_FILES: usize = 200_000;
const LONGEST_PATH: usize = 4096;
/// Maximum number of paths that are reported for one layer.
const TOLD: usize = 20;

/// The result of reading a layer, in addition to the changes of the tree.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) findings: Vec<Finding>,
    /// Number of ELF files in it, including those that a later layer hides.
    pub(crate) elf_files: u64,
    /// The Go release that built a program, by path.
    pub(crate) go_releases: BTreeMap<String, String>,
}

/// Reads the layer with this number into the tree.
pub(crate) fn read(
    archive: &Archive,
    number: usize,
    layer: &Claimed,
    budget: &Budget,
    tree: &mut Tree,
) -> anyhow::Result<Contents> {
    let mut contents = Contents::default();
    let (content, size) = match archive.read(&layer.name) {
        Ok(found) => found,
        Err(fault) => {
            contents.damaged(format!("layer {number}, {}: {fault}", layer.name));
            return Ok(contents);
        }
    };
    if let Some(expected) = layer.size.filter(|expected| *expected != size) {
        contents.damaged(format!("layer {number} has {size} bytes, expected {expected}"));
    }
    let mut packed = Hashing::new(budget.metered(content, Budget::read));
    let outcome = decompressed(&mut packed).and_then(|content| {
        let mut plain = Hashing::new(budget.metered(content, Budget::unpack));
        contents.entries(&mut plain, number, budget, tree)?;
        // After the last entry there may be padding, which belongs to the digest.
        drain(&mut plain)?;
        Ok(plain.finish().0)
    });
    interrupt::check()?;
    if let Some(stop) = budget.exceeded() {
        contents.findings.push(Finding::of(Kind::Size, format!("layer {number}: {stop}")));
        return Ok(contents);
    }
    match outcome {
        Err(error) => contents.damaged(format!("layer {number} cannot be unpacked: {error}")),
        Ok(found) => {
            if let Some(expected) = layer.diff_id.as_ref().filter(|expected| **expected != found) {
                contents.damaged(format!("layer {number} unpacks to {found}, expected the diff ID {expected}"));
            }
        }
    }
    // A decoder may stop before the end; the rest belongs to the digest.
    let rest = drain(&mut packed);
    interrupt::check()?;
    let (found, _) = packed.finish();
    if let Some(expected) = layer.digest.as_ref().filter(|expected| rest.is_ok() && **expected != found) {
        contents.damaged(format!("layer {number} has the digest {found}, expected {expected}"));
    }
    Ok(contents)
}

impl Contents {
    /// Reads the entries of a tar file. The size of a header has its own limit: names of any length are kept in memory
    /// while the header is read.
    fn entries(&mut self, content: &mut impl Read, number: usize, budget: &Budget, tree: &mut Tree) -> io::Result<()> {
        let gate = Allowance::of(0);
        let mut archive = tar::Archive::new(gate.limit(content));
        let mut entries = archive.entries()?;
        loop {
            budget.visit(1)?;
            gate.set(HEADER);
            let mut entry = match entries.next() {
                None => return Ok(()),
                Some(Ok(entry)) => entry,
                Some(Err(error)) if gate.is_used_up() => {
                    return Err(io::Error::other(format!(
                        "the header of an entry is longer than {HEADER} bytes: {error}"
                    )));
                }
                Some(Err(error)) => return Err(error),
            };
            gate.set(u64::MAX);
            let path = entry.path_bytes().into_owned();
            if entry.header().entry_type().is_gnu_sparse() {
                // The holes are not in the layer, but are read as zeroes: 1 KiB may stand for 8 EiB of them.
                budget.unpack(entry.size())?;
            }
            if tree.len() > MOST_FILES {
                return Err(io::Error::other(format!("there are more than {MOST_FILES} ELF files")));
            }
            let Some(parts) = tree::parts(&path).filter(|_| path.len() <= LONGEST_PATH) else {
                let long = path.len() > LONGEST_PATH;
                let what = if long { "is longer than the limit of a path" } else { "leads out of the image" };
                self.escaping(number, &path, what);
                drain(&mut entry)?;
                continue;
            };
            let change = match entry.header().entry_type() {
                EntryType::Directory => Entry::Folder,
                EntryType::Link => match tree::parts(&entry.link_name_bytes().unwrap_or_default()) {
                    Some(target) => Entry::Link(target),
                    None => {
                        self.escaping(number, &path, "is a link to a file outside of the image");
                        Entry::Other
                    }
                },
                EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                    let mut start = Vec::new();
                    entry.by_ref().take(START as u64).read_to_end(&mut start)?;
                    let facts = elf_facts(&start);
                    if facts.is_some() {
                        let release = go_release(&start, &mut entry)?;
                        self.go_releases.extend(release.map(|release| (tree::shown(&parts), release)));
                    }
                    facts.map_or(Entry::Other, Entry::Elf)
                }
                _ => Entry::Other,
            };
            // Read the whole entry, so that the next read is that of a header.
            drain(&mut entry)?;
            self.elf_files += u64::from(matches!(change, Entry::Elf(_)));
            let looked_at = tree.apply(number, &parts, change);
            budget.visit(looked_at)?;
        }
    }

    fn damaged(&mut self, message: String) {
        self.findings.push(Finding::of(Kind::Damaged, message));
    }

    fn escaping(&mut self, number: usize, path: &[u8], what: &str) {
        if self.findings.len() > TOLD {
            return;
        }
        let path = String::from_utf8_lossy(path.get(..LONGEST_PATH).unwrap_or(path)).into_owned();
        let message = format!("layer {number}: {path} {what}");
        self.findings.push(Finding { path: Some(path), ..Finding::of(Kind::Path, message) });
    }
}

/// The Go release that built a program; reads the file up to that place.
fn go_release(start: &[u8], rest: &mut impl Read) -> io::Result<Option<String>> {
    let mut scan = GoScan::default();
    let mut piece = [0; 1 << 14];
    let mut known = scan.feed(start);
    while !known {
        let read = rest.read(&mut piece)?;
        if read == 0 {
            break;
        }
        known = scan.feed(&piece[..read]);
    }
    Ok(scan.finish())
}

/// The machine of a program, from the first bytes of the file; None if it is not an ELF file.
///
/// Checks only the fields that the kernel checks: a file with another error may still run.
fn elf_facts(start: &[u8]) -> Option<ElfFacts> {
    let start: &[u8; START] = start.try_into().ok()?;
    if !start.starts_with(b"\x7fELF") {
        return None;
    }
    let class = match start[4] {
        1 => 32,
        2 => 64,
        _ => return None,
    };
    let machine = [start[18], start[19]];
    let (byte_order, machine) = match start[5] {
        1 => (ByteOrder::Little, u16::from_le_bytes(machine)),
        2 => (ByteOrder::Big, u16::from_be_bytes(machine)),
        _ => return None,
    };
    Some(ElfFacts { class, byte_order, machine })
}
