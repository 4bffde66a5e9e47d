//! Streams: events that are dropped, duplicated, moved or changed, wrong bookmarks, initial states that never existed.

use std::sync::Arc;

use fastrand::Rng;
use model::history::{Answer, Change, Frame, FrameKind, History, Start, Stream};

use super::{Kind, at, begin, changed_at, choose, end, life, name, rv};

const HISTORY: &str = "watch.matches-etcd-history";

pub(super) const KINDS: &[Kind] = &[
    ("an event is dropped", "watch.reliable", |h, r| drop_event(h, r)),
    ("an event is dropped, compared with the history", HISTORY, |h, r| drop_event(h, r)),
    ("the first event is dropped", "watch.resumable", drop_first),
    ("an event that a bookmark covers is dropped", "watch.reliable", drop_before_bookmark),
    ("an event comes twice", "watch.unique", repeat),
    ("two events are swapped", "watch.ordered", swap),
    ("an event comes later than others", "watch.ordered", delay),
    ("an event comes after its bookmark", "watch.bookmark", delay_past_bookmark),
    ("an event has another type", HISTORY, retype),
    ("an event has a type that does not exist", HISTORY, |h, r| {
        let (stream, place) = choose(h, r, |_, _, _| true)?;
        h.streams[stream].frames[place].kind = FrameKind::Unknown { name: "CHANGED".into() };
        Some(vec![name(h, stream), "CHANGED".into()])
    }),
    ("DELETED has the version before", "watch.delete-rv", |h, r| deleted_at(h, r, -1)),
    ("DELETED has the version after", "watch.delete-rv", |h, r| deleted_at(h, r, 1)),
    ("an event has the object of another life", HISTORY, |h, r| {
        let (stream, place) = choose(h, r, |_, _, _| true)?;
        let frame = &mut h.streams[stream].frames[place];
        frame.uid = "another".into();
        let words = at(&frame.key, frame.rv);
        Some(vec![name(h, stream), words, "uid another".into()])
    }),
    ("the store has the object of another life", HISTORY, other_value),
    ("an event is of another key", HISTORY, other_key),
    ("an event is of another collection", HISTORY, other_collection),
    ("an event does not match the selector", HISTORY, unselected),
    ("a resumed watch begins with an event already seen", "watch.resumable", seen_again),
    ("a bookmark is behind an event", "watch.bookmark", |h, r| {
        let (stream, place) = bookmark(h, r, |s, place| s.frames[..place].iter().any(Frame::is_change))?;
        let frames = &mut h.streams[stream].frames;
        let newest = frames[..place].iter().filter(|frame| frame.is_change()).map(|frame| frame.rv).max()?;
        frames[place].rv = newest - 1;
        Some(vec![name(h, stream), format!("BOOKMARK at {}", newest - 1), format!("at {newest}")])
    }),
    ("a bookmark promises an event too early", "watch.bookmark", early_bookmark),
    ("a bookmark promises an event that never comes", "watch.reliable", broken_promise),
    ("a bookmark is ahead of the store", "watch.bookmark", |h, r| {
        let (stream, place) = bookmark(h, r, |_, _| true)?;
        h.streams[stream].frames[place].rv = h.meta.last_rev.cast_unsigned() + 5;
        Some(vec![name(h, stream), "ended at revision".into()])
    }),
    ("a bookmark is ahead of time", "watch.bookmark", bookmark_ahead_of_time),
    ("a bookmark has no version", "watch.bookmark", |h, r| {
        // After an event, it would be behind that event.
        let (stream, place) = bookmark(h, r, |s, place| !s.frames[..place].iter().any(|frame| frame.rv > 0))?;
        h.streams[stream].frames[place].rv = 0;
        Some(vec![name(h, stream), "no resource version".into()])
    }),
    ("the initial state lacks an object", HISTORY, |h, r| {
        let (stream, place) = initial(h, r, |_, _| true)?;
        let gone = h.streams[stream].frames.remove(place);
        Some(vec![name(h, stream), format!("{} is missing", gone.key)])
    }),
    ("the initial state has an old object", HISTORY, |h, r| {
        let (stream, place) = initial(h, r, |h, frame| before(h, frame).is_some())?;
        let old = before(h, &h.streams[stream].frames[place])?;
        let frame = &mut h.streams[stream].frames[place];
        frame.rv = old;
        let words = format!("{} is there at {old}", frame.key);
        Some(vec![name(h, stream), words])
    }),
    ("the initial state has a deleted object", HISTORY, deleted_object),
    ("the initial state ends before its last object", "watch.bookmark", |h, r| {
        let (stream, _) = initial(h, r, |_, _| true)?;
        let frames = &mut h.streams[stream].frames;
        let end = frames.iter().position(|frame| frame.kind == FrameKind::Bookmark { end_of_initial: true })?;
        frames.swap(end, end - 1);
        let words = at(&frames[end].key, frames[end].rv);
        Some(vec![name(h, stream), words, "came after BOOKMARK".into()])
    }),
    ("the initial state is older than the version asked for", HISTORY, |h, r| {
        let (stream, _) = initial(h, r, |_, _| true)?;
        let end = h.streams[stream].frames.iter().find(|f| f.kind == FrameKind::Bookmark { end_of_initial: true })?.rv;
        h.streams[stream].start = Start::InitialEvents(end + 1);
        Some(vec![name(h, stream), format!("end at {end}, before the {}", end + 1)])
    }),
    ("the initial state is older than an answer", HISTORY, stale_initial),
    ("two streams disagree by an event", "watch.concurrent-agree", |h, r| {
        let (stream, place) = covered_twice(h, r)?;
        let gone = h.streams[stream].frames.remove(place);
        Some(vec![format!("streams disagree at {}", gone.rv), at(&gone.key, gone.rv)])
    }),
    ("two streams disagree by a type", "watch.concurrent-agree", |h, r| {
        let (stream, place) = covered_twice(h, r)?;
        let frame = &mut h.streams[stream].frames[place];
        frame.kind = if frame.kind == FrameKind::Added { FrameKind::Modified } else { FrameKind::Added };
        let words = vec![format!("streams disagree at {}", frame.rv), at(&frame.key, frame.rv)];
        Some(words)
    }),
    ("an event follows an ERROR", HISTORY, |h, r| {
        let (stream, place) = choose(h, r, |s, _, _| end(s) < s.frames.len())?;
        let frames = &mut h.streams[stream].frames;
        let frame = frames[place].clone();
        let words = at(&frame.key, frame.rv);
        frames.push(frame);
        Some(vec![name(h, stream), words, "after an ERROR".into()])
    }),
];

