//! Answers by which a server reports its own time-out or overload.
//!
//! Such an answer says nothing about a requirement: an emulated apiserver on a busy machine answers 504 to a request
//! that a faster one answers as promised. A check that compares the status with the expected one would accuse it, so
//! the client turns these answers into errors before a check sees them, and the case is `errored` (exit 102), never
//! passed, failed or skipped. A check about just these answers asks for them with [`AcceptOverload::accept`].

use serde_json::Value;

use super::{Request, Response};

/// All statuses of [`is_overload`], for requests whose time-out is part of the test.
pub const ANY: &[u16] = &[429, 500, 502, 503, 504];

/// The cause of a 429 that is not an overload: a PodDisruptionBudget forbids an eviction
/// (pkg/registry/core/pod/storage, `CreateDisruptionBudgetFailedMessage`).
const BUDGET: &str = "DisruptionBudget";

/// The message and the cause of the 504 that an apiserver promises for a resource version that it has not reached
/// (apiserver pkg/storage/errors.go, `NewTooLargeResourceVersionError`). One of them is enough: a check must see an
/// answer in which only the other one is wrong.
const TOO_LARGE: [&str; 2] = ["Too large resource version", "ResourceVersionTooLarge"];

/// The texts in an apiserver's 500 when its store did not answer in time.
///
/// `storeerr.InterpretGetError` and its siblings (apiserver pkg/storage/errors/storage.go) do not handle errors of
/// etcd's client, and `ErrorToAPIStatus` (pkg/endpoints/handlers/responsewriters/status.go) turns every unknown error
/// into a 500 with the error's text as message. A watch wraps the same text in InternalError
/// (pkg/storage/etcd3/watcher.go, `transformErrorToEvent`). The texts are those of etcd's errors with the code
/// Unavailable, which asks the client to try again, and of the two about load (etcd api/v3/v3rpc/rpctypes/error.go).
///
/// Excluded, because they report the state of the data and not the load: `database space exceeded`, `compacted`,
/// `future revision`, `corrupt cluster`, and failures of the transformers.
pub(crate) const STORE_LATE: [&str; 8] = [
    // Four errors begin like this: for a slow disk, a lost leader, a lost connection, and a late applied index.
    "etcdserver: request timed out",
    "etcdserver: leader changed",
    "etcdserver: no leader",
    "etcdserver: server stopped",
    "etcdserver: too many requests",
    // The error of the request's context, which etcd's client prefers to the error of the call (client/v3,
    // `ContextError`).
    "context deadline exceeded",
    // The connection between apiserver and store, as gRPC's client reports it.
    "rpc error: code = Unavailable",
    // `NewServerTimeout`, reason ServerTimeout: the store could not be reached.
    "could not be completed at this time, please try again",
];

/// Whether a server refuses a resource version that its store has, or that the client has not asked for: its watch cache
/// has not caught up. A server whose load delays the cache for more than 3 s answers so, also to a watch without
/// `resourceVersion`, for which it chooses the version itself. A client is to ask again.
///
/// `query` is that of the request, `newest` a revision that the store has reached; 0 if it is not known.
fn is_late(query: &str, newest: i64, answer: &[u8]) -> bool {
    let Some(refused) = refused_version(answer) else { return false };
    asked_version(query) != Some(refused) || refused <= newest.cast_unsigned()
}

/// The resource version that an answer calls too large, in any encoding of its Status. The cause in `details` has the same
/// text without the version; in JSON with sorted keys it comes first.
fn refused_version(answer: &[u8]) -> Option<u64> {
    let head = TOO_LARGE[0].as_bytes();
    let after = answer.windows(head.len()).enumerate().filter(|(_, window)| *window == head);
    after.map(|(at, _)| &answer[at + head.len()..]).find_map(|rest| {
        let rest = rest.strip_prefix(b": ")?;
        let end = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
    })
}

fn asked_version(query: &str) -> Option<u64> {
    query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).and_then(|version| version.parse().ok())
}

