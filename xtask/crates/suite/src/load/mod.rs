//! A workload that continues while servers fail: sequential writers with separate keys, watchers that continue by
//! resuming or listing again, and the record of it all, which `judge::fault` judges.
//!
//! `traffic.rs` is the workload for the whole-run judges: there a request without an answer is an error, here it is the
//! purpose. Choices follow from the run's seed. The workload waits for fixed counts before and after the fault, so its
//! amount is the same on every machine.

mod clients;
mod objects;
mod shared_state;
mod watcher;
mod writer;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use futures::future::try_join_all;
use judge::fault::{FaultHistory, Read, Watcher, Write, WriteResult, id_text, judge_fault_history};
use model::Resource;
use model::history::{Change, Key, Micros};

use crate::api::Transport;
use crate::ctx::Ctx;
use crate::error::{CheckError, Verdict};
use crate::object::{CONFIG_MAPS, CORE_EVENTS, Object};
use crate::record::key;
use crate::wait;

pub use clients::Servers;
use shared_state::{AFTER_FAULT, BEFORE_FAULT, DURING_FAULT, SharedState};
pub use writer::sample;

pub const COLLECTIONS: usize = 2;
/// The number of writers, and of watchers, of each collection.
pub const WRITERS: usize = 2;
pub const WATCHERS: usize = 2;
/// The pause between two steps of a writer, so that a native server does not get thousands of writes.
const PACE: Duration = Duration::from_millis(10);
/// The number of writes that must be acknowledged before the fault, and again after it.
const BEFORE: u64 = 60;
const AFTER: u64 = 60;
/// The number of writes that a watcher waits for before it resumes, so that it misses events.
const MISSED: u64 = 10;
/// Seconds until the last write must have reached every watcher.
const LIVENESS: f64 = 60.0;
/// Seconds for a phase of the workload to reach its number of acknowledged writes.
const PROGRESS: f64 = 60.0;
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The pause after a request without an answer. Longer on a slow machine, see [`scaled_pause`](crate::ctx::CaseState::scaled_pause).
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const MARKER: &str = "marker";
/// Written after the marker: a watcher that sees it without the marker need not wait for the marker any longer.
const AFTER_MARKER: &str = "after-marker";

/// Writes that were under way while the store was silent, or never had an answer. Both count, because an apiserver may
/// hold a write until its store is back.
pub const MET: &str = "writes that met the fault";

/// Counts of the judge that the workload reaches after the fault.
pub const RESUMED: &str = "watches resumed";
pub const RESUMED_LATE: &str = "watches resumed that had missed events";

