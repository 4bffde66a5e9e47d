//! An ERROR event is the last event of its stream.

use model::history::{End, FrameKind};

use crate::support::expected_events::on_stream;
use crate::support::page::sample;
use crate::watch::start::{TRANSPORTS, initial_events};
use suite::api::Transport;
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::watch::{Event, Watch, WatchOptions};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.error-is-last",
    place: here!(),
    level: Should,
    requirement: "After an ERROR event nothing more is sent on a watch, and the server ends the stream.",
    source: "apiserver pkg/storage/testing/watcher_tests.go (RunWatchErrorIsBlockingFurtherEvents)",
    observed: "Watches with initial events of a resource version that no store reaches get an ERROR, from the watch \
               cache and from the store, over HTTP/1.1 and HTTP/2: it must be the only event, and the server must \
               complete the stream. On the profile `disruptive`, where the check is alone, the check puts an Event \
               with bytes that cannot be decoded into the store under eight open watches, after a good change and in \
               one transaction with another: each watch must send the first change, then ERROR, then end, and never \
               send the second change.",
    by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?watch=true&sendInitialEvents=true\
              &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=9000000000000000'",
    profiles: &["default", "disruptive"],
    requires: Requires::OwnCluster(&[Requirement::ExclusiveOn("disruptive")]),
    run: scenario!(error_is_last),
}];

/// A resource version that no store reaches.
const FAR_FUTURE: &str = "9000000000000000";
/// The watches over each transport. Whether a wrong server sends the second change is a race in each of them.
const WATCHES: usize = 4;
/// The magic of protobuf, then invalid bytes.
const BROKEN: &[u8] = b"k8s\0\xff\xff\xff\xff";

async fn error_is_last(ctx: &Ctx) -> Verdict {
    let [http1, http2] = TRANSPORTS;
    if ctx.profile().name == "disruptive" {
        return in_the_middle(ctx).await;
    }
    tokio::try_join!(
        at_the_begin(ctx, http1, &CONFIG_MAPS),
        at_the_begin(ctx, http2, &CONFIG_MAPS),
        at_the_begin(ctx, http1, &CORE_EVENTS),
        at_the_begin(ctx, http2, &CORE_EVENTS),
    )?;
    Ok(())
}

async fn at_the_begin(ctx: &Ctx, transport: Transport, resource: &Resource) -> Verdict {
    let options = WatchOptions { resource_version: Some(FAR_FUTURE.into()), ..initial_events() };
    let mut watch = ctx.api.watch_over(transport, resource, &options).await?;
    let object = sample(ctx, resource, &format!("late-{}", transport.name().replace('/', "-")), "1").await?;
    ctx.api.create(resource, &object).await?;
    let events = watch.read_to_end(ctx.event_limit()).await?;
    ends_with_error(ctx, &watch, &events, 1)
}

async fn in_the_middle(ctx: &Ctx) -> Verdict {
    let begin = ctx.api.list(&CORE_EVENTS, "").await?.rv();
    let mut watches = Vec::new();
    for transport in TRANSPORTS.into_iter().flat_map(|transport| [transport; WATCHES]) {
        watches.push(ctx.api.watch_over(transport, &CORE_EVENTS, &WatchOptions::after(begin)).await?);
    }
    ctx.api.create(&CORE_EVENTS, &sample(ctx, &CORE_EVENTS, "good", "1").await?).await?;
    let key = ctx.store.key(&CORE_EVENTS, "broken").await?;
    let store = ctx.store.of(&CORE_EVENTS);
    let good = ctx.store.get(&CORE_EVENTS, "good").await?;
    if ctx.env.cluster.capabilities(ctx.profile()).etcd {
        // In one transaction, so that the second change is in the server's queue when the first one ends the watch: a
        // server that sends it does so only then (kubernetes/kubernetes#131020).
        store.write_together(&[(&key, Some(BROKEN)), (&good.key, Some(&good.value))]).await?;
    } else {
        // kine knows no such transactions.
        store.put(&key, BROKEN).await?;
        store.put(&good.key, &good.value).await?;
    }
    let mut verdict = Ok(());
    for watch in &mut watches {
        let events = watch.read_to_end(ctx.event_limit()).await;
        verdict = verdict.and_then(|()| ends_with_error(ctx, watch, &events?, 2));
    }
    // Regardless of the verdict: while the key exists, every list of Events fails.
    store.delete(&key).await?;
    verdict
}

/// Expects exactly `count` events, the last an ERROR, and then a proper end.
fn ends_with_error(ctx: &Ctx, watch: &Watch, events: &[Event], count: usize) -> Verdict {
    fault_of(events, watch.end(), count).map_err(on_stream("a watch with an ERROR", events))?;
    ctx.count("errors", 1);
    Ok(())
}

fn fault_of(events: &[Event], end: Option<&End>, count: usize) -> Verdict {
    let is_error = |event: &Event| matches!(event.frame.kind, FrameKind::Error { .. });
    let at = events.iter().position(is_error).ok_or_else(|| CheckError::failed("no ERROR came"))?;
    if let Some(next) = events.get(at + 1) {
        return Err(CheckError::failed(format!("{} came after the ERROR", next.word())));
    }
    let all = events.len();
    expect!(all == count, "{all} events up to the ERROR instead of {count}");
    expect!(end == Some(&End::Server), "the stream's end was {end:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::expected_events::tests::events;
    use crate::support::verdict::assert_fault;

    #[test]
    fn error_is_the_last_event_of_a_stream() {
        let server = Some(&End::Server);
        for (stream, end, why) in [
            ("ADDED a@2, ERROR @0", server, ""),
            ("ADDED a@2, MODIFIED a@3", server, "no ERROR"),
            ("ADDED a@2, ERROR @0, MODIFIED a@4", server, "MODIFIED came after"),
            ("ERROR @0, ERROR @0", server, "ERROR came after"),
            ("ADDED a@2, MODIFIED a@4, ERROR @0", server, "3 events"),
            ("ADDED a@2, ERROR @0", Some(&End::Client), "end was"),
            ("ADDED a@2, ERROR @0", None, "end was"),
        ] {
            assert_fault(fault_of(&events(stream), end, 2), why, stream);
        }
    }
}