/// An overload answer to a request.
#[derive(Debug)]
pub(crate) struct Overload {
    /// The request or the stream.
    asked: String,
    answer: Response,
}

impl std::error::Error for Overload {}

impl std::fmt::Display for Overload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} was not served: the server reported a time-out or overload, {}; repeat the run with less load on the \
             machine",
            self.asked, self.answer
        )
    }
}

/// Returns the answer unless the server reports its own time-out or overload with it.
pub(crate) fn refuse(asked: impl ToString, answer: Response) -> anyhow::Result<Response> {
    if is_overload(answer.status, &answer.body) {
        return Err(Overload { asked: asked.to_string(), answer }.into());
    }
    Ok(answer)
}

/// Like [`refuse`], and also refuses the answer of a late cache, see [`is_late`].
pub(crate) fn refuse_late(request: &Request, newest: i64, answer: Response) -> anyhow::Result<Response> {
    if answer.status == 504 && is_late(&request.query, newest, &answer.body) {
        return Err(Overload { asked: request.to_string(), answer }.into());
    }
    refuse(request, answer)
}

/// Like [`refuse_late`], for the Status in an ERROR event of a watch with this query.
pub fn refuse_late_error(
    asked: impl ToString,
    query: &str,
    newest: i64,
    status: u16,
    body: &[u8],
) -> anyhow::Result<()> {
    if status == 504 && is_late(query, newest, body) {
        return Err(Overload { asked: asked.to_string(), answer: bare(status, body) }.into());
    }
    refuse_raw(asked, status, body)
}

/// Like [`refuse`], for an answer of which only status and body are known.
pub fn refuse_raw(asked: impl ToString, status: u16, body: &[u8]) -> anyhow::Result<()> {
    refuse(asked, bare(status, body)).map(drop)
}

fn bare(status: u16, body: &[u8]) -> Response {
    Response { status, headers: http::HeaderMap::new(), body: bytes::Bytes::copy_from_slice(body) }
}

/// Like [`refuse_late_error`], for a whole event. Its code is read from JSON; in other encodings the texts decide, as
/// for the code 500, which the errors of a watch have.
pub fn refuse_event(asked: impl ToString, query: &str, event: &[u8]) -> anyhow::Result<()> {
    let code = serde_json::from_slice::<Value>(event).ok().and_then(|event| event["object"]["code"].as_u64());
    refuse_late_error(asked, query, 0, code.map_or(500, |code| u16::try_from(code).unwrap_or(0)), event)
}

/// Like [`refuse`], for an answer over HTTP/1.1, given its head and the part of its body that has been read.
pub fn refuse_head(asked: impl ToString, head: &str, body: &[u8]) -> anyhow::Result<()> {
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    refuse_raw(asked, status.unwrap_or(0), body)
}

/// Whether a server reports its own time-out or overload with this answer, in any encoding of its Status.
///
/// A 502 never comes from an apiserver, only from a proxy in front of it that got no answer.
pub(crate) fn is_overload(status: u16, body: &[u8]) -> bool {
    let says = |text: &&str| body.windows(text.len()).any(|window| window == text.as_bytes());
    match status {
        429 => !says(&BUDGET),
        500 => STORE_LATE.iter().any(says),
        502 | 503 => true,
        504 => !TOO_LARGE.iter().any(says),
        _ => false,
    }
}

/// The answer in an error of [`refuse`].
pub(crate) fn answer_in(error: &anyhow::Error) -> Option<&Response> {
    error.downcast_ref::<Overload>().map(|overload| &overload.answer)
}

/// Lets checks accept overload answers.
pub trait AcceptOverload {
    /// Returns an overload answer as an answer if it has one of these statuses.
    fn accept(self, statuses: &[u16]) -> Self;
}

