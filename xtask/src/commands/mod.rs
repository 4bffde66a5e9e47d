//! The commands, one file each. They put stages together; what a stage does is in its crate.

pub(crate) mod bench;
pub(crate) mod build;
pub(crate) mod checks;
pub(crate) mod ci;
pub(crate) mod rejudge;
pub(crate) mod targets;
pub(crate) mod up;

use std::io::Write;

use ::targets::Catalogue;
use model::Target;
use serde::Serialize;

use crate::failure::Failure;

/// Prints for scripts. A closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes());
    let _ = stdout.flush();
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?;
    print(&format!("{text}\n"));
    Ok(())
}

/// The architecture named on the command line, or this machine's.
pub(crate) fn target<'a>(catalogue: &'a Catalogue, name: Option<&str>) -> Result<&'a Target, Failure> {
    match name {
        Some(name) => Ok(catalogue.target(name)?),
        None => {
            let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
            Ok(catalogue.host_target(&machine)?)
        }
    }
}
