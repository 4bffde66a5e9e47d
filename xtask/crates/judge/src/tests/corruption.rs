//! One thing is changed at random in a good history: some judge must notice.

use fastrand::Rng;
use model::history::{Answer, Change, FrameKind, History, Start, Verb};

use super::{Shape, generate, judge_all};

/// Changes something; says what, or None where there is nothing of the kind.
type Corruption = (&'static str, fn(&mut History, &mut Rng) -> Option<String>);

const CORRUPTIONS: &[Corruption] = &[
    ("drop an event", drop_event),
    ("repeat an event", repeat_event),
    ("swap two events", swap_events),
    ("change a type", change_type),
    ("change a resource version", change_version),
    ("change a key", change_key),
    ("change a uid", change_uid),
    ("lower a bookmark", lower_bookmark),
    ("raise a bookmark", raise_bookmark),
    ("drop an item", drop_item),
    ("age an item", age_item),
    ("change an object read", change_read),
    ("change the answer to a write", change_write),
    ("lose a revision", lose_revision),
    ("change a revision's key", change_revision_key),
    ("change a version", change_revision_version),
];

#[test]
fn every_corruption_is_noticed() {
    let mut made = vec![0; CORRUPTIONS.len()];
    for seed in 0..12 {
        let good = generate(seed, Shape { revisions: 150, frames: 400, ..Shape::default() });
        for round in 0..6 {
            for (place, (name, corrupt)) in CORRUPTIONS.iter().enumerate() {
                let mut bad = good.clone();
                let mut random = Rng::with_seed(seed * 100 + round);
                let Some(what) = corrupt(&mut bad, &mut random) else { continue };
                made[place] += 1;
                let noticed = judge_all(&bad).iter().any(|(_, judgement)| !judgement.violations.is_empty());
                assert!(noticed, "seed {seed}, round {round}: {name}: {what} was not noticed");
            }
        }
    }
    for (count, (name, _)) in made.iter().zip(CORRUPTIONS) {
        assert!(*count >= 10, "`{name}` was tried {count} times only");
    }
}

/// A place of a live change that cannot be taken for a part of the initial state: (stream, frame).
fn live_change(history: &History, random: &mut Rng) -> Option<(usize, usize)> {
    let places = history.streams.iter().enumerate().flat_map(|(stream, s)| {
        let begin = match s.start {
            Start::After(_) => 0,
            _ => s.frames.iter().position(|f| f.kind != FrameKind::Added).unwrap_or(s.frames.len()),
        };
        let live = s.frames.iter().enumerate().skip(begin).filter(|(_, frame)| frame.is_change());
        live.map(move |(frame, _)| (stream, frame))
    });
    random.choice(places.collect::<Vec<_>>())
}

fn drop_event(history: &mut History, random: &mut Rng) -> Option<String> {
    let (stream, place) = live_change(history, random)?;
    let frames = &mut history.streams[stream].frames;
    // What came last may as well never have been sent.
    let rv = frames[place].rv;
    frames[place + 1..].iter().find(|frame| frame.rv > rv)?;
    Some(format!("{:?} of stream {}", frames.remove(place), stream + 1))
}

fn repeat_event(history: &mut History, random: &mut Rng) -> Option<String> {
    let (stream, place) = live_change(history, random)?;
    let frames = &mut history.streams[stream].frames;
    let frame = frames[place].clone();
    let later = random.usize(place + 1..=frames.len().min(place + 3));
    // What follows an ERROR is not judged.
    (!frames[..later].iter().any(|frame| matches!(frame.kind, FrameKind::Error { .. }))).then_some(())?;
    frames.insert(later, frame);
    Some(format!("frame {place} of stream {}", stream + 1))
}

fn swap_events(history: &mut History, random: &mut Rng) -> Option<String> {
    let (stream, place) = live_change(history, random)?;
    let frames = &mut history.streams[stream].frames;
    let next = frames.get(place + 1).filter(|next| next.is_change() && next.rv > frames[place].rv)?;
    let what = format!("{:?} and {next:?} of stream {}", frames[place], stream + 1);
    frames.swap(place, place + 1);
    Some(what)
}

fn change_type(history: &mut History, random: &mut Rng) -> Option<String> {
    let (stream, place) = live_change(history, random)?;
    let frame = &mut history.streams[stream].frames[place];
    let others = [FrameKind::Added, FrameKind::Modified, FrameKind::Deleted].into_iter().filter(|k| *k != frame.kind);
    frame.kind = random.choice(others.collect::<Vec<_>>())?;
    Some(format!("{frame:?} of stream {}", stream + 1))
}

fn change_version(history: &mut History, random: &mut Rng) -> Option<String> {
    let last = history.meta.last_rev.cast_unsigned();
    let (stream, place) = live_change(history, random)?;
    let frame = &mut history.streams[stream].frames[place];
    let rv = random.u64(1..=last);
    let before = std::mem::replace(&mut frame.rv, rv);
    (rv != before).then(|| format!("{before} became {rv} on stream {}", stream + 1))
}

fn change_key(history: &mut History, random: &mut Rng) -> Option<String> {
    let (stream, place) = live_change(history, random)?;
    let key = random.choice(&history.revisions)?.key.clone();
    let frame = &mut history.streams[stream].frames[place];
    let before = std::mem::replace(&mut frame.key, key);
    // Several keys may share a revision: then the other one is an event that comes twice or another DELETED.
    (before != frame.key && frame.key.contains("configmaps")).then(|| format!("{before} became {}", frame.key))
}

fn change_uid(history: &mut History, random: &mut Rng) -> Option<String> {
    let (stream, place) = live_change(history, random)?;
    history.streams[stream].frames[place].uid = "another".into();
    Some(format!("frame {place} of stream {}", stream + 1))
}

/// A bookmark with a change before it: (stream, frame, the change's resource version).
fn bookmark(history: &History, random: &mut Rng) -> Option<(usize, usize, u64)> {
    let places = history.streams.iter().enumerate().flat_map(|(stream, s)| {
        let mut last = 0;
        let frames = s.frames.iter().enumerate().filter_map(move |(place, frame)| {
            if frame.is_change() {
                last = last.max(frame.rv);
                return None;
            }
            (matches!(frame.kind, FrameKind::Bookmark { .. }) && last > 0).then_some((stream, place, last))
        });
        frames.collect::<Vec<_>>()
    });
    random.choice(places.collect::<Vec<_>>())
}

fn lower_bookmark(history: &mut History, random: &mut Rng) -> Option<String> {
    let (stream, place, last) = bookmark(history, random)?;
    history.streams[stream].frames[place].rv = last - 1;
    Some(format!("to {} on stream {}", last - 1, stream + 1))
}

fn raise_bookmark(history: &mut History, random: &mut Rng) -> Option<String> {
    let (stream, place, _) = bookmark(history, random)?;
    let frames = &mut history.streams[stream].frames;
    let next = frames[place..].iter().find(|frame| frame.is_change())?.rv;
    frames[place].rv = next;
    Some(format!("to {next} on stream {}", stream + 1))
}

/// The items of a list that is judged.
fn items<'h>(history: &'h mut History, random: &mut Rng) -> Option<&'h mut Vec<(model::history::Key, u64)>> {
    let lists = history.operations.iter_mut().filter_map(|operation| match &mut operation.answer {
        Answer::List { items, .. } if !items.is_empty() => Some(items),
        _ => None,
    });
    random.choice(lists.collect::<Vec<_>>())
}

