//! Watches as bytes: the body as received, not recorded. [`RawEvent`] is one event of it.

use std::time::Duration;

use anyhow::anyhow;
use bytes::{Buf, BytesMut};
use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream};
use kube::client::Body;
use serde_json::Value;
use tokio::time::Instant;

use suite::api::overload;
use suite::api::{Request, Response, Streaming, Transport, chain};
use suite::prelude::*;
use suite::watch::MISSING_PREV_KV;

/// An open response.
pub(crate) struct Raw {
    pub(crate) version: http::Version,
    pub(crate) headers: http::HeaderMap,
    /// The body so far.
    pub(crate) bytes: BytesMut,
    /// The part of it that no reader of events has cut off yet.
    pub(crate) unread: BytesMut,
    /// The number of pieces in which it came.
    pub(crate) pieces: usize,
    body: BodyStream<Body>,
    what: String,
    query: String,
}

/// Marks the bookmark after the initial events.
pub(crate) const END_OF_INITIAL: &str = "k8s.io/initial-events-end";

/// An event as the server sent it; `E` is what a check compares of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RawEvent<E> {
    Change(E),
    /// `ends_state`: it comes after the initial events.
    Bookmark {
        rv: u64,
        ends_state: bool,
    },
    Other(String),
}

impl<E> RawEvent<E> {
    /// Reads a line; `change` gets the type and the object of a change.
    pub(crate) fn read(line: &[u8], change: impl FnOnce(String, Object) -> E) -> Result<RawEvent<E>, String> {
        let mut event: Value = serde_json::from_slice(line).map_err(|error| format!("a line is not JSON: {error}"))?;
        let object = Object(event["object"].take());
        let word = event["type"].as_str().unwrap_or_default().to_owned();
        Ok(match word.as_str() {
            "ADDED" | "MODIFIED" | "DELETED" => RawEvent::Change(change(word, object)),
            "BOOKMARK" => {
                let end = &object.0["metadata"]["annotations"][END_OF_INITIAL];
                RawEvent::Bookmark { rv: object.rv(), ends_state: end.as_str() == Some("true") }
            }
            _ => RawEvent::Other(format!("{word} {object}")),
        })
    }
}

/// How a body ended: None for a proper end, otherwise the error.
pub(crate) type Cut = Option<String>;

/// The request for a watch in the case's namespace.
pub(crate) async fn request(ctx: &Ctx, resource: &Resource, query: &str) -> Verdict<Request> {
    let path = resource.path(Some(ctx.api.namespace().await?));
    Ok(Request::get(path).query(format!("watch=true&{query}")))
}

impl Raw {
    /// Waits for the head of the answer, which must be a 200.
    pub(crate) async fn open(ctx: &Ctx, transport: Transport, resource: &Resource, query: &str) -> Verdict<Raw> {
        Raw::send(ctx, transport, request(ctx, resource, query).await?).await
    }

    /// Like [`Raw::open`], for any request.
    pub(crate) async fn send(ctx: &Ctx, transport: Transport, request: Request) -> Verdict<Raw> {
        let what = format!("{request} over {}", transport.name());
        Raw::try_send(ctx, transport, request).await?.or_else(|refusal| {
            overload::refuse_raw(&what, refusal.status, &refusal.body)?;
            Err(CheckError::failed(format!("{what} was answered {}", refusal.status)))
        })
    }

    /// Like [`Raw::send`]; the inner error is an answer other than 200.
    pub(crate) async fn try_send(ctx: &Ctx, transport: Transport, request: Request) -> Verdict<Result<Raw, Response>> {
        let what = format!("{request} over {}", transport.name());
        let answer = tokio::time::timeout(ctx.answer_limit(), ctx.api.client_over(transport)?.open(&request)).await;
        let Ok(answer) = answer else {
            return Err(CheckError::TimedOut { what: format!("the head of the answer to {what}") });
        };
        let Streaming { status, version, headers, body } = answer?;
        if status != 200 {
            let refusal = tokio::time::timeout(ctx.answer_limit(), body.collect()).await;
            let body = refusal.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
            return Ok(Err(Response { status, headers, body }));
        }
        let (body, query, bytes) = (BodyStream::new(body), request.query, BytesMut::new());
        Ok(Ok(Raw { version, headers, unread: bytes.clone(), bytes, pieces: 0, body, what, query }))
    }

    /// Reads until there is a complete line that begins with an event of this type.
    pub(crate) async fn read_until(&mut self, word: &str, limit: Duration) -> Verdict {
        let deadline = Instant::now() + limit;
        let begin = event_begin(word);
        let is_wanted = |line: &[u8]| line.starts_with(begin.as_bytes()) && line.ends_with(b"\n");
        while !self.bytes.split_inclusive(|byte| *byte == b'\n').any(is_wanted) {
            if let Some(cut) = self.read_piece(deadline, word).await? {
                let how = cut.unwrap_or_else(|| "ended".into());
                return Err(CheckError::failed(format!("{}: {how} before {word}: {}", self.what, shown(&self.bytes))));
            }
        }
        Ok(())
    }

