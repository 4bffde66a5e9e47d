//! The results of `selftest --regressions`: a table for people, a record as JSON, a JUnit file.

use std::fs;
use std::path::Path;

use anyhow::Context;
use model::{Exit, Outcome, Regression};
use report::{SingleCase, single_suite};
use serde::Serialize;

use super::verdict::{self, Shown, Verdict};

/// `regressions.json`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Record<'a> {
    pub(super) started: String,
    /// GOARCH.
    pub(super) arch: String,
    /// The seed of the first run of each entry; the others have the next ones.
    pub(super) seed: u64,
    pub(super) seconds: f64,
    /// The exit code.
    pub(super) exit: u8,
    pub(super) entries: Vec<Row<'a>>,
}

/// The runs of an entry, and the verdict.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row<'a> {
    pub(super) entry: &'a Regression,
    pub(super) verdict: Verdict,
    /// Runs on the release with the defect.
    pub(super) runs: Vec<Run>,
    /// The run on the release without it.
    pub(super) control: Option<Run>,
}

/// One run of the check.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) version: String,
    pub(super) seed: u64,
    pub(super) shown: Shown,
    /// The message of the check, or the error.
    pub(super) text: String,
    pub(super) seconds: f64,
    /// Its folder, relative to that of the command.
    pub(super) folder: String,
    /// The command that repeats it.
    pub(super) command: String,
}

impl<'a> Row<'a> {
    pub(super) fn new(entry: &'a Regression, runs: Vec<Run>, control: Option<Run>) -> Row<'a> {
        let shown: Vec<Shown> = runs.iter().map(|run| run.shown).collect();
        let verdict = verdict::verdict(&shown, control.as_ref().map(|run| run.shown));
        Row { entry, verdict, runs, control }
    }

    /// The verdict in words.
    pub(super) fn result(&self) -> String {
        let runs = tries(self.runs.len());
        match (self.verdict, &self.entry.tried) {
            (Verdict::Found, None) => format!("found after {runs}"),
            (Verdict::Found, Some(_)) => format!("found after {runs}; remove its `tried`"),
            (Verdict::NotFound, None) => format!("not found in {runs}"),
            (Verdict::NotFound, Some(tried)) => {
                format!("not found in {runs}, nor in {} before ({})", tried.times, tried.machine)
            }
            (Verdict::ControlFailed, _) => "control failed".into(),
            (Verdict::Errored, _) => "errored".into(),
            (Verdict::NotRun, _) => "not run".into(),
        }
    }

    /// The run that explains the verdict.
    fn decisive(&self) -> Option<&Run> {
        let control = self.control.as_ref().filter(|run| run.shown != Shown::Passed);
        control.or_else(|| self.runs.iter().rev().find(|run| !run.text.is_empty()))
    }

    /// The reason for the verdict, in one line; empty for a pass.
    pub(super) fn reason(&self) -> String {
        let line = |run: &Run| format!("{}: {}", run.version, first_line(&run.text));
        self.decisive().filter(|run| !run.text.is_empty()).map(line).unwrap_or_default()
    }

    fn outcome(&self) -> Outcome {
        let said = || match self.reason() {
            reason if reason.is_empty() => self.result(),
            reason => format!("{}; {reason}", self.result()),
        };
        match self.verdict {
            Verdict::Found => Outcome::Passed,
            Verdict::NotFound if self.entry.tried.is_some() => {
                Outcome::ExpectedFailure { message: self.result(), issue: self.entry.source.clone() }
            }
            Verdict::NotFound | Verdict::ControlFailed => Outcome::failed(said()),
            Verdict::Errored | Verdict::NotRun => Outcome::errored("regressions", said()),
        }
    }
}

/// The exit code for these rows.
pub(super) fn exit(rows: &[Row<'_>]) -> Exit {
    let verdicts: Vec<(Verdict, bool)> = rows.iter().map(|row| (row.verdict, row.entry.tried.is_some())).collect();
    verdict::exit(&verdicts)
}

/// A line for each entry, with aligned columns, and one below it for the reason if the defect was not found.
pub(super) fn table(rows: &[Row<'_>]) -> Vec<String> {
    let cells = |row: &Row<'_>| {
        [row.entry.id.clone(), format!("{} {}", row.entry.set, row.entry.version), row.entry.check.clone()]
    };
    let width = |column: usize| rows.iter().map(|row| cells(row)[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let mut lines = Vec::new();
    for row in rows {
        let [id, release, check] = cells(row);
        let [a, b, c] = widths;
        lines.push(format!("{id:a$}  {release:b$}  {check:c$}  {}", row.result()));
        let reason = row.reason();
        if row.verdict != Verdict::Found && !reason.is_empty() {
            lines.push(format!("    {reason}"));
        }
    }
    lines
}

impl Record<'_> {
    /// How many entries have each verdict, in one line.
    pub(super) fn summary(&self) -> String {
        let kinds = [
            (Verdict::Found, "found"),
            (Verdict::NotFound, "not found"),
            (Verdict::ControlFailed, "with a failed control"),
            (Verdict::Errored, "errored"),
            (Verdict::NotRun, "not run"),
        ];
        let count = |verdict: Verdict| self.entries.iter().filter(|row| row.verdict == verdict).count();
        let counts = kinds.map(|(verdict, word)| (count(verdict), word));
        let parts = counts.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}"));
        parts.collect::<Vec<_>>().join(", ")
    }

    /// Writes `regressions.json` and `junit.xml`.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let write = |name: &str, content: Vec<u8>| {
            let path = folder.join(name);
            fs::write(&path, content).with_context(|| format!("failed to write {}", path.display()))
        };
        write("regressions.json", serde_json::to_vec_pretty(self)?)?;
        write("junit.xml", self.junit()?)
    }

