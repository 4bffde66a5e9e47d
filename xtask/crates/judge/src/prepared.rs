//! A history prepared for judging: keys numbered, views and traces built once, shared by all judges.

use std::collections::{BTreeMap, HashMap};

use model::history::{Change, End, History, Revision, Stream};

use super::keys::{Keys, unsigned};
use super::recording;
use super::selector::Program;
use super::stored::{self, Meta};
use super::time_bounds::TimeBounds;
use super::trace::Trace;
use super::view::{Builder, Event, View};
use super::{Findings, Judgement, Violation};

/// A history with the indices that judges use. Memory is linear in the history.
pub struct Prepared<'h> {
    pub(super) history: &'h History,
    /// Whether the recording is sound.
    pub(super) recording: Judgement,
    /// Changes whose previous value is missing, in a recording that is sound otherwise.
    pub(super) missing_prev_kv: Vec<Violation>,
    /// States before this revision are unknown.
    pub(super) first: u64,
    /// The recording is complete up to here.
    pub(super) last: u64,
    /// The revisions after `first` up to `last`.
    pub(super) revisions: &'h [Revision],
    /// The revision numbers of `revisions`, for binary search.
    revs: Vec<u64>,
    pub(super) keys: Keys<'h>,
    /// The uid in each revision's value; empty if it cannot be read.
    pub(super) uids: Vec<&'h str>,
    pub(super) views: Vec<Option<View>>,
    /// One for each stream that the server accepted.
    pub(super) traces: Vec<Trace<'h>>,
    pub(super) time_bounds: TimeBounds,
    /// Revisions that changed several keys, sorted.
    shared: Vec<u64>,
}

/// A collection seen through a selector: prefix, labels, fields.
type Wanted<'h> = (&'h str, &'h str, &'h str);

impl<'h> Prepared<'h> {
    pub fn new(history: &'h History) -> Prepared<'h> {
        let (first, last) = (unsigned(history.meta.first_rev), unsigned(history.meta.last_rev));
        let revisions = within(&history.revisions, history.meta.first_rev, history.meta.last_rev);
        let keys = Keys::new(history, revisions);
        let (recording, missing_prev_kv) = recording::sound(history, revisions, &keys);
        let revs: Vec<u64> = revisions.iter().map(|revision| unsigned(revision.rev)).collect();
        let time_bounds = TimeBounds::new(history, revisions, &revs, &keys);
        let shared = revisions.chunk_by(|a, b| a.rev == b.rev).filter(|group| group.len() > 1);
        let shared = shared.map(|group| unsigned(group[0].rev)).collect();
        let mut prepared = Prepared {
            history,
            recording,
            missing_prev_kv,
            first,
            last,
            revisions,
            revs,
            keys,
            uids: Vec::new(),
            views: Vec::new(),
            traces: Vec::new(),
            time_bounds,
            shared,
        };
        // A broken recording is not indexed: its indices might be out of range.
        if prepared.recording.violations.is_empty() {
            let wanted = wanted(history);
            (prepared.views, prepared.uids) = build_views(&prepared, &wanted);
            let streams = history.streams.iter().filter(|stream| !matches!(stream.end, End::Refused { .. }));
            prepared.traces = streams.map(|stream| Trace::new(&prepared, stream, wanted[&wanted_by(stream)])).collect();
        }
        prepared
    }

    /// The view of a trace; without it, the stream counts as left out.
    pub(super) fn view(&self, trace: &Trace<'_>, findings: &mut Findings) -> Option<&View> {
        let view = self.views[trace.view].as_ref();
        if view.is_none() {
            findings.count("streams left out", 1);
        }
        view
    }

    /// An event in a message.
    pub(super) fn say(&self, event: &Event) -> String {
        format!("{} {} at {}", event.kind.word(), self.keys.texts[event.key as usize], event.rev)
    }

    pub(super) fn revisions_at(&self, rv: u64) -> &'h [Revision] {
        at(self.revisions, &self.revs, rv)
    }

    /// Whether the revision changed several keys, as the end of a lease does.
    pub(super) fn is_shared(&self, rv: u64) -> bool {
        self.shared.binary_search(&rv).is_ok()
    }
}

/// The changes that revision `rv` made; `revs` are the revision numbers of `revisions`.
pub(super) fn at<'h>(revisions: &'h [Revision], revs: &[u64], rv: u64) -> &'h [Revision] {
    let start = revs.partition_point(|rev| *rev < rv);
    let length = revs[start..].iter().take_while(|rev| **rev == rv).count();
    &revisions[start..start + length]
}

