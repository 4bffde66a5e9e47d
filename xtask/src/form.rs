//! Options for JUnit files: the flavour, and the source location of each check.

use std::path::Path;

use cli::Failure;
use cli::github::{Github, set};
use model::Exit;
use report::{Child, Flavour, Form, Places};

use crate::args::FlavourArg;

/// With the places of the checks where the flavour has them.
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

/// Writes annotations, the page of a run or of several, and the outputs `result`, `exit`, `run` and `junit`.
pub(crate) fn tell_result(
    github: &Github,
    children: &[Child],
    page: &str,
    folder: &Path,
    exit: Exit,
) -> Result<(), Failure> {
    github.tell(&report::github::annotations(children, &places()), page)?;
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
pub(crate) fn places() -> Places {
    checks::all().map(|check| (check.id.to_owned(), (check.place.file.to_owned(), check.place.line as usize))).collect()
}
