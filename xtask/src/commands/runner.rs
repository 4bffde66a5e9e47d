//! `cargo xtask runner`: from a bare machine of a rare architecture to a safe runner of CI.

mod clouds;
mod doctor;
mod local;
mod machine;
mod machines;
mod request;
mod stop;
mod up;
mod userdata;

use crate::args::{Places, RunnerOptions};
use crate::failure::Failure;

/// Returns the exit code.
pub(crate) fn run(places: &Places, options: &RunnerOptions) -> Result<u8, Failure> {
    Ok(machines::run(places, &options.command)?.unwrap_or(1))
}
