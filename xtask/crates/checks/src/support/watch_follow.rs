//! A reader that resumes its watch whenever it ends, and lists again if the server answers that the resource version
//! has expired. Its segments, one after another, must be the store's history.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::history::{Change, End, FrameKind, Revision};
use serde_json::Value;

use crate::support::expected_events::{
    ExpectedEvent, ExpectedEvents, State, excerpt, first_difference, listed, state_difference,
};
use suite::api::{Transport, query};
use suite::prelude::*;
use suite::wait::until;
use suite::watch::{Event, MISSING_PREV_KV, Next, Watch, WatchOptions};

/// Reads one collection from a resource version on, through ends and expiries.
pub(crate) struct Follower<'c> {
    pub(crate) segments: Vec<WatchSegment>,
    /// The ends of all streams so far.
    pub(crate) ends: Vec<End>,
    ctx: &'c Ctx,
    transport: Transport,
    resource: &'c Resource,
    /// The options without a resource version.
    options: WatchOptions,
    /// The resource version from which the next stream begins.
    rv: u64,
    watch: Option<Watch>,
    last_id: Option<u64>,
    /// Whether no change has come on the present stream.
    is_fresh: bool,
    /// Whether the last stream ended with [`MISSING_PREV_KV`], and no change has come since.
    lacked_prev_kv: bool,
}

/// The duration of silence after which the reader looks at the goal again.
const QUIET: Duration = Duration::from_millis(200);

/// A segment: events without a break in the resource versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchSegment {
    from: u64,
    /// The list with which the segment begins after an expiry.
    listed: Option<State>,
    events: Vec<ExpectedEvent>,
}

