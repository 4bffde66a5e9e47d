//! The requirements of a dynamically linked program: its loader and its libraries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail};
use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

/// The header of one file.
#[derive(Debug, Default)]
struct Linked {
    /// PT_INTERP: an absolute path.
    loader: Option<String>,
    /// DT_NEEDED: names of libraries.
    needed: Vec<String>,
}

/// How a program of an unpacked tree is started. Paths are below the tree's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Linkage {
    pub(crate) loader: String,
    /// Folders that contain all of its libraries.
    pub(crate) folders: BTreeSet<String>,
}

/// Follows `program`'s libraries through the tree at `root`; `paths` are all files and links in it.
pub(crate) fn linkage<'a>(
    root: &Path,
    program: &str,
    paths: impl Iterator<Item = &'a String>,
) -> anyhow::Result<Linkage> {
    let mut by_name: BTreeMap<&str, &str> = BTreeMap::new();
    for path in paths {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        // If several folders have the same library, the outermost one is the general one.
        let place = by_name.entry(name).or_insert(folder);
        if folder.len() < place.len() {
            *place = folder;
        }
    }
    let begin = read(&root.join(program))?;
    let loader = begin.loader.clone().with_context(|| format!("`{program}` names no dynamic loader"))?;
    let loader_name = loader.rsplit('/').next().unwrap_or_default();
    let Some(loader_folder) = by_name.get(loader_name) else {
        bail!("`{program}` is started by {loader}, which is in none of the packages");
    };
    let mut folders = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<(String, String)> = begin.needed.into_iter().map(|name| (program.to_owned(), name)).collect();
    while let Some((by, name)) = open.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let Some(folder) = by_name.get(name.as_str()) else {
            bail!("`{by}` needs the library {name}, which is in none of the packages");
        };
        folders.insert((*folder).to_owned());
        let needed = read(&root.join(folder).join(&name))?.needed;
        open.extend(needed.into_iter().map(|next| (name.clone(), next)));
    }
    Ok(Linkage { loader: format!("{loader_folder}/{loader_name}"), folders })
}

fn read(file: &Path) -> anyhow::Result<Linked> {
    let bytes = std::fs::read(file).with_context(|| format!("failed to read {}", file.display()))?;
    let parsed = match bytes.get(4) {
        Some(1) => parse::<FileHeader32<Endianness>>(&bytes),
        _ => parse::<FileHeader64<Endianness>>(&bytes),
    };
    parsed.with_context(|| format!("{} is not an ELF file", file.display()))
}

fn parse<Elf: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> anyhow::Result<Linked> {
    let header = Elf::parse(bytes)?;
    let endian = header.endian()?;
    let mut linked = Linked::default();
    for segment in header.program_headers(endian, bytes)? {
        if let Some(loader) = segment.interpreter(endian, bytes)? {
            linked.loader = Some(String::from_utf8_lossy(loader).into_owned());
        }
    }
    let sections = header.sections(endian, bytes)?;
    if let Some((entries, strings)) = sections.dynamic(endian, bytes)? {
        let strings = sections.strings(endian, bytes, strings)?;
        for entry in entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED) {
            linked.needed.push(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned());
        }
    }
    Ok(linked)
}

/// The content of a section of a relocatable file.
pub(crate) fn section(bytes: &[u8], name: &str) -> anyhow::Result<Vec<u8>> {
    use object::{Object, ObjectSection};
    let file = object::File::parse(bytes)?;
    let section = file.section_by_name(name).with_context(|| format!("the section {name} is missing"))?;
    Ok(section.data()?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::module;

    /// Uses this test program itself, with its loader and its libraries.
    #[test]
    fn finds_the_linkage_of_a_real_program() {
        let own = std::env::current_exe().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mapped =
            maps.lines().filter_map(|line| line.split_whitespace().nth(5)).filter(|path| path.starts_with('/'));
        let mut paths: Vec<String> = mapped.map(|path| path.trim_start_matches('/').to_owned()).collect();
        let Some(loader) = read(&own).unwrap().loader else { panic!("this test is linked statically") };
        // The program names its loader by a path that may be a symbolic link.
        paths.push(loader.trim_start_matches('/').to_owned());
        let program = own.to_str().unwrap().trim_start_matches('/');
        let found = linkage(Path::new("/"), program, paths.iter()).unwrap();
        assert!(Path::new("/").join(&found.loader).exists(), "{found:?}");
        assert!(found.folders.iter().any(|folder| Path::new("/").join(folder).join("libc.so.6").exists()), "{found:?}");

        let error = linkage(Path::new("/"), program, [loader.clone()].iter()).unwrap_err().to_string();
        assert!(error.contains("needs the library") && error.contains("in none of the packages"), "{error}");
        let error = linkage(Path::new("/"), program, [].iter()).unwrap_err().to_string();
        assert!(error.contains("is started by") && error.contains(&loader), "{error}");
    }

    #[test]
    fn finds_a_section_by_name() {
        let file = module("a,b");
        assert_eq!(section(&file, ".modinfo").unwrap(), b"license=GPL\0depends=a,b\0");
        assert!(section(&file, ".text").unwrap_err().to_string().contains(".text"));
        assert!(section(b"no ELF", ".modinfo").is_err());
    }
}
