//! Which versions `pins bump` would pin: pure functions.

use std::path::PathBuf;

use crate::pinned::{Folder, Pinned};
use crate::state::Offer;
use crate::version::{Minor, Version};

/// A new version for one Go module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bump {
    pub(crate) set: String,
    /// The Go module, below `targets/`.
    pub(crate) folder: PathBuf,
    pub(crate) from: Version,
    pub(crate) to: Version,
}

impl Bump {
    /// `targets: kine 0.17.5`.
    pub(crate) fn subject(&self) -> String {
        format!("targets: {}", self.title())
    }

    /// `kine 0.17.5`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.set, self.to.to_string().trim_start_matches('v'))
    }
}

/// The newer versions of a set: the newest patch for each of several minors, the newest release for a set with one.
pub(crate) fn newer(set: &Pinned, releases: bool, offer: &Offer) -> Vec<Bump> {
    let newest = |folder: &&Folder| {
        let fits = |version: &&Version| !releases || version.minor() == folder.version.minor();
        let served = offer.times.iter().filter(|(_, time)| time.is_ok()).map(|(version, _)| version);
        let allowed = |version: &&Version| version.is_stable() && set.pins.held(version).is_none();
        let newest = served.filter(allowed).filter(fits).max()?;
        (*newest > folder.version).then(|| bump(set, folder, newest))
    };
    set.folders.iter().filter_map(|folder| newest(&folder)).collect()
}

/// A given version for the release of its minor, or for the only release.
///
/// # Errors
/// The set pins other minors; this version is pinned already.
pub(crate) fn given(set: &Pinned, releases: bool, to: &Version) -> Result<Bump, String> {
    let name = &set.pins.set;
    let folder = set.folders.iter().find(|folder| !releases || folder.version.minor() == to.minor());
    let Some(folder) = folder else {
        return Err(format!("{name} does not pin {}: draft it with --minor {}", to.minor(), to.minor()));
    };
    if folder.version == *to {
        return Err(format!("{name} {to} is pinned already"));
    }
    Ok(bump(set, folder, to))
}

/// The newest served version of a minor that is not pinned; without a minor, of the newest one.
///
/// # Errors
/// The minor is pinned, or no version of it can be downloaded.
pub(crate) fn draft(set: &Pinned, offer: &Offer, minor: Option<Minor>) -> Result<Version, String> {
    let name = &set.pins.set;
    let is_pinned = |minor: Minor| set.folders.iter().any(|folder| folder.version.minor() == minor);
    if let Some(minor) = minor.filter(|minor| is_pinned(*minor)) {
        return Err(format!("{name} pins {minor} already"));
    }
    let served = offer.times.iter().filter(|(version, time)| time.is_ok() && version.is_stable());
    let held = |version: &Version| minor.is_none() && set.pins.held(version).is_some();
    let missing = served.map(|(version, _)| version).filter(|version| !is_pinned(version.minor()) && !held(version));
    let newest = missing.filter(|version| minor.is_none_or(|minor| version.minor() == minor)).max();
    let what = minor.map_or("newer minor".to_owned(), |minor| format!("release of {minor}"));
    newest.cloned().ok_or_else(|| format!("the proxy serves no {what} of {name}"))
}

fn bump(set: &Pinned, folder: &Folder, to: &Version) -> Bump {
    let (set, folder, from) = (set.pins.set.clone(), folder.path.clone(), folder.version.clone());
    Bump { set, folder, from, to: to.clone() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::state::Pins;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    fn set(pinned: &[&str]) -> Pinned {
        let folders: Vec<Folder> = pinned
            .iter()
            .map(|text| Folder { path: format!("components/{text}").into(), version: version(text), draft: false })
            .collect();
        let pinned = folders.iter().map(|folder| folder.version.clone()).collect();
        let pins = Pins { set: "store".into(), pinned, supported: 1, follows: None, held: None };
        Pinned { pins, module: "example.org/store".into(), staging: None, folders }
    }

    fn offer(served: &[&str], refused: &[&str]) -> Offer {
        let time = "2026-11-01T00:00:00Z".parse().unwrap();
        let served = served.iter().map(|text| (version(text), Ok(time)));
        let refused = refused.iter().map(|text| (version(text), Err("403".to_owned())));
        let times: BTreeMap<_, _> = served.chain(refused).collect();
        Offer { listed: times.keys().cloned().collect(), times, ..Offer::default() }
    }

    fn shown(bumps: &[Bump]) -> Vec<String> {
        bumps.iter().map(|bump| format!("{} -> {}", bump.from, bump.to)).collect()
    }

    #[test]
    fn each_minor_gets_its_newest_served_patch() {
        let offer = offer(&["v3.5.1", "v3.5.2", "v3.6.4", "v3.7.0", "v3.6.5-rc.1"], &["v3.5.3"]);
        let bumps = newer(&set(&["v3.5.0", "v3.6.4"]), true, &offer);
        assert_eq!(shown(&bumps), ["v3.5.0 -> v3.5.2"]);
        assert_eq!(bumps[0].subject(), "targets: store 3.5.2");
    }

    #[test]
    fn set_with_one_release_gets_the_newest_minor() {
        let offer = offer(&["v0.16.6", "v0.17.5", "v0.18.0-rc.1"], &["v0.17.6"]);
        assert_eq!(shown(&newer(&set(&["v0.16.4"]), false, &offer)), ["v0.16.4 -> v0.17.5"]);
        assert!(newer(&set(&["v0.17.5"]), false, &offer).is_empty());
    }

    #[test]
    fn held_version_is_pinned_only_by_name() {
        let (offer, mut set) = (offer(&["v0.16.5", "v0.16.6", "v0.17.5", "v0.18.0"], &[]), set(&["v0.16.4"]));
        set.pins.held = Some((version("v0.16.6"), "it loses writes".into()));
        assert_eq!(shown(&newer(&set, false, &offer)), ["v0.16.4 -> v0.16.5"]);
        assert!(draft(&set, &offer, None).unwrap_err().contains("no newer minor"));
        assert_eq!(draft(&set, &offer, Some(Minor(0, 17))).unwrap(), version("v0.17.5"));
        assert_eq!(given(&set, false, &version("v0.17.5")).unwrap().to, version("v0.17.5"));
    }

    #[test]
    fn given_version_selects_the_release_of_its_minor() {
        let set = set(&["v3.5.0", "v3.6.4"]);
        assert_eq!(given(&set, true, &version("v3.6.1")).unwrap().folder, PathBuf::from("components/v3.6.4"));
        assert!(given(&set, true, &version("v3.7.0")).unwrap_err().contains("--minor 3.7"));
        assert!(given(&set, true, &version("v3.6.4")).unwrap_err().contains("already"));
        assert_eq!(given(&set, false, &version("v9.0.0")).unwrap().from, version("v3.5.0"));
    }

    #[test]
    fn draft_takes_the_newest_missing_minor() {
        let (set, offer) =
            (set(&["v1.36.3"]), offer(&["v1.36.4", "v1.37.0", "v1.37.2", "v1.38.0-beta.0"], &["v1.37.3"]));
        assert_eq!(draft(&set, &offer, None).unwrap(), version("v1.37.2"));
        assert!(draft(&set, &offer, Some(Minor(1, 36))).unwrap_err().contains("already"));
        assert!(draft(&set, &offer, Some(Minor(1, 38))).unwrap_err().contains("release of 1.38"));
    }
}
