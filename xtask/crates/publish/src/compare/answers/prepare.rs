//! The recorded answers of one profile, without those that timing may change.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::RecordedAnswer;

use super::{Shown, excluded};

/// Answers with the same key are compared in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key<'a> {
    pub(super) client: &'a str,
    pub(super) request: &'a str,
    sent: &'a str,
    accept: &'a str,
}

/// One profile of one run.
pub(super) struct Prepared<'a> {
    pub(super) answers: BTreeMap<Key<'a>, Vec<&'a RecordedAnswer>>,
    /// The number of answers that are not compared, by reason.
    pub(super) excluded: BTreeMap<&'static str, usize>,
    /// By digest.
    contents: HashMap<&'a str, &'a str>,
}

impl<'a> Prepared<'a> {
    pub(super) fn of(recorded: &'a [RecordedAnswer]) -> Prepared<'a> {
        let contents = recorded.iter().filter_map(|answer| Some((answer.digest.as_str(), answer.content.as_deref()?)));
        let mut prepared =
            Prepared { answers: BTreeMap::new(), excluded: BTreeMap::new(), contents: contents.collect() };
        let (contended, attempts) = (contended(recorded), last_attempts(recorded));
        let mut last: HashMap<&str, Key<'a>> = HashMap::new();
        for answer in recorded {
            let key = Key::of(answer);
            // Also a request that is not compared ends a series of equal reads.
            let repeats = last.insert(key.client, key) == Some(key) && is_read(answer);
            let reason = if attempts.get(case(answer)) != Some(&answer.attempt) {
                Some(excluded::EARLIER_ATTEMPT)
            } else if contended.contains(&(case(answer), collection(answer))) {
                Some(excluded::CONTENDED)
            } else if is_shared(answer) {
                Some(excluded::SHARED)
            } else {
                excluded::reason(answer, prepared.content(answer).unwrap_or_default())
            };
            match reason {
                Some(reason) => prepared.exclude(reason),
                None => prepared.add(key, answer, repeats),
            }
        }
        prepared
    }

    fn add(&mut self, key: Key<'a>, answer: &'a RecordedAnswer, repeats: bool) {
        let answers = self.answers.entry(key).or_default();
        let before = if repeats { answers.pop() } else { None };
        answers.push(answer);
        if before.is_some() {
            self.exclude(excluded::POLL);
        }
    }

    fn exclude(&mut self, reason: &'static str) {
        *self.excluded.entry(reason).or_default() += 1;
    }

    fn content(&self, answer: &RecordedAnswer) -> Option<&'a str> {
        self.contents.get(answer.digest.as_str()).copied()
    }

    pub(super) fn shown(&self, answer: &RecordedAnswer) -> Shown {
        let content = self.content(answer).map(str::to_owned);
        Shown { status: answer.status, headers: answer.headers.clone(), digest: answer.digest.clone(), content }
    }
}