/// A count that must be reached; otherwise the check has exercised nothing.
pub(crate) type Minimum = (&'static str, u64);

/// The records of a writer.
#[derive(Default)]
struct Log {
    writes: Vec<Write>,
    reads: Vec<Read>,
}

/// The amount of a workload.
#[derive(Clone, Debug)]
pub struct Size {
    pub collections: Vec<&'static Resource>,
    /// For each collection, as for watchers.
    pub writers: usize,
    pub watchers: usize,
    /// The pause between two steps of a writer.
    pub pace: Duration,
}

impl Size {
    fn all_watchers(&self) -> usize {
        self.collections.len() * self.watchers
    }
}

impl Default for Size {
    fn default() -> Size {
        let collections: [&'static Resource; COLLECTIONS] = [&CONFIG_MAPS, &CORE_EVENTS];
        Size { collections: collections.to_vec(), writers: WRITERS, watchers: WATCHERS, pace: PACE }
    }
}

/// A workload that a fault can wait for: each method delays the end of the fault until the clients have met it.
pub struct Workload<'a> {
    ctx: &'a Ctx,
    servers: Servers,
    size: Size,
    shared: SharedState,
    /// A moment at which the store could not answer any client.
    silent: OnceLock<Micros>,
}

impl<'a> Workload<'a> {
    pub fn new(ctx: &'a Ctx, servers: Servers) -> Workload<'a> {
        Workload::of_size(ctx, servers, Size::default())
    }

    pub fn of_size(ctx: &'a Ctx, servers: Servers, size: Size) -> Workload<'a> {
        Workload { ctx, servers, size, shared: SharedState::default(), silent: OnceLock::new() }
    }

    /// Runs the workload before, during and after `fault`, and judges the result. The fault must be over when its
    /// future ends. `minima` are counts of the judge, and `unanswered` counts writes without an answer.
    pub async fn run_with_fault(&self, minima: &[Minimum], fault: impl Future<Output = Verdict>) -> Verdict {
        let history = history(self.ctx, &self.servers, (&self.size, &self.shared), minima, fault).await?;
        self.shared.report(self.ctx);
        if let Some(silent) = self.silent.get() {
            self.ctx.count(MET, history.writes.iter().filter(|write| has_met(write, *silent)).count() as u64);
        }
        judge_workload(self.ctx, &history, minima)
    }

    /// To be called while the store answers no client: waits until a write is under way, or got no answer. [`MET`]
    /// counts these writes.
    pub async fn met_by_write(&self) -> Verdict {
        self.shared.met_by_write(self.ctx.limit(PROGRESS)).await?;
        // There is no `await` in between, so the write is still under way.
        self.silent.get_or_init(|| self.ctx.store.recorder(&CONFIG_MAPS).now());
        Ok(())
    }

    /// Waits until this many writes got no answer since the fault began.
    pub async fn unanswered(&self, least: u64) -> Verdict {
        self.shared.unanswered(self.ctx.limit(PROGRESS), least).await
    }

    /// Waits until this many writes were acknowledged since the fault began.
    pub async fn acknowledged(&self, least: u64) -> Verdict {
        self.shared.reached(self.ctx.limit(PROGRESS), DURING_FAULT, least).await
    }

    /// Acknowledged writes of a resource so far.
    pub fn acknowledged_of(&self, resource: &Resource) -> u64 {
        self.shared.acknowledged_of(&resource.plural)
    }

    /// The number of watches resumed so far.
    pub fn resumed(&self) -> u64 {
        self.shared.resumed_so_far()
    }

    /// Waits until every watcher has its watch open.
    pub async fn watching(&self) -> Verdict {
        self.shared.watching(self.ctx.limit(PROGRESS), self.size.all_watchers()).await
    }
}

fn has_met(write: &Write, silent: Micros) -> bool {
    write.result == WriteResult::Unknown || (write.called <= silent && silent <= write.returned)
}

fn judge_workload(ctx: &Ctx, history: &FaultHistory, minima: &[Minimum]) -> Verdict {
    let judgement = judge_fault_history(history);
    for (what, n) in &judgement.exercised {
        ctx.count(what, *n);
    }
    if let model::Outcome::Failed { message, evidence } = judgement.outcome() {
        return Err(CheckError::Failed { message, evidence });
    }
    let counters = ctx.counters();
    for (what, least) in minima {
        let seen = counters.get(*what).copied().unwrap_or(0);
        if seen < *least {
            let text = format!("not exercised: {what}: {seen}, but a verdict needs at least {least}");
            return Err(CheckError::Errored(anyhow!(text)));
        }
    }
    Ok(())
}

/// Waits until the store has this many more revisions.
pub async fn progress(ctx: &Ctx, revisions: i64) -> Verdict {
    let store = ctx.store.of(&CONFIG_MAPS);
    let goal = store.revision().await? + revisions;
    wait::until("more writes to reach the store", ctx.limit(PROGRESS), POLL_INTERVAL, || async {
        let now = store.revision().await?;
        Ok(if now >= goal { Ok(()) } else { Err(format!("revision {now}, awaited {goal}")) })
    })
    .await
}

async fn history(
    ctx: &Ctx,
    servers: &Servers,
    (size, shared): (&Size, &SharedState),
    minima: &[Minimum],
    fault: impl Future<Output = Verdict>,
) -> Result<FaultHistory, CheckError> {
    let collections = &size.collections;
    for resource in collections {
        ctx.api.track_for_cleanup(resource).await?;
    }
    let watchers = watchers(ctx, servers, shared, size).await?;
    let work = async {
        let writers = try_join_all(writers(ctx, servers, shared, size).await?);
        let ((), logs) = futures::try_join!(coordinate(ctx, (size, shared), minima, fault), writers)?;
        let mut history = FaultHistory::default();
        for log in logs {
            history.writes.extend(log.writes);
            history.reads.extend(log.reads);
        }
        for resource in collections {
            let marker = last_write(ctx, resource, MARKER).await?;
            if let WriteResult::Done(rv) = marker.result {
                shared.markers().insert(Key::clone(&marker.key), rv);
            }
            history.writes.push(marker);
            history.writes.push(last_write(ctx, resource, AFTER_MARKER).await?);
        }
        *shared.deadline() = Some(Instant::now() + ctx.limit(LIVENESS));
        Ok::<FaultHistory, CheckError>(history)
    };
    let (mut history, watchers) = futures::try_join!(work, try_join_all(watchers))?;
    history.markers =
        history.writes.iter().filter(|write| write.id.starts_with(MARKER)).map(|w| w.key.clone()).collect();
    history.watchers = watchers;
    // If no watcher saw the marker although a server answers, the judge reports it. If no server answers, it is unknown
    // what the watches would have shown.
    if no_watcher_saw_marker(&history) && !any_server_answers(ctx, servers, collections).await? {
        let watchers = history.watchers.len();
        let what = format!("the marker on any of {watchers} watches, or an answer to a read of it ({LIVENESS:.0} s)");
        return Err(CheckError::TimedOut { what });
    }
    add_store_record(ctx, &mut history, collections).await?;
    Ok(history)
}

/// Whether no watcher has seen its marker.
fn no_watcher_saw_marker(history: &FaultHistory) -> bool {
    let blind = |watcher: &Watcher| !history.markers.iter().any(|marker| watcher::has_seen(watcher, marker));
    history.watchers.iter().all(blind)
}

/// Whether an apiserver answers a read of a marker, even with 404.
async fn any_server_answers(
    ctx: &Ctx,
    servers: &Servers,
    collections: &[&'static Resource],
) -> Result<bool, CheckError> {
    let mut clients = servers.clients(ctx, "asker", 0).await?;
    for _ in 0..servers.count() {
        for resource in collections {
            let answer = clients.ctx().api.try_get(resource, MARKER, "").await;
            if answer.is_ok_and(|answer| matches!(answer.status, 200 | 404)) {
                return Ok(true);
            }
        }
        clients.next_server();
    }
    Ok(false)
}

/// Runs the fault between two phases of the workload that are the same in every run. The fault begins when all watches
/// are open; the workload ends when the watches that the fault has ended are resumed.
async fn coordinate(
    ctx: &Ctx,
    (size, shared): (&Size, &SharedState),
    minima: &[Minimum],
    fault: impl Future<Output = Verdict>,
) -> Verdict {
    let limit = ctx.limit(PROGRESS);
    shared.reached(limit, BEFORE_FAULT, BEFORE).await?;
    shared.watching(limit, size.all_watchers()).await?;
    shared.enter(DURING_FAULT);
    fault.await?;
    shared.enter(AFTER_FAULT);
    shared.reached(limit, AFTER_FAULT, AFTER).await?;
    shared.resumed(limit, minima).await?;
    shared.end();
    Ok(())
}

type Task<'a, T> = futures::future::BoxFuture<'a, Result<T, CheckError>>;

async fn writers<'a>(
    ctx: &Ctx,
    servers: &Servers,
    shared: &'a SharedState,
    Size { collections, writers: each, pace, .. }: &Size,
) -> Result<Vec<Task<'a, Log>>, CheckError> {
    let mut writers: Vec<Task<'a, Log>> = Vec::new();
    for number in 0..each * collections.len() {
        let resource = collections[number % collections.len()];
        let clients = servers.clients(ctx, &format!("writer-{number}"), number).await?;
        writers.push(Box::pin(writer::write(clients, shared, resource, (number, *pace))));
    }
    Ok(writers)
}

/// Creates the watchers of every collection, over both transports.
async fn watchers<'a>(
    ctx: &Ctx,
    servers: &Servers,
    shared: &'a SharedState,
    size: &Size,
) -> Result<Vec<Task<'a, Watcher>>, CheckError> {
    let mut watchers: Vec<Task<'a, Watcher>> = Vec::new();
    let each = |resource: &&'static Resource| std::iter::repeat_n(*resource, size.watchers);
    for (number, resource) in size.collections.iter().flat_map(each).enumerate() {
        let transport = if number % 2 == 0 { Transport::Http2 } else { Transport::Http1 };
        let clients = servers.clients(ctx, &format!("watcher-{number}"), number).await?;
        watchers.push(Box::pin(watcher::watch(clients, shared, resource, transport)));
    }
    Ok(watchers)
}

