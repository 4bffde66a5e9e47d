//! Versions of releases: `v1.36.3`, `v0.17.0-rc.1`.

use std::fmt;

/// A version of a Go module, or the version in a tag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(semver::Version);

/// Major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Minor(pub(crate) u64, pub(crate) u64);

impl Version {
    /// With or without a leading `v`; None if it does not have three numbers.
    pub(crate) fn parse(text: &str) -> Option<Version> {
        semver::Version::parse(text.strip_prefix('v').unwrap_or(text)).ok().map(Version)
    }

    /// The first release of a minor.
    pub(crate) fn first_of(Minor(major, minor): Minor) -> Version {
        Version(semver::Version::new(major, minor, 0))
    }

    pub(crate) fn minor(&self) -> Minor {
        Minor(self.0.major, self.0.minor)
    }

    /// Whether it is stable, and not an alpha, a beta or a release candidate.
    pub(crate) fn is_stable(&self) -> bool {
        self.0.pre.is_empty()
    }

    /// The version whose staging repositories have this version: v1.36.3 for v0.36.3.
    pub(crate) fn unstaged(&self) -> Option<Version> {
        (self.0.major == 0).then(|| Version(semver::Version { major: 1, ..self.0.clone() }))
    }
}

impl Minor {
    /// From `1.36`.
    pub(crate) fn parse(text: &str) -> Option<Minor> {
        Version::parse(&format!("{text}.0")).map(|version| version.minor())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pre_releases_come_before_their_release() {
        let parsed = |text| Version::parse(text).unwrap();
        let sorted = ["v1.9.9", "v1.10.0-alpha.2", "v1.10.0-rc.1", "v1.10.0", "v1.10.2", "v1.10.10"].map(parsed);
        assert!(sorted.is_sorted(), "{sorted:?}");
        assert!(!sorted[1].is_stable() && sorted[3].is_stable());
        assert_eq!(sorted[5].to_string(), "v1.10.10");
    }

    #[test]
    fn incomplete_versions_are_refused() {
        for text in ["", "v", "v1", "v1.2", "1.2.x", "go1.26.8", "v0.0.1.2", "latest"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
        assert_eq!(Minor::parse("1.36"), Some(Minor(1, 36)));
        assert_eq!(Minor::parse("1"), None);
    }

    #[test]
    fn staging_versions_map_to_the_release() {
        let release = |text| Version::parse(text).unwrap().unstaged().map(|version| version.to_string());
        assert_eq!(release("v0.36.3").as_deref(), Some("v1.36.3"));
        assert_eq!(release("v0.38.0-beta.0").as_deref(), Some("v1.38.0-beta.0"));
        assert_eq!(release("v1.36.3"), None);
    }
}