impl<'a> Key<'a> {
    fn of(answer: &'a RecordedAnswer) -> Key<'a> {
        let RecordedAnswer { client, request, sent, accept, .. } = answer;
        Key { client, request, sent, accept }
    }
}

fn case(answer: &RecordedAnswer) -> &str {
    answer.client.split('/').next().unwrap_or_default()
}

fn is_read(answer: &RecordedAnswer) -> bool {
    answer.request.starts_with("GET ")
}

/// The path of the request without query, and without the name of an object if it writes to one.
fn collection(answer: &RecordedAnswer) -> &str {
    let path = answer.request.find(" /").map_or("", |at| &answer.request[at + 1..]);
    let path = path.split(['?', ' ']).next().unwrap_or_default();
    // `/api/v1/namespaces/NS/configmaps/NAME`, `/apis/GROUP/VERSION/namespaces/NS/PLURAL/NAME/SUBRESOURCE`.
    let parts = if path.starts_with("/api/") { 3 } else { 4 };
    let namespaced = path.split('/').nth(parts) == Some("namespaces") && path.split('/').nth(parts + 2).is_some();
    let end = if namespaced { parts + 2 } else { parts };
    match path.match_indices('/').nth(end) {
        Some((at, _)) => &path[..at],
        None => path,
    }
}

/// Whether the request lists or watches a collection of all namespaces, or of objects without a namespace. Other cases do
/// not create custom resources of this case's group.
fn is_shared(answer: &RecordedAnswer) -> bool {
    let path = answer.request.find(" /").map_or("", |at| &answer.request[at + 1..]);
    let path = path.split(['?', ' ']).next().unwrap_or_default();
    let depth = path.matches('/').count();
    let is_collection = path.starts_with("/api/v1/") && depth == 3 || path.starts_with("/apis/") && depth == 4;
    let reads = is_read(answer) || answer.request.starts_with("WATCH ");
    // Discovery and schemas contain the groups of custom resources of other cases.
    let is_common = path == "/apis" || path.starts_with("/openapi/");
    reads && (is_common || is_collection && !path.starts_with("/apis/ap-"))
}

/// Collections into which several clients of one case write.
fn contended(recorded: &[RecordedAnswer]) -> BTreeSet<(&str, &str)> {
    let mut writers: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for answer in recorded.iter().filter(|answer| !is_read(answer) && !answer.request.starts_with("WATCH ")) {
        writers.entry((case(answer), collection(answer))).or_default().insert(&answer.client);
    }
    writers.into_iter().filter(|(_, clients)| clients.len() > 1).map(|(collection, _)| collection).collect()
}

/// The last attempt at each case.
fn last_attempts(recorded: &[RecordedAnswer]) -> BTreeMap<&str, u32> {
    let mut attempts = BTreeMap::new();
    for answer in recorded {
        let last: &mut u32 = attempts.entry(case(answer)).or_default();
        *last = answer.attempt.max(*last);
    }
    attempts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(client: &str, request: &str, digest: &str) -> RecordedAnswer {
        RecordedAnswer {
            client: client.into(),
            request: request.into(),
            status: 200,
            digest: digest.into(),
            ..RecordedAnswer::default()
        }
    }

    fn digests(recorded: &[RecordedAnswer]) -> Vec<String> {
        Prepared::of(recorded).answers.into_values().flatten().map(|answer| answer.digest.clone()).collect()
    }

    #[test]
    fn only_the_last_of_repeated_reads_is_compared() {
        let get = |digest| answer("c.a", "GET /api/v1/namespaces/n/secrets/a", digest);
        let put = answer("c.a", "PUT /api/v1/namespaces/n/secrets/a", "put");
        let recorded = [get("1"), get("2"), put, get("3")];
        assert_eq!(digests(&recorded), ["2", "3", "put"]);
        assert_eq!(Prepared::of(&recorded).excluded[excluded::POLL], 1);
    }

    #[test]
    fn collection_of_several_writers_is_not_compared() {
        let put = |client, plural| answer(client, &format!("PUT /api/v1/namespaces/n/{plural}/a"), plural);
        let read = answer("c.a/r", "GET /api/v1/namespaces/n/secrets?limit=1", "list");
        let recorded = [put("c.a/1", "secrets"), put("c.a/2", "secrets"), put("c.a/1", "events"), read];
        assert_eq!(digests(&recorded), ["events"]);
    }

    #[test]
    fn collection_is_found_in_all_paths() {
        for (request, expected) in [
            ("GET /api/v1/nodes/a/status", "/api/v1/nodes"),
            ("POST /api/v1/namespaces", "/api/v1/namespaces"),
            ("DELETE /api/v1/namespaces/n", "/api/v1/namespaces"),
            ("GET /api/v1/namespaces/n/secrets?limit=1", "/api/v1/namespaces/n/secrets"),
            ("PATCH application/x /apis/g/v1/namespaces/n/plural/a/status", "/apis/g/v1/namespaces/n/plural"),
            ("WATCH /apis/g/v1/plural?watch=true ADDED a", "/apis/g/v1/plural"),
            ("GET /version", "/version"),
        ] {
            assert_eq!(collection(&answer("c", request, "")), expected, "{request}");
        }
    }

    #[test]
    fn list_of_all_namespaces_is_not_compared() {
        for (request, shared) in [
            ("GET /api/v1/configmaps?resourceVersion=0", true),
            ("WATCH /apis/apps/v1/deployments?watch=true ADDED a", true),
            ("GET /apis/ap-list-order-abcde.example.org/v1/fruits", false),
            ("GET /api/v1/namespaces/n/configmaps", false),
            ("GET /api/v1/nodes/a", false),
            ("POST /api/v1/namespaces", false),
            ("GET /apis/apps/v1", false),
            ("GET /apis", true),
        ] {
            assert_eq!(is_shared(&answer("c", request, "")), shared, "{request}");
        }
    }

    #[test]
    fn earlier_attempt_is_not_compared() {
        let first = answer("c.a", "GET /api/v1/nodes/a", "1");
        let second = RecordedAnswer { attempt: 1, digest: "2".into(), ..first.clone() };
        assert_eq!(digests(&[first, second]), ["2"]);
    }
}
