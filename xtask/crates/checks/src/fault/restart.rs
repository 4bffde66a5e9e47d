//! Servers that are killed, and started again, while clients write and watch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::Action;

use suite::api::Request;
use suite::load::{self, RESUMED, RESUMED_LATE, Servers, Workload};
use suite::prelude::*;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "fault.apiserver-restart",
        place: here!(),
        level: Must,
        requirement: "After an apiserver was killed and started again on the same store, every acknowledged write is \
                      in the store with the resource version of its answer, a write without an answer is there once or \
                      not at all, and a client that resumes its watch from its last event or bookmark gets everything \
                      that it missed, or a 410.",
        source: "KEP-1904; kubernetes.io, Kubernetes API concepts, \"Efficient detection of changes\"; etcd \
                 tests/robustness",
        observed: "Four writers and four watchers use ConfigMaps (cached) and Events (not cached), over HTTP/1.1 and \
                   HTTP/2. The check kills the apiserver with SIGKILL and starts it when a write has had no answer; \
                   then the clients do as much work again. On `ha` clients switch to the other apiserver. Watchers \
                   wait until ten more writes of their collection are acknowledged, and resume; after a 410 they list. \
                   The events of each watcher must be the recorded history of its collection up to a marker written \
                   last.",
        by_hand: "kubectl get configmaps -w in one shell, kubectl create configmap in a loop in another, kill -9 the \
                  apiserver, start it, and compare with etcdctl watch --prefix /registry/configmaps/",
        profiles: &["disruptive", "ha"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(apiserver_restart),
    },
    Check {
        id: "fault.etcd-restart",
        place: here!(),
        level: Must,
        requirement: "After etcd was killed and started again, every write that the API acknowledged is there, open \
                      API watches continue without a gap or end, and no event is delivered for a revision that etcd \
                      does not have.",
        source: "etcd tests/robustness (failpoint Kill); etcd.io, KV API guarantees, \"Durability\"",
        observed: "The same workload. The check kills etcd with SIGKILL and starts it when a write has met the fault; \
                   then the clients do as much work again. The check records the raw store across the restart, from \
                   the first revision that it has not seen; the state at the end must follow from the whole record.",
        by_hand: "kubectl create configmap in a loop, kill -9 etcd, start it, and compare the created objects with etcdctl \
                  get --prefix --keys-only /registry/configmaps/",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(etcd_restart),
    },
    Check {
        id: "fault.slow-machine",
        place: here!(),
        level: Should,
        requirement: "When apiserver and etcd run only a fifth of the time, no acknowledged write is lost, no watch \
                      has a gap, and writes still get through.",
        source: "etcd-io/etcd#16319, #16963, #17593 (robustness tests on slow machines)",
        observed: "The same workload, while both processes are suspended (SIGSTOP) for 80 ms in every 100 ms, at least \
                   thirty times and until writes got through. A slow machine, which is slower than that already, gets \
                   more time between two suspensions.",
        by_hand: "while kubectl create configmap runs in a loop: while true; do kill -STOP $(pidof etcd kube-apiserver); \
                  sleep 0.08; kill -CONT $(pidof etcd kube-apiserver); sleep 0.02; done",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(slow_machine),
    },
    Check {
        id: "fault.apiserver-kill-during-write",
        place: here!(),
        level: Extra,
        requirement: "An apiserver that is killed repeatedly in the middle of writes loses no write that it \
                      acknowledged, and leaves no write half done or done twice.",
        source: "etcd tests/robustness",
        observed: "The same workload over three kills, each after more writes have reached the store.",
        by_hand: "as for fault.apiserver-restart, three times",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(apiserver_kills),
    },
];

const APISERVER: &str = "kube-apiserver";
pub(crate) const ETCD: &str = "etcd-main";

async fn apiserver_restart(ctx: &Ctx) -> Verdict {
    // With two apiservers, half of the watchers use the one that is killed.
    let minima = [("unanswered", 1), (RESUMED, 2), (RESUMED_LATE, 1)];
    let servers = Servers::all(ctx).unwrap_or_else(|_| Servers::first(ctx));
    let workload = Workload::new(ctx, servers);
    workload.run_with_fault(&minima, restart_after(ctx, APISERVER, workload.unanswered(1))).await
}

