//! The window of a watch cache: where it begins, how it moves, and how it grows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use model::history::FrameKind;
use serde_json::json;

use crate::support::assertions::pod_template;
use crate::support::expected_events::{ExpectedEvent, ExpectedEvents, delivered, on_stream, same_changes};
use crate::support::lease_use;
use crate::support::metrics::Metrics;
use crate::support::samples;
use crate::watch::expired::{Answer, edge_of, expired_message};
use suite::object::POD_TEMPLATES;
use suite::prelude::*;
use suite::wait::{self, pause};
use suite::watch::{Event, WatchOptions};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.cache-window",
    place: here!(),
    level: Extra,
    requirement: "A watch cache answers a WATCH with 410 Expired if and only if the resource version is before its \
                  window, no matter whether the store still has it; every other WATCH gets every later change. The \
                  window begins with the list that filled the cache, and loses a change only if a hundred later ones \
                  exist and a new one comes 75 s or more after it (15 s more than --request-timeout, if that is \
                  longer). A resource of size 0 in --watch-cache-sizes has no window: the store serves its watches.",
    source: "apiserver pkg/storage/cacher/watch_cache.go, from 1.37 on watch_cache_history.go \
             (getAllEventsSinceLocked, resizeCacheLocked), delegator.go (CacheDelegator.Watch), \
             pkg/server/options/etcd.go (--watch-cache-sizes); kubernetes pkg/controlplane/apiserver/options/options.go \
             (EventsHistoryWindow); Kubernetes API concepts, \"410 Gone responses\"",
    observed: "The check writes the first 100 changes of a custom resource, which fill the window. A watch from \
               before the resource existed is refused and names the begin of the window, from which a watch gets all \
               changes. When these are too old to be kept, the check writes 40 changes, so the window must hold the \
               last 100 changes of the recorded history: watches from its begin and later get every change, watches from one revision \
               earlier and from the first change are refused, although the store still has that state. 61 changes \
               follow: 101 changes are young then, so the window must hold all of them, and no other. \
               The same writes to PodTemplates, whose watch cache is off, must all come on a watch from before the \
               first.",
    by_hand: "change a ConfigMap a hundred times, wait 76 s, change it forty times; kubectl get --raw \
              '/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=N' with N around the hundredth last \
              change; kubectl get --raw /metrics | grep ^watch_cache_capacity",
    profiles: &["prefix"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(cache_window),
}];

/// The smallest capacity of a window, with which it begins (`defaultLowerBoundCapacity`).
const CAPACITY: usize = 100;
/// The seconds of `DefaultEventFreshDuration`.
const FRESH: u64 = 75;
/// The default of --request-timeout.
const REQUEST_TIMEOUT: &str = "60s";
/// The objects of the three batches; see [`changes_of`].
const FILL: usize = 33;
const SLIDE: usize = 13;
const GROW: usize = 20;
const _: () = assert!(changes_of(FILL) == CAPACITY && changes_of(SLIDE) + changes_of(GROW) == CAPACITY + 1);
const AT_ONCE: usize = 8;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The seconds after which a server ends a watch that it should have refused.
const SERVED_SECONDS: u32 = 10;

const WINDOW: &str = "watch_cache_capacity";
const FILLS: &str = "apiserver_watch_cache_initializations_total";

/// The changes by [`write_batch`]: each object is created, changed and deleted; a last one is only created.
const fn changes_of(objects: usize) -> usize {
    3 * objects + 1
}

async fn cache_window(ctx: &Ctx) -> Verdict {
    let before = ctx.store.of(&CONFIG_MAPS).revision().await?.cast_unsigned();
    let custom = &ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "windows", "Window").await?;
    // Only a filled cache answers this list. So the list that filled it is not later than `begin`.
    ctx.api.list(custom, "resourceVersion=0").await?;
    let fills = fills(&Metrics::read(ctx).await?, custom);
    let begin = ctx.api.list(custom, "").await?.rv();
    let fresh = fresh(&ctx.profile().flags)?;
    let cache = Cache { ctx, resource: custom, begin, fills, fresh };
    tokio::try_join!(write_batch(ctx, &POD_TEMPLATES, "fill", FILL), cache.fill(before))?;
    let mut rounds = ctx.rounds(format!("{} changes took longer than {} s", CAPACITY + 1, fresh.as_secs()));
    while !cache.slides_and_grows(rounds.next()?).await? {}
    without_window(ctx, before).await
}

/// The watch cache of a resource to which only this case writes.
struct Cache<'c> {
    ctx: &'c Ctx,
    resource: &'c Resource,
    /// A resource version after the list that filled the cache, and before the first change.
    begin: u64,
    /// How often the server had filled it before `begin`.
    fills: u64,
    fresh: Duration,
}

