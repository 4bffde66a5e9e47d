//! `cargo xtask runner up`: creates a cloud server that is a runner for one job, or leaves nothing behind.
//!
//! It registers the runner before it creates the server. Both have marks from the moment they exist, by which `gc`
//! finds them: the runner its name, the server its metadata. So this command stores no state, and a kill at any moment
//! leaves nothing that cannot be found.

mod made;

use std::collections::BTreeMap;
use std::path::Path;

use cli::{Paths, Places, paths, print_json};
use cloud::compute::{Compute, NewServer};
use cloud::userdata::{Agent, Preparation, Worker, render};
use cloud::{Session, lookup, plan};
use model::{Cloud, Runner, Secret, ServerShape, Target};
use serde::Serialize;
use sys::progress::{Phase, say};
use targets::Catalogue;

use super::{Stop, admitted_group, clouds, local, machine, names, open, show, show_planned};
use crate::args::{MakeOptions, RunnerUpOptions};
use crate::github::{Github, JitRequest};
use crate::{Error, policy};

use made::Made;

/// The runner and server to create.
pub(super) struct Order<'a> {
    target: &'a Target,
    runner: &'a Runner,
    shape: ServerShape,
    cloud: &'a Cloud,
    agent: Agent,
    preparation: Preparation,
    pub(super) group: u64,
    make: &'a MakeOptions,
}

/// The keys of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Started {
    runner: u64,
    pub(super) name: String,
    server: String,
    arch: String,
    labels: Vec<String>,
}

pub(super) fn run(places: &Places, home: Option<&Path>, options: &RunnerUpOptions) -> Result<(), Stop> {
    if options.local {
        return local::run(&Paths::new(places)?, options);
    }
    let catalogue = Catalogue::load(&paths::targets(places))?;
    let target = catalogue.target(options.arch.as_deref().unwrap_or_default())?;
    let mut order = Order::new(&catalogue, target, options.runner.as_deref(), &options.make)?;
    let github = open(&options.access)?;
    let output = options.access.output;
    order.group = admitted_group(&github, &options.reach)?;
    if output.dry_run {
        return dry(&github, home, options, &order);
    }
    let started = make(&github, home, &order)?;
    if output.json { Ok(print_json(&started)?) } else { show(&format!("{}\n", started.name)) }
}

impl<'a> Order<'a> {
    /// Uses the default runner group.
    pub(super) fn new(
        catalogue: &'a Catalogue,
        target: &'a Target,
        runner: Option<&str>,
        make: &'a MakeOptions,
    ) -> Result<Order<'a>, Stop> {
        let chosen = machine::one(catalogue, target, runner, make.worker.provider.as_deref())?;
        policy::labels(&names(catalogue), &target.name, &chosen.runner.labels)?;
        let base = chosen.spec.server.as_ref().ok_or_else(|| {
            Error::Config(format!(
                "{} is not a cloud server, so it cannot be created: on the machine itself, as an unprivileged user, \
                 run `cargo xtask runner up --local`",
                chosen.runner.name
            ))
        })?;
        let shape = make.shape(base);
        let cloud = catalogue.runners.cloud(&shape.cloud);
        let cloud =
            cloud.ok_or_else(|| Error::Config(format!("targets/runners.yaml has no cloud `{}`", shape.cloud)))?;
        let agent = machine::agent(catalogue, target, &make.worker)?;
        let preparation = machine::preparation(catalogue, target, &make.worker)?;
        let (runner, group) = (chosen.runner, crate::github::DEFAULT_GROUP);
        Ok(Order { target, runner, shape, cloud, agent, preparation, group, make })
    }

    fn asked(&self) -> JitRequest {
        let (arch, labels) = (self.target.name.clone(), self.runner.labels.clone());
        JitRequest { arch, name: None, group: self.group, labels }
    }

    fn user_data(&self, name: &str, jit: Secret) -> Result<Secret, Stop> {
        let options = &self.make.worker;
        let worker = Worker {
            name: name.to_owned(),
            agent: self.agent.clone(),
            jit,
            packages: options.packages.clone(),
            minutes: options.minutes,
            preparation: self.preparation.clone(),
            keep_default_user: options.keep_default_user || self.make.key_name.is_some(),
        };
        Ok(render(&worker)?)
    }

    /// The request for a server, without its name and content.
    fn server(&self, image: String, flavor: String, network: Option<String>) -> NewServer {
        NewServer {
            name: String::new(),
            image,
            flavor,
            network,
            key_name: self.make.key_name.clone(),
            security_groups: self.shape.security_groups.clone(),
            metadata: BTreeMap::new(),
            user_data: Secret::new(""),
        }
    }

    /// Looks up everything that the server refers to, so that missing resources are reported before anything is
    /// created.
    fn found(&self, session: &Session, nova: &Compute<'_>) -> Result<NewServer, Stop> {
        let image = lookup::image(session, &self.shape.image)?;
        let mut own = std::iter::once(&self.target.name).chain(&self.target.aliases);
        if let Some(arch) = image.architecture.filter(|arch| own.all(|name| name != arch)) {
            let text = format!("the image `{}` is for {arch}, not for {}", image.name, self.target.name);
            return Err(Error::Config(text).into());
        }
        let flavor = nova.flavor(&self.shape.flavor)?;
        let network = self.shape.network.as_deref().map(|name| lookup::network(session, name)).transpose()?;
        for group in &self.shape.security_groups {
            lookup::security_group(session, group)?;
        }
        Ok(self.server(image.id, flavor, network))
    }
}

