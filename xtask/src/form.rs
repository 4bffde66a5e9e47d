//! Options for JUnit files: the flavour, and the source location of each check.

use report::{Flavour, Form, Places};

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

/// File and line of each check's row in the sources that this program was built from.
pub(crate) fn places() -> Places {
    checks::all().map(|check| (check.id.to_owned(), (check.place.file.to_owned(), check.place.line as usize))).collect()
}
