//! Compaction under open watches, and watches that can no longer begin.

use futures::future::try_join_all;
use model::history::FrameKind;

use crate::support::expected_events::{ExpectedEvent, ExpectedEvents, listed};
use suite::api::Transport;
use suite::load::{self, RESUMED, Servers, Workload};
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::store::{StoreEvent, WatchSpec};
use suite::watch::{Next, WatchOptions};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "fault.compaction-under-watch",
        place: here!(),
        level: Should,
        requirement: "A compaction that the apiserver did not make does not affect open watches; a list or watch from \
                      before it is answered 410, or correctly from the watch cache.",
        source: "apiserver pkg/storage/etcd3/errors.go, pkg/storage/cacher/watch_cache.go; etcd-io/etcd#18089, #19179",
        observed: "Four writers and four watchers run; in between, the check compacts the store at its present \
                   revision. No watch may end or miss an event. Then it sends LIST Exact and WATCH at an earlier \
                   revision: for Events, which are not cached, the answer must be 410; for ConfigMaps it must be 410 \
                   or the recorded state. At last it deletes a key, compacts at the revision of the deletion, and \
                   watches the store from there, which etcd accepts: the deletion must come.",
        by_hand: "kubectl get configmaps -w; kubectl create configmap in a loop; etcdctl compact to the present revision; \
                  kubectl get --raw '/api/v1/namespaces/default/events?resourceVersionMatch=Exact&resourceVersion=N'",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[Requirement::Exclusive]),
        run: scenario!(compaction_under_watch),
    },
    Check {
        id: "fault.no-silent-close",
        place: here!(),
        level: Should,
        requirement: "A watch whose resource version has expired gets an error: it is not answered 200 with a stream \
                      that ends, or stays open, without an event.",
        source: "kubernetes/kubernetes#137089, #137307 (Events)",
        observed: "After a compaction, the check opens many watches of Events at the same time from a resource version \
                   before it, over HTTP/1.1 and HTTP/2, with bookmarks, with a label selector, and with neither: each \
                   must get HTTP 410, or one ERROR event with code 410.",
        by_hand: "etcdctl compact to the present revision; kubectl get --raw \
                  '/api/v1/namespaces/default/events?watch=true&resourceVersion=N' (many times)",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[Requirement::Exclusive]),
        run: scenario!(no_silent_close),
    },
];

/// Revisions before and after the compaction.
const AROUND: i64 = 30;
const ACKNOWLEDGED: u64 = 20;

async fn compaction_under_watch(ctx: &Ctx) -> Verdict {
    let store = ctx.store.of(&CONFIG_MAPS);
    let (mut old, mut before) = (0, 0);
    let workload = Workload::new(ctx, Servers::first(ctx));
    let compaction = async {
        // All watches are open now. A server that is overloaded may have refused some of them at first.
        before = workload.resumed();
        old = store.revision().await?;
        load::progress(ctx, AROUND).await?;
        let now = store.revision().await?;
        ctx.store.compact(&CONFIG_MAPS, now).await?;
        load::progress(ctx, AROUND).await?;
        workload.acknowledged(ACKNOWLEDGED).await
    };
    workload.run_with_fault(&[("acknowledged during the fault", ACKNOWLEDGED)], compaction).await?;
    let counters = ctx.counters();
    let count = |what: &str| counters.get(what).copied().unwrap_or(0);
    let (watchers, lists, resumed) = (count("watchers"), count("lists"), count(RESUMED) - before);
    expect!(
        lists == watchers && resumed == 0,
        "{watchers} watchers needed {lists} lists and resumed {resumed} times: the compaction ended their watches"
    );
    let old = old.cast_unsigned();
    for resource in [&*CORE_EVENTS, &*CONFIG_MAPS] {
        list_of_before(ctx, resource, old).await?;
        watch_of_before(ctx, resource, old).await?;
    }
    match ctx.env.cluster.capabilities(ctx.profile()).etcd {
        true => deletion_at_the_compaction(ctx).await,
        false => Ok(()),
    }
}

/// The key lies outside of all prefixes of kube-apiserver, whose watches have no previous value after a compaction.
async fn deletion_at_the_compaction(ctx: &Ctx) -> Verdict {
    let store = ctx.store.of(&CONFIG_MAPS);
    let key = format!("/archproof-deleted/{}", ctx.name_prefix());
    store.put(&key, b"1").await?;
    let deleted = store.delete(&key).await?;
    ctx.store.compact(&CONFIG_MAPS, deleted).await?;
    let mut watches = store.watch_together(&[WatchSpec { key: key.clone(), prefix: false, start: deleted }]).await?;
    watches.read_answers(ctx.wait_limit()).await?;
    let last = store.put(&key, b"2").await?;
    watches.read_to(last, ctx.wait_limit()).await?;
    store.delete(&key).await?;
    let expected = [
        StoreEvent { key: key.clone(), rev: deleted, value: None },
        StoreEvent { key, rev: last, value: Some(b"2".to_vec()) },
    ];
    expect_eq!(watches.records[0].events, expected, "events of a watch from the compacted revision {deleted}");
    ctx.count("deletions at a compacted revision", 1);
    Ok(())
}

