//! The smallest excerpt of the history that shows what is wrong with a stream: what the store did there, and what the
//! stream delivered. One line each, few enough for a glance.
//!
//! Nothing is judged here; a judge selects the frames and revisions that the reader has to see.

use model::history::{Frame, FrameKind};

use super::prepared::Prepared;
use super::trace::{Trace, say};
use super::view::View;

/// Maximum number of lines of an excerpt.
pub(super) const LINES: usize = 12;
/// Maximum number of lines about the store and about one stream.
const OF_STORE: usize = 6;
const OF_STREAM: usize = 5;

/// The excerpt around a frame.
pub(super) fn at_frame(prepared: &Prepared<'_>, trace: &Trace<'_>, place: usize) -> Vec<String> {
    at_frames(prepared, trace, &[place], &[])
}

/// The excerpt around several frames and revisions, the most important one first.
pub(super) fn at_frames(
    prepared: &Prepared<'_>,
    trace: &Trace<'_>,
    places: &[usize],
    revisions: &[u64],
) -> Vec<String> {
    let frames = &trace.stream.frames;
    let of_frames = places.iter().filter_map(|place| frames.get(*place)).map(|frame| frame.rv).filter(|rv| *rv > 0);
    let revisions: Vec<u64> = revisions.iter().copied().chain(of_frames).collect();
    let result = |event| format!(", {}", result_on_stream(trace, event));
    let mut lines = store_lines(prepared, trace, &revisions, OF_STORE, result);
    lines.extend(frame_lines(trace, places, frames.len(), OF_STREAM));
    lines.truncate(LINES);
    lines
}

/// The excerpt around an event that was not delivered.
pub(super) fn at_missing_event(prepared: &Prepared<'_>, view: &View, trace: &Trace<'_>, event: usize) -> Vec<String> {
    let rev = view.events[event].rev;
    let next = trace.live().find(|(_, frame)| frame.rv >= rev).map(|(place, _)| place);
    // Without a later frame, show the last one.
    let place = next.or(trace.frames.len().checked_sub(1));
    at_frames(prepared, trace, place.as_slice(), &[rev])
}

/// The excerpt where two streams disagree.
pub(super) fn of_disagreement(prepared: &Prepared<'_>, one: &Trace<'_>, other: &Trace<'_>, rv: u64) -> Vec<String> {
    let mut lines = store_lines(prepared, one, &[rv], 4, |_| String::new());
    for trace in [one, other] {
        let place = trace.frames.iter().position(|frame| frame.rv >= rv);
        lines.extend(frame_lines(trace, place.as_slice(), trace.frames.len(), 3));
    }
    lines.truncate(LINES);
    lines
}

/// The store's events at and next to the revisions, in order, each with a note.
fn store_lines(
    prepared: &Prepared<'_>,
    trace: &Trace<'_>,
    revisions: &[u64],
    most: usize,
    note: impl Fn(usize) -> String,
) -> Vec<String> {
    let Some(view) = &prepared.views[trace.view] else { return Vec::new() };
    let places: Vec<usize> = revisions.iter().map(|rev| view.at(*rev)).collect();
    let line = |event: usize| format!("store: {}{}", prepared.say(&view.events[event]), note(event));
    near(&places, view.events.len(), most).into_iter().map(line).collect()
}

/// The result of an event on the stream.
fn result_on_stream(trace: &Trace<'_>, event: usize) -> String {
    let due = trace.missing.from..trace.missing.from + trace.missing.expected;
    match trace.found.iter().position(|found| *found as usize == event) {
        Some(place) => format!("frame {}", place + 1),
        None if event < due.start => "before the live part".into(),
        None if due.contains(&event) => "not delivered".into(),
        None => "after the delivered part".into(),
    }
}

/// The places and their neighbours, in order: first the places themselves, then one further on each side, then two.
fn near(places: &[usize], length: usize, most: usize) -> Vec<usize> {
    let mut shown = Vec::new();
    for distance in 0..=2 {
        for place in places {
            for neighbour in [place.checked_sub(distance), place.checked_add(distance)].into_iter().flatten() {
                if neighbour < length && !shown.contains(&neighbour) && shown.len() < most {
                    shown.push(neighbour);
                }
            }
        }
    }
    shown.sort_unstable();
    shown
}

/// The frames at and next to the places.
fn frame_lines(trace: &Trace<'_>, places: &[usize], length: usize, most: usize) -> impl Iterator<Item = String> {
    let line = |place: usize| {
        let frame = say_without_uid(&trace.stream.frames[place]);
        format!("stream {}: frame {}: {frame}", trace.stream.id, place + 1)
    };
    near(places, length, most).into_iter().map(line)
}

/// Without the uid, which is the same on all lines but the wrong one, and the message contains the wrong one.
fn say_without_uid(frame: &Frame) -> String {
    match &frame.kind {
        FrameKind::Bookmark { end_of_initial: true } => format!("{}, the end of the initial state", say(frame)),
        FrameKind::Error { code, reason, .. } => format!("ERROR {code} {reason}"),
        _ => say(frame).split(" (uid").next().unwrap_or_default().to_owned(),
    }
}
