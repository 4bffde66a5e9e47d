//! Recording: every operation, every stream, every revision of a store, with one clock. Recorders do not judge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use model::history::{
    Answer, Change, Compact, Frame, FrameKind, History, Key, Meta, Micros, Operation, Revision, Snapshot, Stream,
    Texts, Through, Verb,
};

use crate::sightings::{Shown, Sightings};

/// The start of a run's time.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now(self) -> Micros {
        // A u64 of microseconds lasts half a million years.
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Collects the history of one store; cheap to clone, shared by all clients.
#[derive(Clone)]
pub struct Recorder {
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
    /// Keys that the run itself wrote, in a store with other writers. They have a separate lock, because a change of
    /// the history reads them.
    written: Arc<Mutex<BTreeSet<String>>>,
    /// Whether the apiserver is on another store, so that it shows objects of another history.
    elsewhere: Arc<AtomicBool>,
}

#[derive(Default)]
struct Inner {
    history: History,
    sightings: Sightings,
    next_stream: u64,
    texts: Texts,
    /// The highest revision in an answer to a write.
    acknowledged: i64,
}

impl Recorder {
    pub fn new(clock: Clock, profile: &str, store: &str) -> Recorder {
        let meta = Meta { profile: profile.to_owned(), store: store.to_owned(), ..Meta::default() };
        let history = History { meta, ..History::default() };
        let inner = Inner { history, next_stream: 1, ..Inner::default() };
        Recorder { clock, inner: Arc::new(Mutex::new(inner)), written: Arc::default(), elsewhere: Arc::default() }
    }

    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    pub fn operation(&self, mut operation: Operation) {
        let inner = &mut *self.lock();
        operation.compact(&mut inner.texts);
        inner.acknowledged = inner.acknowledged.max(acknowledged(&operation));
        inner.history.operations.push(operation);
    }

    pub fn stream(&self, mut stream: Stream) {
        let inner = &mut *self.lock();
        stream.compact(&mut inner.texts);
        inner.history.streams.push(stream);
    }

    pub fn revisions(&self, revisions: impl IntoIterator<Item = Revision>) {
        let inner = &mut *self.lock();
        for mut revision in revisions {
            revision.compact(&mut inner.texts);
            inner.history.revisions.push(revision);
        }
    }

