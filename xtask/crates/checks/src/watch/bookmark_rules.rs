//! When the server sends bookmarks and when not, and their revisions. `watch_bookmark` covers their promises.

use std::time::Duration;

use futures::future::try_join_all;
use model::history::FrameKind;

use crate::support::expected_events::{fail, names, on_stream, seed_objects, while_writing};
use crate::support::metrics::Metrics;
use crate::support::page::sample;
use crate::support::verdict::until_exercised;
use crate::watch::start::{bookmarks, initial_events, is_bookmark, read_all};
use suite::api::Transport;
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::watch::{Event, Next, Watch, WatchOptions};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "watch.no-bookmark-by-default",
        place: here!(),
        level: Should,
        requirement: "A watch without allowWatchBookmarks gets no BOOKMARK; a watch that the store serves (Events, or \
                      without watch cache) gets none even with allowWatchBookmarks, except the one that ends its \
                      initial events.",
        source: "apiserver pkg/storage/cacher/cacher.go (Watch), pkg/storage/etcd3/watcher.go; kubernetes \
                 pkg/kubeapiserver/default_storage_factory_builder.go (events have no cache)",
        observed: "The check reads streams of ConfigMaps and Events to their end over HTTP/1.1 and HTTP/2, with and \
                   without allowWatchBookmarks. They end after some seconds, which is when a watch cache sends \
                   bookmarks; all deliver a change. On `default` the stream of ConfigMaps with allowWatchBookmarks \
                   must have got a bookmark, or longer streams follow; on `no-cache` it must not.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=R&timeoutSeconds=5', \
                  and the same with &allowWatchBookmarks=true",
        profiles: &["default", "no-cache"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(no_bookmark_by_default),
    },
    Check {
        id: "watch.bookmark-rv-is-revision",
        place: here!(),
        level: Should,
        requirement: "The resource version of a BOOKMARK is a revision that the store has reached, and not lower than \
                      that of any event before it.",
        source: "etcd tests/robustness/validate/watch.go (bookmarkable); apiserver pkg/storage/cacher/cacher.go \
                 (dispatchEvent, bookmarks)",
        observed: "While a writer changes ConfigMaps, the check collects bookmarks of ConfigMaps, Events and an idle \
                   custom resource: those after initial events and the periodic ones. As soon as one has come, it \
                   reads the store's revision, which must not be lower, and the store's state at the bookmark, which \
                   must exist.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=R&timeoutSeconds=5\
                  &allowWatchBookmarks=true'; etcdctl endpoint status -w json | jq '.[].Status.header.revision'",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(bookmark_rv_is_revision),
    },
    Check {
        id: "watch.legacy-bookmark-134",
        place: here!(),
        level: Should,
        requirement: "With the feature gate WatchList, a watch with resourceVersion unset or 0 and no other option has \
                      initial events: with allowWatchBookmarks it also gets the bookmark that ends them, at a resource \
                      version not lower than theirs; without, only the events.",
        source: "apimachinery pkg/apis/meta/internalversion/defaults.go (SetListOptionsDefaults), KEP-3157",
        observed: "The check opens such watches of ConfigMaps and Events over HTTP/1.1 and HTTP/2 when some objects \
                   exist: first one ADDED for each, then the bookmark with the annotation, then a change; without \
                   allowWatchBookmarks the change follows at once. The check reads the gate from /metrics.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?watch=true&allowWatchBookmarks=true'",
        profiles: &["default", "no-cache"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(legacy_bookmark),
    },
];

/// The duration of the first streams, in seconds; a cache sends a bookmark about two seconds before the end. If the
/// machine was too slow for a bookmark, longer streams follow.
const SHORTEST: u32 = 4;

async fn no_bookmark_by_default(ctx: &Ctx) -> Verdict {
    let has_cache = ctx.profile().flags.get("watch-cache").is_none_or(|value| value != "false");
    let event = "no stream delivered its change, or none had a bookmark where one is due";
    until_exercised(ctx, event, |round| without_bookmarks(ctx, round, has_cache)).await
}

/// A stream (what, transport, resource, options), and the maximum number of its bookmarks.
type Plan = (&'static str, Transport, &'static Resource, WatchOptions, usize);

/// The first stream allows bookmarks and is served from the cache, if there is one.
async fn plans(ctx: &Ctx, seconds: u32, has_cache: bool) -> Verdict<[Plan; 7]> {
    let (http1, http2) = (Transport::Http1, ctx.api.transport());
    let maps = WatchOptions::after(ctx.api.list(&CONFIG_MAPS, "").await?.rv()).timeout(seconds);
    let events = WatchOptions::after(ctx.api.list(&CORE_EVENTS, "").await?.rv()).timeout(seconds);
    let unset = WatchOptions::default().timeout(seconds);
    let initial = initial_events().timeout(seconds);
    let without_limit = if has_cache { usize::MAX } else { 0 };
    Ok([
        ("ConfigMaps with bookmarks", http2, &CONFIG_MAPS, maps.clone().bookmarks(), without_limit),
        ("ConfigMaps without bookmarks", http1, &CONFIG_MAPS, maps.clone(), 0),
        ("ConfigMaps without bookmarks", http2, &CONFIG_MAPS, maps, 0),
        ("ConfigMaps without resource version", http1, &CONFIG_MAPS, unset, 0),
        ("Events from the store with bookmarks", http1, &CORE_EVENTS, events.clone().bookmarks(), 0),
        ("Events from the store without bookmarks", http2, &CORE_EVENTS, events, 0),
        ("Events from the store with initial events", http2, &CORE_EVENTS, initial, 1),
    ])
}

