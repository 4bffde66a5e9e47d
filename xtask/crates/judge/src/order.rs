//! The order within one stream: resource versions rise, and nothing comes twice. Uses only the stream.

use model::history::Frame;

use super::prepared::Prepared;
use super::trace::{Trace, say};
use super::{Findings, Violation, excerpt};

/// Order shows only among many events. This is the minimum length of the longest stream …
const MIN_IN_ONE: u64 = 10;
/// … and this the minimum number of events on all streams together.
const MIN_EVENTS: u64 = 100;

/// `watch.ordered`: after the initial part, resource versions rise. Equal ones are legal only for different keys of one
/// revision, as at the end of a lease.
pub(super) fn ordered(prepared: &Prepared<'_>, findings: &mut Findings) {
    for trace in &prepared.traces {
        let mut count = 0;
        let newest = trace.frames[..trace.initial].iter().max_by_key(|frame| frame.rv);
        let mut previous: Option<&Frame> = newest;
        let mut problem = None;
        for (place, frame) in trace.live_changes() {
            count += 1;
            let falls = previous.is_some_and(|previous| {
                previous.rv > frame.rv
                    || (previous.rv == frame.rv && (previous.key == frame.key || !prepared.is_shared(frame.rv)))
            });
            if falls && problem.is_none() {
                problem = Some((place, frame, previous));
            }
            previous = Some(frame);
        }
        exercised(findings, count);
        if let Some((place, frame, Some(previous))) = problem {
            findings.add(Violation {
                message: format!("{}: {} came after {}", trace.name(), say(frame), say(previous)),
                evidence: excerpt::at_frames(prepared, trace, &[place], &[previous.rv]),
            });
        }
    }
    minima(findings);
}

/// `watch.unique`: no (key, resource version) comes twice on a stream, the initial part included.
pub(super) fn unique(prepared: &Prepared<'_>, findings: &mut Findings) {
    for trace in &prepared.traces {
        exercised(findings, trace.live_changes().count() as u64);
        if let Some((first, second)) = twice(trace) {
            findings.add(Violation {
                message: format!(
                    "{}: {} came twice, as frames {} and {}",
                    trace.name(),
                    say(&trace.frames[first]),
                    first + 1,
                    second + 1
                ),
                evidence: excerpt::at_frames(prepared, trace, &[second, first], &[]),
            });
        }
    }
    minima(findings);
}

/// The places of the first two frames with the same key and resource version.
fn twice(trace: &Trace<'_>) -> Option<(usize, usize)> {
    let initial = &trace.frames[..trace.initial];
    let mut last = initial.iter().map(|frame| frame.rv).max().unwrap_or(0);
    // The keys of the initial part differ; strictly rising versions after it leave no room for a second time.
    let rising = trace.live_changes().all(|(_, frame)| {
        let rises = frame.rv > last;
        last = frame.rv;
        rises
    });
    if rising {
        return None;
    }
    let changes = trace.frames.iter().enumerate().filter(|(_, frame)| frame.is_change());
    let mut all: Vec<(u64, &str, usize)> = changes.map(|(place, frame)| (frame.rv, &*frame.key, place)).collect();
    all.sort_unstable();
    let same = all.windows(2).filter(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1));
    same.map(|pair| (pair[0].2, pair[1].2)).min_by_key(|(_, second)| *second)
}

pub(super) fn exercised(findings: &mut Findings, events: u64) {
    findings.count("streams", 1);
    findings.count("events", events);
    findings.count("streams of ten events", u64::from(events >= MIN_IN_ONE));
}

pub(super) fn minima(findings: &mut Findings) {
    findings.at_least("streams of ten events", 1);
    findings.at_least("events", MIN_EVENTS);
}
