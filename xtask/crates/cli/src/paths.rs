//! The paths of the target data, the reports and the cache.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::github::Github;
use crate::{Failure, Places};

#[derive(Clone, Debug)]
pub struct Paths {
    /// `targets/` of the [root].
    pub targets: PathBuf,
    /// `--reports`, or `reports/` of the checkout; without a checkout, of the current folder.
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
        // An archive may be in a folder that only root can write to.
        let reports = || sys::origin::checkout().unwrap_or(Path::new("")).join("reports");
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
            reports: places.reports.clone().unwrap_or_else(reports),
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

/// `targets/` of the root, or `--targets`. Commands that use no cache need only this path.
pub fn targets(places: &Places) -> PathBuf {
    places.targets.clone().unwrap_or_else(|| root(places).join("targets"))
}

/// The folder with `targets/`: ARCHPROOF_ROOT, or that of the program in a release archive, or the checkout.
pub fn root(places: &Places) -> PathBuf {
    let set = places.root.clone().filter(|root| !root.as_os_str().is_empty());
    set.unwrap_or_else(|| root_of(std::env::current_exe().ok().as_deref(), sys::origin::checkout()))
}

/// The folder of the program, if it has `targets/`. Links to the program are followed.
fn root_of(program: Option<&Path>, checkout: Option<&Path>) -> PathBuf {
    let folder = program.and_then(|program| program.canonicalize().ok()?.parent().map(Path::to_owned));
    let folder = folder.filter(|folder| checkout.is_none() || folder.join("targets").is_dir());
    folder.or_else(|| checkout.map(Path::to_owned)).unwrap_or_else(|| ".".into())
}

/// The checkout, for commands that compile a part of the project.
///
/// # Errors
/// As for [`sys::origin::sources`].
pub fn checkout() -> Result<&'static Path, Failure> {
    sys::origin::sources().map_err(Failure::usage)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use sys::Scratch;

    use super::*;

    #[test]
    fn archive_is_its_own_root_also_through_a_link() {
        let dir = Scratch::temporary("root").unwrap();
        let program = dir.write("archive/archproof", "");
        let archive = program.parent().unwrap().canonicalize().unwrap();
        let checkout = Path::new("/checkout");
        assert_eq!(root_of(Some(&program), Some(checkout)), checkout, "a folder without targets/");
        assert_eq!(root_of(Some(&program), None), archive, "the error then names the missing folder");
        dir.write("archive/targets/components.yaml", "");
        let link = dir.path().join("link");
        symlink(&program, &link).unwrap();
        for program in [&program, &link] {
            assert_eq!(root_of(Some(program), Some(checkout)), archive);
        }
        assert_eq!(root_of(None, Some(checkout)), checkout);
    }
}
