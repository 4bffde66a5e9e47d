//! Many watchers, many changes, and a watcher that does not read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use futures::future::try_join_all;
use model::history::End;

use crate::support::expected_events::{
    ExpectedEvents, changes, fail, names, on_stream, same_changes, seed_objects, while_writing,
};
use crate::support::metrics::Metrics;
use crate::support::watch_follow::Follower;
use suite::api::Transport;
use suite::prelude::*;
use suite::watch::{Event, WatchOptions};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "watch.independent-of-slow",
        place: here!(),
        level: Should,
        requirement: "The server cuts off a client that does not read its watch, without delaying other clients; the \
                      events before the cut have no gap, and the client can resume from there.",
        source: "apiserver pkg/storage/cacher/cache_watcher.go (add), pkg/storage/cacher/time_budget.go; \
                 pkg/storage/testing/watcher_tests.go (RunTestWatcherTimeout)",
        observed: "The check opens two watches of a custom resource and does not read one of them until \
                   apiserver_terminated_watchers_total counts it. Meanwhile it writes objects: first large ones that \
                   fill the buffers between server and client, then many small ones. The other watch must get every \
                   change at once all the while. Then the check reads the slow watch: its stream must be the first \
                   part of the store's history and end by itself, and a watch from its last resource version must \
                   deliver the rest.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?watch=true' | (sleep 600) while thousands of \
                  changes are made; kubectl get --raw /metrics | grep apiserver_terminated_watchers_total",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(independent_of_slow),
    },
    Check {
        id: "watch.200-watchers",
        place: here!(),
        level: Extra,
        requirement: "Two hundred watchers of one collection that reconnect at random from their last resource version all \
                      record the same order of changes.",
        source: "kubernetes pull request 109730 (total order of watch events)",
        observed: "200 watchers on several connections, over HTTP/1.1 and HTTP/2, follow ConfigMaps from one resource \
                   version while a writer runs; each closes its stream after a random number of events and resumes. \
                   The events of each watcher in all its streams must be the store's history.",
        by_hand: "for i in $(seq 200); do kubectl get --raw '/api/v1/namespaces/default/configmaps?watch=true\
                  &resourceVersion=R' > $i & done, write ConfigMaps, and compare the files",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(two_hundred),
    },
    Check {
        id: "watch.burst-10k",
        place: here!(),
        level: Extra,
        requirement: "In a burst of ten thousand updates a watch delivers every one, or ends and can be resumed, or is \
                      answered 410; no update is lost.",
        source: "kubernetes issue 123072; etcd issue 17529",
        observed: "Sixteen writers update separate objects without pause, ten thousand times in all (fewer by the \
                   machine's slowdown factor, and only as many as it manages in a minute times this factor), while \
                   three readers follow, one of them reconnecting often. The events of each reader must be the store's \
                   history, with a new list after a 410.",
        by_hand: "kubectl get cm --watch --output-watch-events > log while ten thousand kubectl annotate cm run; count \
                  the lines",
        profiles: &["json"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(burst),
    },
];

/// These fill the flow-control windows and buffers between server and client …
const LARGE_WRITES: usize = 40;
const LARGE: usize = 300_000;
/// … and these the channels of the watcher, at most 100 events each way.
const SMALL_WRITES: usize = 1500;
/// The number of writes after which the check asks whether the server has cut the client off.
const WRITES_PER_READING: usize = 50;
const TERMINATED: &str = "apiserver_terminated_watchers_total";

async fn independent_of_slow(ctx: &Ctx) -> Verdict {
    let group = format!("{}.example.org", ctx.name_prefix());
    let loads = &ctx.api.define(&group, "loads", "Load").await?;
    let begin = ctx.api.list(loads, "").await?.rv();
    let slow_reader = ctx.worker("slow").await?;
    let mut slow = slow_reader.api.watch_over(Transport::Http2, loads, &WatchOptions::after(begin)).await?;
    let mut fast = ctx.api.watch_over(Transport::Http1, loads, &WatchOptions::after(begin)).await?;
    let mut object = ctx.api.create(loads, &Object::new(loads, "a")).await?;
    let mut latest = object.rv();
    let mut slowest = Duration::ZERO;
    let mut all = fast.read_to(latest, ctx.event_limit()).await?;
    let mut cut = false;
    for n in 0..LARGE_WRITES + SMALL_WRITES {
        let padding = if n < LARGE_WRITES { LARGE } else { 0 };
        let text = format!("{n}{}", "x".repeat(padding));
        object = ctx.api.update(loads, &object.with("spec.text", text)).await?;
        latest = object.rv();
        let written = Instant::now();
        all.extend(fast.read_to(latest, ctx.event_limit()).await?);
        slowest = slowest.max(written.elapsed());
        if n >= LARGE_WRITES && n % WRITES_PER_READING == 0 {
            cut = Metrics::read(ctx).await?.sum(TERMINATED, &[("group", &group)]) > Some(0.0);
            if cut {
                break;
            }
        }
    }
    ctx.count("events", all.len() as u64);
    ctx.count("longest wait of the other, ms", u64::try_from(slowest.as_millis()).unwrap_or(u64::MAX));
    let in_time = slowest <= ctx.limit(5.0);
    expect!(in_time, "next to a watch that is not read another one waited {slowest:.1?} for a change");
    expect!(cut, "a client that read nothing of {} changes was not cut off", LARGE_WRITES + SMALL_WRITES);
    let expected = ExpectedEvents::of(ctx, loads, latest).await?;
    same_changes(expected.after(begin), &changes(&all)).map_err(on_stream("the watch next to a slow one", &all))?;
    let seen = slow.read_to_end(ctx.event_limit()).await?;
    resumes(ctx, loads, &expected, begin, seen, slow.end()).await
}

