//! A stream compared with the history: where its live part begins, the event of each frame, and the missing events.
//!
//! Nothing is judged here; several judges use the same trace.

use model::history::{Frame, FrameKind, Start, Stream};

use super::keys::{NONE, index};
use super::prepared::Prepared;
use super::view::View;

/// Maximum number of live ADDEDs searched in an initial part that is no state of the store; each needs a search of the
/// history.
const TAKEN_IN: usize = 32;

pub(super) struct Trace<'h> {
    pub(super) stream: &'h Stream,
    /// The frames up to the first ERROR, without those after the end of the recording.
    pub(super) frames: &'h [Frame],
    /// The number of the view. The view itself is None if the selector cannot be evaluated.
    pub(super) view: usize,
    /// Number of frames before the live part.
    pub(super) initial: usize,
    pub(super) begin: Begin,
    /// The index of each frame's event in the view; NONE for other frames. Empty without a view.
    pub(super) found: Vec<u32>,
    pub(super) missing: Missing,
}

/// Where the live part begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// The live part contains every event after this revision.
    After(u64),
    /// The initial part is not a state that the store ever had.
    NoState,
    /// The state may be older than the recording, or the stream ended within it.
    Unknown,
}

/// Events that the stream skipped although it delivered later events, or a bookmark after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) count: usize,
    /// The first one.
    pub(super) first: Option<usize>,
    /// How many events had to be delivered.
    pub(super) expected: usize,
    /// Position of the first event that had to be delivered.
    pub(super) from: usize,
}

