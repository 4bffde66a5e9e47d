//! Histories of a correct server, for the tests of the judges and for the benchmark.
//!
//! A small store is simulated revision by revision. The correct streams and reads come from the simulation's own log,
//! through other code than the judges': a mistake would have to be made in both to go unnoticed.

mod sightings;
mod streams;
mod trouble;
pub(super) mod values;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fastrand::Rng;
use model::history::{Answer, Change, History, Key, Meta, Micros, Operation, Revision, Snapshot, Verb};

use values::{Color, Identity};

/// The size and content of a generated history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub revisions: usize,
    /// Streams are added until they have this many frames in total.
    pub frames: usize,
    pub namespaces: usize,
    /// Names in use per namespace.
    pub names: usize,
    /// Reads per hundred writes.
    pub reads: usize,
    /// Streams with label and field selectors too.
    pub selectors: bool,
    /// Writes in a hundred that are refused, get no answer, change nothing or are dry runs; see `trouble`.
    pub trouble: u8,
}

impl Default for Shape {
    /// Small, but with every kind of content.
    fn default() -> Shape {
        Shape { revisions: 400, frames: 1500, namespaces: 3, names: 6, reads: 60, selectors: true, trouble: 0 }
    }
}

impl Shape {
    /// For benchmarks: many revisions and frames, few reads.
    pub fn large(revisions: usize, frames: usize) -> Shape {
        Shape { revisions, frames, namespaces: 8, names: 100, reads: 2, selectors: true, trouble: 0 }
    }
}

/// A history of `count` revisions and about as many frames.
pub fn of_events(seed: u64, count: usize) -> History {
    generate(seed, Shape::large(count, count))
}

/// A history of a correct server; the same for the same seed and shape.
pub fn generate(seed: u64, shape: Shape) -> History {
    let mut world = World::new(seed, shape);
    while world.log.len() < shape.revisions {
        world.step();
    }
    world.delete_absent();
    let streams = streams::all(&mut world);
    world.finish(streams)
}

/// What happened at one revision to one key, with all that a watch event needs.
struct Entry {
    rev: u64,
    key: Key,
    object: Arc<Identity>,
    before: Option<Color>,
    after: Option<Color>,
    /// When it was committed.
    at: Micros,
}

struct Live {
    object: Arc<Identity>,
    color: Color,
    mod_rev: u64,
    create_rev: u64,
    version: i64,
}

/// A LIST answer kept for later reads: (resource version, items).
type Listed = (u64, Vec<(Key, u64)>);

#[derive(Default)]
struct World {
    random: Rng,
    shape: Shape,
    now: Micros,
    rev: u64,
    log: Vec<Entry>,
    live: BTreeMap<Key, Live>,
    revisions: Vec<Revision>,
    operations: Vec<Operation>,
    /// Earlier answers by prefix, for reads of the past.
    listed: BTreeMap<Key, VecDeque<Listed>>,
    /// (key, resource version) pairs that were true once.
    remembered: VecDeque<(Key, u64)>,
    keys: Vec<(Key, Key)>,
    compactions: Vec<(Micros, i64)>,
}

const CLIENT: &str = "traffic";
const REMEMBERED: usize = 16;

impl World {
    fn new(seed: u64, shape: Shape) -> World {
        let names = (0..shape.namespaces).flat_map(|ns| (0..shape.names).map(move |name| (ns, name)));
        let keys = names.map(|(ns, name)| {
            let prefix = format!("/registry/configmaps/ns-{ns}/");
            (Key::from(format!("{prefix}name-{name}")), Key::from(prefix))
        });
        let random = Rng::with_seed(seed);
        World { random, shape, now: 1000, rev: 1, keys: keys.collect(), ..World::default() }
    }

    /// One write, and perhaps a read that overlaps it.
    fn step(&mut self) {
        self.now += self.random.u64(5..20);
        let reads = self.random.usize(0..100) < self.shape.reads;
        let early = (reads && self.random.bool()).then(|| self.read());
        match self.random.u8(0..40) {
            0 => self.expire_events(),
            1 => self.put_event(),
            _ if self.shape.trouble > 0 && self.random.u8(0..100) < self.shape.trouble => self.trouble(),
            _ => self.write(),
        }
        match early {
            // Answered only after the write, with the state before it: both orders are right.
            Some(Some(mut operation)) => {
                operation.returned = self.now + self.random.u64(1..10);
                self.operations.push(operation);
            }
            Some(None) => {}
            None if reads => {
                self.now += 10;
                let operation = self.read();
                self.operations.extend(operation);
            }
            None => {}
        }
    }

