//! Which answers timing may change, by kind of request, with the reason.

use model::RecordedAnswer;

pub(super) const ALONE: &str = "only one run sent the request so often: the client repeats it until a condition holds";
pub(super) const POLL: &str = "the client repeats a read while it waits; the last answer is compared";
pub(super) const CONTENDED: &str = "several clients write to the collection at the same time";
pub(super) const EARLIER_ATTEMPT: &str = "an overloaded server ended the attempt at the case";
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

const KINDS: &[Kind] = &[];

/// Why timing may change this answer.
pub(super) fn reason(answer: &RecordedAnswer, content: &str) -> Option<&'static str> {
    if OVERLOADED.contains(&answer.status) || answer.status == 500 && content.contains("etcdserver: ") {
        return Some(OVERLOAD);
    }
    let kind = KINDS.iter().find(|kind| kind.covers(answer));
    kind.map(|kind| kind.reason)
}

impl Kind {
    fn covers(&self, answer: &RecordedAnswer) -> bool {
        answer.client.starts_with(self.check) && answer.request.starts_with(self.request)
    }
}
