//! `targets/architectures/<arch>.lock`: the packages of an architecture's VM, and of QEMU for hosts of it, pinned by digest.
//!
//! A set is a list of packages that belong together: `guest`, `node`, or `qemu-<target>`. The lock contains the names
//! from which a set was resolved, so that a lock older than its target file is noticed. Files of the same format in the
//! cache contain sets that were resolved later, because a locked package was no longer available. No mirror is named:
//! paths are below the root of any mirror.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, bail};
use jiff::Timestamp;
use sys::store::{self, Kind};

use crate::digest;

/// A resolved package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pin {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) arch: String,
    pub(crate) suite: String,
    pub(crate) size: u64,
    pub(crate) sha256: String,
    /// Below the mirror's root.
    pub(crate) path: String,
}

/// Packages that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    /// The package names from which it was resolved.
    pub(crate) roots: BTreeSet<String>,
    pub(crate) pins: BTreeSet<Pin>,
    /// In the cache: the digest of the locked set that this one replaces.
    pub(crate) replaces: Option<String>,
}

/// The index of a suite that pins come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suite {
    pub(crate) date: Timestamp,
    /// A time for which the public snapshot archive has that suite and its packages.
    pub(crate) snapshot: String,
    /// Whether it was past its Valid-Until when it was used.
    pub(crate) expired: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) suites: BTreeMap<String, Suite>,
    pub(crate) sets: BTreeMap<String, Set>,
}

/// Maximum size of a package or index in bytes: 1 TiB.
const LARGEST: u64 = 1 << 40;
const EXPIRED: &str = "expired";
const HEADER: &str = "\
# Debian packages, pinned. Written by `cargo xtask fetch --update-lock`; do not edit.
# suite: name, date of its index, time in the snapshot archive, whether the index was past its Valid-Until
# set: name, the packages that it was resolved from
# package: name, version, architecture, suite, size, SHA-256, path below the mirror, the sets that it is in
";

/// The size of a file, in bytes. Sizes are added up later, so impossible sizes are refused here.
pub(crate) fn size(text: &str) -> anyhow::Result<u64> {
    let size = text.parse()?;
    if size > LARGEST {
        bail!("a file of {size} bytes is larger than {LARGEST} bytes, the limit of a download");
    }
    Ok(size)
}

impl Set {
    /// Changes if any package of the set changes.
    pub(crate) fn digest(&self) -> String {
        let mut digest = digest::Sha256::new();
        self.pins.iter().for_each(|pin| digest.field(&pin.sha256));
        digest.hex()
    }
}

impl Suite {
    /// The newest index of each suite.
    pub(crate) fn newest<'a>(all: impl Iterator<Item = (&'a String, &'a Suite)>) -> BTreeMap<String, Suite> {
        let mut newest: BTreeMap<String, Suite> = BTreeMap::new();
        for (name, suite) in all {
            if newest.get(name).is_none_or(|seen| seen.date < suite.date) {
                newest.insert(name.clone(), suite.clone());
            }
        }
        newest
    }
}

