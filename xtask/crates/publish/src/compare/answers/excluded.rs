//! Which answers timing may change, by kind of request, with the reason.

use model::RecordedAnswer;

pub(super) const ALONE: &str = "only one run sent the request so often: the client repeats it until a condition holds";
pub(super) const POLL: &str = "the client repeats a read while it waits; the last answer is compared";
pub(super) const CONTENDED: &str = "several clients write to the collection at the same time";
pub(super) const EARLIER_ATTEMPT: &str = "an overloaded server ended the attempt at the case";
pub(super) const SHARED: &str = "the collection also contains objects of other cases, which run at the same time";
const AT_ZERO: &str = "a read at resource version 0 is answered with any state that a cache has";
const NOT_OLDER: &str = "a read at a resource version without an exact match is answered with any later state";
const BINARY: &str = "the body is compressed, or in a binary format that is not decoded";
const VERSION_IN_LABEL: &str = "a label of the object contains a resource version";
const METRICS: &str = "metrics count the requests of all clients";
const RANDOM_WRITES: &str = "random writes go on until a watch has begun, so the last state depends on time";
const SNAPSHOT: &str = "a cache serves a compacted revision until it looks, every 15 s, what was compacted";
const OVERLOAD: &str = "the server's own time-out or overload answer";

/// Answers with such a status depend on the load of the server. A check about them asserts them.
const OVERLOADED: [u16; 3] = [429, 503, 504];

/// A kind of request.
struct Kind {
    /// The beginning of the check's id; empty for all.
    check: &'static str,
    /// The beginning of the request, without its media type; empty for all.
    request: &'static str,
    reason: &'static str,
}

const LONG_AS_ITS_VERSION: &str =
    "an object is filled up to the limit of compression, and the digits of its resource version count";

const KINDS: &[Kind] = &[
    Kind {
        check: "cc.delete-preconditions",
        request: "",
        reason: "deletions of one object race with its updates and with each other",
    },
    Kind {
        check: "cc.noop-write",
        request: "PATCH application/apply-patch+yaml",
        reason: "an apply that creates an object is answered 200 if a slow store made the server repeat its write",
    },
    Kind {
        check: "cc.delete-semantics",
        request: "",
        reason: "deletions race with patches of the same object, and with each other",
    },
    Kind {
        check: "cc.finalizer-two-phase",
        request: "",
        reason: "removals of a finalizer race with deletions of the same object",
    },
    Kind {
        check: "storage.gvr-sweep",
        request: "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        reason: "the order of rules follows from a map",
    },
    Kind { check: "storage.arch-derived-names", request: "DELETE", reason: "the names of events contain the time" },
    Kind {
        check: "storage.arch-derived-names",
        request: "GET /apis/batch/v1/",
        reason: "the name of a CronJob's Job contains the hour of the run",
    },
    Kind {
        check: "storage.svm",
        request: "GET /apis/storagemigration.k8s.io/",
        reason: "one controller reports success, and another one ends the condition `Running` later",
    },
    Kind { check: "storage.encryption-wrong-key", request: "GET", reason: VERSION_IN_LABEL },
    Kind { check: "storage.encryption-wrong-key", request: "DELETE", reason: VERSION_IN_LABEL },
    Kind { check: "watch.expired-410", request: "GET", reason: VERSION_IN_LABEL },
    Kind { check: "watch.expired-410", request: "WATCH", reason: VERSION_IN_LABEL },
    Kind { check: "watch.websocket", request: "GET", reason: RANDOM_WRITES },
    Kind { check: "watch.websocket", request: "WATCH", reason: RANDOM_WRITES },
    Kind { check: "watch.", request: "DELETE", reason: RANDOM_WRITES },
    Kind { check: "watch.watchlist", request: "", reason: RANDOM_WRITES },
    Kind { check: "watch.bookmark", request: "", reason: RANDOM_WRITES },
    Kind { check: "watch.from-zero-or-unset", request: "GET", reason: RANDOM_WRITES },
    Kind { check: "cc.no-lost-update", request: "", reason: "clients contend for one object" },
    Kind {
        check: "watch.atomic-list-then-watch",
        request: "",
        reason: "writes go on while the list and the watch begin",
    },
    Kind { check: "watch.from-zero-or-unset", request: "WATCH", reason: "writes go on while the watch begins" },
    Kind { check: "fault.", request: "", reason: "a fault meets the requests of a case at another moment in each run" },
    Kind { check: "apf.", request: "", reason: "time decides which requests of a burst are refused" },
    Kind {
        check: "storage.admission-mutation",
        request: "POST /apis/admissionregistration.k8s.io/",
        reason: "the configuration of a webhook has the port and the CA of its run",
    },
    Kind { check: "storage.admission-mutation", request: "PATCH", reason: "patches race while the webhook is slow" },
    Kind {
        check: "storage.crd-conversion-webhook",
        request: "",
        reason: "the definition has the port and the CA of its run, and time decides when its change takes effect",
    },
    Kind {
        check: "stress.",
        request: "",
        reason: "a workload of a fixed time sends as many requests as the machine can serve",
    },
    Kind { check: "list.rv-zero", request: "GET", reason: "pages continue a list at resource version 0" },
    Kind { check: "", request: "GET /metrics", reason: METRICS },
    Kind {
        check: "storage.create-txn",
        request: "POST",
        reason: "concurrent creates of one name: any of them may succeed",
    },
    Kind { check: "storage.create-txn", request: "DELETE", reason: "shows which of concurrent creates has succeeded" },
    Kind {
        check: "rv.get-not-older",
        request: "",
        reason: "the client writes until the cache lags, with a random number each time",
    },
    Kind {
        check: "rv.future-watch",
        request: "",
        reason: "the number of writes depends on the time that the watches take to begin",
    },
    Kind { check: "list.exact-410", request: "GET", reason: SNAPSHOT },
    Kind { check: "list.continue-expired", request: "GET", reason: SNAPSHOT },
    Kind { check: "list.snapshot-compacted", request: "GET", reason: SNAPSHOT },
    Kind { check: "list.gzip", request: "GET", reason: LONG_AS_ITS_VERSION },
    Kind { check: "list.gzip", request: "DELETE", reason: LONG_AS_ITS_VERSION },
    Kind {
        check: "watch.cr-full",
        request: "POST",
        reason: "a new schema is served some time after the definition was changed",
    },
    Kind {
        check: "storage.compaction-retention",
        request: "",
        reason: "random writes go on until a revision is compacted, so every state depends on time",
    },
    Kind { check: "storage.generate-name", request: "DELETE", reason: "the list is sorted by random names" },
];

