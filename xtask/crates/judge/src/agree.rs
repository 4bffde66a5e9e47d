//! Decides whether streams of one collection agree. It uses only the streams, so it finds disagreements even without a
//! record of the store.
//!
//! The judge merges the streams by resource version. Where a stream covers what another one covered before, both must
//! have the same events. Each event is compared once, however many streams there are.

use std::collections::BTreeMap;

use model::history::{Frame, FrameKind, Start};

use super::prepared::Prepared;
use super::trace::{Trace, say};
use super::{Findings, Violation};

/// Number of common events from which on the agreement of two streams means something.
const MIN_COMMON: u64 = 10;
/// Number of such overlaps that a verdict needs.
const MIN_OVERLAPS: u64 = 1;

/// A range of resource versions that streams have covered without a hole: `(from, to]`.
struct MergedRange<'t, 'h> {
    from: u64,
    to: u64,
    /// By resource version and key.
    frames: Vec<&'h Frame>,
    /// The streams that delivered the frames, each with the resource version up to which it did.
    sources: Vec<(u64, &'t Trace<'h>)>,
}

/// The range that a stream covers completely, with its changes there in the order received.
struct Cover<'t, 'h> {
    trace: &'t Trace<'h>,
    from: u64,
    to: u64,
    frames: Vec<&'h Frame>,
    in_order: bool,
}

/// `watch.concurrent-agree`: streams of one prefix agree on order and content wherever they overlap.
pub(super) fn concurrent_agree(prepared: &Prepared<'_>, findings: &mut Findings) {
    let mut by_prefix: BTreeMap<&str, Vec<&Trace<'_>>> = BTreeMap::new();
    for trace in prepared.traces.iter().filter(|trace| trace.stream.selector.is_none()) {
        by_prefix.entry(&trace.stream.prefix).or_default().push(trace);
    }
    for traces in by_prefix.into_values() {
        let mut covers: Vec<Cover<'_, '_>> = traces.into_iter().filter_map(|trace| cover(prepared, trace)).collect();
        // Streams out of order come last: they are compared with the others, but no stream is compared with them.
        covers.sort_by_key(|cover| (!cover.in_order, cover.from, cover.trace.stream.id));
        let mut ranges = Vec::new();
        for cover in covers {
            merge_stream(prepared, findings, &mut ranges, cover);
        }
    }
    findings.at_least("overlaps", MIN_OVERLAPS);
}

fn cover<'t, 'h>(prepared: &Prepared<'h>, trace: &'t Trace<'h>) -> Option<Cover<'t, 'h>> {
    let end_of_initial = |frame: &Frame| matches!(frame.kind, FrameKind::Bookmark { end_of_initial: true });
    let (from, skipped) = match trace.stream.start {
        Start::After(rv) => (rv, 0),
        // Only the bookmark names the revision of the initial state; without it, the first change does.
        _ => match trace.frames.iter().position(end_of_initial) {
            Some(place) => (trace.frames[place].rv, place),
            None => {
                let (place, first) = trace.live_changes().next()?;
                (first.rv.checked_sub(1)?, place)
            }
        },
    };
    let live = || trace.frames[skipped..].iter();
    let ends = live().filter_map(|frame| match frame.kind {
        FrameKind::Bookmark { .. } => Some(frame.rv),
        // A stream may be cut between two changes of one revision.
        _ if frame.is_change() => Some(frame.rv.saturating_sub(u64::from(prepared.is_shared(frame.rv)))),
        _ => None,
    });
    let to = ends.max().filter(|to| *to > from)?;
    let frames: Vec<&Frame> = live().filter(|f| f.is_change() && f.rv > from && f.rv <= to).collect();
    let in_order = frames.is_sorted_by_key(|frame| frame.rv);
    Some(Cover { trace, from, to, frames, in_order })
}

/// Compares a stream with the ranges covered so far, and adds the part that it covers beyond them.
fn merge_stream<'t, 'h>(
    prepared: &Prepared<'h>,
    findings: &mut Findings,
    ranges: &mut Vec<MergedRange<'t, 'h>>,
    cover: Cover<'t, 'h>,
) {
    findings.count("streams", 1);
    let first = ranges.partition_point(|range| range.to <= cover.from);
    let mut common = 0;
    for range in ranges[first..].iter().take_while(|range| range.from < cover.to) {
        match compare(prepared, range, &cover) {
            Ok(same) => common += same,
            Err(violation) => return findings.add(*violation),
        }
    }
    findings.count("common events", common);
    findings.count("overlaps", u64::from(common >= MIN_COMMON));
    if cover.in_order {
        extend(ranges, cover);
    }
}

fn extend<'t, 'h>(ranges: &mut Vec<MergedRange<'t, 'h>>, cover: Cover<'t, 'h>) {
    let Cover { trace, from, to, mut frames, .. } = cover;
    frames.sort_by_key(|frame| (frame.rv, &*frame.key));
    match ranges.last_mut().filter(|range| range.to >= from) {
        Some(range) if range.to >= to => {}
        Some(range) => {
            range.frames.extend(frames.into_iter().filter(|frame| frame.rv > range.to));
            range.sources.push((to, trace));
            range.to = to;
        }
        None => ranges.push(MergedRange { from, to, frames, sources: vec![(to, trace)] }),
    }
}

/// Number of events that both have, or their first difference.
fn compare(prepared: &Prepared<'_>, range: &MergedRange<'_, '_>, cover: &Cover<'_, '_>) -> Result<u64, Box<Violation>> {
    let (from, to) = (range.from.max(cover.from), range.to.min(cover.to));
    let start = range.frames.partition_point(|frame| frame.rv <= from);
    let end = range.frames.partition_point(|frame| frame.rv <= to);
    let expected = &range.frames[start..end];
    let mut delivered: Vec<&Frame> = cover.frames.iter().copied().filter(|f| f.rv > from && f.rv <= to).collect();
    // The order of changes of one revision is not promised.
    for group in delivered.chunk_by_mut(|a, b| a.rv == b.rv).filter(|group| group.len() > 1) {
        group.sort_by(|a, b| a.key.cmp(&b.key));
    }
    let same = |(a, b): &(&&Frame, &&Frame)| a.rv == b.rv && a.kind == b.kind && a.key == b.key && a.uid == b.uid;
    let agreed = expected.iter().zip(&delivered).take_while(same).count();
    if agreed == expected.len() && agreed == delivered.len() {
        return Ok(agreed as u64);
    }
    let (expected, delivered) = (expected.get(agreed), delivered.get(agreed));
    let rv = expected.map_or(u64::MAX, |frame| frame.rv).min(delivered.map_or(u64::MAX, |frame| frame.rv));
    let source = range.sources.iter().find(|(to, _)| rv <= *to).map(|(_, trace)| *trace);
    let mut evidence =
        vec![format!("both cover the resource versions after {from} up to {to}; {agreed} events agree before")];
    evidence.extend(
        source.map(|source| super::excerpt::of_disagreement(prepared, cover.trace, source, rv)).unwrap_or_default(),
    );
    evidence.truncate(super::excerpt::LINES);
    let source = source.map(Trace::name).unwrap_or_default();
    let describe = |frame: Option<&&Frame>| frame.map_or(format!("nothing up to {to}"), |frame| say(frame));
    Err(Box::new(Violation {
        message: format!(
            "streams disagree at {rv}: {} has {}, {source} has {}",
            cover.trace.name(),
            describe(delivered),
            describe(expected)
        ),
        evidence,
    }))
}