    fn write(&mut self) {
        let (key, prefix) = self.random.choice(&self.keys).cloned().expect("a shape has names");
        let called = self.now;
        let exists = self.live.contains_key(&key);
        let verb = match (exists, self.random.u8(0..10)) {
            (false, _) => Verb::Create,
            (true, 0..2) => Verb::Delete,
            (true, 2..5) => Verb::Patch,
            (true, _) => Verb::Update,
        };
        let color = Color::random(&mut self.random);
        let based_on = self.live.get(&key).filter(|_| verb == Verb::Update).map(|live| live.mod_rev);
        self.now += 3;
        self.change(&key, (verb != Verb::Delete).then_some(color), true);
        let answer = match verb {
            Verb::Create => Answer::Object { status: 201, rv: self.rev },
            Verb::Delete => Answer::Object { status: 200, rv: 0 },
            _ => Answer::Object { status: 200, rv: self.rev },
        };
        if verb != Verb::Delete {
            self.remembered.push_back((Arc::clone(&key), self.rev));
        }
        if self.remembered.len() > REMEMBERED {
            self.remembered.pop_front();
        }
        let returned = self.now + self.random.u64(1..30);
        let done = operation(verb, &prefix, Some(&key), String::new(), (called, returned), answer);
        let changes = matches!(verb, Verb::Update | Verb::Patch) && self.random.bool();
        self.operations.push(Operation { based_on, changes, ..done });
    }

    /// A refused deletion of an object that never existed.
    fn delete_absent(&mut self) {
        let prefix = Key::from("/registry/configmaps/ns-0/");
        let key = Key::from(format!("{prefix}absent"));
        let answer = Answer::Refused { status: 404, reason: "NotFound".into() };
        let times = (self.now, self.now + 3);
        self.operations.push(operation(Verb::Delete, &prefix, Some(&key), String::new(), times, answer));
    }

    /// A change that no recorded operation asked for.
    fn put_event(&mut self) {
        let key = Key::from(format!("/registry/events/ns-0/e-{}", self.random.u8(0..6)));
        let color = Color::random(&mut self.random);
        self.change(&key, Some(color), true);
    }

    /// A lease ends: several keys go at one revision.
    fn expire_events(&mut self) {
        let gone: Vec<Key> = self.live.keys().filter(|key| key.starts_with("/registry/events/")).cloned().collect();
        for (place, key) in gone.iter().enumerate() {
            self.change(key, None, place == 0);
        }
    }

    fn change(&mut self, key: &Key, after: Option<Color>, new_revision: bool) {
        self.rev += u64::from(new_revision);
        let before = self.live.remove(key);
        let object = match &before {
            Some(live) => Arc::clone(&live.object),
            None => Arc::new(Identity::new(key, &mut self.random)),
        };
        let create_rev = before.as_ref().map_or(self.rev, |live| live.create_rev);
        let version = before.as_ref().map_or(1, |live| live.version + 1);
        let is_put = after.is_some();
        self.revisions.push(Revision {
            at: self.now + self.random.u64(0..200),
            rev: self.rev.cast_signed(),
            key: Arc::clone(key),
            kind: if is_put { Change::Put } else { Change::Delete },
            version: if is_put { version } else { 0 },
            create_rev: if is_put { create_rev.cast_signed() } else { 0 },
            lease: 0,
            prev_rev: before.as_ref().map_or(0, |live| self.told_before(live.mod_rev.cast_signed())),
            value: after.map(|color| object.value(color)).unwrap_or_default().into(),
        });
        if let Some(color) = after {
            let live = Live { object: Arc::clone(&object), color, mod_rev: self.rev, create_rev, version };
            self.live.insert(Arc::clone(key), live);
        }
        let before = before.map(|live| live.color);
        self.log.push(Entry { rev: self.rev, key: Arc::clone(key), object, before, after, at: self.now });
    }

