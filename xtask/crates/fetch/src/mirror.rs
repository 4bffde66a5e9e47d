//! The source of packages: a given mirror, the mirror of the host's apt sources, or Debian's public mirrors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::control;
use crate::lock::Suite;

/// Debian's network of mirrors, which has the current packages. https://deb.debian.org
const PUBLIC: &str = "https://deb.debian.org/debian";
/// The public archive of the former content of Debian's mirrors. It is slower, and asks its users to limit their
/// requests.
const SNAPSHOT: &str = "https://snapshot.debian.org/archive/debian";
/// Suites that identify a mirror as one of Debian; the part after a `-` is ignored.
const SUITES: [&str; 12] = [
    "stable",
    "oldstable",
    "oldoldstable",
    "testing",
    "unstable",
    "sid",
    "buster",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
];

/// Debian's public mirror.
pub fn public_mirror() -> &'static str {
    PUBLIC
}

/// Where to fetch from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    /// Its root, without a trailing slash.
    root: String,
    /// The archive of files that are no longer on the mirror.
    archive: Option<Snapshots>,
}

/// The snapshot archive at the times that locks name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Snapshots {
    root: String,
    /// By suite, the newest first.
    times: BTreeMap<String, Vec<String>>,
}

/// A root below which an archive has its suites and packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) root: String,
    /// Whether it is a snapshot of the time that a lock names.
    pub(crate) of_lock: bool,
}

impl Mirror {
    /// The given mirror, else the host's, else Debian's public one followed by the snapshot archive.
    pub(crate) fn choose<'a>(
        named: Option<&str>,
        apt: &Path,
        suites: impl Iterator<Item = (&'a String, &'a Suite)>,
    ) -> Mirror {
        match named.map(str::to_owned).or_else(|| of_apt(apt)) {
            Some(url) => Mirror { root: url.trim_end_matches('/').to_owned(), archive: None },
            None => Mirror::public(PUBLIC, SNAPSHOT, suites),
        }
    }

    pub(crate) fn public<'a>(
        root: &str,
        snapshots: &str,
        suites: impl Iterator<Item = (&'a String, &'a Suite)>,
    ) -> Mirror {
        let mut dated: BTreeMap<String, BTreeSet<(Timestamp, String)>> = BTreeMap::new();
        for (name, suite) in suites {
            dated.entry(name.clone()).or_default().insert((suite.date, suite.snapshot.clone()));
        }
        let newest_first =
            |times: BTreeSet<(Timestamp, String)>| times.into_iter().rev().map(|(_, time)| time).collect();
        let times = dated.into_iter().map(|(name, times)| (name, newest_first(times))).collect();
        Mirror { root: root.to_owned(), archive: Some(Snapshots { root: snapshots.to_owned(), times }) }
    }

    /// The places that may have a suite and its packages, in the order to ask.
    pub(crate) fn places(&self, suite: &str) -> Vec<Place> {
        let of_lock = |archive: &Snapshots| -> Vec<Place> {
            let times = archive.times.get(suite).into_iter().flatten();
            times.map(|time| Place { root: format!("{}/{time}", archive.root), of_lock: true }).collect()
        };
        let live = Place { root: self.root.clone(), of_lock: false };
        [live].into_iter().chain(self.archive.iter().flat_map(of_lock)).collect()
    }
}

impl Place {
    /// The address of a path. The `~` and `+` of a version need no escaping; a `%` is already escaped.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.root)
    }
}

impl std::fmt::Display for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.root)?;
        self.archive.iter().try_for_each(|archive| write!(f, " and {}", archive.root))
    }
}

/// The first Debian mirror in apt's sources.
fn of_apt(apt: &Path) -> Option<String> {
    let mut files = vec![apt.join("sources.list")];
    let mut more: Vec<PathBuf> = std::fs::read_dir(apt.join("sources.list.d"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    more.sort();
    files.extend(more);
    files.iter().find_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        match file.extension()?.to_str()? {
            "list" => one_line(&text),
            "sources" => deb822(&text),
            _ => None,
        }
    })
}

