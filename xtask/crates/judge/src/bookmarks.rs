//! Bookmarks: each promises that everything up to a revision was delivered; later events must keep that promise.

use model::history::{Frame, FrameKind};

use super::prepared::Prepared;
use super::trace::{before_error, say};
use super::{Findings, Violation, excerpt};

/// One bookmark is enough to break the promise; without a bookmark, the promise is not exercised.
const MIN_BOOKMARKS: u64 = 1;

/// `watch.bookmark`: a bookmark is never behind the frames before it nor ahead of the store, and every later event is
/// after it. `watch.reliable` checks that no event before it is missing.
pub(super) fn bookmark(prepared: &Prepared<'_>, findings: &mut Findings) {
    for trace in &prepared.traces {
        let mut last_change: Option<&Frame> = None;
        let mut last_bookmark: Option<&Frame> = None;
        let mut problem = None;
        // Includes bookmarks beyond the end of the recording: this judge must find those, too.
        for (place, frame) in before_error(trace.stream).iter().enumerate() {
            let why = match frame.kind {
                FrameKind::Bookmark { .. } => {
                    findings.count("bookmarks", 1);
                    let why = bookmark_problem(prepared, frame, last_change, last_bookmark);
                    last_bookmark = Some(frame);
                    why
                }
                _ if frame.is_change() => {
                    findings.count("events after a bookmark", u64::from(last_bookmark.is_some()));
                    let late = last_bookmark.filter(|bookmark| frame.rv <= bookmark.rv);
                    last_change = last_change.filter(|last| last.rv >= frame.rv).or(Some(frame));
                    late.map(|bookmark| format!("{} came after {}", say(frame), say(bookmark)))
                }
                _ => None,
            };
            problem = problem.or(why.map(|why| (place, why)));
        }
        if let Some((place, why)) = problem {
            findings.add(Violation {
                message: format!("{}: {why}", trace.name()),
                evidence: excerpt::at_frame(prepared, trace, place),
            });
        }
    }
    findings.at_least("bookmarks", MIN_BOOKMARKS);
}

fn bookmark_problem(
    prepared: &Prepared<'_>,
    frame: &Frame,
    last_change: Option<&Frame>,
    last_bookmark: Option<&Frame>,
) -> Option<String> {
    let earlier = [last_change, last_bookmark].into_iter().flatten().max_by_key(|earlier| earlier.rv);
    if let Some(earlier) = earlier.filter(|earlier| earlier.rv > frame.rv) {
        return Some(format!("{} came after {}", say(frame), say(earlier)));
    }
    if frame.rv == 0 {
        return Some("a BOOKMARK carries no resource version".into());
    }
    // The end of the recording is read after the last stream has ended.
    if frame.rv > prepared.last {
        return Some(format!("{}, but the store ended at revision {}", say(frame), prepared.last));
    }
    let earliest = prepared.time_bounds.not_before(frame.rv);
    (earliest > frame.at).then(|| {
        format!(
            "{} was received at {} µs, but a write of that revision or an earlier one was only sent at {earliest} µs",
            say(frame),
            frame.at
        )
    })
}
