//! `cargo xtask report`: files made anew from recorded runs. A file for each subcommand.

mod gcs;
mod prow;
mod records;
mod site;
mod support;

use model::Exit;

use crate::args::{ReportCommand, ReportOptions};
use crate::failure::Failure;
use crate::paths::Paths;

pub(crate) fn run(paths: &Paths, options: &ReportOptions) -> Result<Exit, Failure> {
    match &options.command {
        ReportCommand::Gcs(options) => gcs::run(paths, options),
        ReportCommand::Prow(options) => prow::run(paths, options),
        ReportCommand::Site(options) => site::run(paths, options),
        ReportCommand::Support(options) => support::run(paths, options),
    }
}
