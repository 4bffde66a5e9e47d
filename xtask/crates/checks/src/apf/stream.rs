//! A watch with initial events that any user opened. It is not recorded, because the recorder opens watches only as
//! the administrator.

use std::time::Duration;

use anyhow::anyhow;
use bytes::BytesMut;
use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream};
use kube::client::Body;
use serde_json::Value;
use tokio::time::Instant;

use crate::support::expected_events::{ExpectedEvent, ExpectedEvents, State, first_difference, state_difference};
use suite::api::{Request, Response, Streaming, chain, overload};
use suite::prelude::*;

/// The query of a watch that begins with the present objects.
pub(super) const QUERY: &str =
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
const END_OF_INITIAL: &str = "k8s.io/initial-events-end";

/// An event, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Change(ExpectedEvent),
    /// The bookmark after the initial events, with its resource version.
    EndOfInitial(u64),
    Bookmark,
}

/// An open watch of ConfigMaps.
pub(super) struct Stream {
    pub(super) events: Vec<Seen>,
    etcd_prefix: String,
    query: String,
    body: BodyStream<Body>,
    unread: BytesMut,
}

impl Stream {
    /// Opens the watch; the inner error is an answer other than 200.
    pub(super) async fn open(ctx: &Ctx, request: &Request) -> Verdict<Result<Stream, Response>> {
        let answer = tokio::time::timeout(ctx.answer_limit(), ctx.api.client()?.open(request)).await;
        let Ok(answer) = answer else {
            // Not a time-out, which would stand for a refusal.
            return Err(anyhow!("the head of the answer to {request} is late").into());
        };
        let Streaming { status, headers, body, .. } = answer?;
        if status != 200 {
            let refusal = tokio::time::timeout(ctx.answer_limit(), body.collect()).await;
            let body = refusal.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
            return Ok(Err(Response { status, headers, body }));
        }
        Ok(Ok(Stream {
            events: Vec::new(),
            etcd_prefix: ctx.profile().prefix.clone(),
            query: request.query.clone(),
            body: BodyStream::new(body),
            unread: BytesMut::new(),
        }))
    }

    /// Reads until the change at `last` has come.
    pub(super) async fn read_to(&mut self, last: u64, limit: Duration) -> Verdict {
        let deadline = Instant::now() + limit;
        let is_last = |seen: &Seen| matches!(seen, Seen::Change(event) if event.rv >= last);
        while !self.events.last().is_some_and(is_last) {
            let line = self.line(deadline, last).await?;
            let event: Value = serde_json::from_slice(&line).map_err(|error| {
                CheckError::failed(format!("a watch sent {}: {error}", String::from_utf8_lossy(&line)))
            })?;
            let seen = self.seen(&event, &line)?;
            self.events.push(seen);
        }
        Ok(())
    }

    async fn line(&mut self, deadline: Instant, last: u64) -> Verdict<BytesMut> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                return Ok(self.unread.split_to(end + 1));
            }
            let piece = tokio::time::timeout_at(deadline, self.body.next()).await;
            let so_far = || format!("after {} events and before the change {last}", self.events.len());
            match piece {
                Err(_) => return Err(CheckError::TimedOut { what: format!("an event of a watch, {}", so_far()) }),
                Ok(None) => return Err(CheckError::failed(format!("a watch ended {}", so_far()))),
                Ok(Some(Err(error))) => {
                    return Err(anyhow::anyhow!("a watch was cut {}: {}", so_far(), chain(&error)).into());
                }
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.unread.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    fn seen(&self, event: &Value, line: &[u8]) -> Verdict<Seen> {
        let object = Object(event["object"].clone());
        match event["type"].as_str().unwrap_or_default() {
            word @ ("ADDED" | "MODIFIED" | "DELETED") => {
                let key = CONFIG_MAPS.key(&self.etcd_prefix, object.namespace(), object.name());
                Ok(Seen::Change(ExpectedEvent { word: word.into(), key: key.into(), rv: object.rv() }))
            }
            "BOOKMARK" if object.0["metadata"]["annotations"][END_OF_INITIAL] == "true" => {
                Ok(Seen::EndOfInitial(object.rv()))
            }
            "BOOKMARK" => Ok(Seen::Bookmark),
            _ => {
                overload::refuse_event("a watch", &self.query, line)?;
                Err(CheckError::failed(format!("a watch sent {event}")))
            }
        }
    }
}

/// The difference between a stream and the store's history: before the bookmark its changes make the state at the
/// bookmark's version, after it come exactly the later changes.
pub(super) fn fault(events: &[Seen], expected: &ExpectedEvents) -> Option<String> {
    let is_end = |seen: &Seen| matches!(seen, Seen::EndOfInitial(_));
    let Some(end) = events.iter().position(is_end) else { return Some("the initial events did not end".into()) };
    let Seen::EndOfInitial(rv) = events[end] else { return None };
    let changes = |events: &[Seen]| -> Vec<ExpectedEvent> {
        let change = |seen: &Seen| if let Seen::Change(event) = seen { Some(event.clone()) } else { None };
        events.iter().filter_map(change).collect()
    };
    let mut state = State::new();
    for event in changes(&events[..end]) {
        match event.word.as_str() {
            "DELETED" => state.remove(&event.key),
            _ => state.insert(event.key, event.rv),
        };
    }
    if let Some(difference) = state_difference(&expected.state(rv), &state) {
        return Some(format!("the initial events end at {rv}: {difference}"));
    }
    first_difference(expected.after(rv), &changes(&events[end + 1..]))
        .map(|difference| format!("after the initial events at {rv}: {difference}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::expected_events::tests::parse;

    /// "ADDED a@5, END @6".
    fn events(text: &str) -> Vec<Seen> {
        let seen = |event: ExpectedEvent| match event.word.as_str() {
            "END" => Seen::EndOfInitial(event.rv),
            "BOOKMARK" => Seen::Bookmark,
            _ => Seen::Change(event),
        };
        parse(text).into_iter().map(seen).collect()
    }

    #[test]
    fn stream_is_the_state_and_then_every_change() {
        let history = ExpectedEvents(parse("ADDED a@2, ADDED b@3, MODIFIED a@5, DELETED b@6, ADDED c@7"));
        for (stream, why) in [
            ("ADDED b@3, ADDED a@5, END @5, DELETED b@6, BOOKMARK @6, ADDED c@7", ""),
            // Changes may come before the bookmark.
            ("ADDED a@2, ADDED b@3, MODIFIED a@5, DELETED b@6, END @6, ADDED c@7", ""),
            ("ADDED a@5, ADDED c@7, END @7", ""),
            ("ADDED a@5, ADDED c@7", "did not end"),
            ("ADDED a@5, END @5, DELETED b@6, ADDED c@7", "b should be at 3, seen absent"),
            ("ADDED a@2, ADDED b@3, END @5, DELETED b@6, ADDED c@7", "a should be at 5, seen at 2"),
            ("ADDED a@5, ADDED b@3, END @6, ADDED c@7", "b should be absent, seen at 3"),
            ("ADDED a@5, ADDED b@3, END @5, ADDED c@7", "should be DELETED b@6"),
            ("ADDED a@5, ADDED b@3, END @5, DELETED b@6", "seen nothing"),
            ("ADDED a@5, END @6, ADDED c@7, ADDED c@7", "seen ADDED c@7"),
        ] {
            let fault = fault(&events(stream), &history).unwrap_or_default();
            assert!(fault.contains(why) && fault.is_empty() == why.is_empty(), "{stream}: {fault}");
        }
    }
}