impl<'c> Follower<'c> {
    pub(crate) async fn open(
        ctx: &'c Ctx,
        transport: Transport,
        resource: &'c Resource,
        options: WatchOptions,
        begin: u64,
    ) -> Verdict<Follower<'c>> {
        let segments = vec![WatchSegment { from: begin, ..WatchSegment::default() }];
        let (ends, watch, last_id) = (Vec::new(), None, None);
        let mut follower = Follower {
            segments,
            ends,
            ctx,
            transport,
            resource,
            options,
            rv: begin,
            watch,
            last_id,
            is_fresh: true,
            lacked_prev_kv: false,
        };
        follower.resume().await?;
        Ok(follower)
    }

    /// Makes sure that a stream is open: between an end and the next read there is none.
    pub(crate) async fn keep_open(&mut self) -> Verdict {
        while self.watch.is_none() {
            self.resume().await?;
        }
        Ok(())
    }

    /// Reads until the change at `last` has come.
    pub(crate) async fn follow_to(&mut self, last: u64) -> Verdict {
        while self.rv < last {
            self.step(self.ctx.event_limit()).await?;
        }
        Ok(())
    }

    /// Reads until `last` is set and reached; closes and resumes after every `most` events.
    pub(crate) async fn follow_until(&mut self, last: &AtomicU64, most: usize) -> Verdict {
        let mut read = 0;
        loop {
            let goal = last.load(Ordering::Relaxed);
            if goal > 0 && self.rv >= goal {
                return Ok(());
            }
            // Without a goal no event may come for a while; with one, silence is a time-out.
            let limit = if goal > 0 { self.ctx.event_limit() } else { QUIET };
            match self.step(limit).await {
                Err(CheckError::TimedOut { .. }) if goal == 0 => {}
                step => step?,
            }
            read += 1;
            if read % most == 0 {
                self.watch = None;
            }
        }
    }

    /// Reads `count` events, then closes the stream; the next read resumes.
    pub(crate) async fn read_and_close(&mut self, count: usize) -> Verdict {
        for _ in 0..count {
            self.step(self.ctx.event_limit()).await?;
        }
        self.watch = None;
        Ok(())
    }

    /// Returns the end of the present stream, which must come within `limit`.
    pub(crate) async fn read_to_end(&mut self, limit: Duration) -> Verdict<End> {
        let before = self.ends.len();
        while self.ends.len() == before {
            self.step_without_resuming(limit).await?;
        }
        Ok(self.ends[before].clone())
    }

    /// Reads one event or one end; first resumes the stream if it has ended.
    async fn step(&mut self, limit: Duration) -> Verdict {
        self.keep_open().await?;
        self.step_without_resuming(limit).await
    }

    async fn step_without_resuming(&mut self, limit: Duration) -> Verdict {
        let Some(watch) = &mut self.watch else { return Err(self.failure("no stream is open")) };
        match watch.poll(limit).await? {
            Next::Event(event) => self.take(&event).await,
            Next::End => {
                self.ends.extend(watch.end().cloned());
                self.watch = None;
                Ok(())
            }
            Next::Nothing => {
                Err(CheckError::TimedOut { what: format!("the next event after {} of {}", self.rv, self.name()) })
            }
        }
    }

    async fn take(&mut self, event: &Event) -> Verdict {
        match &event.frame.kind {
            FrameKind::Error { code: 410, .. } => self.list_again().await,
            FrameKind::Error { message, .. } if self.may_lack_prev_kv(message) => {
                self.lacked_prev_kv = true;
                self.ctx.count("streams that etcd began without previous values", 1);
                Ok(())
            }
            FrameKind::Error { .. } | FrameKind::Unknown { .. } => {
                Err(CheckError::failed(format!("{}: {} came: {}", self.name(), event.word(), event.object)))
            }
            kind => {
                if let (false, Some(last)) = (matches!(kind, FrameKind::Bookmark { .. }), self.segments.last_mut()) {
                    last.events.push(ExpectedEvent::from(event));
                    (self.is_fresh, self.lacked_prev_kv) = (false, false);
                }
                self.rv = self.rv.max(event.frame.rv);
                Ok(())
            }
        }
    }

    /// Whether this error is the one at the begin of a stream, for the first time in a row.
    fn may_lack_prev_kv(&self, message: &str) -> bool {
        self.is_fresh && !self.lacked_prev_kv && message.contains(MISSING_PREV_KV)
    }

    /// Opens the next stream. Right after a restart of the server, connections to the old process may still fail.
    async fn resume(&mut self) -> Verdict {
        let mut options = WatchOptions { resource_version: Some(self.rv.to_string()), ..self.options.clone() };
        options.resumes = self.last_id;
        let what = format!("the server to accept {} from {}", self.name(), self.rv);
        let (ctx, transport, resource) = (self.ctx, self.transport, self.resource);
        let answer = until(&what, ctx.wait_limit(), Duration::from_millis(100), || async {
            match ctx.api.try_watch(transport, resource, &options).await {
                Err(CheckError::Errored(error)) => Ok(Err(format!("{error:#}"))),
                Err(error) => Err(error),
                Ok(answer) => Ok(Ok(answer)),
            }
        })
        .await?;
        match answer {
            Ok(watch) => {
                self.last_id = Some(watch.id());
                self.watch = Some(watch);
                self.is_fresh = true;
                ctx.count("streams", 1);
                Ok(())
            }
            Err(refusal) if refusal.status == 410 => self.list_again().await,
            Err(refusal) => Err(CheckError::failed(format!("{}: refused from {}: {refusal}", self.name(), self.rv))),
        }
    }

    /// Lists again, as a client does when its resource version has expired.
    async fn list_again(&mut self) -> Verdict {
        self.watch = None;
        self.last_id = None;
        let WatchOptions { labels, fields, .. } = &self.options;
        let mut pairs = vec![("labelSelector", labels.as_str()), ("fieldSelector", fields.as_str())];
        pairs.retain(|(_, selector)| !selector.is_empty());
        let list = self.ctx.api.list(self.resource, &query(&pairs)).await?;
        self.rv = list.rv();
        let listed = Some(listed(self.ctx, self.resource, &list));
        self.segments.push(WatchSegment { from: self.rv, listed, events: Vec::new() });
        self.ctx.count("expiries", 1);
        Ok(())
    }

    /// Fails unless the segments together are `expected`, which ends at `last`.
    pub(crate) fn judge(&self, expected: &ExpectedEvents) -> Verdict {
        self.ctx.count("events", self.segments.iter().map(|segment| segment.events.len() as u64).sum());
        fault_of(&self.segments, expected).map_or(Ok(()), |fault| Err(self.failure(&fault)))
    }

    fn name(&self) -> String {
        let query = self.options.query();
        format!("a watch of {} over {} with `{query}`", self.resource.plural, self.transport.name())
    }

    fn failure(&self, fault: &str) -> CheckError {
        let segments = self.segments.iter();
        let evidence = segments.map(|segment| format!("from {}: {}", segment.from, excerpt(&segment.events)));
        CheckError::Failed { message: format!("{}: {fault}", self.name()), evidence: evidence.collect() }
    }
}

