//! Unpacks Debian packages into a folder, without root and without touching anything outside of the folder.
//!
//! A `.deb` is an `ar` archive that contains `data.tar.xz`. <https://manpages.debian.org/deb.5>

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use sys::interrupt;

use crate::digest;
use sys::store;

/// The maximum content of a folder: a small archive can unpack to files that fill the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) bytes: u64,
    /// Files, links and folders.
    pub(crate) entries: u64,
}

impl Limit {
    /// Bytes of a tar archive with such files; each file has a header, and skipped files count, too.
    fn archive(self) -> u64 {
        self.bytes.saturating_mul(2).saturating_add(1 << 20)
    }
}

/// Several times the largest set of packages that is unpacked here.
const LIMIT: Limit = Limit { bytes: 8 << 30, entries: 500_000 };
/// Bytes for the dictionary of a decompressor; `xz -9` needs 65 MiB.
const DECOMPRESSOR_MEMORY: u64 = 256 << 20;

/// A folder into which packages are unpacked.
pub(crate) struct Unpacker {
    root: PathBuf,
    pub(crate) limit: Limit,
    bytes: u64,
    entries: u64,
    /// SHA-256 by path below the root.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) links: BTreeSet<String>,
}

impl Unpacker {
    pub(crate) fn new(root: PathBuf) -> Unpacker {
        Unpacker::limited(root, LIMIT)
    }

    /// As [`Unpacker::new`], with another limit.
    pub(crate) fn limited(root: PathBuf, limit: Limit) -> Unpacker {
        Unpacker { root, limit, bytes: 0, entries: 0, files: BTreeMap::new(), links: BTreeSet::new() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Unpacks the files that `keep` selects; paths are those of a system with a merged /usr, without a leading slash.
    pub(crate) fn unpack(&mut self, deb: &Path, keep: &dyn Fn(&str) -> bool) -> anyhow::Result<()> {
        let file = File::open(deb).with_context(|| format!("failed to read {}", deb.display()))?;
        let mut archive = ar::Archive::new(BufReader::new(file));
        while let Some(entry) = archive.next_entry() {
            let entry = entry.with_context(|| format!("{} is not a Debian package", deb.display()))?;
            let name = String::from_utf8_lossy(entry.header().identifier()).into_owned();
            match name.trim_end_matches('/').strip_prefix("data.tar") {
                None => {}
                Some(".xz") => {
                    let unpacked = decompressed(BufReader::new(entry), self.limit.archive())
                        .map_err(anyhow::Error::from)
                        .and_then(|data| self.data(data, keep));
                    return unpacked.with_context(|| format!("failed to unpack {}", deb.display()));
                }
                Some("") => {
                    return self.data(entry, keep).with_context(|| format!("failed to unpack {}", deb.display()));
                }
                Some(other) => bail!("{}: data.tar{other} is not supported, only data.tar.xz", deb.display()),
            }
        }
        bail!("{} is not a Debian package: it contains no data.tar.xz", deb.display())
    }

    /// Writes a file that does not come unchanged from a package.
    pub(crate) fn write(&mut self, path: &str, content: &mut dyn Read, mode: u32) -> anyhow::Result<()> {
        self.count_entry()?;
        self.write_counted(path, content, mode)
    }

    fn write_counted(&mut self, path: &str, content: &mut dyn Read, mode: u32) -> anyhow::Result<()> {
        let to = self.place(path)?;
        // One byte more than the limit shows that the content exceeds it.
        let mut bounded = content.take(self.limit.bytes - self.bytes + 1);
        let (digest, size) = write(&to, &mut bounded, mode)
            .with_context(|| format!("failed to write {}: {}", to.display(), store::hint()))?;
        self.count_bytes(size)?;
        self.files.insert(path.to_owned(), digest);
        Ok(())
    }

    fn count_entry(&mut self) -> anyhow::Result<()> {
        self.entries += 1;
        if self.entries > self.limit.entries {
            bail!("it unpacks to more than {} files", self.limit.entries);
        }
        Ok(())
    }

    fn count_bytes(&mut self, bytes: u64) -> anyhow::Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit.bytes {
            self.bytes = self.limit.bytes;
            bail!("it unpacks to more than {} bytes", self.limit.bytes);
        }
        Ok(())
    }

    pub(crate) fn data(&mut self, data: impl Read, keep: &dyn Fn(&str) -> bool) -> anyhow::Result<()> {
        let mut archive = tar::Archive::new(data);
        for entry in archive.entries()? {
            interrupt::check()?;
            let mut entry = entry?;
            self.count_entry()?;
            let path = inside(&entry.path()?, "")?;
            if path.is_empty() || !keep(&path) {
                // Skipped files take no disk, but time to decompress.
                self.count_bytes(entry.size())?;
                continue;
            }
            self.entry(&path, &mut entry).with_context(|| format!("the file `{path}` in it"))?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &str, entry: &mut tar::Entry<'_, impl Read>) -> anyhow::Result<()> {
        let kind = entry.header().entry_type();
        let target =
            || -> anyhow::Result<PathBuf> { Ok(entry.link_name()?.context("a link without a target")?.into_owned()) };
        match kind {
            tar::EntryType::Directory => {}
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let mode = entry.header().mode()?;
                self.write_counted(path, entry, mode)?;
            }
            tar::EntryType::Symlink => {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                let aim = inside(&target()?, folder)?;
                let to = self.place(path)?;
                symlink(relative(folder, &aim), &to).with_context(|| format!("failed to make {}", to.display()))?;
                self.links.insert(path.to_owned());
            }
            tar::EntryType::Link => {
                let aim = inside(&target()?, "")?;
                let digest = self
                    .files
                    .get(&aim)
                    .cloned()
                    .with_context(|| format!("it links to `{aim}`, which does not exist"))?;
                let to = self.place(path)?;
                fs::hard_link(self.root.join(&aim), &to).with_context(|| format!("failed to make {}", to.display()))?;
                self.files.insert(path.to_owned(), digest);
            }
            other => bail!("its entry type {other:?} is not supported"),
        }
        Ok(())
    }

    /// The place for a path: creates its folders and removes an existing file there.
    fn place(&mut self, path: &str) -> anyhow::Result<PathBuf> {
        let mut parent = path;
        while let Some((folder, _)) = parent.rsplit_once('/') {
            if self.links.contains(folder) {
                bail!("it is below the symbolic link `{folder}`");
            }
            parent = folder;
        }
        let to = self.root.join(path);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("failed to make {}: {}", folder.display(), store::hint()))?;
        }
        match fs::remove_file(&to) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        self.files.remove(path);
        self.links.remove(path);
        Ok(to)
    }
}

