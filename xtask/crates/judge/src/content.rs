//! Compares what streams delivered with what the store recorded: type, key, resource version, uid, initial state.

use model::history::{Frame, FrameKind, Start};

use super::prepared::Prepared;
use super::query::Query;
use super::trace::{Begin, Trace, before_error, say};
use super::view::{Event, Kind, View, differences};
use super::{Findings, Violation, excerpt};

/// Fewer events than this may match by coincidence.
const MIN_EVENTS: u64 = 100;
/// Minimum of each kind, so that an error in one kind cannot go unnoticed.
const MIN_OF_KIND: u64 = 5;

/// `watch.matches-etcd-history`: every stream is exactly the history of its prefix and selector.
pub(super) fn matches_history(prepared: &Prepared<'_>, findings: &mut Findings) {
    for trace in &prepared.traces {
        let Some(view) = prepared.view(trace, findings) else { continue };
        findings.count("streams", 1);
        count_events(findings, trace);
        let problem = initial_problem(prepared, view, trace)
            .or_else(|| (0..trace.frames.len()).find_map(|place| frame_problem(prepared, view, trace, place)))
            .or_else(|| missing_problem(prepared, view, trace))
            .or_else(|| after_error(prepared, trace));
        findings.extend(problem);
    }
    findings.at_least("events", MIN_EVENTS);
    for word in ["ADDED", "MODIFIED", "DELETED"] {
        findings.at_least(word, MIN_OF_KIND);
    }
}

/// `watch.delete-rv`: a DELETED carries the revision that removed the object, or ended its match.
pub(super) fn delete_rv(prepared: &Prepared<'_>, findings: &mut Findings) {
    for trace in &prepared.traces {
        let Some(view) = prepared.view(trace, findings) else { continue };
        for (place, frame) in trace.live_changes().filter(|(_, frame)| frame.kind == FrameKind::Deleted) {
            findings.count("DELETED", 1);
            let event = trace.event(place).map(|event| &view.events[event]);
            if event.is_some_and(|event| event.kind == Kind::Deleted) {
                continue;
            }
            if findings.has_room() {
                let said =
                    event.map_or("no change of that object".into(), |event| format!("{} there", event.kind.word()));
                let message = format!("{}: {}, but the history has {said}", trace.name(), say(frame));
                let mut evidence = excerpt::at_frame(prepared, trace, place);
                evidence.extend(deletions(prepared, view, frame));
                evidence.truncate(excerpt::LINES);
                findings.add(Violation { message, evidence });
            } else {
                findings.count("violations not shown", 1);
            }
        }
    }
    findings.at_least("DELETED", MIN_OF_KIND);
}

fn count_events(findings: &mut Findings, trace: &Trace<'_>) {
    findings.count("initial objects", trace.initial as u64);
    for kind in [FrameKind::Added, FrameKind::Modified, FrameKind::Deleted] {
        let number = trace.live().filter(|(_, frame)| frame.kind == kind).count() as u64;
        findings.count(kind.word(), number);
        findings.count("events", number);
    }
}

/// The initial part must be the state at one revision, and new enough for the request.
fn initial_problem(prepared: &Prepared<'_>, view: &View, trace: &Trace<'_>) -> Option<Violation> {
    let Start::InitialEvents(asked) = trace.stream.start else {
        return (trace.begin == Begin::NoState).then(|| no_state(prepared, view, trace));
    };
    if trace.begin == Begin::NoState {
        return Some(no_state(prepared, view, trace));
    }
    let end = trace.frames.iter().find(|frame| matches!(frame.kind, FrameKind::Bookmark { end_of_initial: true }))?;
    if end.rv < asked {
        let message = format!("{}: the initial events end at {}, before the {asked} asked for", trace.name(), end.rv);
        return Some(Violation::plain(message));
    }
    // Without a resource version the state must be as fresh as a consistent read.
    let unset = Query::parse(&trace.stream.query).resource_version.is_none();
    let before = prepared.time_bounds.acknowledged(trace.stream.opened);
    (unset && end.rv < before).then(|| {
        Violation::plain(format!(
            "{}: the initial events end at {}, although a write with {before} was answered before the watch was opened",
            trace.name(),
            end.rv
        ))
    })
}

fn no_state(prepared: &Prepared<'_>, view: &View, trace: &Trace<'_>) -> Violation {
    let items = &trace.frames[..trace.initial];
    let newest = items.iter().map(|frame| frame.rv).max().unwrap_or(prepared.first);
    // Compare with the revision that the bookmark names, or the one just before the first event, or the newest item's.
    let next = trace.frames.get(trace.initial);
    let rev = match next {
        Some(Frame { kind: FrameKind::Bookmark { end_of_initial: true }, rv, .. }) => *rv,
        Some(frame) if frame.is_change() && frame.rv > newest => frame.rv - 1,
        _ => newest,
    };
    let state = view.state_at(&prepared.keys, rev);
    let items = items.iter().map(|frame| (&*frame.key, frame.rv));
    let evidence = differences(&state, items);
    let message = format!(
        "{}: its {} initial objects are not a state of the store; compared with revision {rev}: {}",
        trace.name(),
        trace.initial,
        evidence.first().map_or("that state ended before the delivered events", String::as_str)
    );
    Violation { message, evidence }
}

