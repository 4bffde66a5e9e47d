//! What the commands about machines share with those about runners.

use ::runner::Planned;
use proc::progress;

use super::stop::Stop;
use super::{Ended, show_planned};
use crate::args::Output;
use crate::commands::print;

/// As the other subcommands end.
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

/// What a dry run would have sent.
pub(super) fn print_planned(output: Output, github: Vec<Planned>, cloud: Vec<cloud::Planned>) -> Result<(), Stop> {
    let all: Vec<Planned> = github.into_iter().chain(cloud.into_iter().map(planned)).collect();
    show_planned(output, &all).map_err(Stop::from)
}

/// For scripts.
pub(super) fn show(text: &str) -> Result<(), Stop> {
    print(text);
    Ok(())
}

/// In the form in which requests to GitHub are shown.
pub(super) fn planned(request: cloud::Planned) -> Planned {
    let cloud::Planned { method, url, headers, body, .. } = request;
    Planned { method, url, headers, body, sent: false }
}
