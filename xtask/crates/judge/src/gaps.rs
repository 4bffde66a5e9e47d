//! Events that streams left out: in the middle, and where a resumed stream begins.

use std::collections::BTreeMap;

use model::history::Start;

use super::content::missing_line;
use super::prepared::Prepared;
use super::trace::{Begin, Trace, say};
use super::view::View;
use super::{Findings, Judgement, Violation, excerpt};

/// Minimum length of the longest stream.
const MIN_IN_ONE: u64 = 10;
/// Minimum number of events on all streams together: a gap can only be among events.
const MIN_EVENTS: u64 = 100;
/// Minimum number of streams that began after a resource version and delivered an event.
const MIN_RESUMED: u64 = 3;

/// `watch.reliable`: every event between the begin and the last event or bookmark of a stream was delivered.
pub(super) fn reliable(prepared: &Prepared<'_>) -> Judgement {
    let mut findings = Findings::default();
    for trace in &prepared.traces {
        let Some(view) = &prepared.views[trace.view] else {
            findings.count("streams left out", 1);
            continue;
        };
        let events = trace.missing.expected as u64;
        findings.count("streams", 1);
        findings.count("events", events);
        findings.count("streams of ten events", u64::from(events >= MIN_IN_ONE));
        if trace.missing.count > 0 {
            findings.add(skipped(prepared, view, trace));
        }
    }
    findings.at_least("streams of ten events", 1);
    findings.at_least("events", MIN_EVENTS);
    findings.judgement()
}

fn skipped(prepared: &Prepared<'_>, view: &View, trace: &Trace<'_>) -> Violation {
    let missing = &trace.missing;
    let lines: Vec<String> = missing.first.iter().map(|event| missing_line(prepared, view, *event)).collect();
    let rev = missing.first.first().map_or(0, |event| view.events[*event].rev);
    let next = trace.live().find(|(_, frame)| frame.rv >= rev);
    let went_on = next.map_or(String::new(), |(_, frame)| format!(", but went on to {}", say(frame)));
    let message = format!(
        "{}: it skipped {} of {} events{went_on}; the first is {}",
        trace.name(),
        missing.count,
        missing.expected,
        lines.first().map_or("", |line| line.trim_start_matches("missing: "))
    );
    let evidence = missing.first.first().map(|event| excerpt::at_missing_event(prepared, view, trace, *event));
    Violation { message, evidence: evidence.unwrap_or_default() }
}

/// `watch.resumable`: the first event of a stream that begins after x is the first matching change after x.
pub(super) fn resumable(prepared: &Prepared<'_>) -> Judgement {
    let mut findings = Findings::default();
    let ends: BTreeMap<u64, u64> = prepared.traces.iter().map(|trace| (trace.stream.id, end(trace))).collect();
    for trace in &prepared.traces {
        let Start::After(start) = trace.stream.start else { continue };
        let Some(view) = &prepared.views[trace.view] else {
            findings.count("streams left out", 1);
            continue;
        };
        // A stream without events is accepted: it may have ended before anything happened.
        let Some((place, _)) = trace.live_changes().next() else { continue };
        findings.count("streams resumed", 1);
        let seam = trace.stream.resumes.and_then(|id| ends.get(&id));
        findings.count("chains joined where the stream before ended", u64::from(seam == Some(&start)));
        if let Some(violation) = wrong_begin(prepared, view, trace, place) {
            findings.add(violation);
        }
    }
    findings.at_least("streams resumed", MIN_RESUMED);
    findings.judgement()
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
        let key = prepared.keys.texts[first.key as usize];
        format!("the first change after it is {} {key} at {}", first.kind.word(), first.rev)
    });
    let how = if frame.rv <= start { "which is not after it" } else { "which is not the first one" };
    Some(Violation {
        message: format!("{}: began with {}, {how}; {expected}", trace.name(), say(frame)),
        evidence: excerpt::at_frames(
            prepared,
            trace,
            &[place],
            &first.map(|first| first.rev).into_iter().collect::<Vec<_>>(),
        ),
    })
}
