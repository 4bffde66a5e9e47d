//! A reader that resumes its watch whenever it ends, and lists again if the server answers that the resource version
//! has expired. Its segments, one after another, must be the store's history.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::Resource;
use model::history::{Change, End, FrameKind, Revision};
use serde_json::Value;

use crate::support::expected_events::{State, Told, Truth, first_difference, listed, state_difference};
use suite::api::{Transport, query};
use suite::check::Stop;
use suite::ctx::Ctx;
use suite::wait::until;
use suite::watch::{Event, Next, Watch, WatchOptions};

/// Reads one collection from a resource version on, through ends and expiries.
pub(crate) struct Follower<'c> {
    pub(crate) legs: Vec<Leg>,
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
}

/// The duration of silence after which the reader looks at the goal again.
const QUIET: Duration = Duration::from_millis(200);

/// A segment: events without a break in the resource versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leg {
    from: u64,
    /// The list with which the segment begins after an expiry.
    listed: Option<State>,
    told: Vec<Told>,
}

impl<'c> Follower<'c> {
    pub(crate) async fn open(
        ctx: &'c Ctx,
        transport: Transport,
        resource: &'c Resource,
        options: WatchOptions,
        begin: u64,
    ) -> Result<Follower<'c>, Stop> {
        let legs = vec![Leg { from: begin, ..Leg::default() }];
        let (ends, watch, last_id) = (Vec::new(), None, None);
        let mut follower = Follower { legs, ends, ctx, transport, resource, options, rv: begin, watch, last_id };
        follower.resume().await?;
        Ok(follower)
    }

    /// Makes sure that a stream is open: between an end and the next read there is none.
    pub(crate) async fn keep_open(&mut self) -> Result<(), Stop> {
        while self.watch.is_none() {
            self.resume().await?;
        }
        Ok(())
    }

    /// Reads until the change at `last` has come.
    pub(crate) async fn follow_to(&mut self, last: u64) -> Result<(), Stop> {
        while self.rv < last {
            self.step(self.ctx.limit(30.0)).await?;
        }
        Ok(())
    }

    /// Reads until `last` is set and reached; closes and resumes after every `most` events.
    pub(crate) async fn follow_until(&mut self, last: &AtomicU64, most: usize) -> Result<(), Stop> {
        let mut read = 0;
        loop {
            let goal = last.load(Ordering::Relaxed);
            if goal > 0 && self.rv >= goal {
                return Ok(());
            }
            // Without a goal no event may come for a while; with one, silence is a time-out.
            let limit = if goal > 0 { self.ctx.limit(30.0) } else { QUIET };
            match self.step(limit).await {
                Err(Stop::TimedOut { .. }) if goal == 0 => {}
                step => step?,
            }
            read += 1;
            if read % most == 0 {
                self.watch = None;
            }
        }
    }

    /// Reads `count` events, then closes the stream; the next read resumes.
    pub(crate) async fn read_and_close(&mut self, count: usize) -> Result<(), Stop> {
        for _ in 0..count {
            self.step(self.ctx.limit(30.0)).await?;
        }
        self.watch = None;
        Ok(())
    }

    /// Returns the end of the present stream, which must come within `limit`.
    pub(crate) async fn read_to_end(&mut self, limit: Duration) -> Result<End, Stop> {
        let before = self.ends.len();
        while self.ends.len() == before {
            self.step_without_resuming(limit).await?;
        }
        Ok(self.ends[before].clone())
    }

    /// Reads one event or one end; first resumes the stream if it has ended.
    async fn step(&mut self, limit: Duration) -> Result<(), Stop> {
        self.keep_open().await?;
        self.step_without_resuming(limit).await
    }

    async fn step_without_resuming(&mut self, limit: Duration) -> Result<(), Stop> {
        let Some(watch) = &mut self.watch else { return Err(self.stop("no stream is open")) };
        match watch.poll(limit).await? {
            Next::Event(event) => self.take(&event).await,
            Next::End => {
                self.ends.extend(watch.end().cloned());
                self.watch = None;
                Ok(())
            }
            Next::Nothing => {
                Err(Stop::TimedOut { what: format!("the next event after {} of {}", self.rv, self.name()) })
            }
        }
    }

    async fn take(&mut self, event: &Event) -> Result<(), Stop> {
        match &event.frame.kind {
            FrameKind::Error { code: 410, .. } => self.list_again().await,
            FrameKind::Error { .. } | FrameKind::Unknown { .. } => {
                Err(Stop::failed(format!("{}: {} came: {}", self.name(), event.word(), event.object)))
            }
            kind => {
                if !matches!(kind, FrameKind::Bookmark { .. }) {
                    self.leg().told.push(Told::from(event));
                }
                self.rv = self.rv.max(event.frame.rv);
                Ok(())
            }
        }
    }

    /// Opens the next stream. Right after a restart of the server, connections to the old process may still fail.
    async fn resume(&mut self) -> Result<(), Stop> {
        let mut options = WatchOptions { resource_version: Some(self.rv.to_string()), ..self.options.clone() };
        options.resumes = self.last_id;
        let what = format!("the server to accept {} from {}", self.name(), self.rv);
        let (ctx, transport, resource) = (self.ctx, self.transport, self.resource);
        let answer = until(&what, ctx.limit(30.0), Duration::from_millis(100), || async {
            match ctx.try_watch(transport, resource, &options).await {
                Err(Stop::Errored(error)) => Ok(Err(format!("{error:#}"))),
                Err(stop) => Err(stop),
                Ok(answer) => Ok(Ok(answer)),
            }
        })
        .await?;
        match answer {
            Ok(watch) => {
                self.last_id = Some(watch.id());
                self.watch = Some(watch);
                ctx.count("streams", 1);
                Ok(())
            }
            Err(refusal) if refusal.status == 410 => self.list_again().await,
            Err(refusal) => Err(Stop::failed(format!("{}: refused from {}: {refusal}", self.name(), self.rv))),
        }
    }

    /// Lists again, as a client does when its resource version has expired.
    async fn list_again(&mut self) -> Result<(), Stop> {
        self.watch = None;
        self.last_id = None;
        let mut pairs = Vec::new();
        for (name, value) in [("labelSelector", &self.options.labels), ("fieldSelector", &self.options.fields)] {
            if !value.is_empty() {
                pairs.push((name, value.as_str()));
            }
        }
        let list = self.ctx.list(self.resource, &query(&pairs)).await?;
        self.rv = list.rv();
        let listed = Some(listed(self.ctx, self.resource, &list));
        self.legs.push(Leg { from: self.rv, listed, told: Vec::new() });
        self.ctx.count("expiries", 1);
        Ok(())
    }

    /// Fails unless the segments together are `truth`, which ends at `last`.
    pub(crate) fn judge(&self, truth: &Truth) -> Result<(), Stop> {
        self.ctx.count("events", self.legs.iter().map(|leg| leg.told.len() as u64).sum());
        fault_of(&self.legs, truth).map_or(Ok(()), |fault| Err(self.stop(&fault)))
    }

    fn leg(&mut self) -> &mut Leg {
        if self.legs.is_empty() {
            self.legs.push(Leg::default());
        }
        let last = self.legs.len() - 1;
        &mut self.legs[last]
    }

    fn name(&self) -> String {
        let query = self.options.query();
        format!("a watch of {} over {} with `{query}`", self.resource.plural, self.transport.name())
    }

    fn stop(&self, fault: &str) -> Stop {
        let told = self.legs.iter().map(|leg| {
            let words: Vec<String> = leg.told.iter().take(20).map(Told::to_string).collect();
            format!("from {}: {}", leg.from, words.join(", "))
        });
        Stop::Failed { message: format!("{}: {fault}", self.name()), evidence: told.collect() }
    }
}

