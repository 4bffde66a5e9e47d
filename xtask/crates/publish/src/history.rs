//! The permanent history of runs: one line of JSON per run, in one file per architecture and month,
//! `<arch>/<yyyy-mm>.ndjson`.
//!
//! Lines are only appended. A run that is already in the file is not added again, so the command can be repeated. Runs
//! of two machines that began in the same second may have the same name, but not the same start.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use report::results::{CaseResult, RunResult, Word};
use serde::{Deserialize, Serialize};

use crate::about;

/// One run as one line. Cases that are in none of the lists passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Name of the run folder.
    pub run: String,
    /// When it started, RFC 3339.
    pub ts: String,
    /// The commit of the harness, if known.
    pub sha: Option<String>,
    pub arch: String,
    pub provider: String,
    /// `native`, or the emulator; null if the run did not boot.
    pub mode: Option<String>,
    /// `kvm` or `tcg` for a system VM.
    pub accelerator: Option<String>,
    pub shard: Option<String>,
    /// As the servers reported them.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// `ok`, `conformance`, `infrastructure`, …
    pub verdict: String,
    /// Cases that have a result.
    pub tests: usize,
    pub passed: usize,
    pub failures: usize,
    pub errors: usize,
    pub skipped: usize,
    pub flaky: usize,
    /// None for a run that was killed.
    pub secs: Option<f64>,
    /// Conformance failures, including unexpected passes.
    #[serde(default)]
    pub failed: Vec<String>,
    #[serde(default)]
    pub errored: Vec<String>,
    #[serde(default)]
    pub not_run: Vec<String>,
    #[serde(default)]
    pub expected: Vec<String>,
}

impl Entry {
    pub(crate) fn of(run: &RunResult, sha: Option<&str>) -> Entry {
        let named = |wanted: fn(&CaseResult) -> bool| -> Vec<String> {
            run.cases.iter().filter(|case| wanted(case)).map(|case| case.name.clone()).collect()
        };
        let failed = named(|case| case.outcome.is_broken());
        let errored = named(|case| case.outcome.is_red() && !case.outcome.is_broken());
        let not_run = named(|case| case.outcome == Word::Skipped);
        Entry {
            run: run.id.clone(),
            ts: run.started.clone(),
            sha: sha.map(str::to_owned),
            arch: run.arch.clone(),
            provider: run.provider.clone(),
            mode: run.execution.clone(),
            accelerator: run.machine.as_ref().map(|machine| machine.accelerator.clone()),
            shard: run.shard.clone(),
            versions: run.versions.clone(),
            verdict: run.verdict.name.clone(),
            tests: run.counts.total(),
            passed: run.counts.passed,
            failures: failed.len(),
            errors: errored.len(),
            skipped: not_run.len(),
            flaky: run.cases.iter().filter(|case| case.is_flaky()).count(),
            secs: run.seconds,
            failed,
            errored,
            not_run,
            expected: named(|case| case.outcome == Word::ExpectedFailure),
        }
    }

    /// Whether a native machine ran the checks.
    pub(crate) fn is_native(&self) -> bool {
        self.mode.as_deref().is_some_and(about::is_native)
    }

    /// The job of the run, which is the name of its folder without the time, and the shard.
    pub(crate) fn job(&self) -> (&str, Option<&str>) {
        (self.run.split_once('-').map_or("", |(_, job)| job), self.shard.as_deref())
    }

    /// `<arch>/<yyyy-mm>.ndjson`. Errors: the names cannot be part of a path; a foreign record may contain such names.
    pub(crate) fn file(&self) -> Result<(String, String)> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.arch.is_empty() || !self.arch.chars().all(plain) {
            bail!("`{}` is not a valid architecture name", self.arch);
        }
        let started: jiff::Timestamp =
            self.ts.parse().with_context(|| format!("run {} has an invalid start time: `{}`", self.run, self.ts))?;
        Ok((self.arch.clone(), format!("{}.ndjson", started.strftime("%Y-%m"))))
    }
}

/// The entries of a file. Errors: a line is not an entry, or the last line is truncated.
pub(crate) fn entries(text: &str) -> Result<Vec<Entry>> {
    if !text.is_empty() && !text.ends_with('\n') {
        bail!("line {} is truncated: it does not end with a newline", text.lines().count());
    }
    let entry = |(index, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("line {} is not an entry", index + 1))
    };
    text.lines().enumerate().map(entry).collect()
}

/// The text of the file with the new entries that it did not contain, and the number of added entries.
pub(crate) fn appended(text: &str, new: &[Entry]) -> Result<(String, usize)> {
    let mut known: BTreeSet<(String, String)> = entries(text)?.into_iter().map(|entry| (entry.run, entry.ts)).collect();
    let mut whole = text.to_owned();
    let mut added = 0;
    for entry in new {
        if known.insert((entry.run.clone(), entry.ts.clone())) {
            whole += &serde_json::to_string(entry)?;
            whole.push('\n');
            added += 1;
        }
    }
    Ok((whole, added))
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::{Child, Results};

    use crate::fixture;

    fn entry() -> Entry {
        let results = Results::of(&[Child::of(fixture::run_in_machine())]);
        Entry::of(&results.runs[0], Some("abc"))
    }

    #[test]
    fn run_is_one_line_in_the_file_of_its_month() {
        let entry = entry();
        assert_eq!(entry.file().unwrap(), ("mix64".to_owned(), "2026-11.ndjson".to_owned()));
        assert_eq!((entry.tests, entry.passed, entry.failures, entry.errors, entry.skipped), (7, 1, 2, 2, 1));
        assert_eq!((entry.failed.join(" ").as_str(), entry.expected.len()), ("storage.c watch.ordered", 1));
        assert_eq!((entry.accelerator.as_deref(), entry.verdict.as_str()), (Some("tcg"), "conformance"));
        let (text, added) = appended("", std::slice::from_ref(&entry)).unwrap();
        assert_eq!((text.lines().count(), added, entries(&text).unwrap()), (1, 1, vec![entry]));
    }

    #[test]
    fn existing_entries_are_not_added_again() {
        let (text, _) = appended("", &[entry(), entry()]).unwrap();
        let other = Entry { run: "other".into(), ..entry() };
        // Of another machine, whose clock began the run in the same second.
        let twin = Entry { ts: "2026-11-21T10:00:00.750Z".into(), ..entry() };
        let (longer, added) = appended(&text, &[entry(), other, twin]).unwrap();
        assert!(longer.starts_with(&text) && added == 2 && longer.lines().count() == 3);
    }

    #[test]
    fn damaged_file_is_not_appended_to() {
        let (text, _) = appended("", &[entry()]).unwrap();
        for (bad, part) in
            [(text.trim_end(), "line 1 is truncated"), ("{}\n", "line 1 is not an entry"), ("x\n", "line 1")]
        {
            let error = format!("{:#}", appended(bad, &[entry()]).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn foreign_record_cannot_choose_another_folder() {
        for (arch, ts) in [("../x", "2026-11-21T10:00:00Z"), ("", "2026-11-21T10:00:00Z"), ("a", "2026-11/../x")] {
            assert!(Entry { arch: arch.into(), ts: ts.into(), ..entry() }.file().is_err(), "{arch} {ts}");
        }
    }
}
