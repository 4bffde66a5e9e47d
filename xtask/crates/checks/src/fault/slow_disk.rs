//! A slow disk under the store.

use std::time::{Duration, Instant};

use model::StoreKind;

use crate::fault::POLL_INTERVAL;
use crate::support::fault_injector::FaultInjector;
use suite::load::{self, Servers, Workload};
use suite::object::SECRETS;
use suite::prelude::*;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "fault.etcd-slow-disk",
    place: here!(),
    level: Extra,
    requirement: "When fsync of the store's disk takes longer than a second, a write is acknowledged only after it is \
                  on the disk; no acknowledged write is lost, no watch has a gap, and no bookmark is ahead of its \
                  events.",
    source: "etcd tests/robustness (lazyfs, sleep failpoints); etcd-io/etcd#14370 (a single member answered before the \
             fsync); etcd.io, KV API guarantees, \"Durability\"",
    observed: "Four writers and four watchers run. fsync and fdatasync of etcd wait for 1 s each (seccomp user \
               notification, no root), or for longer if an ordinary create takes more than half of that, until more \
               writes are done. A create during the fault must take as long as one fsync, if the store is etcd, and \
               must then be in the store.",
    by_hand: "faults slow-disk FILE etcd …; echo `x 1000` > FILE; time kubectl create configmap a",
    profiles: &["reflagged"],
    requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
    run: scenario!(slow_disk),
}];

const DELAY: Duration = Duration::from_secs(1);
/// etcd gives up a request after seven seconds, and a request waits for more than one fsync.
const LONGEST: Duration = Duration::from_secs(3);
/// Revisions during the fault. Writes that wait for the same fsync come together.
const DURING: i64 = 8;
const ACKNOWLEDGED: u64 = 3;
const DELAYED: u64 = 3;

async fn slow_disk(ctx: &Ctx) -> Verdict {
    let workload = Workload::new(ctx, Servers::first(ctx));
    let fault = async {
        let mut disk = FaultInjector::disk(ctx)?;
        let delay = ordinary_delay(ctx).await?;
        let position = delay.as_millis().to_string();
        disk.set(&position).await?;
        let took = create(ctx).await?;
        load::progress(ctx, DURING).await?;
        workload.acknowledged(ACKNOWLEDGED).await?;
        let mut counts = disk.wait_until_effective(&position, &[("delayed", DELAYED)]).await?;
        counts.add(disk.off().await?);
        ctx.count("fsyncs delayed", counts.of("delayed"));
        // With kine, the database decides when a write is on the disk.
        let is_etcd = ctx.profile().store_for(&SECRETS.group, &SECRETS.plural).kind == StoreKind::Etcd;
        let after_fsync = took >= delay || !is_etcd;
        let (took, fsync) = (took.as_millis(), delay.as_millis());
        expect!(after_fsync, "a create was acknowledged after {took} ms, while an fsync takes {fsync} ms");
        Ok::<(), CheckError>(())
    };
    workload
        .run_with_fault(&[("acknowledged during the fault", ACKNOWLEDGED), ("fsyncs delayed", DELAYED)], fault)
        .await
}

/// A delay that no ordinary create takes. A create that is as slow as the longest delay proves nothing: on a busy
/// machine the next one is faster.
async fn ordinary_delay(ctx: &Ctx) -> Verdict<Duration> {
    let mut rounds = ctx.rounds("an ordinary create took as long as a slow disk");
    loop {
        rounds.next()?;
        let delay = DELAY.max(create(ctx).await? * 2);
        if delay <= LONGEST {
            return Ok(delay);
        }
    }
}

/// The duration of a create that is answered as done. etcd gives up a request after seven seconds, which may be a few
/// fsyncs.
async fn create(ctx: &Ctx) -> Verdict<Duration> {
    wait::until("a create to be answered as done", ctx.limit(60.0), POLL_INTERVAL, || async {
        let name = format!("slow-{:08x}", ctx.random().u32(..));
        let begin = Instant::now();
        let answer = ctx.api.try_create(&SECRETS, &Object::new(&SECRETS, &name)).await?;
        let took = begin.elapsed();
        if !answer.is_success() {
            return Ok(Err(answer.to_string()));
        }
        ctx.store.get(&SECRETS, &name).await?;
        Ok(Ok(took))
    })
    .await
}
