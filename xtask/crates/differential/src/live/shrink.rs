//! Makes a differing sequence small: fewer requests, parameters and members, as long as the key stays the same.

use super::finding::key;
use super::json::Document;
use super::play::{Difference, Sides, Verdict};
use super::request::{Names, Sequence, Verb};
use crate::group::Key;

/// Runs of the sequence for one finding.
const RUNS: usize = 150;

/// Runs of the result that must all show the difference.
const CONFIRMATIONS: usize = 6;

/// A source of names that no other run uses.
pub(crate) trait NewNames {
    /// Whether the time of the search is over: the result may then stay larger.
    fn is_late(&self) -> bool;
    fn new_names(&self) -> Names;
}

/// The smallest sequence that was found, with its difference. None if a run of the sequence alone does not repeat the
/// difference.
pub(crate) async fn shrink(
    sides: &Sides,
    sequence: &Sequence,
    wanted: &Key,
    names: &impl NewNames,
) -> anyhow::Result<Option<(Sequence, Difference)>> {
    let again = async |candidate: &Sequence| -> anyhow::Result<Option<Difference>> {
        let played = sides.play(candidate, &names.new_names()).await?;
        Ok(match played.verdict {
            Verdict::Different(difference) if key(candidate, &difference) == *wanted => Some(difference),
            _ => None,
        })
    };
    let Some(mut difference) = again(sequence).await? else { return Ok(None) };
    // Shrinking costs many runs: most sequences that do not repeat end here.
    if again(sequence).await?.is_none() {
        return Ok(None);
    }
    let mut best = sequence.clone();
    let mut runs = 1;
    'smaller: loop {
        for candidate in smaller(&best, difference.at) {
            if runs >= RUNS || names.is_late() {
                break 'smaller;
            }
            runs += 1;
            if let Some(found) = again(&candidate).await? {
                (best, difference) = (candidate, found);
                continue 'smaller;
            }
        }
        break;
    }
    // The order of a map in Go changes from run to run, and in a quarter of the runs both references have the same order
    // and the side under test the other one.
    for _ in 0..CONFIRMATIONS {
        if again(&best).await?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some((best, difference)))
}

/// Sequences with one part less, those that lose most first.
pub(crate) fn smaller(sequence: &Sequence, at: usize) -> Vec<Sequence> {
    let mut found = Vec::new();
    // A difference of stored values shows before the last deletion.
    let last = sequence.requests.get(at).is_some_and(|request| request.verb == Verb::Delete);
    if !last && at + 1 < sequence.requests.len() {
        let mut shorter = sequence.clone();
        shorter.requests.truncate(at + 1);
        found.push(shorter);
    }
    for index in (0..sequence.requests.len()).rev().filter(|index| *index != at) {
        let mut shorter = sequence.clone();
        shorter.requests.remove(index);
        found.push(shorter);
    }
    for (index, request) in sequence.requests.iter().enumerate() {
        for parameter in request.query.split('&').filter(|parameter| !parameter.is_empty()) {
            let others: Vec<&str> = request.query.split('&').filter(|other| *other != parameter).collect();
            let mut simpler = sequence.clone();
            simpler.requests[index].query = others.join("&");
            found.push(simpler);
        }
        let bodies = request.body.as_ref().map(without_a_part).unwrap_or_default();
        for body in bodies {
            let mut simpler = sequence.clone();
            simpler.requests[index].body = Some(body);
            found.push(simpler);
        }
    }
    found
}

/// The document without one member or item, at any depth; outer ones first.
fn without_a_part(document: &Document) -> Vec<Document> {
    let mut found = Vec::new();
    match document {
        Document::Object(members) => {
            for index in 0..members.len() {
                let mut fewer = members.clone();
                fewer.remove(index);
                found.push(Document::Object(fewer));
            }
            for (index, (_, value)) in members.iter().enumerate() {
                found.extend(without_a_part(value).into_iter().map(|smaller| {
                    let mut members = members.clone();
                    members[index].1 = smaller;
                    Document::Object(members)
                }));
            }
        }
        Document::List(items) => {
            for index in 0..items.len() {
                let mut fewer = items.clone();
                fewer.remove(index);
                found.push(Document::List(fewer));
            }
            for (index, item) in items.iter().enumerate() {
                found.extend(without_a_part(item).into_iter().map(|smaller| {
                    let mut items = items.clone();
                    items[index] = smaller;
                    Document::List(items)
                }));
            }
        }
        Document::Text(text) if text.len() > 40 => {
            let half: String = text.chars().take(text.chars().count() / 2).collect();
            found.push(Document::Text(half));
        }
        _ => {}
    }
    found.sort_by_key(Document::size);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::request::Request;

    #[test]
    fn every_part_can_be_dropped() {
        let body = Document::parse(br#"{"a":{"b":1,"c":[1,2]}}"#).unwrap();
        let texts: Vec<String> = without_a_part(&body).iter().map(Document::to_string).collect();
        for expected in ["{}", r#"{"a":{"c":[1,2]}}"#, r#"{"a":{"b":1}}"#, r#"{"a":{"b":1,"c":[2]}}"#] {
            assert!(texts.contains(&expected.to_owned()), "{expected} is not in {texts:?}");
        }
    }

    #[test]
    fn differing_request_stays() {
        let requests =
            vec![Request::new(Verb::Create, "/a"), Request::new(Verb::Apply, "/b"), Request::new(Verb::Get, "/c")];
        let sequence = Sequence { resource: "r".into(), requests, keys: Vec::new(), settles: None };
        let smaller = smaller(&sequence, 1);
        assert!(smaller.iter().all(|sequence| sequence.requests.iter().any(|request| request.path == "/b")));
        assert_eq!(smaller[0].requests.len(), 2);
    }
}
