//! `cargo xtask runner up`: a server of a cloud that is a runner for one job, or nothing at all.
//!
//! The runner is registered before the server is made, and both carry marks by which `gc` knows them from the moment on
//! in which they exist: the runner its name, the server its metadata. So nothing has to be written down here, and a kill
//! at any moment leaves nothing that cannot be found.

use std::path::Path;
use std::time::Duration;

use ::runner::github::{Github, JitRequest, Runner};
use ::runner::{Error, policy};
use cloud::compute::{Compute, NewServer};
use cloud::userdata::{Agent, Worker, render};
use cloud::{Session, lookup, plan};
use model::{Cloud, Secret, ServerShape, Target};
use proc::deadline::{OnInterrupt, Probe, until};
use proc::progress::{Phase, say};
use serde::Serialize;
use targets::Catalogue;

use super::machine::Chosen;
use super::stop::Stop;
use super::{clouds, local, machine};
use crate::args::RunnerUpOptions;
use crate::commands::{print, print_json};
use crate::failure::Failure;
use crate::paths::Paths;

/// Cloud and GitHub are asked so often.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// For a server that is deleted.
const GONE: Duration = Duration::from_secs(120);

/// What is to be made; everything in it was looked at.
struct Order<'a> {
    target: &'a Target,
    chosen: Chosen<'a>,
    shape: &'a ServerShape,
    cloud: &'a Cloud,
    agent: Agent,
    group: u64,
    scope: String,
}

/// The keys of `--json`.
#[derive(Serialize)]
struct Started {
    runner: u64,
    name: String,
    server: String,
    arch: String,
    labels: Vec<String>,
}

pub(crate) fn run(paths: &Paths, home: Option<&Path>, options: &RunnerUpOptions) -> Result<(), Stop> {
    if options.local {
        return local::run(paths, options);
    }
    let catalogue = Catalogue::load(&paths.targets).map_err(Failure::from)?;
    let github = super::machines::github_of(&options.access)?;
    let target = catalogue.target(options.arch.as_deref().unwrap_or_default())?;
    let chosen = machine::one(&catalogue, target, options.runner.as_deref(), options.worker.provider.as_deref())?;
    let names = policy::ArchNames::new(&catalogue.targets, &catalogue.runners);
    policy::labels(&names, &target.name, &chosen.runner.labels)?;
    let Some(base) = &chosen.machinery.server else {
        return Err(Stop::Usage(format!(
            "{} is no server of a cloud, so it cannot be made: on the machine itself, as a user without rights, run \
             `cargo xtask runner up --local`",
            chosen.runner.name
        )));
    };
    let shape = options.shape(base);
    let cloud = catalogue.runners.cloud(&shape.cloud);
    let cloud = cloud.ok_or_else(|| Stop::Usage(format!("targets/runners.yaml has no cloud `{}`", shape.cloud)))?;
    let agent = machine::agent(&catalogue, target, &options.worker)?;
    let group = github.group(options.group.as_deref())?;
    let order = Order { target, chosen, shape: &shape, cloud, agent, group, scope: github.scope().to_string() };
    if options.access.output.dry_run {
        return dry(&github, home, options, &order);
    }
    let started = make(&github, home, options, &order)?;
    if options.access.output.json { Ok(print_json(&started)?) } else { Ok(print(&format!("{}\n", started.name))) }
}