/// False if the streams were too short for this machine.
async fn without_bookmarks(ctx: &Ctx, round: u32, has_cache: bool) -> Verdict<bool> {
    let plans = plans(ctx, ctx.round_seconds(SHORTEST, round), has_cache).await?;
    let streams =
        plans.iter().map(|(_, transport, resource, options, _)| read_all(ctx, *transport, resource, options, None));
    let streams = try_join_all(streams);
    let (streams, ()) = tokio::try_join!(streams, write(ctx, round))?;
    for ((what, transport, .., most), events) in plans.iter().zip(&streams) {
        let count = bookmarks(events).count();
        if count > *most {
            let fault = format!("{count} bookmarks instead of {most}");
            return Err(fail(&format!("a watch of {what} over {}", transport.name()), &fault, events));
        }
        ctx.count("streams", 1);
    }
    let all_told = streams.iter().all(|events| events.iter().any(|event| event.frame.is_change()));
    let asked = bookmarks(&streams[0]).count();
    ctx.count("bookmarks of the stream that asks", asked as u64);
    let initial = streams.last().is_some_and(|events| bookmarks(events).count() == 1);
    Ok(all_told && initial && (asked > 0 || !has_cache))
}

/// Writes at once, so that the bookmarks have new revisions.
async fn write(ctx: &Ctx, round: u32) -> Verdict {
    for resource in [&*CONFIG_MAPS, &CORE_EVENTS] {
        for n in 0..3 {
            ctx.api.create(resource, &sample(ctx, resource, &format!("n{n}-{round}"), "1").await?).await?;
        }
    }
    Ok(())
}

async fn bookmark_rv_is_revision(ctx: &Ctx) -> Verdict {
    let custom = &ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "pages", "Page").await?;
    ctx.api.create(custom, &sample(ctx, custom, "only", "1").await?).await?;
    let names = names(4);
    seed_objects(ctx, &names).await?;
    let mut rounds = ctx.rounds("no periodic bookmark came on any stream");
    loop {
        let seconds = ctx.round_seconds(SHORTEST, rounds.next()?);
        let periodic = WatchOptions::after(ctx.api.list(&CONFIG_MAPS, "").await?.rv()).bookmarks().timeout(seconds);
        let idle = WatchOptions::after(ctx.api.list(custom, "").await?.rv()).bookmarks().timeout(seconds);
        let readers = async {
            tokio::try_join!(
                check_bookmarks(ctx, Transport::Http1, &CONFIG_MAPS, &periodic, u64::MAX),
                check_bookmarks(ctx, Transport::Http1, custom, &idle, u64::MAX),
                repeat_initial_events(ctx, &CONFIG_MAPS),
                repeat_initial_events(ctx, &CORE_EVENTS),
                repeat_initial_events(ctx, custom),
            )
        };
        let (_, seen) = while_writing(ctx, &names, Duration::from_millis(20), readers).await?;
        let (periodic, idle, ..) = seen;
        ctx.count("periodic bookmarks", periodic + idle);
        // The bookmark of the idle resource may be missing: it had no new change.
        if periodic > 0 {
            return Ok(());
        }
    }
}

async fn repeat_initial_events(ctx: &Ctx, resource: &Resource) -> Verdict<u64> {
    let mut seen = 0;
    for _ in 0..5 {
        let first = check_bookmarks(ctx, ctx.api.transport(), resource, &initial_events(), 1).await?;
        expect!(first == 1, "the initial events of {} ended without a bookmark", resource.plural);
        seen += first;
    }
    ctx.count("bookmarks after initial events", seen);
    Ok(seen)
}

/// Checks the bookmarks of a watch up to this number, or to the end; returns their number.
async fn check_bookmarks(
    ctx: &Ctx,
    transport: Transport,
    resource: &Resource,
    options: &WatchOptions,
    most: u64,
) -> Verdict<u64> {
    let mut watch = ctx.api.watch_over(transport, resource, options).await?;
    let (mut highest, mut seen) = (0, 0);
    let patience = ctx.event_limit() + Duration::from_secs(ctx.round_seconds(SHORTEST, u32::MAX).into());
    while seen < most {
        let event = match watch.poll(patience).await? {
            Next::Event(event) => *event,
            Next::End => break,
            Next::Nothing => {
                return Err(CheckError::TimedOut { what: format!("the end of a watch of {}", resource.plural) });
            }
        };
        let rv = event.frame.rv;
        if is_bookmark(&event) {
            let store = ctx.store.of(resource);
            let revision = store.revision().await?.cast_unsigned();
            expect!(rv <= revision, "a bookmark of {} at {rv}, but the store is at {revision}", resource.plural);
            expect!(rv >= highest, "a bookmark of {} at {rv} after an event at {highest}", resource.plural);
            let name = ctx.store.key(resource, "none").await?;
            store.get(&name, rv.cast_signed()).await?;
            seen += 1;
        }
        highest = highest.max(rv);
    }
    Ok(seen)
}

