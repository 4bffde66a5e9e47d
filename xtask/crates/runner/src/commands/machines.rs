//! Helpers that the commands for machines share with those for runners.

use cli::print;
use sys::progress;

use super::stop::Stop;
use super::{Ended, show_planned};
use crate::Planned;
use crate::args::Output;

/// Converts the result to that of the other subcommands.
pub(super) fn ended(result: Result<(), Stop>) -> Result<u8, Ended> {
    match result {
        Ok(()) => Ok(0),
        Err(Stop::Other(failure)) => Err(Ended::Other(failure)),
        Err(Stop::Github(error)) => Err(Ended::Own(error)),
        Err(stop) => {
            progress::say(&format!("error: {stop}"));
            Ok(stop.code())
        }
    }
}

/// Prints the requests that a dry run would have sent.
pub(super) fn print_planned(output: Output, github: Vec<Planned>, cloud: Vec<cloud::Planned>) -> Result<(), Stop> {
    let all: Vec<Planned> = github.into_iter().chain(cloud.into_iter().map(planned)).collect();
    show_planned(output, &all).map_err(Stop::from)
}

/// Prints for scripts.
pub(super) fn show(text: &str) -> Result<(), Stop> {
    print(text);
    Ok(())
}

/// Converts a request to the form of requests to GitHub.
pub(super) fn planned(request: cloud::Planned) -> Planned {
    let cloud::Planned { method, url, headers, body, .. } = request;
    Planned { method, url, headers, body, sent: false }
}
