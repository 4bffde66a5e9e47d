//! How watches begin: after a list, with a state, or with initial events and the bookmark that ends them.
//!
//! `watch_expired` covers refused starts.

use std::time::Duration;

use model::history::FrameKind;

use crate::support::expected_events::{
    ExpectedEvent, ExpectedEvents, State, changes, delivered, fault_of_list_then_watch, is_even, listed, names,
    on_stream, same_changes, same_state, seed_objects, start_of, while_writing,
};
use crate::support::verdict::within;
use suite::api::Transport;
use suite::object::SECRETS;
use suite::prelude::*;
use suite::watch::{Event, Watch, WatchOptions};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "watch.atomic-list-then-watch",
        place: here!(),
        level: Must,
        requirement: "A LIST at resource version R and a WATCH from R together give the list and every later change, \
                      with no gap, no duplicate and no event at or before R.",
        source: "kubernetes.io, Kubernetes API concepts, \"Efficient detection of changes\"; apiserver \
                 pkg/storage/cacher/watch_cache.go (getAllEventsSinceLocked)",
        observed: "While a writer creates, changes and deletes ConfigMaps without pause, the check lists with \
                   resourceVersion unset and 0, and opens a watch from each list's resource version, over HTTP/1.1 and \
                   HTTP/2. It compares with the store's own history: the items must be its state at R, the events its \
                   changes after R.",
        by_hand: "RV=$(kubectl get --raw /api/v1/namespaces/default/configmaps | jq -r .metadata.resourceVersion); \
                  kubectl get --raw \"/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=$RV\" and write \
                  ConfigMaps meanwhile; compare with etcdctl watch --prefix /registry/configmaps/default/ --rev $((RV+1))",
        profiles: &["default", "no-cache"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(atomic_list_then_watch),
    },
    Check {
        id: "watch.from-zero-or-unset",
        place: here!(),
        level: Must,
        requirement: "A WATCH with resourceVersion unset or 0 first sends one ADDED for each existing object that \
                      matches, then every change after that state, with no gap and no duplicate; unset begins with a \
                      state that contains every write acknowledged before the request.",
        source: "kubernetes.io, Kubernetes API concepts, \"Semantics for watch\"; apiserver \
                 pkg/storage/cacher/cacher.go (getWatchCacheResourceVersion)",
        observed: "The check opens such watches, with and without a label selector, over HTTP/1.1 and HTTP/2, while a \
                   writer runs. The events must be some state of the store followed by its later changes; for unset \
                   this state must not be older than the last acknowledged one. If no object matches, the watch must \
                   send nothing until one does.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?watch=true' and the same with \
                  &resourceVersion=0",
        profiles: &["default", "no-cache"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(from_zero_or_unset),
    },
    Check {
        id: "watch.watchlist",
        place: here!(),
        level: Must,
        requirement: "A WATCH with sendInitialEvents=true, resourceVersionMatch=NotOlderThan and \
                      allowWatchBookmarks=true sends the state at a resource version not older than the requested one \
                      (with none requested: not older than the request), then one BOOKMARK with that resource version \
                      and the annotation k8s.io/initial-events-end, then the later changes.",
        source: "KEP-3157; apiserver pkg/storage/cacher/cacher.go (setInitialEventsEndBookmarkIfRequested)",
        observed: "The check opens such watches with the resource version unset, 0 and that of the last write over \
                   HTTP/1.1 and HTTP/2 while a writer runs. Up to the bookmark, the stream replayed must equal the \
                   store's state and an Exact LIST at the bookmark's resource version; after it, the store's later \
                   changes and no second such bookmark must come. On a custom resource that no client changes, the \
                   bookmark must still have reached the revision that the store had before the request.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?watch=true&sendInitialEvents=true\
                  &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true'",
        profiles: &["default", "no-cache"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(watch_list),
    },
];

/// Both protocols of a watch.
pub(crate) const TRANSPORTS: [Transport; 2] = [Transport::Http1, Transport::Http2];

/// The number of objects that the writer uses; few, so that each is created, changed and deleted many times.
const OBJECTS: usize = 8;
/// The number of attempts for each kind of start while the writer runs.
const ROUNDS: usize = 5;

async fn atomic_list_then_watch(ctx: &Ctx) -> Verdict {
    let names = names(OBJECTS);
    seed_objects(ctx, &names).await?;
    let (last, begun) = while_writing(ctx, &names, Duration::ZERO, lists_then_watches(ctx)).await?;
    let expected = ExpectedEvents::of(ctx, &CONFIG_MAPS, last).await?;
    for (query, list, mut watch) in begun {
        let events = watch.read_to(last, ctx.event_limit()).await?;
        let listed = listed(ctx, &CONFIG_MAPS, &list);
        fault_of_list_then_watch(&expected, list.rv(), &listed, &delivered(&events))
            .map_err(on_stream(format!("list with `{query}`"), &events))?;
        ctx.count("lists", 1);
        ctx.count("events", events.len() as u64);
    }
    Ok(())
}

async fn lists_then_watches(ctx: &Ctx) -> Verdict<Vec<(&'static str, Object, Watch)>> {
    let mut begun = Vec::new();
    for _ in 0..ROUNDS {
        for &transport in ctx.api.transports() {
            for query in ["", "resourceVersion=0"] {
                let list = ctx.api.list(&CONFIG_MAPS, query).await?;
                let watch = ctx.api.watch_over(transport, &CONFIG_MAPS, &WatchOptions::after(list.rv())).await?;
                begun.push((query, list, watch));
            }
        }
    }
    Ok(begun)
}

async fn from_zero_or_unset(ctx: &Ctx) -> Verdict {
    until_something_matches(ctx).await?;
    let names = names(OBJECTS);
    seed_objects(ctx, &names).await?;
    let (last, begun) = while_writing(ctx, &names, Duration::ZERO, watches_with_a_state(ctx)).await?;
    let expected = ExpectedEvents::of(ctx, &CONFIG_MAPS, last).await?;
    let even = expected.only(is_even);
    for (options, floor, mut watch) in begun {
        let events = watch.read_to(last, ctx.event_limit()).await?;
        let selected = if options.labels.is_empty() { &expected } else { &even };
        let what = format!("watch with `{}`", options.query());
        let rv = start_of(selected, floor, &delivered(&events)).map_err(on_stream(what, &events))?;
        ctx.count("initial events", selected.state(rv).len() as u64);
        ctx.count("watches", 1);
        ctx.count("events", events.len() as u64);
    }
    Ok(())
}

/// Options, the revision that the first state must have reached, and the watch.
type Begun = Vec<(WatchOptions, u64, Watch)>;

async fn watches_with_a_state(ctx: &Ctx) -> Verdict<Begun> {
    let mut begun = Vec::new();
    for _ in 0..ROUNDS {
        for &transport in ctx.api.transports() {
            for (options, is_fresh) in [(WatchOptions::default(), true), (WatchOptions::after(0), false)] {
                for labels in ["", "half=even"] {
                    let floor = if is_fresh { revision(ctx).await? } else { 0 };
                    let options = options.clone().labels(labels);
                    let watch = ctx.api.watch_over(transport, &CONFIG_MAPS, &options).await?;
                    begun.push((options, floor, watch));
                }
            }
        }
    }
    Ok(begun)
}

/// If no object matches at the start, the first event must be the first object that does.
async fn until_something_matches(ctx: &Ctx) -> Verdict {
    let secret = |name: &str| Object::new(&SECRETS, name);
    ctx.api.create(&SECRETS, &secret("other")).await?;
    let mut waiting = Vec::new();
    for &transport in ctx.api.transports() {
        for options in [WatchOptions::default(), WatchOptions::after(0)] {
            waiting.push(ctx.api.watch_over(transport, &SECRETS, &options.labels("first=yes")).await?);
        }
    }
    let first = ctx.api.create(&SECRETS, &secret("first").with("metadata.labels.first", "yes")).await?;
    let key = ctx.store.key(&SECRETS, "first").await?;
    let expected = ExpectedEvent { word: "ADDED".into(), key: key.as_str().into(), rv: first.rv() };
    for mut watch in waiting {
        let events = watch.read_to(first.rv(), ctx.event_limit()).await?;
        same_changes(std::slice::from_ref(&expected), &delivered(&events))
            .map_err(on_stream("a watch without a match at its start", &events))?;
    }
    Ok(())
}

async fn watch_list(ctx: &Ctx) -> Verdict {
    of_an_idle_resource(ctx).await?;
    let names = names(OBJECTS);
    seed_objects(ctx, &names).await?;
    let (last, begun) = while_writing(ctx, &names, Duration::ZERO, watch_lists(ctx)).await?;
    let expected = ExpectedEvents::of(ctx, &CONFIG_MAPS, last).await?;
    for (options, floor, mut watch) in begun {
        let events = watch.read_to(last, ctx.event_limit()).await?;
        let what = format!("watch with `{}`", options.query());
        let rv = end_of_initial_events(&expected, floor, &events).map_err(on_stream(&what, &events))?;
        let list = ctx.api.list(&CONFIG_MAPS, &format!("resourceVersion={rv}&resourceVersionMatch=Exact")).await?;
        let exact = listed(ctx, &CONFIG_MAPS, &list);
        same_state(&exact, &expected.state(rv))
            .map_err(within(format!("an Exact LIST at the bookmark's {rv} differs")))
            .map_err(on_stream(&what, &events))?;
        ctx.count("watches", 1);
        ctx.count("initial events", exact.len() as u64);
        ctx.count("events", events.len() as u64);
    }
    Ok(())
}

async fn watch_lists(ctx: &Ctx) -> Verdict<Begun> {
    let mut begun = Vec::new();
    for _ in 0..ROUNDS {
        for &transport in ctx.api.transports() {
            let now = revision(ctx).await?;
            let requests = [(None, now), (Some("0".to_owned()), 0), (Some(now.to_string()), now)];
            for (resource_version, floor) in requests {
                let options = WatchOptions { resource_version, ..initial_events() };
                let watch = ctx.api.watch_over(transport, &CONFIG_MAPS, &options).await?;
                begun.push((options, floor, watch));
            }
        }
    }
    Ok(begun)
}

/// The watch cache of a type that does not change learns the store's progress only by requesting it.
async fn of_an_idle_resource(ctx: &Ctx) -> Verdict {
    let idle = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "idlers", "Idler").await?;
    let only = ctx.api.create(&idle, &Object::new(&idle, "only")).await?;
    let key = ctx.store.key(&idle, "only").await?;
    let expected =
        ExpectedEvents(vec![ExpectedEvent { word: "ADDED".into(), key: key.as_str().into(), rv: only.rv() }]);
    for &transport in ctx.api.transports() {
        let other = ctx.api.create(&SECRETS, &Object::new(&SECRETS, &transport.name().replace('/', "-"))).await?;
        let written = other.rv();
        for (resource_version, floor) in [(None, revision(ctx).await?), (Some(written.to_string()), written)] {
            let options = WatchOptions { resource_version, ..initial_events() };
            let what = format!("watch of an idle resource with `{}`", options.query());
            let mut watch = ctx.api.watch_over(transport, &idle, &options).await?;
            let events =
                watch.read_until("the end of the initial events", ctx.event_limit(), is_end_of_initial).await?;
            end_of_initial_events(&expected, floor, &events).map_err(on_stream(&what, &events))?;
            ctx.count("watches", 1);
        }
    }
    Ok(())
}

