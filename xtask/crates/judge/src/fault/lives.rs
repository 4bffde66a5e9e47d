//! Watchers: the parts of each life together must be the store's history.

use std::collections::BTreeMap;

use model::history::{Change, Frame, FrameKind, Key, Revision};

use super::writes::Floor;
use super::{Account, Begin, Findings, Leg, Life, Violation};
use crate::keys::unsigned;
use crate::trace::say;
use crate::view::{Kind, differences};

/// Lines about a wrong list.
const DIFFERENCES: usize = 8;

pub(super) fn judge(findings: &mut Findings, account: &Account) {
    let floor = Floor::of(account);
    for life in &account.lives {
        findings.count("watchers", 1);
        let mut walk = Walk::new(account, life, &floor);
        let faults: Result<(), Violation> = life.legs.iter().try_for_each(|leg| walk.leg(findings, leg));
        match faults {
            Err(violation) => findings.add(violation),
            Ok(()) if !walk.marked => findings.add(Violation {
                message: format!(
                    "{}: it reached {} and never saw the marker that was written last",
                    life.client, walk.at
                ),
                evidence: walk.changes_around(),
            }),
            Ok(()) => {}
        }
    }
}

/// A watcher's progress through the history of its collection.
struct Walk<'a> {
    life: &'a Life,
    floor: &'a Floor,
    /// The changes of the collection.
    changes: Vec<(&'a Revision, Kind)>,
    markers: &'a [Key],
    /// The revision up to which the watcher knows everything.
    at: u64,
    /// The last message from the server.
    told: Told,
    marked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Events, bookmarks, or nothing yet.
    Change,
    /// A 410: the resource version is too old. Also the state before the first list.
    Expired,
    /// Another error, which ends the stream.
    Error,
}

impl<'a> Walk<'a> {
    fn new(account: &'a Account, life: &'a Life, floor: &'a Floor) -> Walk<'a> {
        let mut alive: BTreeMap<&Key, bool> = BTreeMap::new();
        let inside = account.revisions.iter().filter(|revision| revision.key.starts_with(&*life.prefix));
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
        Walk { life, floor, changes, markers: &account.markers, at: 0, told: Told::Expired, marked: false }
    }

    fn leg(&mut self, findings: &mut Findings, leg: &Leg) -> Result<(), Violation> {
        match &leg.begin {
            Begin::Listed { called, rv, items } => {
                findings.count("lists", 1);
                if self.told != Told::Expired {
                    return Err(self.fault("the client listed again although nothing had expired".into(), leg, 0));
                }
                self.listed(*called, *rv, items)?;
            }
            Begin::Resumed { rv } => {
                findings.count("watches resumed", 1);
                let missed = leg.frames.first().is_some_and(Frame::is_change);
                findings.count("watches resumed that had missed events", u64::from(missed));
                if *rv != self.at || self.told == Told::Expired {
                    return Err(self.fault(
                        format!("the client resumed from {rv} although it was at {}", self.at),
                        leg,
                        0,
                    ));
                }
            }
        }
        self.told = Told::Change;
        for (place, frame) in leg.frames.iter().enumerate() {
            if self.told != Told::Change {
                return Err(self.fault(format!("{} came after an ERROR", say(frame)), leg, place));
            }
            self.frame(findings, frame).map_err(|message| self.fault(message, leg, place))?;
        }
        Ok(())
    }

    /// A list must show the state at its resource version, which must not be older than a known one.
    fn listed(&mut self, called: u64, rv: u64, items: &[(Key, u64)]) -> Result<(), Violation> {
        let newest = self.floor.at(called).max(self.at);
        if rv < newest {
            let message = format!("{}: a list shows {rv} although {newest} was known before", self.life.client);
            return Err(Violation::plain(message));
        }
        let mut state: BTreeMap<&str, u64> = BTreeMap::new();
        for (revision, kind) in self.changes.iter().filter(|(revision, _)| unsigned(revision.rev) <= rv) {
            match kind {
                Kind::Deleted => state.remove(&*revision.key),
                Kind::Added | Kind::Modified => state.insert(&*revision.key, unsigned(revision.rev)),
            };
        }
        let evidence = differences(&state, items.iter().map(|(key, rv)| (&**key, *rv)), DIFFERENCES);
        if let Some(first) = evidence.first() {
            let message = format!("{}: a list at {rv} is not the store's state there: {first}", self.life.client);
            return Err(Violation { message, evidence });
        }
        self.at = rv;
        self.marked |= items.iter().any(|(key, _)| self.markers.contains(key));
        Ok(())
    }

    fn frame(&mut self, findings: &mut Findings, frame: &Frame) -> Result<(), String> {
        let next = self.changes.iter().find(|(revision, _)| unsigned(revision.rev) > self.at);
        match &frame.kind {
            FrameKind::Error { code: 410, .. } => {
                findings.count("watches expired", 1);
                self.told = Told::Expired;
            }
            FrameKind::Error { .. } => {
                findings.count("watches ended by another error", 1);
                self.told = Told::Error;
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
                self.marked |= self.markers.contains(&frame.key);
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
        if frame.key != revision.key || Kind::of(&frame.kind) != Some(kind) {
            return Err(format!("{} came, but it was {} {}", say(frame), kind.word(), revision.key));
        }
        Ok(())
    }

    /// Evidence: the last changes that the client knew, and the next ones.
    fn changes_around(&self) -> Vec<String> {
        let known = self.changes.partition_point(|(revision, _)| unsigned(revision.rev) <= self.at);
        let first = known.saturating_sub(2);
        let line = |(place, (revision, kind)): (usize, &(&Revision, Kind))| {
            let fate = if place < known { "known" } else { "not known yet" };
            format!("store: {} {} at {}, {fate}", kind.word(), revision.key, revision.rev)
        };
        self.changes.iter().enumerate().skip(first).take(known - first + 3).map(line).collect()
    }

    /// Adds the changes around the client's position, and the frames around the wrong one.
    fn fault(&self, message: String, leg: &Leg, place: usize) -> Violation {
        let number = self.life.legs.iter().position(|one| one == leg).map_or(0, |at| at + 1);
        let begin = match &leg.begin {
            Begin::Listed { rv, .. } => format!("listed at {rv}"),
            Begin::Resumed { rv } => format!("resumed from {rv}"),
        };
        let mut evidence = vec![format!("watch {number} of {}, {begin}", self.life.legs.len())];
        evidence.extend(self.changes_around());
        let first = place.saturating_sub(2);
        let shown = leg.frames.iter().enumerate().skip(first).take(place - first + 2);
        evidence.extend(shown.map(|(place, frame)| format!("frame {}: {}", place + 1, say(frame))));
        Violation { message: format!("{}: {message}", self.life.client), evidence }
    }
}
