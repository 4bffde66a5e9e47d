//! The connection between apiserver and store: cut, silent, slow, and open in one direction only. The store itself is well,
//! and answers the suite.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::join_all;
use http::Method;
use model::Level::Extra;
use model::history::Change;

use crate::fault::silent::{in_the_dark, until_ill, well};
use crate::support::fault_injector::Switch;
use suite::api::{Request, Response};
use suite::check::{Check, Requirement, Requires, Stop, Verdict};
use suite::ctx::{Ctx, object_path};
use suite::load::{self, Servers, Workload};
use suite::object::{Object, SECRETS};
use suite::overload::{self, AcceptOverload};
use suite::{expect, expect_eq, here, scenario, wait};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "fault.store-cut",
        place: here!(),
        level: Extra,
        requirement: "While its connections to the store are cut, or stay and carry nothing, the apiserver says so by \
                      /readyz, and answers no write and no GET without a resource version as done; afterwards it is ready \
                      again, nothing acknowledged is lost, no write took effect twice, and no watch has a gap.",
        source: "etcd tests/robustness (failpoint Blackhole); apiserver pkg/server/options/etcd.go (addEtcdHealthEndpoint); \
                 etcd client/v3/retry.go",
        observed: "Four writers and four watchers; a relay between apiserver and store resets all connections and each \
                   new one, until /readyz fails; then it lets them through, until /readyz is well; then it keeps them and \
                   passes nothing, and again. GET, GET at 0 and a create with a time limit in both.",
        by_hand: "put a TCP proxy before etcd (socat), give its port to --etcd-servers, kill it, and kubectl get --raw \
                  '/readyz?verbose'",
        profiles: &["reflagged"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(cut),
    },
    Check {
        id: "fault.store-half",
        place: here!(),
        level: Extra,
        requirement: "A write that the store did, but whose answer was lost on its way to the apiserver, is not answered as \
                      done, nor by a 4xx as if it had no effect, and not done again by the apiserver; the same POST again \
                      is answered 409 AlreadyExists, the same PUT 409 Conflict.",
        source: "etcd client/v3/retry.go (a write is repeated only if it was never sent); etcd tests/robustness (a failed \
                 operation may be persisted)",
        observed: "Four writers and four watchers; a relay passes what the apiserver says, and holds what the store says. \
                   Creates and updates are sent; when the store has them all, the connections are reset. Each key \
                   must have the one revision that its write made, and no other.",
        by_hand: "iptables -A OUTPUT -p tcp --sport 2379 -j DROP; kubectl create configmap a; etcdctl get \
                  /registry/configmaps/default/a; iptables -D OUTPUT -p tcp --sport 2379 -j DROP; kubectl create configmap a",
        profiles: &["reflagged"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(half),
    },
    Check {
        id: "fault.store-delay",
        place: here!(),
        level: Extra,
        requirement: "Where the way between apiserver and store is long, writes get through and nothing acknowledged is \
                      lost, no watch has a gap, and a GET without a resource version takes the way to the store and back: \
                      it does not show what the apiserver has at hand.",
        source: "kubernetes.io, Kubernetes API concepts, \"Semantics for get and list\" (unset: most recent); etcd \
                 tests/robustness (latency by a proxy)",
        observed: "Four writers and four watchers; a relay passes each byte a quarter of a second later, each way. GETs \
                   without a resource version must take at least twice that, and GETs at 0 be answered.",
        by_hand: "tc qdisc add dev lo root netem delay 250ms; time kubectl get --raw /api/v1/namespaces/default",
        profiles: &["reflagged"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(delay),
    },
];

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What /readyz says of the first store.
const HEALTH: [&str; 2] = ["etcd", "etcd-readiness"];

async fn cut(ctx: &Ctx) -> Verdict {
    // It may take effect later.
    ctx.workers_make(&SECRETS).await?;
    let namespace = format!("/api/v1/namespaces/{}", ctx.namespace().await?);
    let limit = Duration::from_secs(ctx.stretched(1).into());
    let fault = async {
        let mut relay = Switch::relay(ctx)?;
        for (mode, felt) in [("cut", &["reset", "refused"][..]), ("hold", &["held-up"])] {
            relay.turn(mode).await?;
            until_ill(ctx, "/readyz", &HEALTH).await?;
            in_the_dark(ctx, &namespace, limit).await?;
            let least: Vec<(&str, u64)> = felt.iter().map(|what| (*what, 1)).collect();
            let mut counts = relay.until_felt(mode, &least).await?;
            counts.add(relay.off().await?);
            well(ctx, &HEALTH).await?;
            felt.iter().for_each(|what| ctx.count(&format!("relay: {what}"), counts.of(what)));
        }
        Ok(())
    };
    // No write of the workload need be without an answer: etcd's client sends what was never sent again, and what is held
    // is answered late. Those of `in_the_dark` have a time limit.
    let minima = [("served from the cache", 2), ("relay: reset", 1), ("relay: refused", 1), ("relay: held-up", 1)];
    Workload::new(ctx, Servers::first(ctx)).through(&minima, fault).await
}

/// Of each kind.
const WRITES: usize = 3;

async fn half(ctx: &Ctx) -> Verdict {
    ctx.workers_make(&SECRETS).await?;
    let mut writes = Vec::new();
    for number in 0..WRITES * 2 {
        let object = Object::new(&SECRETS, &format!("half-{number}"));
        let is_update = number % 2 == 1;
        writes.push(if is_update { ctx.create(&SECRETS, &object).await? } else { object });
    }
    let fault = async {
        let mut relay = Switch::relay(ctx)?;
        relay.turn("half").await?;
        let lost = async {
            stored(ctx, &writes).await?;
            // What is in the store need not have been answered yet.
            let mut counts = relay.until_felt("half", &[("held-down", 1)]).await?;
            counts.add(relay.turn("cut").await?);
            ctx.count("relay: answers held", counts.of("held-down"));
            Ok::<(), Stop>(())
        };
        // None if there was no answer. The answer is lost on the way: that the server's time runs out is required.
        let first = |object| async move { write(ctx, object, "first").await.accept(overload::ANY).ok() };
        let all = join_all(writes.iter().map(first));
        let (answers, ()) = futures::try_join!(async { Ok::<_, Stop>(all.await) }, lost)?;
        for (answer, object) in answers.iter().zip(&writes) {
            let Some(answer) = answer else { continue };
            let done = answer.is_success();
            expect!(!done, "the write of {} was answered as done, although its answer was lost", object.name());
            // The store has done it, and nobody else writes there: a 4xx tells the client that it has no effect.
            let refused = answer.status < 500;
            expect!(!refused, "the write of {} is in the store, and was answered {answer}", object.name());
        }
        relay.off().await?;
        well(ctx, &HEALTH).await
    };
    Workload::new(ctx, Servers::first(ctx)).through(&[("relay: answers held", 1)], fault).await?;
    for object in &writes {
        once(ctx, object).await?;
    }
    Ok(())
}

/// A create of what has no resource version, otherwise an update.
async fn write(ctx: &Ctx, object: &Object, value: &str) -> anyhow::Result<Response> {
    let namespace = ctx.namespace().await?;
    let request = match object.rv_text().is_empty() {
        true => Request::new(Method::POST, SECRETS.path(Some(namespace))),
        false => Request::new(Method::PUT, object_path(&SECRETS, namespace, object.name())),
    };
    let object = object.clone().with("stringData.by", value);
    ctx.send(&request.json(&object.0)).await
}

/// Waits until the store has all the writes, whatever the apiserver knows of it.
async fn stored(ctx: &Ctx, writes: &[Object]) -> Verdict {
    let what = "the store to have writes whose answers are held";
    wait::until(what, ctx.limit(30.0), LOOK_EVERY, || async {
        for object in writes {
            let revision = ctx.stored(&SECRETS, object.name()).await?.map_or(0, |kv| kv.mod_rev.cast_unsigned());
            if revision <= object.rv() {
                return Ok(Err(format!("{} is at {revision}", object.name())));
            }
        }
        Ok(Ok(()))
    })
    .await
}

/// How often the object is written then, in all.
fn after(object: &Object) -> i64 {
    if object.rv_text().is_empty() { 1 } else { 2 }
}

/// The write is in the history once, and the same one again is refused.
async fn once(ctx: &Ctx, object: &Object) -> Verdict {
    let before = ctx.must_be_stored(&SECRETS, object.name()).await?;
    let changes = ctx.recorder(&SECRETS).changes_of(&before.key);
    let puts = changes.iter().filter(|revision| revision.kind == Change::Put).count();
    expect_eq!(puts.to_string(), after(object).to_string(), "how often {} was written", before.key);
    let again = write(ctx, object, "again").await.with_context(|| format!("the second write of {}", before.key))?;
    let reason = if after(object) == 1 { "AlreadyExists" } else { "Conflict" };
    expect!(again.is(409, reason), "the same write of {} again was answered {again}", before.key);
    let stored = ctx.must_be_stored(&SECRETS, object.name()).await?;
    expect!(stored == before, "{} was refused a second write, and has changed", before.key);
    ctx.count("writes done once", 1);
    Ok(())
}

/// Each way. Less than the second after which a gRPC connection counts as failed, more than an emulated server needs.
const DELAY: Duration = Duration::from_millis(250);
/// Revisions while it lasts.
const DURING: i64 = 20;
const READS: usize = 3;
const ACKNOWLEDGED: u64 = 5;
const DELAYED: u64 = 10;

async fn delay(ctx: &Ctx) -> Verdict {
    let mode = format!("delay {}", DELAY.as_millis());
    let workload = Workload::new(ctx, Servers::first(ctx));
    let namespace = format!("/api/v1/namespaces/{}", ctx.namespace().await?);
    let fault = async {
        let mut relay = Switch::relay(ctx)?;
        relay.turn(&mode).await?;
        load::progress(ctx, DURING).await?;
        for _ in 0..READS {
            let begin = Instant::now();
            let fresh = ctx.send(&Request::get(&namespace)).await?;
            let took = begin.elapsed();
            expect!(fresh.is_success(), "GET without a resource version was answered {fresh}");
            expect!(
                took >= DELAY * 2,
                "GET without a resource version was answered in {} ms; the way to the store and back takes {} ms",
                took.as_millis(),
                (DELAY * 2).as_millis()
            );
            let zero = ctx.send(&Request::get(&namespace).query("resourceVersion=0")).await?;
            expect!(zero.is_success(), "GET at 0 was answered {zero}");
            ctx.count("reads", 1);
        }
        workload.acknowledged(ACKNOWLEDGED).await?;
        let mut counts = relay.until_felt(&mode, &[("delayed-up", DELAYED), ("delayed-down", DELAYED)]).await?;
        counts.add(relay.off().await?);
        ctx.count("relay: delayed", counts.of("delayed-up").min(counts.of("delayed-down")));
        Ok(())
    };
    workload.through(&[("acknowledged during the fault", ACKNOWLEDGED), ("relay: delayed", DELAYED)], fault).await
}