/// Checks a stream with initial events that goes up to the last change in `expected`. Returns the bookmark's resource
/// version.
fn end_of_initial_events(expected: &ExpectedEvents, floor: u64, events: &[Event]) -> Verdict<u64> {
    let at = events.iter().position(is_end_of_initial);
    let at = at.ok_or_else(|| CheckError::failed("no bookmark ended the initial events"))?;
    let (initial, rest) = (&events[..at], &events[at + 1..]);
    let rv = events[at].frame.rv;
    expect!(rv >= floor, "the bookmark is at {rv}, the request asked for {floor} or later");
    for event in delivered(initial) {
        expect!(event.rv <= rv, "the bookmark is at {rv}, but {event} came before it");
    }
    for event in initial {
        let fits = event.frame.is_change();
        expect!(fits, "{} came before the end of the initial events", ExpectedEvent::from(event));
    }
    for event in rest {
        let fits = !is_end_of_initial(event) && !is_error(event);
        expect!(fits, "{} came after the end of the initial events", ExpectedEvent::from(event));
    }
    same_state(&expected.state(rv), &replay(initial)?)
        .map_err(within(format!("the initial events are not the state at the bookmark's {rv}")))?;
    same_changes(expected.after(rv), &changes(rest)).map_err(within(format!("after the bookmark at {rv}")))?;
    Ok(rv)
}

