//! Corruptions of what was seen of an object.

use fastrand::Rng;
use model::history::{Change, History, Sighting, Through};

use super::{Kind, life, put_of, rv};

pub(super) const KINDS: &[Kind] = &[
    ("another content in an answer", "cc.same-object", |h, r| other_content(h, r, Through::Read, Through::Event)),
    ("another content in an event", "cc.same-object", |h, r| other_content(h, r, Through::Event, Through::Read)),
    ("the previous content in an answer", "storage.matches-served", previous_content),
    ("another content in the store", "storage.matches-served", |h, r| {
        other_content(h, r, Through::Store, Through::Event)
    }),
    ("another content in a DELETED", "watch.deleted-object", other_deleted),
    ("the content of another version in a DELETED", "watch.deleted-object", earlier_deleted),
];

/// Alters a sighting of a version that was also seen through `other`.
fn other_content(history: &mut History, random: &mut Rng, through: Through, other: Through) -> Option<Vec<String>> {
    let seen = |sighting: &Sighting, wanted| sighting.through == wanted && put_of(history, &sighting.key, sighting.rv);
    let versions: Vec<(&str, u64)> =
        history.sightings.iter().filter(|s| seen(s, other)).map(|s| (&*s.key, s.rv)).collect();
    let is_one = |s: &Sighting| seen(s, through) && versions.contains(&(&*s.key, s.rv));
    let places: Vec<usize> = (0..history.sightings.len()).filter(|i| is_one(&history.sightings[*i])).collect();
    let place = random.choice(places)?;
    Some(alter(&mut history.sightings[place]))
}

fn alter(sighting: &mut Sighting) -> Vec<String> {
    sighting.digest ^= 1;
    vec![sighting.key.to_string(), format!("{:016x}", sighting.digest)]
}

/// An answer shows the version before the one that it names.
fn previous_content(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let stored = |key: &str, at: u64| {
        let mut sightings = history.sightings.iter();
        sightings.find(|s| s.through == Through::Store && &*s.key == key && s.rv == at).map(|s| s.digest)
    };
    let before = |sighting: &Sighting| {
        let earlier = life(history, &sighting.key).rfind(|revision| rv(revision) < sighting.rv)?;
        stored(&sighting.key, rv(earlier)).filter(|digest| *digest != sighting.digest)
    };
    let reads = history.sightings.iter().enumerate().filter(|(_, s)| s.through == Through::Read);
    let places: Vec<(usize, u64)> = reads.filter_map(|(place, s)| Some((place, before(s)?))).collect();
    let (place, digest) = random.choice(places)?;
    history.sightings[place].digest = digest;
    Some(vec![history.sightings[place].key.to_string(), format!("{digest:016x}")])
}

fn other_deleted(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let deleted = history.sightings.iter_mut().filter(|sighting| sighting.through == Through::Deleted);
    random.choice(deleted.collect::<Vec<_>>()).map(alter)
}

/// A DELETED shows a version that was not the last one.
fn earlier_deleted(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let earlier = |sighting: &Sighting| {
        let versions =
            life(history, &sighting.key).filter(|change| rv(change) < sighting.rv && change.kind == Change::Put);
        let old = versions.rev().nth(1)?;
        let mut stored = history.sightings.iter().filter(|s| s.through == Through::Store && s.key == sighting.key);
        stored.find(|s| s.rv == rv(old)).map(|s| s.digest).filter(|digest| *digest != sighting.digest)
    };
    let deleted = history.sightings.iter().enumerate().filter(|(_, s)| s.through == Through::Deleted);
    let places: Vec<(usize, u64)> = deleted.filter_map(|(place, s)| Some((place, earlier(s)?))).collect();
    let (place, digest) = random.choice(places)?;
    history.sightings[place].digest = digest;
    Some(vec![history.sightings[place].key.to_string(), format!("{digest:016x}")])
}
