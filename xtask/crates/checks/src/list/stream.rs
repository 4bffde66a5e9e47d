//! Lists that the server reads from etcd as a stream of chunks.

use crate::support::metrics::Metrics;
use crate::support::page::{entries, fault_of_chain, list, sample};
use suite::object::CORE_EVENTS;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "list.range-stream",
    place: here!(),
    level: Should,
    requirement: "If the server reads lists from etcd by RangeStream, they equal those read by Range; if etcd has no \
                  RangeStream, the server reads them by Range.",
    source: "KEP-5966; kubernetes#139692; apiserver pkg/features/kube_features.go (EtcdRangeStream, from 1.37 on)",
    observed: "Events, which no cache serves, more of them than the first chunks of a stream hold: lists with and \
               without a limit must equal a unary Range at their revision, in its order. etcd_request_duration_seconds \
               shows whether the server used streams; without one the check is skipped.",
    by_hand: "kubectl get --raw /metrics | grep -e EtcdRangeStream -e listStream",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
    run: scenario!(range_stream),
}];

const ETCD_CALLS: &str = "etcd_request_duration_seconds_count";

/// The server streams lists without a selector, and lists with one that have no limit, in chunks whose size starts at ten
/// keys.
async fn range_stream(ctx: &Ctx) -> Verdict {
    const OBJECTS: usize = 60;
    let before = Metrics::read(ctx).await?;
    before.require_gate("EtcdRangeStream")?;
    for number in 0..OBJECTS {
        let event = sample(ctx, &CORE_EVENTS, &format!("e{number:02}"), &"x".repeat(2000)).await?;
        ctx.api.create(&CORE_EVENTS, &event).await?;
    }
    for query in ["", "labelSelector=none%21%3Dsuch", "limit=100"] {
        let page = list(ctx, &CORE_EVENTS, query).await?;
        let stored = entries(&ctx.store.list(&CORE_EVENTS, page.rv.cast_signed()).await?);
        let at = page.rv;
        expect_none!(fault_of_chain(&[page], &stored, None), "list of Events with `{query}` at {at}");
        ctx.count("items", stored.len() as u64);
    }
    let streamed = [("operation", "listStream"), ("resource", "events")];
    let grown = Metrics::read(ctx).await?.growth(&before, ETCD_CALLS, &streamed);
    ctx.count("streams", grown);
    match grown {
        0 => Err(CheckError::Skipped { need: "an etcd with RangeStream (3.7 or later)".into() }),
        _ => Ok(()),
    }
}