/// A full window grows rather than lose a change that is younger.
fn fresh(flags: &BTreeMap<String, String>) -> anyhow::Result<Duration> {
    let timeout = flags.get("request-timeout").map_or(REQUEST_TIMEOUT, String::as_str);
    let seconds =
        lease_use::seconds(timeout).ok_or_else(|| anyhow!("--request-timeout={timeout} is not understood"))?;
    Ok(Duration::from_secs(FRESH.max(seconds.unsigned_abs() + 15)))
}

impl Cache<'_> {
    async fn write(&self, name: &str, objects: usize) -> Verdict<ExpectedEvents> {
        let last = write_batch(self.ctx, self.resource, name, objects).await?;
        ExpectedEvents::of(self.ctx, self.resource, last).await
    }

    /// A window that has lost nothing begins with the list that filled it, although it is full.
    async fn fill(&self, before: u64) -> Verdict {
        let events = self.write("fill", FILL).await?;
        self.require_smallest_window().await?;
        let edge = refused(self.ctx, self.resource, before).await?;
        let begin = self.begin;
        expect!(
            (before + 1..=begin).contains(&edge),
            "the cache says that its window begins at {edge}; the cache was filled after {before} and not after {begin}"
        );
        for rv in [begin, edge] {
            delivers(self.ctx, self.resource, &events, rv).await?;
        }
        Ok(())
    }

    /// Returns whether the window has grown. It need not if the changes came too slowly for that.
    async fn slides_and_grows(&self, round: u32) -> Verdict<bool> {
        pause(self.fresh + Duration::from_secs(1)).await;
        let start = Instant::now();
        let events = self.write(&format!("r{round}-slide"), SLIDE).await?;
        self.require_smallest_window().await?;
        self.holds_only(&events, CAPACITY).await?;
        let events = self.write(&format!("r{round}-grow"), GROW).await?;
        let elapsed = start.elapsed();
        // Only the last change lets the window grow. So a window that has grown has lost none, however slow they were.
        let capacity = Metrics::read(self.ctx).await?.count(WINDOW, &labels(self.resource));
        if elapsed >= self.fresh && capacity <= CAPACITY as u64 {
            return Ok(false);
        }
        self.holds_only(&events, CAPACITY + 1).await?;
        Ok(true)
    }

    /// A cache that was filled again has another window. If the server's clock is slower than this machine's, the
    /// changes may still be young, and the window may have grown.
    async fn require_smallest_window(&self) -> Verdict {
        let metrics = Metrics::read(self.ctx).await?;
        let seen = (fills(&metrics, self.resource), metrics.count(WINDOW, &labels(self.resource)));
        let expected = (self.fills, CAPACITY as u64);
        if seen == expected {
            return Ok(());
        }
        Err(anyhow!("not exercised: fills of the cache and capacity of its window are {seen:?}, not {expected:?}")
            .into())
    }

    /// The window must hold exactly the last `kept` changes. The newest revisions come first: so streams have shown
    /// these changes before a watch needs all of them.
    async fn holds_only(&self, events: &ExpectedEvents, kept: usize) -> Verdict {
        let Cache { ctx, resource, begin, .. } = *self;
        let Some(Edge { inside, edge }) = edge_before(&events.0, kept) else {
            return Err(anyhow!("not exercised: {} changes, and {kept} fit into the window", events.0.len()).into());
        };
        for rv in inside.into_iter().chain([edge]) {
            delivers(ctx, resource, events, rv).await?;
        }
        for rv in [edge - 1, begin] {
            let what = format!("the begin of the window in the refusal of {rv}, with {kept} changes in the window");
            expect_eq!(refused(ctx, resource, rv).await?, edge, "{what}");
        }
        // The store has not compacted it: only the window decides.
        ctx.store.list(resource, begin.cast_signed()).await?;
        ctx.count("windows", 1);
        Ok(())
    }
}

/// Where the window of the last changes begins.
#[derive(Debug, PartialEq, Eq)]
struct Edge {
    /// Resource versions of changes in the window: one in its middle, and the oldest.
    inside: [u64; 2],
    /// The first resource version from which a watch can begin: the one before the oldest change.
    edge: u64,
}

/// The begin of a window that holds the last `kept` changes; None if it has lost none.
fn edge_before(events: &[ExpectedEvent], kept: usize) -> Option<Edge> {
    let lost = events.len().checked_sub(kept).filter(|lost| *lost > 0)?;
    let window = &events[lost..];
    let oldest = window.first()?.rv;
    Some(Edge { inside: [window[kept / 2].rv, oldest], edge: oldest - 1 })
}

/// PodTemplates have no watch cache. The first stream shows the changes that a window would not hold.
async fn without_window(ctx: &Ctx, before: u64) -> Verdict {
    let last = write_batch(ctx, &POD_TEMPLATES, "later", SLIDE).await?;
    let events = ExpectedEvents::of(ctx, &POD_TEMPLATES, last).await?;
    let count = events.0.len();
    if count <= CAPACITY {
        return Err(anyhow!("not exercised: {count} changes of PodTemplates").into());
    }
    for rv in [events.0[0].rv, before] {
        delivers(ctx, &POD_TEMPLATES, &events, rv).await?;
    }
    Ok(())
}

