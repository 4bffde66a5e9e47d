//! Executions and seconds of all runs, kept in the cache so that a long campaign can consist of several runs.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sys::deadline::{OnInterrupt, Probe, until};
use sys::store::{self, Kind};

use super::engine::Outcome;

/// Another process holds the file only for milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Totals(BTreeMap<String, Total>);

/// The totals of one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Total {
    executions: u64,
    seconds: f64,
    runs: u64,
    findings: u64,
    /// The maximum of all runs.
    coverage: u64,
}

/// Adds a run of a target.
pub(super) fn add(cache: &Path, target: &str, outcome: &Outcome) -> anyhow::Result<()> {
    // Two threads of this process would see each other's unfinished file as one of another process.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let file = file(cache);
    let claim = until(
        "another process to write the totals of fuzzing",
        LIMIT,
        Duration::from_millis(20),
        OnInterrupt::Continue,
        || match store::claim(&file, Kind::File) {
            Ok(Some(claim)) => Probe::Ready(claim),
            Ok(None) => Probe::NotYet("it is still writing".into()),
            Err(error) => Probe::Hopeless(error),
        },
    )?;
    let mut totals = Totals::load(cache)?;
    totals.count(target, outcome);
    let text = serde_json::to_string_pretty(&totals)?;
    let written = claim.file().write_all(text.as_bytes());
    written.with_context(|| format!("failed to write {}: {}", file.display(), store::hint()))?;
    claim.publish()
}

fn file(cache: &Path) -> PathBuf {
    cache.join("totals.json")
}

impl Totals {
    pub(super) fn load(cache: &Path) -> anyhow::Result<Totals> {
        let file = file(cache);
        match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{} is damaged: remove it to restart the totals from zero", file.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Totals::default()),
            Err(error) => Err(error).with_context(|| format!("failed to read {}", file.display())),
        }
    }

    /// Only the selected targets.
    pub(super) fn only(mut self, targets: &[&str]) -> Totals {
        self.0.retain(|name, _| targets.contains(&name.as_str()));
        self
    }

    fn count(&mut self, target: &str, outcome: &Outcome) {
        let total = self.0.entry(target.to_owned()).or_default();
        total.executions = total.executions.saturating_add(outcome.executions);
        total.seconds += outcome.seconds;
        total.runs += 1;
        total.findings += u64::from(outcome.finding.is_some());
        total.coverage = total.coverage.max(outcome.coverage);
    }

    pub(super) fn table(&self) -> String {
        let width = self.0.keys().map(String::len).fold("target".len(), usize::max);
        let header = ["target", "executions", "seconds", "runs", "coverage", "findings"];
        let row = |[target, executions, seconds, runs, coverage, findings]: [&str; 6]| {
            format!("{target:width$} {executions:>14} {seconds:>9} {runs:>6} {coverage:>9} {findings:>9}\n")
        };
        let mut text = row(header);
        let mut sum = Total::default();
        for (name, total) in &self.0 {
            text.push_str(&row(total.words(name).each_ref().map(String::as_str)));
            sum.executions = sum.executions.saturating_add(total.executions);
            sum.seconds += total.seconds;
            sum.runs += total.runs;
            sum.findings += total.findings;
        }
        let mut words = sum.words("all");
        // Edges of different targets overlap.
        words[4] = "-".to_owned();
        text + &row(words.each_ref().map(String::as_str))
    }
}

impl Total {
    fn words(&self, name: &str) -> [String; 6] {
        let Total { executions, seconds, runs, findings, coverage } = self;
        let numbers = [executions, runs, coverage, findings].map(ToString::to_string);
        let [executions, runs, coverage, findings] = numbers;
        [name.to_owned(), executions, format!("{seconds:.0}"), runs, coverage, findings]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_across_processes() {
        let dir = std::env::temp_dir().join(format!("archproof-fuzz-totals-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        assert_eq!(Totals::load(&dir).unwrap(), Totals::default());
        let outcome = Outcome { executions: 1000, seconds: 2.5, coverage: 70, ..Outcome::default() };
        add(&dir, "a", &outcome).unwrap();
        add(&dir, "a", &Outcome { coverage: 60, ..outcome.clone() }).unwrap();
        add(&dir, "b", &outcome).unwrap();
        let totals = Totals::load(&dir).unwrap();
        assert_eq!(totals.0["a"], Total { executions: 2000, seconds: 5.0, runs: 2, findings: 0, coverage: 70 });
        let table = totals.table();
        let last: Vec<&str> = table.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last, ["all", "3000", "8", "3", "-", "0"]);
        assert_eq!(totals.only(&["b"]).0.len(), 1);
        fs::write(file(&dir), "{").unwrap();
        assert!(add(&dir, "a", &outcome).unwrap_err().to_string().contains("is damaged"));
        fs::remove_dir_all(dir).unwrap();
    }
}
