//! Makes a differing sequence small: fewer requests, parameters and members, as long as the key stays the same.

use super::finding::{is_same, key};
use super::play::{Difference, Sides, Verdict};
use super::request::{Names, Request, Sequence, Verb};
use crate::group::Key;
use crate::shrink::{spans, without_parts};

/// Runs for one finding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Runs of smaller sequences.
    runs: usize,
    /// Runs of the result that must all show the difference.
    confirmations: usize,
}

impl Effort {
    /// For a new group.
    pub(crate) const SMALLEST: Effort = Effort { runs: 120, confirmations: 6 };
    /// For the self-test, which asks only whether there is a difference.
    pub(crate) const CERTAIN: Effort = Effort { runs: 0, confirmations: 6 };
    /// For a group that is known.
    pub(crate) const KNOWN: Effort = Effort { runs: 0, confirmations: 0 };
}

/// A source of names that no other run uses.
pub(crate) trait NewNames {
    /// Whether the time of the search is over: the result may then stay larger.
    fn is_late(&self) -> bool;
    fn new_names(&self) -> Names;
}

/// The smallest sequence that was found in `most` runs, with its difference. None if a run of the sequence alone does not
/// repeat the difference.
pub(crate) async fn shrink(
    sides: &Sides,
    sequence: &Sequence,
    wanted: &Key,
    names: &impl NewNames,
    effort: Effort,
) -> anyhow::Result<Option<(Sequence, Difference)>> {
    let again = async |candidate: &Sequence| -> anyhow::Result<Option<Difference>> {
        let played = sides.play(candidate, &names.new_names()).await?;
        Ok(match played.verdict {
            Verdict::Different(difference) => {
                let seen = key(candidate, &difference);
                is_same(&seen, wanted, candidate, &difference).then_some(difference)
            }
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
    let mut tried = Vec::new();
    'smaller: loop {
        for candidate in smaller(&best, difference.at) {
            if runs > effort.runs || names.is_late() {
                break 'smaller;
            }
            if tried.contains(&candidate) {
                continue;
            }
            tried.push(candidate.clone());
            runs += 1;
            match again(&candidate).await {
                Ok(Some(found)) => (best, difference) = (candidate, found),
                Ok(None) => continue,
                // The difference is found, also if a connection breaks while it is made smaller.
                Err(_) => break 'smaller,
            }
            continue 'smaller;
        }
        break;
    }
    // The order of a map in Go changes from run to run, and in a quarter of the runs both references have the same order
    // and the side under test the other one.
    for _ in 0..effort.confirmations {
        if again(&best).await?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some((best, difference)))
}

/// Sequences with one part less, those that lose most first.
pub(crate) fn smaller(sequence: &Sequence, at: usize) -> Vec<Sequence> {
    let mut found = Vec::new();
    // The last deletions remove what the other requests made.
    let deletes = |request: &Request| request.verb == Verb::Delete;
    let needless = (at + 1..sequence.requests.len()).filter(|index| !deletes(&sequence.requests[*index]));
    if needless.count() > 0 {
        let mut shorter = sequence.clone();
        let mut rest = shorter.requests.split_off(at + 1);
        rest.retain(deletes);
        shorter.requests.extend(rest);
        found.push(shorter);
    }
    let total = sequence.requests.len();
    let removable: Vec<usize> =
        (0..total).filter(|index| *index < at || *index > at && !deletes(&sequence.requests[*index])).collect();
    for (from, to) in spans(removable.len()) {
        let removed = &removable[from..to];
        let kept = sequence.requests.iter().enumerate().filter(|(index, _)| !removed.contains(index));
        found.push(Sequence { requests: kept.map(|(_, request)| request.clone()).collect(), ..sequence.clone() });
    }
    for (index, request) in sequence.requests.iter().enumerate() {
        found.extend(simpler(request).into_iter().map(|request| {
            let mut sequence = sequence.clone();
            sequence.requests[index] = request;
            sequence
        }));
    }
    found
}

/// The request with fewer parameters, without a part of its body, or with the body as JSON.
fn simpler(request: &Request) -> Vec<Request> {
    let mut found = Vec::new();
    for parameter in request.query.split('&').filter(|parameter| !parameter.is_empty()) {
        let others: Vec<&str> = request.query.split('&').filter(|other| *other != parameter).collect();
        found.push(Request { query: others.join("&"), ..request.clone() });
    }
    if request.body.is_some() && request.content_type != request.verb.media_type() {
        found.push(Request { content_type: request.verb.media_type(), ..request.clone() });
    }
    let bodies = request.body.as_ref().map(without_parts).unwrap_or_default();
    found.extend(bodies.into_iter().map(|body| Request { body: Some(body), ..request.clone() }));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    #[test]
    fn differing_request_stays() {
        let requests =
            vec![Request::new(Verb::Create, "/a"), Request::new(Verb::Apply, "/b"), Request::new(Verb::Get, "/c")];
        let sequence = Sequence { requests, ..Sequence::default() };
        let smaller = smaller(&sequence, 1);
        assert!(smaller.iter().all(|sequence| sequence.requests.iter().any(|request| request.path == "/b")));
        assert_eq!(smaller[0].requests.len(), 2);
    }

    #[test]
    fn last_deletions_stay() {
        let requests =
            vec![Request::new(Verb::Create, "/a"), Request::new(Verb::Get, "/a"), Request::new(Verb::Delete, "/a/b")];
        let sequence = Sequence { requests, ..Sequence::default() };
        let smaller = smaller(&sequence, 0);
        assert!(smaller.iter().all(|sequence| sequence.requests.iter().any(|request| request.verb == Verb::Delete)));
    }

    #[test]
    fn body_becomes_json() {
        let mut request = Request::new(Verb::Create, "/a").body(Document::Object(Vec::new()));
        request.content_type = "application/yaml";
        let media: Vec<&str> = simpler(&request).iter().map(|request| request.content_type).collect();
        assert_eq!(media, ["application/json"]);
    }
}
