//! `runner gc`: deletes leftovers of earlier runs, GitHub runners and cloud servers.

use std::path::Path;

use cloud::compute::Compute;
use cloud::config::Access;
use cloud::{Fault, Kind, Microversion, Session};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use sys::interrupt::Interrupted;
use sys::progress;
use targets::Catalogue;

use super::{Shown, Stop, clouds, finish, open, shown, value};
use crate::args::GcOptions;
use crate::gc::{self, Deletion, SERVER_RUNNER};
use crate::github::Github;
use crate::{Error, Planned, plain};

/// What was deleted, and what failed.
#[derive(Default)]
struct Cleaned {
    runners: Vec<Deletion>,
    servers: Vec<OfCloud>,
    planned: Vec<Planned>,
    /// The exit code of the first deletion that failed.
    failed: Option<u8>,
}

#[derive(Serialize)]
struct OfCloud {
    cloud: String,
    #[serde(flatten)]
    server: Deletion,
}

/// A cloud with a session, and its servers that have our metadata.
struct Opened {
    name: String,
    session: Session,
    newest: Microversion,
    servers: Vec<gc::Server>,
}

pub(super) fn run(data: &Path, home: Option<&Path>, options: &GcOptions) -> Result<u8, Stop> {
    let catalogue = Catalogue::load(data)?;
    let github = open(&options.access)?;
    let mut cleaned = Cleaned::default();
    let result = clean(&catalogue, home, options, &github, &mut cleaned).map_err(of_cloud);
    let planned = std::mem::take(&mut cleaned.planned);
    let shown = result.and_then(|count| {
        let (runners, servers) = (cleaned.runners.len(), cleaned.servers.len());
        progress::say(&format!("{runners} of {count} runners deleted, and {servers} servers"));
        let json =
            json!({ "deleted": value(&cleaned.runners)?, "servers": value(&cleaned.servers)?, "runners": count });
        Ok(Shown { code: cleaned.failed.unwrap_or(0), ..shown(String::new(), json) })
    });
    finish(options.access.output, shown, || github.planned().into_iter().chain(planned).collect())
}

/// Returns the total number of runners.
fn clean(
    catalogue: &Catalogue,
    home: Option<&Path>,
    options: &GcOptions,
    github: &Github,
    cleaned: &mut Cleaned,
) -> Result<usize, Stop> {
    // List servers before runners: otherwise a server created in between would look like one without a runner.
    let opened = opened(catalogue, home, options, cleaned)?;
    let scope = github.scope().to_string();
    let mut runners = github.runners(None)?;
    // A list of several pages lacks a runner if another one is deleted while it is read. Its server may have a job.
    for cloud in &opened {
        for name in gc::missing(&cloud.servers, &runners, &scope) {
            runners.extend(github.runners(Some(&name))?);
        }
    }
    let now = Timestamp::now();
    let dry_run = options.access.output.dry_run;
    // Delete servers first: the decision about a server needs its runner.
    for cloud in &opened {
        let found = gc::servers(&cloud.servers, &runners, &scope, now, options.older);
        delete_servers(cloud, &found, dry_run, cleaned)?;
    }
    for deletion in gc::runners(&runners, now, options.older) {
        let Ok(id) = deletion.id.parse() else { continue };
        if cleaned.has_deleted("runner", &deletion, github.delete(id).map_err(Stop::from))? {
            cleaned.runners.push(deletion);
        }
    }
    Ok(runners.len())
}

impl Cleaned {
    /// Reports the result of a deletion. Only an interrupt is an error.
    fn has_deleted(&mut self, what: &str, deletion: &Deletion, result: Result<bool, Stop>) -> Result<bool, Stop> {
        let name = plain(&deletion.name);
        match result {
            // Continue, so that a dry run shows all requests.
            Err(Stop::Own(Error::DryRun)) => return Ok(false),
            Err(Stop::Cloud(Fault { kind: Kind::Interrupted, .. }) | Stop::Own(Error::Interrupted(_))) => {
                return Err(Error::Interrupted(Interrupted).into());
            }
            Err(stop) => {
                progress::say(&format!("failed to delete {what} {name}: {stop}"));
                self.failed.get_or_insert(stop.code());
                return Ok(false);
            }
            Ok(_) => progress::say(&format!("deleted {what} {name}: {}", deletion.why)),
        }
        Ok(true)
    }
}

fn delete_servers(cloud: &Opened, found: &[Deletion], dry_run: bool, cleaned: &mut Cleaned) -> Result<(), Stop> {
    let nova = Compute::open(&cloud.session, cloud.newest)?;
    for deletion in found {
        if dry_run {
            cleaned.planned.push(nova.planned_delete(&deletion.id)?);
            continue;
        }
        if cleaned.has_deleted("server", deletion, nova.delete(&deletion.id).map_err(Stop::from))? {
            cleaned.servers.push(OfCloud { cloud: cloud.name.clone(), server: deletion.clone() });
        }
    }
    Ok(())
}

/// A cloud that does not answer keeps no other from being cleaned.
fn opened(
    catalogue: &Catalogue,
    home: Option<&Path>,
    options: &GcOptions,
    cleaned: &mut Cleaned,
) -> Result<Vec<Opened>, Stop> {
    let all = clouds::reachable(catalogue, &options.cloud, home, options.provider.as_deref())?;
    if all.is_empty() {
        progress::say("no cloud is configured (--os-cloud, OS_AUTH_URL or clouds.yaml): servers are not checked");
    }
    let mut opened = Vec::new();
    for (name, newest, access) in all {
        match open_cloud(&name, newest, access) {
            Ok(cloud) => opened.push(cloud),
            Err(fault) if fault.kind == Kind::Interrupted || options.access.output.dry_run => return Err(fault.into()),
            Err(fault) => {
                progress::say(&format!("failed to list the servers of {name}: {fault}"));
                cleaned.failed.get_or_insert(Stop::from(fault).code());
            }
        }
    }
    Ok(opened)
}

fn open_cloud(name: &str, newest: Microversion, access: Access) -> Result<Opened, Fault> {
    let session = Session::open(access)?;
    let found = Compute::open(&session, newest)?.list(SERVER_RUNNER)?;
    let servers = found.into_iter().filter_map(known).collect();
    Ok(Opened { name: name.to_owned(), session, newest, servers })
}

/// The text says that the error is not from GitHub.
fn of_cloud(stop: Stop) -> Stop {
    match stop {
        Stop::Cloud(fault) if fault.kind == Kind::Interrupted => Error::Interrupted(Interrupted).into(),
        Stop::Cloud(fault) if fault.kind == Kind::Remote => {
            Error::Remote { call: "the cloud".into(), why: fault.text, may_be_done: fault.unsure }.into()
        }
        other => other,
    }
}

/// `None` if the creation time is unknown: such a server must not count as old.
fn known(server: cloud::compute::Server) -> Option<gc::Server> {
    let cloud::compute::Server { id, name, created, metadata, .. } = server;
    Some(gc::Server { id, name, created: created.parse().ok()?, metadata })
}
