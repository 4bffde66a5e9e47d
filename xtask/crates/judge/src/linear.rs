//! Decides whether the answers about one object have one order. The search is that of Wing and Gong, with Lowe's memory
//! of tried states. It is for answers that carry no resource version and therefore do not name their place in the
//! order.
//!
//! An object is a register that is absent or has a version; versions rise. Every operation takes effect at one moment
//! between its call and its return; an operation that was never answered takes effect at any later moment, or not at
//! all. The operations come from `registers`.

use std::collections::{BTreeSet, HashSet};

use model::history::Micros;

/// An operation on one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) called: Micros,
    /// None: the operation was never answered.
    pub(super) returned: Option<Micros>,
    pub(super) effect: Effect,
}

/// What happened according to the answer, or without an answer, what may have happened. Numbers are versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The object was absent and now has this version.
    Create(u64),
    /// The object existed and now has this version; it is the old version if nothing was changed.
    Write(u64),
    /// Like `Write`, but this version may have existed before: a write without a change is answered with the old
    /// version.
    Touch(u64),
    /// The object existed and is now absent; the version of the removal, if it is known.
    Delete(Option<u64>),
    Read(u64),
    /// The object was absent.
    Absent,
    /// The object existed, with any version.
    Present,
    /// Not answered: perhaps created.
    LostCreate,
    /// Not answered: perhaps written, or created.
    LostWrite,
    /// Not answered: perhaps deleted.
    LostDelete,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// An order exists.
    Linearizable,
    NotLinearizable {
        /// The longest order found, as indices of the given slice.
        ordered: Vec<usize>,
        /// The operations of which one must come next, although none can.
        blocked: Vec<usize>,
    },
    /// The search needs more than the allowed steps.
    Undecided,
}

/// The register. `after` is the highest version that it is known to have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Absent {
        after: u64,
    },
    Version(u64),
    /// Present, with the unknown version of a write that was never answered.
    Unknown {
        after: u64,
    },
}

/// Searches an order of `ops` for an object whose initial version is `initial` (None: absent). `steps` bounds the work.
pub(super) fn search(initial: Option<u64>, ops: &[Op], steps: usize) -> Found {
    Search::new(ops).run(initial.map_or(State::Absent { after: 0 }, State::Version), steps)
}

#[derive(Default)]
struct Search<'o> {
    ops: &'o [Op],
    /// Indices of `ops` by time of call.
    order: Vec<usize>,
    /// Versions that an answered write made: a write without an answer cannot have made them.
    claimed: BTreeSet<u64>,
    done: Vec<bool>,
    taken: Vec<Step>,
    longest: Vec<usize>,
    blocked: Vec<usize>,
    tried: HashSet<(Vec<u64>, State)>,
}

#[derive(Clone, Copy)]
struct Step {
    op: usize,
    /// The state before the operation.
    before: State,
    /// Where in `order` the search continues after it undid this step.
    next: usize,
}

impl<'o> Search<'o> {
    fn new(ops: &'o [Op]) -> Search<'o> {
        let mut order: Vec<usize> = (0..ops.len()).collect();
        order.sort_by_key(|&op| ops[op].called);
        let claimed = ops.iter().filter_map(|op| match op.effect {
            Effect::Create(version) | Effect::Write(version) => Some(version),
            _ => None,
        });
        Search { ops, order, claimed: claimed.collect(), done: vec![false; ops.len()], ..Search::default() }
    }

    fn run(mut self, initial: State, steps: usize) -> Found {
        let (mut state, mut from) = (initial, 0);
        for _ in 0..steps {
            let Some(horizon) = self.horizon() else { return Found::Linearizable };
            if let Some((place, after)) = self.candidate(state, from, horizon) {
                let op = self.order[place];
                self.taken.push(Step { op, before: state, next: place + 1 });
                self.done[op] = true;
                (state, from) = (after, 0);
                continue;
            }
            self.remember(horizon);
            let Some(step) = self.taken.pop() else {
                return Found::NotLinearizable { ordered: self.longest, blocked: self.blocked };
            };
            self.done[step.op] = false;
            (state, from) = (step.before, step.next);
        }
        Found::Undecided
    }

    /// An operation called after this time cannot be next: another one returned before it. None: all are answered.
    fn horizon(&self) -> Option<Micros> {
        let open = self.ops.iter().zip(&self.done).filter(|(_, done)| !**done);
        open.filter_map(|(op, _)| op.returned).min()
    }

    /// The next operation from place `from` on that can be next and leads to an untried state.
    fn candidate(&mut self, state: State, from: usize, horizon: Micros) -> Option<(usize, State)> {
        for place in from..self.order.len() {
            let op = self.order[place];
            if self.ops[op].called > horizon {
                return None;
            }
            if self.done[op] {
                continue;
            }
            let Some(after) = self.apply(state, self.ops[op].effect) else { continue };
            if self.tried.insert((self.bits(op), after)) {
                return Some((place, after));
            }
        }
        None
    }

    /// The set of completed operations and `more`.
    fn bits(&self, more: usize) -> Vec<u64> {
        let mut bits = vec![0; self.done.len().div_ceil(64)];
        for (op, _) in self.done.iter().enumerate().filter(|(op, done)| **done || *op == more) {
            bits[op / 64] |= 1 << (op % 64);
        }
        bits
    }

    fn remember(&mut self, horizon: Micros) {
        if self.blocked.is_empty() || self.taken.len() > self.longest.len() {
            self.longest = self.taken.iter().map(|step| step.op).collect();
            let open = (0..self.ops.len()).filter(|&op| !self.done[op] && self.ops[op].called <= horizon);
            self.blocked = open.collect();
        }
    }

    /// The state after the operation; None if it cannot take effect.
    fn apply(&self, state: State, effect: Effect) -> Option<State> {
        use State::{Absent, Unknown, Version};
        let present = |after: State| (!matches!(state, Absent { .. })).then_some(after);
        let last = match state {
            Absent { after } | Unknown { after } => after,
            Version(version) => version,
        };
        match (effect, state) {
            (Effect::Create(version), Absent { after }) if version > after => Some(Version(version)),
            (Effect::Write(version) | Effect::Touch(version), Version(now)) if version >= now => Some(Version(version)),
            (Effect::Write(version) | Effect::Touch(version), Unknown { after }) if version > after => {
                Some(Version(version))
            }
            (Effect::Create(_) | Effect::Write(_) | Effect::Touch(_), _) => None,
            (Effect::Delete(Some(version)), _) if version <= last => None,
            (Effect::Delete(version), _) => present(Absent { after: version.unwrap_or(last) }),
            (Effect::Read(version), Version(now)) => (version == now).then_some(state),
            (Effect::Read(version), Unknown { after }) => {
                (version > after && !self.claimed.contains(&version)).then_some(Version(version))
            }
            (Effect::Read(_), Absent { .. }) => None,
            (Effect::Absent, _) => matches!(state, Absent { .. }).then_some(state),
            (Effect::Present, _) => present(state),
            (Effect::LostCreate, Absent { after }) => Some(Unknown { after }),
            (Effect::LostCreate, _) => None,
            (Effect::LostWrite, _) => Some(Unknown { after: last }),
            (Effect::LostDelete, _) => present(Absent { after: last }),
        }
    }
}
