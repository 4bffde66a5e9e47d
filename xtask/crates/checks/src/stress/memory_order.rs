//! Many processors, many garbage collections, many writers and watches: an order of memory accesses that a processor
//! permits, but the programs do not expect, loses data or ends a process.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use futures::future::try_join_all;

use suite::api::Transport;
use suite::load::{Servers, Size, Workload};
use suite::object::{
    AUTOSCALERS, CONFIG_MAPS, CONTROLLER_REVISIONS, CORE_EVENTS, DEPLOYMENTS, ENDPOINT_SLICES, ENDPOINTS, INGRESSES,
    LEASES, POD_DISRUPTION_BUDGETS, POD_TEMPLATES, REPLICA_SETS, ROLES, SECRETS, SERVICE_ACCOUNTS, STORAGE_CAPACITIES,
};
use suite::prelude::*;
use suite::watch::{Next, WatchOptions};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "stress.memory-order",
    place: here!(),
    level: Extra,
    requirement: "With many processors, writers and garbage collections, no acknowledged write is lost, no watch has a \
                  gap, and no process reports a data race or a fatal error, on a processor with any memory ordering.",
    source: "the Go memory model; golang/go#80127, golang/go#79186",
    observed: "The apiserver and etcd run with GOMAXPROCS=16 and GOGC=5. For at least twenty seconds (more on a slow \
               machine), 64 writers change objects of 16 resources, each with two watchers, while 16 clients open and \
               close watches. The workload is judged like one with faults; the logs must contain no fatal error of Go.",
    by_hand: "GOGC=5 GOMAXPROCS=16 kube-apiserver …; kubectl apply and kubectl get --watch in 64 shells; grep -E 'fatal \
              error|panic|DATA RACE' kube-apiserver.log etcd.log",
    profiles: &["stress"],
    requires: Requires::OwnCluster(&[Requirement::Native, Requirement::Control, Requirement::RawStore]),
    run: scenario!(memory_order),
}];

const RESOURCES: usize = 16;
const WRITERS: usize = 64;
const WATCHERS: usize = 32;
/// The least and the longest time for which the clients run, in seconds on the reference machine.
const TIME: u32 = 20;
const LONGEST: u32 = 75;
/// The least number of watches, and of acknowledged writes of each resource, for a verdict. Two busy processors reach six
/// times as many in the least time, or not even these.
const OPENED: u64 = 100;
const WRITES: u64 = 30;
const OPENED_WATCHES: &str = "watches opened and closed";
/// A watch without events is closed after this time.
const SILENCE: Duration = Duration::from_millis(100);
const MOST_EVENTS: u32 = 30;

/// Words of Go's runtime, of its race detector, and of Kubernetes' handler of panics.
const FATAL: [&str; 7] = [
    "fatal error: ",
    "panic: ",
    "Observed a panic",
    "DATA RACE",
    "concurrent map ",
    "unexpected fault address",
    "SIGSEGV: ",
];

async fn memory_order(ctx: &Ctx) -> Verdict {
    let collections: [&'static Resource; RESOURCES] = [
        &CONFIG_MAPS,
        &CORE_EVENTS,
        &SECRETS,
        &SERVICE_ACCOUNTS,
        &ENDPOINTS,
        &ENDPOINT_SLICES,
        &LEASES,
        &ROLES,
        &CONTROLLER_REVISIONS,
        &POD_DISRUPTION_BUDGETS,
        &POD_TEMPLATES,
        &INGRESSES,
        &AUTOSCALERS,
        &STORAGE_CAPACITIES,
        &REPLICA_SETS,
        &DEPLOYMENTS,
    ];
    let size = Size {
        collections: collections.to_vec(),
        writers: WRITERS / RESOURCES,
        watchers: WATCHERS / RESOURCES,
        pace: Duration::ZERO,
    };
    let workload = Workload::of_size(ctx, Servers::first(ctx), size);
    let missing = || {
        let written =
            collections.iter().map(|resource| (resource.plural.as_str(), workload.acknowledged_of(resource), WRITES));
        let opened = (OPENED_WATCHES, ctx.counters().get(OPENED_WATCHES).copied().unwrap_or(0), OPENED);
        written.chain([opened]).find(|(_, seen, least)| seen < least)
    };
    let begin = Instant::now();
    let after = |seconds| begin.elapsed() >= Duration::from_secs(ctx.scaled_seconds(seconds).into());
    let is_over = || after(LONGEST) || (after(TIME) && missing().is_none());
    let openers = async {
        let each = collections.iter().enumerate();
        try_join_all(each.map(|(n, resource)| open_and_close(ctx, n, resource, &is_over))).await?;
        Ok(())
    };
    let judged = workload.run_with_fault(&[], openers).await;
    // A fatal error explains a failure of the workload better than the judge does.
    for component in ["kube-apiserver", "etcd-main"] {
        expect_none!(fatal_error(&ctx.control.log(component)?), "{component} reported a fatal error");
        ctx.count("logs without a fatal error", 1);
    }
    judged?;
    match missing() {
        None => Ok(()),
        Some((what, seen, least)) => {
            Err(anyhow!("not exercised: {what}: {seen}, but a verdict needs at least {least}").into())
        }
    }
}

/// Opens watches of one resource from different starts, reads some events, and closes them.
async fn open_and_close(
    parent: &Ctx,
    number: usize,
    resource: &'static Resource,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Verdict {
    let ctx = parent.contending_worker(&format!("opener-{number}"), &parent.profile().apiserver).await?;
    let transport = if number.is_multiple_of(2) { Transport::Http2 } else { Transport::Http1 };
    while !is_over() {
        let start = ctx.random().u8(..4);
        let options = match start {
            0 => WatchOptions::default(),
            1 => WatchOptions { resource_version: Some("0".into()), ..WatchOptions::default() },
            2 => WatchOptions { initial_events: true, ..WatchOptions::default() }.bookmarks(),
            _ => WatchOptions::after(ctx.api.list(resource, "").await?.rv()),
        };
        let mut watch = ctx.api.watch_over(transport, resource, &options).await?;
        let count = ctx.random().u32(1..=MOST_EVENTS);
        for _ in 0..count {
            match watch.poll(SILENCE).await? {
                Next::Event(_) => parent.count("events of watches that are closed", 1),
                Next::Nothing | Next::End => break,
            }
        }
        parent.count(OPENED_WATCHES, 1);
    }
    Ok(())
}

/// The first line of a log that reports a fatal error.
fn fatal_error(log: &str) -> Option<&str> {
    log.lines().find(|line| FATAL.iter().any(|word| line.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fatal_errors_are_found_in_a_log() {
        let usual = "I1126 12:00:00 trace.go:236] Trace[1]: \"Update\"\n{\"level\":\"info\",\"msg\":\"compacted\"}\n";
        assert_eq!(fatal_error(usual), None);
        for line in [
            "fatal error: concurrent map writes",
            "panic: runtime error: invalid memory address or nil pointer dereference",
            "WARNING: DATA RACE",
            "fatal error: found bad pointer in Go heap (incorrect use of unsafe or cgo?)",
            "E1126 12:00:00 panic.go:262] \"Observed a panic\" panic=\"x\"",
        ] {
            assert_eq!(fatal_error(&format!("{usual}{line}\ngoroutine 1")), Some(line));
        }
    }
}
