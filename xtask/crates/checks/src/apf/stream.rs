//! A watch with initial events that any user opened. It is not recorded, because the recorder opens watches only as
//! the administrator.

use std::time::Duration;

use anyhow::anyhow;
use tokio::time::Instant;

use crate::support::expected_events::{ExpectedEvent, ExpectedEvents, State, first_difference, state_difference};
use crate::support::watch_raw::{Raw, RawEvent};
use suite::api::{Request, Response};
use suite::prelude::*;

/// The query of a watch that begins with the present objects.
pub(super) const QUERY: &str =
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

type Seen = RawEvent<ExpectedEvent>;

/// An open watch of ConfigMaps.
pub(super) struct Stream {
    pub(super) events: Vec<Seen>,
    etcd_prefix: String,
    raw: Raw,
}

impl Stream {
    /// Opens the watch; the inner error is an answer other than 200.
    pub(super) async fn open(ctx: &Ctx, request: Request) -> Verdict<Result<Stream, Response>> {
        let opened = Raw::try_send(ctx, ctx.api.transport(), request).await.map_err(|error| match error {
            // Not a time-out, which would stand for a refusal.
            CheckError::TimedOut { what } => anyhow!("{what} is late").into(),
            error => error,
        });
        let etcd_prefix = ctx.profile().prefix.clone();
        Ok(opened?.map(|raw| Stream { events: Vec::new(), etcd_prefix, raw }))
    }

    /// Reads until the change at `last` has come.
    pub(super) async fn read_to(&mut self, last: u64, limit: Duration) -> Verdict {
        let deadline = Instant::now() + limit;
        let is_last = |seen: &Seen| matches!(seen, RawEvent::Change(event) if event.rv >= last);
        while !self.events.last().is_some_and(is_last) {
            let what = format!("the change {last}, after {} events,", self.events.len());
            let line = self.raw.line(deadline, &what).await?.map_err(|cut| match cut {
                None => CheckError::failed(format!("a watch ended before {what}")),
                Some(error) => anyhow!("a watch was cut before {what}: {error}").into(),
            })?;
            let seen = RawEvent::read(&line, |word, object| {
                let key = CONFIG_MAPS.key(&self.etcd_prefix, object.namespace(), object.name());
                ExpectedEvent { word, key: key.into(), rv: object.rv() }
            });
            let seen = seen.map_err(|fault| CheckError::failed(format!("a watch: {fault}")))?;
            if let RawEvent::Other(text) = &seen {
                self.raw.refuse_overload()?;
                return Err(CheckError::failed(format!("a watch sent {text}")));
            }
            self.events.push(seen);
        }
        Ok(())
    }
}

/// The difference between a stream and the store's history: before the bookmark its changes make the state at the
/// bookmark's version, after it come exactly the later changes.
pub(super) fn fault(events: &[Seen], expected: &ExpectedEvents) -> Option<String> {
    let mut ends = events.iter().enumerate().filter_map(|(place, seen)| match seen {
        RawEvent::Bookmark { rv, ends_state: true } => Some((place, *rv)),
        _ => None,
    });
    let Some((end, rv)) = ends.next() else { return Some("the initial events did not end".into()) };
    let changes = |events: &[Seen]| -> Vec<ExpectedEvent> {
        let change = |seen: &Seen| if let RawEvent::Change(event) = seen { Some(event.clone()) } else { None };
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
            "END" => RawEvent::Bookmark { rv: event.rv, ends_state: true },
            "BOOKMARK" => RawEvent::Bookmark { rv: event.rv, ends_state: false },
            _ => RawEvent::Change(event),
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