    /// Cuts off the next line, or returns how the body ended before it. `what` is awaited.
    pub(crate) async fn line(&mut self, deadline: Instant, what: &str) -> Verdict<Result<BytesMut, Cut>> {
        loop {
            if let Some(line) = take_line(&mut self.unread) {
                return Ok(Ok(line));
            }
            if let Some(cut) = self.read_piece(deadline, what).await? {
                return Ok(Err(cut));
            }
        }
    }

    /// Reads until the server ends the body.
    pub(crate) async fn read_to_end(&mut self, limit: Duration) -> Verdict<Cut> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(cut) = self.read_piece(deadline, "the end").await? {
                return Ok(cut);
            }
        }
    }

    /// The body so far as lines without their ends; bytes after the last line end are the last entry.
    pub(crate) fn lines(&self) -> Vec<&[u8]> {
        lines(&self.bytes)
    }

    /// Whether the body so far contains the object's uid.
    pub(crate) fn mentions(&self, object: &Object) -> bool {
        let uid = object.uid().as_bytes();
        !uid.is_empty() && self.bytes.windows(uid.len()).any(|window| window == uid)
    }

    /// Reads one piece; `Some` if the body has ended.
    pub(crate) async fn read_piece(&mut self, deadline: Instant, what: &str) -> Verdict<Option<Cut>> {
        match tokio::time::timeout_at(deadline, self.body.next()).await {
            Err(_) => {
                Err(CheckError::TimedOut { what: format!("{what} of {}; so far: {}", self.what, shown(&self.bytes)) })
            }
            Ok(None) => {
                self.refuse_overload()?;
                Ok(Some(None))
            }
            Ok(Some(Err(error))) => Ok(Some(Some(chain(&error)))),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    self.bytes.extend_from_slice(&data);
                    self.unread.extend_from_slice(&data);
                    self.pieces += 1;
                }
                Ok(None)
            }
        }
    }

    /// Only the last event can be an ERROR by which the server reports its own time-out, or that its store sent a change
    /// without the previous value: see [`MISSING_PREV_KV`].
    pub(crate) fn refuse_overload(&self) -> anyhow::Result<()> {
        match self.lines().last().filter(|line| line.starts_with(event_begin("ERROR").as_bytes())) {
            Some(event) if event.windows(MISSING_PREV_KV.len()).any(|part| part == MISSING_PREV_KV.as_bytes()) => {
                Err(anyhow!("{} ended with {}", self.what, shown(event)))
            }
            Some(event) => overload::refuse_event(&self.what, &self.query, event),
            None => Ok(()),
        }
    }
}

/// Removes the next complete line from the front, and returns it without its end.
pub(crate) fn take_line(bytes: &mut BytesMut) -> Option<BytesMut> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = bytes.split_to(end);
    bytes.advance(1);
    Some(line)
}

pub(crate) fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    lines.pop_if(|last| last.is_empty());
    lines
}

/// The start of an event as the server writes it. JSON allows other forms; this one serves only to wait for the event.
pub(crate) fn event_begin(word: &str) -> String {
    format!("{{\"type\":\"{word}\"")
}

/// The first bytes as text.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const SHOWN: usize = 300;
    let dots = if bytes.len() > SHOWN { format!("… ({} bytes)", bytes.len()) } else { String::new() };
    format!("{:?}{dots}", String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_events() {
        let read = |line: &[u8]| RawEvent::read(line, |word, object| (word, object.name().to_owned(), object.rv()));
        let line =
            br#"{"type":"ADDED","object":{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7"}}}"#;
        assert_eq!(read(line), Ok(RawEvent::Change(("ADDED".into(), "a".into(), 7))));
        let end = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8",
            "annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        assert_eq!(read(end), Ok(RawEvent::Bookmark { rv: 8, ends_state: true }));
        let bookmark = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
        assert_eq!(read(bookmark), Ok(RawEvent::Bookmark { rv: 9, ends_state: false }));
        let other = read(br#"{"type":"ERROR","object":{"code":410}}"#);
        assert!(matches!(other, Ok(RawEvent::Other(text)) if text.starts_with("ERROR")));
        assert!(read(b"{").is_err());
        let mut bytes = BytesMut::from(&b"one\ntwo"[..]);
        assert_eq!(take_line(&mut bytes).as_deref(), Some(&b"one"[..]));
        assert_eq!(take_line(&mut bytes), None);
    }
}
