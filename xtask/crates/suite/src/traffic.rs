//! The workload for the whole-run judges: writers that contend for the same objects, readers with every kind of
//! resource version, watchers with every kind of start. It asserts only that requests are answered; the judges check
//! the answers.
//!
//! The amount is fixed and the choices follow from the seed, so two runs of one seed send the same requests.

use anyhow::Context;
use futures::future::try_join_all;
use model::Resource;
use model::history::FrameKind;
use serde_json::json;

use crate::api::{Response, Transport, query};
use crate::ctx::Ctx;
use crate::error::CheckError;
use crate::object::{CONFIG_MAPS, CONTROLLER_REVISIONS, LEASES, Object, config_map};
use crate::watch::{Event, MISSING_PREV_KV, Next, Watch, WatchOptions};

const WRITERS: usize = 4;
/// Steps of one writer; each step is a read and usually a write.
const STEPS: usize = 120;
const READERS: usize = 2;
const READS: usize = 60;
/// The number of kinds of reads; the first of them are lists.
const KINDS: usize = 7;
const LISTS: usize = 5;
/// The number of objects of each kind with content that is easily damaged.
const EXACT: usize = 8;
/// Few names, so that writers collide.
const NAMES: u32 = 10;
/// The number of objects about which one client sends requests that must be refused.
const REFUSED: usize = 3;
/// The number of events that a resuming watcher reads before it resumes.
const EVENTS_PER_STREAM: usize = 15;
/// Seconds until the last write must have reached every watcher.
const LIVENESS: f64 = 60.0;
const MARKER: &str = "marker";
/// The label that some watchers select; writers set and remove it.
const TEAM: &str = "team=a";

/// Runs the whole workload. The counters of `ctx` record its amount.
pub(crate) async fn run(ctx: &Ctx) -> Result<(), CheckError> {
    let begin = ctx.api.create(&CONFIG_MAPS, &config_map("begin")).await?.rv();
    let watchers = try_join_all(watchers(ctx, begin).await?);
    let work = async {
        let writers = try_join_all((1..=WRITERS).map(|n| write(ctx, n)));
        let readers = try_join_all((1..=READERS).map(|n| read(ctx, n, begin)));
        futures::try_join!(writers, readers, exact(ctx), refused(ctx))?;
        let marker = config_map(MARKER).with("metadata.labels", json!({"team": "a"}));
        ctx.api.create(&CONFIG_MAPS, &marker).await?;
        Ok::<(), CheckError>(())
    };
    futures::try_join!(work, watchers)?;
    Ok(())
}

/// One sequential client that reads, changes, creates and deletes.
async fn write(parent: &Ctx, number: usize) -> Result<(), CheckError> {
    let ctx = parent.worker(&format!("writer-{number}")).await?;
    for step in 0..STEPS {
        let name = format!("k{}", ctx.random().u32(..NAMES));
        let choice = ctx.random().u32(..100);
        let seen = ctx.api.try_get(&CONFIG_MAPS, &name, "").await?;
        let unique = format!("{number}-{step}");
        let answer = if seen.status == 404 {
            ctx.api.try_create(&CONFIG_MAPS, &labelled(&ctx, config_map(&name)).with("data.by", unique)).await?
        } else {
            change(&ctx, &name, &seen, choice, unique).await?
        };
        answered(parent, &answer)?;
    }
    Ok(())
}

/// Counts the answer to a write, and returns an error unless it is one that a write to a contended object may get.
fn answered(parent: &Ctx, answer: &Response) -> anyhow::Result<()> {
    parent.count(&format!("writes answered {}", answer.status), 1);
    expected(answer, &[200, 201, 404, 409])
}

async fn change(ctx: &Ctx, name: &str, seen: &Response, choice: u32, unique: String) -> anyhow::Result<Response> {
    match choice {
        0..60 => {
            let object = labelled(ctx, seen.object()?).with("data.by", unique);
            ctx.api.try_change(&CONFIG_MAPS, &object).await
        }
        60..75 => {
            let patch = json!({"data": {"by": unique}});
            ctx.api.try_patch_change(&CONFIG_MAPS, name, &patch).await
        }
        75..80 => ctx.api.try_update(&CONFIG_MAPS, &seen.object()?).await,
        _ => ctx.api.try_delete(&CONFIG_MAPS, name, &json!(null)).await,
    }
}

/// One sequential client that sends requests which a correct server must refuse, about objects that no other client
/// uses: an update of a replaced version, a deletion of a deleted object, and one of an object that never existed.
///
/// The writers send such requests too, but only if another writer changes the object between their GET and their write.
/// In some runs none of their deletions found its object absent, and a server that answers 200 to such a deletion was
/// not noticed.
async fn refused(parent: &Ctx) -> Result<(), CheckError> {
    let ctx = parent.worker("refused").await?;
    let delete = async |name: &str| ctx.api.try_delete(&CONFIG_MAPS, name, &json!(null)).await;
    for step in 0..REFUSED {
        let name = format!("refused-{step}");
        let replaced = ctx.api.create(&CONFIG_MAPS, &config_map(&name)).await?;
        let patch = json!({"data": {"by": "a patch"}});
        answered(parent, &ctx.api.try_patch_change(&CONFIG_MAPS, &name, &patch).await?)?;
        let late = replaced.with("data.by", "a late update");
        answered(parent, &ctx.api.try_change(&CONFIG_MAPS, &late).await?)?;
        for name in [name.as_str(), &name, "refused-never-created"] {
            answered(parent, &delete(name).await?)?;
        }
    }
    Ok(())
}

