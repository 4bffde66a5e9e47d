//! etcd leases of events: which keys have one, how long it lasts, and how many keys share it.
//!
//! An apiserver keeps one lease per kind of event that it writes (core and events.k8s.io are two) and renews none.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use model::history::{Change, FrameKind, Revision};
use serde_json::json;

use crate::support::lease_use::{Lease, MOST, Times, reuse_fault};
use crate::support::samples::all;
use crate::support::verdict::until_exercised;
use suite::object::{CORE_EVENTS, EVENTS, LEASES, NAMESPACES, POD_TEMPLATES};
use suite::prelude::*;
use suite::wait::{pause, until};
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.event-lease",
        place: here!(),
        level: Must,
        requirement: "An Event's key has an etcd lease that was granted for --event-ttl and the reuse window, other \
                      resources have none, and when the lease expires, the key is removed and a watch gets DELETED.",
        source: "apiserver pkg/storage/etcd3/lease_manager.go, kubernetes pkg/registry/core/event/storage/storage.go",
        observed: "The check reads LeaseTimeToLive of an Event's lease (3660 s at the defaults), written through \
                   either group, and the lease of other objects, which must be 0. On `short-events` the TTL is 20 s, \
                   so 21 s are granted: a watch must show the Event DELETED, not before 20 s, and its key must be \
                   gone.",
        by_hand: "kubectl create -f event.yaml; etcdctl get /registry/events/default/a -w json | jq .kvs[0].lease; \
                  etcdctl lease timetolive --keys <id in hex>",
        profiles: &["default", "short-events"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(event_lease),
    },
    Check {
        id: "storage.lease-reuse",
        place: here!(),
        level: Must,
        requirement: "Events written within the reuse window, the lesser of 60 s and 5 % of the TTL, share a lease, \
                      which serves at most 1000 writes: the 1001st gets a new one.",
        source: "apiserver pkg/storage/etcd3/lease_manager.go",
        observed: "The check writes more than 1000 Events concurrently, on a profile with a window of 180 s, so that a \
                   slow machine can fill a lease. A new lease may begin only when the one before it has served 1000 \
                   writes or is as old as the window, and none may serve more. On `short-events`, where the window is \
                   1 s, an Event after the window must have another lease, one within it the same.",
        by_hand: "for i in $(seq 1001); do kubectl create -f event-$i.yaml; done; etcdctl lease list; \
                  etcdctl lease timetolive --keys <id> | wc",
        profiles: &["prefix", "short-events"],
        // While other checks run, an emulated server does not manage so many writes within the window.
        requires: Requires::OwnCluster(&[Requirement::Exclusive]),
        run: scenario!(lease_reuse),
    },
];

/// Concurrent requests while a lease is filled.
const WRITERS: usize = 16;

async fn event_lease(ctx: &Ctx) -> Verdict {
    let times = Times::of(&ctx.profile().flags)?;
    let watch = WatchOptions::after(ctx.api.list(&CORE_EVENTS, "").await?.rv());
    let mut watch = ctx.api.watch(&CORE_EVENTS, &watch).await?;
    let expires = ctx.profile().name == "short-events";
    let (name, written) = leased(ctx, &CORE_EVENTS, "core", &times).await?;
    // On that profile only `storage.lease-reuse` may write through the other group.
    if !expires {
        leased(ctx, &EVENTS, "new", &times).await?;
    }
    others_have_none(ctx).await?;
    if !expires {
        return Ok(());
    }
    let limit = Duration::from_secs(times.granted().unsigned_abs()) + ctx.limit(40.0);
    let gone = |event: &suite::watch::Event| event.frame.kind == FrameKind::Deleted && event.object.name() == name;
    let events = watch.read_until(&format!("the expiry of the event `{name}`"), limit, gone).await?;
    let lived = written.elapsed();
    // There is no upper bound: etcd extends leases when its leader changes.
    expect!(lived >= Duration::from_secs(times.ttl.unsigned_abs()), "the event `{name}` expired after {lived:?}");
    let deleted = events.last().context("the watch stopped at an event")?;
    expect_eq!(ctx.store.find(&CORE_EVENTS, &name).await?, None, "the stored key of the expired event");
    expiry_is_recorded(ctx, &name, deleted.frame.rv).await?;
    ctx.count("events expired", 1);
    Ok(())
}

/// Writes an event, whose lease must have been granted for the right time. Returns its name, and a time before it.
async fn leased(ctx: &Ctx, resource: &Resource, prefix: &str, times: &Times) -> Verdict<(String, Instant)> {
    let mut rounds = ctx.rounds("every event expired before its lease was read");
    loop {
        let name = format!("{prefix}-{}", rounds.next()?);
        let written = Instant::now();
        let verdict = is_granted(ctx, resource, &name, times).await;
        if times.unless_expired(verdict, written.elapsed())?.is_some() {
            return Ok((name, written));
        }
    }
}