/// The revisions in `(first, last]`; all of them if they are not in order, which `recording` then reports.
fn within(revisions: &[Revision], first: i64, last: i64) -> &[Revision] {
    if !revisions.is_sorted_by_key(|revision| revision.rev) {
        return revisions;
    }
    let start = revisions.partition_point(|revision| revision.rev <= first);
    let end = revisions.partition_point(|revision| revision.rev <= last);
    revisions.get(start..end).unwrap_or_default()
}

fn wanted_by(stream: &Stream) -> Wanted<'_> {
    let selector = stream.selector.as_ref();
    (&stream.prefix, selector.map_or("", |s| &s.labels), selector.map_or("", |s| &s.fields))
}

/// A number for each view that streams need.
fn wanted(history: &History) -> BTreeMap<Wanted<'_>, usize> {
    let mut wanted: BTreeMap<Wanted<'_>, usize> = history.streams.iter().map(|s| (wanted_by(s), 0)).collect();
    for (number, place) in wanted.values_mut().enumerate() {
        *place = number;
    }
    wanted
}

/// Builds all views in one pass over the revisions, and collects the uids. A view is None if its selector or one of its
/// values cannot be evaluated.
fn build_views<'h>(prepared: &Prepared<'h>, wanted: &BTreeMap<Wanted<'_>, usize>) -> (Vec<Option<View>>, Vec<&'h str>) {
    let mut builders: Vec<Option<Builder>> = Vec::new();
    let mut programs = Vec::new();
    let mut by_prefix: HashMap<&str, Vec<usize>> = HashMap::new();
    for ((prefix, labels, fields), number) in wanted {
        let program = Program::parse(labels, fields);
        builders.push(program.is_some().then(Builder::default));
        programs.push((!labels.is_empty() || !fields.is_empty()).then_some(program).flatten());
        by_prefix.entry(prefix).or_default().push(*number);
    }
    let members = members(&prepared.keys, &by_prefix, &mut builders);
    initial_state(prepared, &members, &programs, &mut builders);
    let mut uids = Vec::with_capacity(prepared.revisions.len());
    for (place, (revision, &key)) in prepared.revisions.iter().zip(&prepared.keys.of).enumerate() {
        let meta: Option<Meta<'h>> =
            if members[key as usize].is_empty() { None } else { stored::meta(&revision.value) };
        uids.push(meta.as_ref().map_or("", |meta| meta.uid));
        for &(number, local) in &members[key as usize] {
            let Some(builder) = &mut builders[number] else { continue };
            let matches = match (&programs[number], revision.kind) {
                (_, Change::Delete) => Some(false),
                (None, Change::Put) => Some(true),
                (Some(program), Change::Put) => meta.as_ref().map(|meta| program.matches(meta)),
            };
            match matches {
                Some(matches) => builder.change(local, key, unsigned(revision.rev), super::keys::index(place), matches),
                None => builders[number] = None,
            }
        }
    }
    (builders.into_iter().map(|builder| builder.map(|builder| builder.view)).collect(), uids)
}

/// The views that each key belongs to, with its local number in each. Prefixes end with a slash, so only the parents of
/// a key are looked up.
fn members(
    keys: &Keys<'_>,
    by_prefix: &HashMap<&str, Vec<usize>>,
    builders: &mut [Option<Builder>],
) -> Vec<Vec<(usize, u32)>> {
    let of_key = |text: &&str| {
        let prefixes = text.match_indices('/').map(|(slash, _)| &text[..=slash]);
        let numbers = prefixes.filter_map(|prefix| by_prefix.get(prefix)).flatten().copied();
        numbers.filter_map(|number| Some((number, builders[number].as_mut()?.add_key()))).collect()
    };
    keys.texts.iter().map(of_key).collect()
}

/// The objects that existed before the first revision. Their values are unknown, so a selector cannot be applied.
fn initial_state(
    prepared: &Prepared<'_>,
    members: &[Vec<(usize, u32)>],
    programs: &[Option<Program>],
    builders: &mut [Option<Builder>],
) {
    let keys = &prepared.keys;
    let existing = keys.initial.iter().zip(0u32..).filter(|(rev, _)| **rev > 0).map(|(rev, key)| (*rev, key));
    let mut existing: Vec<(u64, u32)> = existing.collect();
    existing.sort_unstable();
    for (rev, key) in existing {
        for &(number, local) in &members[key as usize] {
            match &mut builders[number] {
                Some(builder) if programs[number].is_none() => {
                    builder.change(local, key, rev, super::keys::NONE, true);
                }
                view => *view = None,
            }
        }
    }
}
