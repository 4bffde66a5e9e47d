//! Entry points for the fuzz crate and its replay test. Each takes any bytes and panics on a defect.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::OnceLock;

use sys::progress::Phase;

use crate::deb::{Limit, Unpacker};
use crate::lock::{Lock, Pin, Set};
use crate::packages::Index;
use crate::release::Release;
use crate::resolve::{Follow, Prefer};
use crate::version::Relation;
use crate::{Options, QemuChoice};
use crate::{bundle, deb, digest, elf, go, guest, mirror, resolve, tree, version};

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("fetch-bundle", bundle_archive),
    ("fetch-deb", deb_file),
    ("fetch-deb-data", deb_data),
    ("fetch-elf", elf_file),
    ("fetch-go-lock", go_lock),
    ("fetch-go-zip", go_zip),
    ("fetch-lock", lock),
    ("fetch-packages", packages),
    ("fetch-release", release),
    ("fetch-sources", sources),
    ("fetch-tree", manifest),
    ("fetch-version", versions),
    ("fetch-xz", xz),
];

/// Maximum number of bytes to which a package may unpack.
const MOST: u64 = 1 << 20;
const LIMIT: Limit = Limit { bytes: MOST, entries: 10_000 };
const SUITE: &str = "trixie";

/// A parsed lock survives a round trip.
fn lock(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(lock) = Lock::parse(text) else { return };
    survives(&lock);
}

fn survives(lock: &Lock) {
    let again = Lock::parse(&lock.text()).expect("a written lock can be read");
    assert_eq!(again, *lock);
    let pins = lock.sets.values().flat_map(|set| &set.pins);
    // A dry run shows the sum of the sizes; an overflow panics.
    assert!(pins.map(|pin| pin.size).sum::<u64>() < u64::MAX);
}

/// The record of an accepted index can be written to a lock and read again.
fn release(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(release) = Release::parse(text, SUITE) else { return };
    let _ = release.expired();
    if let Ok((path, _, sha256)) = release.index("x") {
        assert!(digest::is_sha256(&sha256), "{path} has the digest {sha256}");
    }
    if let Ok(suite) = release.used() {
        survives(&Lock { suites: [(SUITE.to_owned(), suite)].into(), ..Lock::default() });
    }
}

/// Resolving an index terminates, and its result can be pinned in a lock.
fn packages(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(index) = Index::parse(text) else { return };
    let suites = [(SUITE.to_owned(), Rc::new(index))];
    for (follow, prefer) in [(Follow::All, Prefer::First), (Follow::Kernel, Prefer::Last)] {
        let Ok(pins) = resolve::closure(&suites, ["a"], follow, prefer) else { continue };
        assert!(pins.iter().any(|pin| pin.name == "a"), "the requested package is missing: {pins:?}");
        let set = Set { roots: ["a".to_owned()].into(), pins: pins.into_iter().collect(), replaces: None };
        survives(&Lock { sets: [("guest".to_owned(), set)].into(), ..Lock::default() });
    }
}

/// Versions have a total order, and a relation survives a round trip.
fn versions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut all: Vec<&str> = text.lines().take(8).collect();
    for a in &all {
        assert!(version::compare(a, a).is_eq(), "{a:?} differs from itself");
        for b in &all {
            assert_eq!(version::compare(a, b), version::compare(b, a).reverse(), "{a:?} and {b:?}");
        }
        if let Ok(relation) = a.parse::<Relation>() {
            assert_eq!(relation.to_string().parse(), Ok(relation), "{a:?}");
        }
    }
    // If the order is not transitive, the standard library panics or returns a wrong order.
    all.sort_by(|a, b| version::compare(a, b));
    for (index, a) in all.iter().enumerate() {
        for b in &all[index..] {
            assert!(version::compare(a, b).is_le(), "{a:?} is sorted before {b:?}");
        }
    }
}

/// The mirror from apt's sources has an HTTP address, if there is one.
fn sources(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for mirror in [mirror::one_line(text), mirror::deb822(text)].into_iter().flatten() {
        assert!(mirror.starts_with("http") && mirror.ends_with("/debian"), "{mirror:?}");
    }
}