async fn is_granted(ctx: &Ctx, resource: &Resource, name: &str, times: &Times) -> Verdict {
    create(ctx, resource, name).await?;
    let lease = lease_of(ctx, resource, name).await?;
    let granted = ctx.store.of(resource).lease(lease).await?.granted;
    expect_eq!(granted, times.granted(), "seconds for which the lease of the event `{name}` was granted");
    Ok(())
}

async fn create(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict {
    ctx.api.create(resource, &event(resource, ctx.api.namespace().await?, name)).await?;
    ctx.count("events", 1);
    Ok(())
}

/// The lease of an event's key, which must have one.
async fn lease_of(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict<i64> {
    let lease = ctx.store.get(resource, name).await?.lease;
    expect!(lease != 0, "the key of the event `{name}` has no lease");
    Ok(lease)
}

/// An event of either group.
pub(crate) fn event(resource: &Resource, namespace: &str, name: &str) -> Object {
    let event = Object::new(resource, name).with("reason", "Test");
    if resource.group.is_empty() {
        return event.with("involvedObject.namespace", namespace);
    }
    event
        .with("regarding.namespace", namespace)
        .with("eventTime", "2024-01-01T00:00:00.000000Z")
        .with("action", "Test")
        .with("type", "Normal")
        .with("reportingController", "archproof.example/test")
        .with("reportingInstance", "test")
}

async fn others_have_none(ctx: &Ctx) -> Verdict {
    let pods = json!({"spec": {"containers": [{"name": "c", "image": "none"}]}});
    let samples: [(&Resource, Object); 3] = [
        (&CONFIG_MAPS, config_map("a")),
        // A Lease of Kubernetes has no etcd lease.
        (&LEASES, Object::new(&LEASES, "a").with("spec.leaseDurationSeconds", 1)),
        (&POD_TEMPLATES, Object::new(&POD_TEMPLATES, "a").with("template", pods)),
    ];
    for (resource, object) in samples {
        ctx.api.create(resource, &object).await?;
        let stored = ctx.store.get(resource, "a").await?;
        expect_eq!(stored.lease, 0, "lease of {}", stored.key);
    }
    let stored = ctx.store.get(&NAMESPACES, ctx.api.namespace().await?).await?;
    expect_eq!(stored.lease, 0, "lease of {}", stored.key);
    Ok(())
}

/// The DELETED event must carry the revision at which the key was removed.
async fn expiry_is_recorded(ctx: &Ctx, name: &str, rv: u64) -> Verdict {
    let key = ctx.store.key(&CORE_EVENTS, name).await?;
    let last = until("the expiry in the store's history", ctx.limit(20.0), Duration::from_millis(50), || async {
        let last = ctx.store.recorder(&CORE_EVENTS).changes_of(&key).pop();
        Ok(last.filter(|last| last.kind == Change::Delete).ok_or_else(|| format!("no deletion of {key}")))
    })
    .await?;
    expect_eq!(rv, last.rev.unsigned_abs(), "resource version of the DELETED event of {key}");
    Ok(())
}

async fn lease_reuse(ctx: &Ctx) -> Verdict {
    let times = Times::of(&ctx.profile().flags)?;
    if ctx.profile().name == "short-events" {
        the_window_ends(ctx, &times).await
    } else {
        leases_fill(ctx, &times).await
    }
}

/// A second event within the window of a fresh lease shares it; an event after the window does not.
///
/// Writes through events.k8s.io, because another check lets a core event expire on this profile at the same time.
async fn the_window_ends(ctx: &Ctx, times: &Times) -> Verdict {
    let window = Duration::from_secs(times.window().unsigned_abs());
    until_exercised(ctx, &format!("no two events were written within {window:?}"), |round| async move {
        let begin = Instant::now();
        let verdict = one_window(ctx, window, round).await;
        Ok(times.unless_expired(verdict, begin.elapsed())? == Some(true))
    })
    .await
}

/// False if two events were too far apart to decide.
async fn one_window(ctx: &Ctx, window: Duration, round: u32) -> Verdict<bool> {
    let [first, fresh, second] = ["first", "fresh", "second"].map(|name| format!("{name}-{round}"));
    create(ctx, &EVENTS, &first).await?;
    pause(window).await;
    let begin = Instant::now();
    create(ctx, &EVENTS, &fresh).await?;
    create(ctx, &EVENTS, &second).await?;
    let took = begin.elapsed();
    let before = lease_of(ctx, &EVENTS, &first).await?;
    let fresh = lease_of(ctx, &EVENTS, &fresh).await?;
    expect!(fresh != before, "events {window:?} apart have the same lease {fresh:x}");
    if took >= window {
        return Ok(false);
    }
    let second = lease_of(ctx, &EVENTS, &second).await?;
    expect_eq!(second, fresh, "lease of an event written {took:?} after one with a fresh lease");
    ctx.count("leases shared within the window", 1);
    Ok(true)
}

async fn leases_fill(ctx: &Ctx, times: &Times) -> Verdict {
    let begin = Instant::now();
    let (mut writes, mut grants) = (BTreeMap::new(), BTreeMap::new());
    // A slow machine that runs other checks may not fill the first lease within the window, but fills a later one.
    let mut rounds = ctx.rounds(format!("no lease served {MOST} writes within its window"));
    loop {
        rounds.next()?;
        let first = writes.len();
        writes.extend(fill(ctx, begin, first..=first + MOST).await?);
        let changes = recorded(ctx, writes.len()).await?;
        let leases = leases_of(ctx, begin, &writes, &changes, &mut grants).await?;
        reuse_fault(&leases, times).map_or(Ok(()), |fault| Err(CheckError::failed(fault)))?;
        if leases.iter().any(|lease| lease.writes == MOST) {
            ctx.count("events", writes.len() as u64);
            ctx.count("leases", leases.len() as u64);
            return Ok(());
        }
    }
}

/// The seconds for which a lease was granted, and the earliest time at which that was.
#[derive(Clone, Copy, Debug)]
struct Grant {
    seconds: i64,
    born: f64,
}

/// When a write began and returned, in seconds.
#[derive(Clone, Copy, Debug)]
struct Write {
    called: f64,
    returned: f64,
}

/// Creates events concurrently; returns the writes by key.
async fn fill(ctx: &Ctx, begin: Instant, numbers: std::ops::RangeInclusive<usize>) -> Verdict<BTreeMap<String, Write>> {
    let namespace = ctx.api.namespace().await?;
    let tasks = numbers.map(|number| async move {
        let name = format!("event-{number}");
        let called = begin.elapsed().as_secs_f64();
        ctx.api.create(&EVENTS, &event(&EVENTS, namespace, &name)).await?;
        let returned = begin.elapsed().as_secs_f64();
        Ok((ctx.store.key(&EVENTS, &name).await?, Write { called, returned }))
    });
    Ok(all(WRITERS, tasks).await?.into_iter().collect())
}

/// All writes of events so far, once the `expected` ones of this case are recorded.
async fn recorded(ctx: &Ctx, expected: usize) -> Verdict<Vec<Revision>> {
    let all = EVENTS.key_prefix(&ctx.profile().prefix, None);
    let own = EVENTS.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    until("the events in the store's history", ctx.wait_limit(), Duration::from_millis(100), || async {
        let mut changes = ctx.store.recorder(&EVENTS).changes_below(&all);
        changes.retain(|change| change.kind == Change::Put);
        let seen = changes.iter().filter(|change| change.key.starts_with(&own)).count();
        Ok(if seen >= expected { Ok(changes) } else { Err(format!("{seen} of {expected} events")) })
    })
    .await
}

/// The leases of this case's writes in the order of their grants. Each is looked up only once: on a slow machine the
/// first ones may have expired at the end of a later round.
async fn leases_of(
    ctx: &Ctx,
    begin: Instant,
    writes: &BTreeMap<String, Write>,
    changes: &[Revision],
    grants: &mut BTreeMap<i64, Grant>,
) -> Verdict<Vec<Lease>> {
    let mut uses: BTreeMap<i64, Vec<Write>> = BTreeMap::new();
    for change in changes {
        if let Some(write) = writes.get(&*change.key) {
            uses.entry(change.lease).or_default().push(*write);
        }
    }
    let mut leases = Vec::new();
    for (id, uses) in uses {
        expect!(id != 0, "{} of the events have no lease", uses.len());
        let grant = match grants.get(&id) {
            Some(grant) => *grant,
            None => {
                let asked = begin.elapsed().as_secs_f64();
                let info = ctx.store.of(&EVENTS).lease(id).await?;
                let age = f64::from(i32::try_from(info.granted - info.ttl).unwrap_or(i32::MAX));
                *grants.entry(id).or_insert(Grant { seconds: info.granted, born: asked - age })
            }
        };
        leases.push(Lease {
            id,
            granted: grant.seconds,
            writes: changes.iter().filter(|change| change.lease == id).count(),
            born: grant.born,
            first_returned: uses.iter().map(|write| write.returned).fold(f64::INFINITY, f64::min),
            last_called: uses.iter().map(|write| write.called).fold(0.0, f64::max),
        });
    }
    leases.sort_by(|a, b| a.first_returned.total_cmp(&b.first_returned));
    Ok(leases)
}
