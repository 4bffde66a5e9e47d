//! `cargo xtask report`: creates files and decisions from recorded runs, one subcommand each. It runs no checks.

mod alerts;
mod badge;
mod diff;
mod gate;
mod gcs;
mod history;
mod merge;
mod prow;
mod records;
mod runs;
mod site;
mod support;
mod validate;
mod write;

use cli::{Failure, Paths, print};
use model::Exit;
use report::Results;

use crate::args::{ReportCommand, ReportOptions};

/// Returns the exit code: `alerts` has those of `runner`.
pub fn run(paths: &Paths, options: &ReportOptions) -> Result<u8, Failure> {
    let exit = match &options.command {
        ReportCommand::Alerts(options) => return alerts::run(options),
        ReportCommand::Badge(options) => badge::run(paths, options),
        ReportCommand::Diff(options) => diff::run(paths, options),
        ReportCommand::Gate(options) => gate::run(paths, options),
        ReportCommand::Gcs(options) => gcs::run(paths, options),
        ReportCommand::History(options) => history::run(paths, options),
        ReportCommand::Merge(options) => merge::run(paths, options),
        ReportCommand::Prow(options) => prow::run(paths, options),
        ReportCommand::Schema => {
            print(&Results::schema());
            Ok(Exit::Ok)
        }
        ReportCommand::Site(options) => site::run(paths, options),
        ReportCommand::Support(options) => support::run(paths, options),
        ReportCommand::Validate(options) => validate::run(options),
        ReportCommand::Write(options) => write::run(paths, options),
    }?;
    Ok(exit.code())
}
