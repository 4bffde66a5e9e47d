//! Judges: pure functions from a recorded history to the places where a guarantee was broken. They use no clock and no
//! network.
//!
//! A judge counts what it exercised; a guarantee that was not exercised never passes. All judges of a history share one
//! [`Prepared`]; the functions that take only a [`History`] are for callers that need a single judge. If a recording is
//! not sound, only [`truth`] judges it; every other judge reports "not exercised".
//!
//! | file | holds |
//! | --- | --- |
//! | `prepared`, `keys`, `view`, `trace`, `time_bounds` | the prepared history: expected and delivered events, bounds |
//! | `decode` | stored bytes: their encoding, the protobuf envelope, metadata |
//! | `decrypt` | encrypted stored bytes: provider, key, envelope, plaintext |
//! | `selector`, `query`, `stored` | readers of selectors, queries and stored values |
//! | `recording`, `writes` | the recording itself, and the answers to writes |
//! | `content`, `order`, `gaps`, `bookmarks`, `agree` | watch streams |
//! | `excerpt` | the excerpt of the history that shows what is wrong with a stream |
//! | `lists`, `gets` | reads |
//! | `registers`, `linear` | answers without a resource version, and the search for an order of them |
//! | `generate` | histories of a correct server, for tests and for the benchmark |

pub mod decode;
pub mod decrypt;
pub mod generate;
pub mod value_dump;

mod agree;
mod bookmarks;
mod content;
mod excerpt;
pub mod fault;
#[doc(hidden)]
pub mod fuzzing;
mod gaps;
mod gets;
mod keys;
pub mod linear;
mod lists;
mod order;
mod prepared;
mod query;
mod recording;
mod registers;
mod run_judge;
mod selector;
mod stored;
#[cfg(test)]
mod tests;
mod time_bounds;
mod trace;
mod view;
mod writes;

use std::collections::BTreeMap;

use model::Outcome;
use model::history::History;

pub use prepared::Prepared;
pub use run_judge::RunJudge;

/// The result of one judge on one history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    pub violations: Vec<Violation>,
    /// How much was examined, by name: `events`, `streams`, `lists`.
    pub exercised: BTreeMap<String, u64>,
    /// Why the history does not exercise the guarantee enough, if it does not.
    pub not_exercised: Option<String>,
}

/// One place where the guarantee was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The observation, in one sentence.
    pub message: String,
    /// The shortest excerpt of the history that shows it, one line each.
    pub evidence: Vec<String>,
}

/// A judge.
pub type Judge = fn(&History) -> Judgement;

/// How many violations a verdict shows: a reader needs the first ones.
const SHOWN: usize = 5;

/// Violations beyond this number are counted, but not kept.
const KEPT: usize = 100;

