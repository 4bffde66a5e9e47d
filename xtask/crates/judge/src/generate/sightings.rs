//! What the simulation's clients saw of each object: one digest for each content, from its uid and label.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::history::{Answer, FrameKind, Key, Operation, Sighting, Stream, Through};

use super::{Entry, World};

const API_VERSION: &str = "v1";

/// The sightings of these streams, of the operations so far, and of the store.
pub(super) fn all(world: &World, streams: &[Stream]) -> Vec<Sighting> {
    let by_version: HashMap<(&str, u64), &Entry> =
        world.log.iter().map(|entry| ((&*entry.key, entry.rev), entry)).collect();
    let mut counts: BTreeMap<(Key, u64, Through, u64), u64> = BTreeMap::new();
    let mut see = |key: &Key, rv: u64, through: Through| {
        let entry = by_version.get(&(&**key, rv));
        let color = entry.and_then(|entry| if through == Through::Deleted { entry.before } else { entry.after });
        if let (Some(entry), Some(color)) = (entry, color) {
            let text = format!("{} {}", entry.object.uid, color.word());
            let digest = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
            *counts.entry((Arc::clone(key), rv, through, digest)).or_default() += 1;
        }
    };
    for entry in world.log.iter().filter(|entry| entry.after.is_some()) {
        see(&entry.key, entry.rev, Through::Store);
    }
    for operation in &world.operations {
        for (key, rv) in shown(operation) {
            see(key, rv, Through::Read);
        }
    }
    for frame in streams.iter().flat_map(|stream| &stream.frames) {
        match frame.kind {
            FrameKind::Added | FrameKind::Modified => see(&frame.key, frame.rv, Through::Event),
            FrameKind::Deleted => see(&frame.key, frame.rv, Through::Deleted),
            _ => {}
        }
    }
    let sighting = |((key, rv, through, digest), count)| Sighting {
        key,
        rv,
        through,
        api_version: API_VERSION.into(),
        digest,
        count,
        first: "the simulation".into(),
        at: rv,
        object: None,
    };
    counts.into_iter().map(sighting).collect()
}

/// The versions in an answer.
fn shown(operation: &Operation) -> Vec<(&Key, u64)> {
    match (&operation.answer, &operation.key) {
        (Answer::List { items, .. }, _) => items.iter().map(|(key, rv)| (key, *rv)).collect(),
        (Answer::Object { rv, .. }, Some(key)) => vec![(key, *rv)],
        _ => Vec::new(),
    }
}
