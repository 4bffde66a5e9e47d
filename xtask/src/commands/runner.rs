//! `cargo xtask runner`: from a bare machine of a rare architecture to a safe runner of CI.

mod machine;
mod request;
mod stop;
mod userdata;

use std::path::Path;

use proc::progress;

use crate::args::{RunnerCommand, RunnerOptions};

/// Returns the exit code.
pub(crate) fn run(targets: &Path, options: &RunnerOptions) -> u8 {
    let ended = match &options.command {
        RunnerCommand::Userdata(options) => userdata::run(targets, options),
        RunnerCommand::Request(options) => request::run(targets, options),
    };
    match ended {
        Ok(()) => 0,
        Err(stop) => {
            progress::say(&format!("error: {stop}"));
            stop.code()
        }
    }
}
