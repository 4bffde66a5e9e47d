//! `cargo xtask ci --like-ci ID`: runs one job of the matrix as CI does, on any machine. The workflow uses it too, so
//! there is only one way to run a job.

use anyhow::{Context, anyhow};
use clap::Parser;
use cli::{Failure, OrExit, Paths, github, host_target};
use model::{CiJob, Exit, Mode, Target};
use provider::ProviderOptions;
use sys::progress;
use targets::Catalogue;
use workflows::artifacts::BuildRecord;
use workflows::{Job, WorkflowRun};

use crate::args::{Args, BuildOptions, CiOptions, Command};
use crate::commands::build;

pub(super) fn run(paths: &Paths, catalogue: &Catalogue, options: &CiOptions, id: &str) -> Result<Exit, Failure> {
    let jobs = Job::all(&catalogue.targets);
    let Some(job) = jobs.iter().find(|job| job.id() == id) else {
        let ids: Vec<String> = jobs.iter().map(Job::id).collect();
        return Err(Failure::usage(anyhow!("unknown job `{id}`; valid: {}", ids.join(", "))));
    };
    let host = host_target(catalogue).ok();
    if let Some(why) = cannot(job, host) {
        let instead = jobs.iter().filter(|other| other.arch == job.arch && cannot(other, host).is_none());
        let instead: Vec<String> = instead.map(Job::id).collect();
        return Err(Failure::usage(anyhow!("{id} {why}; jobs that run here: {}", instead.join(", "))));
    }
    if job.from_source && options.sources.exported.is_some() {
        let prebuilt = Job { from_source: false, ..job.clone() }.id();
        return Err(Failure::usage(anyhow!("{id} builds the components itself; give --components to {prebuilt}")));
    }
    let words = job.words(&catalogue.matrix.quick);
    progress::say(&format!("{id}: cargo xtask {}", words.join(" ")));
    let parsed = Args::try_parse_from(["cargo xtask".to_owned()].into_iter().chain(words));
    match parsed.context("the job's command is not a valid xtask command")?.command {
        Command::Ci(job) => super::run(paths, &merged(job, options, id)),
        Command::Build(job) => built(paths, &job, options, id),
        _ => Err(anyhow!("a job is `ci` or `build`").into()),
    }
}

/// Why this machine cannot run the job in the mode that its name states.
fn cannot(job: &Job, host: Option<&Target>) -> Option<String> {
    let host = host.map_or("of an unknown architecture", |host| host.name.as_str());
    match job.mode {
        Mode::Native if host != job.arch => {
            Some(format!("needs a machine of the architecture {}; this machine is {host}", job.arch))
        }
        Mode::User if host == job.arch => Some(format!("would be native: this machine is {host}")),
        _ => None,
    }
}

/// The options of the job, combined with options that do not change what is tested.
fn merged(job: CiOptions, options: &CiOptions, id: &str) -> CiOptions {
    CiOptions {
        arch: job.arch,
        provider: ProviderOptions { provider: job.provider.provider, ..options.provider.clone() },
        selection: job.selection,
        shard: job.shard,
        like_ci: None,
        job: Some(ci_job(options, id)),
        ..options.clone()
    }
}

fn ci_job(options: &CiOptions, id: &str) -> CiJob {
    let WorkflowRun { attempt, run_id: workflow_run } = options.workflow_run.clone();
    CiJob { id: id.to_owned(), attempt, workflow_run }
}

/// Writes a record, because the gate counts jobs by their records.
fn built(paths: &Paths, job: &BuildOptions, options: &CiOptions, id: &str) -> Result<Exit, Failure> {
    let job = BuildOptions { sources: options.sources.clone(), dry_run: options.dry_run, ..job.clone() };
    if job.dry_run {
        return build::run(paths, &job);
    }
    let folder = paths.reports.join(id);
    // If this build fails, the record of an earlier one would count for it.
    if let Err(error) = std::fs::remove_file(folder.join(BuildRecord::FILE))
        && error.kind() != std::io::ErrorKind::NotFound
    {
        let failed = format!("failed to remove the earlier record in {}", folder.display());
        return Err(anyhow::Error::from(error).context(failed)).or_exit(Exit::Infrastructure);
    }
    let exit = build::run(paths, &job)?;
    let record = BuildRecord { job: ci_job(options, id), arch: job.arch.join(","), exit: exit.code() };
    let text = serde_json::to_string(&record).map_err(anyhow::Error::from)?;
    let created = std::fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()));
    let written = created.and_then(|()| report::replace(&folder, BuildRecord::FILE, text.as_bytes()));
    written.or_exit(Exit::Infrastructure)?;
    if paths.github.is_some() {
        github::set(paths.github.as_ref(), &[("exit", exit.code().to_string())])?;
    }
    Ok(exit)
}
