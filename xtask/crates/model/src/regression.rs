//! Released versions with known defects: `targets/regressions.yaml`.

use semver::Version;
use serde::{Deserialize, Serialize};

/// A released version with a known defect, and the check that must find it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Regression {
    /// Its name on the command line and in the names of run folders.
    pub id: String,
    /// The defect, in one sentence.
    pub what: String,
    /// The URL of the issue, or of the line of source that causes the defect.
    pub source: String,
    /// The set of components that has the defect: `etcd`.
    pub set: String,
    /// A release with the defect: `v3.6.8`.
    pub version: String,
    /// A release without it, on which the check must pass: the first one with the fix, or the last one before the defect.
    pub control: Option<String>,
    /// The id of the check.
    pub check: String,
    /// One of the profiles of the check. None: its first one.
    pub profile: Option<String>,
    /// How often the check runs at most until it fails: some defects are races.
    pub tries: u32,
    /// A part of the failure's text. Another failure is not this defect. Required if the check is an expected failure of
    /// the release: an expected failure with this text is the defect, any other one counts as a pass.
    pub says: Option<String>,
    /// The runs that did not find the defect. None: the check must find it.
    pub tried: Option<Tried>,
}

/// Runs of a check that did not find a defect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tried {
    pub times: u32,
    /// What they ran on, for people.
    pub machine: String,
}

impl Regression {
    /// Whether the text is the version of a release, as Go modules spell it: `v3.6.8`.
    pub fn is_release(text: &str) -> bool {
        text.strip_prefix('v').is_some_and(|number| Version::parse(number).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_has_three_numbers_after_a_v() {
        for good in ["v3.6.8", "v1.33.2", "v1.37.0-alpha.1"] {
            assert!(Regression::is_release(good), "{good}");
        }
        for bad in ["", "v", "3.6.8", "v3.6", "vv3.6.8", "v3.6.08", "main"] {
            assert!(!Regression::is_release(bad), "{bad}");
        }
    }
}