    /// A case for each entry.
    fn junit(&self) -> anyhow::Result<Vec<u8>> {
        let suite = format!("archproof.{}.regressions", self.arch);
        let case = |row: &Row<'_>| {
            let output = format!("{}\n{}", row.entry.what, row.entry.source);
            SingleCase { name: row.entry.id.clone(), class: suite.clone(), outcome: row.outcome(), output }
        };
        single_suite(&suite, &self.started, &self.entries.iter().map(case).collect::<Vec<_>>())
    }
}

/// "1 try", "3 tries".
pub(super) fn tries(number: impl ToString) -> String {
    let number = number.to_string();
    format!("{number} {}", if number == "1" { "try" } else { "tries" })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use model::Tried;

    use super::*;

    fn entry(tried: Option<Tried>) -> Regression {
        Regression {
            id: "etcd-1".into(),
            what: "An event is lost.".into(),
            source: "https://example.org/1".into(),
            set: "etcd".into(),
            version: "v3.6.1".into(),
            control: Some("v3.6.2".into()),
            check: "watch.reliable".into(),
            profile: None,
            tries: 3,
            says: None,
            tried,
        }
    }

    fn run(version: &str, shown: Shown, text: &str) -> Run {
        Run {
            version: version.into(),
            seed: 7,
            shown,
            text: text.into(),
            seconds: 1.5,
            folder: "etcd-1-1".into(),
            command: "cargo xtask ci".into(),
        }
    }

    #[test]
    fn table_has_the_verdict_and_its_reason() {
        let (fresh, tried) = (entry(None), entry(Some(Tried { times: 40, machine: "two processors".into() })));
        let passed = || run("v3.6.1", Shown::Passed, "");
        let found = || run("v3.6.1", Shown::Defect, "an event is lost\nat 7");
        let of = |entry, runs, control| {
            let row = Row::new(entry, runs, control);
            (row.verdict, table(&[row]).join("\n"))
        };
        let head = "etcd-1  etcd v3.6.1  watch.reliable  ";
        for ((verdict, lines), expected, said) in [
            (of(&fresh, vec![passed(), found()], Some(passed())), Verdict::Found, "found after 2 tries"),
            (of(&fresh, vec![found()], None), Verdict::Found, "found after 1 try"),
            (of(&tried, vec![found()], None), Verdict::Found, "found after 1 try; remove its `tried`"),
            (of(&fresh, vec![passed()], None), Verdict::NotFound, "not found in 1 try"),
            (
                of(&tried, vec![passed(), passed()], None),
                Verdict::NotFound,
                "not found in 2 tries, nor in 40 before (two processors)",
            ),
            (
                of(&fresh, vec![found()], Some(run("v3.6.2", Shown::Defect, "an event is lost"))),
                Verdict::ControlFailed,
                "control failed\n    v3.6.2: an event is lost",
            ),
            (
                of(&fresh, vec![run("v3.6.1", Shown::CannotRun, "build: no such release")], None),
                Verdict::Errored,
                "errored\n    v3.6.1: build: no such release",
            ),
            (of(&fresh, Vec::new(), None), Verdict::NotRun, "not run"),
        ] {
            assert_eq!((verdict, lines), (expected, format!("{head}{said}")));
        }
    }

    #[test]
    fn junit_never_shows_an_unfound_defect_as_passed() {
        let (fresh, tried) = (entry(None), entry(Some(Tried { times: 40, machine: "two processors".into() })));
        let passed = || vec![run("v3.6.1", Shown::Passed, "")];
        assert!(matches!(Row::new(&fresh, passed(), None).outcome(), Outcome::Failed { .. }));
        assert!(matches!(Row::new(&tried, passed(), None).outcome(), Outcome::ExpectedFailure { .. }));
        let broken = vec![run("v3.6.1", Shown::CannotRun, "build: x")];
        assert!(matches!(Row::new(&tried, broken, None).outcome(), Outcome::Errored { .. }));
        let rows = vec![Row::new(&fresh, passed(), None)];
        let record = Record {
            started: "2026-11-28T00:00:00.000Z".into(),
            arch: "amd64".into(),
            seed: 7,
            seconds: 3.0,
            exit: exit(&rows).code(),
            entries: rows,
        };
        assert_eq!(record.exit, Exit::Internal.code());
        assert_eq!(record.summary(), "1 not found");
        let text = String::from_utf8(record.junit().unwrap()).unwrap();
        assert!(text.contains("<failure") && text.contains("not found in 1 try"), "{text}");
        let json = serde_json::to_value(&record).unwrap();
        assert_eq!(json["entries"][0]["verdict"], "not-found");
        assert_eq!(json["entries"][0]["runs"][0]["shown"], "passed");
    }
}
