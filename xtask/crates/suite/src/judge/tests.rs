//! Histories that the judges must accept, and for each judge the fabricated ones that it must refuse.

use super::generate::{Shape, generate};
use super::*;

#[test]
fn good_histories_are_accepted() {
    for seed in 0..200 {
        let history = generate(seed, Shape::default());
        for (id, judgement) in judge_all(&history) {
            assert_eq!(judgement.outcome(), Outcome::Passed, "seed {seed}: {id}: {:?}", judgement.exercised);
        }
    }
}