/// Whether the stream showed a later revision before any ERROR: then it must also have shown this one.
fn goes_on(stream: &Stream, place: usize) -> bool {
    let frame = &stream.frames[place];
    stream.frames[place + 1..end(stream)].iter().any(|later| later.rv > frame.rv)
}

fn drop_event(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let (stream, place) = choose(history, random, |s, place, _| goes_on(s, place))?;
    let gone = history.streams[stream].frames.remove(place);
    Some(vec![name(history, stream), at(&gone.key, gone.rv)])
}

fn drop_first(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let first = |stream: &Stream, place: usize, frame: &Frame| {
        let mut changes = stream.frames[..end(stream)].iter().filter(|frame| frame.is_change());
        let is_first = stream.frames[..place].iter().all(|frame| !frame.is_change());
        let second = changes.nth(1);
        is_first && matches!(stream.start, Start::After(_)) && second.is_some_and(|second| second.rv > frame.rv)
    };
    let (stream, place) = choose(history, random, first)?;
    let gone = history.streams[stream].frames.remove(place);
    Some(vec![name(history, stream), at(&gone.key, gone.rv)])
}

/// Only a bookmark shows that the event is missing.
fn drop_before_bookmark(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let last = |stream: &Stream, place: usize, frame: &Frame| {
        let later = &stream.frames[place + 1..end(stream)];
        later.iter().any(|later| later.rv >= frame.rv) && !later.iter().any(Frame::is_change)
    };
    let (stream, place) = choose(history, random, last)?;
    let gone = history.streams[stream].frames.remove(place);
    Some(vec![name(history, stream), at(&gone.key, gone.rv)])
}

fn repeat(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let (stream, place) = choose(history, random, |_, _, _| true)?;
    let last = end(&history.streams[stream]);
    let frames = &mut history.streams[stream].frames;
    let frame = frames[place].clone();
    let words = at(&frame.key, frame.rv);
    frames.insert(random.usize(place + 1..=last.min(place + 3)), frame);
    Some(vec![name(history, stream), words, "came twice".into()])
}