/// The decompression of packages and indexes, with its limits.
fn xz(data: &[u8]) {
    let mut out = Vec::new();
    let read = deb::decompressed(data, MOST).map(|mut content| std::io::Read::read_to_end(&mut content, &mut out));
    assert!(out.len() as u64 <= MOST, "{} bytes were unpacked: {read:?}", out.len());
}

/// A whole package.
fn deb_file(data: &[u8]) {
    let dir = empty_dir();
    let file = write(dir.join("package.deb"), data);
    unpacks(&dir, |unpacker| unpacker.unpack(&file, &|_| true));
}

/// The tar archive of a package: mutations of a compressed package seldom reach it.
fn deb_data(data: &[u8]) {
    unpacks(&empty_dir(), |unpacker| unpacker.data(data, &|_| true));
}

/// The module of a Go toolchain, pinned by its own hash: without a pin nothing is unpacked.
fn go_zip(data: &[u8]) {
    let dir = empty_dir();
    let file = write(dir.join("go.zip"), data);
    let Ok(pin) = go::pin_of(&file) else { return };
    unpacks(&dir, |unpacker| go::unpack(&file, &pin, unpacker).map(drop));
}

/// Even after an error: nothing is written outside of the root, all files match their recorded digests, and no link
/// leads out.
fn unpacks(dir: &Path, unpack: impl FnOnce(&mut Unpacker) -> anyhow::Result<()>) {
    let root = dir.join("outer/root");
    fs::create_dir_all(&root).expect("the temporary folder can be written");
    let mut unpacker = Unpacker::limited(root.clone(), LIMIT);
    let ended = unpack(&mut unpacker);
    let outer: Vec<_> = fs::read_dir(dir.join("outer")).expect("the folder is there").flatten().collect();
    assert_eq!(outer.len(), 1, "something was written outside of the root: {outer:?}");
    let size: u64 = unpacker.files.keys().filter_map(|path| fs::metadata(root.join(path)).ok()).map(|m| m.len()).sum();
    // Hard links count each time, and every link has a header of 512 bytes in the archive.
    assert!(size <= MOST * 64, "{size} bytes were written: {ended:?}");
    if ended.is_err() {
        return;
    }
    for (path, sha256) in &unpacker.files {
        let (found, _) = digest::of_file(&root.join(path)).unwrap_or_else(|error| panic!("`{path}`: {error:#}"));
        assert_eq!(found, *sha256, "the content of `{path}` differs from its recorded digest");
    }
    for link in &unpacker.links {
        let target = fs::read_link(root.join(link)).unwrap_or_else(|error| panic!("`{link}`: {error}"));
        assert!(target.is_relative(), "`{link}` leads to {}", target.display());
        let depth = link.matches('/').count();
        let up = target.components().take_while(|part| *part == std::path::Component::ParentDir).count();
        assert!(up <= depth, "`{link}` leads to {}, out of the root", target.display());
    }
}

/// Programs and kernel modules of packages.
fn elf_file(data: &[u8]) {
    let file = write(empty_dir().join("program"), data);
    let paths = ["lib/ld.so".to_owned(), "lib/libc.so.6".to_owned()];
    let _ = elf::linkage(file.parent().unwrap_or(Path::new("/")), "program", paths.iter());
    let _ = guest::depends(data);
}

fn go_lock(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = go::parse(text);
}