/// Creates, changes and deletes that many objects, and creates one more. Returns its resource version once a list shows
/// it.
async fn write_batch(ctx: &Ctx, resource: &Resource, name: &str, objects: usize) -> Verdict<u64> {
    samples::all(AT_ONCE, (0..objects).map(|n| write_one(ctx, resource, format!("{name}-{n}")))).await?;
    let last = ctx.api.create(resource, &object(resource, &format!("{name}-last"))).await?.rv();
    let query = format!("resourceVersion={last}&resourceVersionMatch=NotOlderThan");
    let what = format!("a list of {} at {last}", resource.plural);
    wait::until(&what, ctx.wait_limit(), LOOK_EVERY, || async {
        let answer = ctx.api.try_list(resource, &query).await?;
        Ok(if answer.status == 200 { Ok(()) } else { Err(answer.to_string()) })
    })
    .await?;
    ctx.count("changes", changes_of(objects) as u64);
    Ok(last)
}

async fn write_one(ctx: &Ctx, resource: &Resource, name: String) -> Verdict {
    ctx.api.create(resource, &object(resource, &name)).await?;
    let patch = json!({"metadata": {"annotations": {"changed": "1"}}});
    ctx.api.try_patch_change(resource, &name, &patch).await?.object()?;
    ctx.api.delete(resource, &name).await?;
    Ok(())
}

fn object(resource: &Resource, name: &str) -> Object {
    if *resource == *POD_TEMPLATES { pod_template(name) } else { Object::new(resource, name) }
}

fn labels(resource: &Resource) -> [(&str, &str); 2] {
    [("group", &resource.group), ("resource", &resource.plural)]
}

fn fills(metrics: &Metrics, resource: &Resource) -> u64 {
    metrics.count(FILLS, &labels(resource))
}

/// A watch from `rv` must send every change after it.
async fn delivers(ctx: &Ctx, resource: &Resource, events: &ExpectedEvents, rv: u64) -> Verdict {
    let due = events.after(rv);
    let Some(last) = due.last().map(|event| event.rv) else {
        return Err(anyhow!("not exercised: no change of {} after {rv}", resource.plural).into());
    };
    let mut watch = ctx.api.watch(resource, &WatchOptions::after(rv)).await?;
    let is_last = |event: &Event| event.frame.rv >= last || matches!(event.frame.kind, FrameKind::Error { .. });
    let sent = watch.read_until(&format!("the change at {last}"), ctx.event_limit(), is_last).await?;
    let what = format!("a watch of {} from {rv}, after which no change may be missing", resource.plural);
    same_changes(due, &delivered(&sent)).map_err(on_stream(what, &sent))?;
    ctx.count("complete streams", 1);
    Ok(())
}

/// A watch from `rv` must be refused as expired. Returns the begin of the window that the refusal names.
async fn refused(ctx: &Ctx, resource: &Resource, rv: u64) -> Verdict<u64> {
    let options = WatchOptions::after(rv).timeout(ctx.scaled_seconds(SERVED_SECONDS));
    let answer = match ctx.api.try_watch(ctx.api.transport(), resource, &options).await? {
        Err(response) => Answer::Http(response),
        Ok(mut watch) => {
            let events = watch.read_to_end(ctx.event_limit()).await?;
            Answer::Stream(events, watch.end().cloned())
        }
    };
    let what = format!("a watch of {} from {rv}, before the window of the cache,", resource.plural);
    let message = expired_message(&what, &answer)?;
    ctx.count("refused watches", 1);
    edge_of(&message, rv).map_err(CheckError::failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::expected_events::tests::parse;

    #[test]
    fn window_begins_right_before_its_oldest_change() {
        let events = parse("ADDED a@3, ADDED b@5, MODIFIED a@9, DELETED b@12, ADDED c@13");
        assert_eq!(edge_before(&events, 4), Some(Edge { inside: [12, 5], edge: 4 }));
        assert_eq!(edge_before(&events, 2), Some(Edge { inside: [13, 12], edge: 11 }));
        assert_eq!(edge_before(&events, 5), None);
        assert_eq!(edge_before(&events, 6), None);
        assert_eq!(edge_before(&[], 1), None);
    }

    #[test]
    fn young_changes_are_kept_for_longer_than_a_request_may_take() {
        let after = |timeout: &str| fresh(&[("request-timeout".to_owned(), timeout.to_owned())].into());
        assert_eq!(fresh(&BTreeMap::new()).unwrap(), Duration::from_secs(75));
        assert_eq!(["30s", "1m0s", "156s"].map(|timeout| after(timeout).unwrap().as_secs()), [75, 75, 171]);
        assert!(after("soon").is_err());
    }

    #[test]
    fn batches_fill_move_and_grow_the_window() {
        assert_eq!([changes_of(FILL), changes_of(SLIDE), changes_of(GROW)], [100, 40, 61]);
    }
}
