//! Accounts of a correct server under faults, for the tests of the judge. They come from a separate simulation.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use model::history::{Change, Frame, FrameKind, Key, Revision};

use super::{Account, Begin, Fate, Leg, Life, Read, Write, id_text};

const PREFIX: &str = "/registry/configmaps/ns/";
const STEPS: usize = 120;
const KEYS: usize = 6;
const WATCHERS: usize = 3;

/// A workload whose writes are answered, refused or lost, and whose watchers are disconnected at random moments.
pub(super) fn account(seed: u64) -> Account {
    let mut world = World { random: Rng::with_seed(seed), rev: 10, now: 100, ..World::default() };
    for step in 0..STEPS {
        world.step(step);
    }
    world.put("marker", "marker".into(), 0, true);
    let marker = Key::from(format!("{PREFIX}marker"));
    world.account.markers.push(marker);
    world.account.end = world.live.clone();
    world.account.lives = (0..WATCHERS).map(|number| world.life(number)).collect();
    world.account
}

#[derive(Default)]
struct World {
    random: Rng,
    rev: u64,
    now: u64,
    live: BTreeMap<Key, u64>,
    account: Account,
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
            self.account.reads.push(read);
        }
        match (self.random.u8(..10), there) {
            (0, _) => self.attempt(id, key, there.unwrap_or(0) + 1000, Fate::Refused),
            (1, _) => self.attempt(id, key, there.unwrap_or(0), Fate::Unknown),
            (2..5, Some(rv)) => self.delete(id, key, rv),
            (_, there) => {
                let known = self.random.u8(..8) > 0;
                self.put(&name, id, there.unwrap_or(0), known);
            }
        }
    }

    /// A write without an effect.
    fn attempt(&mut self, id: String, key: Key, based_on: u64, fate: Fate) {
        let (called, returned) = (self.now, self.now + 5);
        self.account.writes.push(Write {
            client: "w".into(),
            id,
            key,
            kind: Change::Put,
            based_on,
            called,
            returned,
            fate,
        });
    }

    fn put(&mut self, name: &str, id: String, based_on: u64, known: bool) {
        let key = Key::from(format!("{PREFIX}{name}"));
        self.rev += 1;
        let value = format!("k8s {} rest", id_text(&id));
        self.attempt(id, key.clone(), based_on, if known { Fate::Done(self.rev) } else { Fate::Unknown });
        self.record(&key, Change::Put, based_on, value.as_bytes());
        self.live.insert(key, self.rev);
    }

    fn delete(&mut self, id: String, key: Key, based_on: u64) {
        self.rev += 1;
        self.attempt(id, key.clone(), based_on, Fate::Done(0));
        if let Some(write) = self.account.writes.last_mut() {
            write.kind = Change::Delete;
        }
        self.record(&key, Change::Delete, based_on, b"");
        self.live.remove(&key);
    }

    fn record(&mut self, key: &Key, kind: Change, prev: u64, value: &[u8]) {
        self.account.revisions.push(Revision {
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
    fn life(&mut self, number: usize) -> Life {
        let mut legs = Vec::new();
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
            legs.push(Leg { begin, frames });
            if done {
                return Life { client: format!("watcher-{number}"), prefix: Key::from(PREFIX), legs };
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
        for revision in self.account.revisions.iter().filter(|revision| revision.rev.cast_unsigned() <= rv) {
            match revision.kind {
                Change::Put => state.insert(revision.key.clone(), revision.rev.cast_unsigned()),
                Change::Delete => state.remove(&revision.key),
            };
        }
        Begin::Listed { called: 0, rv, items: state.into_iter().collect() }
    }

    fn after(&self, rv: u64) -> Vec<Frame> {
        let later = self.account.revisions.iter().filter(|revision| revision.rev.cast_unsigned() > rv);
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
