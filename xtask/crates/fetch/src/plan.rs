//! The downloads that a command would need.

use model::Target;
use serde::Serialize;

use crate::http::{counted, human};
use crate::lock::Pin;
use crate::piece::{self, Piece};
use crate::sets::Settled;
use crate::tree::{self, Look};
use crate::{Options, digest, sets};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub missing: Vec<Missing>,
    /// Sets of packages that no lock contains: only the mirror's index lists their packages.
    pub unresolved: Vec<String>,
}

/// A package that is not in the cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Missing {
    pub name: String,
    pub version: String,
    pub arch: String,
    /// Bytes.
    pub size: u64,
    pub sha256: String,
}

/// The packages that [`crate::machines`] would download. Downloads and writes nothing.
///
/// # Errors
/// As for [`crate::machines`], as far as they can be found without downloading.
pub fn plan(host: &Target, targets: &[&Target], options: &Options) -> anyhow::Result<Plan> {
    let (pieces, locks) = piece::pieces(host, targets, options)?;
    let settled = |piece: &Piece<'_>| locks[&piece.want.target].settled(&piece.want, options.locked);
    let settled: Vec<Option<Settled>> = pieces.iter().map(settled).collect();
    Ok(of(pieces.iter().zip(settled.iter().map(Option::as_ref)), options))
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unresolved.is_empty()
    }

    /// Total size in bytes, as far as it is known.
    pub fn size(&self) -> u64 {
        self.missing.iter().map(|missing| missing.size).sum()
    }
}

/// The plan for these pieces.
pub(crate) fn of<'a>(pieces: impl Iterator<Item = (&'a Piece<'a>, Option<&'a Settled>)>, options: &Options) -> Plan {
    let mut plan = Plan::default();
    for (piece, settled) in pieces {
        match settled {
            None => plan.unresolved.push(piece.want.title.clone()),
            Some(settled) if tree::open(&piece.tree_dir(settled, options), Look::Quick).is_ok() => {}
            Some(settled) => plan.missing.extend(missing(settled, options).iter().map(Missing::from)),
        }
    }
    plan.missing.sort();
    plan.missing.dedup();
    plan
}

/// Packages that are missing or incomplete in the cache.
pub(crate) fn missing(settled: &Settled, options: &Options) -> Vec<Pin> {
    let found = |pin: &Pin| digest::of_file(&sets::pool_file(options, pin)).ok();
    let intact = |pin: &&Pin| found(pin).is_some_and(|(sha256, _)| sha256 == pin.sha256);
    settled.set.pins.iter().filter(|pin| !intact(pin)).cloned().collect()
}

/// One line for each item, and the sum.
impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Missing { name, version, arch, size, .. } in &self.missing {
            writeln!(f, "  {name} {version} {arch}, {}", human(*size))?;
        }
        for title in &self.unresolved {
            writeln!(f, "  the packages of {title}, which are not in the lock: their size is unknown")?;
        }
        write!(f, "  {}, {} together", counted(self.missing.len(), "package"), human(self.size()))
    }
}

impl From<&Pin> for Missing {
    fn from(pin: &Pin) -> Missing {
        let [name, version, arch, sha256] = [&pin.name, &pin.version, &pin.arch, &pin.sha256].map(Clone::clone);
        Missing { name, version, arch, size: pin.size, sha256 }
    }
}