/// The error of one frame, if there is one, given the frames before it.
fn frame_problem(prepared: &Prepared<'_>, view: &View, trace: &Trace<'_>, place: usize) -> Option<Violation> {
    let frame = &trace.frames[place];
    let text = match &frame.kind {
        FrameKind::Unknown { name } => format!("an event of the type `{name}`, which does not exist"),
        FrameKind::Bookmark { .. } | FrameKind::Error { .. } => return None,
        FrameKind::Added | FrameKind::Modified | FrameKind::Deleted if place < trace.initial => {
            let event = &view.events[trace.event(place)?];
            format!("{}{}", say(frame), wrong_uid(prepared, event, frame)?)
        }
        FrameKind::Added | FrameKind::Modified | FrameKind::Deleted => {
            let why = match trace.event(place) {
                Some(event) => misfit(prepared, view, trace, place, event)?,
                None if !frame.key.starts_with(&*trace.stream.prefix) => " is outside of the watched prefix".into(),
                None => match own_changes(prepared, frame).is_empty() {
                    true => ", but the store recorded no change of that key at that revision".into(),
                    false => ", but the selector does not match the object before or after that change".into(),
                },
            };
            format!("{}{why}", say(frame))
        }
    };
    let mut evidence = own_changes(prepared, frame);
    evidence.extend(if frame.kind == FrameKind::Deleted { deletions(prepared, view, frame) } else { None });
    evidence.extend(excerpt::at_frame(prepared, trace, place));
    evidence.truncate(excerpt::LINES);
    Some(Violation { message: format!("{}: {text}", trace.name()), evidence })
}

/// Why a frame that is an event of the view is not the event expected at this place.
fn misfit(prepared: &Prepared<'_>, view: &View, trace: &Trace<'_>, place: usize, event: usize) -> Option<String> {
    let expected = &view.events[event];
    let frame = &trace.frames[place];
    if event < trace.missing.from {
        return Some(format!(" was delivered although it is not after {}", begin(trace)));
    }
    if frame.kind.word() != expected.kind.word() {
        return Some(format!(", but the store's change is {}", expected.kind.word()));
    }
    let previous = trace.frames[trace.initial..place].iter().rfind(|frame| frame.is_change());
    if let Some(previous) = previous.filter(|previous| previous.rv >= frame.rv) {
        if previous.rv > frame.rv {
            return Some(format!(" came after {}", say(previous)));
        }
        if previous.key == frame.key {
            return Some(" was delivered twice".into());
        }
    }
    wrong_uid(prepared, expected, frame)
}

/// An ERROR must be the last frame of a stream.
fn after_error(prepared: &Prepared<'_>, trace: &Trace<'_>) -> Option<Violation> {
    let error = before_error(trace.stream).len();
    let next = trace.stream.frames.get(error + 1)?;
    Some(Violation {
        message: format!("{}: {} came after an ERROR", trace.name(), say(next)),
        evidence: excerpt::at_frame(prepared, trace, error + 1),
    })
}

fn begin(trace: &Trace<'_>) -> String {
    match trace.begin {
        Begin::After(rev) => format!("{rev}, where the stream begins"),
        Begin::NoState | Begin::Unknown => "the first event".into(),
    }
}

/// The uid must be the stored one. It stays the same for an object's whole life.
fn wrong_uid(prepared: &Prepared<'_>, event: &Event, frame: &Frame) -> Option<String> {
    let stored = prepared.uids.get(event.stored as usize)?;
    (!stored.is_empty() && **stored != *frame.uid).then(|| format!(", but the stored object's uid is {stored}"))
}

fn missing_problem(prepared: &Prepared<'_>, view: &View, trace: &Trace<'_>) -> Option<Violation> {
    let first = trace.missing.first?;
    let message = format!(
        "{}: {} of the store's events were not delivered; missing: {}",
        trace.name(),
        trace.missing.count,
        prepared.say(&view.events[first])
    );
    Some(Violation { message, evidence: excerpt::at_missing_event(prepared, view, trace, first) })
}

/// What the store recorded for the frame's key at the frame's revision.
fn own_changes(prepared: &Prepared<'_>, frame: &Frame) -> Vec<String> {
    let same = prepared.revisions_at(frame.rv).iter().filter(|revision| revision.key == frame.key);
    same.map(super::recording::history_line).collect()
}

/// Where the key of a DELETED was really deleted.
fn deletions(prepared: &Prepared<'_>, view: &View, frame: &Frame) -> Option<String> {
    let key = prepared.keys.id(&frame.key)?;
    let later = view.events[view.at(frame.rv)..].iter();
    let next = later.into_iter().find(|event| event.key == key && event.kind == Kind::Deleted)?;
    Some(format!("history: the next DELETED of {} is at {}", frame.key, next.rev))
}