/// Writes one of the last objects of a collection. The servers work again, so the write must be acknowledged.
async fn last_write(ctx: &Ctx, resource: &Resource, name: &str) -> Result<Write, CheckError> {
    let recorder = ctx.store.recorder(resource);
    let id = format!("{name}-{}", resource.plural);
    let called = recorder.now();
    let made = ctx.api.create(resource, &sample(ctx.api.namespace().await?, resource, name, &id)).await?;
    Ok(Write {
        client: ctx.client.to_string(),
        id,
        key: key(&ctx.store.key(resource, name).await?),
        kind: Change::Put,
        based_on: 0,
        called,
        returned: recorder.now(),
        result: WriteResult::Done(made.rv()),
    })
}

/// Adds what the store recorded below the collections, and what it holds at the end.
async fn add_store_record(ctx: &Ctx, history: &mut FaultHistory, collections: &[&'static Resource]) -> Verdict {
    for resource in collections.iter().copied() {
        let recorder = ctx.store.recorder(resource);
        let prefix = resource.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
        let (there, now) = ctx.store.of(resource).list(&prefix, 0).await?;
        let what = format!("the record of the store to reach revision {now}");
        wait::until(&what, ctx.wait_limit(), POLL_INTERVAL, || async {
            let last = recorder.last_revision();
            Ok(if last >= now { Ok(()) } else { Err(format!("revision {last}")) })
        })
        .await?;
        // A write without an answer may take effect even now. So the state and the changes that lead to it end at one
        // revision.
        let changes = recorder.changes_below(&prefix).into_iter().filter(|revision| revision.rev <= now);
        history.revisions.extend(changes);
        history.end.extend(there.into_iter().map(|kv| (key(&kv.key), kv.mod_rev.cast_unsigned())));
    }
    history.revisions.sort_by_key(|revision| revision.rev);
    Ok(())
}

/// The text with a put's id, for the object's content.
fn content(id: &str) -> String {
    id_text(id)
}

/// The object with the id of another put.
fn with_id(object: Object, resource: &Resource, id: &str) -> Object {
    match resource.plural.as_str() {
        "events" => object.with("message", content(id)),
        "configmaps" => object.with("data.by", content(id)),
        _ => object.with("metadata.annotations.by", content(id)),
    }
}

fn key_of(ctx: &Ctx, resource: &Resource, object: &Object) -> Key {
    key(&resource.key(&ctx.profile().prefix, object.namespace(), object.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use judge::fault::{Begin, WatchSegment};
    use model::Outcome;
    use model::history::{Frame, FrameKind, Revision};

    const PREFIX: &str = "/registry/configmaps/ns/";

    /// A history with a marker in the store, and with watchers; `seen` says which of them saw it.
    fn history(seen: &[bool]) -> FaultHistory {
        let marker = key(&format!("{PREFIX}{MARKER}"));
        let id = "marker-configmaps".to_owned();
        let value = id_text(&id).into_bytes().into();
        let (version, create_rev, lease, prev_rev) = (1, 7, 0, 0);
        let kind = Change::Put;
        let put = Revision { at: 5, rev: 7, key: marker.clone(), kind, version, create_rev, lease, prev_rev, value };
        let watcher = |(number, seen): (usize, &bool)| {
            let frame = Frame { at: 6, kind: FrameKind::Added, key: marker.clone(), rv: 7, uid: key("u") };
            let begin = Begin::Listed { called: 0, rv: 6, items: Vec::new() };
            let segments = vec![WatchSegment { begin, frames: seen.then_some(frame).into_iter().collect() }];
            Watcher { client: format!("watcher-{number}"), prefix: key(PREFIX), segments }
        };
        let write = Write {
            client: "check".into(),
            id,
            key: marker.clone(),
            kind,
            based_on: 0,
            called: 4,
            returned: 5,
            result: WriteResult::Done(7),
        };
        FaultHistory {
            revisions: vec![put],
            end: [(marker.clone(), 7)].into(),
            writes: vec![write],
            watchers: seen.iter().enumerate().map(watcher).collect(),
            markers: vec![marker],
            ..FaultHistory::default()
        }
    }

    #[test]
    fn unseen_marker_is_a_violation() {
        for (seen, blind, failed) in [
            ([true, true], false, false),
            ([true, false], false, true),
            // Here it depends on whether a server answers: with an answer it is a violation, otherwise a time-out.
            ([false, false], true, true),
        ] {
            let history = history(&seen);
            assert_eq!(no_watcher_saw_marker(&history), blind, "{seen:?}");
            let outcome = judge_fault_history(&history).outcome();
            assert_eq!(matches!(outcome, Outcome::Failed { .. }), failed, "{seen:?}: {outcome:?}");
        }
    }
}
