//! Every history that a correct server can leave is accepted; each single corruption of one is refused by the judge of
//! that corruption, which names the place.
//!
//! A corruption chooses a place where it makes a difference: a history that a correct server could still have left is
//! not corrupted. The corruption returns words for the place; the test counts how often it found one, and requires a
//! minimum. `JUDGE_SEEDS=2000 cargo test -p judge property` tests more histories than the default forty.

mod reads;
mod recording;
mod sightings;
mod streams;
mod writes;

use fastrand::Rng;
use model::history::{
    Answer, Change, Frame, FrameKind, History, Key, Micros, Operation, Revision, Start, Stream, Verb,
};

use super::{Shape, accept, generate, violations};

const SEEDS: u64 = 40;

/// Changes one place; returns words that a violation must contain. None: the change would make no difference in the
/// history.
type Corrupt = fn(&mut History, &mut Rng) -> Option<Vec<String>>;

/// The name of the corruption, the judge that must refuse it, and the function that applies it.
type Kind = (&'static str, &'static str, Corrupt);

fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("JUDGE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS)
}

/// With every kind of content: lost answers, refusals, writes without effect, compactions.
fn good(seed: u64) -> History {
    generate(seed, Shape { revisions: 250, frames: 700, trouble: 20, ..Shape::default() })
}

#[test]
fn histories_of_correct_servers_are_accepted() {
    for seed in seeds() {
        let history = good(seed);
        accept(&history, &format!("seed {seed}"));
        let middle = history.meta.last_rev / 3;
        accept(&from(&history, middle), &format!("seed {seed}, recorded from {middle} on"));
        accept(&without_versions(history), &format!("seed {seed}, of a store without versions"));
    }
}

#[test]
fn every_corruption_of_a_stream_is_refused_with_its_place() {
    refused(streams::KINDS);
}

#[test]
fn every_corruption_of_a_read_is_refused_with_its_place() {
    refused(reads::KINDS);
}

#[test]
fn every_corruption_of_a_write_is_refused_with_its_place() {
    refused(writes::KINDS);
}

#[test]
fn every_corruption_of_the_recording_is_refused_with_its_place() {
    refused(recording::KINDS);
}

#[test]
fn every_corruption_of_a_content_is_refused_with_its_place() {
    refused(sightings::KINDS);
}

#[test]
fn every_judge_has_a_corruption() {
    let kinds = [streams::KINDS, reads::KINDS, writes::KINDS, recording::KINDS, sightings::KINDS].concat();
    let judges: std::collections::BTreeSet<&str> = kinds.iter().map(|(_, judge, _)| *judge).collect();
    let all: std::collections::BTreeSet<&str> = crate::JUDGES.iter().map(|(id, _)| *id).collect();
    assert_eq!(judges, all);
}

fn refused(kinds: &[Kind]) {
    let mut effective = vec![0_u64; kinds.len()];
    let mut accepted = Vec::new();
    for seed in seeds() {
        let good = good(seed);
        for (number, (name, judge, corrupt)) in kinds.iter().enumerate() {
            let mut bad = good.clone();
            let Some(words) = corrupt(&mut bad, &mut Rng::with_seed(seed)) else { continue };
            assert_ne!(bad, good, "seed {seed}: {name} changed nothing");
            effective[number] += 1;
            let found = violations(&bad, judge);
            let names = |text: &str| words.iter().all(|word| text.contains(word.as_str()));
            let told =
                found.iter().any(|violation| names(&format!("{} {}", violation.message, violation.evidence.join(" "))));
            if !told {
                accepted.push(format!("seed {seed}: {name}: {judge} does not say {words:?} but {found:#?}"));
            }
        }
    }
    let least = seeds().end / 2;
    for (count, (name, _, _)) in effective.iter().zip(kinds) {
        assert!(*count >= least, "`{name}` made a difference in {count} histories only, not in {least}");
    }
    assert!(accepted.is_empty(), "{} accepted: {}", accepted.len(), accepted[..accepted.len().min(3)].join("\n"));
}