/// A manifest over a small tree. `@1` to `@3` are replaced with the correct lines of the tree.
fn manifest(data: &[u8]) {
    let (Some((first, text)), true) = (data.split_first(), std::str::from_utf8(data).is_ok()) else { return };
    let dir = empty_dir();
    let files = dir.join("files");
    for (path, content) in [("a", "one"), ("d/b", "")] {
        write(files.join(path), content.as_bytes());
    }
    std::os::unix::fs::symlink("a", files.join("l")).expect("the temporary folder can be written");
    let line = |path: &str, content: &str| {
        tree::line(&files, path, &digest::of_bytes(content.as_bytes())).expect("the file was just written")
    };
    let mut text = String::from_utf8_lossy(text).into_owned();
    for (mark, line) in [("@1", line("a", "one")), ("@2", line("d/b", "")), ("@3", "link a l\n".to_owned())] {
        text = text.replace(mark, line.trim_end());
    }
    write(dir.join("manifest"), text.as_bytes());
    let look = if first % 2 == 0 { tree::Look::Quick } else { tree::Look::Full };
    let Ok(found) = tree::look_at(&dir, look) else { return };
    assert_eq!(text.lines().last(), Some("end"), "a manifest that is cut off was accepted");
    // The first check may have recorded new times and inodes.
    let again = tree::look_at(&dir, tree::Look::Full).unwrap_or_else(|why| panic!("the second check fails: {why:?}"));
    assert_eq!((again.root, again.info), (found.root, found.info));
}

/// Only packages that a lock names are imported from a bundle.
fn bundle_archive(data: &[u8]) {
    static PHASE: OnceLock<Phase> = OnceLock::new();
    let phase = PHASE.get_or_init(|| Phase::start("fuzz"));
    let dir = empty_dir();
    let contents: BTreeMap<String, &[u8]> =
        [&b""[..], b"package"].map(|content| (digest::of_bytes(content), content)).into();
    let locked = contents.values().map(|content| pin(content)).collect();
    let options = options(&dir);
    let taken = bundle::take(tar::Archive::new(data), &locked, &options, phase);
    let pool = fs::read_dir(options.debian().join("pool")).into_iter().flatten().flatten();
    let found: Vec<PathBuf> = pool.map(|entry| entry.path()).filter(|path| path.extension().is_some()).collect();
    for path in &found {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let content = fs::read(path).expect("a file of the cache can be read");
        assert_eq!(contents.get(&name).copied(), Some(content.as_slice()), "{} is in no lock", path.display());
    }
    if let Ok(count) = taken {
        assert_eq!(count, found.len(), "packages were counted that are not in the cache: {found:?}");
    }
}

/// A digest and the pin of a package with this content.
fn pin(content: &[u8]) -> (String, Pin) {
    let (size, sha256) = (content.len() as u64, digest::of_bytes(content));
    let [name, version, arch, suite, path] = ["a", "1", "all", SUITE, "pool/a.deb"].map(str::to_owned);
    (sha256.clone(), Pin { name, version, arch, suite, size, sha256, path })
}

fn options(dir: &Path) -> Options {
    Options {
        cache: dir.join("cache"),
        targets_dir: dir.join("targets"),
        offline: true,
        locked: true,
        mirror: None,
        qemu: QemuChoice::System,
        node: None,
        verify: |_, _| anyhow::bail!("fuzzing verifies no signatures"),
        container: None,
    }
}

/// An empty folder of this thread. It is removed when the thread ends.
pub fn empty_dir() -> PathBuf {
    thread_local! {
        static FOLDER: Folder = Folder::of_this_thread();
    }
    FOLDER.with(|folder| {
        let _ = fs::remove_dir_all(&folder.0);
        fs::create_dir_all(&folder.0).expect("the temporary folder can be written");
        folder.0.clone()
    })
}

struct Folder(PathBuf);

