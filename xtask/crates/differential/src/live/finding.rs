//! Differences with one cause as one group, independent of the resource that showed it.

use std::collections::BTreeSet;

use judge::look::looks_of_answers;
use model::ExpectedDifference;

use super::answer::{Answer, Content};
use super::play::{Difference, STORED};
use super::range::{of_literal, of_quantity};
use super::request::{Family, Request, Sequence, Trial, Verb};
use super::{amounts, crd};
use crate::document::Document;
use crate::group::Key;

/// The range of numbers that no integer type holds.
const BEYOND: &str = "beyond 64 bits";
const LIMIT: &str = "limit of 64 bits";
/// A number that the sequence did not mean to try.
const OTHER: &str = "another number";

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

/// The key of a difference: the kind of request, the type of the place with the range of the value, which answers are
/// errors, and what the difference looks like.
pub(crate) fn key(sequence: &Sequence, difference: &Difference) -> Key {
    let cause = cause(sequence, difference).and_then(|at| sequence.requests.get(at));
    let differing = sequence.requests.get(difference.at).filter(|_| difference.left.status != STORED);
    let verb = differing.or(cause).map_or(Verb::Get, |request| request.verb);
    let name = verb.name().to_lowercase().replace(' ', "-");
    let subject = match sequence.family {
        Family::Builtin => format!("live.{name}"),
        family => format!("live.{}.{name}", family.name()),
    };
    Key { subject, class: class(sequence, difference, cause), shape: shape(difference) }
}

fn class(sequence: &Sequence, difference: &Difference, cause: Option<&Request>) -> String {
    let until = sequence.requests.get(..=difference.at).unwrap_or(&sequence.requests);
    let trial = cause.and_then(Request::trial);
    let class = match sequence.family {
        Family::Builtin => builtin(until, trial),
        Family::Custom if until.last().is_some_and(|request| request.verb == Verb::Table) => {
            return columns(&difference.left.body, &difference.right.body);
        }
        Family::Custom => {
            let messages = messages_of_one_side(difference);
            let class = crd::class(until, trial, |keyword| messages.iter().any(|message| names(message, keyword)));
            if class.is_empty() { trial.map(tried).unwrap_or_default() } else { class }
        }
        Family::Amounts => amounts::class(until),
        Family::Seats => "limits of priority levels".to_owned(),
    };
    // JSON and YAML are decoded alike.
    let cbor = cause.is_some_and(|request| request.body.is_some() && request.content_type.contains("cbor"));
    if cbor { format!("{class}, CBOR") } else { class }
}

/// The tried value, or another number of a body if that one is out of every range.
fn builtin(until: &[Request], trial: Option<&Trial>) -> String {
    let class = trial.map(tried).unwrap_or_default();
    let extreme = || until.iter().filter_map(|request| request.body.as_ref()).any(has_extreme);
    if class.ends_with(BEYOND) || !extreme() { class } else { format!("{OTHER}, {BEYOND}") }
}

fn has_extreme(document: &Document) -> bool {
    match document {
        Document::Number(literal) => of_literal(literal) == Some(BEYOND),
        other => other.inner().into_iter().any(has_extreme),
    }
}

/// The types of the columns whose cells differ, and whether a cell is an extreme integer: `column integer, limit of 64 bits`.
fn columns(left: &Content, right: &Content) -> String {
    let (Content::Document(left), Content::Document(right)) = (left, right) else { return String::new() };
    let types = left.member("columnDefinitions").map(Document::inner).unwrap_or_default();
    let rows = |table: &Document| -> Vec<Vec<Document>> {
        let rows = table.member("rows").map(Document::inner).unwrap_or_default();
        rows.into_iter()
            .map(|row| row.member("cells").map(Document::inner).unwrap_or_default().into_iter().cloned().collect())
            .collect()
    };
    let mut class = BTreeSet::new();
    for (left, right) in rows(left).iter().zip(&rows(right)) {
        for (number, (left, right)) in left.iter().zip(right).enumerate().filter(|(_, (left, right))| left != right) {
            let kind = types.get(number).and_then(|column| column.member("type")?.decoded()).unwrap_or_default();
            class.insert(format!("column {kind}"));
            let limit =
                |cell: &Document| matches!(cell, Document::Number(literal) if of_literal(literal) == Some(LIMIT));
            if limit(left) || limit(right) {
                class.insert(LIMIT.to_owned());
            }
        }
    }
    class.into_iter().collect::<Vec<_>>().join(", ")
}

/// What validation says on one side and not on the other.
fn messages_of_one_side(difference: &Difference) -> BTreeSet<String> {
    let of = |answer: &Answer| -> BTreeSet<String> {
        let Content::Document(body) = &answer.body else { return BTreeSet::new() };
        let causes = body.at(&["details", "causes"]).map(Document::inner).unwrap_or_default();
        causes.iter().filter_map(|cause| cause.member("message")?.decoded()).collect()
    };
    of(&difference.left).symmetric_difference(&of(&difference.right)).cloned().collect()
}