/// The content of a client's cache after these events. A server may already mix changes into the initial events.
fn replay(events: &[Event]) -> Verdict<State> {
    let mut state = State::new();
    for event in events.iter().map(ExpectedEvent::from) {
        let known = state.contains_key(&event.key);
        let had = if known { "had been sent already" } else { "had not been sent" };
        expect!(known != (event.word == "ADDED"), "{event} for an object that {had}");
        if event.word == "DELETED" {
            state.remove(&event.key);
        } else {
            state.insert(event.key, event.rv);
        }
    }
    Ok(state)
}

fn is_end_of_initial(event: &Event) -> bool {
    event.frame.kind == FrameKind::Bookmark { end_of_initial: true }
}

fn is_error(event: &Event) -> bool {
    matches!(event.frame.kind, FrameKind::Error { .. } | FrameKind::Unknown { .. })
}

pub(crate) fn is_bookmark(event: &Event) -> bool {
    matches!(event.frame.kind, FrameKind::Bookmark { .. })
}

pub(crate) fn bookmarks(events: &[Event]) -> impl Iterator<Item = &Event> {
    events.iter().filter(|event| is_bookmark(event))
}

/// All events of a watch with a timeout. `new` is created while it is open.
pub(crate) async fn read_all(
    ctx: &Ctx,
    transport: Transport,
    resource: &Resource,
    options: &WatchOptions,
    new: Option<&Object>,
) -> Verdict<Vec<Event>> {
    let seconds = Duration::from_secs(options.timeout_seconds.unwrap_or_default().into());
    let mut watch = ctx.api.watch_over(transport, resource, options).await?;
    if let Some(new) = new {
        ctx.api.create(resource, new).await?;
    }
    watch.read_to_end(ctx.event_limit() + seconds).await
}

