//! `cargo xtask ci --arch all`, or a list: several architectures in parallel, with one verdict.
//!
//! They run as threads of this process, not as child processes, because the process shares nothing that belongs to one
//! run: each run has its run folder, event log, console, runtime and cluster. Shared state is either meant for all runs
//! (Ctrl-C, the thread that starts children, the TLS provider) or depends on the thread (the live line, see
//! `progress::Lane`). So there is one process to interrupt, and if it dies all components die with it. Builds run one
//! after the other, because each one uses all processors.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, anyhow};
use cli::{Failure, OrExit, print};
use model::{Exit, Target};
use provider::ClusterArg;
use provider::budget::{self, Host};
use publish::{compare, junit_options, tell_result};
use report::verdict::worse;
use report::{Child, Joint};
use sys::progress::Lane;
use sys::{Together, interrupt, progress};

use super::{Ended, RunContext, command, execution_mode, provider, run_arch};

pub(super) fn run(context: &RunContext<'_>, targets: &[&Target]) -> Result<Exit, Failure> {
    let begin = Instant::now();
    let started = progress::timestamp();
    let options = context.options;
    let label = if options.arch.iter().any(|name| name == "all") { "all" } else { "several" };
    let together =
        Together::create(&context.paths.reports, &context.paths.cache, label).or_exit(Exit::Infrastructure)?;
    let jobs = jobs(context, targets);
    progress::say(&format!("run {}: {}", together.id(), describe(context, targets)));
    let children = side_by_side(context, &together, targets, jobs);
    let joint = Joint {
        id: together.id().to_owned(),
        started,
        command: command(context, targets),
        seconds: begin.elapsed().as_secs_f64(),
        shard: options.shard.map(|shard| shard.to_string()),
        jobs,
        children,
    };
    let written = report::write_joint(together.public(), &joint, &junit_options(options.junit_flavour))
        .or_exit(Exit::Infrastructure);
    joint.summary(&together.public().display().to_string()).lines().for_each(progress::say);
    let compared = compared(context, together.public(), &joint.children);
    let interrupted = if interrupt::requested() { Exit::Interrupted } else { Exit::Ok };
    let code = |result: &Result<Exit, Failure>| result.as_ref().map_or_else(|failure| failure.exit, |exit| *exit);
    // Also of a difference between the runs, which no run itself reports.
    let exit = [interrupted, code(&written), code(&compared)].into_iter().fold(joint.exit(), worse);
    if let Some(github) = &context.paths.github {
        tell_result(github, &joint.children, &joint.markdown(), together.public(), exit)?;
    }
    if options.json {
        print(&joint.run_json());
    }
    written.and(compared).map(|_| exit).map_err(|failure| Failure { exit, ..failure })
}

/// Compares what must be equal in all runs: stored bytes, answers, and the outcome of each case.
fn compared(context: &RunContext<'_>, common: &Path, children: &[Child]) -> Result<Exit, Failure> {
    let began = children.iter().filter(|child| !child.events.is_empty());
    let folders: Vec<PathBuf> = began.map(|child| common.join(&child.arch)).collect();
    if folders.len() < 2 { Ok(Exit::Ok) } else { compare::together(common, &folders, &context.catalogue.differences) }
}

/// Which architectures run, how many at the same time, and the reason for the limit.
pub(super) fn describe(context: &RunContext<'_>, targets: &[&Target]) -> String {
    let host = Host::this();
    let memory = host.memory.map_or_else(String::new, |memory| format!(", {memory} MiB of memory available"));
    let why = match context.options.jobs {
        Some(_) => "--jobs".to_owned(),
        None => format!("{} processors{memory}; --jobs changes it", host.processors),
    };
    format!("{}; {} at the same time ({why})", names(targets).join(", "), jobs(context, targets))
}

fn jobs(context: &RunContext<'_>, targets: &[&Target]) -> usize {
    let planes = context.plan.profiles.iter().map(|profile| usize::from(profile.apiservers)).sum();
    let node = match context.options.provider.cluster {
        ClusterArg::Planes => 0,
        ClusterArg::Node => u64::from(context.catalogue.node.memory),
    };
    let need = |target: &&Target| budget::memory(target, execution_mode(context, target), planes) + node;
    let needs: Vec<u64> = targets.iter().map(need).collect();
    let allowed = || budget::side_by_side(Host::this(), &needs);
    context.options.jobs.map_or_else(allowed, usize::from).min(targets.len())
}

fn names(targets: &[&Target]) -> Vec<String> {
    targets.iter().map(|target| target.name.clone()).collect()
}

/// Runs all architectures in their order, `jobs` at a time. A failure of one does not affect the others.
fn side_by_side(context: &RunContext<'_>, together: &Together, targets: &[&Target], jobs: usize) -> Vec<Child> {
    let lanes: Vec<Lane> = targets.iter().map(|target| Lane::open(&target.name)).collect();
    lanes.iter().for_each(|lane| lane.live("waiting"));
    let indices: Vec<usize> = (0..targets.len()).collect();
    let ended = sys::side_by_side(&indices, jobs, |&index| {
        let _lane = lanes[index].enter();
        let child = child(context, together, targets[index]);
        lanes[index].live(&child.exit.to_string());
        Ok((index, child))
    });
    lanes.iter().for_each(Lane::close);
    let mut ended = ended.expect("a failure is part of the child");
    ended.sort_by_key(|(index, _)| *index);
    ended.into_iter().map(|(_, child)| child).collect()
}

/// Runs one architecture; every error and panic becomes its verdict.
fn child(context: &RunContext<'_>, together: &Together, target: &Target) -> Child {
    let run = || {
        interrupt::check().context("it was not started")?;
        let run = together.run(&target.name).or_exit(Exit::Infrastructure)?;
        run_arch(context, target, run)
    };
    let (exit, events, trouble) = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(Ended { exit, events, broken: None })) => (exit, events, None),
        Ok(Ok(Ended { exit, events, broken: Some(Failure { exit: code, error }) })) => {
            (worse(exit, code), events, Some(error))
        }
        Ok(Err(Failure { exit, error })) => (exit, Vec::new(), Some(error)),
        Err(_) => {
            let error = anyhow!("it panicked, which is a bug in the harness; see stderr");
            (Exit::Internal, Vec::new(), Some(error))
        }
    };
    let trouble = trouble.map(|error| format!("{error:#}"));
    trouble.iter().for_each(|trouble| progress::say(&format!("error: {trouble}")));
    let folder = (!events.is_empty()).then(|| target.name.clone());
    let provider = provider(context, target).name().into();
    Child { arch: target.name.clone(), provider, events, trouble, exit, folder, earlier: BTreeMap::new() }
}
