//! Bookmarks of a resource that does not change while others do.

use crate::support::expected_events::fail;
use crate::support::page::{sample, with_content};
use crate::watch::start::{TRANSPORTS, is_bookmark, read_all};
use suite::prelude::*;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.bookmark-idle",
    place: here!(),
    level: Should,
    requirement: "Bookmarks of a resource that does not change advance while other resources change, so that a client \
                  can resume from a bookmark after earlier revisions were compacted.",
    source: "KEP-1904, KEP-956; apiserver pkg/storage/cacher/watch_cache.go (UpdateResourceVersion), etcd \
             --watch-progress-notify-interval (5s, as kubeadm sets it)",
    observed: "The check writes a custom resource once, then only ConfigMaps. It reads watches of the custom resource \
               that end after some seconds, over HTTP/1.1 and HTTP/2, until a bookmark has reached the last of those \
               writes. It compacts the store there; a watch from the bookmark must be accepted and deliver only the \
               next change of the custom resource.",
    by_hand: "kubectl get --raw '/apis/example.org/v1/fruits?watch=true&resourceVersion=R&allowWatchBookmarks=true\
              &timeoutSeconds=15' while ConfigMaps are written; etcdctl compact at the bookmark; watch again from it",
    profiles: &["split-events"],
    requires: Requires::OwnCluster(&[Requirement::Exclusive]),
    run: scenario!(bookmark_idle),
}];

/// Writes of ConfigMaps.
const WRITES: usize = 10;
/// The duration of the first stream, in seconds: its bookmark comes about two seconds before the end, if the store has
/// reported its progress (every 5 s). Longer streams follow.
const SHORTEST: u32 = 9;

async fn bookmark_idle(ctx: &Ctx) -> Verdict {
    let idle = &ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "sleepers", "Sleeper").await?;
    let only = ctx.api.create(idle, &sample(ctx, idle, "only", "1").await?).await?;
    let mut last = 0;
    for n in 0..WRITES {
        last = ctx.api.create(&CONFIG_MAPS, &config_map(&format!("n{n}"))).await?.rv();
    }
    let bookmark = advanced(ctx, idle, only.rv(), last).await?;
    ctx.store.compact(idle, bookmark.cast_signed()).await?;
    let mut object = only;
    for transport in TRANSPORTS {
        let mut watch = ctx.api.watch_over(transport, idle, &WatchOptions::after(bookmark)).await?;
        let before = object.rv();
        object = ctx.api.update(idle, &with_content(object, transport.name())).await?;
        let events = watch.read_to(object.rv(), ctx.event_limit()).await?;
        let seen: Vec<(&str, u64)> = events.iter().map(|event| (event.word(), event.frame.rv)).collect();
        let mut expected = vec![("MODIFIED", object.rv())];
        if before > bookmark {
            expected.insert(0, ("MODIFIED", before));
        }
        let what = format!("events of a watch from the bookmark at {bookmark}, up to which the store is compacted");
        expect_eq!(seen, expected, "{what}");
        ctx.count("resumed", 1);
    }
    Ok(())
}

/// The resource version of a bookmark that is not before `goal`, from streams that begin after `begin`.
async fn advanced(ctx: &Ctx, idle: &Resource, begin: u64, goal: u64) -> Verdict<u64> {
    let mut bookmarks = 0;
    let mut rounds = ctx.rounds("no bookmark came on any watch");
    loop {
        let round = match rounds.next() {
            Ok(round) => round,
            Err(missed) if bookmarks == 0 => return Err(missed),
            Err(_) => break,
        };
        let seconds = ctx.round_seconds(SHORTEST, round);
        let options = WatchOptions::after(begin).bookmarks().timeout(seconds);
        let transport = TRANSPORTS[usize::from(round % 2 == 1)];
        let events = read_all(ctx, transport, idle, &options, None).await?;
        if let Some(odd) = events.iter().find(|event| !is_bookmark(event)) {
            return Err(fail("a watch of an idle resource", &format!("{} came", odd.word()), &events));
        }
        bookmarks += events.len();
        if let Some(reached) = events.iter().map(|event| event.frame.rv).find(|rv| *rv >= goal) {
            let revision = ctx.store.of(idle).revision().await?.cast_unsigned();
            expect!(reached <= revision, "a bookmark at {reached}, the store is at {revision}");
            ctx.count("bookmarks", bookmarks as u64);
            return Ok(reached);
        }
    }
    let fault = format!("{bookmarks} bookmarks of an idle resource, and none reached {goal}, written before them");
    Err(CheckError::failed(fault))
}
