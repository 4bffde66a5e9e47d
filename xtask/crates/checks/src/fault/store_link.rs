//! The connection between apiserver and store: cut, silent, slow, and open in one direction only. The store itself
//! works and answers the suite.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::join_all;
use http::Method;
use model::history::Change;

use crate::fault::POLL_INTERVAL;
use crate::fault::silent::{check_answers_without_store, wait_until_healthy, wait_until_unhealthy};
use crate::support::fault_injector::FaultInjector;
use suite::api::overload::{self, AcceptOverload};
use suite::api::{Request, Response};
use suite::ctx::object_path;
use suite::load::{self, Servers, Workload};
use suite::object::SECRETS;
use suite::prelude::*;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "fault.store-cut",
        place: here!(),
        level: Extra,
        requirement: "While its connections to the store are cut, or stay open and carry nothing, the apiserver \
                      reports it at /readyz, and answers no write and no GET without a resource version as done; \
                      afterwards it is ready again, no acknowledged write is lost, no write took effect twice, and no \
                      watch has a gap.",
        source: "etcd tests/robustness (failpoint Blackhole); apiserver pkg/server/options/etcd.go (addEtcdHealthEndpoint); \
                 etcd client/v3/retry.go",
        observed: "Four writers and four watchers run. A relay between apiserver and store resets all connections and \
                   each new one until /readyz fails; then it passes data until /readyz succeeds; then it keeps the \
                   connections and passes nothing until /readyz fails, and passes data again. The check sends GET, GET \
                   at 0 and a create with a time limit during both faults.",
        by_hand: "Put a TCP proxy before etcd (socat), give its port to --etcd-servers, kill it, and run kubectl get \
                  --raw '/readyz?verbose'",
        profiles: &["reflagged"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(cut),
    },
    Check {
        id: "fault.store-half",
        place: here!(),
        level: Extra,
        requirement: "A write that the store executed, but whose answer was lost on its way to the apiserver, is not \
                      answered as done, nor with a 4xx as if it had no effect, and is not repeated by the apiserver; \
                      the same POST again is answered 409 AlreadyExists, the same PUT 409 Conflict.",
        source: "etcd client/v3/retry.go (a write is repeated only if it was never sent); etcd tests/robustness (a failed \
                 operation may be persisted)",
        observed: "Four writers and four watchers run. A relay passes what the apiserver sends and holds what the \
                   store sends. The check sends creates and updates; when the store has them all, the relay resets the \
                   connections. Each key must have the one revision that its write made, and no other.",
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
        requirement: "With a slow connection between apiserver and store, writes get through, no acknowledged write is \
                      lost, no watch has a gap, and a GET without a resource version takes a round trip to the store: \
                      the apiserver does not answer it from its cache.",
        source: "kubernetes.io, Kubernetes API concepts, \"Semantics for get and list\" (unset: most recent); etcd \
                 tests/robustness (latency by a proxy)",
        observed: "Four writers and four watchers run. A relay passes each byte a quarter of a second later, in each \
                   direction. GETs without a resource version must take at least twice that, and GETs at 0 must be \
                   answered.",
        by_hand: "tc qdisc add dev lo root netem delay 250ms; time kubectl get --raw /api/v1/namespaces/default",
        profiles: &["reflagged"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(delay),
    },
];

/// The checks of the first store in /readyz.
const HEALTH: [&str; 2] = ["etcd", "etcd-readiness"];

async fn cut(ctx: &Ctx) -> Verdict {
    // The create may take effect later.
    ctx.api.track_for_cleanup(&SECRETS).await?;
    let namespace = format!("/api/v1/namespaces/{}", ctx.api.namespace().await?);
    let limit = Duration::from_secs(ctx.scaled_seconds(1).into());
    let fault = async {
        let mut relay = FaultInjector::relay(ctx)?;
        for (mode, felt) in [("cut", &["reset", "refused"][..]), ("hold", &["held-up"])] {
            relay.set(mode).await?;
            wait_until_unhealthy(ctx, "/readyz", (&HEALTH, &[])).await?;
            check_answers_without_store(ctx, &namespace, limit).await?;
            let least: Vec<(&str, u64)> = felt.iter().map(|what| (*what, 1)).collect();
            let mut counts = relay.wait_until_effective(mode, &least).await?;
            counts.add(relay.off().await?);
            wait_until_healthy(ctx, &HEALTH).await?;
            felt.iter().for_each(|what| ctx.count(&format!("relay: {what}"), counts.of(what)));
        }
        Ok(())
    };
    // The workload need not have a write without an answer: etcd's client repeats requests that it never sent, and
    // requests that the relay holds are answered late. The requests of `check_answers_without_store` have a time limit.
    let minima = [("served from the cache", 2), ("relay: reset", 1), ("relay: refused", 1), ("relay: held-up", 1)];
    Workload::new(ctx, Servers::first(ctx)).run_with_fault(&minima, fault).await
}

/// The number of creates, and of updates.
const WRITES: usize = 3;

