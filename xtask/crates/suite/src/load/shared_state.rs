//! The state that all clients of a workload share, and the conditions for the end of its fault: a fault ends only after
//! the workload has met it, so no run depends on what the clients did at that moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use judge::fault::WriteResult;
use model::history::Key;

use super::{Minimum, POLL_INTERVAL, RESUMED, RESUMED_LATE};
use crate::ctx::Ctx;
use crate::error::{CheckError, Verdict};
use crate::wait;

/// The phases of a workload, as indexes.
const PHASES: [&str; 3] = ["before", "during", "after"];
pub(super) const BEFORE_FAULT: usize = 0;
pub(super) const DURING_FAULT: usize = 1;
pub(super) const AFTER_FAULT: usize = 2;

#[derive(Default)]
pub(super) struct SharedState {
    phase: AtomicUsize,
    acknowledged: [AtomicU64; 3],
    unanswered: [AtomicU64; 3],
    /// Acknowledged writes by the resource's plural.
    of_collection: Mutex<BTreeMap<String, u64>>,
    under_way: AtomicUsize,
    /// The number of tasks that wait until writes meet the fault.
    waits_for_writes: AtomicUsize,
    watches: AtomicUsize,
    resumed: AtomicU64,
    resumed_late: AtomicU64,
    /// Set when the writers must end.
    ended: AtomicBool,
    /// The time at which watchers must have seen the marker.
    deadline: Mutex<Option<Instant>>,
    /// The versions of the markers that were written.
    markers: Mutex<BTreeMap<Key, u64>>,
}

/// Counts one as long as it lives.
pub(super) struct Counted<'a>(&'a AtomicUsize);

