//! Keys as small numbers, and the changes of each key in order. Built once; events then store a number instead of text.

use std::collections::HashMap;

use model::history::{Change, History, Revision};

/// No index: a frame without an event, an event without a successor.
pub(super) const NONE: u32 = u32::MAX;

/// Every key that the store ever held. Ids follow the order of first appearance.
#[derive(Default)]
pub(super) struct Keys<'h> {
    revisions: &'h [Revision],
    pub(super) texts: Vec<&'h str>,
    ids: HashMap<&'h str, u32>,
    /// The key of each revision.
    pub(super) of: Vec<u32>,
    /// `mod_revision` at the begin of the recording by key; 0 if the key did not exist.
    pub(super) initial: Vec<u64>,
    /// The first index of each key in `changes`, and the length of `changes` at the end.
    starts: Vec<u32>,
    /// Indices of revisions, grouped by key, in order.
    changes: Vec<u32>,
    /// The revision numbers of `changes`, for binary search.
    change_revs: Vec<u64>,
    /// All keys sorted as text, which is the order of lists.
    sorted: Vec<u32>,
}

impl<'h> Keys<'h> {
    pub(super) fn new(history: &'h History, revisions: &'h [Revision]) -> Keys<'h> {
        let mut keys = Keys { revisions, of: Vec::with_capacity(revisions.len()), ..Keys::default() };
        for snapshot in &history.meta.initial {
            let id = keys.intern(&snapshot.key);
            keys.initial[id as usize] = unsigned(snapshot.mod_rev);
        }
        for revision in revisions {
            let id = keys.intern(&revision.key);
            keys.of.push(id);
        }
        keys.group();
        let revs = keys.changes.iter().map(|&change| unsigned(revisions[change as usize].rev));
        keys.change_revs = revs.collect();
        keys.sorted = (0..index(keys.texts.len())).collect();
        keys.sorted.sort_unstable_by_key(|key| keys.texts[*key as usize]);
        keys
    }

    fn intern(&mut self, key: &'h str) -> u32 {
        let next = index(self.texts.len());
        let id = *self.ids.entry(key).or_insert(next);
        if id == next {
            self.texts.push(key);
            self.initial.push(0);
        }
        id
    }

    /// Sorts the revisions by key, keeping their order.
    fn group(&mut self) {
        let mut starts = vec![0u32; self.texts.len() + 1];
        for &key in &self.of {
            starts[key as usize + 1] += 1;
        }
        for key in 1..starts.len() {
            starts[key] += starts[key - 1];
        }
        let mut next = starts.clone();
        self.changes = vec![0; self.of.len()];
        for (revision, &key) in self.of.iter().enumerate() {
            let place = &mut next[key as usize];
            self.changes[*place as usize] = index(revision);
            *place += 1;
        }
        self.starts = starts;
    }

    pub(super) fn id(&self, key: &str) -> Option<u32> {
        self.ids.get(key).copied()
    }

    /// The number of changes of the key up to `rev`.
    fn changes_until(&self, key: u32, rev: u64) -> usize {
        self.change_revs[self.range(key)].partition_point(|change| *change <= rev)
    }

    fn range(&self, key: u32) -> std::ops::Range<usize> {
        let key = key as usize;
        self.starts[key] as usize..self.starts[key + 1] as usize
    }

    fn changes_from(&self, key: u32, first: usize) -> impl Iterator<Item = &'h Revision> {
        self.changes[self.range(key)][first..].iter().map(|&change| &self.revisions[change as usize])
    }

    /// The changes of the key after `rev`, in order.
    pub(super) fn changes_after(&self, key: u32, rev: u64) -> impl Iterator<Item = &'h Revision> {
        self.changes_from(key, self.changes_until(key, rev))
    }

    /// The same, with up to `earlier` changes before them.
    pub(super) fn changes_around(&self, key: u32, rev: u64, earlier: usize) -> impl Iterator<Item = &'h Revision> {
        self.changes_from(key, self.changes_until(key, rev).saturating_sub(earlier))
    }

    /// The last change of the key up to `rev`.
    pub(super) fn last_change(&self, key: u32, rev: u64) -> Option<&'h Revision> {
        self.changes_from(key, self.changes_until(key, rev).checked_sub(1)?).next()
    }

    /// The objects below `prefix` at `rev`, in the order of their keys, each with its revision.
    pub(super) fn state<'k>(&'k self, prefix: &'k str, rev: u64) -> impl Iterator<Item = (&'h str, u64)> + use<'h, 'k> {
        let start = self.sorted.partition_point(|key| self.texts[*key as usize] < prefix);
        let below = self.sorted[start..].iter().take_while(move |key| self.texts[**key as usize].starts_with(prefix));
        below.filter_map(move |&key| Some((self.texts[key as usize], self.version_at(key, rev)?)))
    }

    /// `mod_revision` of a key at `rev`; None if it does not exist there.
    pub(super) fn version_at(&self, key: u32, rev: u64) -> Option<u64> {
        match self.last_change(key, rev) {
            Some(last) => (last.kind == Change::Put).then(|| unsigned(last.rev)),
            None => Some(self.initial[key as usize]).filter(|initial| *initial > 0),
        }
    }
}

/// Revisions are positive; a negative one from a broken recording becomes 0, which no judge accepts.
pub(super) fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

/// An index in four bytes instead of eight: a history stores a hundred thousand of them.
pub(super) fn index(place: usize) -> u32 {
    u32::try_from(place).expect("a history has fewer than four billion entries")
}
