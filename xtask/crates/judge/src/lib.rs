//! Judges: pure functions from a recorded history to the places where a guarantee was broken. They use no clock and no
//! network.
//!
//! A judge counts what it exercised; a guarantee that was not exercised never passes. All judges of a history share one
//! [`Prepared`]. If a recording is not sound, only `suite.truth` judges it; every other judge reports "not exercised".
//!
//! | file | holds |
//! | --- | --- |
//! | `prepared`, `keys`, `view`, `trace`, `time_bounds` | the prepared history: expected and delivered events, bounds |
//! | `decode` | stored bytes: their encoding, the protobuf envelope, metadata |
//! | `bolt`, `store_file` | the keys in a database file of etcd |
//! | `cbor` | CBOR to JSON |
//! | `schema` | the protobuf schema of a release, and stored values decoded with it |
//! | `decrypt` | encrypted stored bytes: provider, key, envelope, plaintext |
//! | `selector`, `query`, `stored` | readers of selectors, queries and stored values |
//! | `recording`, `writes` | the recording itself, and the answers to writes |
//! | `content`, `order`, `gaps`, `bookmarks`, `agree` | watch streams |
//! | `excerpt` | the excerpt of the history that shows what is wrong with a stream |
//! | `lists`, `gets` | reads |
//! | `object_digest`, `sightings` | the contents of objects: their digests, and what showed them otherwise |
//! | `registers`, `linear` | answers without a resource version, and the search for an order of them |
//! | `informer`, `contention` | the log of an informer of client-go, and of clients that contend for one object |
//! | `answer` | answers in the form in which two runs are compared |
//! | `server_values` | values that servers choose by themselves, which comparisons leave out |
//! | `document`, `changes` | JSON as it was written, and the places at which two documents differ |
//! | `look` | what such differences look like; known ones are recognised by it |
//! | `generate` | histories of a correct server, for tests and for the benchmark |

pub mod answer;
pub mod bolt;
pub mod cbor;
pub mod changes;
pub mod contention;
pub mod decode;
pub mod decrypt;
pub mod document;
pub mod generate;
pub mod informer;
pub mod look;
pub mod object_digest;
pub mod schema;
pub mod server_values;
pub mod store_file;
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
mod linear;
mod lists;
mod order;
mod prepared;
mod query;
mod recording;
mod registers;
mod run_judge;
mod selector;
mod sightings;
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

/// How many violations a verdict shows with their evidence: a reader needs the first ones.
const SHOWN: usize = 5;

/// Violations beyond this number are counted, but not kept.
const KEPT: usize = 100;

/// A judge of a prepared history.
pub type PreparedJudge = fn(&Prepared<'_>, &mut Findings);

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
    ("cc.same-object", sightings::same_object),
    ("storage.matches-served", sightings::matches_served),
    ("watch.deleted-object", sightings::deleted_object),
];

/// Missing previous values are reported only if the recording is sound otherwise: they may be an expected failure, but
/// an unsound recording never is.
fn truth_and_missing_prev_kv(prepared: &Prepared<'_>, findings: &mut Findings) {
    findings.0 = prepared.recording.clone();
    if findings.0.violations.is_empty() {
        findings.0.violations.clone_from(&prepared.missing_prev_kv);
    }
}

/// Runs every judge. Prepares the history once.
pub fn judge_all(history: &History) -> Vec<(&'static str, Judgement)> {
    let prepared = Prepared::new(history);
    JUDGES.iter().map(|row| (row.0, judge_prepared(&prepared, row))).collect()
}

/// The judgement of the judge with this id; None if the id is unknown.
pub fn judge(prepared: &Prepared<'_>, id: &str) -> Option<Judgement> {
    JUDGES.iter().find(|(known, _)| *known == id).map(|row| judge_prepared(prepared, row))
}

fn judge_prepared(prepared: &Prepared<'_>, (id, judge): &(&str, PreparedJudge)) -> Judgement {
    let mut findings = Findings::default();
    match prepared.recording.violations.first() {
        Some(first) if *id != "suite.truth" => {
            findings.0.not_exercised = Some(format!("the recording is not sound: {}", first.message));
        }
        _ => judge(prepared, &mut findings),
    }
    findings.0
}

impl Judgement {
    /// A violation takes precedence over missing exercise: an observed violation is certain.
    pub fn outcome(&self) -> Outcome {
        match &self.not_exercised {
            Some(reason) if self.violations.is_empty() => Outcome::errored("not exercised", reason.clone()),
            _ => {
                let violations = self.violations.iter().map(|found| (found.message.as_str(), &found.evidence[..]));
                Outcome::of_violations(violations, SHOWN)
            }
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
pub struct Findings(Judgement);

impl Findings {
    fn count(&mut self, what: &str, n: u64) {
        match self.0.exercised.get_mut(what) {
            Some(count) => *count = count.saturating_add(n),
            None => drop(self.0.exercised.insert(what.to_owned(), n)),
        }
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

    fn extend(&mut self, violation: Option<Violation>) {
        violation.into_iter().for_each(|violation| self.add(violation));
    }

    /// Below this count the guarantee was not exercised.
    fn at_least(&mut self, what: &str, least: u64) {
        let seen = self.0.exercised.get(what).copied().unwrap_or(0);
        if seen < least && self.0.not_exercised.is_none() {
            self.0.not_exercised = Some(format!("{what}: {seen}, but a verdict needs at least {least}"));
        }
    }

    /// Any of these prevents a verdict.
    fn none_of(&mut self, what: &str) {
        let seen = self.0.exercised.get(what).copied().unwrap_or(0);
        if seen > 0 && self.0.not_exercised.is_none() {
            self.0.not_exercised = Some(format!("{what}: {seen}, but a verdict needs that there are none"));
        }
    }
}