/// `deb [options] URI suite components`.
pub(crate) fn one_line(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let line = line.split('#').next()?.trim().strip_prefix("deb ")?.trim_start();
        let line = match line.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?.1,
            None => line,
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let [uri, suite, components @ ..] = words.as_slice() else { return None };
        debian(&[uri], &[suite], components)
    })
}

pub(crate) fn deb822(text: &str) -> Option<String> {
    control::paragraphs(text).find_map(|source| {
        let words = |name: &str| source.lines(name).iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>();
        let off = source.get("Enabled").is_some_and(|value| ["no", "false", "off", "0"].contains(&value));
        if off || !words("Types").contains(&"deb") {
            return None;
        }
        debian(&words("URIs"), &words("Suites"), &words("Components"))
    })
}

/// The first of the URIs if this is an entry of a full Debian mirror, and not of a repository with the same layout.
fn debian(uris: &[&str], suites: &[&str], components: &[&str]) -> Option<String> {
    let known = |suite: &&str| SUITES.contains(&suite.split('-').next().unwrap_or_default());
    if !components.contains(&"main") || !suites.iter().any(known) {
        return None;
    }
    let http = |uri: &&&str| uri.starts_with("http://") || uri.starts_with("https://");
    let root = |uri: &&str| uri.trim_end_matches('/').ends_with("/debian");
    uris.iter().filter(http).copied().find(root).map(|uri| uri.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_one_line_sources() {
        for (line, expected) in [
            ("deb http://m/debian trixie main", Some("http://m/debian")),
            (
                "deb [arch=amd64 signed-by=/k] https://m/pub/debian/ bookworm-updates main contrib # x",
                Some("https://m/pub/debian"),
            ),
            ("# deb http://m/debian trixie main", None),
            ("deb-src http://m/debian trixie main", None),
            ("deb http://m/debian-security trixie-security main", None),
            ("deb http://m/ubuntu noble main", None),
            ("deb http://m/linux/debian bookworm stable", None),
            ("deb http://m/debian mysuite main", None),
            ("deb cdrom:[x]/debian trixie main", None),
            ("deb", None),
        ] {
            assert_eq!(one_line(&format!("\n{line}\n")).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn parses_deb822_sources() {
        let text = "Types: deb deb-src\nURIs: http://m/debian-security\nSuites: trixie-security\nComponents: main\n\n\
                    Enabled: no\nTypes: deb\nURIs: http://off/debian\nSuites: trixie\nComponents: main\n\n\
                    Types: deb\nURIs: ftp://m/debian\n http://good/debian/\nSuites: trixie trixie-updates\n\
                    Components: main non-free\n";
        assert_eq!(deb822(text).as_deref(), Some("http://good/debian"));
        assert_eq!(deb822(&text.replace("main non-free", "non-free")), None);
    }

    #[test]
    fn given_mirror_is_the_only_one_and_public_ones_are_tried_in_order() {
        let nowhere = Path::new("/nowhere");
        let suite = |date: &str, snapshot: &str| {
            ("sid".to_owned(), Suite { date: date.parse().unwrap(), snapshot: snapshot.into(), expired: false })
        };
        let suites = [
            suite("2026-11-20T02:11:10Z", "20261120T081110Z"),
            suite("2026-11-22T02:11:10Z", "20261122T081110Z"),
            suite("2026-11-20T02:11:10Z", "20261120T081110Z"),
        ];
        let suites = || suites.iter().map(|(name, suite)| (name, suite));
        let urls = |mirror: &Mirror, suite: &str| -> Vec<String> {
            mirror.places(suite).iter().map(|place| place.url("pool/a.deb")).collect()
        };
        let named = Mirror::choose(Some("http://m/debian/"), nowhere, suites());
        assert_eq!(urls(&named, "sid"), ["http://m/debian/pool/a.deb"]);
        let public = Mirror::choose(None, nowhere, suites());
        let expected = [
            format!("{PUBLIC}/pool/a.deb"),
            format!("{SNAPSHOT}/20261122T081110Z/pool/a.deb"),
            format!("{SNAPSHOT}/20261120T081110Z/pool/a.deb"),
        ];
        assert_eq!(urls(&public, "sid"), expected);
        assert_eq!(urls(&public, "trixie"), [format!("{PUBLIC}/pool/a.deb")]);
    }
}
