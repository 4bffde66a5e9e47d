//! The pinned Go toolchain of `targets/go.lock`: newer patches of its minor. The components' go.mod files decide about
//! another minor.

use std::collections::{BTreeMap, BTreeSet};

use build::GoTool;
use jiff::Timestamp;
use sys::progress::Phase;

use crate::state::{Line, Offer, Pins, lines};
use crate::upstream;
use crate::version::Version;

/// The name in the first column.
pub(crate) const SET: &str = "go";
const MODULE: &str = "golang.org/toolchain";

/// The rows for the toolchain. `lock` is the text of go.lock.
///
/// # Errors
/// Go fails as a whole, or an interrupt.
pub(crate) fn check(go: &GoTool, lock: &str, now: Timestamp) -> anyhow::Result<Vec<Line>> {
    let locked = locked(lock);
    let Some((pinned, arch)) = locked.first() else {
        return Ok(vec![Line::unknown(SET, "-", "-", "go.lock names no toolchain")]);
    };
    let arches: BTreeSet<&str> = locked.iter().map(|(_, arch)| arch.as_str()).collect();
    let phase = Phase::start("ask for Go toolchains");
    let listed = match upstream::versions(go, &BTreeSet::from([MODULE]), &phase)?.remove(MODULE) {
        Some(Ok(listed)) => listed,
        Some(Err(why)) => return Ok(vec![Line::unknown(SET, pinned.minor(), &pinned.to_string(), &why)]),
        None => return Ok(vec![Line::unknown(SET, pinned.minor(), &pinned.to_string(), "no answer")]),
    };
    let newer = newer(&listed, pinned, &arches);
    let name = |version: &Version| format!("v0.0.1-go{}.linux-{arch}", version.to_string().trim_start_matches('v'));
    let questions = newer.iter().map(|version| format!("{MODULE}@{}", name(version))).collect();
    let answers = upstream::times(go, &questions, &phase)?;
    phase.done(&format!("{} newer patches", newer.len()));
    let time = |version: &Version| match answers.get(&(MODULE.to_owned(), name(version))) {
        Some(answer) => answer.published(),
        None => Err("no answer".to_owned()),
    };
    let times = newer.iter().map(|version| (version.clone(), time(version))).collect();
    let offer = Offer { listed: newer, times, retracted: BTreeMap::new() };
    let pins =
        Pins { set: SET.to_owned(), pinned: BTreeSet::from([pinned.clone()]), supported: 1, follows: None, held: None };
    Ok(lines(&pins, &offer, now))
}

/// The toolchain that is fetched on machines without Go.
///
/// # Errors
/// The lock names none.
pub(crate) fn pinned(lock: &str) -> Result<Version, String> {
    let first = locked(lock).into_iter().next().map(|(version, _)| version);
    first.ok_or_else(|| "go.lock names no toolchain".to_owned())
}

/// Version and GOARCH of each locked toolchain, oldest version first.
fn locked(lock: &str) -> Vec<(Version, String)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let is_toolchain = words.next() == Some("toolchain");
        let version = words.next().and_then(Version::parse).filter(|_| is_toolchain)?;
        Some((version, words.next()?.to_owned()))
    };
    let mut locked: Vec<(Version, String)> = lock.lines().filter_map(line).collect();
    locked.sort();
    locked
}

/// Patches of the pinned minor that every one of these architectures has.
fn newer(listed: &[String], pinned: &Version, arches: &BTreeSet<&str>) -> BTreeSet<Version> {
    let mut found: BTreeMap<Version, BTreeSet<&str>> = BTreeMap::new();
    for text in listed {
        let parsed = text.strip_prefix("v0.0.1-go").and_then(|rest| rest.split_once(".linux-"));
        let Some((version, arch)) = parsed.and_then(|(version, arch)| Some((Version::parse(version)?, arch))) else {
            continue;
        };
        if version.minor() == pinned.minor() && version > *pinned {
            found.entry(version).or_default().insert(arch);
        }
    }
    found.into_iter().filter(|(_, has)| arches.is_subset(has)).map(|(version, _)| version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolchain_must_exist_for_all_locked_architectures() {
        let listed = [
            "v0.0.1-go1.26.8.linux-amd64",
            "v0.0.1-go1.26.9.linux-amd64",
            "v0.0.1-go1.26.9.linux-arm64",
            "v0.0.1-go1.26.10.linux-arm64",
            "v0.0.1-go1.26.11.darwin-arm64",
            "v0.0.1-go1.26rc1.linux-amd64",
            "v0.0.1-go1.27.0.linux-amd64",
            "v0.0.1-go1.27.0.linux-arm64",
            "nonsense",
        ];
        let listed: Vec<String> = listed.iter().map(|text| (*text).to_owned()).collect();
        let pinned = Version::parse("1.26.8").unwrap();
        let found = newer(&listed, &pinned, &BTreeSet::from(["amd64", "arm64"]));
        assert_eq!(found.into_iter().map(|v| v.to_string()).collect::<Vec<_>>(), ["v1.26.9"]);
    }

    #[test]
    fn lock_lists_versions_and_architectures() {
        let locked = locked("# toolchain 9.9.9 none\ntoolchain 1.26.8 amd64 1 h1:x=\ntoolchain 1.26.8 arm64 2 h1:y=\n");
        let shown: Vec<String> = locked.iter().map(|(version, arch)| format!("{version} {arch}")).collect();
        assert_eq!(shown, ["v1.26.8 amd64", "v1.26.8 arm64"]);
    }
}
