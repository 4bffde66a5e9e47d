//! The end of open watches when an apiserver gets the signal to exit.

use model::history::End;

use crate::support::expected_events::ExpectedEvents;
use crate::support::watch_follow::Follower;
use crate::watch::start::TRANSPORTS;
use suite::prelude::*;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.graceful-shutdown",
    place: here!(),
    level: Extra,
    requirement: "An apiserver with --shutdown-watch-termination-grace-period completes its watches within that time \
                  after the signal to exit; without the flag it may cut them. In both cases clients resume without \
                  loss.",
    source: "apiserver pkg/server/config.go, pkg/server/genericapiserver.go (ShutdownWatchTerminationGracePeriod), \
             pkg/server/filters/watch_termination.go",
    observed: "Watches of ConfigMaps over HTTP/1.1 and HTTP/2 are open when the check restarts the apiserver, first \
               without the flag and then with it: with it, every stream must be completed and not broken, and the log \
               must say that all watches were drained. The clients, resumed or after a new list, must have got all \
               writes before and after each restart.",
    by_hand: "start kube-apiserver with --shutdown-watch-termination-grace-period=10s, open a watch with curl, kill -TERM \
              the apiserver: curl ends with 0 and not with 18 or 92",
    profiles: &["reflagged"],
    requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
    run: scenario!(graceful_shutdown),
}];

const FLAG: &str = "shutdown-watch-termination-grace-period";
const DRAINED: &str = "active watch request(s) have drained";
const STREAMS_EACH: usize = 3;

async fn graceful_shutdown(ctx: &Ctx) -> Verdict {
    let begin = ctx.api.list(&CONFIG_MAPS, "").await?.rv();
    let mut readers = Vec::new();
    for transport in TRANSPORTS {
        for _ in 0..STREAMS_EACH {
            readers
                .push(Follower::open(ctx, transport, &CONFIG_MAPS, WatchOptions::default().bookmarks(), begin).await?);
        }
    }
    write(ctx, &mut readers, "first").await?;
    ctx.control.restart_with(&[(FLAG, "10s")]).await?;
    ends(ctx, &mut readers).await?;
    write(ctx, &mut readers, "second").await?;
    let drained = ctx.control.log("kube-apiserver")?.matches(DRAINED).count();
    let again = ctx.control.restart_with(&[(FLAG, "")]).await;
    let ended = ends(ctx, &mut readers).await;
    again?;
    let graceful = ended?;
    let last = write(ctx, &mut readers, "third").await?;
    let expected = ExpectedEvents::of(ctx, &CONFIG_MAPS, last).await?;
    for reader in &readers {
        reader.judge(&expected)?;
    }
    let broken = graceful.iter().filter(|end| **end != End::Server).count();
    expect!(broken == 0, "with --{FLAG} {broken} of {} watches were cut: {graceful:?}", graceful.len());
    let log = ctx.control.log("kube-apiserver")?;
    expect!(log.matches(DRAINED).count() > drained, "the server's log does not say that watches were drained");
    Ok(())
}

/// Makes some changes and waits until every reader has them.
async fn write(ctx: &Ctx, readers: &mut [Follower<'_>], phase: &str) -> Verdict<u64> {
    let object = ctx.api.create(&CONFIG_MAPS, &config_map(&format!("a-{phase}"))).await?;
    ctx.api.update(&CONFIG_MAPS, &object.with("data.k", "changed")).await?;
    ctx.api.delete(&CONFIG_MAPS, &format!("a-{phase}")).await?;
    let last = ctx.api.create(&CONFIG_MAPS, &config_map(&format!("b-{phase}"))).await?.rv();
    for reader in readers {
        reader.follow_to(last).await?;
        reader.keep_open().await?;
    }
    Ok(last)
}

/// Returns the end of each open stream.
async fn ends(ctx: &Ctx, readers: &mut [Follower<'_>]) -> Verdict<Vec<End>> {
    let mut ends = Vec::new();
    for reader in readers {
        let end = reader.read_to_end(ctx.event_limit()).await?;
        let how = if end == End::Server { "streams completed" } else { "streams cut" };
        ctx.count(how, 1);
        ends.push(end);
    }
    Ok(ends)
}
