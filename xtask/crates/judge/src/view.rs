//! A collection behind a selector: the expected events, and the state at any revision.
//!
//! A view is built once for each (prefix, selector) that occurs; all streams and lists with it share it.

use std::collections::BTreeMap;

use super::keys::{Keys, NONE, index};

/// The event type that a watch must send for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The object did not match before and matches now.
    Added,
    Modified,
    /// The object was deleted, or it matched before and no longer does.
    Deleted,
}

/// An event that every watch of the view must deliver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) rev: u64,
    pub(super) key: u32,
    /// Index of the revision whose value the event carries; NONE if it is older than the recording.
    pub(super) stored: u32,
    /// The next event of the same key in this view; NONE for the last one.
    pub(super) next: u32,
    pub(super) kind: Kind,
}

#[derive(Default)]
pub(super) struct View {
    /// Sorted by revision. The objects that existed when the recording began come first, as ADDED.
    pub(super) events: Vec<Event>,
    /// Number of objects after each event.
    alive: Vec<u32>,
}

/// A view under construction. Keys have dense local numbers here.
#[derive(Default)]
pub(super) struct Builder {
    pub(super) view: View,
    keys: Vec<Local>,
    alive: u32,
}

#[derive(Clone, Copy)]
struct Local {
    last_event: u32,
    /// The revision of the last matching value.
    stored: u32,
    matches: bool,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Added => "ADDED",
            Kind::Modified => "MODIFIED",
            Kind::Deleted => "DELETED",
        }
    }
}

impl Builder {
    /// A number for the next key.
    pub(super) fn add_key(&mut self) -> u32 {
        self.keys.push(Local { last_event: NONE, stored: NONE, matches: false });
        index(self.keys.len() - 1)
    }

    /// A change of the key; `matches` says whether the selector matches the object after it (false for a delete).
    pub(super) fn change(&mut self, local: u32, key: u32, rev: u64, stored: u32, matches: bool) {
        let state = &mut self.keys[local as usize];
        let before = std::mem::replace(&mut state.matches, matches);
        let kind = match (before, matches) {
            (false, true) => Kind::Added,
            (true, true) => Kind::Modified,
            (true, false) => Kind::Deleted,
            (false, false) => return,
        };
        let place = index(self.view.events.len());
        if let Some(previous) = self.view.events.get_mut(state.last_event as usize) {
            previous.next = place;
        }
        state.last_event = place;
        // The event for an object that no longer matches carries its last matching content.
        let stored = if matches { stored } else { state.stored };
        state.stored = stored;
        match kind {
            Kind::Added => self.alive += 1,
            Kind::Modified => {}
            Kind::Deleted => self.alive -= 1,
        }
        self.view.events.push(Event { rev, key, stored, next: NONE, kind });
        self.view.alive.push(self.alive);
    }
}

impl View {
    /// The position of the first event after `rev`.
    pub(super) fn after(&self, rev: u64) -> usize {
        self.events.partition_point(|event| event.rev <= rev)
    }

    /// The position of the first event at `rev` or after it.
    pub(super) fn at(&self, rev: u64) -> usize {
        self.events.partition_point(|event| event.rev < rev)
    }

    /// The event of `key` at exactly `rv`; `near` is its probable position.
    pub(super) fn find(&self, keys: &Keys<'_>, key: &str, rv: u64, near: usize) -> Option<usize> {
        let is_it = |event: &Event| event.rev == rv && keys.texts[event.key as usize] == key;
        if self.events.get(near).is_some_and(is_it) {
            return Some(near);
        }
        let start = self.at(rv);
        let same = self.events[start..].iter().take_while(|event| event.rev == rv);
        same.enumerate().find(|(_, event)| is_it(event)).map(|(offset, _)| start + offset)
    }

    /// Number of objects before the event at `position`.
    fn alive_before(&self, position: usize) -> u64 {
        position.checked_sub(1).map_or(0, |last| u64::from(self.alive[last]))
    }

    /// The revision of the event that ended the version that `event` made; `u64::MAX` if there is none.
    pub(super) fn ends(&self, event: usize) -> u64 {
        match self.events[event].next {
            NONE => u64::MAX,
            next => self.events[next as usize].rev,
        }
    }

    /// Whether all of the given events were part of one state at `high` or earlier.
    pub(super) fn coexist(&self, found: &[usize], high: u64) -> bool {
        let begin = found.iter().map(|&event| self.events[event].rev).max().unwrap_or(0);
        let end = found.iter().map(|&event| self.ends(event)).min().unwrap_or(u64::MAX);
        let no_deletes = found.iter().all(|&event| self.events[event].kind != Kind::Deleted);
        no_deletes && begin < end && begin <= high
    }

    /// The latest revision in `low..=high` whose state consists of exactly the given events.
    pub(super) fn state_with(&self, found: &[usize], low: u64, high: u64) -> Option<u64> {
        let mut low = low;
        let mut high = high;
        for &event in found {
            if self.events[event].kind == Kind::Deleted {
                return None;
            }
            low = low.max(self.events[event].rev);
            high = high.min(self.ends(event) - 1);
        }
        // Between two events nothing changes: check each range between events once, from the latest to the earliest.
        let mut position = self.after(high);
        while low <= high {
            if self.alive_before(position) == found.len() as u64 {
                return Some(high);
            }
            let previous = self.events.get(position.checked_sub(1)?)?.rev;
            high = previous.checked_sub(1)?;
            position = self.at(previous);
        }
        None
    }

    /// Keys with their revisions at `rev`. Walks the whole view, so it is for messages and pages only.
    pub(super) fn state_at<'h>(&self, keys: &Keys<'h>, rev: u64) -> BTreeMap<&'h str, u64> {
        let mut state = BTreeMap::new();
        for event in &self.events[..self.after(rev)] {
            let key = keys.texts[event.key as usize];
            match event.kind {
                Kind::Added | Kind::Modified => {
                    state.insert(key, event.rev);
                }
                Kind::Deleted => {
                    state.remove(key);
                }
            }
        }
        state
    }
}

/// The differences between the received items and the state that they claim to be, one line each.
pub(super) fn differences<'a>(state: &BTreeMap<&str, u64>, items: impl Iterator<Item = (&'a str, u64)>) -> Vec<String> {
    const SHOWN: usize = 8;
    let mut seen = BTreeMap::new();
    let mut lines = Vec::new();
    for (key, rv) in items {
        if seen.insert(key, rv).is_some() {
            lines.push(format!("{key} is there twice"));
        }
        match state.get(key) {
            Some(&stored) if stored == rv => {}
            Some(stored) => lines.push(format!("{key} is there at {rv}; the store had it at {stored}")),
            None => lines.push(format!("{key} is there at {rv}; the store did not have it")),
        }
    }
    let missing = state.iter().filter(|(key, _)| !seen.contains_key(*key));
    lines.extend(missing.map(|(key, rv)| format!("{key} is missing; the store had it at {rv}")));
    let hidden = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    if hidden > 0 {
        lines.push(format!("… and {hidden} more differences"));
    }
    lines
}