/// A judge of a prepared history.
pub type PreparedJudge = fn(&Prepared<'_>) -> Judgement;

/// Every judge by the id of its check, or of the suite's own case. `suite.truth` comes first.
pub static JUDGES: &[(&str, PreparedJudge)] = &[
    ("suite.truth", truth_and_missing_prev_kv),
    ("suite.writes", writes::writes),
    ("watch.matches-etcd-history", content::matches_history),
    ("watch.ordered", order::ordered),
    ("watch.unique", order::unique),
    ("watch.reliable", gaps::reliable),
    ("watch.resumable", gaps::resumable),
    ("watch.bookmark", bookmarks::bookmark),
    ("watch.delete-rv", content::delete_rv),
    ("watch.concurrent-agree", agree::concurrent_agree),
    ("rv.list-is-store-revision", lists::store_revision),
    ("list.match-exact", lists::match_exact),
    ("list.match-not-older", lists::match_not_older),
    ("list.rv-zero", lists::rv_zero),
    ("rv.get-unset-linearizable", gets::unset_linearizable),
    ("rv.get-not-older", gets::not_older),
    ("rv.get-zero-any", gets::zero_any),
    ("cc.linearizable-history", registers::linearizable),
];

/// Missing previous values are reported only if the recording is sound otherwise: they may be an expected failure, but
/// an unsound recording never is.
fn truth_and_missing_prev_kv(prepared: &Prepared<'_>) -> Judgement {
    let mut judgement = prepared.recording.clone();
    if judgement.violations.is_empty() {
        judgement.violations.clone_from(&prepared.missing_prev_kv);
    }
    judgement
}

/// Runs every judge. Prepares the history once.
pub fn judge_all(history: &History) -> Vec<(&'static str, Judgement)> {
    let prepared = Prepared::new(history);
    JUDGES.iter().map(|(id, judge)| (*id, judge_prepared(&prepared, *judge, *id == "suite.truth"))).collect()
}

/// The judgement of the judge with this id; None if the id is unknown.
pub fn judge(prepared: &Prepared<'_>, id: &str) -> Option<Judgement> {
    let (id, judge) = JUDGES.iter().find(|(known, _)| *known == id)?;
    Some(judge_prepared(prepared, *judge, *id == "suite.truth"))
}

fn judge_prepared(prepared: &Prepared<'_>, judge: PreparedJudge, judges_recording: bool) -> Judgement {
    match prepared.recording.violations.first() {
        Some(first) if !judges_recording => Judgement {
            not_exercised: Some(format!("the recording is not sound: {}", first.message)),
            ..Judgement::default()
        },
        _ => judge(prepared),
    }
}

/// For each judge, a function of only a history, for callers that need a single judge.
macro_rules! alone {
    ($($(#[$doc:meta])* $name:ident: $id:literal;)*) => {
        $($(#[$doc])* pub fn $name(history: &History) -> Judgement {
            judge(&Prepared::new(history), $id).expect("the id is in the table of judges")
        })*
    };
}

alone! {
    /// Each revision follows from the one before, and the last one leads to the state at the end.
    truth: "suite.truth";
    /// Every answered write is in the history under the resource version of its answer.
    writes: "suite.writes";
    /// Every stream is exactly the store's history of its prefix and selector.
    watch_matches_history: "watch.matches-etcd-history";
    /// Resource versions rise within a stream.
    watch_ordered: "watch.ordered";
    /// No (key, resource version) pair occurs twice on a stream.
    watch_unique: "watch.unique";
    /// Nothing between two delivered events is skipped.
    watch_reliable: "watch.reliable";
    /// A stream that begins after x begins with the first change after x.
    watch_resumable: "watch.resumable";
    /// Bookmarks agree with the delivered events, and name revisions that existed.
    watch_bookmark: "watch.bookmark";
    /// DELETED carries the revision of the deletion.
    watch_delete_rv: "watch.delete-rv";
    /// Streams of one prefix agree about the same revisions.
    watch_concurrent_agree: "watch.concurrent-agree";
    /// A LIST without a resource version shows the state at a revision that is not stale.
    rv_list_is_store_revision: "rv.list-is-store-revision";
    /// A LIST with Exact shows the state at that revision.
    list_match_exact: "list.match-exact";
    /// A LIST with NotOlderThan shows a state that is not older.
    list_match_not_older: "list.match-not-older";
    /// A LIST at 0 shows some state that existed.
    list_rv_zero: "list.rv-zero";
    /// A GET without a resource version sees every write answered before it.
    rv_get_unset_linearizable: "rv.get-unset-linearizable";
    /// A GET with a resource version shows a state that is not older.
    rv_get_not_older: "rv.get-not-older";
    /// A GET at 0 shows a state that existed.
    rv_get_zero_any: "rv.get-zero-any";
    /// The answers about each object have one order that respects time.
    cc_linearizable_history: "cc.linearizable-history";
}

impl Judgement {
    /// A violation takes precedence over missing exercise: an observed violation is certain.
    pub fn outcome(&self) -> Outcome {
        if let Some(first) = self.violations.first() {
            let more = match self.violations.len() {
                1 => String::new(),
                n => format!(" (and {} more violations)", n - 1),
            };
            let evidence = self.violations.iter().take(SHOWN).flat_map(|violation| {
                std::iter::once(violation.message.clone()).chain(violation.evidence.iter().map(|e| format!("  {e}")))
            });
            return Outcome::Failed { message: format!("{}{more}", first.message), evidence: evidence.collect() };
        }
        match &self.not_exercised {
            Some(reason) => Outcome::errored("not exercised", reason.clone()),
            None => Outcome::Passed,
        }
    }
}

impl Violation {
    /// A violation without evidence: the message is sufficient.
    fn plain(message: String) -> Violation {
        Violation { message, evidence: Vec::new() }
    }
}

/// A judgement under construction.
#[derive(Default)]
struct Findings(Judgement);

impl Findings {
    fn count(&mut self, what: &str, n: u64) {
        if let Some(count) = self.0.exercised.get_mut(what) {
            *count = count.saturating_add(n);
        } else {
            self.0.exercised.insert(what.to_owned(), n);
        }
    }

    fn counted(&self, what: &str) -> u64 {
        self.0.exercised.get(what).copied().unwrap_or(0)
    }

    /// Whether another violation would be kept: its evidence may be expensive to collect.
    fn has_room(&self) -> bool {
        self.0.violations.len() < KEPT
    }

    fn add(&mut self, violation: Violation) {
        if self.has_room() {
            self.0.violations.push(violation);
        } else {
            self.count("violations not shown", 1);
        }
    }

    /// Below this count the guarantee was not exercised.
    fn at_least(&mut self, what: &str, least: u64) {
        let seen = self.counted(what);
        if seen < least && self.0.not_exercised.is_none() {
            self.0.not_exercised = Some(format!("{what}: {seen}, but a verdict needs at least {least}"));
        }
    }

    fn judgement(self) -> Judgement {
        self.0
    }
}