/// Creates runner and server and waits for the runner; removes both on failure.
pub(super) fn make(github: &Github, home: Option<&Path>, order: &Order<'_>) -> Result<Started, Stop> {
    let phase = Phase::start(format!("check the resources in {}", order.cloud.name));
    let session = clouds::open(&order.make.cloud, home, order.cloud)?;
    let nova = Compute::open(&session, clouds::newest(order.cloud)?)?;
    let mut server = order.found(&session, &nova)?;
    drop(phase);
    let jit = github.create_jit(&order.asked())?;
    say(&format!("registered {}", jit.runner));
    let name = jit.runner.name.clone();
    let made = Made { github, session: &session, nova: &nova, runner: jit.runner, limit: order.make.wait };
    let start = || {
        server.name.clone_from(&name);
        let run = format!("{:016x}", fastrand::u64(..));
        server.metadata = clouds::marks(&run, &name, &github.scope().to_string());
        server.user_data = order.user_data(&name, jit.config)?;
        made.start(&server)
    };
    let server = match start() {
        Ok(server) => server,
        Err(stop) => made.undo(&stop).ok_or(stop)?,
    };
    let labels = order.runner.labels.clone();
    Ok(Started { runner: made.runner.id, name, server, arch: order.target.name.clone(), labels })
}

/// Prints the requests of a dry run.
fn dry(github: &Github, home: Option<&Path>, options: &RunnerUpOptions, order: &Order<'_>) -> Result<(), Stop> {
    let access = clouds::find(&options.make.cloud, home, &order.cloud.name)?;
    match github.create_jit(&order.asked()) {
        Err(Error::DryRun) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return Err(Stop::Remote("a dry run registered a runner".into())),
    }
    let name = format!("{}-{}-TIME-XXXX", crate::PREFIX, order.target.name);
    let ServerShape { image, flavor, network, .. } = order.shape.clone();
    let wanted = NewServer {
        metadata: clouds::marks("RUN", &name, &github.scope().to_string()),
        // Base64 of `***`.
        user_data: order.user_data(&name, Secret::new("Kioq"))?,
        name,
        ..order.server(image, flavor, network)
    };
    let cloud = plan::creation(access.as_ref(), &wanted, clouds::newest(order.cloud)?)?;
    show_planned(options.access.output, &[github.planned(), cloud].concat())
}