impl<'h> Trace<'h> {
    /// Compares `stream` with the view of that number.
    pub(super) fn new(prepared: &Prepared<'h>, stream: &'h Stream, view: usize) -> Trace<'h> {
        let judged = before_error(stream);
        let end = judged.iter().rposition(|frame| frame.rv <= prepared.last).map_or(0, |last| last + 1);
        let frames = &judged[..end];
        let initial = initial_length(stream.start, frames, prepared.first);
        let mut trace = Trace {
            stream,
            frames,
            view,
            initial,
            begin: Begin::Unknown,
            found: Vec::new(),
            missing: Missing::default(),
        };
        if let Some(view) = &prepared.views[view] {
            trace.find(prepared, view);
            (trace.initial, trace.begin) = trace.begin(prepared, view);
            trace.missing = trace.missing(prepared, view);
        }
        trace
    }

    /// The frames of the live part, with their indices.
    pub(super) fn live(&self) -> impl Iterator<Item = (usize, &'h Frame)> + use<'h> {
        let initial = self.initial;
        self.frames[initial..].iter().enumerate().map(move |(place, frame)| (initial + place, frame))
    }

    pub(super) fn live_changes(&self) -> impl Iterator<Item = (usize, &'h Frame)> + use<'h> {
        self.live().filter(|(_, frame)| frame.is_change())
    }

    /// The view's event of a frame.
    pub(super) fn event(&self, place: usize) -> Option<usize> {
        self.found.get(place).filter(|event| **event != NONE).map(|event| *event as usize)
    }

    /// The stream's name in a message.
    pub(super) fn name(&self) -> String {
        let Stream { id, client, transport, prefix, start, selector, .. } = self.stream;
        let start = match start {
            Start::After(rv) => format!("after {rv}"),
            Start::Unset => "from an unset resource version".into(),
            Start::Zero => "from 0".into(),
            Start::InitialEvents(rv) => format!("with initial events from {rv}"),
        };
        let selector = match selector {
            Some(s) => format!(", selector `{}`", [&*s.labels, &*s.fields].join(" ").trim()),
            None => String::new(),
        };
        format!("stream {id} of {prefix} ({start}{selector}, {transport}, by {client})")
    }

    fn find(&mut self, prepared: &Prepared<'_>, view: &View) {
        self.found = Vec::with_capacity(self.frames.len());
        let mut near = 0;
        for frame in self.frames {
            let found = if frame.is_change() { view.find(&prepared.keys, &frame.key, frame.rv, near) } else { None };
            near = found.map_or(near, |event| event + 1);
            self.found.push(found.map_or(NONE, index));
        }
    }

    /// The number of frames before the live part, and where the live part begins.
    fn begin(&self, prepared: &Prepared<'_>, view: &View) -> (usize, Begin) {
        let whole = self.initial;
        if let Start::After(rv) = self.stream.start {
            return (whole, Begin::After(rv.max(prepared.first)));
        }
        let items: Option<Vec<usize>> = (0..whole).map(|place| self.event(place)).collect();
        let Some(items) = items else { return (whole, self.no_state(prepared)) };
        // The stream may have ended within the state: then its objects must at least have existed together.
        if self.frames.len() == whole && view.coexist(&items, prepared.last) {
            return (whole, Begin::Unknown);
        }
        let state = |length| {
            let rev = self.state(prepared, view, &items[..length])?;
            is_plain(view, rev, items.get(length)).then_some((length, Begin::After(rev)))
        };
        let lengths = std::iter::once(whole).chain(self.shorter());
        lengths.into_iter().find_map(state).unwrap_or_else(|| (whole, self.no_state(prepared)))
    }

    /// The latest revision whose state can be the first frames, whose events are `items`.
    fn state(&self, prepared: &Prepared<'_>, view: &View, items: &[usize]) -> Option<u64> {
        let next = &self.frames[items.len()..];
        if let Some(Frame { kind: FrameKind::Bookmark { end_of_initial: true }, rv, .. }) = next.first() {
            return view.state_with(items, *rv, *rv);
        }
        let change = next.iter().find(|frame| frame.is_change()).map_or(u64::MAX, |frame| frame.rv);
        let high = prepared.last.min(change.saturating_sub(1));
        // A bookmark promises everything from the state up to it. The same state may come again later; if that one were
        // taken, no event before it would be expected. A bookmark behind the state is another error, which
        // `watch.bookmark` reports.
        let bookmark = next.iter().find(|frame| matches!(frame.kind, FrameKind::Bookmark { .. }));
        let promised = bookmark.map_or(high, |frame| frame.rv.min(high));
        let before = |high| view.state_with(items, prepared.first, high);
        before(promised).or_else(|| before(high))
    }

    /// Other possible lengths of the initial part, if the whole is no state: it includes live ADDEDs, and the events
    /// between the state and those are missing. The included ones rise, and each is newer than all objects before it.
    /// The longest length is first.
    fn shorter(&self) -> impl Iterator<Item = usize> + use<'_, 'h> {
        let marked = matches!(self.stream.start, Start::InitialEvents(_));
        let frames = &self.frames[..if marked { 0 } else { self.initial }];
        let rises = |place: &usize| frames.get(place + 1).is_none_or(|next| next.rv > frames[*place].rv);
        let lengths = (1..frames.len()).rev().take_while(rises).take(TAKEN_IN);
        lengths.filter(|length| frames[..*length].iter().all(|frame| frame.rv < frames[*length].rv))
    }

    fn no_state(&self, prepared: &Prepared<'_>) -> Begin {
        let newest = self.frames[..self.initial].iter().map(|frame| frame.rv).max().unwrap_or(0);
        // A cache may lag behind the begin of the recording.
        if prepared.first > 0 && newest <= prepared.first { Begin::Unknown } else { Begin::NoState }
    }

    /// The events between the begin and the last event or bookmark that were not delivered.
    fn missing(&self, prepared: &Prepared<'_>, view: &View) -> Missing {
        let events = || self.live_changes().filter_map(|(place, _)| self.event(place));
        let from = match (self.begin, events().next()) {
            (Begin::After(rev), _) => view.after(rev),
            (_, Some(first)) => first,
            (_, None) => return Missing::default(),
        };
        let bookmarks = self.live().filter(|(_, frame)| matches!(frame.kind, FrameKind::Bookmark { .. }));
        let bookmark = bookmarks.map(|(_, frame)| frame.rv.min(prepared.last)).max().unwrap_or(0);
        // A stream may end between two events of one revision: of the last revision only the delivered ones are
        // expected.
        let last_event = events().map(|event| view.events[event].rev).max().unwrap_or(0);
        let to = view.after(bookmark).max(view.at(last_event));
        let mut next = from;
        let mut in_order = true;
        for event in events() {
            in_order &= event == next;
            next += 1;
        }
        if in_order {
            let first = (next..to).next();
            return Missing { count: to.saturating_sub(next), first, expected: to.max(next) - from, from };
        }
        self.missing_in_disorder(from, to)
    }

    fn missing_in_disorder(&self, from: usize, to: usize) -> Missing {
        let mut delivered = vec![false; to.saturating_sub(from)];
        let mut expected = delivered.len();
        for event in self.live_changes().filter_map(|(place, _)| self.event(place)) {
            let Some(place) = event.checked_sub(from) else { continue };
            expected = expected.max(place + 1);
            if let Some(seen) = delivered.get_mut(place) {
                *seen = true;
            }
        }
        let missing = || (from..).zip(&delivered).filter(|(_, seen)| !**seen).map(|(event, _)| event);
        Missing { count: missing().count(), first: missing().next(), expected, from }
    }
}

/// Whether the events between a state and the following live ADDED can be reported as skipped: each is of another key.
/// Several events of one key would be more errors than the one wrong object in a longer state.
fn is_plain(view: &View, state: u64, next: Option<&usize>) -> bool {
    let Some(next) = next else { return true };
    let mut keys = std::collections::HashSet::new();
    view.events.get(view.after(state)..*next).is_some_and(|skipped| skipped.iter().all(|event| keys.insert(event.key)))
}

/// The frames up to the first ERROR.
pub(super) fn before_error(stream: &Stream) -> &[Frame] {
    stream.frames.split(|frame| matches!(frame.kind, FrameKind::Error { .. })).next().unwrap_or_default()
}

/// A frame in a message.
pub(super) fn say(frame: &Frame) -> String {
    let place = if frame.key.is_empty() { String::new() } else { format!(" {}", frame.key) };
    let uid = if frame.uid.is_empty() { String::new() } else { format!(" (uid {})", frame.uid) };
    format!("{}{place} at {}{uid}", frame.kind.word(), frame.rv)
}

/// The number of frames before the live part.
///
/// If the stream begins with a state, these are all ADDEDs up to the first bookmark, other event, or repeated key. Live
/// ADDEDs that follow at once are included; usually that is correct, because a state with them is a state as well. If
/// it is not, `Trace::shorter` searches for them.
fn initial_length(start: Start, frames: &[Frame], first: u64) -> usize {
    match start {
        // Events from before the recording cannot be compared with anything.
        Start::After(rv) if rv < first => {
            frames.iter().take_while(|frame| frame.is_change() && frame.rv <= first).count()
        }
        Start::After(_) => 0,
        Start::Unset | Start::Zero | Start::InitialEvents(_) => {
            let added = frames.iter().take_while(|frame| matches!(frame.kind, FrameKind::Added));
            let mut seen = std::collections::HashSet::new();
            added.take_while(|frame| seen.insert(&*frame.key)).count()
        }
    }
}
