//! Checks the recording itself: every other judge compares with it.
//!
//! Revisions come from the raw store watch. The judges can rely on them because they follow from each other and lead to
//! the result of a Range at the end.

use std::collections::BTreeMap;

use model::history::{Change, History, Key, Operation, Revision, Snapshot};

use super::keys::{Keys, unsigned};
use super::{Findings, Judgement, Violation};

/// A verdict about a store needs at least this many revisions.
const MIN_REVISIONS: u64 = 10;

/// The state of a key while the revisions are replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// Last revision, also of the tombstone; 0 if there never was one.
    last_rev: i64,
    create_rev: i64,
    version: i64,
    alive: bool,
}

/// Judges the recording on its own. The second result are changes that came without their previous value, from a store
/// that counts revisions and versions: these identify the previous value, so the fault of the store leaves nothing in
/// doubt.
pub(super) fn sound(history: &History, revisions: &[Revision], keys: &Keys<'_>) -> (Judgement, Vec<Violation>) {
    let mut findings = Findings::default();
    let mut missing_prev_kv = Findings::default();
    findings.count("revisions", revisions.len() as u64);
    findings.count("keys", keys.texts.len() as u64);
    let meta = &history.meta;
    if meta.last_rev < meta.first_rev || meta.last_rev == 0 {
        findings.add(Violation::plain(format!(
            "the recording begins at revision {} and ends at {}: it was not completed",
            meta.first_rev, meta.last_rev
        )));
        return (findings.0, Vec::new());
    }
    order(&mut findings, history);
    replay(&mut findings, &mut missing_prev_kv, history, revisions, keys);
    findings.at_least("revisions", MIN_REVISIONS);
    (findings.0, missing_prev_kv.0.violations)
}

/// Revisions rise; one revision changes a key once.
fn order(findings: &mut Findings, history: &History) {
    for pair in history.revisions.windows(2) {
        let [earlier, later] = pair else { continue };
        if later.rev < earlier.rev {
            findings.add(Violation::plain(format!(
                "the raw watch delivered revision {} ({}) after {} ({})",
                later.rev, later.key, earlier.rev, earlier.key
            )));
        }
    }
    let twice = |group: &[Revision]| {
        let mut names: Vec<&Key> = group.iter().map(|revision| &revision.key).collect();
        names.sort();
        names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].to_string())
    };
    for group in history.revisions.chunk_by(|a, b| a.rev == b.rev).filter(|group| group.len() > 1) {
        if let Some(key) = twice(group) {
            let rev = group[0].rev;
            findings.add(Violation::plain(format!("the raw watch delivered revision {rev} of {key} twice")));
        }
    }
}

/// Each change must follow from the state before it, and the last state must be what the store showed at the end.
fn replay(
    findings: &mut Findings,
    missing_prev_kv: &mut Findings,
    history: &History,
    revisions: &[Revision],
    keys: &Keys<'_>,
) {
    let mut states = vec![State::default(); keys.texts.len()];
    for snapshot in &history.meta.initial {
        if let Some(key) = keys.id(&snapshot.key) {
            states[key as usize] = State::of(snapshot);
        }
    }
    // kine reports version 0 everywhere and leaves gaps between revisions; etcd does neither.
    let told = || revisions.iter().any(|revision| revision.version > 0);
    let versioned = history.meta.versioned.unwrap_or_else(told);
    let mut previous = history.meta.first_rev;
    for (revision, &key) in revisions.iter().zip(&keys.of) {
        // Revision 1 of etcd is the empty store.
        if revision.rev > previous.saturating_add(1) && revision.rev > 2 {
            // An untrusted history may contain any numbers; one gap may be longer than an i64.
            findings.count("revision gaps", unsigned(revision.rev.saturating_sub(previous).saturating_sub(1)));
            if versioned {
                findings.add(Violation::plain(format!(
                    "the raw watch delivered no change between revisions {previous} and {}",
                    revision.rev
                )));
            }
        }
        previous = previous.max(revision.rev);
        let state = &mut states[key as usize];
        let compacted = history.meta.compactions.iter().any(|(_, compacted)| *compacted >= state.last_rev);
        let violation = |problem: &str| Violation {
            message: format!("revision {} of {}: {problem}", revision.rev, revision.key),
            evidence: vec![format!("before: {}", state.describe()), format!("recorded: {}", describe(revision))],
        };
        if let Some(found) = problem(state, revision, versioned, compacted) {
            // The only error is a missing previous value, which a compaction might have removed.
            if versioned && problem(state, revision, versioned, true).is_none() {
                missing_prev_kv.add(violation("its previous value is missing"));
            } else {
                findings.add(violation(&found));
            }
        }
        *state = State {
            last_rev: revision.rev,
            create_rev: revision.create_rev,
            version: revision.version,
            alive: revision.kind == Change::Put,
        };
    }
    if versioned && previous < history.meta.last_rev && previous > 0 {
        let last = history.meta.last_rev;
        findings.add(Violation::plain(format!(
            "the raw watch delivered no change between revision {previous} and the end, {last}"
        )));
    }
    compare_with_end(findings, &history.meta.last, &states, keys, versioned);
}