/// Why timing may change this answer.
pub(super) fn reason(answer: &RecordedAnswer, content: &str) -> Option<&'static str> {
    if OVERLOADED.contains(&answer.status)
        || answer.status == 500 && content.contains("etcdserver: ")
        || content.contains("\"retryAfterSeconds\"")
    {
        return Some(OVERLOAD);
    }
    let read_at = |version: &str| answer.request.starts_with("GET ") && parameters(answer).any(|pair| pair == version);
    if read_at("resourceVersion=0") {
        return Some(AT_ZERO);
    }
    if read_at("resourceVersion=*") && !parameters(answer).any(|pair| pair == "resourceVersionMatch=Exact") {
        return Some(NOT_OLDER);
    }
    if content.split_once(" bytes, SHA-256 ").is_some_and(|(size, _)| size.bytes().all(|b| b.is_ascii_digit())) {
        return Some(BINARY);
    }
    let kind = KINDS.iter().find(|kind| kind.covers(answer));
    kind.map(|kind| kind.reason)
}

/// The parameters of the request's query, `name=value`.
fn parameters(answer: &RecordedAnswer) -> impl Iterator<Item = &str> {
    let query = answer.request.split_once('?').map_or("", |(_, query)| query);
    query.split(' ').next().unwrap_or_default().split('&')
}

impl Kind {
    fn covers(&self, answer: &RecordedAnswer) -> bool {
        answer.client.starts_with(self.check) && answer.request.starts_with(self.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_any_state_and_overload_are_not_compared() {
        let of = |request: &str, status| {
            let (client, request) = ("c.a".to_owned(), request.to_owned());
            reason(&RecordedAnswer { client, request, status, ..RecordedAnswer::default() }, "")
        };
        for (request, status, expected) in [
            ("GET /api/v1/namespaces/n/secrets?limit=1&resourceVersion=0", 200, Some(AT_ZERO)),
            ("GET /api/v1/namespaces/n/secrets/a?resourceVersion=*", 200, Some(NOT_OLDER)),
            ("GET /api/v1/namespaces/n/secrets?resourceVersion=*&resourceVersionMatch=Exact", 200, None),
            ("WATCH /api/v1/namespaces/n/secrets?watch=true&resourceVersion=* ADDED a", 200, None),
            ("GET /api/v1/namespaces/n/secrets", 429, Some(OVERLOAD)),
            ("GET /api/v1/namespaces/n/secrets", 500, None),
            ("GET /metrics", 200, Some(METRICS)),
        ] {
            assert_eq!(of(request, status), expected, "{request}");
        }
    }

    #[test]
    fn each_kind_has_a_reason_and_names_a_check() {
        for kind in KINDS {
            assert!(!kind.reason.is_empty() && (kind.check, kind.request) != ("", ""));
            assert!(checks::all().any(|check| check.id.starts_with(kind.check)), "{}", kind.check);
        }
    }
}