/// Looks at everything first: what is missing is told before something is made.
fn make(github: &Github, home: Option<&Path>, options: &RunnerUpOptions, order: &Order<'_>) -> Result<Started, Stop> {
    let phase = Phase::start(format!("log in to {}", order.cloud.name));
    let session = clouds::open(&options.cloud, home, order.cloud)?;
    let nova = Compute::open(&session, clouds::newest(order.cloud)?)?;
    let mut server = find(&session, &nova, options, order)?;
    drop(phase);
    let jit = register(github, order)?;
    let name = jit.runner.name.clone();
    let made = Made { github, session: &session, nova: &nova, runner: jit.runner, limit: options.wait };
    let result = (|| {
        server.name.clone_from(&name);
        server.metadata = clouds::marks(&format!("{:016x}", fastrand::u64(..)), &name, &order.scope);
        server.user_data = user_data(&name, Secret::new(jit.config.expose()), options, order)?;
        made.start(&server)
    })();
    match result {
        Ok(server) => Ok(Started {
            runner: made.runner.id,
            name,
            server,
            arch: order.target.name.clone(),
            labels: order.chosen.runner.labels.clone(),
        }),
        Err(stop) => match made.undo(&stop) {
            // It has come after all, and works.
            Undone::Busy(server) => Ok(Started {
                runner: made.runner.id,
                name,
                server,
                arch: order.target.name.clone(),
                labels: order.chosen.runner.labels.clone(),
            }),
            Undone::Done => Err(stop),
        },
    }
}

fn find(
    session: &Session,
    nova: &Compute<'_>,
    options: &RunnerUpOptions,
    order: &Order<'_>,
) -> Result<NewServer, Stop> {
    let image = lookup::image(session, &order.shape.image)?;
    let own = std::iter::once(&order.target.name).chain(&order.target.aliases);
    if let Some(arch) = image.architecture.filter(|arch| own.clone().all(|name| name != arch)) {
        let text = format!("the image `{}` is for {arch}, and not for {}", image.name, order.target.name);
        return Err(Stop::Usage(text));
    }
    let flavor = nova.flavor(&order.shape.flavor)?;
    let network = order.shape.network.as_deref().map(|name| lookup::network(session, name)).transpose()?;
    for group in &order.shape.security_groups {
        lookup::security_group(session, group)?;
    }
    Ok(NewServer {
        name: String::new(),
        image: image.id,
        flavor,
        network,
        key_name: options.key_name.clone(),
        security_groups: order.shape.security_groups.clone(),
        metadata: Default::default(),
        user_data: Secret::new(""),
    })
}

fn register(github: &Github, order: &Order<'_>) -> Result<::runner::github::Jit, Stop> {
    let ask = JitRequest {
        arch: order.target.name.clone(),
        name: None,
        group: order.group,
        labels: order.chosen.runner.labels.clone(),
    };
    let jit = github.create_jit(&ask)?;
    say(&format!("{} is registered", jit.runner));
    Ok(jit)
}

fn user_data(name: &str, jit: Secret, options: &RunnerUpOptions, order: &Order<'_>) -> Result<Secret, Stop> {
    let worker = Worker {
        name: name.to_owned(),
        agent: order.agent.clone(),
        jit,
        packages: options.worker.packages.clone(),
        minutes: options.worker.minutes,
        keep_default_user: options.worker.keep_default_user || options.key_name.is_some(),
    };
    Ok(render(&worker)?)
}

/// A registered runner, whose server is made or not yet.
struct Made<'a> {
    github: &'a Github,
    session: &'a Session,
    nova: &'a Compute<'a>,
    runner: Runner,
    limit: Duration,
}

enum Undone {
    Done,
    /// The runner has a job by now; this is its server.
    Busy(String),
}

