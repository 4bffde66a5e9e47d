//! Good histories that every judge must accept, and bad ones that a given judge must refuse.

mod bad_reads;
mod bad_recordings;
mod bad_streams;
mod example;
mod excerpt;
mod lenient;
mod linear;
mod property;

use super::generate::{Shape, generate};
use super::*;

/// The violations of one judge.
fn violations(history: &History, id: &str) -> Vec<Violation> {
    judge(&Prepared::new(history), id).expect("a judge's id").violations
}

/// Fails if any judge finds a violation, even if the history exercises too little.
fn accept(history: &History, what: &str) {
    for (id, judgement) in judge_all(history) {
        assert!(judgement.violations.is_empty(), "{what}: {id} refuses: {:#?}", judgement.violations);
    }
}

/// Fails unless the judge refuses the history with a violation whose message contains all of the words.
fn refuse(history: &History, id: &str, words: &[&str], what: &str) {
    let violations = violations(history, id);
    assert!(!violations.is_empty(), "{what}: {id} accepts");
    let told = violations.iter().any(|violation| words.iter().all(|word| violation.message.contains(word)));
    assert!(told, "{what}: {id} does not say {words:?}: {violations:#?}");
}

#[test]
fn generated_histories_are_accepted_and_exercise_every_judge() {
    for seed in 0..30 {
        let history = generate(seed, Shape::default());
        for (id, judgement) in judge_all(&history) {
            assert_eq!(judgement.outcome(), Outcome::Passed, "seed {seed}: {id}: {:?}", judgement.exercised);
        }
    }
}

#[test]
fn same_seed_gives_the_same_history() {
    assert_eq!(generate(7, Shape::default()), generate(7, Shape::default()));
    assert_ne!(generate(7, Shape::default()), generate(8, Shape::default()));
}

#[test]
fn empty_recording_is_never_a_pass() {
    for (id, judgement) in judge_all(&History::default()) {
        assert_ne!(judgement.outcome(), Outcome::Passed, "{id}");
    }
    // A good store without any requests.
    let good = generate(1, Shape::default());
    let silent = History { operations: Vec::new(), streams: Vec::new(), sightings: Vec::new(), ..good };
    for (id, judgement) in judge_all(&silent) {
        assert_eq!(judgement.outcome() == Outcome::Passed, id == "suite.truth", "{id}");
    }
}