const GATE: &str = "WatchList";

async fn legacy_bookmark(ctx: &Ctx) -> Verdict {
    if Metrics::read(ctx).await?.gate(GATE) != Some(true) {
        return Err(CheckError::Skipped { need: format!("the feature gate {GATE}") });
    }
    for resource in [&*CONFIG_MAPS, &CORE_EVENTS] {
        for name in ["a", "b"] {
            ctx.api.create(resource, &sample(ctx, resource, name, "1").await?).await?;
        }
        // A cache without a required freshness may begin before the two objects: the list waits until it has them.
        ctx.api.list(resource, "").await?;
        let mut open_ones = Vec::new();
        for &transport in ctx.api.transports() {
            for options in [WatchOptions::default(), WatchOptions::after(0)] {
                for bookmarks in [true, false] {
                    let options = WatchOptions { bookmarks, ..options.clone() };
                    let mut watch = ctx.api.watch_over(transport, resource, &options).await?;
                    let events = first_events(ctx, &mut watch, if bookmarks { 3 } else { 2 }).await?;
                    open_ones.push((options, watch, events));
                }
            }
        }
        let last = ctx.api.create(resource, &sample(ctx, resource, "c", "1").await?).await?.rv();
        for (options, mut watch, mut events) in open_ones {
            events.extend(watch.read_to(last, ctx.event_limit()).await?);
            let what = format!("a watch of {} with `{}`", resource.plural, options.query());
            fault_of_legacy(options.bookmarks, &events).map_err(on_stream(what, &events))?;
            ctx.count("streams", 1);
        }
    }
    Ok(())
}

/// The first `count` events, or fewer if the stream fell silent or ended: the server did not send the rest.
async fn first_events(ctx: &Ctx, watch: &mut Watch, count: usize) -> Verdict<Vec<Event>> {
    let mut events = Vec::new();
    while events.len() < count {
        match watch.poll(ctx.limit(10.0)).await? {
            Next::Event(event) => events.push(*event),
            Next::End | Next::Nothing => break,
        }
    }
    Ok(events)
}

/// Expects two objects, the bookmark if it is allowed, and one more change. Periodic bookmarks may come after the
/// initial events.
fn fault_of_legacy(bookmarks: bool, events: &[Event]) -> Verdict {
    let end_at = events.iter().position(|event| event.frame.kind == FrameKind::Bookmark { end_of_initial: true });
    let changes: Vec<String> =
        events.iter().filter(|e| e.frame.is_change()).map(|e| format!("{} {}", e.word(), e.object.name())).collect();
    expect!(changes == ["ADDED a", "ADDED b", "ADDED c"], "the changes are {changes:?}");
    expect!(end_at.is_some() || !bookmarks, "no bookmark ended the initial events");
    let Some(at) = end_at else { return Ok(()) };
    expect!(bookmarks, "a bookmark came although none was allowed");
    expect!(at == 2, "the bookmark came as event {}", at + 1);
    let is_newest = events[..at].iter().all(|event| event.frame.rv <= events[at].frame.rv);
    expect!(is_newest, "the bookmark is older than an initial event");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::expected_events::tests::events;
    use crate::support::verdict::assert_fault;
    use serde_json::json;
    use suite::object::Object;

    #[test]
    fn legacy_bookmark_is_between_state_and_changes() {
        let stream = |text: &str| -> Vec<Event> {
            let named = |event: Event| {
                let object = Object(json!({"metadata": {"name": event.frame.key.to_string()}}));
                Event { object, ..event }
            };
            events(text).into_iter().map(named).collect()
        };
        for (bookmarks, text, why) in [
            (true, "ADDED a@2, ADDED b@3, END @3, ADDED c@5", ""),
            (true, "ADDED a@2, ADDED b@3, END @4, BOOKMARK @4, ADDED c@5", ""),
            (false, "ADDED a@2, ADDED b@3, ADDED c@5", ""),
            (true, "ADDED a@2, ADDED b@3, ADDED c@5", "no bookmark"),
            (true, "ADDED a@2, ADDED b@3, BOOKMARK @4, ADDED c@5", "no bookmark"),
            (false, "ADDED a@2, ADDED b@3, END @4, ADDED c@5", "although none"),
            (true, "ADDED a@2, END @2, ADDED b@3, ADDED c@5", "as event 2"),
            (true, "ADDED a@2, ADDED b@3, END @2, ADDED c@5", "is older"),
            (true, "ADDED b@3, END @4, ADDED c@5", "the changes are"),
        ] {
            assert_fault(fault_of_legacy(bookmarks, &stream(text)), why, text);
        }
    }
}
