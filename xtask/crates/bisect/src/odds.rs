//! How many passes prove a commit good, if a broken commit fails only in some runs.

use serde::{Deserialize, Serialize};

/// A broken commit is judged good with at most this probability.
const ACCEPTED: f64 = 0.02;

/// The failure rate of the bad end, and its consequences.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Odds {
    /// Failures of the check at the bad end.
    pub(crate) failures: usize,
    /// Runs at the bad end that passed or failed so.
    pub(crate) runs: usize,
    /// Passes after which a commit counts as good.
    pub(crate) passes: usize,
}

/// More passes are needed than runs are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooRare {
    pub(crate) needed: usize,
}

impl Odds {
    /// The smallest number of passes that a broken commit reaches with a probability of at most 2 %.
    ///
    /// # Errors
    /// More than `most` passes are needed. At least one failure is required; without one, every number is too small.
    pub(crate) fn of(failures: usize, runs: usize, most: usize) -> Result<Odds, TooRare> {
        let mut odds = Odds { failures, runs, passes: 1 };
        if failures == 0 {
            return Err(TooRare { needed: usize::MAX });
        }
        while odds.missed() > ACCEPTED {
            odds.passes += 1;
        }
        if odds.passes > most { Err(TooRare { needed: odds.passes }) } else { Ok(odds) }
    }

    /// The measured probability that one run of a broken commit fails.
    pub(crate) fn rate(&self) -> f64 {
        ratio(self.failures, self.runs)
    }

    /// The probability that a broken commit is judged good.
    pub(crate) fn missed(&self) -> f64 {
        (1.0 - self.rate()).powi(i32::try_from(self.passes).unwrap_or(i32::MAX))
    }

    /// The probability that at least one of `commits` good verdicts is wrong, if all those commits were broken.
    pub(crate) fn any_missed(&self, commits: usize) -> f64 {
        1.0 - (1.0 - self.missed()).powi(i32::try_from(commits).unwrap_or(i32::MAX))
    }

    /// The odds as sentences; `good` is the number of commits that were judged good.
    pub(crate) fn text(&self, good: usize) -> String {
        let Odds { failures, runs, passes } = self;
        if runs == &1 {
            return "The bad end failed in the only run there, so its failure rate is unknown. If the failure is a \
                    race, a broken commit may have passed by chance: repeat the search with --repeat."
                .to_owned();
        }
        if failures == runs {
            return format!(
                "The bad end failed in {failures} of {runs} runs, so one pass made a commit good. A failure rate below \
                 1 can still show {runs} failures in a row."
            );
        }
        format!(
            "The bad end failed in {failures} of {runs} runs. A commit was judged good after {passes} passes, which a \
             broken commit reaches with a probability of {:.1} %. That one of {good} good verdicts is wrong has a \
             probability of at most {:.1} %. The rate itself is an estimate from {runs} runs.",
            self.missed() * 100.0,
            self.any_missed(good) * 100.0
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of runs are small")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_the_smallest_number_within_two_percent() {
        for (failures, runs, passes) in [(1, 1, 1), (2, 2, 1), (5, 5, 1), (1, 2, 6), (3, 4, 3), (9, 10, 2), (1, 10, 38)]
        {
            let odds = Odds::of(failures, runs, 100).unwrap();
            assert_eq!(odds.passes, passes, "{failures} of {runs}");
            assert!(odds.missed() <= ACCEPTED);
            let one_less = Odds { passes: passes - 1, ..odds };
            assert!(passes == 1 || one_less.missed() > ACCEPTED, "{failures} of {runs}");
        }
    }

    #[test]
    fn too_small_limit_is_refused_with_the_needed_number() {
        assert_eq!(Odds::of(1, 2, 5), Err(TooRare { needed: 6 }));
        assert!(Odds::of(1, 2, 6).is_ok());
        assert_eq!(Odds::of(0, 3, 100), Err(TooRare { needed: usize::MAX }));
    }

    #[test]
    fn text_states_the_rate_and_the_risk() {
        let text = Odds::of(1, 2, 6).unwrap().text(4);
        for part in ["1 of 2 runs", "after 6 passes", "1.6 %", "4 good verdicts", "6.1 %"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(Odds::of(1, 1, 1).unwrap().text(3).contains("unknown"));
        assert!(Odds::of(3, 3, 3).unwrap().text(3).contains("3 of 3 runs"));
    }
}