fn swap(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let pair = |s: &Stream, place: usize, frame: &Frame| {
        s.frames[..end(s)].get(place + 1).is_some_and(|next| next.is_change() && next.rv > frame.rv)
    };
    let (stream, place) = choose(history, random, pair)?;
    let frames = &mut history.streams[stream].frames;
    frames.swap(place, place + 1);
    let words = [&frames[place], &frames[place + 1]].map(|frame| at(&frame.key, frame.rv));
    Some([vec![name(history, stream)], words.to_vec()].concat())
}

fn delay(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let later = |s: &Stream, place: usize, rv: u64| {
        let later = s.frames[..end(s)].iter().enumerate().skip(place + 1);
        later.filter(move |(_, later)| later.is_change() && later.rv > rv).map(|(to, _)| to).take(8).last()
    };
    let (stream, place) = choose(history, random, |s, place, frame| later(s, place, frame.rv).is_some())?;
    let frame = history.streams[stream].frames[place].clone();
    let to = later(&history.streams[stream], place, frame.rv)?;
    let words = at(&frame.key, frame.rv);
    let frames = &mut history.streams[stream].frames;
    frames.insert(to + 1, frame);
    frames.remove(place);
    Some(vec![name(history, stream), words])
}

fn delay_past_bookmark(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let covered = |s: &Stream, place: usize, frame: &Frame| {
        let next = s.frames[..end(s)].get(place + 1);
        next.is_some_and(|next| matches!(next.kind, FrameKind::Bookmark { .. }) && next.rv >= frame.rv)
    };
    let (stream, place) = choose(history, random, covered)?;
    let frames = &mut history.streams[stream].frames;
    frames.swap(place, place + 1);
    let words = at(&frames[place + 1].key, frames[place + 1].rv);
    Some(vec![name(history, stream), words, "came after BOOKMARK".into()])
}

fn retype(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let (stream, place) = choose(history, random, |_, _, _| true)?;
    let frame = &mut history.streams[stream].frames[place];
    let kinds = [FrameKind::Added, FrameKind::Modified, FrameKind::Deleted];
    let was = frame.kind.word().to_owned();
    frame.kind = random.choice(kinds.into_iter().filter(|kind| *kind != frame.kind).collect::<Vec<_>>())?;
    let words = at(&frame.key, frame.rv);
    Some(vec![name(history, stream), words, format!("change is {was}")])
}

/// The previous version of the object or of the store, or the one after, at which the object was not deleted.
fn deleted_at(history: &mut History, random: &mut Rng, by: i64) -> Option<Vec<String>> {
    let other = |h: &History, frame: &Frame| match by {
        ..0 => before(h, frame),
        _ => Some(frame.rv + 1)
            .filter(|next| !changed_at(h, &frame.key, *next) && *next <= h.meta.last_rev.cast_unsigned()),
    };
    let good = &*history;
    let deleted =
        |_: &Stream, _: usize, frame: &Frame| frame.kind == FrameKind::Deleted && other(good, frame).is_some();
    let (stream, place) = choose(good, random, deleted)?;
    let now = other(good, &good.streams[stream].frames[place])?;
    let frame = &mut history.streams[stream].frames[place];
    frame.rv = now;
    let words = format!("DELETED {}", at(&frame.key, now));
    Some(vec![name(history, stream), words])
}

/// The version that the key had before the frame's.
fn before(history: &History, frame: &Frame) -> Option<u64> {
    let earlier = life(history, &frame.key).take_while(|revision| rv(revision) < frame.rv).last();
    earlier.filter(|earlier| earlier.kind == Change::Put).map(rv)
}

/// The stored value of an event is of another object.
fn other_value(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let carried = |_: &Stream, _: usize, frame: &Frame| frame.kind != FrameKind::Deleted;
    let (stream, place) = choose(history, random, carried)?;
    let Frame { key, rv: at_rv, uid, .. } = history.streams[stream].frames[place].clone();
    let stored = history.revisions.iter_mut().find(|revision| revision.key == key && rv(revision) == at_rv)?;
    let mut value = stored.value.to_vec();
    let begin = value.windows(uid.len()).position(|window| window == uid.as_bytes())?;
    value[begin] = if value[begin] == b'0' { b'1' } else { b'0' };
    stored.value = Arc::from(value);
    // Every stream that shows it is accused.
    Some(vec![at(&key, at_rv), "the stored object's uid is".into()])
}

