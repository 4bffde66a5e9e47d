//! Differences with one cause as one group, independent of the resource that showed it.

use std::collections::BTreeSet;

use super::answer::Change;
use super::play::Difference;
use super::request::{Request, Sequence, Verb};

/// Two differences with the same key have, as far as requests and answers tell, the same cause.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The request that tried the value: `apply`, `strategic merge patch`.
    pub(crate) verb: &'static str,
    /// The type of the value's place: `integer int32`.
    pub(crate) shape: String,
    /// The class of the value: `float near 2^63`.
    pub(crate) class: &'static str,
    /// `status 200/422`, `body number/number`, `stored string/absent`.
    pub(crate) symptom: String,
}

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
}

impl Key {
    pub(crate) fn of(sequence: &Sequence, difference: &Difference) -> Key {
        let cause = cause(sequence, difference.at);
        let trial = cause.and_then(|request| request.trial.as_ref());
        Key {
            verb: cause.map_or("get", |request| request.verb.name()),
            shape: trial.map(|trial| trial.shape.clone()).unwrap_or_default(),
            class: trial.map_or("", |trial| trial.class),
            symptom: symptom(difference),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} ({}): {}", self.verb, self.shape, self.class, self.symptom)
    }
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

fn symptom(difference: &Difference) -> String {
    let (left, right) = (&difference.left, &difference.right);
    if left.status != right.status {
        return format!("status {} {}/{} {}", left.status, left.reason(), right.status, right.reason());
    }
    let Some(first) = difference.changes.first() else { return "none".into() };
    let level = if left.status == 0 { "stored" } else { first.place.split(['.', '[']).next().unwrap_or_default() };
    if left.status >= 300 {
        return format!("text of status {} {}", left.status, left.reason());
    }
    format!("{level} {}", kinds(first))
}

fn kinds(change: &Change) -> String {
    let kind = |text: &str| match text.as_bytes().first() {
        _ if text == "absent" => "absent",
        Some(b'"') => "string",
        Some(b'{') => "object",
        Some(b'[') => "list",
        Some(b'-' | b'0'..=b'9') => "number",
        _ => "word",
    };
    format!("{}/{}", kind(&change.left), kind(&change.right))
}
