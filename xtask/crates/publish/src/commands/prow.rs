//! `cargo xtask report prow`: writes a run as a folder in Prow's layout.

use anyhow::bail;
use cli::{Failure, OrExit, Paths};
use model::Exit;
use sys::progress;

use super::records;
use crate::args::{JobOptions, ProwOptions};
use crate::output::write_below;
use crate::prow::{Job, Object};
use crate::record::Record;

pub(super) fn run(paths: &Paths, options: &ProwOptions) -> Result<Exit, Failure> {
    let objects = objects(paths, &options.run, &options.job).or_exit(Exit::Usage)?;
    let write = |object: &Object| write_below(&options.out, &object.name, &object.bytes);
    objects.iter().try_for_each(write).or_exit(Exit::Infrastructure)?;
    progress::say(&format!("{} files: {}", objects.len(), options.out.display()));
    Ok(Exit::Ok)
}

/// The objects of each run that the argument names, one build after the other.
pub(super) fn objects(paths: &Paths, run: &str, job: &JobOptions) -> anyhow::Result<Vec<Object>> {
    let records = records::read_all(paths, &[run.to_owned()])?;
    if records.len() > 1 && job.job.is_some() {
        bail!("`{run}` contains {} runs, and each is a build of its own job: leave out --job", records.len());
    }
    let mut objects = Vec::new();
    for record in &records {
        objects.extend(crate::prow::prow(record, &as_job(job, record))?);
    }
    Ok(objects)
}

fn as_job(options: &JobOptions, record: &Record) -> Job {
    let run = report::info(&record.events);
    let name = || run.map_or_else(|| "archproof".to_owned(), |run| format!("archproof-{}-{}", run.arch, run.provider));
    Job {
        name: options.job.clone().unwrap_or_else(name),
        repo: options.repo.clone(),
        commit: options.commit.clone(),
        pull: options.pull,
        bucket: options.bucket.clone(),
    }
}