fn drop_item(history: &mut History, random: &mut Rng) -> Option<String> {
    let more_than_one = |items: &Vec<_>| items.len() > 1;
    let items = items(history, random).filter(|items| more_than_one(items))?;
    // The last one of a page may as well be on the next one.
    let place = random.usize(0..items.len() - 1);
    Some(format!("{:?}", items.remove(place)))
}

fn age_item(history: &mut History, random: &mut Rng) -> Option<String> {
    let items = items(history, random)?;
    let place = random.usize(0..items.len());
    items[place].1 -= 1;
    Some(format!("{:?}", items[place]))
}

fn change_read(history: &mut History, random: &mut Rng) -> Option<String> {
    let gets = history.operations.iter_mut().filter(|operation| operation.verb == Verb::Get);
    let operation = random.choice(gets.collect::<Vec<_>>())?;
    let key = operation.key.clone()?;
    let Answer::Object { rv, .. } = &mut operation.answer else { return None };
    *rv -= 1;
    let stored =
        history.revisions.iter().any(|r| r.rev.cast_unsigned() == *rv && r.key == key && r.kind == Change::Put);
    let what = format!("{key} at {rv}");
    (!stored).then_some(what)
}

fn change_write(history: &mut History, random: &mut Rng) -> Option<String> {
    let last = history.meta.last_rev.cast_unsigned();
    let writes = |verb| matches!(verb, Verb::Create | Verb::Update | Verb::Patch);
    let writes = history.operations.iter_mut().filter(|operation| writes(operation.verb));
    let operation = random.choice(writes.collect::<Vec<_>>())?;
    let key = operation.key.clone()?;
    let Answer::Object { rv, .. } = &mut operation.answer else { return None };
    *rv += 1;
    let stored = history.revisions.iter().any(|r| r.rev.cast_unsigned() == *rv && r.key == key);
    let what = format!("{key} at {rv}");
    (!stored && *rv <= last).then_some(what)
}

fn lose_revision(history: &mut History, random: &mut Rng) -> Option<String> {
    let place = random.usize(0..history.revisions.len());
    Some(format!("{:?}", history.revisions.remove(place)))
}

fn change_revision_key(history: &mut History, random: &mut Rng) -> Option<String> {
    let key = random.choice(&history.revisions)?.key.clone();
    let place = random.usize(0..history.revisions.len());
    let revision = &mut history.revisions[place];
    let before = std::mem::replace(&mut revision.key, key);
    (before != revision.key).then(|| format!("{before} became {} at {}", revision.key, revision.rev))
}

fn change_revision_version(history: &mut History, random: &mut Rng) -> Option<String> {
    let puts = history.revisions.iter_mut().filter(|revision| revision.kind == Change::Put);
    let revision = random.choice(puts.collect::<Vec<_>>())?;
    revision.version += 1;
    Some(format!("{} at {}", revision.key, revision.rev))
}
