//! The smallest stretch of history that shows what is wrong with a stream: what the store did there, and what came. A
//! line each, few enough to be read at a glance.
//!
//! Nothing is decided here; a judge says which frames and which revisions the reader has to see.

use model::history::{Frame, FrameKind};

use super::prepared::Prepared;
use super::trace::{Trace, say};
use super::view::View;

/// Lines of a whole stretch.
pub(super) const LINES: usize = 12;
/// Of these, at most so many for the store and for one stream.
const OF_STORE: usize = 6;
const OF_STREAM: usize = 5;

/// Around a frame, and around where it belongs.
pub(super) fn around(prepared: &Prepared<'_>, trace: &Trace<'_>, place: usize) -> Vec<String> {
    around_all(prepared, trace, &[place], &[])
}

/// Around several frames and revisions, the most important one first.
pub(super) fn around_all(
    prepared: &Prepared<'_>,
    trace: &Trace<'_>,
    places: &[usize],
    revisions: &[u64],
) -> Vec<String> {
    let frames = &trace.stream.frames;
    let shown = near(places, frames.len(), OF_STREAM);
    let of_frames = places.iter().filter_map(|place| frames.get(*place)).map(|frame| frame.rv).filter(|rv| *rv > 0);
    let revisions: Vec<u64> = revisions.iter().copied().chain(of_frames).collect();
    let mut lines = match &prepared.views[trace.view] {
        Some(view) => store(prepared, view, trace, &revisions),
        None => Vec::new(),
    };
    lines.extend(shown.into_iter().map(|place| line(trace, place)));
    lines.truncate(LINES);
    lines
}

/// Around an event that did not come.
pub(super) fn around_missing(prepared: &Prepared<'_>, view: &View, trace: &Trace<'_>, event: usize) -> Vec<String> {
    let rev = view.events[event].rev;
    let next = trace.live().find(|(_, frame)| frame.rv >= rev).map(|(place, _)| place);
    // Without a later one, what came last.
    let place = next.or(trace.frames.len().checked_sub(1));
    around_all(prepared, trace, &place.into_iter().collect::<Vec<_>>(), &[rev])
}

/// Where two streams tell different stories.
pub(super) fn of_two(prepared: &Prepared<'_>, one: &Trace<'_>, other: &Trace<'_>, rv: u64) -> Vec<String> {
    let place = |trace: &Trace<'_>| trace.frames.iter().position(|frame| frame.rv >= rv);
    let mut lines = match &prepared.views[one.view] {
        Some(view) => {
            events(view, &[rv], 4).into_iter().map(|event| format!("store: {}", told(prepared, view, event))).collect()
        }
        None => Vec::new(),
    };
    for trace in [one, other] {
        let places: Vec<usize> = place(trace).into_iter().collect();
        lines.extend(near(&places, trace.frames.len(), 3).into_iter().map(|place| line(trace, place)));
    }
    lines.truncate(LINES);
    lines
}

/// What the store did around the revisions, with what became of it on the stream.
fn store(prepared: &Prepared<'_>, view: &View, trace: &Trace<'_>, revisions: &[u64]) -> Vec<String> {
    let line = |event: usize| format!("store: {}, {}", told(prepared, view, event), fate(trace, event));
    events(view, revisions, OF_STORE).into_iter().map(line).collect()
}

/// Positions of the events at and beside the revisions, in order.
fn events(view: &View, revisions: &[u64], most: usize) -> Vec<usize> {
    let places: Vec<usize> = revisions.iter().map(|rev| view.at(*rev)).collect();
    near(&places, view.events.len(), most)
}

fn told(prepared: &Prepared<'_>, view: &View, event: usize) -> String {
    let event = &view.events[event];
    format!("{} {} at {}", event.kind.word(), prepared.keys.texts[event.key as usize], event.rev)
}

/// What the stream made of an event.
fn fate(trace: &Trace<'_>, event: usize) -> String {
    let due = trace.missing.from..trace.missing.from + trace.missing.expected;
    match trace.found.iter().position(|found| *found as usize == event) {
        Some(place) => format!("frame {}", place + 1),
        None if event < due.start => "before the live part".into(),
        None if due.contains(&event) => "which did not come".into(),
        None => "after what came".into(),
    }
}

/// The places and what is beside them, in order: first the places themselves, then one further on each side, then two.
fn near(places: &[usize], length: usize, most: usize) -> Vec<usize> {
    let mut shown = Vec::new();
    for distance in 0..=2 {
        for place in places {
            for beside in [place.checked_sub(distance), place.checked_add(distance)].into_iter().flatten() {
                if beside < length && !shown.contains(&beside) && shown.len() < most {
                    shown.push(beside);
                }
            }
        }
    }
    shown.sort_unstable();
    shown
}

fn line(trace: &Trace<'_>, place: usize) -> String {
    let frame = &trace.stream.frames[place];
    format!("stream {}: frame {}: {}", trace.stream.id, place + 1, short(frame))
}

/// Without the uid, which is the same on all lines but the wrong one, and that one is in the message.
fn short(frame: &Frame) -> String {
    match &frame.kind {
        FrameKind::Bookmark { end_of_initial: true } => format!("{}, the end of the initial state", say(frame)),
        FrameKind::Error { code, reason, .. } => format!("ERROR {code} {reason}"),
        _ => say(frame).split(" (uid").next().unwrap_or_default().to_owned(),
    }
}
