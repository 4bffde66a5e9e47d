//! `cargo xtask report`: files and decisions that are made from recorded runs, a subcommand each. Nothing is run.

mod gate;
mod merge;
mod runs;
mod schema;
mod write;

use model::Exit;

use crate::args::{ReportCommand, ReportOptions};
use crate::failure::Failure;
use crate::paths::Paths;

pub(crate) fn run(paths: &Paths, options: &ReportOptions) -> Result<Exit, Failure> {
    match &options.command {
        ReportCommand::Gate(options) => gate::run(paths, options),
        ReportCommand::Merge(options) => merge::run(paths, options),
        ReportCommand::Schema => schema::run(),
        ReportCommand::Write(options) => write::run(paths, options),
    }
}
