//! Histories of a correct server under faults, for the tests of the judge. They come from a separate simulation.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use model::history::{Change, Frame, FrameKind, Key, Revision};

use super::{Begin, FaultHistory, Read, WatchSegment, Watcher, Write, WriteResult, id_text};

const PREFIX: &str = "/registry/configmaps/ns/";
const STEPS: usize = 120;
const KEYS: usize = 6;
const WATCHERS: usize = 3;

/// A workload whose writes are answered, refused or lost, and whose watchers are disconnected at random moments.
pub(super) fn history(seed: u64) -> FaultHistory {
    let mut world = World { random: Rng::with_seed(seed), rev: 10, now: 100, ..World::default() };
    for step in 0..STEPS {
        world.step(step);
    }
    world.put("marker", "marker".into(), 0, true);
    let marker = Key::from(format!("{PREFIX}marker"));
    world.history.markers.push(marker);
    world.history.end = world.live.clone();
    world.history.watchers = (0..WATCHERS).map(|number| world.watcher(number)).collect();
    world.history
}

#[derive(Default)]
struct World {
    random: Rng,
    rev: u64,
    now: u64,
    live: BTreeMap<Key, u64>,
    history: FaultHistory,
}

impl World {
    fn step(&mut self, step: usize) {
        let name = format!("k{}", self.random.usize(..KEYS));
        let key = Key::from(format!("{PREFIX}{name}"));
        let there = self.live.get(&key).copied();
        let id = format!("w-{step}");
        // Changes of other resources in between.
        self.rev += self.random.u64(0..3);
        self.now += 10;
        if self.random.u8(..4) == 0 {
            let read = Read { client: "r".into(), key: key.clone(), called: self.now, rv: there };
            self.history.reads.push(read);
        }
        match (self.random.u8(..10), there) {
            (0, _) => self.attempt(id, key, there.unwrap_or(0) + 1000, WriteResult::Refused),
            (1, _) => self.attempt(id, key, there.unwrap_or(0), WriteResult::Unknown),
            (2..5, Some(rv)) => self.delete(id, key, rv),
            (_, there) => {
                let known = self.random.u8(..8) > 0;
                self.put(&name, id, there.unwrap_or(0), known);
            }
        }
    }

    /// A write without an effect.
    fn attempt(&mut self, id: String, key: Key, based_on: u64, result: WriteResult) {
        let (called, returned, kind) = (self.now, self.now + 5, Change::Put);
        self.history.writes.push(Write { client: "w".into(), id, key, kind, based_on, called, returned, result });
    }

    fn put(&mut self, name: &str, id: String, based_on: u64, known: bool) {
        let key = Key::from(format!("{PREFIX}{name}"));
        self.rev += 1;
        let value = format!("k8s {} rest", id_text(&id));
        self.attempt(id, key.clone(), based_on, if known { WriteResult::Done(self.rev) } else { WriteResult::Unknown });
        self.record(&key, Change::Put, based_on, value.as_bytes());
        self.live.insert(key, self.rev);
    }

    fn delete(&mut self, id: String, key: Key, based_on: u64) {
        self.rev += 1;
        self.attempt(id, key.clone(), based_on, WriteResult::Done(0));
        if let Some(write) = self.history.writes.last_mut() {
            write.kind = Change::Delete;
        }
        self.record(&key, Change::Delete, based_on, b"");
        self.live.remove(&key);
    }

    fn record(&mut self, key: &Key, kind: Change, prev: u64, value: &[u8]) {
        self.history.revisions.push(Revision {
            at: self.now,
            rev: self.rev.cast_signed(),
            key: Key::clone(key),
            kind,
            version: 0,
            create_rev: if prev == 0 { self.rev.cast_signed() } else { 1 },
            lease: 0,
            prev_rev: prev.cast_signed(),
            value: Arc::from(value),
        });
    }

    /// Disconnected at random; continues from its last resource version, or with a list after an error.
    fn watcher(&mut self, number: usize) -> Watcher {
        let mut segments = Vec::new();
        let mut at = self.random.u64(0..40);
        let mut begin = self.list(at);
        loop {
            let mut frames = Vec::new();
            for frame in self.after(at) {
                at = frame.rv;
                frames.push(frame);
                if self.random.u8(..9) == 0 {
                    frames.push(frame_of(FrameKind::Bookmark { end_of_initial: false }, "", at));
                }
                if self.random.u8(..12) == 0 {
                    break;
                }
            }
            let done = at == self.rev;
            let expired = !done && self.random.u8(..3) == 0;
            if expired {
                let error = FrameKind::Error { code: 410, reason: "Expired".into(), message: String::new() };
                frames.push(frame_of(error, "", 0));
            }
            segments.push(WatchSegment { begin, frames });
            if done {
                return Watcher { client: format!("watcher-{number}"), prefix: Key::from(PREFIX), segments };
            }
            if expired {
                at = self.random.u64(at..=self.rev);
                begin = self.list(at);
            } else {
                begin = Begin::Resumed { rv: at };
            }
        }
    }

    /// The list at `rv`. It is sent before anything was acknowledged.
    fn list(&self, rv: u64) -> Begin {
        let mut state = BTreeMap::new();
        for revision in self.history.revisions.iter().filter(|revision| revision.rev.cast_unsigned() <= rv) {
            match revision.kind {
                Change::Put => state.insert(revision.key.clone(), revision.rev.cast_unsigned()),
                Change::Delete => state.remove(&revision.key),
            };
        }
        Begin::Listed { called: 0, rv, items: state.into_iter().collect() }
    }

    fn after(&self, rv: u64) -> Vec<Frame> {
        let later = self.history.revisions.iter().filter(|revision| revision.rev.cast_unsigned() > rv);
        let frames = later.map(|revision| {
            let kind = match (revision.kind, revision.prev_rev) {
                (Change::Delete, _) => FrameKind::Deleted,
                (Change::Put, 0) => FrameKind::Added,
                (Change::Put, _) => FrameKind::Modified,
            };
            frame_of(kind, &revision.key, revision.rev.cast_unsigned())
        });
        frames.collect()
    }
}

fn frame_of(kind: FrameKind, key: &str, rv: u64) -> Frame {
    Frame { at: 0, kind, key: Key::from(key), rv, uid: Key::from("") }
}