impl Made<'_> {
    /// Makes the server and waits for the runner; returns the server's id.
    fn start(&self, server: &NewServer) -> Result<String, Stop> {
        let phase = Phase::start(format!("start the server {}", server.name));
        let id = self.nova.create(server)?;
        say(&format!("server {id} is being made"));
        let what = format!("the runner {} to come online", server.name);
        until(&what, self.limit, LOOK_EVERY, OnInterrupt::Stop, || self.look(&id, &phase)).map_err(Stop::of_wait)?;
        phase.done(&format!("{} is online", self.runner));
        Ok(id)
    }

    fn look(&self, id: &str, phase: &Phase) -> Probe<()> {
        let hopeless = |stop: Stop| Probe::Hopeless(anyhow::Error::new(stop));
        match self.github.runner(self.runner.id) {
            Ok(Some(runner)) if runner.is_online() || runner.busy => return Probe::Ready(()),
            Ok(Some(_)) => {}
            // An ephemeral runner that is gone has had its job, or somebody has deleted it.
            Ok(None) => return hopeless(Stop::Remote(format!("{} is no longer registered", self.runner))),
            Err(error) => return hopeless(error.into()),
        }
        match self.nova.get(id) {
            Ok(None) => hopeless(Stop::Remote(format!("the server {id} is gone: somebody has deleted it"))),
            Ok(Some(server)) => match server.hopeless() {
                Some(why) => hopeless(Stop::Remote(format!("the server {id} will not become a runner: {why}"))),
                None => {
                    phase.status(format!("server {}, runner offline", server.status));
                    Probe::NotYet(format!("the server is {}, the runner offline", server.status))
                }
            },
            Err(fault) => hopeless(fault.into()),
        }
    }

    /// Takes both back. What cannot be taken back is told, and `gc` finds it.
    fn undo(&self, why: &Stop) -> Undone {
        say(&format!("{why}; taking back what was made"));
        self.session.begin_teardown();
        let github = self.github.for_teardown();
        let mine = || -> Result<Vec<String>, Stop> {
            let all = self.nova.list(::runner::gc::SERVER_RUNNER)?.into_iter();
            let own = |server: &cloud::compute::Server| {
                server.metadata.get(::runner::gc::SERVER_RUNNER).is_some_and(|name| *name == self.runner.name)
            };
            Ok(all.filter(own).map(|server| server.id).collect())
        };
        match github.delete(self.runner.id) {
            Ok(_) => say(&format!("{} is deleted", self.runner)),
            Err(error) if error.code() == 4 => {
                if let Some(server) = mine().ok().and_then(|mut servers| servers.pop()) {
                    say(&format!("{} has come after all and has a job; it stays", self.runner));
                    return Undone::Busy(server);
                }
            }
            Err(error) => say(&format!("warning: {} stays, `cargo xtask runner gc` removes it: {error}", self.runner)),
        }
        let stays = |what: &str, stop: &dyn std::fmt::Display| {
            say(&format!("warning: {what} may stay, `cargo xtask runner gc` removes it: {stop}"));
        };
        match mine() {
            Ok(servers) => {
                for id in servers {
                    let gone = self.nova.delete(&id).and_then(|_| self.nova.wait_until_gone(&id, GONE));
                    match gone {
                        Ok(()) => say(&format!("server {id} is deleted")),
                        Err(fault) => stays(&format!("the server {id}"), &fault),
                    }
                }
            }
            Err(stop) => stays(&format!("a server {}", self.runner.name), &stop),
        }
        Undone::Done
    }
}

/// Prints what would be sent.
fn dry(github: &Github, home: Option<&Path>, options: &RunnerUpOptions, order: &Order<'_>) -> Result<(), Stop> {
    let access = clouds::find(&options.cloud, home, &order.cloud.name)?;
    let ask = JitRequest {
        arch: order.target.name.clone(),
        name: None,
        group: order.group,
        labels: order.chosen.runner.labels.clone(),
    };
    match github.create_jit(&ask) {
        Err(Error::DryRun) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return Err(Stop::Remote("a dry run has registered a runner".into())),
    }
    let name = format!("{}-{}-TIME-XXXX", ::runner::PREFIX, order.target.name);
    let user_data = user_data(&name, Secret::new("Kioq"), options, order)?;
    let server = NewServer {
        name: name.clone(),
        image: String::new(),
        flavor: String::new(),
        network: None,
        key_name: options.key_name.clone(),
        security_groups: order.shape.security_groups.clone(),
        metadata: clouds::marks("RUN", &name, &order.scope),
        user_data,
    };
    let wanted = plan::Wanted {
        server,
        image: order.shape.image.clone(),
        flavor: order.shape.flavor.clone(),
        network: order.shape.network.clone(),
    };
    let cloud = plan::creation(access.as_ref(), &wanted, clouds::newest(order.cloud)?)?;
    super::machines::print_planned(&github.planned(), &cloud, options.access.output.json)
}
