//! The paths of the checkout's data, the reports and the cache.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::github::Github;
use crate::{Failure, Places};

#[derive(Clone, Debug)]
pub struct Paths {
    /// `targets/` of the checkout.
    pub targets: PathBuf,
    /// `reports/` of the checkout, or `--reports`.
    pub reports: PathBuf,
    /// `archproof` below the user's cache folder, or `--cache`.
    pub cache: PathBuf,
    /// Whether output to a terminal may have colours.
    pub colour: bool,
    /// `GOPROXY` from the environment.
    pub goproxy: Option<String>,
    /// The current step of GitHub Actions, if any.
    pub github: Option<Github>,
    /// The terminal's type.
    pub term: String,
}

impl Paths {
    pub fn new(places: &Places) -> Result<Paths, Failure> {
        let root = root();
        let set = |value: &Option<OsString>| value.clone().filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = match (&places.cache, set(&places.xdg_cache), set(&places.home)) {
            (Some(cache), _, _) => cache.clone(),
            (None, Some(xdg), _) => xdg.join("archproof"),
            (None, None, Some(home)) => home.join(".cache/archproof"),
            (None, None, None) => {
                return Err(Failure::usage(anyhow::anyhow!("no folder for the cache: HOME is not set; give --cache")));
            }
        };
        Ok(Paths {
            targets: targets(places),
            reports: places.reports.clone().unwrap_or_else(|| root.join("reports")),
            cache: std::path::absolute(cache).context("the current folder does not exist")?,
            colour: set(&places.no_color).is_none(),
            goproxy: places.goproxy.clone().filter(|proxy| !proxy.is_empty()),
            github: Github::of(&places.github),
            term: set(&places.term).map_or_else(|| "vt100".into(), |term| term.display().to_string()),
        })
    }

    /// The records of clusters that `up` started.
    pub fn clusters(&self) -> PathBuf {
        self.cache.join("clusters")
    }
}

/// `targets/` of the checkout, or `--targets`. Commands that use no cache need only this path.
pub fn targets(places: &Places) -> PathBuf {
    places.targets.clone().unwrap_or_else(|| root().join("targets"))
}

/// The checkout that this program was built from.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap_or(Path::new(".")).to_owned()
}