impl AcceptOverload for anyhow::Result<Response> {
    fn accept(self, statuses: &[u16]) -> Self {
        self.or_else(|error| match answer_in(&error) {
            Some(answer) if statuses.contains(&answer.status) => Ok(answer.clone()),
            _ => Err(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use serde_json::json;
    use tonic::Code;

    use super::*;
    use crate::error::{CheckError, StoreError};

    fn status(code: u16, reason: &str, message: &str) -> Response {
        let body = json!({"kind": "Status", "code": code, "reason": reason, "message": message}).to_string();
        Response { status: code, headers: http::HeaderMap::new(), body: body.into() }
    }

    /// Seen on an emulated s390x guest, where a check failed because of it ("expected 201, seen 504").
    const LATE: &str = "Timeout: request did not complete within requested timeout - context deadline exceeded";

    #[test]
    fn time_outs_and_overload_are_distinguished_from_promised_answers() {
        for answer in [
            status(504, "Timeout", LATE),
            status(504, "Timeout", "Timeout: request did not complete within the allotted timeout"),
            status(504, "", "<html>504 Gateway Time-out</html>"),
            status(429, "TooManyRequests", "storage is (re)initializing"),
            status(429, "", "Too many requests, please try again later."),
            status(503, "ServiceUnavailable", "apiserver is shutting down"),
            status(502, "", "Bad Gateway"),
            status(500, "", "etcdserver: request timed out"),
            status(
                500,
                "InternalError",
                "Internal error occurred: etcdserver: request timed out, possibly due to previous leader failure",
            ),
            status(500, "", "etcdserver: leader changed"),
            status(500, "", "etcdserver: too many requests"),
            status(500, "", "context deadline exceeded"),
            status(500, "", "rpc error: code = Unavailable desc = error reading from server: EOF"),
            status(
                500,
                "ServerTimeout",
                "The get operation against configmaps could not be completed at this time, please try again.",
            ),
        ] {
            assert!(is_overload(answer.status, &answer.body), "{answer}");
        }
        for answer in [
            status(504, "Timeout", "Timeout: Too large resource version: 99, current: 7"),
            status(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget. DisruptionBudget",
            ),
            status(500, "", "etcdserver: mvcc: database space exceeded"),
            status(
                500,
                "InternalError",
                "Internal error occurred: unable to transform key: message authentication failed",
            ),
            status(500, "", "[-]etcd failed: reason withheld"),
            status(409, "Conflict", "etcdserver: request timed out"),
            status(410, "Expired", "context deadline exceeded"),
            status(200, "", LATE),
        ] {
            assert!(!is_overload(answer.status, &answer.body), "{answer}");
        }
    }

    #[test]
    fn malformed_504_for_a_future_version_is_not_an_overload() {
        let mut answer = status(504, "Timeout", "Timeout: no");
        assert!(is_overload(504, &answer.body));
        answer.body = json!({"message": "Timeout: no", "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}})
            .to_string()
            .into();
        assert!(!is_overload(504, &answer.body));
    }

    /// Seen on an emulated riscv64 machine with a load of twice its processors, where two checks failed because of it.
    #[test]
    fn version_is_refused_by_a_late_cache_if_the_store_has_it_or_the_server_chose_it() {
        let refused = b"Timeout: Too large resource version: 2061, current: 2056";
        for (query, newest, late) in [
            ("watch=true", 0, true),
            ("watch=true&resourceVersion=0", 0, true),
            ("watch=true&resourceVersion=2060&sendInitialEvents=true", 0, true),
            ("resourceVersion=2061&resourceVersionMatch=NotOlderThan", 2061, true),
            ("resourceVersion=2061", 2060, false),
            ("limit=1&resourceVersion=2061", 0, false),
        ] {
            assert_eq!(is_late(query, newest, refused), late, "{query} at {newest}");
            let protobuf = [b"\x1a\x38", &refused[..], b"\x22\x07Timeout"].concat();
            assert_eq!(is_late(query, newest, &protobuf), late, "{query} at {newest}");
        }
        for other in [&b"Too large resource version"[..], b"Too large resource version: ", b"", b"Too large"] {
            assert!(!is_late("watch=true", 7, other), "{other:?}");
        }
        let request = Request::get("/x").query("resourceVersion=7");
        let answer = || status(504, "Timeout", "Timeout: Too large resource version: 7, current: 5");
        assert!(answer_in(&refuse_late(&request, 7, answer()).unwrap_err()).is_some());
        assert_eq!(refuse_late(&request, 6, answer()).unwrap().status, 504);
        assert!(refuse_late(&request, 6, status(503, "", "unready")).is_err());
        assert!(refuse_late_error("a watch", "watch=true", 0, 504, refused).is_err());
        assert!(refuse_late_error("a watch", "resourceVersion=2061", 2060, 504, refused).is_ok());
        assert!(refuse_late_error("a watch", "resourceVersion=2061", 2060, 504, b"{}").is_err());
        // An ERROR event as the suite keeps it, with sorted keys: seen on an emulated s390x guest.
        let cause = json!({"message": "Too large resource version", "reason": "ResourceVersionTooLarge"});
        let sorted = json!({
            "code": 504, "details": {"causes": [cause]},
            "message": "Timeout: Too large resource version: 734, current: 726",
        });
        let sorted = sorted.to_string();
        assert!(sorted.find("causes") < sorted.find("734"), "{sorted}");
        assert!(is_late("watch=true&labelSelector=first%3Dyes", 0, sorted.as_bytes()));
        assert!(!is_late("resourceVersion=734", 733, sorted.as_bytes()));
    }

    #[test]
    fn overload_is_an_infrastructure_error_with_every_context() {
        let refused = refuse("POST /api/v1/namespaces", status(504, "Timeout", LATE)).unwrap_err();
        let outcome = CheckError::from(refused.context("the first POST")).into_outcome();
        let model::Outcome::Errored { message, .. } = &outcome else { panic!("{outcome:?}") };
        assert!(message.contains("POST /api/v1/namespaces") && message.contains("504"), "{message}");
        assert_eq!(outcome.exit(), model::Exit::Infrastructure);
    }

    #[test]
    fn only_an_overload_permits_another_attempt() {
        let refused = refuse("POST /x", status(504, "Timeout", LATE)).unwrap_err();
        let unserved = CheckError::from(refused.context("the first POST")).unserved().unwrap();
        assert!(unserved.contains("the first POST") && unserved.contains("504"), "{unserved}");
        for other in [
            CheckError::failed("expected 201, seen 504"),
            CheckError::TimedOut { what: "the next event".into() },
            CheckError::Skipped { need: "a node".into() },
            CheckError::Errored(anyhow::anyhow!("the connection was cut")),
        ] {
            assert!(other.unserved().is_none(), "{other:?}");
        }
        let late = "etcdserver: request timed out, possibly due to connection lost";
        for (code, message, is_late) in [
            (Code::Unavailable, late, true),
            (Code::Unknown, late, false),
            (Code::Unavailable, "tcp connect error: connection refused", false),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", false),
        ] {
            let error = StoreError { what: "etcd KV/Range".into(), code, message: message.into() };
            assert_eq!(CheckError::from(error).unserved().is_some(), is_late, "{code:?}: {message}");
        }
    }

    #[test]
    fn check_gets_only_the_statuses_that_it_asks_for() {
        let unready = || refuse("GET /x", status(503, "ServiceUnavailable", "unready"));
        assert_eq!(unready().accept(&[429, 503]).unwrap().status, 503);
        assert!(unready().accept(&[429]).is_err());
        assert_eq!(unready().context("in a context").accept(ANY).unwrap().status, 503);
        assert!(anyhow::Result::<Response>::Err(anyhow::anyhow!("cut")).accept(ANY).is_err());
        assert_eq!(refuse("GET /x", status(404, "NotFound", "")).unwrap().status, 404);
    }
}
