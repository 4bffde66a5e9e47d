//! Fuzz targets of the audit; see `crate::fuzzing`.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use fetch::fuzzing::{empty_dir, write};
use model::{ByteOrder, ElfFacts};

use super::archive::Archive;
use super::budget::Budget;
use super::claims::{self, Claimed, Claims};
use super::limits::{Allowance, decompressed};
use super::tree::{self, Entry, Tree};
use super::{AuditedImage, Rules, contents, image};
use crate::digest;

/// Maximum number of bytes to which an input may unpack.
const MOST: u64 = 1 << 20;
/// Separates the parts of an input that describes an archive.
const SEPARATOR: &[u8] = b"\n--\n";
const PARTS: usize = 10;

/// A file with any compression unpacks to no more than the limit.
pub(crate) fn unpack(data: &[u8]) {
    let Ok(content) = decompressed(data) else { return };
    let mut out = Vec::new();
    let _ = Allowance::of(MOST).limit(content).read_to_end(&mut out);
    assert!(out.len() as u64 <= MOST, "{} bytes were unpacked, at most {MOST} are allowed", out.len());
}

/// A layer with the correct digest and size is never reported as damaged.
pub(crate) fn layer(data: &[u8]) {
    let dir = empty_dir();
    write(dir.join("layer"), data);
    let claimed = Claimed {
        name: "layer".to_owned(),
        digest: Some(digest::of(data)),
        size: Some(data.len() as u64),
        diff_id: None,
    };
    let mut tree = Tree::default();
    let read = contents::read(&Archive::Folder(dir), 0, &claimed, &Budget::of(MOST), &mut tree);
    let read = read.expect("no interrupt occurs");
    for finding in &read.findings {
        let message = &finding.message;
        assert!(!message.starts_with("layer 0 has "), "the digest and the size are right: {message}");
    }
    assert!(read.elf_files > 0 || tree.len() == 0, "the tree has ELF files that the layer does not have");
}

/// An archive as a file, compressed or not.
pub(crate) fn archive(data: &[u8]) {
    let dir = empty_dir();
    let _ = audited(&write(dir.join("archive"), data), &dir);
}

/// A docker archive: its `manifest.json`, then `0`, `1` and so on. A tar file and a folder give the same result.
pub(crate) fn docker(data: &[u8]) {
    let named = |number: usize| number.checked_sub(1).map_or("manifest.json".to_owned(), |number| number.to_string());
    let files = parts(data).into_iter().enumerate().map(|(number, part)| (named(number), part.to_vec())).collect();
    same_in_both_forms(files);
}

/// An OCI layout: its `index.json`, then its blobs. `@3` in a part is replaced with the digest of part 3, which comes
/// later.
pub(crate) fn oci(data: &[u8]) {
    let mut files = Vec::new();
    let mut digests: BTreeMap<usize, String> = BTreeMap::new();
    for (number, part) in parts(data).into_iter().enumerate().rev() {
        let part = filled(part, &digests);
        let digest = digest::of(&part);
        let name = match number {
            0 => "index.json".to_owned(),
            _ => format!("blobs/sha256/{}", digest::digits(&digest).expect("a digest that was just made")),
        };
        digests.insert(number, digest);
        files.push((name, part));
    }
    same_in_both_forms(files);
}

/// Compares the tree of a container's files with a simple list: each pair of bytes is an entry of a layer.
pub(crate) fn files(data: &[u8]) {
    const NAMES: [&[u8]; 8] = [b"a", b"b", b"a/b", b"a/b/c", b".wh.a", b"a/.wh.b", b"a/.wh..wh..opq", b"b/c"];
    let facts = |machine| ElfFacts { class: 64, byte_order: ByteOrder::Little, machine };
    let (mut tree, mut list) = (Tree::default(), Vec::new());
    for (number, pair) in data.chunks_exact(2).take(64).enumerate() {
        let layer = number / 8;
        let path = tree::parts(NAMES[usize::from(pair[0] & 7)]).expect("a path in the image");
        let entry = match pair[1] & 3 {
            0 => Entry::Folder,
            1 => Entry::Elf(facts(u16::from(pair[1] >> 2))),
            2 => Entry::Other,
            _ => Entry::Link(tree::parts(NAMES[usize::from((pair[1] >> 2) & 7)]).expect("a path in the image")),
        };
        simple(&mut list, layer, &path, &entry);
        tree.apply(layer, &path, entry);
        let mut expected: Vec<(String, usize, u16)> = list.clone();
        expected.sort();
        let mut found: Vec<_> = tree.files().map(|(path, node)| (path, node.layer, node.facts.machine)).collect();
        found.sort();
        assert_eq!(found, expected, "after entry {number} of {data:?}");
    }
}

