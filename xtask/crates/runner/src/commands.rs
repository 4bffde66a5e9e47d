//! `cargo xtask runner`: machines of rare architectures as CI runners. The rest of the crate makes the decisions; this
//! module has files and output.
//!
//! Its exit codes: 0 ok, 2 usage, 3 no access, 4 conflict or busy, 5 a remote error or limit, 6 refused by a rule.

mod audit;
mod clouds;
mod doctor;
mod gc;
mod gitlab;
mod jit;
mod labels;
mod list;
mod local;
mod machine;
mod private;
mod providers;
mod request;
mod scale;
mod stop;
mod table;
mod token;
mod up;
mod userdata;

use std::path::Path;
use std::time::Duration;

use cli::{Failure, Finding, Paths, Places, paths};
use cli::{print, print_json};
use model::{NativeJob, Secret};
use serde_json::{Value, json};
use sys::{interrupt, progress};
use targets::Catalogue;

use crate::args::{Access, Output, ReachOptions, RunnerCommand, RunnerOptions};
use crate::exposure::Exposure;
use crate::github::{Github, Runner};
use crate::policy::ArchNames;
use crate::setup::{self, Needs, Setting};
use crate::{Config, Credentials, Error, Planned, plain};

pub(crate) use stop::Stop;

/// Pause before a failed call is repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// The result of a subcommand.
pub(crate) struct Shown {
    pub(crate) code: u8,
    pub(crate) text: String,
    pub(crate) json: Value,
}

/// The findings of `cargo xtask doctor` for this machine, whose architecture is given; of all checks, or those of a job.
pub type Diagnose = fn(&Paths, &str, Catalogue, Option<NativeJob>) -> Result<Vec<Finding>, Failure>;

/// Returns the exit code. `runner doctor` calls `diagnose`.
pub fn run(places: &Places, options: &RunnerOptions, diagnose: Diagnose) -> Result<u8, Failure> {
    let data = &paths::targets(places);
    let home = places.home.as_ref().filter(|home| !home.is_empty()).map(Path::new);
    let ended = match &options.command {
        RunnerCommand::Providers(options) => providers::run(data, options),
        RunnerCommand::Token(options) => token::run(options),
        RunnerCommand::Jit(options) => jit::run(data, options),
        RunnerCommand::List(options) => list::run(options),
        RunnerCommand::Labels(options) => labels::run(options),
        RunnerCommand::Rm(options) => list::rm(options),
        RunnerCommand::Gc(options) => gc::run(data, home, options),
        RunnerCommand::Scale(options) => scale::run(data, home, options),
        RunnerCommand::Audit(options) => audit::run(data, options),
        RunnerCommand::Userdata(options) => userdata::run(data, options).map(|()| 0),
        RunnerCommand::Request(options) => request::run(data, options).map(|()| 0),
        RunnerCommand::Start(options) => up::run(places, home, options).map(|()| 0),
        RunnerCommand::Doctor(options) => doctor::run(places, options, diagnose).map(|()| 0),
        RunnerCommand::Gitlab(options) => gitlab::run(data, options),
    };
    self::ended(ended)
}

/// Prints the settings that the workflows need, with the status of each on GitHub. Returns the exit code.
pub fn check_setup(access: &Access, needs: &Needs) -> Result<u8, Failure> {
    with_repository(access, |github| {
        let facts = setup::ask(github)?;
        let settings = setup::check(&facts, needs);
        let json = json!({ "repository": facts.repository.full_name, "settings": value(&settings)? });
        Ok(Shown { code: setup::code(&settings), text: settings.iter().map(setting_line).collect(), json })
    })
}

/// Calls GitHub for a command of another crate and prints the result. Returns the exit code.
pub(crate) fn with_repository(
    access: &Access,
    work: impl FnOnce(&Github) -> Result<Shown, Stop>,
) -> Result<u8, Failure> {
    ended(with_github(access, work))
}

fn setting_line(setting: &Setting) -> String {
    let (status, name) = (setting.status.name(), setting.setting);
    let fix = if setting.fix.is_empty() { String::new() } else { format!("         -> {}\n", setting.fix) };
    format!("{status:<8} {name}: {}\n{fix}", setting.text)
}

