//! Where packages come from: the mirror of the host's apt sources, one that was named, or the snapshot archive.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::control;
use crate::lock::Suite;

/// The public archive of what Debian's mirrors once held.
const SNAPSHOT: &str = "https://snapshot.debian.org/archive/debian";
/// Suites of which a mirror is taken to be one of Debian; what follows a `-` is not looked at.
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

/// A place to fetch from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mirror {
    /// Without a slash at the end.
    At(String),
    /// The snapshot archive; times by suite, from the lock.
    Snapshot(BTreeMap<String, String>),
}

impl Mirror {
    /// The one that was named, else the host's, else the snapshot archive.
    pub(crate) fn choose(named: Option<&str>, apt: &Path, suites: &BTreeMap<String, Suite>) -> Mirror {
        match named.map(str::to_owned).or_else(|| of_apt(apt)) {
            Some(url) => Mirror::At(url.trim_end_matches('/').to_owned()),
            None => Mirror::Snapshot(suites.iter().map(|(name, s)| (name.clone(), s.snapshot.clone())).collect()),
        }
    }

    /// The address of a path below the root; `suite` is the one it belongs to.
    pub(crate) fn url(&self, suite: &str, path: &str) -> String {
        // A version's `~` and `+` may stand in a URL as they are; a `%` would already be escaped.
        match self {
            Mirror::At(root) => format!("{root}/{path}"),
            Mirror::Snapshot(times) => {
                let now = || jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
                let time = times.get(suite).cloned().unwrap_or_else(now);
                format!("{SNAPSHOT}/{time}/{path}")
            }
        }
    }
}

impl std::fmt::Display for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mirror::At(root) => f.write_str(root),
            Mirror::Snapshot(_) => f.write_str(SNAPSHOT),
        }
    }
}

/// The first Debian mirror that apt's sources name.
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
fn one_line(text: &str) -> Option<String> {
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

fn deb822(text: &str) -> Option<String> {
    control::paragraphs(text).find_map(|source| {
        let words = |name: &str| source.lines(name).iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>();
        let off = source.get("Enabled").is_some_and(|value| ["no", "false", "off", "0"].contains(&value));
        if off || !words("Types").contains(&"deb") {
            return None;
        }
        debian(&words("URIs"), &words("Suites"), &words("Components"))
    })
}

/// The first of the URIs if this is an entry of a full Debian mirror, and not of a repository that is made like one.
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
    fn one_line_sources_are_read() {
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
    fn deb822_sources_are_read() {
        let text = "Types: deb deb-src\nURIs: http://m/debian-security\nSuites: trixie-security\nComponents: main\n\n\
                    Enabled: no\nTypes: deb\nURIs: http://off/debian\nSuites: trixie\nComponents: main\n\n\
                    Types: deb\nURIs: ftp://m/debian\n http://good/debian/\nSuites: trixie trixie-updates\n\
                    Components: main non-free\n";
        assert_eq!(deb822(text).as_deref(), Some("http://good/debian"));
        assert_eq!(deb822(&text.replace("main non-free", "non-free")), None);
    }

    #[test]
    fn what_was_named_wins_and_the_archive_is_last() {
        let nowhere = Path::new("/nowhere");
        let date = "2026-11-20T02:11:10Z".parse().unwrap();
        let suites = [("sid".to_owned(), Suite { date, snapshot: "20261120T081110Z".into(), expired: false })].into();
        let named = Mirror::choose(Some("http://m/debian/"), nowhere, &suites);
        assert_eq!(named.url("sid", "pool/a.deb"), "http://m/debian/pool/a.deb");
        let archive = Mirror::choose(None, nowhere, &suites);
        assert_eq!(archive.url("sid", "pool/a.deb"), format!("{SNAPSHOT}/20261120T081110Z/pool/a.deb"));
    }
}
