//! The result of the build stage: audited binaries and how each was obtained.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Target;

/// Where the binaries of one component set come from: `--kubernetes SPEC`, `--etcd SPEC`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind", content = "value")]
pub enum Source {
    /// `module[:VERSION]`, or `VERSION`: the pinned Go module, the pinned module of another minor (`v1.35`), or another
    /// released version (`v1.35.2`).
    Module(Option<String>),
    /// `checkout:PATH`: a source tree of the user.
    Checkout(PathBuf),
    /// `prebuilt:DIR`: binaries that exist already.
    Prebuilt(PathBuf),
}

/// The binaries of one architecture, by component name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Artifacts {
    /// GOARCH.
    pub arch: String,
    pub by_component: BTreeMap<String, Artifact>,
    /// The store and its tools, built for the host as well, for checks that move data between the two architectures.
    #[serde(skip)]
    pub native: Option<Box<Native>>,
}

/// Binaries for the host of the harness, whose architecture differs from the one under test.
#[derive(Clone, Debug, PartialEq)]
pub struct Native {
    pub target: Target,
    pub artifacts: Artifacts,
}

/// One binary that passed the audit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    pub component: String,
    pub path: PathBuf,
    /// Lower-case hexadecimal SHA-256 of the file.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
    pub source: Source,
    /// The version that the program reports, "v1.36.3"; "unknown" for a prebuilt file without build information.
    pub version: String,
    /// The Go release in the build information, "go1.26.8".
    pub go: String,
    pub step: BuildStep,
    /// Flags, by their current names, that this release calls `--experimental-NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experimental_flags: Vec<String>,
    /// Parts of comma-separated flag values that are left out, because this release exits when it reads an unknown one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_values: Vec<String>,
}

/// How the artifact was obtained in this run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuildStep {
    /// Found in the cache under this key.
    Hit { key: String },
    /// Built in this run; `why` names what was missing in the cache.
    Built { key: String, why: String, seconds: f64 },
    /// Used without building.
    Prebuilt,
    /// Built elsewhere under this key, and exported with its record.
    Exported { key: String },
}

impl Source {
    fn version(text: &str) -> Source {
        Source::Module(Some(format!("v{}", text.strip_prefix('v').unwrap_or(text))))
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Module(None) => write!(f, "module"),
            Source::Module(Some(version)) => write!(f, "module:{version}"),
            Source::Checkout(path) => write!(f, "checkout:{}", path.display()),
            Source::Prebuilt(path) => write!(f, "prebuilt:{}", path.display()),
        }
    }
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        match (kind, rest) {
            ("module", None) => Ok(Source::Module(None)),
            ("module", Some(version)) if !version.is_empty() => Ok(Source::version(version)),
            (version, None) if version.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()) => {
                Ok(Source::version(version))
            }
            ("checkout", Some(path)) if !path.is_empty() => Ok(Source::Checkout(path.into())),
            ("prebuilt", Some(path)) if !path.is_empty() => Ok(Source::Prebuilt(path.into())),
            _ => Err(format!("`{text}` is not one of VERSION, module, module:VERSION, checkout:PATH, prebuilt:DIR")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_sources_as_they_are_displayed() {
        for (text, written) in [
            ("module", "module"),
            ("1.35", "module:v1.35"),
            ("v1.35", "module:v1.35"),
            ("1.35.4", "module:v1.35.4"),
            ("module:1.35", "module:v1.35"),
            ("module:v1.35.4", "module:v1.35.4"),
            ("checkout:../k", "checkout:../k"),
            ("prebuilt:/opt", "prebuilt:/opt"),
        ] {
            let source: Source = text.parse().unwrap();
            assert_eq!(source.to_string(), written);
            assert_eq!(written.parse(), Ok(source), "{written}");
        }
        for text in ["", "v", "module:", "checkout", "x1.35", "tar:x"] {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
    }
}
