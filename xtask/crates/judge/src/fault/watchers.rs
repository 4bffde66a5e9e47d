//! Watchers: the segments of each watcher together must be the store's history.

use std::collections::BTreeMap;

use model::history::{Change, Frame, FrameKind, Key, Revision};

use super::writes::Acknowledged;
use super::{Begin, FaultHistory, Findings, Violation, WatchSegment, Watcher};
use crate::keys::unsigned;
use crate::trace::say;
use crate::view::{Kind, differences};

pub(super) fn judge(findings: &mut Findings, history: &FaultHistory) {
    let acknowledged = Acknowledged::of(history);
    for watcher in &history.watchers {
        findings.count("watchers", 1);
        let mut progress = Progress::new(history, watcher, &acknowledged);
        let faults: Result<(), Violation> =
            watcher.segments.iter().try_for_each(|segment| progress.segment(findings, segment));
        match faults {
            Err(violation) => findings.add(violation),
            Ok(()) if !progress.saw_marker => findings.add(Violation {
                message: format!(
                    "{}: it reached {} and never saw the marker that was written last",
                    watcher.client, progress.at
                ),
                evidence: progress.changes_around(),
            }),
            Ok(()) => {}
        }
    }
}

/// The progress of a watcher through the history of its collection.
struct Progress<'a> {
    watcher: &'a Watcher,
    acknowledged: &'a Acknowledged,
    /// The changes of the collection.
    changes: Vec<(&'a Revision, Kind)>,
    markers: &'a [Key],
    /// The revision up to which the watcher knows everything.
    at: u64,
    /// The last message from the server.
    last_message: LastMessage,
    saw_marker: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastMessage {
    /// Events, bookmarks, or nothing yet.
    Change,
    /// A 410: the resource version is too old. Also the state before the first list.
    Expired,
    /// Another error, which ends the stream.
    Error,
}

impl<'a> Progress<'a> {
    fn new(history: &'a FaultHistory, watcher: &'a Watcher, acknowledged: &'a Acknowledged) -> Progress<'a> {
        let mut alive: BTreeMap<&Key, bool> = BTreeMap::new();
        let inside = history.revisions.iter().filter(|revision| revision.key.starts_with(&*watcher.prefix));
        let changes = inside.map(|revision| {
            let before = alive.insert(&revision.key, revision.kind == Change::Put).unwrap_or(false);
            let kind = match (revision.kind, before) {
                (Change::Delete, _) => Kind::Deleted,
                (Change::Put, false) => Kind::Added,
                (Change::Put, true) => Kind::Modified,
            };
            (revision, kind)
        });
        let changes = changes.collect();
        Progress {
            watcher,
            acknowledged,
            changes,
            markers: &history.markers,
            at: 0,
            last_message: LastMessage::Expired,
            saw_marker: false,
        }
    }

    fn segment(&mut self, findings: &mut Findings, segment: &WatchSegment) -> Result<(), Violation> {
        match &segment.begin {
            Begin::Listed { called, rv, items } => {
                findings.count("lists", 1);
                if self.last_message != LastMessage::Expired {
                    return Err(self.fault("the client listed again although nothing had expired".into(), segment, 0));
                }
                self.listed(*called, *rv, items)?;
            }
            Begin::Resumed { rv } => {
                findings.count("watches resumed", 1);
                let missed = segment.frames.first().is_some_and(Frame::is_change);
                findings.count("watches resumed that had missed events", u64::from(missed));
                if *rv != self.at || self.last_message == LastMessage::Expired {
                    return Err(self.fault(
                        format!("the client resumed from {rv} although it was at {}", self.at),
                        segment,
                        0,
                    ));
                }
            }
        }
        self.last_message = LastMessage::Change;
        for (place, frame) in segment.frames.iter().enumerate() {
            if self.last_message != LastMessage::Change {
                return Err(self.fault(format!("{} came after an ERROR", say(frame)), segment, place));
            }
            self.frame(findings, frame).map_err(|message| self.fault(message, segment, place))?;
        }
        Ok(())
    }

    /// A list must show the state at its resource version, which must not be older than a known one.
    fn listed(&mut self, called: u64, rv: u64, items: &[(Key, u64)]) -> Result<(), Violation> {
        let newest = self.acknowledged.at(called).max(self.at);
        if rv < newest {
            let message = format!("{}: a list shows {rv} although {newest} was known before", self.watcher.client);
            return Err(Violation::plain(message));
        }
        let mut state: BTreeMap<&str, u64> = BTreeMap::new();
        for (revision, kind) in self.changes.iter().filter(|(revision, _)| unsigned(revision.rev) <= rv) {
            match kind {
                Kind::Deleted => state.remove(&*revision.key),
                Kind::Added | Kind::Modified => state.insert(&*revision.key, unsigned(revision.rev)),
            };
        }
        let evidence = differences(&state, items.iter().map(|(key, rv)| (&**key, *rv)));
        if let Some(first) = evidence.first() {
            let message = format!("{}: a list at {rv} is not the store's state there: {first}", self.watcher.client);
            return Err(Violation { message, evidence });
        }
        self.at = rv;
        self.saw_marker |= items.iter().any(|(key, _)| self.markers.contains(key));
        Ok(())
    }

    fn frame(&mut self, findings: &mut Findings, frame: &Frame) -> Result<(), String> {
        let next = self.changes.iter().find(|(revision, _)| unsigned(revision.rev) > self.at);
        match &frame.kind {
            FrameKind::Error { code: 410, .. } => {
                findings.count("watches expired", 1);
                self.last_message = LastMessage::Expired;
            }
            FrameKind::Error { .. } => {
                findings.count("watches ended by another error", 1);
                self.last_message = LastMessage::Error;
            }
            FrameKind::Unknown { name } => return Err(format!("an event of the unknown type `{name}` came")),
            FrameKind::Bookmark { .. } => {
                findings.count("bookmarks", 1);
                if frame.rv < self.at {
                    return Err(format!("{} came after {}", say(frame), self.at));
                }
                if let Some((skipped, _)) = next.filter(|(revision, _)| unsigned(revision.rev) <= frame.rv) {
                    return Err(format!("{} came, but {} of {} did not", say(frame), skipped.rev, skipped.key));
                }
                self.at = frame.rv;
            }
            FrameKind::Added | FrameKind::Modified | FrameKind::Deleted => {
                findings.count("events", 1);
                self.change(frame, next.copied())?;
                self.at = frame.rv;
                self.saw_marker |= self.markers.contains(&frame.key);
            }
        }
        Ok(())
    }

    /// An event must be the very next change.
    fn change(&self, frame: &Frame, next: Option<(&Revision, Kind)>) -> Result<(), String> {
        if frame.rv <= self.at {
            return Err(format!("{} came although everything up to {} had come", say(frame), self.at));
        }
        let exists = self.changes.iter().any(|(revision, _)| unsigned(revision.rev) == frame.rv);
        let Some((revision, kind)) = next.filter(|_| exists) else {
            return Err(format!("{} came, a revision that the store does not have", say(frame)));
        };
        if frame.rv != unsigned(revision.rev) {
            let (word, key, rev) = (kind.word(), &revision.key, revision.rev);
            return Err(format!("{} came, but {word} {key} at {rev}, which is before it, did not", say(frame)));
        }
        if frame.key != revision.key || frame.kind.word() != kind.word() {
            return Err(format!("{} came, but it was {} {}", say(frame), kind.word(), revision.key));
        }
        Ok(())
    }

    /// Evidence: the last changes that the client knew, and the next ones.
    fn changes_around(&self) -> Vec<String> {
        let known = self.changes.partition_point(|(revision, _)| unsigned(revision.rev) <= self.at);
        let first = known.saturating_sub(2);
        let line = |(place, (revision, kind)): (usize, &(&Revision, Kind))| {
            let result = if place < known { "known" } else { "not known yet" };
            format!("store: {} {} at {}, {result}", kind.word(), revision.key, revision.rev)
        };
        self.changes.iter().enumerate().skip(first).take(known - first + 3).map(line).collect()
    }

    /// Adds the changes around the client's position, and the frames around the wrong one.
    fn fault(&self, message: String, segment: &WatchSegment, place: usize) -> Violation {
        let number = self.watcher.segments.iter().position(|one| one == segment).map_or(0, |at| at + 1);
        let begin = match &segment.begin {
            Begin::Listed { rv, .. } => format!("listed at {rv}"),
            Begin::Resumed { rv } => format!("resumed from {rv}"),
        };
        let mut evidence = vec![format!("watch {number} of {}, {begin}", self.watcher.segments.len())];
        evidence.extend(self.changes_around());
        let first = place.saturating_sub(2);
        let shown = segment.frames.iter().enumerate().skip(first).take(place - first + 2);
        evidence.extend(shown.map(|(place, frame)| format!("frame {}: {}", place + 1, say(frame))));
        Violation { message: format!("{}: {message}", self.watcher.client), evidence }
    }
}
