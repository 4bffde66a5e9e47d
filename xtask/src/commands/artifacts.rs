//! The results of a workflow run, as `actions/download-artifact` unpacks them.
//!
//! Each artifact is in a folder of its name, except that one which is alone is unpacked without it.
//! <https://github.com/actions/download-artifact/blob/v8.0.1/src/download-artifact.ts>

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use model::{CiJob, Event};
use proc::run_dir;
use serde::{Deserialize, Serialize};
use workflows::{Artifact, Claim, Plan};

use crate::failure::Failure;

/// Artifacts of jobs begin with this.
const PREFIX: &str = "results-";
/// Below an artifact: common folder, run, and one to spare.
const DEPTH: usize = 3;

/// What a job leaves that only builds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BuildRecord {
    pub(crate) job: CiJob,
    pub(crate) arch: String,
    pub(crate) exit: u8,
}

impl BuildRecord {
    pub(crate) const FILE: &str = "build.json";
}

/// The plan of a workflow run, from its text.
pub(crate) fn plan(text: &str) -> Result<Plan, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::usage(anyhow!("--plan is not the output `plan` of `cargo xtask matrix`: {error}")))
}

/// The artifacts in a folder; none without the folder.
pub(crate) fn downloaded(results: &Path) -> anyhow::Result<Vec<Artifact>> {
    if !results.is_dir() {
        return Ok(Vec::new());
    }
    let folders = folders(results)?;
    let name = |folder: &Path| folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if folders.iter().any(|folder| name(folder).starts_with(PREFIX)) {
        let artifact = |folder: &PathBuf| Ok(Artifact { name: Some(name(folder)), claims: claims(folder)? });
        return folders.iter().map(artifact).collect();
    }
    Ok(vec![Artifact { name: None, claims: claims(results)? }])
}

/// The claims of all records below a folder.
fn claims(folder: &Path) -> anyhow::Result<Vec<Claim>> {
    let mut found = Vec::new();
    search(folder, DEPTH, &mut found)?;
    Ok(found)
}

fn search(folder: &Path, depth: usize, found: &mut Vec<Claim>) -> anyhow::Result<()> {
    let (events, _) = run_dir::recorded(folder);
    if events.is_file() {
        found.extend(of_run(folder, &events));
    }
    let build = folder.join(BuildRecord::FILE);
    if build.is_file() {
        found.push(of_build(folder, &build));
    }
    if depth > 0 && !events.is_file() {
        for below in folders(folder)? {
            search(&below, depth - 1, found)?;
        }
    }
    Ok(())
}

/// One claim for each beginning in the record. A record that cannot be read claims nothing, and is refused for that.
fn of_run(folder: &Path, events: &Path) -> Vec<Claim> {
    let Ok(events) = report::read(events) else { return vec![unknown(folder)] };
    let started = events.iter().filter_map(|event| match event {
        Event::RunStarted { run, .. } => Some(Claim {
            folder: folder.display().to_string(),
            job: run.job.clone(),
            arch: run.arch.clone(),
            provider: Some(run.provider.clone()),
            shard: run.shard.clone(),
        }),
        _ => None,
    });
    started.collect()
}

fn of_build(folder: &Path, file: &Path) -> Claim {
    let read = || serde_json::from_slice::<BuildRecord>(&std::fs::read(file).ok()?).ok();
    match read().filter(|record| record.exit == 0) {
        Some(BuildRecord { job, arch, .. }) => Claim { job: Some(job), arch, ..unknown(folder) },
        None => unknown(folder),
    }
}

fn unknown(folder: &Path) -> Claim {
    Claim { folder: folder.display().to_string(), job: None, arch: String::new(), provider: None, shard: None }
}

/// The folders in a folder, without links, by name.
fn folders(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.with_context(|| format!("failed to read {}", folder.display()))?;
    let mut folders: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let kind = entry.file_type().with_context(|| format!("failed to read {}", entry.path().display()))?;
        if kind.is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}