/// Puts the object into the selected team or another one, at random.
fn labelled(ctx: &Ctx, object: Object) -> Object {
    let team = if ctx.random().bool() { "a" } else { "b" };
    object.with("metadata.labels", json!({"team": team}))
}

/// One sequential client that reads with every kind of resource version.
async fn read(parent: &Ctx, number: usize, begin: u64) -> Result<(), CheckError> {
    let ctx = parent.worker(&format!("reader-{number}")).await?;
    let mut newest = begin;
    // The kinds take turns: with random kinds a judge might not get enough reads of one kind.
    let first = ctx.random().usize(..KINDS);
    for step in 0..READS {
        let at = ctx.random().u64(begin..=newest).to_string();
        let name = format!("k{}", ctx.random().u32(..NAMES));
        let kind = (first + step) % KINDS;
        let list = |pairs: &[(&str, &str)]| query(pairs);
        let answer = match kind {
            0 | 1 => ctx.api.try_list(&CONFIG_MAPS, "").await?,
            2 => ctx.api.try_list(&CONFIG_MAPS, &list(&[("resourceVersion", "0")])).await?,
            3 => {
                let exact = [("resourceVersion", at.as_str()), ("resourceVersionMatch", "Exact")];
                ctx.api.try_list(&CONFIG_MAPS, &list(&exact)).await?
            }
            4 => {
                let not_older = [("resourceVersion", at.as_str()), ("resourceVersionMatch", "NotOlderThan")];
                ctx.api.try_list(&CONFIG_MAPS, &list(&not_older)).await?
            }
            5 => ctx.api.try_get(&CONFIG_MAPS, &name, "").await?,
            _ => ctx.api.try_get(&CONFIG_MAPS, &name, &list(&[("resourceVersion", &at)])).await?,
        };
        // Only an object may be absent.
        expected(&answer, if kind < LISTS { &[200] } else { &[200, 404] })?;
        if kind < 2 {
            newest = newest.max(answer.object()?.rv());
        }
    }
    Ok(())
}

/// Writes, reads and watches objects whose content is easily damaged on its way: numbers above 2^53, decomposed letters,
/// times in microseconds.
async fn exact(parent: &Ctx) -> Result<(), CheckError> {
    let ctx = parent.worker("exact").await?;
    let number = json!(9_007_199_254_740_993_u64);
    let revision = |name: &str| {
        let data = json!({"number": number, "text": "e\u{301}"});
        Object::new(&CONTROLLER_REVISIONS, name).with("revision", number.clone()).with("data", data)
    };
    let lease = |name: &str| {
        let spec = json!({"holderIdentity": "e\u{301}", "renewTime": "2026-01-02T03:04:05.123456Z"});
        Object::new(&LEASES, name).with("spec", spec)
    };
    let lived = async {
        lives(&ctx, &CONTROLLER_REVISIONS, revision).await?;
        lives(&ctx, &LEASES, lease).await
    };
    match lived.await {
        // A user of an external cluster may have no permission for these resources. The ConfigMaps are judged all the same.
        Err(CheckError::Skipped { .. }) => Ok(()),
        result => result,
    }
}

/// The lives of some objects, seen in every way.
async fn lives(ctx: &Ctx, resource: &'static Resource, object: impl Fn(&str) -> Object) -> Result<(), CheckError> {
    let from = ctx.api.list(resource, "").await?.rv();
    let watch = ctx.api.try_watch(ctx.api.transport(), resource, &WatchOptions::after(from)).await?;
    let mut watch = watch.map_err(|refusal| CheckError::failed(format!("a watch was refused: {refusal}")))?;
    for step in 0..EXACT {
        let name = format!("exact-{step}");
        let created = ctx.api.create(resource, &object(&name)).await?;
        ctx.api.get(resource, &name).await?;
        ctx.api.update(resource, &created.with("metadata.labels", json!({"team": "a"}))).await?;
        ctx.api.list(resource, "").await?;
        ctx.api.list(resource, "resourceVersion=0").await?;
        ctx.api.delete(resource, &name).await?;
    }
    ctx.api.create(resource, &object(MARKER)).await?;
    watch.read_until("the marker", ctx.limit(LIVENESS), |event| event.object.name() == MARKER).await?;
    Ok(())
}