/// The decompressed content of `packed` (xz). A few KiB may demand terabytes of output and gigabytes of memory.
pub(crate) fn decompressed<'a>(packed: impl Read + 'a, limit: u64) -> std::io::Result<impl Read + 'a> {
    let stream = liblzma::stream::Stream::new_stream_decoder(DECOMPRESSOR_MEMORY, liblzma::stream::CONCATENATED)?;
    let inner = liblzma::read::XzDecoder::new_stream(packed, stream);
    Ok(Limited { inner, left: limit, limit })
}

/// Fails if the content exceeds a limit.
struct Limited<R> {
    inner: R,
    left: u64,
    limit: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            // At the end of the content the limit does not matter.
            return match self.inner.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(std::io::Error::other(format!("it has more than {} bytes", self.limit))),
            };
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.inner.read(&mut buffer[..most])?;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Writes a new file and returns its SHA-256 and size; bits beyond read, write and execute are dropped.
fn write(to: &Path, content: &mut dyn Read, mode: u32) -> anyhow::Result<(String, u64)> {
    let failed = || format!("failed to write {}: {}", to.display(), store::hint());
    let mode = (mode & 0o755) | 0o600;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(to).with_context(failed)?;
    // With a strict umask, a disk made from the tree would contain files that only root can read.
    file.set_permissions(Permissions::from_mode(mode)).with_context(failed)?;
    let read = |buffer: &mut [u8]| content.read(buffer).context("it cannot be decompressed");
    digest::of_stream(read, |chunk, _| file.write_all(chunk).with_context(failed))
}

/// `path`, relative to `folder` below the root, as a path without a leading slash; /bin, /lib and so on become those in
/// /usr.
/// Errors: the path leads out of the root.
fn inside(path: &Path, folder: &str) -> anyhow::Result<String> {
    let mut parts: Vec<String> = folder.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    for component in path.components() {
        match component {
            Component::RootDir | Component::Prefix(_) => parts.clear(),
            Component::CurDir => {}
            Component::ParentDir if parts.pop().is_some() => {}
            Component::ParentDir => bail!("`{}` leads out of the package", path.display()),
            Component::Normal(part) => {
                parts.push(part.to_str().with_context(|| format!("`{}` is not UTF-8", path.display()))?.to_owned());
            }
        }
    }
    if parts.first().is_some_and(|first| first == "bin" || first == "sbin" || first.starts_with("lib")) {
        parts.insert(0, "usr".to_owned());
    }
    Ok(parts.join("/"))
}

/// The relative path from a folder to a path, both below the same root.
fn relative(folder: &str, path: &str) -> PathBuf {
    let folder: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    let path: Vec<&str> = path.split('/').collect();
    let common = folder.iter().zip(&path).take_while(|(a, b)| a == b).count();
    let up = folder.iter().skip(common).map(|_| "..");
    up.chain(path.into_iter().skip(common)).collect()
}

#[cfg(test)]
mod tests {
    use sys::Scratch;

    use super::*;
    use crate::testing::{add, deb};

    struct Place {
        dir: Scratch,
        tree: Unpacker,
    }

    impl Place {
        fn new() -> Place {
            let dir = Scratch::temporary("deb").unwrap();
            fs::create_dir_all(dir.path().join("tree")).unwrap();
            let tree = Unpacker::new(dir.path().join("tree"));
            Place { dir, tree }
        }