fn fault_of(legs: &[Leg], truth: &Truth) -> Option<String> {
    for (place, leg) in legs.iter().enumerate() {
        if let Some(listed) = &leg.listed
            && let Some(difference) = state_difference(&truth.state(leg.from), listed)
        {
            return Some(format!("the list at {} after an expiry: {difference}", leg.from));
        }
        let due = truth.after(leg.from);
        // Only the last segment must reach the end: an earlier one was cut off, and the list after it covers the rest.
        let due = if place + 1 == legs.len() { due } else { &due[..leg.told.len().min(due.len())] };
        if let Some(difference) = first_difference(due, &leg.told) {
            return Some(format!("after {}: {difference}", leg.from));
        }
    }
    None
}

/// The expected events of a watch with a selector, for recorded changes whose values are JSON.
pub(crate) fn selected(revisions: &[Revision], matches: impl Fn(&Value) -> bool) -> Truth {
    let mut matched: std::collections::BTreeMap<&str, bool> = std::collections::BTreeMap::new();
    let mut truth = Vec::new();
    for revision in revisions {
        let value = match revision.kind {
            Change::Put => serde_json::from_slice(&revision.value).unwrap_or(Value::Null),
            Change::Delete => Value::Null,
        };
        let now = revision.kind == Change::Put && matches(&value);
        let before = matched.insert(&revision.key, now).unwrap_or(false);
        let word = match (before, now) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => continue,
        };
        truth.push(Told { word: word.into(), key: revision.key.clone(), rv: revision.rev.cast_unsigned() });
    }
    Truth(truth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::expected_events::tests::parse;
    use model::history::Key;

    fn leg(from: u64, listed: Option<&str>, told: &str) -> Leg {
        let state = |text: &str| parse(text).into_iter().map(|told| (told.key, told.rv)).collect();
        Leg { from, listed: listed.map(state), told: parse(told) }
    }

    #[test]
    fn segments_one_after_another_are_the_history() {
        let truth = Truth(parse("ADDED a@2, ADDED b@3, MODIFIED a@5, DELETED b@6, ADDED c@8"));
        assert_eq!(fault_of(&[leg(2, None, "ADDED b@3, MODIFIED a@5, DELETED b@6, ADDED c@8")], &truth), None);
        let relisted = [leg(2, None, "ADDED b@3"), leg(6, Some("x a@5"), "ADDED c@8")];
        assert_eq!(fault_of(&relisted, &truth), None);
        for (legs, why) in [
            (vec![leg(2, None, "ADDED b@3, DELETED b@6, ADDED c@8")], "should be MODIFIED a@5"),
            (vec![leg(2, None, "ADDED b@3, MODIFIED a@5")], "seen nothing"),
            (vec![leg(2, None, "MODIFIED a@5"), leg(6, Some("x a@5"), "ADDED c@8")], "should be ADDED b@3"),
            (vec![leg(2, None, "ADDED b@3"), leg(6, Some("x a@2"), "ADDED c@8")], "the list at 6"),
            (vec![leg(2, None, ""), leg(6, Some("x a@5"), "")], "seen nothing"),
        ] {
            let fault = fault_of(&legs, &truth).expect(why);
            assert!(fault.contains(why), "{why}: {fault}");
        }
    }

    #[test]
    fn selector_turns_changes_into_added_and_deleted() {
        let change = |rev: i64, value: &str| Revision {
            at: 0,
            rev,
            key: Key::from("a"),
            kind: if value.is_empty() { Change::Delete } else { Change::Put },
            version: 1,
            create_rev: 1,
            lease: 0,
            prev_rev: 0,
            value: value.as_bytes().into(),
        };
        let revisions = [change(1, "1"), change(2, "2"), change(3, "2"), change(4, "1"), change(5, "2"), change(6, "")];
        let told = selected(&revisions, |value| value == 2).0;
        assert_eq!(told, parse("ADDED a@2, MODIFIED a@3, DELETED a@4, ADDED a@5, DELETED a@6"));
    }
}