/// The parameters of a streaming list, without a resource version.
pub(crate) fn initial_events() -> WatchOptions {
    WatchOptions { initial_events: true, bookmarks: true, ..WatchOptions::default() }
}

async fn revision(ctx: &Ctx) -> Verdict<u64> {
    Ok(ctx.store.of(&CONFIG_MAPS).revision().await?.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::expected_events::tests::{events, parse};
    use crate::support::verdict::assert_fault;

    #[test]
    fn initial_events_are_a_state_and_one_bookmark() {
        let expected = ExpectedEvents(parse("ADDED a@2, ADDED b@3, MODIFIED a@5, DELETED b@6, ADDED c@7"));
        for (floor, stream, rv) in [
            (5, "ADDED a@5, ADDED b@3, END @5, DELETED b@6, ADDED c@7", 5),
            (0, "ADDED b@3, ADDED a@5, END @5, BOOKMARK @5, DELETED b@6, BOOKMARK @6, ADDED c@7", 5),
            (5, "ADDED a@5, ADDED b@3, DELETED b@6, END @6, ADDED c@7", 6),
            (9, "ADDED a@5, ADDED c@7, END @9", 9),
        ] {
            assert_eq!(end_of_initial_events(&expected, floor, &events(stream)).expect(stream), rv, "{stream}");
        }
        for (floor, stream, why) in [
            (0, "ADDED a@5, ADDED b@3, DELETED b@6, ADDED c@7", "no bookmark"),
            (6, "ADDED a@5, ADDED b@3, END @5, DELETED b@6, ADDED c@7", "asked for 6"),
            (0, "ADDED a@5, ADDED b@3, END @4, DELETED b@6, ADDED c@7", "ADDED a@5 came before it"),
            (0, "ADDED a@5, END @5, DELETED b@6, ADDED c@7", "b should be at 3, seen absent"),
            (0, "ADDED a@5, ADDED b@3, END @6, ADDED c@7", "b should be absent, seen at 3"),
            (0, "ADDED a@5, ADDED a@5, ADDED b@3, END @5, DELETED b@6, ADDED c@7", "sent already"),
            (0, "MODIFIED a@5, ADDED b@3, END @5, DELETED b@6, ADDED c@7", "had not been sent"),
            (0, "BOOKMARK @4, ADDED a@5, ADDED b@3, END @5, DELETED b@6, ADDED c@7", "BOOKMARK @4 came before"),
            (0, "ADDED a@5, ADDED b@3, END @5, DELETED b@6, END @6, ADDED c@7", "BOOKMARK @6 came after"),
            (0, "ADDED a@5, ADDED b@3, END @5, ERROR @0", "ERROR"),
            (0, "ADDED a@5, ADDED b@3, END @5, ADDED c@7", "should be DELETED b@6"),
            (0, "ADDED a@5, ADDED b@3, END @5, MODIFIED a@5, DELETED b@6, ADDED c@7", "seen MODIFIED a@5"),
        ] {
            assert_fault(end_of_initial_events(&expected, floor, &events(stream)), why, stream);
        }
    }
}
