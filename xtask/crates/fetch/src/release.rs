//! InRelease: the signed root of a suite, with the digests of its indexes.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};

use crate::control;
use crate::digest;
use crate::lock::{self, Suite};

/// Time after an index's date when the snapshot archive has stored it and its packages are still available.
const TAKEN_IN: SignedDuration = SignedDuration::from_hours(6);

/// The content of a verified InRelease.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) date: Timestamp,
    pub(crate) valid_until: Option<Timestamp>,
    pub(crate) by_hash: bool,
    /// Size and SHA-256 by path below the suite's folder.
    files: BTreeMap<String, (u64, String)>,
}

impl Release {
    /// Reads the signed text and checks that it describes `suite`: a mirror must not present the index of another
    /// suite.
    pub(crate) fn parse(text: &str, suite: &str) -> anyhow::Result<Release> {
        let all: Vec<_> = control::paragraphs(text).collect();
        let [release] = all.as_slice() else { bail!("it has {} paragraphs instead of one", all.len()) };
        let names = [release.get("Codename"), release.get("Suite")];
        if !names.contains(&Some(suite)) {
            bail!("it is of the suite {}, not of {suite}", names.map(|name| name.unwrap_or("?")).join("/"));
        }
        let mut files = BTreeMap::new();
        for line in release.lines("SHA256").iter().filter(|line| !line.is_empty()) {
            let mut words = line.split_whitespace();
            let (Some(sha256), Some(size), Some(path)) = (words.next(), words.next(), words.next()) else {
                bail!("`{line}` is not a digest, a size and a path");
            };
            if !digest::is_sha256(sha256) {
                bail!("`{sha256}` is not a SHA-256");
            }
            files.insert(path.to_owned(), (lock::size(size)?, sha256.to_owned()));
        }
        Ok(Release {
            date: time(release.get("Date").context("it has no Date")?)?,
            valid_until: release.get("Valid-Until").map(time).transpose()?,
            by_hash: release.get("Acquire-By-Hash") == Some("yes"),
            files,
        })
    }

    /// Size and SHA-256 of the packages' index of an architecture, and its path.
    pub(crate) fn index(&self, arch: &str) -> anyhow::Result<(String, u64, String)> {
        let path = format!("main/binary-{arch}/Packages.xz");
        let (size, sha256) = self.files.get(&path).with_context(|| format!("the suite has no {path}"))?;
        Ok((path, *size, sha256.clone()))
    }

    /// The record of this index in a lock.
    /// Errors: its date is outside of the range of snapshots.
    pub(crate) fn used(&self) -> anyhow::Result<Suite> {
        let taken_in = self.date.checked_add(TAKEN_IN).context("its date is out of range")?;
        let snapshot = taken_in.strftime("%Y%m%dT%H%M%SZ").to_string();
        Ok(Suite { date: self.date, snapshot, expired: self.expired() })
    }

    pub(crate) fn expired(&self) -> bool {
        self.valid_until.is_some_and(|until| until < Timestamp::now())
    }
}

/// "Sat, 12 Sep 2026 07:55:41 UTC".
fn time(text: &str) -> anyhow::Result<Timestamp> {
    let zoned = jiff::fmt::rfc2822::parse(&text.replace(" UTC", " +0000"));
    Ok(zoned.with_context(|| format!("`{text}` is not a time"))?.timestamp())
}