    /// Records the objects that one answer or event showed. `first` names it.
    pub(crate) fn shown(
        &self,
        (through, api_version): (Through, &str),
        objects: &[Shown<'_>],
        first: &dyn Fn() -> String,
    ) {
        if self.elsewhere.load(Ordering::Relaxed) {
            return;
        }
        let at = self.now();
        let inner = &mut *self.lock();
        for shown in objects {
            inner.sightings.add(&mut inner.texts, (through, api_version), shown, (at, first));
        }
    }

    /// Records the object of a change, in JSON and with its digest. `first` names the stream.
    pub fn event_shown(
        &self,
        api_version: &str,
        frame: &Frame,
        (digest, object): (u64, &[u8]),
        first: &dyn Fn() -> String,
    ) {
        let through = match frame.kind {
            FrameKind::Added | FrameKind::Modified => Through::Event,
            FrameKind::Deleted => Through::Deleted,
            FrameKind::Bookmark { .. } | FrameKind::Error { .. } | FrameKind::Unknown { .. } => return,
        };
        let shown = Shown { key: &frame.key, rv: frame.rv, digest, object };
        self.shown((through, api_version), &[shown], first);
    }

    /// The shared copy of a text, of which the history keeps one.
    pub(crate) fn text(&self, text: &str) -> Key {
        self.lock().texts.of(text)
    }

    /// Notes that the run is about to write this key.
    pub(crate) fn written(&self, key: &str) {
        self.written.lock().unwrap_or_else(|e| e.into_inner()).insert(key.to_owned());
    }

    /// Whether the run itself wrote the key.
    pub(crate) fn has_written(&self, key: &str) -> bool {
        self.written.lock().unwrap_or_else(|e| e.into_inner()).contains(key)
    }

    /// A number for a stream that is about to open.
    pub fn stream_id(&self) -> u64 {
        let mut inner = self.lock();
        inner.next_stream += 1;
        inner.next_stream - 1
    }

    pub fn compaction(&self, revision: i64) {
        let now = self.now();
        self.lock().history.meta.compactions.push((now, revision));
    }

    /// Notes that the apiserver is about to be started again.
    pub fn restart(&self) {
        let now = self.now();
        self.lock().history.meta.restarts.push(now);
    }

    /// Notes whether the apiserver is about to use another store than the recorded one. Objects that it shows then are not
    /// recorded.
    pub(crate) fn elsewhere(&self, elsewhere: bool) {
        self.elsewhere.store(elsewhere, Ordering::Relaxed);
    }

    /// Notes that the recording broke off and continues from `revision`.
    pub(crate) fn reopened(&self, revision: i64) {
        let now = self.now();
        self.lock().history.meta.reopened.push((now, revision));
    }

    pub(crate) fn meta(&self, change: impl FnOnce(&mut Meta)) {
        change(&mut self.lock().history.meta);
    }

    /// The last recorded revision before the last restart of the apiserver; None if it was not restarted, or nothing was
    /// recorded before.
    pub fn revision_before_restart(&self) -> Option<u64> {
        let history = &self.lock().history;
        let restart = *history.meta.restarts.last()?;
        let before = history.revisions.iter().take_while(|revision| revision.at < restart).last()?;
        u64::try_from(before.rev).ok()
    }

    /// The number of revisions so far.
    pub fn revision_count(&self) -> usize {
        self.lock().history.revisions.len()
    }

    /// The last recorded revision; before the first one, the revision at which the recording began.
    pub fn last_revision(&self) -> i64 {
        let history = &self.lock().history;
        history.revisions.last().map_or(history.meta.first_rev, |revision| revision.rev)
    }

    /// A revision that the store has reached: the last recorded one, or that of an answered write. The record of the
    /// store may be behind the answers, and an external cluster without a store has none.
    pub fn newest_revision(&self) -> i64 {
        self.last_revision().max(self.lock().acknowledged)
    }

    /// The version of a key when the recording began; 0 if it did not exist.
    pub fn initial_version(&self, key: &str) -> i64 {
        self.lock().history.meta.initial.iter().find(|kv| &*kv.key == key).map_or(0, |kv| kv.version)
    }

    /// The recorded changes of one key so far, in order.
    pub fn changes_of(&self, key: &str) -> Vec<Revision> {
        self.lock().history.revisions.iter().filter(|r| &*r.key == key).cloned().collect()
    }

    /// The recorded changes of all keys with a prefix so far, in order.
    pub fn changes_below(&self, prefix: &str) -> Vec<Revision> {
        self.lock().history.revisions.iter().filter(|r| r.key.starts_with(prefix)).cloned().collect()
    }

    /// The part of the recording below a prefix so far, without operations and streams: for judges of contents.
    pub(crate) fn contents_below(&self, prefix: &str) -> History {
        let inner = self.lock();
        let Meta { profile, store, first_rev, initial, compactions, .. } = &inner.history.meta;
        let initial: Vec<Snapshot> = initial.iter().filter(|kv| kv.key.starts_with(prefix)).cloned().collect();
        let revisions = inner.history.revisions.iter().filter(|revision| revision.key.starts_with(prefix));
        let revisions: Vec<Revision> = revisions.cloned().collect();
        let meta = Meta {
            profile: profile.clone(),
            store: store.clone(),
            first_rev: *first_rev,
            last_rev: inner.history.revisions.last().map_or(*first_rev, |revision| revision.rev),
            last: live(&initial, &revisions),
            initial,
            compactions: compactions.clone(),
            // The revisions of other keys are missing.
            versioned: Some(false),
            ..Meta::default()
        };
        History { meta, revisions, sightings: inner.sightings.below(prefix), ..History::default() }
    }

    /// Ends the recording and returns it, with streams and operations in the order of their start.
    pub fn take(&self) -> History {
        let (mut history, sightings) = {
            let inner = &mut *self.lock();
            (std::mem::take(&mut inner.history), inner.sightings.take())
        };
        history.sightings = sightings;
        history.streams.sort_by_key(|stream| stream.id);
        history.operations.sort_by_key(|operation| (operation.called, operation.returned));
        history
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The keys that exist after these changes.
fn live(initial: &[Snapshot], revisions: &[Revision]) -> Vec<Snapshot> {
    let mut live: BTreeMap<Key, Snapshot> = initial.iter().map(|kv| (Arc::clone(&kv.key), kv.clone())).collect();
    for Revision { key, kind, rev, create_rev, version, .. } in revisions {
        let key = Arc::clone(key);
        match kind {
            Change::Put => {
                let kv = Snapshot { key, create_rev: *create_rev, mod_rev: *rev, version: *version };
                live.insert(Arc::clone(&kv.key), kv);
            }
            Change::Delete => drop(live.remove(&key)),
        }
    }
    live.into_values().collect()
}

/// The revision in the answer to a write; 0 for another operation.
fn acknowledged(operation: &Operation) -> i64 {
    match operation.answer {
        Answer::Object { rv, .. } if operation.verb != Verb::Get => i64::try_from(rv).unwrap_or(0),
        _ => 0,
    }
}

/// A key from text.
pub fn key(text: &str) -> Key {
    Arc::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answered_write_counts_before_it_is_in_the_record() {
        let recorder = Recorder::new(Clock::start(), "default", "main");
        let record = |verb, rv| {
            recorder.operation(Operation {
                client: "a".into(),
                verb,
                prefix: key("/r/"),
                key: Some(key("/r/a")),
                query: String::new(),
                based_on: None,
                changes: false,
                called: 1,
                returned: 2,
                answer: Answer::Object { status: 200, rv },
            });
            recorder.newest_revision()
        };
        assert_eq!([record(Verb::Update, 7), record(Verb::Get, 9), record(Verb::Delete, 0)], [7, 7, 7]);
        recorder.meta(|meta| meta.first_rev = 12);
        assert_eq!((recorder.newest_revision(), recorder.last_revision()), (12, 12));
    }
}
