//! The results of mutants: the table as JSON, a summary, the exit code.

use std::path::Path;

use anyhow::Context;
use cli::{Failure, OrExit, print_json};
use model::{Exit, Outcome};
use mutate::Mutant;
use serde::Serialize;
use sys::progress;

/// The result for one mutant, or for a control run without a mutant.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) mutant: &'static str,
    pub(super) breaks: &'static str,
    pub(super) caught_by: String,
    pub(super) verdict: Verdict,
    /// The message of the check, or the reason for `Skipped`.
    pub(super) said: String,
    pub(super) seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// The check failed on the mutant.
    Killed,
    /// The check passed on the mutant.
    Survived,
    /// The check came to no verdict, which proves nothing.
    Undecided,
    /// The mutant did not run, because the cluster lacks what it or its check needs.
    Skipped,
    /// Without a mutant the check passed or failed as expected, as required.
    Sound,
    /// Without a mutant the check did not pass.
    Unsound,
}

impl Row {
    /// The row of a mutant that cannot run, with what is missing.
    pub(super) fn skipped(mutant: &Mutant, need: String) -> Row {
        Row::without_run(mutant, Verdict::Skipped, Outcome::Skipped { need }.message())
    }

    /// The row of a mutant that did not run, because its profile broke before.
    pub(super) fn not_run(mutant: &Mutant, error: &anyhow::Error) -> Row {
        Row::without_run(mutant, Verdict::Undecided, format!("it did not run: {error:#}"))
    }

    fn without_run(mutant: &Mutant, verdict: Verdict, said: String) -> Row {
        let (caught_by, mutant, breaks) = (mutant.caught_by.to_owned(), mutant.id, mutant.breaks);
        Row { mutant, breaks, caught_by, verdict, said, seconds: 0.0 }
    }

    pub(super) fn say(&self) {
        let Row { mutant, breaks, caught_by, verdict, said, seconds } = self;
        let word = verdict.word();
        match verdict {
            Verdict::Skipped => progress::say(&format!("{word} {mutant} by {caught_by}: {said}")),
            _ => progress::say(&format!("{word} {mutant} by {caught_by} {seconds:.1} s")),
        }
        if verdict.is_bad() {
            progress::say(&format!("    {breaks}: {said}"));
        }
    }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Killed => "killed",
            Verdict::Survived => "SURVIVED",
            Verdict::Undecided => "UNDECIDED",
            Verdict::Skipped => "skipped",
            Verdict::Sound => "sound",
            Verdict::Unsound => "UNSOUND",
        }
    }

    /// Whether it shows a hole in the suite.
    fn is_bad(self) -> bool {
        matches!(self, Verdict::Survived | Verdict::Undecided | Verdict::Unsound)
    }
}

/// Writes the table into the run folder and prints a summary. Returns the exit code.
pub(super) fn publish(rows: &[Row], json: bool, folder: &Path) -> Result<Exit, Failure> {
    let file = folder.join("selftest.json");
    let text = serde_json::to_string_pretty(rows).context("failed to write the table as JSON")?;
    let written = std::fs::write(&file, text).with_context(|| format!("failed to write {}", file.display()));
    written.or_exit(Exit::Infrastructure)?;
    if json {
        print_json(&rows)?;
    }
    progress::say(&format!("selftest: {}; {}", summary(rows), file.display()));
    exit(rows)
}

fn summary(rows: &[Row]) -> String {
    let count = |verdict: Verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    format!(
        "{} killed, {} survived, {} undecided, {} skipped; {} checks sound without a mutant, {} not",
        count(Verdict::Killed),
        count(Verdict::Survived),
        count(Verdict::Undecided),
        count(Verdict::Skipped),
        count(Verdict::Sound),
        count(Verdict::Unsound),
    )
}

fn exit(rows: &[Row]) -> Result<Exit, Failure> {
    if rows.iter().all(|row| row.verdict == Verdict::Skipped) {
        return Err(Failure::nothing_ran("no chosen mutant can run on this cluster; the reasons are above"));
    }
    let bad = rows.iter().any(|row| row.verdict.is_bad());
    Ok(if bad { Exit::Internal } else { Exit::Ok })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: Verdict) -> Row {
        let mutant = mutate::all().next().unwrap();
        Row { verdict, ..Row::skipped(mutant, "a node".into()) }
    }

    fn ended(verdicts: &[Verdict]) -> Exit {
        let rows: Vec<Row> = verdicts.iter().copied().map(row).collect();
        exit(&rows).unwrap_or_else(|failure| failure.exit)
    }

    #[test]
    fn skipped_mutants_are_no_hole_if_another_one_ran() {
        use Verdict::{Killed, Skipped, Sound, Survived, Undecided, Unsound};
        assert_eq!(ended(&[Sound, Killed, Skipped]), Exit::Ok);
        for bad in [Survived, Undecided, Unsound] {
            assert_eq!(ended(&[Killed, Skipped, bad]), Exit::Internal, "{bad:?}");
        }
        assert_eq!(ended(&[Skipped, Skipped]), Exit::NothingRan);
    }

    #[test]
    fn skipped_mutants_are_in_the_table_with_the_reason() {
        let rows = [row(Verdict::Killed), row(Verdict::Skipped), row(Verdict::Skipped)];
        assert!(summary(&rows).starts_with("1 killed, 0 survived, 0 undecided, 2 skipped; "), "{}", summary(&rows));
        let folder = sys::Scratch::temporary("selftest").unwrap();
        let _ = publish(&rows, false, folder.path());
        let text = std::fs::read(folder.path().join("selftest.json")).unwrap();
        let table: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(table[1]["verdict"], "skipped");
        assert_eq!(table[1]["said"], "needs a node");
        assert_eq!(table.as_array().map(Vec::len), Some(3));
    }
}
