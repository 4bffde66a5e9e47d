//! Leases over an election of etcd.

use std::time::{Duration, Instant};

use crate::fault::restart::{ETCD, restart};
use suite::load;
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.lease-renew-on-leader-change",
    place: here!(),
    level: Extra,
    requirement: "When etcd elects a leader, it extends its leases: the lease of an Event never gets shorter, and \
                      its key outlives the time to live by no more than the granted one.",
    source: "kubernetes/kubernetes#65497, etcd-io/etcd#9888; etcd server/lease/lessor.go (Promote)",
    observed: "The check compares LeaseTimeToLive of an Event's lease before and after SIGKILL and start of etcd: \
                   more seconds must be left than before, and not more than were granted; the key must still have its \
                   lease.",
    by_hand: "etcdctl lease timetolive ID --keys; kill -9 etcd; start it; the same again",
    profiles: &["disruptive"],
    requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
    run: scenario!(lease_after_election),
}];

async fn lease_after_election(ctx: &Ctx) -> Verdict {
    ctx.api.create(&CORE_EVENTS, &load::sample(ctx.api.namespace().await?, &CORE_EVENTS, "a", "a")).await?;
    let stored = ctx.store.get(&CORE_EVENTS, "a").await?;
    expect!(stored.lease != 0, "the Event was stored without a lease");
    let store = ctx.store.of(&CORE_EVENTS);
    let mut rounds = ctx.rounds("the restart took longer than the age of the lease");
    let mut age = 2;
    let (before, after) = loop {
        rounds.next()?;
        // The lease must have lost some seconds, or an extension would not show.
        let what = format!("the lease to have lost {age} seconds");
        let limit = Duration::from_secs(age) + ctx.wait_limit();
        let before = wait::until(&what, limit, Duration::from_millis(200), || async {
            let lease = store.lease(stored.lease).await?;
            let lost = u64::try_from(lease.granted - lease.ttl).unwrap_or(0);
            Ok(if lost >= age { Ok(lease) } else { Err(format!("{} s are left", lease.ttl)) })
        })
        .await?;
        let begin = Instant::now();
        restart(ctx, ETCD).await?;
        let after = store.lease(stored.lease).await?;
        let took = begin.elapsed().as_secs() + 1;
        if took < age {
            break (before, after);
        }
        // While etcd became ready, an extended lease may have lost as much again: the comparison proves nothing.
        age = took * 2;
    };
    ctx.count("elections", 1);
    let left = [&before, &after].map(|lease| format!("{} of {} s", lease.ttl, lease.granted));
    let extended = after.ttl > before.ttl && after.ttl <= after.granted;
    expect!(extended, "the lease had {} left before the election and {} after it", left[0], left[1]);
    let again = ctx.store.get(&CORE_EVENTS, "a").await?;
    expect!(again == stored, "the Event was {stored:?} before the election and is {again:?} after it");
    expect!(after.keys.contains(&stored.key), "the lease no longer holds {}", stored.key);
    Ok(())
}
