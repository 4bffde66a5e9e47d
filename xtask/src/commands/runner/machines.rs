//! The commands of `runner` that are about machines, and what they share.

use std::path::Path;

use ::runner::github::Github;
use ::runner::{Config, Credentials, Secret};
use proc::{interrupt, progress};
use serde_json::json;

use super::stop::Stop;
use super::{doctor, request, up, userdata};
use crate::args::{Access, Places, RunnerCommand};
use crate::commands::{print, print_json};
use crate::failure::Failure;
use crate::paths::{self, Paths};

/// Before a call that failed is repeated.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Returns the exit code; None: it is none of these commands.
pub(super) fn run(places: &Places, command: &RunnerCommand) -> Result<Option<u8>, Failure> {
    let data = paths::targets(places);
    let home = places.home.as_ref().filter(|home| !home.is_empty()).map(Path::new);
    let ended = match command {
        RunnerCommand::Userdata(options) => userdata::run(&data, options),
        RunnerCommand::Request(options) => request::run(&data, options),
        RunnerCommand::Start(options) => up::run(&Paths::new(places)?, home, options),
        RunnerCommand::Doctor(options) => doctor::run(&Paths::new(places)?, options),
        _ => return Ok(None),
    };
    match ended {
        Ok(()) => Ok(Some(0)),
        Err(Stop::Other(failure)) => Err(failure),
        Err(stop) => {
            progress::say(&format!("error: {stop}"));
            Ok(Some(if interrupt::requested() { 130 } else { stop.code() }))
        }
    }
}

pub(super) fn github_of(access: &Access) -> Result<Github, Stop> {
    let scope = access.scope()?;
    let credentials = access.credentials(&scope)?;
    if let Credentials::Token(token) = &credentials {
        mask(token);
    }
    let config = Config {
        url: access.api_url.clone(),
        credentials,
        dry_run: access.output.dry_run,
        patience: std::time::Duration::from_secs(access.max_wait),
        pause: PAUSE,
        on_secret: mask,
    };
    Ok(Github::new(scope, config)?)
}

/// What a dry run would have sent.
pub(super) fn print_planned(github: &[::runner::Planned], cloud: &[cloud::Planned], json: bool) -> Result<(), Stop> {
    if json {
        return Ok(print_json(&json!({ "github": github, "cloud": cloud }))?);
    }
    for request in github {
        let body = request.body.as_ref();
        print(&shown(&request.method, &request.url, request.headers.iter(), body));
    }
    for request in cloud {
        let body = request.body.as_ref();
        print(&format!("# {}\n", request.what));
        print(&shown(&request.method, &request.url, request.headers.iter(), body));
    }
    progress::say("nothing of it was sent");
    Ok(())
}

fn shown<'a>(
    method: &str,
    url: &str,
    headers: impl Iterator<Item = (&'a String, &'a String)>,
    body: Option<&serde_json::Value>,
) -> String {
    let mut text = format!("{method} {url}\n");
    text.extend(headers.map(|(name, value)| format!("{name}: {value}\n")));
    text.extend(body.and_then(|body| serde_json::to_string_pretty(body).ok()).map(|body| body + "\n"));
    text + "\n"
}

/// In Actions the runner of the job replaces it wherever it appears.
fn mask(secret: &Secret) {
    for line in secret.expose().lines().filter(|line| !line.is_empty()) {
        crate::github::command(&format!("::add-mask::{line}\n"));
    }
}
