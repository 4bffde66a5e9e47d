//! Events that streams left out: in the middle, and where a resumed stream begins.

use std::collections::BTreeMap;

use model::history::Start;

use super::order::{exercised, minima};
use super::prepared::Prepared;
use super::trace::{Begin, Trace, say};
use super::view::View;
use super::{Findings, Violation, excerpt};

/// Minimum number of streams that began after a resource version and delivered an event.
const MIN_RESUMED: u64 = 3;

/// `watch.reliable`: every event between the begin and the last event or bookmark of a stream was delivered.
pub(super) fn reliable(prepared: &Prepared<'_>, findings: &mut Findings) {
    for trace in &prepared.traces {
        let Some(view) = prepared.view(trace, findings) else { continue };
        // A gap can only be among events.
        exercised(findings, trace.missing.expected as u64);
        findings.extend(trace.missing.first.map(|first| skipped(prepared, view, trace, first)));
    }
    minima(findings);
}

fn skipped(prepared: &Prepared<'_>, view: &View, trace: &Trace<'_>, first: usize) -> Violation {
    let event = &view.events[first];
    let next = trace.live().find(|(_, frame)| frame.rv >= event.rev);
    let went_on = next.map_or(String::new(), |(_, frame)| format!(", but went on to {}", say(frame)));
    let message = format!(
        "{}: it skipped {} of {} events{went_on}; the first is {}",
        trace.name(),
        trace.missing.count,
        trace.missing.expected,
        prepared.say(event)
    );
    Violation { message, evidence: excerpt::at_missing_event(prepared, view, trace, first) }
}

/// `watch.resumable`: the first event of a stream that begins after x is the first matching change after x.
pub(super) fn resumable(prepared: &Prepared<'_>, findings: &mut Findings) {
    let ends: BTreeMap<u64, u64> = prepared.traces.iter().map(|trace| (trace.stream.id, end(trace))).collect();
    for trace in &prepared.traces {
        let Start::After(start) = trace.stream.start else { continue };
        let Some(view) = prepared.view(trace, findings) else { continue };
        // A stream without events is accepted: it may have ended before anything happened.
        let Some((place, _)) = trace.live_changes().next() else { continue };
        findings.count("streams resumed", 1);
        let seam = trace.stream.resumes.and_then(|id| ends.get(&id));
        findings.count("chains joined where the stream before ended", u64::from(seam == Some(&start)));
        findings.extend(wrong_begin(prepared, view, trace, place));
    }
    findings.at_least("streams resumed", MIN_RESUMED);
}

/// Where a client continues after this stream: at its last event or bookmark, never at an object of the initial part.
fn end(trace: &Trace<'_>) -> u64 {
    trace.live().map(|(_, frame)| frame.rv).max().unwrap_or(match trace.stream.start {
        Start::After(rv) => rv,
        Start::Unset | Start::Zero | Start::InitialEvents(_) => 0,
    })
}

fn wrong_begin(prepared: &Prepared<'_>, view: &View, trace: &Trace<'_>, place: usize) -> Option<Violation> {
    let Begin::After(start) = trace.begin else { return None };
    let frame = &trace.frames[place];
    let first = view.events.get(view.after(start));
    let seen = trace.event(place).map(|event| &view.events[event]);
    if let (Some(first), Some(seen)) = (first, seen)
        && first.rev == seen.rev
    {
        return None;
    }
    let expected = first.map_or("nothing happened after it".to_owned(), |first| {
        format!("the first change after it is {}", prepared.say(first))
    });
    let how = if frame.rv <= start { "which is not after it" } else { "which is not the first one" };
    Some(Violation {
        message: format!("{}: began with {}, {how}; {expected}", trace.name(), say(frame)),
        evidence: excerpt::at_frames(prepared, trace, &[place], first.map(|first| first.rev).as_slice()),
    })
}
