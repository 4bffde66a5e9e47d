//! The report files of one run folder: `junit.xml`, `summary.md`, `run.json`.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use model::{Event, Exit};

use crate::{Joint, junit, markdown, run_json, verdict};

/// Writes every report of these events into an existing folder and gives the run's verdict.
///
/// Each file is complete or absent: it is written under another name first. An older one is replaced.
pub fn write(dir: &Path, events: &[Event]) -> Result<Exit> {
    replace(dir, "junit.xml", &junit(events)?)?;
    replace(dir, "summary.md", markdown(events).as_bytes())?;
    replace(dir, "run.json", run_json(events).as_bytes())?;
    Ok(verdict::exit(events))
}

/// Writes the reports of several runs into their common folder and gives the worst verdict.
pub fn write_joint(dir: &Path, joint: &Joint) -> Result<Exit> {
    replace(dir, "junit.xml", &junit::joint_junit(joint)?)?;
    replace(dir, "summary.md", joint.markdown().as_bytes())?;
    replace(dir, "run.json", joint.run_json().as_bytes())?;
    Ok(joint.exit())
}

fn replace(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
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
    fn equal_events_give_equal_files_and_nothing_else_is_left() {
        let dir = std::env::temp_dir().join(format!("report-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let contents = || {
            let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(&dir)
                .unwrap()
                .map(|entry| entry.unwrap())
                .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
                .collect();
            files.sort();
            files
        };
        assert_eq!(write(&dir, &fixture::run()).unwrap(), Exit::Conformance);
        let first = contents();
        assert_eq!(
            first.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["junit.xml", "run.json", "summary.md"]
        );
        assert_eq!(write(&dir, &fixture::run()).unwrap(), Exit::Conformance);
        assert!(contents() == first, "the files of equal events differ");
        // An older report is replaced by that of other events.
        assert_eq!(write(&dir, &[]).unwrap(), Exit::NothingRan);
        assert!(contents().iter().zip(&first).all(|(new, old)| new != old));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = write(Path::new("/nonexistent/run"), &fixture::run()).unwrap_err();
        assert_eq!(error.to_string(), "cannot write the report /nonexistent/run/junit.xml");
    }
}
