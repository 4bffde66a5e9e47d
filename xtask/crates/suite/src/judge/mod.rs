//! Judges: pure functions from a recorded history to the places where a guarantee was broken. No clock, no network.
//!
//! One file per guarantee. A judge says what it has exercised; a guarantee that was not exercised is never a pass.

use std::collections::BTreeMap;

use model::Outcome;
use model::history::History;

/// What a judge found in one history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    pub violations: Vec<Violation>,
    /// How much was looked at, by name: `events`, `streams`, `lists`.
    pub exercised: BTreeMap<String, u64>,
    /// Why the history says too little about the guarantee, if it does.
    pub not_exercised: Option<String>,
}

/// One place where the guarantee was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What was seen, in one sentence.
    pub message: String,
    /// The smallest stretch of history that shows it, a line each.
    pub evidence: Vec<String>,
}

/// How many violations a verdict shows; the first ones are the ones to read.
const SHOWN: usize = 5;

impl Judgement {
    /// A violation beats the lack of exercise: what was seen broken is broken.
    pub fn outcome(&self) -> Outcome {
        if let Some(first) = self.violations.first() {
            let more = match self.violations.len() {
                1 => String::new(),
                n => format!(" (and {} more violations)", n - 1),
            };
            let evidence = self.violations.iter().take(SHOWN).flat_map(|violation| {
                std::iter::once(violation.message.clone()).chain(violation.evidence.iter().map(|e| format!("  {e}")))
            });
            return Outcome::Failed { message: format!("{}{more}", first.message), evidence: evidence.collect() };
        }
        match &self.not_exercised {
            Some(reason) => Outcome::errored("not exercised", reason.clone()),
            None => Outcome::Passed,
        }
    }
}

/// A judge.
pub type Judge = fn(&History) -> Judgement;