fn other_key(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let (stream, place) = choose(history, random, |_, _, _| true)?;
    let Stream { prefix, frames, .. } = &history.streams[stream];
    let rv = frames[place].rv;
    let keys = history.revisions.iter().map(|revision| &revision.key);
    let others = keys.filter(|key| key.starts_with(&**prefix) && !changed_at(history, key, rv));
    let key = random.choice(others.collect::<Vec<_>>())?.clone();
    let words = vec![name(history, stream), at(&key, rv), "no change of that key".into()];
    history.streams[stream].frames[place].key = key;
    Some(words)
}

fn other_collection(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let (stream, place) = choose(history, random, |s, _, _| &*s.prefix != "/registry/configmaps/")?;
    let key = format!("/registry/configmaps/elsewhere/name-{}", random.u8(0..6));
    let frame = &mut history.streams[stream].frames[place];
    frame.key = key.as_str().into();
    let words = at(&key, frame.rv);
    Some(vec![name(history, stream), words, "outside of the watched prefix".into()])
}

/// A change of the prefix that the stream correctly leaves out.
fn unselected(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let left_out = |s: &Stream, place: usize| {
        let (from, to) = (s.frames[place].rv, s.frames.get(place + 1).filter(|next| next.is_change())?.rv);
        let mut between = history.revisions.iter().filter(|revision| rv(revision) > from && rv(revision) < to);
        between.find(|revision| revision.key.starts_with(&*s.prefix) && revision.kind == Change::Put)
    };
    let fits = |s: &Stream, place: usize, _: &Frame| s.selector.is_some() && left_out(s, place).is_some();
    let (stream, place) = choose(history, random, fits)?;
    let revision = left_out(&history.streams[stream], place)?.clone();
    let frame = Frame {
        kind: FrameKind::Modified,
        key: revision.key.clone(),
        rv: rv(&revision),
        ..history.streams[stream].frames[place].clone()
    };
    history.streams[stream].frames.insert(place + 1, frame);
    Some(vec![name(history, stream), at(&revision.key, rv(&revision)), "the selector does not match".into()])
}

fn seen_again(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let resumed = history.streams.iter().enumerate().filter_map(|(number, stream)| {
        let earlier = history.streams.iter().find(|earlier| Some(earlier.id) == stream.resumes)?;
        let seam = earlier.frames.iter().rfind(|frame| frame.is_change())?;
        (stream.start == Start::After(seam.rv)).then(|| (number, seam.clone()))
    });
    let (stream, seam) = random.choice(resumed.collect::<Vec<_>>())?;
    let words = vec![name(history, stream), at(&seam.key, seam.rv), "not after it".into()];
    history.streams[stream].frames.insert(0, seam);
    Some(words)
}

/// A bookmark that fulfils `fits` and is not the one after initial events: (stream, frame).
fn bookmark(history: &History, random: &mut Rng, fits: impl Fn(&Stream, usize) -> bool) -> Option<(usize, usize)> {
    let places = history.streams.iter().enumerate().flat_map(|(number, stream)| {
        let is_one = |place: &usize| stream.frames[*place].kind == FrameKind::Bookmark { end_of_initial: false };
        (begin(stream)..end(stream)).filter(is_one).map(move |place| (number, place)).collect::<Vec<_>>()
    });
    let fit = places.filter(|(stream, place)| fits(&history.streams[*stream], *place));
    random.choice(fit.collect::<Vec<_>>())
}

fn early_bookmark(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let next = |s: &Stream, place: usize| s.frames[place..end(s)].iter().find(|frame| frame.is_change()).cloned();
    let (stream, place) = bookmark(history, random, |s, place| next(s, place).is_some())?;
    let next = next(&history.streams[stream], place)?;
    history.streams[stream].frames[place].rv = next.rv;
    Some(vec![name(history, stream), at(&next.key, next.rv), format!("BOOKMARK at {}", next.rv)])
}

fn broken_promise(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let never_came = |s: &Stream, place: usize| {
        let shown = s.frames[..end(s)].iter().map(|frame| frame.rv).max()?;
        let last = s.selector.is_none() && !s.frames[place..end(s)].iter().any(Frame::is_change);
        let later = history.revisions.iter().filter(|revision| rv(revision) > shown);
        later.into_iter().find(|revision| last && revision.key.starts_with(&*s.prefix))
    };
    let (stream, place) = bookmark(history, random, |s, place| never_came(s, place).is_some())?;
    let (key, rev) = never_came(&history.streams[stream], place).map(|missed| (missed.key.clone(), rv(missed)))?;
    history.streams[stream].frames[place].rv = rev;
    Some(vec![name(history, stream), at(&key, rev)])
}