/// Opens the first stream of every watcher, so that all of them see the whole workload.
async fn watchers(
    parent: &Ctx,
    begin: u64,
) -> Result<Vec<futures::future::BoxFuture<'_, Result<(), CheckError>>>, CheckError> {
    let (http1, usual) = (Transport::Http1, parent.api.transport());
    let from = WatchOptions::after(begin);
    let zero = WatchOptions { resource_version: Some("0".into()), ..WatchOptions::default() };
    let initial = WatchOptions { initial_events: true, ..WatchOptions::default() }.bookmarks();
    let plans = [
        ("from-unset", usual, WatchOptions::default(), None),
        ("from-zero", http1, zero, None),
        ("from-list-1", http1, from.clone(), None),
        ("from-list-2", usual, from.clone().bookmarks(), None),
        ("initial-events", usual, initial, None),
        ("selecting-1", http1, from.clone().labels(TEAM), None),
        ("selecting-2", usual, from.clone().labels(TEAM).bookmarks(), None),
        ("resuming-1", http1, from.clone(), Some(EVENTS_PER_STREAM)),
        ("resuming-2", usual, from.clone().bookmarks(), Some(EVENTS_PER_STREAM)),
        ("resuming-selecting", usual, from.labels(TEAM), Some(EVENTS_PER_STREAM)),
    ];
    let mut watchers: Vec<futures::future::BoxFuture<'_, Result<(), CheckError>>> = Vec::new();
    for (name, transport, options, cut) in plans {
        let ctx = parent.worker(name).await?;
        let first = open(&ctx, transport, &options).await?;
        watchers.push(Box::pin(async move {
            let streams = follow(&ctx, first, transport, options, cut).await?;
            parent.count("streams", streams);
            Ok(())
        }));
    }
    Ok(watchers)
}

/// Reads up to the marker; with `cut`, closes the watch after that many events and resumes from the last one.
async fn follow(
    ctx: &Ctx,
    mut watch: Watch,
    transport: Transport,
    options: WatchOptions,
    cut: Option<usize>,
) -> Result<u64, CheckError> {
    let mut streams = 1;
    let mut again = options.clone();
    let mut missing_prev_kv = false;
    loop {
        let id = watch.id();
        match read_some(&mut watch, cut.unwrap_or(usize::MAX), ctx).await? {
            Progress::Marker => return Ok(streams),
            Progress::Cut(last) => {
                again = WatchOptions { resource_version: Some(last.to_string()), ..options.clone() }.resuming(id);
                missing_prev_kv = false;
            }
            Progress::MissingPrevKv if missing_prev_kv => {
                return Err(CheckError::failed(format!(
                    "{} received this error twice in a row: {MISSING_PREV_KV}",
                    ctx.client
                )));
            }
            Progress::MissingPrevKv => {
                ctx.count("streams that etcd began without previous values", 1);
                missing_prev_kv = true;
            }
        }
        drop(watch);
        watch = open(ctx, transport, &again).await?;
        streams += 1;
    }
}

enum Progress {
    Marker,
    /// The resource version of the last event.
    Cut(u64),
    /// [`MISSING_PREV_KV`] instead of the first event.
    MissingPrevKv,
}

async fn read_some(watch: &mut Watch, count: usize, ctx: &Ctx) -> Result<Progress, CheckError> {
    let mut seen = 0;
    loop {
        let event: Event = match watch.poll(ctx.limit(LIVENESS)).await? {
            Next::Event(event) => *event,
            Next::End => {
                let end = watch.end().map(|end| format!("{end:?}")).unwrap_or_default();
                return Err(CheckError::failed(format!("{} ended before the marker: {end}", ctx.client)));
            }
            Next::Nothing => {
                let what = format!("the marker on the watch of {}; last seen: {}", ctx.client, watch.last_rv());
                return Err(CheckError::TimedOut { what });
            }
        };
        match &event.frame.kind {
            FrameKind::Error { message, .. } if seen == 0 && message.contains(MISSING_PREV_KV) => {
                return Ok(Progress::MissingPrevKv);
            }
            FrameKind::Error { code, message, .. } => {
                return Err(CheckError::failed(format!("{} received an ERROR event {code}: {message}", ctx.client)));
            }
            _ if event.object.name() == MARKER => return Ok(Progress::Marker),
            _ => seen += 1,
        }
        if seen >= count {
            return Ok(Progress::Cut(event.frame.rv));
        }
    }
}

async fn open(ctx: &Ctx, transport: Transport, options: &WatchOptions) -> Result<Watch, CheckError> {
    match ctx.api.try_watch(transport, &CONFIG_MAPS, options).await? {
        Ok(watch) => Ok(watch),
        Err(refusal) => Err(CheckError::failed(format!("a watch of the traffic was refused: {refusal}"))),
    }
}

fn expected(answer: &Response, statuses: &[u16]) -> anyhow::Result<()> {
    if statuses.contains(&answer.status) {
        return Ok(());
    }
    Err(anyhow::anyhow!("{answer}")).context("a request of the traffic got an unexpected answer")
}