fn is_cached(resource: &Resource) -> bool {
    resource.plural != "events"
}

async fn list_of_before(ctx: &Ctx, resource: &Resource, old: u64) -> Verdict {
    let query = format!("resourceVersion={old}&resourceVersionMatch=Exact");
    let answer = ctx.api.try_list(resource, &query).await?;
    if answer.is(410, "Expired") {
        ctx.count("expired", 1);
        return Ok(());
    }
    let what = format!("the list of {} at {old}, from before the compaction", resource.plural);
    expect!(is_cached(resource) && answer.status == 200, "{what} was answered {answer}");
    let list = answer.object()?;
    expect_eq!(list.rv(), old, "the resource version of {what}");
    let changes = ExpectedEvents(recorded(ctx, resource).await?);
    expect_eq!(listed(ctx, resource, &list), changes.state(old), "the items of {what}");
    ctx.count("served from a snapshot", 1);
    Ok(())
}

/// The changes that are recorded by now.
async fn recorded(ctx: &Ctx, resource: &Resource) -> anyhow::Result<Vec<ExpectedEvent>> {
    let prefix = resource.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    Ok(ctx.store.recorder(resource).changes_below(&prefix).iter().map(ExpectedEvent::from).collect())
}

async fn watch_of_before(ctx: &Ctx, resource: &Resource, old: u64) -> Verdict {
    let what = format!("the watch of {} from {old}, from before the compaction,", resource.plural);
    let Some(rv) = first_of(ctx, &what, Transport::Http2, resource, &WatchOptions::after(old)).await? else {
        ctx.count("expired", 1);
        return Ok(());
    };
    expect!(is_cached(resource), "{what} was not refused: it began with {rv}");
    let next = recorded(ctx, resource).await?.into_iter().map(|change| change.rv).find(|rev| *rev > old);
    expect_eq!(Some(rv), next, "the first event of {what}");
    ctx.count("served from the cache", 1);
    Ok(())
}

/// The resource version of the first event of a watch; None if the watch is refused as expired.
async fn first_of(
    ctx: &Ctx,
    what: &str,
    transport: Transport,
    resource: &Resource,
    options: &WatchOptions,
) -> Verdict<Option<u64>> {
    let mut watch = match ctx.api.try_watch(transport, resource, options).await? {
        Err(refusal) if refusal.status == 410 => return Ok(None),
        Err(refusal) => return Err(CheckError::failed(format!("{what} was refused: {refusal}"))),
        Ok(watch) => watch,
    };
    let limit = ctx.limit(10.0);
    let fault = match watch.poll(limit).await? {
        Next::Event(event) => match &event.frame.kind {
            FrameKind::Error { code: 410, .. } => return Ok(None),
            FrameKind::Error { code, reason, message } => format!("got the error {code} {reason}: {message}"),
            _ => return Ok(Some(event.frame.rv)),
        },
        Next::End => "was answered 200, and its stream ended without an event".to_owned(),
        Next::Nothing => format!("was answered 200 and then nothing for {:.0} s", limit.as_secs_f64()),
    };
    Err(CheckError::failed(format!("{what} {fault}")))
}

/// Watches of each kind, opened at the same time: a server that loses the refusal does so only sometimes.
const OF_EACH: usize = 8;

async fn no_silent_close(ctx: &Ctx) -> Verdict {
    let namespace = ctx.api.namespace().await?.to_owned();
    let sample = |id: &str| load::sample(&namespace, &CORE_EVENTS, "a", id);
    let first = ctx.api.create(&CORE_EVENTS, &sample("1")).await?;
    let second = ctx.api.update(&CORE_EVENTS, &first.clone().with("message", "2")).await?;
    ctx.api.update(&CORE_EVENTS, &second.with("message", "3")).await?;
    ctx.store.compact(&CORE_EVENTS, ctx.store.of(&CORE_EVENTS).revision().await?).await?;
    let from = WatchOptions::after(first.rv());
    let kinds = [from.clone(), from.clone().bookmarks(), from.labels("a=b")];
    let transports = [Transport::Http1, Transport::Http2];
    let all = kinds.iter().flat_map(|options| transports.map(|transport| (options, transport)));
    let all = all.flat_map(|one| [one; OF_EACH]).map(|(options, transport)| async move {
        let what = format!("the watch with `{}` over {}", options.query(), transport.name());
        if let Some(rv) = first_of(ctx, &what, transport, &CORE_EVENTS, options).await? {
            return Err(CheckError::failed(format!("{what} began with {rv}")));
        }
        ctx.count("told that it is expired", 1);
        Ok(())
    });
    try_join_all(all).await?;
    Ok(())
}