impl Counted<'_> {
    fn new(count: &AtomicUsize) -> Counted<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl SharedState {
    pub(super) fn enter(&self, phase: usize) {
        self.phase.store(phase, Ordering::SeqCst);
    }

    /// Before the fault, clients stay at their server: a client that moved because of one slow answer would not use the
    /// server that the fault ends.
    pub(super) fn may_change_server(&self) -> bool {
        self.phase.load(Ordering::SeqCst) != BEFORE_FAULT
    }

    /// Counts a write as under way until the value is dropped.
    pub(super) fn write(&self) -> Counted<'_> {
        Counted::new(&self.under_way)
    }

    /// Counts a watch as open until the value is dropped.
    pub(super) fn watch(&self) -> Counted<'_> {
        Counted::new(&self.watches)
    }

    pub(super) fn note(&self, collection: &str, result: WriteResult) {
        let phase = self.phase.load(Ordering::SeqCst);
        match result {
            WriteResult::Done(_) => {
                self.acknowledged[phase].fetch_add(1, Ordering::SeqCst);
                *lock(&self.of_collection).entry(collection.to_owned()).or_default() += 1;
            }
            WriteResult::Unknown => {
                self.unanswered[phase].fetch_add(1, Ordering::SeqCst);
            }
            WriteResult::Refused => {}
        }
    }

    pub(super) fn note_resumed(&self) {
        self.resumed.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn resumed_so_far(&self) -> u64 {
        self.resumed.load(Ordering::SeqCst)
    }

    /// Notes that the first event of a resumed watch is a change, which the client had missed.
    pub(super) fn note_resumed_late(&self) {
        self.resumed_late.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn acknowledged_of(&self, collection: &str) -> u64 {
        lock(&self.of_collection).get(collection).copied().unwrap_or(0)
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    pub(super) fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    pub(super) fn deadline(&self) -> MutexGuard<'_, Option<Instant>> {
        lock(&self.deadline)
    }

    pub(super) fn markers(&self) -> MutexGuard<'_, BTreeMap<Key, u64>> {
        lock(&self.markers)
    }

    /// Whether the marker was written so long ago that a watcher must have seen it.
    pub(super) fn is_over(&self) -> bool {
        self.deadline().is_some_and(|deadline| Instant::now() >= deadline)
    }

    pub(super) fn report(&self, ctx: &Ctx) {
        for (phase, name) in PHASES.iter().enumerate() {
            ctx.count(&format!("acknowledged {name} the fault"), self.acknowledged[phase].load(Ordering::SeqCst));
            ctx.count("unanswered", self.unanswered[phase].load(Ordering::SeqCst));
        }
    }

    /// Whether a task waits for writes. Writers then send only writes, to each server in turn: kube-apiserver retries
    /// reads for 40 s, so four writers that all read when the store ends would send no write to it.
    pub(super) fn needs_writes(&self) -> bool {
        self.waits_for_writes.load(Ordering::SeqCst) > 0
    }

    /// Waits until `look` returns no reason to wait.
    async fn wait(&self, what: &str, limit: Duration, look: impl Fn(&SharedState) -> Option<String>) -> Verdict {
        wait::until(what, limit, POLL_INTERVAL, || async { Ok(look(self).map_or(Ok(()), Err)) }).await
    }

    /// Waits until a phase of the workload has this many acknowledged writes.
    pub(super) async fn reached(&self, limit: Duration, phase: usize, least: u64) -> Verdict {
        let what = format!("{least} acknowledged writes {} the fault", PHASES[phase]);
        self.wait(&what, limit, |shared| {
            let seen = shared.acknowledged[phase].load(Ordering::SeqCst);
            (seen < least).then(|| seen.to_string())
        })
        .await
    }

    /// Waits until a write is under way, or a write got no answer since the fault began.
    pub(super) async fn met_by_write(&self, limit: Duration) -> Verdict {
        let _hold = Counted::new(&self.waits_for_writes);
        self.wait("a write to meet the fault", limit, |shared| {
            let under_way = shared.under_way.load(Ordering::SeqCst) > 0;
            let unanswered = shared.unanswered[DURING_FAULT].load(Ordering::SeqCst) > 0;
            (!under_way && !unanswered).then(|| "no write under way".to_owned())
        })
        .await
    }

    /// Waits until this many writes got no answer since the fault began.
    pub(super) async fn unanswered(&self, limit: Duration, least: u64) -> Verdict {
        let _hold = Counted::new(&self.waits_for_writes);
        self.wait(&format!("{least} writes without an answer during the fault"), limit, |shared| {
            let seen = shared.unanswered[DURING_FAULT].load(Ordering::SeqCst);
            (seen < least).then(|| seen.to_string())
        })
        .await
    }

    /// Waits until this many watches are open at the same time.
    pub(super) async fn watching(&self, limit: Duration, least: usize) -> Verdict {
        self.wait(&format!("{least} open watches"), limit, |shared| {
            let open = shared.watches.load(Ordering::SeqCst);
            (open < least).then(|| open.to_string())
        })
        .await
    }

    /// Waits until the clients reach those minima that they can reach after the fault. The verdict reports a minimum
    /// that is not reached, but looks for violations first.
    pub(super) async fn resumed(&self, limit: Duration, minima: &[Minimum]) -> Result<(), CheckError> {
        let lacks = |shared: &SharedState| {
            let seen = |name: &str| match name {
                RESUMED => Some(shared.resumed_so_far()),
                RESUMED_LATE => Some(shared.resumed_late.load(Ordering::SeqCst)),
                _ => None,
            };
            let low = minima.iter().find(|(name, least)| seen(name).is_some_and(|seen| seen < *least));
            low.map(|(name, least)| format!("{name}: fewer than {least}"))
        };
        match self.wait("watches to be resumed", limit, lacks).await {
            Err(CheckError::TimedOut { .. }) => Ok(()),
            other => other,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const LIMIT: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(10);

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    /// Runs a wait next to a workload that is idle for a while and then acts. Returns whether the fault lasted until
    /// then.
    fn outlasts(wait: impl AsyncFnOnce(&SharedState) -> Verdict, act: impl AsyncFnOnce(&SharedState)) -> bool {
        let (shared, acted) = (SharedState::default(), AtomicBool::new(false));
        shared.enter(DURING_FAULT);
        let fault = async {
            wait(&shared).await.unwrap();
            acted.load(Ordering::SeqCst)
        };
        let traffic = async {
            wait::pause(SHORT * 10).await;
            acted.store(true, Ordering::SeqCst);
            act(&shared).await;
        };
        block_on(async { futures::join!(fault, traffic) }).0
    }

    #[test]
    fn fault_waits_for_a_write_in_flight() {
        let wait = async |shared: &SharedState| shared.met_by_write(LIMIT).await;
        assert!(outlasts(wait, async |shared| {
            let _write = shared.write();
            wait::pause(SHORT * 10).await;
        }));
        assert!(outlasts(wait, async |shared| shared.note("configmaps", WriteResult::Unknown)));
    }

    #[test]
    fn fault_waits_for_unanswered_writes() {
        let wait = async |shared: &SharedState| shared.unanswered(LIMIT, 2).await;
        assert!(outlasts(wait, async |shared| (0..2).for_each(|_| shared.note("configmaps", WriteResult::Unknown))));
    }

    #[test]
    fn fault_waits_for_acknowledged_writes() {
        let wait = async |shared: &SharedState| shared.reached(LIMIT, DURING_FAULT, 3).await;
        assert!(outlasts(wait, async |shared| (0..3).for_each(|_| shared.note("events", WriteResult::Done(7)))));
    }

    #[test]
    fn fault_waits_for_open_watches() {
        let wait = async |shared: &SharedState| shared.watching(LIMIT, 2).await;
        assert!(outlasts(wait, async |shared| {
            let _watches = [shared.watch(), shared.watch()];
            wait::pause(SHORT * 10).await;
        }));
    }

    #[test]
    fn writes_before_the_fault_do_not_count() {
        let shared = SharedState::default();
        shared.note("configmaps", WriteResult::Unknown);
        shared.note("configmaps", WriteResult::Done(7));
        drop(shared.write());
        shared.enter(DURING_FAULT);
        block_on(async {
            assert!(matches!(shared.met_by_write(SHORT).await, Err(CheckError::TimedOut { .. })));
            assert!(matches!(shared.unanswered(SHORT, 1).await, Err(CheckError::TimedOut { .. })));
            assert!(matches!(shared.reached(SHORT, DURING_FAULT, 1).await, Err(CheckError::TimedOut { .. })));
        });
    }

    #[test]
    fn writers_send_writes_only_while_a_fault_waits_for_them() {
        let shared = SharedState::default();
        shared.enter(DURING_FAULT);
        assert!(!shared.needs_writes());
        let wait = async { shared.met_by_write(LIMIT).await.unwrap() };
        let traffic = async {
            wait::pause(SHORT * 10).await;
            assert!(shared.needs_writes());
            let _write = shared.write();
            wait::pause(SHORT * 10).await;
        };
        block_on(async { futures::join!(wait, traffic) });
        assert!(!shared.needs_writes());
    }

    #[test]
    fn workload_runs_until_enough_watches_are_resumed() {
        let minima = [(RESUMED, 2), (RESUMED_LATE, 1), ("relay: reset", 1)];
        let wait = async |shared: &SharedState| shared.resumed(LIMIT, &minima).await;
        assert!(outlasts(wait, async |shared| {
            (0..2).for_each(|_| shared.note_resumed());
            shared.note_resumed_late();
        }));
        // Too few resumed watches do not end the check: violations that the judge finds have priority.
        let shared = SharedState::default();
        block_on(async { assert!(shared.resumed(SHORT, &minima).await.is_ok()) });
    }

    #[test]
    fn clients_stay_at_their_server_before_the_fault() {
        let shared = SharedState::default();
        assert!(!shared.may_change_server());
        shared.enter(DURING_FAULT);
        assert!(shared.may_change_server());
    }
}