/// The slow client's events must be the first part of the history; the rest must come after its last resource version.
async fn resumes(
    ctx: &Ctx,
    resource: &Resource,
    expected: &ExpectedEvents,
    begin: u64,
    seen: Vec<Event>,
    end: Option<&End>,
) -> Verdict {
    let due = expected.after(begin);
    if seen.len() >= due.len() {
        return Err(anyhow!("not exercised: the client that did not read lost nothing").into());
    }
    same_changes(&due[..seen.len()], &changes(&seen)).map_err(on_stream("the watch that was not read", &seen))?;
    if end != Some(&End::Server) {
        return Err(fail("the watch that was not read", &format!("its end was {end:?}"), &seen));
    }
    let last = due[due.len() - 1].rv;
    let from = seen.last().map_or(begin, |event| event.frame.rv);
    let mut follower = Follower::open(ctx, Transport::Http2, resource, WatchOptions::default(), from).await?;
    follower.follow_to(last).await?;
    follower.judge(expected)
}

const WATCHERS: usize = 200;
/// An apiserver allows a hundred streams on one HTTP/2 connection (--http2-max-streams-per-connection).
const EACH: usize = 50;
/// The maximum number of events that a watcher reads before it reconnects.
const MOST: usize = 8;
const RECONNECTS: usize = 3;

async fn two_hundred(ctx: &Ctx) -> Verdict {
    let names = names(6);
    seed_objects(ctx, &names).await?;
    let begin = ctx.api.list(&CONFIG_MAPS, "").await?.rv();
    let mut clients = Vec::new();
    for n in 0..WATCHERS / EACH {
        clients.push(ctx.worker(&format!("client-{n}")).await?);
    }
    let readers = async {
        let opened = clients.iter().enumerate().flat_map(|(n, client)| {
            let transport = if n == 0 { Transport::Http1 } else { Transport::Http2 };
            (0..EACH).map(move |_| resume_repeatedly(client, transport, begin))
        });
        try_join_all(opened).await
    };
    let (last, mut readers) = while_writing(ctx, &names, Duration::from_millis(20), readers).await?;
    let expected = ExpectedEvents::of(ctx, &CONFIG_MAPS, last).await?;
    try_join_all(readers.iter_mut().map(|reader| reader.follow_to(last))).await?;
    for reader in &readers {
        reader.judge(&expected)?;
    }
    ctx.count("watchers", readers.len() as u64);
    Ok(())
}

/// Reads a few events, closes, and resumes, several times.
async fn resume_repeatedly(ctx: &Ctx, transport: Transport, begin: u64) -> Verdict<Follower<'_>> {
    let mut follower = Follower::open(ctx, transport, &CONFIG_MAPS, WatchOptions::default(), begin).await?;
    for _ in 0..RECONNECTS {
        let count = ctx.random().usize(1..=MOST);
        follower.read_and_close(count).await?;
    }
    Ok(follower)
}

const BURST: u128 = 10_000;
/// The minimum number of writes of a burst.
const LEAST: usize = 400;
/// Seconds, times the machine's slowdown factor, after which the writers stop.
const BURST_LIMIT: f64 = 60.0;
const WRITERS: usize = 16;
/// The number of events after which the third reader reconnects.
const OFTEN: usize = 97;

async fn burst(ctx: &Ctx) -> Verdict {
    let begin = ctx.api.list(&CONFIG_MAPS, "").await?.rv();
    // One second at this machine's speed.
    let second = ctx.limit(1.0).as_millis().max(1000);
    let updates = usize::try_from(BURST * 1000 / second).unwrap_or(LEAST).max(LEAST);
    let open = |transport| Follower::open(ctx, transport, &CONFIG_MAPS, WatchOptions::default(), begin);
    let mut one = open(Transport::Http1).await?;
    let mut two = open(Transport::Http2).await?;
    let mut often = open(Transport::Http2).await?;
    let per_writer = updates.div_ceil(WRITERS);
    let until = Instant::now() + ctx.limit(BURST_LIMIT);
    let writers = try_join_all((0..WRITERS).map(|n| write_many(ctx, n, per_writer, until)));
    let last = AtomicU64::new(0);
    let written = async {
        let written: usize = writers.await?.into_iter().sum();
        let marker = ctx.api.create(&CONFIG_MAPS, &Object::new(&CONFIG_MAPS, "zz-last")).await?;
        last.store(marker.rv(), Ordering::Relaxed);
        Ok(written)
    };
    let (written, ..) = tokio::try_join!(
        written,
        one.follow_until(&last, usize::MAX),
        two.follow_until(&last, usize::MAX),
        often.follow_until(&last, OFTEN),
    )?;
    let last = last.into_inner();
    let expected = ExpectedEvents::of(ctx, &CONFIG_MAPS, last).await?;
    for reader in [one, two, often] {
        reader.judge(&expected)?;
        ctx.count("ends", reader.ends.len() as u64);
    }
    ctx.count("writes", written as u64);
    if written < LEAST {
        return Err(anyhow!("not exercised: {written} writes in {BURST_LIMIT} s are not a burst").into());
    }
    Ok(())
}

/// Returns the number of writes; the first one is the creation.
async fn write_many(ctx: &Ctx, number: usize, count: usize, until: Instant) -> anyhow::Result<usize> {
    let mut object = ctx.api.create(&CONFIG_MAPS, &Object::new(&CONFIG_MAPS, &format!("w{number}"))).await?;
    for n in 1..count {
        if Instant::now() > until {
            return Ok(n);
        }
        object = ctx.api.update(&CONFIG_MAPS, &object.with("data.n", n.to_string())).await?;
    }
    Ok(count)
}