async fn half(ctx: &Ctx) -> Verdict {
    ctx.api.track_for_cleanup(&SECRETS).await?;
    let mut writes = Vec::new();
    for number in 0..WRITES * 2 {
        let object = Object::new(&SECRETS, &format!("half-{number}"));
        let is_update = number % 2 == 1;
        writes.push(if is_update { ctx.api.create(&SECRETS, &object).await? } else { object });
    }
    let fault = async {
        let mut relay = FaultInjector::relay(ctx)?;
        relay.set("half").await?;
        let lost = async {
            stored(ctx, &writes).await?;
            // A write that is in the store need not have been answered yet.
            let mut counts = relay.wait_until_effective("half", &[("held-down", 1)]).await?;
            counts.add(relay.set("cut").await?);
            ctx.count("relay: answers held", counts.of("held-down"));
            Ok::<(), CheckError>(())
        };
        // None if there was no answer. The relay holds the answer, so a server time-out is required here.
        let first = |object| async move { write(ctx, object, "first").await.accept(overload::ANY).ok() };
        let all = join_all(writes.iter().map(first));
        let (answers, ()) = futures::try_join!(async { Ok::<_, CheckError>(all.await) }, lost)?;
        for (answer, object) in answers.iter().zip(&writes) {
            let Some(answer) = answer else { continue };
            let done = answer.is_success();
            expect!(!done, "the write of {} was answered as done, although its answer was lost", object.name());
            // The store has executed the write, and no other client writes there: a 4xx would deny its effect.
            let refused = answer.status < 500;
            expect!(!refused, "the write of {} is in the store, but was answered {answer}", object.name());
        }
        relay.off().await?;
        wait_until_healthy(ctx, &HEALTH).await
    };
    Workload::new(ctx, Servers::first(ctx)).run_with_fault(&[("relay: answers held", 1)], fault).await?;
    for object in &writes {
        once(ctx, object).await?;
    }
    Ok(())
}

/// Creates an object that has no resource version, and updates any other.
async fn write(ctx: &Ctx, object: &Object, value: &str) -> anyhow::Result<Response> {
    let namespace = ctx.api.namespace().await?;
    let request = match object.rv_text().is_empty() {
        true => Request::new(Method::POST, SECRETS.path(Some(namespace))),
        false => Request::new(Method::PUT, object_path(&SECRETS, namespace, object.name())),
    };
    let object = object.clone().with("stringData.by", value);
    ctx.api.send(&request.json(&object.0)).await
}

/// Waits until the store has all the writes; the apiserver may not know of it.
async fn stored(ctx: &Ctx, writes: &[Object]) -> Verdict {
    let what = "the store to have writes whose answers are held";
    wait::until(what, ctx.wait_limit(), POLL_INTERVAL, || async {
        for object in writes {
            let revision = ctx.store.find(&SECRETS, object.name()).await?.map_or(0, |kv| kv.mod_rev.cast_unsigned());
            if revision <= object.rv() {
                return Ok(Err(format!("{} is at {revision}", object.name())));
            }
        }
        Ok(Ok(()))
    })
    .await
}

/// The total number of writes of the object after that.
fn after(object: &Object) -> i64 {
    if object.rv_text().is_empty() { 1 } else { 2 }
}

/// The write must be in the history once, and the same write again must be refused.
async fn once(ctx: &Ctx, object: &Object) -> Verdict {
    let before = ctx.store.get(&SECRETS, object.name()).await?;
    let changes = ctx.store.recorder(&SECRETS).changes_of(&before.key);
    let puts = changes.iter().filter(|revision| revision.kind == Change::Put).count();
    expect_eq!(puts.to_string(), after(object).to_string(), "how often {} was written", before.key);
    let again = write(ctx, object, "again").await.with_context(|| format!("the second write of {}", before.key))?;
    let reason = if after(object) == 1 { "AlreadyExists" } else { "Conflict" };
    expect!(again.is(409, reason), "the second write of {} was answered {again}", before.key);
    let stored = ctx.store.get(&SECRETS, object.name()).await?;
    expect!(stored == before, "the second write of {} was refused, but changed it", before.key);
    ctx.count("writes done once", 1);
    Ok(())
}

/// In each direction. Less than the second after which a gRPC connection counts as failed, more than an emulated server
/// needs.
const DELAY: Duration = Duration::from_millis(250);
/// Revisions during the fault.
const DURING: i64 = 20;
const READS: usize = 3;
const ACKNOWLEDGED: u64 = 5;
const DELAYED: u64 = 10;

async fn delay(ctx: &Ctx) -> Verdict {
    let mode = format!("delay {}", DELAY.as_millis());
    let workload = Workload::new(ctx, Servers::first(ctx));
    let namespace = format!("/api/v1/namespaces/{}", ctx.api.namespace().await?);
    let fault = async {
        let mut relay = FaultInjector::relay(ctx)?;
        relay.set(&mode).await?;
        load::progress(ctx, DURING).await?;
        for _ in 0..READS {
            let begin = Instant::now();
            let fresh = ctx.api.send(&Request::get(&namespace)).await?;
            let took = begin.elapsed();
            expect!(fresh.is_success(), "GET without a resource version was answered {fresh}");
            let is_round_trip = took >= DELAY * 2;
            let (took, trip) = (took.as_millis(), (DELAY * 2).as_millis());
            expect!(
                is_round_trip,
                "GET without a resource version was answered in {took} ms, but a round trip to the store takes {trip} ms"
            );
            let zero = ctx.api.send(&Request::get(&namespace).query("resourceVersion=0")).await?;
            expect!(zero.is_success(), "GET at 0 was answered {zero}");
            ctx.count("reads", 1);
        }
        workload.acknowledged(ACKNOWLEDGED).await?;
        let mut counts =
            relay.wait_until_effective(&mode, &[("delayed-up", DELAYED), ("delayed-down", DELAYED)]).await?;
        counts.add(relay.off().await?);
        ctx.count("relay: delayed", counts.of("delayed-up").min(counts.of("delayed-down")));
        Ok(())
    };
    workload
        .run_with_fault(&[("acknowledged during the fault", ACKNOWLEDGED), ("relay: delayed", DELAYED)], fault)
        .await
}