    /// A GET or LIST that begins and ends now.
    fn read(&mut self) -> Option<Operation> {
        if self.random.bool() { self.get() } else { Some(self.list()) }
    }

    fn get(&mut self) -> Option<Operation> {
        let (mut key, mut prefix) = self.random.choice(&self.keys).cloned()?;
        let mut rv = self.live.get(&key).map(|live| live.mod_rev);
        let query = match self.random.u8(0..4) {
            0 => {
                // Any version that ever existed is correct.
                let place = self.random.usize(0..self.remembered.len().max(1));
                let (old, old_rv) = self.remembered.get(place).cloned()?;
                prefix = Key::from(&old[..=old.rfind('/')?]);
                (key, rv) = (old, Some(old_rv));
                "resourceVersion=0".to_owned()
            }
            1 => format!("resourceVersion={}", self.random.u64(1..=self.rev)),
            _ => String::new(),
        };
        let answer = match rv {
            Some(rv) => Answer::Object { status: 200, rv },
            None => Answer::Refused { status: 404, reason: "NotFound".into() },
        };
        Some(operation(Verb::Get, &prefix, Some(&key), query, (self.now, self.now + 5), answer))
    }

    fn list(&mut self) -> Operation {
        let (_, prefix) = self.random.choice(&self.keys).cloned().expect("a shape has names");
        let below = self.live.range(Arc::clone(&prefix)..).take_while(|(key, _)| key.starts_with(&*prefix));
        let items: Vec<(Key, u64)> = below.map(|(key, live)| (Arc::clone(key), live.mod_rev)).collect();
        let past = self.listed.entry(Arc::clone(&prefix)).or_default();
        let old = past.get(self.random.usize(0..past.len().max(1))).cloned();
        past.push_back((self.rev, items.clone()));
        if past.len() > REMEMBERED {
            past.pop_front();
        }
        let mut answered = (self.rev, items);
        let mut more = false;
        let query = match (self.random.u8(0..8), old) {
            (0, Some(old)) => {
                answered = old;
                "resourceVersion=0".to_owned()
            }
            (1 | 2, Some(old)) => {
                let query = format!("resourceVersion={}&resourceVersionMatch=Exact", old.0);
                answered = old;
                query
            }
            (3, Some(old)) => {
                let limit = old.1.len().saturating_sub(1).max(1);
                let query = format!("resourceVersion={}&resourceVersionMatch=Exact&limit={limit}", old.0);
                answered = old;
                more = answered.1.len() > limit;
                answered.1.truncate(limit);
                query
            }
            (4 | 5, Some(old)) => format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", old.0),
            _ => String::new(),
        };
        let answer = Answer::List { status: 200, rv: answered.0, items: answered.1, more };
        operation(Verb::List, &prefix, None, query, (self.now, self.now + 5), answer)
    }

    fn finish(mut self, streams: Vec<model::history::Stream>) -> History {
        let snapshot = |(key, live): (&Key, &Live)| Snapshot {
            key: Arc::clone(key),
            create_rev: live.create_rev.cast_signed(),
            mod_rev: live.mod_rev.cast_signed(),
            version: live.version,
        };
        let meta = Meta {
            profile: "default".into(),
            store: "main".into(),
            last_rev: self.rev.cast_signed(),
            last: self.live.iter().map(snapshot).collect(),
            compactions: self.compactions.clone(),
            ..Meta::default()
        };
        let sightings = sightings::all(&self, &streams);
        self.operations.sort_by_key(|operation| (operation.called, operation.returned));
        History { meta, revisions: self.revisions, operations: self.operations, streams, sightings }
    }
}

pub(super) fn operation(
    verb: Verb,
    prefix: &Key,
    key: Option<&Key>,
    query: String,
    (called, returned): (Micros, Micros),
    answer: Answer,
) -> Operation {
    Operation {
        client: CLIENT.into(),
        verb,
        prefix: Arc::clone(prefix),
        key: key.map(Arc::clone),
        query,
        based_on: None,
        changes: false,
        called,
        returned,
        answer,
    }
}