/// Applies an entry to a list of path, layer and machine, as the specification of OCI layers defines it.
fn simple(list: &mut Vec<(String, usize, u16)>, layer: usize, path: &[Vec<u8>], entry: &Entry) {
    let shown = |path: &[Vec<u8>]| -> String {
        path.iter().map(|part| format!("/{}", String::from_utf8_lossy(part))).collect()
    };
    let below = |path: &str, folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let (name, folder) = path.split_last().expect("a path with a name");
    let (name, folder, path) = (String::from_utf8_lossy(name).into_owned(), shown(folder), shown(path));
    if name == ".wh..wh..opq" {
        list.retain(|(other, of, _)| !below(other, &folder) || *of == layer);
    } else if let Some(hidden) = name.strip_prefix(".wh.") {
        let hidden = format!("{folder}/{hidden}");
        list.retain(|(other, of, _)| !(*other == hidden || below(other, &hidden)) || *of == layer);
    } else {
        let machine = match entry {
            Entry::Elf(facts) => Some((layer, facts.machine)),
            Entry::Link(target) => {
                let target = shown(target);
                // A further name shows the file of whichever layer the name refers to.
                list.iter().find(|(other, _, _)| *other == target).map(|(_, _, machine)| (layer, *machine))
            }
            Entry::Folder | Entry::Other => None,
        };
        list.retain(|(other, _, _)| *other != path && (*entry == Entry::Folder || !below(other, &path)));
        list.extend(machine.map(|(layer, machine)| (path, layer, machine)));
    }
}

fn parts(data: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = data;
    while parts.len() < PARTS {
        let at = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
        let Some(at) = at else { break };
        parts.push(&rest[..at]);
        rest = &rest[at + SEPARATOR.len()..];
    }
    parts.push(rest);
    parts
}

fn filled(part: &[u8], digests: &BTreeMap<usize, String>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = part.iter().peekable();
    while let Some(byte) = bytes.next() {
        let digit = bytes.peek().filter(|next| *byte == b'@' && next.is_ascii_digit());
        match digit.and_then(|digit| digests.get(&usize::from(**digit - b'0'))) {
            Some(digest) => {
                out.extend(digest.as_bytes());
                bytes.next();
            }
            None => out.push(*byte),
        }
    }
    out
}

fn same_in_both_forms(files: Vec<(String, Vec<u8>)>) {
    let dir = empty_dir();
    let mut tar = tar::Builder::new(Vec::new());
    // Two parts with the same bytes are one blob.
    let files: BTreeMap<String, Vec<u8>> = files.into_iter().collect();
    for (name, content) in &files {
        write(dir.join("folder").join(name), content);
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, name, content.as_slice()).expect("a tar file in memory");
    }
    write(dir.join("archive.tar"), &tar.into_inner().expect("a tar file in memory"));
    let [folder, tar] = ["folder", "archive.tar"].map(|name| audited(&dir.join(name), &dir));
    assert_eq!(tar, folder, "the tar file and the folder have the same content");
}

/// [`super::audit`] without its progress output.
fn audited(path: &Path, dir: &Path) -> Option<(Vec<AuditedImage>, Vec<String>)> {
    let facts = ElfFacts { class: 64, byte_order: ByteOrder::Little, machine: 62 };
    let rules = Rules {
        elf: [("x".to_owned(), facts)].into(),
        no_processors: Vec::new(),
        allowed: vec!["/allowed/*".to_owned()],
        toolchains: model::Toolchains::default(),
        max_size: MOST,
        cache: dir.join("cache"),
    };
    let budget = Budget::of(MOST);
    let archive = Archive::open(path, &rules, &budget).ok()?;
    let Claims { images, notes } = claims::claims(&archive, &budget).expect("no interrupt")?;
    let images = images.into_iter().map(|claim| image(&archive, claim, &budget, &rules).expect("no interrupt"));
    Some((images.collect(), notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_and_tar_file_agree_on_names_that_are_not_plain() {
        let config = br#"{"architecture":"x","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#;
        let outside = empty_dir().with_extension("outside");
        std::fs::write(&outside, b"not in the archive").unwrap();
        for layer in ["./1", "1", "a/../1", "//1", "../1", outside.to_str().unwrap()] {
            let manifest = format!(r#"[{{"Config":"0","RepoTags":null,"Layers":["{layer}"]}}]"#);
            docker(&[manifest.as_bytes(), config, b"a layer"].join(SEPARATOR));
        }
        std::fs::remove_file(outside).unwrap();
    }
}
