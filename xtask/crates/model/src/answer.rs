//! The record of an answer to a request of the suite, in the form in which two runs are compared.

use serde::{Deserialize, Serialize};

/// One request with its answer. What the server or the run chooses by itself is masked in all texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAnswer {
    /// The check's id; behind a slash the worker of a workload.
    pub client: String,
    /// Attempts at the case that an overloaded server ended before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: u32,
    /// Method, path and query; also the media type of the body if it is not JSON.
    pub request: String,
    /// Digest of the request's body; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sent: String,
    /// The media type that the client accepts.
    pub accept: String,
    pub status: u16,
    /// `Content-Type` and the texts of all `Warning` headers.
    pub headers: Vec<String>,
    /// Digest of the canonical body.
    pub digest: String,
    /// The canonical body, shortened if it is large, where the digest occurs first in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}
