//! Watches as bytes: the body as received, not parsed and not recorded.

use std::time::Duration;

use bytes::BytesMut;
use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream};
use kube::client::Body;
use tokio::time::Instant;

use suite::api::overload;
use suite::api::{Request, Streaming, Transport, chain};
use suite::prelude::*;

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
        let answer = tokio::time::timeout(ctx.answer_limit(), ctx.api.client_over(transport)?.open(&request)).await;
        let Ok(answer) = answer else {
            return Err(CheckError::TimedOut { what: format!("the head of the answer to {what}") });
        };
        let Streaming { status, version, headers, body } = answer?;
        if status != 200 {
            let refusal = tokio::time::timeout(ctx.answer_limit(), body.collect()).await;
            let refusal = refusal.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
            overload::refuse_raw(&what, status, &refusal)?;
            return Err(CheckError::failed(format!("{what} was answered {status}")));
        }
        let (body, query, bytes) = (BodyStream::new(body), request.query, BytesMut::new());
        Ok(Raw { version, headers, unread: bytes.clone(), bytes, pieces: 0, body, what, query })
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

    /// Only the last event can be an ERROR by which the server reports its own time-out.
    fn refuse_overload(&self) -> anyhow::Result<()> {
        match self.lines().last().filter(|line| line.starts_with(event_begin("ERROR").as_bytes())) {
            Some(event) => overload::refuse_event(&self.what, &self.query, event),
            None => Ok(()),
        }
    }
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
