//! Options for JUnit files: the flavour, and the source location of each check.

use std::path::Path;

use report::{Flavour, Form, Places};

use crate::args::FlavourArg;
use crate::paths;

/// Relative to the checkout, with forward slashes.
const CHECKS: &str = "xtask/crates/suite/src/checks";

/// Looks up the source locations only for the flavour that contains them.
pub(crate) fn form(flavour: FlavourArg) -> Form {
    let flavour = flavour.into();
    let places = if flavour == Flavour::Extended { places() } else { Places::new() };
    Form { flavour, places }
}

impl From<FlavourArg> for Flavour {
    fn from(flavour: FlavourArg) -> Flavour {
        match flavour {
            FlavourArg::Strict => Flavour::Strict,
            FlavourArg::Surefire => Flavour::Surefire,
            FlavourArg::Extended => Flavour::Extended,
        }
    }
}

/// File and line of each check's row in the checkout that this program was built from; empty if that checkout is gone.
pub(crate) fn places() -> Places {
    let mut places = Places::new();
    let folder = paths::root().join(CHECKS);
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).filter(|path| is_rust(path)).collect();
    files.sort();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        for (index, line) in text.lines().enumerate() {
            if let Some(id) = id(line) {
                places.entry(id.to_owned()).or_insert_with(|| (format!("{CHECKS}/{name}"), index + 1));
            }
        }
    }
    places
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

/// Extracts `watch.ordered` from `id: "watch.ordered",`.
fn id(line: &str) -> Option<&str> {
    line.trim().strip_prefix("id: \"")?.strip_suffix("\",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_source_location() {
        let places = places();
        let lost: Vec<&str> = suite::all().map(|check| check.id).filter(|id| !places.contains_key(*id)).collect();
        assert!(lost.is_empty(), "no source location was found for {lost:?}");
    }
}