/// The exit code. Reports an error that has an exit code of `runner`.
fn ended(ended: Result<u8, Stop>) -> Result<u8, Failure> {
    match ended {
        Ok(code) => Ok(code),
        Err(Stop::Other(failure)) => Err(failure),
        Err(stop) => {
            progress::say(&format!("error: {stop}"));
            Ok(if matches!(stop, Stop::Own(_)) && interrupt::requested() { 130 } else { stop.code() })
        }
    }
}

/// Calls GitHub and prints the result, or in a dry run the requests.
fn with_github(access: &Access, work: impl FnOnce(&Github) -> Result<Shown, Stop>) -> Result<u8, Stop> {
    let github = open(access)?;
    finish(access.output, work(&github), || github.planned())
}

fn open(access: &Access) -> Result<Github, Error> {
    let scope = access.scope()?;
    let config = config(&access.api_url, access.credentials(&scope)?, access.output, access.max_wait);
    Github::new(scope, config)
}

fn config(url: &str, credentials: Credentials, output: Output, max_wait: u64) -> Config {
    if let Credentials::Token(token) = &credentials {
        mask(token);
    }
    Config {
        url: url.to_owned(),
        credentials,
        dry_run: output.dry_run,
        patience: Duration::from_secs(max_wait),
        pause: PAUSE,
        on_secret: mask,
    }
}

fn finish(output: Output, result: Result<Shown, Stop>, planned: impl FnOnce() -> Vec<Planned>) -> Result<u8, Stop> {
    if output.dry_run && matches!(result, Ok(_) | Err(Stop::Own(Error::DryRun))) {
        return show_planned(output, &planned()).map(|()| 0);
    }
    let shown = result?;
    if output.json {
        print_json(&shown.json)?
    } else {
        print(&shown.text)
    }
    Ok(shown.code)
}

fn show_planned(output: Output, planned: &[Planned]) -> Result<(), Stop> {
    progress::say("dry run: nothing was changed");
    if output.json {
        return Ok(print_json(&json!({ "requests": planned }))?);
    }
    for request in planned {
        let sent = if request.sent { "  (sent, because it only reads)" } else { "" };
        let mut text = format!("{} {}{sent}\n", request.method, request.url);
        text.extend(request.headers.iter().map(|(name, value)| format!("  {name}: {value}\n")));
        text.extend(request.body.iter().map(|body| format!("  {body}\n")));
        print(&text);
    }
    Ok(())
}

/// Makes GitHub Actions replace the secret in the log of the current job.
fn mask(secret: &Secret) {
    for line in secret.expose().lines().filter(|line| !line.is_empty()) {
        cli::github::command(&cli::github::mask(line));
    }
}

/// The id of the runner group for a new runner. An error if pull requests from forks can reach the group.
fn admitted_group(github: &Github, options: &ReachOptions) -> Result<u64, Error> {
    let group = github.group(options.group.as_deref())?;
    match Exposure::ask(github, group) {
        Ok(exposure) => exposure.check(options.allow_any_workflow)?,
        // A dry run without credentials can check nothing, and registers nothing.
        Err(Error::DryRun) => {}
        Err(error) => return Err(error),
    }
    Ok(group)
}

/// The runner with this id or name. A name may look like a number, but ids come first.
fn find(github: &Github, given: &str) -> Result<Runner, Error> {
    if let Ok(id) = given.parse()
        && let Some(runner) = github.runner(id)?
    {
        return Ok(runner);
    }
    let mut named = github.runners(Some(given))?;
    Err(Error::Config(match (named.pop(), named.is_empty()) {
        (Some(runner), true) => return Ok(runner),
        (Some(_), false) => format!("several runners are called {}: give the id", plain(given)),
        (None, _) => format!("{} has no runner {}: see `runner list`", github.scope(), plain(given)),
    }))
}

fn names(catalogue: &Catalogue) -> ArchNames {
    ArchNames::new(&catalogue.targets, &catalogue.runners)
}

/// Prints for scripts.
fn show(text: &str) -> Result<(), Stop> {
    print(text);
    Ok(())
}

fn shown(text: String, json: Value) -> Shown {
    Shown { code: 0, text, json }
}

/// Converts plain data to JSON. A failure would be a bug in the harness.
fn value(data: &impl serde::Serialize) -> Result<Value, Stop> {
    serde_json::to_value(data).map_err(|error| Stop::Other(anyhow::Error::from(error).into()))
}
