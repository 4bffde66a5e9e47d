//! Reads a run folder for a comparison: the outcomes of its cases, and its masked stored values.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::Context;
use model::{Event, GoldenValue, Outcome};
use ring::digest::{SHA256, digest};
use serde::Serialize;
use sys::{foreign, run_dir};

use super::answers::ByProfile;

/// Largest masked value in bytes to read: the store refuses values over 1.5 MiB.
const VALUE_BYTES: u64 = 16 << 20;

/// The first lines of a golden file.
const HEADER: &str = "\
# Length and SHA-256 of stored values after masking, for the fixed objects of storage.arch-bytes-identical.
#
# Made by `cargo xtask compare RUN --golden` from a run on any machine: they must be the same on all. A change here is
# a change of what Kubernetes stores, or of the fixed objects.
";

/// Which run it is.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct RunRow {
    /// The run's name, or the architecture if each run has a different one.
    pub(super) label: String,
    pub(super) id: String,
    pub(super) arch: String,
    /// `native`, or the emulator.
    pub(super) execution: String,
    pub(super) versions: BTreeMap<String, String>,
    /// None if the suite did not begin.
    pub(super) seed: Option<u64>,
}

/// A recorded run.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) row: RunRow,
    /// By name; cases that did not end are errors.
    pub(super) cases: BTreeMap<String, (Outcome, f64)>,
    /// By `PROFILE/NAME.ENCODING`.
    pub(super) values: BTreeMap<String, Vec<u8>>,
    pub(super) answers: ByProfile,
}

pub(super) fn read(folder: &Path) -> anyhow::Result<Recorded> {
    let (events, _) = run_dir::recorded(folder);
    let mut run = Recorded::of(&report::read(&events)?);
    run.values = values(&run_dir::recorded_values(folder))?;
    run.answers = answers(&run_dir::recorded_answers(folder))?;
    Ok(run)
}

impl Recorded {
    fn of(events: &[Event]) -> Recorded {
        let mut run = Recorded::default();
        for event in events {
            match event {
                Event::RunStarted { run: info, .. } => {
                    run.row.id.clone_from(&info.id);
                    run.row.arch.clone_from(&info.arch);
                    run.row.label.clone_from(&info.id);
                }
                Event::Booted { execution, versions, .. } => {
                    run.row.execution.clone_from(execution);
                    run.row.versions.clone_from(versions);
                }
                Event::SuitePlanned { seed, .. } => run.row.seed = Some(*seed),
                Event::CaseStarted { case, .. } => {
                    run.cases.insert(case.clone(), (Outcome::errored("suite", "it did not end"), 0.0));
                }
                Event::CaseFinished { case, outcome, seconds, .. } => {
                    run.cases.insert(case.clone(), (outcome.clone(), *seconds));
                }
                _ => {}
            }
        }
        run
    }

    /// The rows of a golden file. A name has the same value in each encoding on every profile.
    pub(super) fn golden(&self) -> anyhow::Result<Vec<GoldenValue>> {
        let mut rows = Vec::new();
        for (path, value) in &self.values {
            let file = path.rsplit('/').next().unwrap_or(path);
            let (name, encoding) = file.rsplit_once('.').with_context(|| format!("{path} has no encoding"))?;
            let sha256 = digest(&SHA256, value).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            rows.push(GoldenValue { name: name.into(), encoding: encoding.into(), length: value.len(), sha256 });
        }
        rows.sort();
        Ok(rows)
    }
}

/// The content of `targets/golden/<minor>.yaml`.
pub(super) fn golden_file(rows: &[GoldenValue]) -> String {
    let row = |row: &GoldenValue| {
        let GoldenValue { name, encoding, length, sha256 } = row;
        format!("  - {{name: {name}, encoding: {encoding}, length: {length}, sha256: {sha256:?}}}\n")
    };
    format!("{HEADER}values:\n{}", rows.iter().map(row).collect::<String>())
}

/// Every file two levels below the folder; none if the folder does not exist.
fn values(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut values = BTreeMap::new();
    for profile in foreign::folders(folder)? {
        for file in foreign::list(&profile)?.0 {
            let name = file.strip_prefix(folder).context("a file below its folder")?.display().to_string();
            values.insert(name, foreign::read(&file, VALUE_BYTES)?);
        }
    }
    Ok(values)
}

/// The answers of all profiles; none if the run did not record any.
fn answers(folder: &Path) -> anyhow::Result<ByProfile> {
    let mut answers = ByProfile::new();
    if !folder.is_dir() {
        return Ok(answers);
    }
    for file in foreign::list(folder)?.0 {
        let Some(profile) = file.file_name().and_then(|name| name.to_str()?.strip_suffix(".jsonl")) else { continue };
        let mut records = Vec::new();
        for (number, line) in BufReader::new(foreign::open(&file)?).lines().enumerate() {
            let place = || format!("{}:{}", file.display(), number + 1);
            records.push(serde_json::from_str(&line.with_context(place)?).with_context(place)?);
        }
        answers.insert(profile.to_owned(), records);
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_file_round_trips() {
        let values = BTreeMap::from([("json/a.json".to_owned(), b"{}".to_vec()), ("x/a.protobuf".to_owned(), vec![1])]);
        let rows = Recorded { values, ..Recorded::default() }.golden().unwrap();
        let text = golden_file(&rows);
        assert!(text.contains("  - {name: a, encoding: json, length: 2, sha256: \"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\"}\n"), "{text}");
        assert_eq!(rows.iter().map(|row| row.encoding.as_str()).collect::<Vec<_>>(), ["json", "protobuf"]);
    }

    /// Edit the header of the file and `HEADER` together.
    #[test]
    fn committed_file_has_the_printed_format() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../targets");
        let catalogue = targets::Catalogue::load(&folder).unwrap();
        // The files of newer releases have only differences from it.
        let text = std::fs::read_to_string(folder.join("golden/1.34.yaml")).unwrap();
        assert_eq!(golden_file(catalogue.golden("1.34")), text);
    }
}
