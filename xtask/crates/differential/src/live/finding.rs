//! Differences with one cause as one group, independent of the resource that showed it.

use std::collections::BTreeSet;

use model::ExpectedDifference;

use super::answer::Answer;
use super::play::{Difference, STORED};
use super::range::{of_literal, of_quantity};
use super::request::{Family, Request, Sequence, Trial, Verb};
use super::{amounts, crd};
use crate::document::Document;
use crate::group::Key;

/// A group with its smallest sequence.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) key: Key,
    /// Sequences with this key.
    pub(crate) count: u64,
    /// The index of the first sequence. None for a kept one.
    pub(crate) index: Option<u64>,
    pub(crate) resources: BTreeSet<String>,
    pub(crate) sequence: Sequence,
    pub(crate) difference: Difference,
    /// The entry of `differences:` that names the group.
    pub(crate) expected: Option<ExpectedDifference>,
}

/// The key of a difference: the kind of request, the type of the place with the range of the value, and which answers
/// are errors.
pub(crate) fn key(sequence: &Sequence, difference: &Difference) -> Key {
    let cause = cause(sequence, difference).and_then(|at| sequence.requests.get(at));
    let differing = sequence.requests.get(difference.at).filter(|_| difference.left.status != STORED);
    let verb = differing.or(cause).map_or(Verb::Get, |request| request.verb);
    let name = verb.name().to_lowercase().replace(' ', "-");
    let subject = match sequence.family {
        Family::Builtin => format!("live.{name}"),
        family => format!("live.{}.{name}", family.name()),
    };
    Key { subject, class: class(sequence, difference, cause), shape: BTreeSet::from([shape(difference)]) }
}

fn class(sequence: &Sequence, difference: &Difference, cause: Option<&Request>) -> String {
    let until = sequence.requests.get(..=difference.at).unwrap_or(&sequence.requests);
    let trial = cause.and_then(Request::trial);
    let class = match sequence.family {
        Family::Builtin => trial.map(tried).unwrap_or_default(),
        Family::Custom => {
            let table = until.last().is_some_and(|request| request.verb == Verb::Table);
            let class = crd::class(until, trial, table);
            if class.is_empty() { trial.map(tried).unwrap_or_default() } else { class }
        }
        Family::Amounts => amounts::class(until),
        Family::Seats => "limits of priority levels".to_owned(),
    };
    // JSON and YAML are decoded alike.
    let cbor = cause.is_some_and(|request| request.body.is_some() && request.content_type.contains("cbor"));
    if cbor { format!("{class}, CBOR") } else { class }
}

/// `integer int32, beyond 64 bits`.
fn tried(trial: &Trial) -> String {
    let range = match &trial.value {
        Document::Number(literal) => of_literal(literal),
        Document::Text(_) if trial.shape.starts_with("quantity") => {
            trial.value.decoded().and_then(|text| of_quantity(&text))
        }
        _ => None,
    };
    format!("{}, {}", trial.shape, range.unwrap_or(&trial.class))
}

/// The index of the request that tried the value: the differing one if it did, otherwise the last one before it.
pub(crate) fn cause(sequence: &Sequence, difference: &Difference) -> Option<usize> {
    let until = sequence.requests.get(..=difference.at).unwrap_or(&sequence.requests);
    let last = until.len().checked_sub(1)?;
    let tried = until.iter().rposition(|request| request.trial().is_some());
    match sequence.family {
        // The object in the request may be ordinary, and the limit of the schema the cause.
        _ if tried == Some(last) => tried,
        Family::Builtin if until[last].verb.writes() && until[last].verb != Verb::Delete => Some(last),
        _ => tried.or(Some(last)),
    }
}

/// `answer/error`, or for two answers the part that differs.
fn shape(difference: &Difference) -> String {
    let word = |answer: &Answer| if answer.status < 300 { "answer" } else { "error" };
    let (left, right) = (word(&difference.left), word(&difference.right));
    if difference.left.status == STORED { "stored/stored".into() } else { format!("{left}/{right}") }
}

/// Whether a smaller sequence shows the cause of the key. The tried value may turn out not to be part of the cause.
pub(crate) fn is_same(seen: &Key, wanted: &Key, sequence: &Sequence, difference: &Difference) -> bool {
    let lost = sequence.requests.get(difference.at).is_some_and(|request| request.trial().is_none());
    seen.subject == wanted.subject && seen.shape == wanted.shape && (lost || is_part(&seen.class, &wanted.class))
}

fn is_part(seen: &str, wanted: &str) -> bool {
    let parts = |class: &str| class.split(", ").map(str::to_owned).collect::<BTreeSet<_>>();
    parts(seen).is_subset(&parts(wanted))
}

#[cfg(test)]
mod tests {
    use super::super::answer::Content;
    use super::*;

    fn difference(at: usize) -> Difference {
        let answer = |status| Answer { status, headers: Vec::new(), body: Content::Absent };
        Difference { at, changes: Vec::new(), left: answer(200), right: answer(422), stored: None }
    }

    fn trying(verb: Verb, literal: &str) -> Request {
        let value = Document::Number(literal.into());
        let mut request = Request::new(verb, "/a").body(Document::object([("n", value.clone())]));
        request.trial = Some(Trial { place: "n".into(), shape: "integer int32".into(), class: "c".into(), value });
        request
    }

    #[test]
    fn key_names_the_type_and_the_range() {
        let sequence = Sequence { requests: vec![trying(Verb::Apply, "1e30")], ..Sequence::default() };
        let key = key(&sequence, &difference(0));
        assert_eq!(key.to_string(), "live.apply (integer int32, beyond 64 bits): answer/error");
    }

    #[test]
    fn cause_of_a_read_is_the_last_tried_value() {
        let read = Request::new(Verb::Get, "/a");
        let requests = vec![trying(Verb::Apply, "1e30"), trying(Verb::Apply, "3.5"), read];
        let sequence = Sequence { requests, ..Sequence::default() };
        assert_eq!(cause(&sequence, &difference(2)), Some(1));
        assert_eq!(key(&sequence, &difference(2)).class, "integer int32, fraction");
    }

    #[test]
    fn value_that_was_shrunk_away_is_not_the_cause() {
        let mut sequence = Sequence { requests: vec![trying(Verb::Create, "1e30")], ..Sequence::default() };
        let wanted = key(&sequence, &difference(0));
        sequence.requests[0].body = Some(Document::Object(Vec::new()));
        let seen = key(&sequence, &difference(0));
        assert_eq!(seen.class, "");
        assert!(is_same(&seen, &wanted, &sequence, &difference(0)));
    }
}