        fn unpack(&mut self, fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Result<(), String> {
            let file = self.dir.write("a.deb", deb("a", fill));
            self.tree.unpack(&file, &|path| !path.starts_with("skipped/")).map_err(|error| format!("{error:#}"))
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.tree.root().join(path)).unwrap()
        }
    }

    /// An entry that only an attacker would make: `tar`'s own functions refuse such paths.
    fn raw(tar: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, path: &str, target: &str) {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_gnu_mut().unwrap().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(0);
        header.set_cksum();
        tar.append(&header, std::io::empty()).unwrap();
    }

    #[test]
    fn files_and_links_are_unpacked_below_a_merged_usr() {
        let mut place = Place::new();
        place
            .unpack(|tar| {
                add(tar, "lib/x/libc.so.6", b"library");
                add(tar, "skipped/file", b"not wanted");
                raw(tar, tar::EntryType::Symlink, "./lib64/ld.so", "/lib/x/libc.so.6");
                raw(tar, tar::EntryType::Symlink, "./usr/share/c", "../../lib/x/libc.so.6");
                raw(tar, tar::EntryType::Link, "./usr/lib/hard", "./lib/x/libc.so.6");
            })
            .unwrap();
        for path in ["usr/lib/x/libc.so.6", "usr/lib64/ld.so", "usr/share/c", "usr/lib/hard"] {
            assert_eq!(place.read(path), "library", "{path}");
        }
        assert_eq!(place.tree.files.len() + place.tree.links.len(), 4);
        let link = fs::read_link(place.tree.root().join("usr/lib64/ld.so")).unwrap();
        assert_eq!(link, Path::new("../lib/x/libc.so.6"), "links are relative, so that a tree can be moved");
        let mode = fs::metadata(place.tree.root().join("usr/lib/x/libc.so.6")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "the set-user-ID bit is dropped");
    }

    #[test]
    fn malicious_paths_cannot_leave_the_folder() {
        use tar::EntryType::{Block, Char, Fifo, Link, Regular, Symlink};
        for (kind, path, target, part) in [
            (Regular, "../evil", "", "leads out"),
            (Regular, "usr/../../evil", "", "leads out"),
            (Symlink, "usr/evil", "../../evil", "leads out"),
            (Link, "usr/evil", "../evil", "leads out"),
            (Link, "usr/evil", "/etc/passwd", "does not exist"),
            (Regular, "usr/link/evil", "", "below the symbolic link"),
            (Char, "dev/null", "", "entry type"),
            (Block, "dev/sda", "", "entry type"),
            (Fifo, "run/pipe", "", "entry type"),
        ] {
            let mut place = Place::new();
            place.unpack(|tar| raw(tar, Symlink, "usr/link", "/etc")).unwrap();
            let error = place.unpack(|tar| raw(tar, kind, path, target)).unwrap_err();
            assert!(error.contains(part), "{path}: {error}");
            assert!(!place.dir.path().join("evil").exists(), "{path}");
        }
        // An absolute path means one below the folder, as for a package manager with another root.
        let mut place = Place::new();
        place.unpack(|tar| raw(tar, Regular, "/etc/absolute", "")).unwrap();
        assert_eq!(place.read("etc/absolute"), "");
    }

    #[test]
    fn later_package_replaces_files_and_links_of_an_earlier_one() {
        let mut place = Place::new();
        place.unpack(|tar| raw(tar, tar::EntryType::Symlink, "usr/a", "/usr/b")).unwrap();
        place.unpack(|tar| add(tar, "usr/a", b"file")).unwrap();
        assert_eq!(place.read("usr/a"), "file");
        assert!(place.tree.links.is_empty() && !place.tree.root().join("usr/b").exists());
    }

    #[test]
    fn package_that_unpacks_to_too_much_is_refused() {
        for (limit, part) in [
            (Limit { bytes: 99, entries: 10 }, "more than 99 bytes"),
            (Limit { bytes: 1000, entries: 1 }, "more than 1 files"),
        ] {
            let mut place = Place::new();
            place.tree.limit = limit;
            let error = place
                .unpack(|tar| {
                    add(tar, "usr/a", &[0; 60]);
                    add(tar, "skipped/b", &[0; 60]);
                })
                .unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let mut place = Place::new();
        place.tree.limit = Limit { bytes: 120, entries: 2 };
        place.unpack(|tar| ["usr/a", "usr/b"].iter().for_each(|path| add(tar, path, &[0; 60]))).unwrap();
        // Files that are written without a package count, too.
        let error = place.tree.write("c", &mut &b"x"[..], 0o644).unwrap_err();
        assert!(format!("{error:#}").contains("unpacks to more than"), "{error:#}");
    }

    #[test]
    fn invalid_packages_are_refused() {
        let mut place = Place::new();
        for content in [&b""[..], b"garbage", b"!<arch>\n", &deb("a", |tar| add(tar, "x", b"y"))[..200]] {
            let file = place.dir.write("b.deb", content);
            let error = format!("{:#}", place.tree.unpack(&file, &|_| true).unwrap_err());
            assert!(error.contains("b.deb"), "{error}");
        }
    }
}