/// The same history, recorded from revision `rev` on.
fn from(history: &History, rev: i64) -> History {
    let mut late = history.clone();
    let mut state = std::collections::BTreeMap::new();
    for revision in history.revisions.iter().filter(|revision| revision.rev <= rev) {
        match revision.kind {
            Change::Put => state.insert(revision.key.clone(), revision.clone()),
            Change::Delete => state.remove(&revision.key),
        };
    }
    let snapshot = |(key, revision): (Key, Revision)| model::history::Snapshot {
        key,
        create_rev: revision.create_rev,
        mod_rev: revision.rev,
        version: revision.version,
    };
    late.meta.first_rev = rev;
    late.meta.initial = state.into_iter().map(snapshot).collect();
    late.revisions.retain(|revision| revision.rev > rev);
    // Without operations and streams from before.
    let before = history.revisions.iter().filter(|revision| revision.rev <= rev);
    let begin = before.map(|revision| revision.at).max().unwrap_or(0);
    late.streams.retain(|stream| stream.opened >= begin);
    late.operations.retain(|operation| operation.called >= begin);
    late
}

fn without_versions(mut history: History) -> History {
    history.meta.versioned = Some(false);
    history.revisions.iter_mut().for_each(|revision| revision.version = 0);
    history.meta.last.iter_mut().for_each(|snapshot| snapshot.version = 0);
    history
}

// Helpers that choose the place of a corruption.

fn rv(revision: &Revision) -> u64 {
    revision.rev.cast_unsigned()
}

/// The changes of a key, in order.
fn life<'h>(history: &'h History, key: &str) -> impl DoubleEndedIterator<Item = &'h Revision> + Clone + use<'h> {
    let key = Key::from(key);
    history.revisions.iter().filter(move |revision| revision.key == key)
}

fn put_of(history: &History, key: &str, at: u64) -> bool {
    life(history, key).any(|revision| rv(revision) == at && revision.kind == Change::Put)
}

fn changed_at(history: &History, key: &str, at: u64) -> bool {
    life(history, key).any(|revision| rv(revision) == at)
}

/// The last frame before an ERROR, exclusive.
fn end(stream: &Stream) -> usize {
    crate::trace::before_error(stream).len()
}

/// The version that a write answered, if it was not a dry run.
fn answered(operation: &Operation) -> Option<u64> {
    let writes = matches!(operation.verb, Verb::Create | Verb::Update | Verb::Patch);
    match operation.answer {
        Answer::Object { status: 200..=299, rv } if writes && rv > 0 && operation.query.is_empty() => Some(rv),
        _ => None,
    }
}

/// The first frame that cannot belong to the initial state.
fn begin(stream: &Stream) -> usize {
    let frames = &stream.frames[..end(stream)];
    match stream.start {
        Start::After(_) => 0,
        _ => frames.iter().position(|frame| frame.kind != FrameKind::Added).unwrap_or(frames.len()),
    }
}

/// The places of live changes: (stream, frame).
fn live(history: &History) -> Vec<(usize, usize)> {
    let of = |(number, stream): (usize, &Stream)| {
        let changes = (begin(stream)..end(stream)).filter(|place| stream.frames[*place].is_change());
        changes.map(|place| (number, place)).collect::<Vec<_>>()
    };
    history.streams.iter().enumerate().flat_map(of).collect()
}

/// One of the live changes that fulfil `fits`.
fn choose(
    history: &History,
    random: &mut Rng,
    fits: impl Fn(&Stream, usize, &Frame) -> bool,
) -> Option<(usize, usize)> {
    let fit = |(stream, place): &(usize, usize)| {
        let stream = &history.streams[*stream];
        fits(stream, *place, &stream.frames[*place])
    };
    random.choice(live(history).into_iter().filter(fit).collect::<Vec<_>>())
}

fn name(history: &History, stream: usize) -> String {
    format!("stream {} of ", history.streams[stream].id)
}

fn at(key: &str, rv: u64) -> String {
    format!("{key} at {rv}")
}

/// When the run ended.
fn last_time(history: &History) -> Micros {
    history.operations.iter().map(|operation: &Operation| operation.returned).max().unwrap_or(0)
}
