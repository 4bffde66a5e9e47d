//! Options for JUnit files: the flavour, and the source location of each check.

use std::path::Path;

use cli::Failure;
use cli::github::{Github, set};
use model::Exit;
use report::{Child, Flavour, JunitOptions, SourceLocations};

use crate::args::FlavourArg;

/// With the locations of the checks where the flavour has them.
pub fn junit_options(flavour: FlavourArg) -> JunitOptions {
    let flavour = flavour.into();
    let locations = if flavour == Flavour::Extended { source_locations() } else { SourceLocations::new() };
    JunitOptions { flavour, locations }
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

/// Writes annotations, the page of a run or of several, and the outputs `result`, `exit`, `run` and `junit`.
pub fn tell_result(github: &Github, children: &[Child], page: &str, folder: &Path, exit: Exit) -> Result<(), Failure> {
    github.tell(&crate::github::annotations(children, &source_locations()), page)?;
    let junit = folder.join("junit.xml");
    let values = [
        ("result", report::results::Verdict::of(exit).name),
        ("exit", exit.code().to_string()),
        ("run", folder.display().to_string()),
        ("junit", junit.display().to_string()),
    ];
    set(Some(github), &values)
}

/// File and line of each check's row in the sources that this program was built from.
pub(crate) fn source_locations() -> SourceLocations {
    checks::all().map(|check| (check.id.to_owned(), (check.place.file.to_owned(), check.place.line as usize))).collect()
}
