//! Differences with one cause as one group, independent of the resource that showed it.

use std::collections::BTreeSet;

use model::ExpectedDifference;

use super::answer::Answer;
use super::json::Document;
use super::play::{Difference, STORED};
use super::request::{Request, Sequence, Trial, Verb};
use crate::group::Key;

/// A group with its smallest sequence.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) key: Key,
    /// Sequences with this key.
    pub(crate) count: u64,
    /// The index of the first sequence.
    pub(crate) index: u64,
    pub(crate) resources: BTreeSet<String>,
    pub(crate) sequence: Sequence,
    pub(crate) difference: Difference,
    /// The entry of `differences:` that names the group.
    pub(crate) expected: Option<ExpectedDifference>,
}

/// The key of a difference: the kind of request, the type of the place with the range of the value, and which answers
/// are errors.
pub(crate) fn key(sequence: &Sequence, difference: &Difference) -> Key {
    let cause = cause(sequence, difference.at);
    let verb = cause.map_or(Verb::Get, |request| request.verb);
    let trial = cause.and_then(|request| request.trial.as_ref());
    Key {
        subject: format!("live.{}", verb.name().to_lowercase().replace(' ', "-")),
        class: trial.map(class).unwrap_or_default(),
        shape: BTreeSet::from([shape(difference)]),
    }
}

/// `integer int32, beyond 64 bits`.
fn class(trial: &Trial) -> String {
    let range = match &trial.value {
        Document::Number(literal) => range(literal).unwrap_or(trial.class),
        _ => trial.class,
    };
    format!("{}, {range}", trial.shape)
}

/// The range of a number. None if it is not one.
pub(crate) fn range(literal: &str) -> Option<&'static str> {
    let hexadecimal = literal.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    #[expect(clippy::cast_precision_loss, reason = "only the range matters")]
    let number: f64 = hexadecimal.map_or_else(|| literal.parse(), |number| Ok(number as f64)).ok()?;
    let spelled_as_float = literal.contains(['.', 'e', 'E']);
    Some(if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number) {
        "beyond 64 bits"
    } else if !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number) {
        if spelled_as_float { "float beyond 32 bits" } else { "integer beyond 32 bits" }
    } else if number.fract() != 0.0 {
        "fraction"
    } else if spelled_as_float {
        "float"
    } else {
        "integer"
    })
}

/// The request that tried the value: the differing one if it did, otherwise the last one before it.
fn cause(sequence: &Sequence, at: usize) -> Option<&Request> {
    let until = sequence.requests.get(..=at).unwrap_or(&sequence.requests);
    let last = until.last();
    if last.is_some_and(|request| request.verb.writes() && request.verb != Verb::Delete) {
        return last;
    }
    until.iter().rev().find(|request| request.trial.is_some()).or(last)
}

/// `answer/error`, or for two answers the part that differs.
fn shape(difference: &Difference) -> String {
    let word = |answer: &Answer| if answer.status < 300 { "answer" } else { "error" };
    let (left, right) = (word(&difference.left), word(&difference.right));
    if difference.left.status == STORED { "stored/stored".into() } else { format!("{left}/{right}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_of_a_number_is_part_of_the_key() {
        for (literal, expected) in [
            ("1e30", Some("beyond 64 bits")),
            ("9223372036854775808", Some("beyond 64 bits")),
            ("9223372036854775807", Some("beyond 64 bits")),
            ("4294967297.0", Some("float beyond 32 bits")),
            ("4294967297", Some("integer beyond 32 bits")),
            ("3.5", Some("fraction")),
            ("1.0", Some("float")),
            ("-1", Some("integer")),
            ("0x10", Some("integer")),
            ("0x7fffffffffffffff", Some("beyond 64 bits")),
            ("0o17", None),
        ] {
            assert_eq!(range(literal), expected, "{literal}");
        }
    }
}
