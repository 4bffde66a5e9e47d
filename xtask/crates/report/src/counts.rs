//! Outcomes as single words, and how often each occurs.

use model::Outcome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The outcome of a case or phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    Passed,
    /// A violation of the requirement was observed.
    Failed,
    /// The requirement is violated, and this failure is expected.
    ExpectedFailure,
    /// The case passed, but a failure was expected.
    UnexpectedPass,
    /// Not run; the message names the unmet need.
    Skipped,
    /// The environment broke, or the requirement was not exercised: this says nothing about the requirement.
    Errored,
    TimedOut,
}

/// Number of cases by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub expected_failure: usize,
    pub unexpected_pass: usize,
    pub skipped: usize,
    pub errored: usize,
    pub timed_out: usize,
}

/// The words of [`Word::text`], in the order of tables.
pub(crate) const WORDS: [&str; 7] =
    ["passed", "failed", "unexpected pass", "errored", "timed out", "expected failure", "skipped"];

impl Word {
    pub fn of(outcome: &Outcome) -> Word {
        match outcome {
            Outcome::Passed => Word::Passed,
            Outcome::Failed { .. } => Word::Failed,
            Outcome::ExpectedFailure { .. } => Word::ExpectedFailure,
            Outcome::UnexpectedPass { .. } => Word::UnexpectedPass,
            Outcome::Skipped { .. } => Word::Skipped,
            Outcome::Errored { .. } => Word::Errored,
            Outcome::TimedOut { .. } => Word::TimedOut,
        }
    }

    /// Whether the outcome makes a run red.
    pub fn is_red(self) -> bool {
        self.is_broken() || matches!(self, Word::Errored | Word::TimedOut)
    }

    /// A violation was observed, or a case passed although a failure was expected.
    pub fn is_broken(self) -> bool {
        matches!(self, Word::Failed | Word::UnexpectedPass)
    }

    /// For people: `timed out`.
    pub fn text(self) -> &'static str {
        match self {
            Word::Passed => "passed",
            Word::Failed => "failed",
            Word::ExpectedFailure => "expected failure",
            Word::UnexpectedPass => "unexpected pass",
            Word::Skipped => "skipped",
            Word::Errored => "errored",
            Word::TimedOut => "timed out",
        }
    }
}

impl Counts {
    pub fn add(&mut self, word: Word) {
        *match word {
            Word::Passed => &mut self.passed,
            Word::Failed => &mut self.failed,
            Word::ExpectedFailure => &mut self.expected_failure,
            Word::UnexpectedPass => &mut self.unexpected_pass,
            Word::Skipped => &mut self.skipped,
            Word::Errored => &mut self.errored,
            Word::TimedOut => &mut self.timed_out,
        } += 1;
    }

    /// All of [`WORDS`] with their counts, including zeros.
    pub fn iter(self) -> impl Iterator<Item = (&'static str, usize)> {
        let Counts { passed, failed, unexpected_pass, errored, timed_out, expected_failure, skipped } = self;
        WORDS.into_iter().zip([passed, failed, unexpected_pass, errored, timed_out, expected_failure, skipped])
    }

    pub fn total(self) -> usize {
        // A foreign file may contain any numbers.
        self.iter().fold(0, |sum: usize, (_, count)| sum.saturating_add(count))
    }

    /// `44 passed, 1 failed, 2 skipped`; `no cases`.
    pub fn sentence(self) -> String {
        let parts: Vec<String> =
            self.iter().filter(|(_, number)| *number > 0).map(|(word, number)| format!("{number} {word}")).collect();
        if parts.is_empty() { "no cases".into() } else { parts.join(", ") }
    }
}

impl FromIterator<Word> for Counts {
    fn from_iter<T: IntoIterator<Item = Word>>(words: T) -> Counts {
        let mut counts = Counts::default();
        words.into_iter().for_each(|word| counts.add(word));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_count() {
        let outcomes = crate::fixture::every_outcome();
        let counts: Counts = outcomes.iter().map(Word::of).collect();
        assert!(counts.iter().all(|(_, number)| number == 1), "{counts:?}");
        assert!(outcomes.iter().all(|outcome| Word::of(outcome).text() == outcome.word()));
        assert_eq!(
            counts.sentence(),
            "1 passed, 1 failed, 1 unexpected pass, 1 errored, 1 timed out, 1 expected failure, 1 skipped"
        );
    }
}
