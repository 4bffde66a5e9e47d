//! `cargo xtask report prow`: writes a run as a folder in Prow's layout.

use std::collections::BTreeSet;

use anyhow::bail;
use cli::{Failure, OrExit, Paths};
use model::Exit;
use sys::progress;

use super::records;
use crate::args::{JobOptions, ProwOptions};
use crate::output::write_below;
use crate::prow::{Job, Object};
use crate::record::{Record, in_order};

pub(super) fn run(paths: &Paths, options: &ProwOptions) -> Result<Exit, Failure> {
    let objects = objects(paths, &options.run, &options.job).or_exit(Exit::Usage)?;
    let write = |object: &Object| write_below(&options.out, &object.name, &object.bytes);
    objects.iter().try_for_each(write).or_exit(Exit::Infrastructure)?;
    progress::say(&format!("{} files: {}", objects.len(), options.out.display()));
    Ok(Exit::Ok)
}

/// The objects of each run that the argument names, one build after the other, so that the pointers name the newest.
pub(super) fn objects(paths: &Paths, run: &str, job: &JobOptions) -> anyhow::Result<Vec<Object>> {
    let records = records::read_all(paths, &[run.to_owned()])?;
    if records.len() > 1 && job.job.is_some() {
        bail!("`{run}` contains {} runs, and each is a build of its own job: leave out --job", records.len());
    }
    let mut objects: Vec<Object> = Vec::new();
    let mut builds = BTreeSet::new();
    for record in in_order(&records) {
        let build = crate::prow::prow(record, &as_job(job, record))?;
        let first = build.first().map(|object| object.name.clone()).unwrap_or_default();
        if !builds.insert(first.clone()) {
            bail!("{first} belongs to two runs, which began in the same second: name each with its own --job");
        }
        objects.extend(build);
    }
    Ok(objects)
}

fn as_job(options: &JobOptions, record: &Record) -> Job {
    let run = report::info(&record.events);
    // Shards have other cases: as builds of one job, a green one would follow each red one.
    let shard = run.and_then(|run| run.shard.as_ref()).map(|shard| format!("-{}", shard.replace('/', "of")));
    let name = || run.map_or_else(|| "archproof".to_owned(), |run| format!("archproof-{}-{}", run.arch, run.provider));
    Job {
        name: options.job.clone().unwrap_or_else(|| name() + &shard.unwrap_or_default()),
        repo: options.repo.clone(),
        commit: options.commit.clone(),
        pull: options.pull,
        bucket: options.bucket.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn shard_is_part_of_the_default_name() {
        let options = JobOptions { job: None, repo: None, commit: None, pull: None, bucket: None };
        let name = |shard: Option<&str>| {
            let mut events = fixture::run();
            fixture::info_of(&mut events).shard = shard.map(str::to_owned);
            as_job(&options, &Record { events, ..Record::default() }).name
        };
        assert_eq!(name(None), "archproof-mix64-process");
        assert_eq!(name(Some("1/2")), "archproof-mix64-process-1of2");
    }
}
