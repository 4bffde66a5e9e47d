//! `runner scale --once`: starts machines for waiting jobs.

use std::path::Path;

use jiff::Timestamp;
use serde_json::json;
use sys::progress;
use targets::Catalogue;

use super::table::table;
use super::up::{self, Order};
use super::{Shown, Stop, admitted_group, shown, value, with_github};
use crate::args::ScaleOptions;
use crate::exposure::Exposure;
use crate::github::{DEFAULT_GROUP, Github};
use crate::scale::{self, Start, Startable};
use crate::{Error, Scope};

pub(super) fn run(data: &Path, home: Option<&Path>, options: &ScaleOptions) -> Result<u8, Stop> {
    let catalogue = Catalogue::load(data)?;
    let kinds = startable(&catalogue);
    with_github(&options.access, |github| {
        let group = admitted_group(github, &options.reach)?;
        let (jobs, runners) = (jobs_of(github, options)?.queued_jobs()?, github.runners(None)?);
        let plan = scale::plan(&jobs, &runners, &kinds, Timestamp::now());
        let mut failed = None;
        for wanted in plan.starts.iter().filter(|wanted| wanted.start > 0) {
            for _ in 0..wanted.start {
                if let Err(error) = start(&catalogue, github, home, (wanted, group), options) {
                    progress::say(&format!("failed to start {}: {error}", wanted.runner));
                    failed.get_or_insert(error.code());
                    break;
                }
            }
        }
        plan.skipped.iter().for_each(|job| {
            progress::say(&format!("started no machine for a bot or a commit of another repository: {job}"));
        });
        plan.others.iter().for_each(|job| progress::say(&format!("no known machine can run the job {job}")));
        let heading = ["RUNNER", "ARCH", "WAITING", "COMING", "BUSY", "MAX", "START"];
        let shown = shown(table(heading, plan.starts.iter().map(row)), value(&json!({ "plan": value(&plan)? }))?);
        Ok(Shown { code: failed.unwrap_or(0), ..shown })
    })
}

/// The repository whose jobs count: the repository of the runners, or one that belongs to their organisation.
fn jobs_of(github: &Github, options: &ScaleOptions) -> Result<Github, Error> {
    let Some(text) = &options.jobs_of else { return Ok(github.clone()) };
    let scope = Scope::repo(text)?;
    match (&scope, github.scope()) {
        (Scope::Repo { owner, .. }, Scope::Org(org)) if owner.eq_ignore_ascii_case(org) => {}
        _ => return Err(Error::Config(format!("{scope} is not a repository of {}", github.scope()))),
    }
    let jobs = github.of(scope);
    // The repository's own approval policy may be weaker than the organisation's; the group has been checked before.
    match Exposure::ask(&jobs, DEFAULT_GROUP) {
        Ok(exposure) => exposure.check(true)?,
        Err(Error::DryRun) => {}
        Err(error) => return Err(error),
    }
    Ok(jobs)
}

/// The project's machines that can be created in a cloud.
fn startable(catalogue: &Catalogue) -> Vec<Startable> {
    let kinds = catalogue.matrix.runners.iter().filter_map(|runner| {
        let spec = catalogue.runners.machine_spec(&runner.name).filter(|spec| spec.server.is_some())?;
        let (name, arch, labels) = (runner.name.clone(), runner.arch.clone(), runner.labels.clone());
        Some(Startable { runner: name, arch, labels, max: spec.max })
    });
    kinds.collect()
}

/// Starts one machine, and waits for it.
fn start(
    catalogue: &Catalogue,
    github: &Github,
    home: Option<&Path>,
    (wanted, group): (&Start, u64),
    options: &ScaleOptions,
) -> Result<(), Stop> {
    if options.access.output.dry_run {
        progress::say(&format!("would start {}", wanted.runner));
        return Ok(());
    }
    let mut order = Order::new(catalogue, catalogue.target(&wanted.arch)?, Some(&wanted.runner), &options.make)?;
    order.group = group;
    let started = up::make(github, home, &order)?;
    progress::say(&format!("{} is online", started.name));
    Ok(())
}

fn row(start: &Start) -> [String; 7] {
    let Start { runner, arch, waiting, coming, busy, max, start } = start;
    [
        runner.clone(),
        arch.clone(),
        waiting.to_string(),
        coming.to_string(),
        busy.to_string(),
        max.to_string(),
        start.to_string(),
    ]
}
