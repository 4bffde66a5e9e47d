//! Streams directly from the store. The other watch checks with the profile `no-cache` compare the events of such
//! streams; this one checks that the streams really come from the store.

use anyhow::Context;

use crate::support::expected_events::{ExpectedEvents, delivered, on_stream, same_changes};
use crate::support::metrics::Metrics;
use crate::support::page::{sample, with_content};
use crate::watch::start::TRANSPORTS;
use suite::object::{ENDPOINTS, NAMESPACES};
use suite::prelude::*;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.from-etcd-direct",
    place: here!(),
    level: Should,
    requirement: "With --watch-cache=false the store serves every watch, with the same events as from a cache: each \
                  stream has its own watch in the store, and can begin at any revision that is not compacted, also at \
                  one from before the start of the apiserver.",
    source: "apiserver pkg/server/options/etcd.go (EnableWatchCache), pkg/storage/etcd3/watcher.go",
    observed: "On a server without watch cache, four streams of Endpoints over HTTP/1.1 and HTTP/2 get some changes. \
               apiserver_storage_events_received_total must rise by as many events as all streams got together (with a \
               cache, only by those of its single watch), there must be no metric of a watch cache, and each stream \
               must be the store's history. A watch of namespaces from revision 1 must begin with the first namespace \
               ever created. The main watch checks and judges run on the same profile.",
    by_hand: "start kube-apiserver with --watch-cache=false; kubectl get --raw \
              '/api/v1/namespaces?watch=true&resourceVersion=1'; kubectl get --raw /metrics | grep \
              apiserver_storage_events_received_total",
    profiles: &["no-cache"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(from_etcd_direct),
}];

const STREAMS_EACH: usize = 2;
const RECEIVED: &str = "apiserver_storage_events_received_total";

async fn from_etcd_direct(ctx: &Ctx) -> Verdict {
    let before = Metrics::read(ctx).await?;
    expect!(!before.has_any("apiserver_watch_cache_"), "the server has metrics of a watch cache");
    let received = |metrics: &Metrics| metrics.sum(RECEIVED, &[("resource", "endpoints")]).unwrap_or(0.0);
    let begin = ctx.api.list(&ENDPOINTS, "").await?.rv();
    let mut watches = Vec::new();
    for transport in TRANSPORTS {
        for _ in 0..STREAMS_EACH {
            watches.push(ctx.api.watch_over(transport, &ENDPOINTS, &WatchOptions::after(begin)).await?);
        }
    }
    let mut object = ctx.api.create(&ENDPOINTS, &sample(ctx, &ENDPOINTS, "a", "0").await?).await?;
    for n in 1..5 {
        object = ctx.api.update(&ENDPOINTS, &with_content(object, &n.to_string())).await?;
    }
    ctx.api.delete(&ENDPOINTS, "a").await?;
    let last = ctx.api.create(&ENDPOINTS, &sample(ctx, &ENDPOINTS, "last", "0").await?).await?.rv();
    let expected = ExpectedEvents::of(ctx, &ENDPOINTS, last).await?;
    let mut events = 0;
    for mut watch in watches {
        let seen = watch.read_to(last, ctx.event_limit()).await?;
        same_changes(expected.after(begin), &delivered(&seen)).map_err(on_stream("a stream from the store", &seen))?;
        events += seen.len();
        ctx.count("streams", 1);
    }
    ctx.count("events", events as u64);
    let rise = received(&Metrics::read(ctx).await?) - received(&before);
    expect!(
        rise >= events as f64,
        "the streams got {events} events, but the server received {rise} from the store: the streams share a watch"
    );
    from_the_first_revision(ctx).await
}

/// A cache has no history from before it was filled; the store has it.
async fn from_the_first_revision(ctx: &Ctx) -> Verdict {
    let namespaces = &*NAMESPACES;
    // The server creates the first namespaces at its start, before any client creates one, and they are never deleted.
    let there = ctx.store.list(namespaces, 0).await?;
    let first = there.into_iter().min_by_key(|stored| stored.create_rev);
    let first = first.context("not exercised: the store holds no namespace")?;
    let mut watch = ctx.api.watch_over(TRANSPORTS[0], namespaces, &WatchOptions::after(1)).await?;
    let event = watch.next(ctx.event_limit()).await?;
    let seen = event.as_ref().map(|event| (event.word().to_owned(), event.frame.rv));
    let (key, rev) = (first.key, first.create_rev);
    let right = seen == Some(("ADDED".into(), rev.cast_unsigned()));
    expect!(right, "a watch of namespaces from revision 1 begins with {seen:?}, the first one is {key} at {rev}");
    Ok(())
}