/// Why the change cannot follow from the state.
fn problem(state: &State, revision: &Revision, versioned: bool, compacted: bool) -> Option<String> {
    let expected_prev = if state.alive { state.last_rev } else { 0 };
    if revision.prev_rev != expected_prev && !(revision.prev_rev == 0 && compacted) {
        return Some(format!("its previous value is of revision {}, not {expected_prev}", revision.prev_rev));
    }
    match (revision.kind, state.alive) {
        (Change::Delete, false) => return Some("a key that does not exist was deleted".into()),
        (Change::Delete, true) => return None,
        (Change::Put, false) if revision.create_rev != revision.rev => {
            return Some(format!("a new key says that it was created at {}", revision.create_rev));
        }
        (Change::Put, true) if revision.create_rev != state.create_rev => {
            return Some(format!("it was created at {}, not {}", state.create_rev, revision.create_rev));
        }
        (Change::Put, _) => {}
    }
    // In 128 bits, because the largest version has no successor in 64.
    let expected = if state.alive { i128::from(state.version) + 1 } else { 1 };
    (versioned && i128::from(revision.version) != expected)
        .then(|| format!("its version is {}, not {expected}", revision.version))
}

fn compare_with_end(findings: &mut Findings, last: &[Snapshot], states: &[State], keys: &Keys<'_>, versioned: bool) {
    let mut expected: BTreeMap<&str, &State> =
        keys.texts.iter().copied().zip(states).filter(|(_, state)| state.alive).collect();
    for snapshot in last {
        let Some(state) = expected.remove(&*snapshot.key) else {
            findings.add(Violation::plain(format!(
                "the store holds {} (revision {}) at the end, which the raw watch did not deliver",
                snapshot.key, snapshot.mod_rev
            )));
            continue;
        };
        let shown = State::of(snapshot);
        if *state != (State { version: if versioned { shown.version } else { state.version }, ..shown }) {
            findings.add(Violation {
                message: format!("the end state of {} is not what the raw watch led to", snapshot.key),
                evidence: vec![format!("raw watch: {}", state.describe()), format!("store: {}", shown.describe())],
            });
        }
    }
    for (key, state) in expected {
        findings.add(Violation::plain(format!(
            "the store does not hold {key} at the end; the raw watch led to revision {}",
            state.last_rev
        )));
    }
}

impl State {
    fn of(snapshot: &Snapshot) -> State {
        let Snapshot { create_rev, mod_rev: last_rev, version, .. } = *snapshot;
        State { last_rev, create_rev, version, alive: true }
    }

    fn describe(&self) -> String {
        if self.alive {
            format!("mod_revision {}, create_revision {}, version {}", self.last_rev, self.create_rev, self.version)
        } else {
            "no such key".into()
        }
    }
}

fn describe(revision: &Revision) -> String {
    let kind = match revision.kind {
        Change::Put if revision.create_rev == revision.rev => "create",
        Change::Put => "put",
        Change::Delete => "delete",
    };
    format!(
        "{kind} {} at {} (version {}, previous {})",
        revision.key, revision.rev, revision.version, revision.prev_rev
    )
}

/// A change, as evidence.
pub(super) fn history_line(revision: &Revision) -> String {
    format!("history: {}", describe(revision))
}

/// The operation's name in a message.
pub(super) fn say(operation: &Operation) -> String {
    let question = if operation.query.is_empty() { "" } else { "?" };
    format!(
        "{:?} {}{question}{} by {} (sent at {} µs, answered at {} µs)",
        operation.verb,
        operation.key.as_ref().unwrap_or(&operation.prefix),
        operation.query,
        operation.client,
        operation.called,
        operation.returned
    )
}