fn fault_of(segments: &[WatchSegment], expected: &ExpectedEvents) -> Option<String> {
    for (place, segment) in segments.iter().enumerate() {
        if let Some(listed) = &segment.listed
            && let Some(difference) = state_difference(&expected.state(segment.from), listed)
        {
            return Some(format!("the list at {} after an expiry: {difference}", segment.from));
        }
        let due = expected.after(segment.from);
        // Only the last segment must reach the end: an earlier one was cut off, and the list after it covers the rest.
        let due = if place + 1 == segments.len() { due } else { &due[..segment.events.len().min(due.len())] };
        if let Some(difference) = first_difference(due, &segment.events) {
            return Some(format!("after {}: {difference}", segment.from));
        }
    }
    None
}

/// The expected events of a watch with a selector, for recorded changes whose values are JSON.
pub(crate) fn selected_events(revisions: &[Revision], matches: impl Fn(&Value) -> bool) -> ExpectedEvents {
    let mut matched: BTreeMap<&str, bool> = BTreeMap::new();
    let events = revisions.iter().filter_map(|revision| {
        let value = || serde_json::from_slice(&revision.value).unwrap_or(Value::Null);
        let now = revision.kind == Change::Put && matches(&value());
        let word = match (matched.insert(&revision.key, now).unwrap_or(false), now) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return None,
        };
        Some(ExpectedEvent { word: word.into(), ..ExpectedEvent::from(revision) })
    });
    ExpectedEvents(events.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::assertions::fixture::change;
    use crate::support::expected_events::tests::parse;
    use model::history::Key;

    fn segment(from: u64, listed: Option<&str>, events: &str) -> WatchSegment {
        let state = |text: &str| parse(text).into_iter().map(|event| (event.key, event.rv)).collect();
        WatchSegment { from, listed: listed.map(state), events: parse(events) }
    }

    #[test]
    fn segments_one_after_another_are_the_history() {
        let expected = ExpectedEvents(parse("ADDED a@2, ADDED b@3, MODIFIED a@5, DELETED b@6, ADDED c@8"));
        for (segments, why) in [
            (vec![segment(2, None, "ADDED b@3, MODIFIED a@5, DELETED b@6, ADDED c@8")], ""),
            (vec![segment(2, None, "ADDED b@3"), segment(6, Some("x a@5"), "ADDED c@8")], ""),
            (vec![segment(2, None, "ADDED b@3, DELETED b@6, ADDED c@8")], "should be MODIFIED a@5"),
            (vec![segment(2, None, "ADDED b@3, MODIFIED a@5")], "seen nothing"),
            (vec![segment(2, None, "MODIFIED a@5"), segment(6, Some("x a@5"), "ADDED c@8")], "should be ADDED b@3"),
            (vec![segment(2, None, "ADDED b@3"), segment(6, Some("x a@2"), "ADDED c@8")], "the list at 6"),
            (vec![segment(2, None, ""), segment(6, Some("x a@5"), "")], "seen nothing"),
        ] {
            let fault = fault_of(&segments, &expected).unwrap_or_default();
            assert!(fault.contains(why) && fault.is_empty() == why.is_empty(), "{why}: {fault}");
        }
    }

    #[test]
    fn selector_turns_changes_into_added_and_deleted() {
        let change = |rev: i64, value: &str| {
            let kind = if value.is_empty() { Change::Delete } else { Change::Put };
            Revision { key: Key::from("a"), ..change(kind, rev, value.as_bytes()) }
        };
        let revisions = [change(1, "1"), change(2, "2"), change(3, "2"), change(4, "1"), change(5, "2"), change(6, "")];
        let events = selected_events(&revisions, |value| value == 2).0;
        assert_eq!(events, parse("ADDED a@2, MODIFIED a@3, DELETED a@4, ADDED a@5, DELETED a@6"));
    }
}
