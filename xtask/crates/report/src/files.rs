//! The report files of one run folder: `junit.xml`, `summary.md`, `results.json`, `run.json`.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use model::{Event, Exit};

use crate::{Child, Joint, JunitOptions, Results, junit, markdown, run_json, stages, verdict};

/// The folder of the files for each stage.
const STAGES: &str = "junit";

/// Writes every report of these events into an existing folder and returns the run's verdict.
///
/// Each file is complete or absent: it is written under a temporary name first. Replaces older reports.
pub fn write(dir: &Path, events: &[Event], options: &JunitOptions) -> Result<Exit> {
    replace(dir, "junit.xml", &junit(events, options)?)?;
    write_stages(&dir.join(STAGES), &stages(events, options)?)?;
    replace(dir, "summary.md", markdown(events).as_bytes())?;
    replace(dir, "results.json", Results::of(&[Child::of(events.to_vec())]).json().as_bytes())?;
    replace(dir, "run.json", run_json(events).as_bytes())?;
    Ok(verdict::exit(events))
}

/// Writes the reports of several runs into their common folder and returns the worst verdict.
pub fn write_joint(dir: &Path, joint: &Joint, options: &JunitOptions) -> Result<Exit> {
    replace(dir, "junit.xml", &junit::joint_junit(joint, options)?)?;
    replace(dir, "summary.md", joint.markdown().as_bytes())?;
    replace(dir, "results.json", Results::of(&joint.children).json().as_bytes())?;
    replace(dir, "run.json", joint.run_json().as_bytes())?;
    Ok(joint.exit())
}

/// Writes the files of the stages. Removes stage files of an older report that the new report does not have.
fn write_stages(dir: &Path, files: &[(String, Vec<u8>)]) -> Result<()> {
    let make = || format!("cannot make the folder {}", dir.display());
    std::fs::create_dir_all(dir).with_context(make)?;
    for (name, bytes) in files {
        replace(dir, name, bytes)?;
    }
    for entry in std::fs::read_dir(dir).with_context(make)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("junit_") && !files.iter().any(|(written, _)| *written == name) {
            std::fs::remove_file(entry.path()).with_context(|| format!("cannot remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Writes a file completely or not at all. Replaces an older file.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = dir.join(name);
    // No consumer's pattern (`junit*.xml`) matches this name.
    let partial = dir.join(format!(".{name}.partial"));
    let written = || -> std::io::Result<()> {
        let mut file = File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&partial, &path)
    };
    written().with_context(|| format!("cannot write the report {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn equal_events_give_equal_files_and_no_leftovers() {
        let dir = std::env::temp_dir().join(format!("report-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let contents = || {
            let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(&dir)
                .unwrap()
                .chain(std::fs::read_dir(dir.join(STAGES)).unwrap())
                .map(|entry| entry.unwrap())
                .filter(|entry| entry.path().is_file())
                .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
                .collect();
            files.sort();
            files
        };
        assert_eq!(write(&dir, &fixture::run(), &JunitOptions::default()).unwrap(), Exit::Conformance);
        let first = contents();
        let stages = ["boot", "build", "cc", "list", "run", "rv", "storage", "suite", "teardown", "watch"];
        let names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
        let stages = stages.map(|stage| format!("junit_mix64-{stage}.xml"));
        let wanted: Vec<&str> = ["junit.xml"]
            .into_iter()
            .chain(stages.iter().map(String::as_str))
            .chain(["results.json", "run.json", "summary.md"])
            .collect();
        assert_eq!(names, wanted);
        assert_eq!(write(&dir, &fixture::run(), &JunitOptions::default()).unwrap(), Exit::Conformance);
        assert!(contents() == first, "the files of equal events differ");
        // A report of other events replaces the older report.
        assert_eq!(write(&dir, &[], &JunitOptions::default()).unwrap(), Exit::NothingRan);
        assert!(contents().iter().all(|new| !first.contains(new)));
        assert_eq!(contents().len(), 5, "stage files of the older report are left");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn missing_folder_is_named_in_the_error() {
        let error = write(Path::new("/nonexistent/run"), &fixture::run(), &JunitOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "cannot write the report /nonexistent/run/junit.xml");
    }
}