impl Lock {
    /// A missing file is an empty lock.
    pub(crate) fn load(file: &Path) -> anyhow::Result<Lock> {
        match std::fs::read_to_string(file) {
            Ok(text) => Lock::parse(&text).with_context(|| {
                format!("{} is not a valid lock: `cargo xtask fetch --update-lock` rewrites it", file.display())
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Lock::default()),
            Err(error) => Err(error).with_context(|| format!("failed to read {}", file.display())),
        }
    }

    /// Changes a lock in the cache. None if another process is writing it; an invalid one is replaced.
    pub(crate) fn amend(file: &Path, change: impl FnOnce(&mut Lock)) -> anyhow::Result<Option<Lock>> {
        let Some(claim) = store::claim(file, Kind::File)? else { return Ok(None) };
        let mut lock = Lock::load(file).unwrap_or_default();
        change(&mut lock);
        let written = claim.file().write_all(lock.text().as_bytes());
        written.with_context(|| format!("failed to write {}: {}", file.display(), store::hint()))?;
        claim.publish()?;
        Ok(Some(lock))
    }

    pub(crate) fn parse(text: &str) -> anyhow::Result<Lock> {
        let mut lock = Lock::default();
        for (number, line) in text.lines().enumerate() {
            lock.line(line).with_context(|| format!("line {}", number + 1))?;
        }
        Ok(lock)
    }

    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            [comment, ..] if comment.starts_with('#') => {}
            ["suite", name, date, snapshot, rest @ ..] if rest.is_empty() || rest == [EXPIRED] => {
                let suite = Suite { date: date.parse()?, snapshot: (*snapshot).to_owned(), expired: !rest.is_empty() };
                self.suites.insert((*name).to_owned(), suite);
            }
            ["set", name, roots @ ..] => {
                self.sets.entry((*name).to_owned()).or_default().roots =
                    roots.iter().map(|r| (*r).to_owned()).collect();
            }
            ["replaces", set, digest] => {
                self.sets.entry((*set).to_owned()).or_default().replaces = Some((*digest).to_owned());
            }
            ["package", name, version, arch, suite, size, sha256, path, sets] => {
                if !digest::is_sha256(sha256) {
                    bail!("`{sha256}` is not a SHA-256");
                }
                if !path.starts_with("pool/") || path.split('/').any(|part| part == "..") {
                    bail!("`{path}` is not below pool/");
                }
                let [name, version, arch, suite, sha256, path] =
                    [name, version, arch, suite, sha256, path].map(|word| (*word).to_owned());
                let pin = Pin { name, version, arch, suite, size: self::size(size)?, sha256, path };
                if sets.split(',').any(str::is_empty) {
                    bail!("`{sets}` contains a set without a name");
                }
                for set in sets.split(',') {
                    self.sets.entry(set.to_owned()).or_default().pins.insert(pin.clone());
                }
            }
            _ => bail!("`{line}` is not a valid line"),
        }
        Ok(())
    }

    pub(crate) fn text(&self) -> String {
        let mut text = HEADER.to_owned();
        let mut add = |words: &[&str]| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", words.join(" "));
        };
        for (name, suite) in &self.suites {
            let expired: &[&str] = if suite.expired { &[EXPIRED] } else { &[] };
            add(&[&["suite", name, &suite.date.to_string(), &suite.snapshot], expired].concat());
        }
        let mut pins: BTreeMap<&Pin, Vec<&str>> = BTreeMap::new();
        for (name, set) in &self.sets {
            let roots = set.roots.iter().map(String::as_str);
            add(&["set", name].into_iter().chain(roots).collect::<Vec<_>>());
            if let Some(digest) = &set.replaces {
                add(&["replaces", name, digest]);
            }
            set.pins.iter().for_each(|pin| pins.entry(pin).or_default().push(name));
        }
        for (pin, sets) in pins {
            let Pin { name, version, arch, suite, size, sha256, path } = pin;
            add(&["package", name, version, arch, suite, &size.to_string(), sha256, path, &sets.join(",")]);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> Lock {
        let pin = |name: &str, byte: char| Pin {
            name: name.into(),
            version: "1:2-3".into(),
            arch: "all".into(),
            suite: "x".into(),
            size: 7,
            sha256: byte.to_string().repeat(64),
            path: format!("pool/main/{name}.deb"),
        };
        let set =
            |pins: &[Pin]| Set { roots: ["r".to_owned()].into(), pins: pins.iter().cloned().collect(), replaces: None };
        let suite =
            Suite { date: "2026-11-20T02:11:10Z".parse().unwrap(), snapshot: "20261120T081110Z".into(), expired: true };
        Lock {
            suites: [("x".to_owned(), suite)].into(),
            sets: [
                ("guest".to_owned(), set(&[pin("a", '1')])),
                ("qemu-y".to_owned(), set(&[pin("a", '1'), pin("b", '2')])),
            ]
            .into(),
        }
    }

    #[test]
    fn written_lock_is_read_again() {
        let text = lock().text();
        assert_eq!(Lock::parse(&text).unwrap(), lock());
        assert_eq!(text.lines().filter(|line| line.starts_with("package a ")).count(), 1, "{text}");
        assert!(text.contains(" guest,qemu-y\n"), "{text}");
    }

    #[test]
    fn invalid_lock_is_refused_with_its_line() {
        for (bad, part) in [
            ("package a\n", "line 1"),
            ("\npackage a 1 all x 7 abc pool/a.deb guest\n", "`abc` is not a SHA-256"),
            ("suite x yesterday y\n", "line 1"),
            ("nonsense\n", "`nonsense`"),
            (&lock().text().replace("pool/main/b.deb", "pool/../b.deb"), "not below pool/"),
            (&lock().text().replace("pool/main/b.deb", "http://x/b.deb"), "not below pool/"),
        ] {
            let error = format!("{:#}", Lock::parse(bad).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn digest_of_a_set_depends_on_its_packages() {
        let sets = lock().sets;
        assert_ne!(sets["guest"].digest(), sets["qemu-y"].digest());
        assert_eq!(sets["guest"].digest(), Lock::parse(&lock().text()).unwrap().sets["guest"].digest());
    }
}
