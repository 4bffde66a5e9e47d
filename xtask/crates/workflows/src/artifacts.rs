//! Reads the results of a workflow run, as `actions/download-artifact` unpacks them.
//!
//! Each artifact is in a folder of its name. But a single artifact is unpacked without that folder.
//! <https://github.com/actions/download-artifact/blob/v8.0.1/src/download-artifact.ts>

use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use cli::Failure;
use model::{CiJob, Event};
use serde::{Deserialize, Serialize};
use sys::run_dir;

use crate::plan::PREFIX;
use crate::{Artifact, Claim, Plan};

/// Folder levels below an artifact: common folder, run, and one in reserve.
const DEPTH: usize = 3;

/// The record of a job that only builds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BuildRecord {
    pub job: CiJob,
    pub arch: String,
    pub exit: u8,
}

impl BuildRecord {
    pub const FILE: &str = "build.json";
}

/// Parses the plan of a workflow run.
pub fn plan(text: &str) -> Result<Plan, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::usage(anyhow!("--plan is not the output `plan` of `cargo xtask matrix`: {error}")))
}

/// The artifacts in a folder; empty if the folder does not exist.
pub fn downloaded(results: &Path) -> anyhow::Result<Vec<Artifact>> {
    if !results.is_dir() {
        return Ok(Vec::new());
    }
    let folders = folders(results)?;
    let name = |folder: &Path| folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if folders.iter().any(|folder| name(folder).starts_with(PREFIX)) {
        let artifact = |folder: &PathBuf| Ok(Artifact { name: Some(name(folder)), claims: claims(folder, DEPTH)? });
        return folders.iter().map(artifact).collect();
    }
    Ok(vec![Artifact { name: None, claims: claims(results, DEPTH)? }])
}

/// The claims of all records below a folder, in so many levels of folders.
fn claims(folder: &Path, depth: usize) -> anyhow::Result<Vec<Claim>> {
    let (events, _) = run_dir::recorded(folder);
    let mut found = if events.is_file() { of_run(folder, &events) } else { Vec::new() };
    let build = folder.join(BuildRecord::FILE);
    if build.is_file() {
        found.push(of_build(folder, &build));
    }
    if depth > 0 && !events.is_file() {
        for below in folders(folder)? {
            found.extend(claims(&below, depth - 1)?);
        }
    }
    Ok(found)
}

/// One claim for each `RunStarted` event of the record. An unreadable record claims no job, and so it is refused.
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

/// The folders in a folder, without symbolic links, sorted by name.
fn folders(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for entry in listed(folder)? {
        let kind = entry.file_type().with_context(|| format!("failed to read {}", entry.path().display()))?;
        if kind.is_dir() {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}

/// The entries of a folder, sorted by name.
pub(crate) fn listed(folder: &Path) -> anyhow::Result<Vec<DirEntry>> {
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut entries = entries.with_context(|| format!("failed to read {}", folder.display()))?;
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED: &str = concat!(
        r#"{"event":"run-started","at":"t","run":{"id":"r","started":"t","harness":"0","arch":"a","provider":"p","host":"h","#,
        r#""sources":{},"seed":1,"job":{"id":"a-native","attempt":1},"command":"c"}}"#,
    );
    const BUILD: &str = r#"{"job":{"id":"a-build","attempt":1},"arch":"a","exit":0}"#;

    /// The ids of the jobs that the records in these files of one artifact claim.
    fn claimed(files: &[(&str, &str)]) -> Vec<Option<String>> {
        let folder = std::env::temp_dir().join(format!("archproof-artifacts-{}", std::process::id()));
        for (name, text) in files {
            let path = folder.join("results-a-native-1").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let artifacts = downloaded(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(artifacts.len(), 1);
        artifacts[0].claims.iter().map(|claim| claim.job.as_ref().map(|job| job.id.clone())).collect()
    }

    #[test]
    fn every_record_of_an_artifact_is_found_and_unreadable_records_claim_no_job() {
        let (run, build) = (Some("a-native".to_owned()), Some("a-build".to_owned()));
        let twice = format!("{STARTED}\n{STARTED}\n");
        let failed = BUILD.replace("\"exit\":0", "\"exit\":101");
        for (what, files, expected) in [
            ("one run", vec![("r/events.jsonl", STARTED)], vec![run.clone()]),
            ("one run without a folder", vec![("events.jsonl", STARTED)], vec![run.clone()]),
            ("no record", vec![("r/junit.xml", "")], vec![]),
            ("an empty record", vec![("r/events.jsonl", "")], vec![]),
            ("two runs", vec![("r/events.jsonl", STARTED), ("s/events.jsonl", STARTED)], vec![run.clone(); 2]),
            ("two runs in a record", vec![("r/events.jsonl", &twice)], vec![run.clone(); 2]),
            ("a run and a build", vec![("r/events.jsonl", STARTED), ("r/build.json", BUILD)], vec![run, build.clone()]),
            ("no list of events", vec![("r/events.jsonl", "x\n")], vec![None]),
            ("a build", vec![("a-build/build.json", BUILD)], vec![build]),
            ("a failed build", vec![("a-build/build.json", &failed)], vec![None]),
        ] {
            assert_eq!(claimed(&files), expected, "{what}");
        }
    }
}