async fn etcd_restart(ctx: &Ctx) -> Verdict {
    let workload = Workload::new(ctx, Servers::first(ctx));
    let silence = async {
        // etcd is back within a second; a workload that was waiting just then would not have noticed. Without its own
        // time limit a read is retried for 40 s.
        let what = "a quorum read to fail without a store";
        let read = format!("/api/v1/namespaces/default?timeout={}s", ctx.scaled_seconds(2));
        wait::until(what, ctx.wait_limit(), Duration::from_millis(50), || async {
            let read = ctx.api.send(&Request::get(&read)).await;
            Ok(if read.is_ok_and(|answer| answer.is_success()) { Err("it was answered".to_owned()) } else { Ok(()) })
        })
        .await?;
        workload.met_by_write().await
    };
    workload.run_with_fault(&[(load::MET, 1)], restart_after(ctx, ETCD, silence)).await
}

/// Kills the component and starts it again; it is ready afterwards.
pub(crate) async fn restart(ctx: &Ctx, component: &str) -> Verdict {
    restart_after(ctx, component, async { Ok(()) }).await
}

/// The component is away until `met` has ended. It is started again even if the clients never met the fault.
pub(crate) async fn restart_after<T>(ctx: &Ctx, component: &str, met: impl Future<Output = Verdict<T>>) -> Verdict<T> {
    ctx.control.apply(component, Action::Kill).await?;
    let met = met.await;
    ctx.control.apply(component, Action::Start).await?;
    met
}

/// The least number of suspensions, the length of each, and the time between them. That time grows with the slowdown, so
/// that the processes do as much between two suspensions as on the reference machine.
///
/// On an emulated machine, a process that may run for 20 ms does not get the processor in that time. With a fifth of the
/// time in larger pieces, handshakes between the two took longer than their 20 s, and nothing was written for minutes.
const STOPS: usize = 30;
const STOPPED: Duration = Duration::from_millis(80);
const RUNNING: Duration = Duration::from_millis(20);
/// Writes that must get through during the fault.
const STUTTERED: u64 = 10;

async fn slow_machine(ctx: &Ctx) -> Verdict {
    let enough = AtomicBool::new(false);
    let workload = Workload::new(ctx, Servers::first(ctx));
    // A fifth of a slow machine does little in thirty suspensions.
    let writes = async {
        // A write that has reached the store need not be acknowledged: 6 of 20 were, on an emulated machine.
        load::progress(ctx, 4 * STUTTERED.cast_signed()).await?;
        workload.acknowledged(STUTTERED).await?;
        enough.store(true, Ordering::Relaxed);
        Ok(())
    };
    let running = RUNNING.mul_f64(ctx.factor().max(1.0));
    let stutter = async {
        let mut stops = 0;
        while stops < STOPS || !enough.load(Ordering::Relaxed) {
            stops += 1;
            let (apiserver, etcd) = futures::try_join!(ctx.control.pause(APISERVER), ctx.control.pause(ETCD))?;
            wait::pause(STOPPED).await;
            futures::try_join!(apiserver.resume(), etcd.resume())?;
            wait::pause(running).await;
        }
        Ok(())
    };
    let fault = async { futures::try_join!(writes, stutter).map(|_| ()) };
    workload.run_with_fault(&[("acknowledged during the fault", STUTTERED)], fault).await
}

const KILLS: u64 = 3;
/// Revisions between a start and the next kill.
const BETWEEN: i64 = 30;

async fn apiserver_kills(ctx: &Ctx) -> Verdict {
    let workload = Workload::new(ctx, Servers::first(ctx));
    let kills = async {
        for kill in 1..=KILLS {
            restart_after(ctx, APISERVER, workload.unanswered(kill)).await?;
            load::progress(ctx, BETWEEN).await?;
            // The next kill ends only watches that are open.
            workload.watching().await?;
        }
        Ok(())
    };
    workload.run_with_fault(&[("unanswered", KILLS), (RESUMED, 8)], kills).await
}