impl Folder {
    fn of_this_thread() -> Self {
        let thread = format!("{:?}", std::thread::current().id());
        let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
        Self(std::env::temp_dir().join(format!("archproof-fuzz-{}-{thread}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a file and the folders above it.
pub fn write(file: PathBuf, content: &[u8]) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).and_then(|()| fs::write(&file, content)).expect("the temporary folder can be written");
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn entry(name: &str, more: &str) -> String {
        format!(
            "Package: {name}\nVersion: 1\nArchitecture: all\nFilename: pool/x.deb\nSize: 1\nSHA256: {DIGEST}\n{more}\n\n"
        )
    }

    #[test]
    fn lock_with_a_set_without_a_name_is_refused() {
        for sets in [",", "a,", ",a", "a,,b"] {
            let text = format!("package n 1 all s 1 {DIGEST} pool/x {sets}\n");
            assert!(Lock::parse(&text).is_err(), "{sets}");
        }
    }

    #[test]
    fn sizes_whose_sum_overflows_are_refused() {
        let size = u64::MAX;
        assert!(Lock::parse(&format!("package n 1 all s {size} {DIGEST} pool/x a\n")).is_err());
        assert!(Index::parse(&entry("a", "").replace("Size: 1", &format!("Size: {size}"))).is_err());
    }

    #[test]
    fn index_entry_that_no_lock_can_hold_is_refused() {
        assert!(Index::parse(&entry("a", "")).is_ok());
        for bad in [
            entry("", ""),
            entry("a b", ""),
            entry("a", "").replace("Version: 1", "Version:"),
            entry("a", "").replace("Version: 1", "Version: 1 2"),
            entry("a", "").replace("all", ""),
            entry("a", "").replace("pool/x.deb", "pool/../x.deb"),
            entry("a", "").replace("pool/x.deb", "pool/x y.deb"),
        ] {
            assert!(Index::parse(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn resolving_terminates_for_packages_that_provide_their_own_dependencies() {
        let index =
            [entry("a", "Depends: v"), entry("b", "Provides: v\nDepends: w"), entry("c", "Provides: w\nDepends: v")];
        let suites = [(SUITE.to_owned(), Rc::new(Index::parse(&index.concat()).unwrap()))];
        let pins = resolve::closure(&suites, ["a"], Follow::All, Prefer::First).unwrap();
        assert_eq!(pins.iter().map(|pin| pin.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn manifest_whose_first_lines_look_like_files_stays_the_same() {
        manifest(format!("\0file {DIGEST} 0 0 0 a\ntitle\n@1\nend\n").replace("@1", "file {} 3 0.0 1 a").as_bytes());
        let one = digest::of_bytes(b"one");
        // A stale time makes the check rewrite the manifest.
        manifest(format!("\0file {one} 3 0 0 a\nfile {one} 3 0 0 a\nfile {one} 3 0.0 1 a\nend\n").as_bytes());
    }

    #[test]
    fn sparse_file_in_a_bundle_is_refused() {
        let sha256 = digest::of_bytes(b"package");
        let manifest = format!("{sha256} x\n");
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(manifest.len() as u64);
        archive.append_data(&mut header, "manifest", manifest.as_bytes()).unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::GNUSparse);
        header.set_size(0);
        let gnu = header.as_gnu_mut().unwrap();
        gnu.realsize.copy_from_slice(b"00777777777\0");
        gnu.sparse[0].offset.copy_from_slice(b"00777777777\0");
        gnu.sparse[0].numbytes.copy_from_slice(b"00000000000\0");
        archive.append_data(&mut header, format!("pool/{sha256}.deb"), &b""[..]).unwrap();
        let dir = empty_dir();
        let locked = [pin(b"package")].into();
        let archive = archive.into_inner().unwrap();
        let begun = Phase::start("test");
        let error = bundle::take(tar::Archive::new(archive.as_slice()), &locked, &options(&dir), &begun).unwrap_err();
        assert!(error.to_string().contains("is not a plain file"), "{error:#}");
    }

    #[test]
    fn package_that_unpacks_to_too_much_is_refused() {
        let data = vec![0; 2 << 20];
        let package = crate::testing::deb("", |tar| crate::testing::add(tar, "usr/a", &data));
        let dir = empty_dir();
        let file = write(dir.join("a.deb"), &package);
        let mut unpacker = Unpacker::limited(dir.join("root"), LIMIT);
        let error = format!("{:#}", unpacker.unpack(&file, &|_| true).unwrap_err());
        assert!(error.contains("more than 1048576 bytes"), "{error}");
        assert!(xz_error(&crate::testing::xz(&data)).contains("more than 1048576 bytes"));
    }

    fn xz_error(packed: &[u8]) -> String {
        let mut out = Vec::new();
        let mut content = deb::decompressed(packed, MOST).unwrap();
        std::io::Read::read_to_end(&mut content, &mut out).unwrap_err().to_string()
    }
}