/// Whether a message of validation is about the keyword of a schema.
fn names(message: &str, keyword: &str) -> bool {
    let words = match keyword.split(' ').next() {
        Some("maximum") => "less than",
        Some("minimum") => "greater than",
        // "factor MultipleOf", "a multiple of"
        Some("multipleOf") => "ultiple",
        Some("enum") => "Unsupported value",
        _ => return false,
    };
    message.contains(words)
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

/// `answer/error`, `stored/stored`, and the looks of the difference without its places: kinds have many.
fn shape(difference: &Difference) -> BTreeSet<String> {
    let Difference { left, right, .. } = difference;
    let mut looks = looks_of_answers((left.status, document(left)), (right.status, document(right)), false);
    if left.status == STORED {
        looks.remove("answer/answer");
        looks.insert("stored/stored".to_owned());
    }
    if left.headers != right.headers && looks.contains("answer/answer") {
        looks.insert("headers".to_owned());
    }
    looks
}

fn document(answer: &Answer) -> Option<&Document> {
    match &answer.body {
        Content::Document(document) => Some(document),
        Content::Text(_) | Content::Absent => None,
    }
}

/// Whether a smaller sequence shows the cause of the key. The tried value may turn out not to be part of the cause.
pub(crate) fn is_same(seen: &Key, wanted: &Key, sequence: &Sequence, difference: &Difference) -> bool {
    let lost = sequence.requests.get(difference.at).is_some_and(|request| request.trial().is_none());
    let is_same_look = seen.shape.is_subset(&wanted.shape);
    seen.subject == wanted.subject && is_same_look && (lost || is_part(&seen.class, &wanted.class))
}

/// Whether the class names what was tried. Otherwise only the smallest sequence shows the cause.
pub(crate) fn is_certain(key: &Key) -> bool {
    !key.class.is_empty() && !key.class.starts_with(OTHER)
}

fn is_part(seen: &str, wanted: &str) -> bool {
    let parts = |class: &str| class.split(", ").map(str::to_owned).collect::<BTreeSet<_>>();
    parts(seen).is_subset(&parts(wanted))
}

#[cfg(test)]
mod tests {
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
    fn key_has_the_look_of_the_difference() {
        let sequence = Sequence { requests: vec![trying(Verb::Apply, "1e30")], ..Sequence::default() };
        let of = |left: (u16, &str), right: (u16, &str)| {
            let answer = |(status, text): (u16, &str)| {
                let body = Content::Document(Document::parse(text).unwrap());
                Answer { status, headers: Vec::new(), body }
            };
            let (left, right) = (answer(left), answer(right));
            key(&sequence, &Difference { at: 0, changes: Vec::new(), left, right, stored: None }).shape
        };
        let seen = |shape: &BTreeSet<String>| shape.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let object = |number: i8| format!(r#"{{"spec":{{"n":{number}}}}}"#);
        let [zero, minus_one, five, seven] = [0, -1, 5, 7].map(object);
        assert_eq!(seen(&of((200, zero.as_str()), (200, minus_one.as_str()))), "0 and -1, answer/answer");
        assert_eq!(seen(&of((200, five.as_str()), (200, seven.as_str()))), "answer/answer, other");
        assert_eq!(seen(&of((STORED, zero.as_str()), (STORED, minus_one.as_str()))), "0 and -1, stored/stored");
        let refused = r#"{"message":"spec.n: Invalid value: -1: must not be negative"}"#;
        assert_eq!(seen(&of((200, zero.as_str()), (422, refused))), "answer/error, text with -1");
    }

    #[test]
    fn cause_of_a_read_is_the_last_tried_value() {
        let read = Request::new(Verb::Get, "/a");
        let requests = vec![trying(Verb::Apply, "10"), trying(Verb::Apply, "3.5"), read];
        let sequence = Sequence { requests, ..Sequence::default() };
        assert_eq!(cause(&sequence, &difference(2)), Some(1));
        assert_eq!(key(&sequence, &difference(2)).class, "integer int32, fraction");
    }

    #[test]
    fn other_number_beyond_every_range_is_a_class() {
        let mut request = trying(Verb::Apply, "0.0");
        let numbers = [("n", Document::Number("0.0".into())), ("m", Document::Number("1e20".into()))];
        request.body = Some(Document::object(numbers));
        let sequence = Sequence { requests: vec![request], ..Sequence::default() };
        let key = key(&sequence, &difference(0));
        assert_eq!(key.class, "another number, beyond 64 bits");
        assert!(!is_certain(&key));
    }

    #[test]
    fn table_differs_in_the_types_of_its_columns() {
        let table = |cell: &str| {
            let columns = r#"[{"type":"string"},{"type":"integer"},{"type":"boolean"}]"#;
            let rows = format!(r#"[{{"cells":["a",1,true]}},{{"cells":["b",{cell},false]}}]"#);
            let text = format!(r#"{{"columnDefinitions":{columns},"rows":{rows}}}"#);
            Content::Document(Document::parse(&text).unwrap())
        };
        let of = |left: &str, right: &str| columns(&table(left), &table(right));
        assert_eq!(of("-9223372036854775808", "9223372036854775807"), "column integer, limit of 64 bits");
        assert_eq!(of("1", "2"), "column integer");
        assert_eq!(of("1", "1"), "");
    }

    #[test]
    fn keyword_is_the_one_of_the_message_that_only_one_side_has() {
        let body = |messages: &[&str]| {
            let causes = messages.iter().map(|message| Document::object([("message", Document::text(*message))]));
            let details = Document::object([("causes", Document::List(causes.collect()))]);
            Content::Document(Document::object([("details", details)]))
        };
        let both = "Invalid value: 0: factor MultipleOf declared for spec.g must be positive: 0";
        let mut difference = difference(0);
        difference.left.body = body(&[both, "spec.g in body should be less than or equal to -5"]);
        difference.right.body = body(&[both]);
        let messages = messages_of_one_side(&difference);
        let named = |keyword| messages.iter().any(|message| names(message, keyword));
        assert!(named("maximum beyond int64"));
        assert!(!named("multipleOf with fraction"));
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