fn bookmark_ahead_of_time(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let asked = |rv: u64| {
        let made = history.operations.iter().filter_map(|operation| match operation.answer {
            Answer::Object { status: 201, rv } if operation.query.is_empty() => Some((rv, operation.called)),
            _ => None,
        });
        made.filter(|(made, called)| *made <= rv && *called > 0).map(|(_, called)| called).max()
    };
    let (stream, place) = bookmark(history, random, |s, place| asked(s.frames[place].rv).is_some())?;
    let rv = history.streams[stream].frames[place].rv;
    let time = asked(rv)? - 1;
    history.streams[stream].frames[place].at = time;
    Some(vec![name(history, stream), format!("BOOKMARK at {rv} was received at {time}")])
}

/// An object in the initial state of a stream that marks the end of this state: (stream, frame).
fn initial(history: &History, random: &mut Rng, fits: impl Fn(&History, &Frame) -> bool) -> Option<(usize, usize)> {
    let places = history.streams.iter().enumerate().flat_map(|(number, stream)| {
        let end = stream.frames.iter().position(|frame| frame.kind == FrameKind::Bookmark { end_of_initial: true });
        (0..end.unwrap_or(0)).map(move |place| (number, place))
    });
    let fit = places.filter(|(stream, place)| fits(history, &history.streams[*stream].frames[*place]));
    random.choice(fit.collect::<Vec<_>>())
}

/// An object that had been deleted before.
fn deleted_object(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let (stream, place) = initial(history, random, |_, _| true)?;
    let frames = &history.streams[stream].frames;
    let end = frames.iter().find(|frame| frame.kind == FrameKind::Bookmark { end_of_initial: true })?.rv;
    let prefix = &history.streams[stream].prefix;
    let gone = history.revisions.iter().filter(|revision| {
        let now = life(history, &revision.key).take_while(|revision| rv(revision) <= end).last();
        revision.kind == Change::Put
            && rv(revision) <= end
            && revision.key.starts_with(&**prefix)
            && now.is_some_and(|now| now.kind == Change::Delete)
    });
    let (key, rv) = random.choice(gone.collect::<Vec<_>>()).map(|gone| (gone.key.clone(), rv(gone)))?;
    let words = vec![name(history, stream), format!("{key} is there at {rv}")];
    let frame = Frame { key, rv, ..frames[place].clone() };
    history.streams[stream].frames.insert(place, frame);
    Some(words)
}

fn stale_initial(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let newer = |h: &History, stream: &Stream, end: u64| {
        let answered = h.operations.iter().filter_map(|operation| match operation.answer {
            Answer::Object { status: 200..=299, rv } if operation.verb != model::history::Verb::Get => {
                Some((rv, operation.returned))
            }
            _ => None,
        });
        let unset = stream.start == Start::InitialEvents(0);
        answered.into_iter().find(|(rv, _)| unset && *rv > end).map(|(_, returned)| returned)
    };
    let places = history.streams.iter().enumerate().filter_map(|(number, stream)| {
        let mut frames = stream.frames.iter();
        let end = frames.find(|frame| frame.kind == FrameKind::Bookmark { end_of_initial: true })?.rv;
        Some((number, end, newer(history, stream, end)?))
    });
    let (stream, end, time) = random.choice(places.collect::<Vec<_>>())?;
    history.streams[stream].opened = time + 1;
    Some(vec![name(history, stream), format!("end at {end}, although")])
}

/// A live change of a stream without a selector that another such stream shows too; both continue after it.
fn covered_twice(history: &History, random: &mut Rng) -> Option<(usize, usize)> {
    let after = |s: &Stream| s.selector.is_none() && matches!(s.start, Start::After(_));
    let twice = |s: &Stream, place: usize, frame: &Frame| {
        let other = |other: &Stream| {
            let same = |(place, seen): (usize, &Frame)| {
                seen.is_change() && seen.rv == frame.rv && seen.key == frame.key && goes_on(other, place)
            };
            other.id != s.id
                && other.prefix == s.prefix
                && after(other)
                && other.frames[..end(other)].iter().enumerate().any(same)
        };
        after(s) && goes_on(s, place) && history.streams.iter().any(other)
    };
    choose(history, random, twice)
}
