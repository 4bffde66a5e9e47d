//! Plays generated sequences until the time or the number of cases is used up, and collects groups of differences.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::join_all;
use suite::api::overload::refuse_raw;
use sys::interrupt;
use sys::progress::Phase;

use super::answer::Answer;
use super::finding::{Finding, cause, is_certain, key};
use super::generate::{Generator, is_alone};
use super::play::{Difference, Played, Sides, Verdict};
use super::request::{Names, Request, Sequence};
use super::shrink::{Effort, NewNames, shrink};
use crate::group::{Expected, Key};

/// Examples of nondeterminism that the report shows.
const EXAMPLES: usize = 20;
/// Errors after which a side is given up.
pub(crate) const ERRORS: usize = 20;
/// Runs of one sequence, each without the causes of the differences of the earlier runs.
const REPLAYS: usize = 5;
/// How often an interrupt is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The longest time of which they get their share.
const MOST_ALONE: Duration = Duration::from_secs(3600);

/// When the search ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) time: Duration,
    pub(crate) cases: u64,
    /// End at the first group, for the self-test.
    pub(crate) first_only: bool,
    /// Sequences at the same time.
    pub(crate) width: usize,
}

/// A difference with its sequence and the key before it is shrunk.
struct Different {
    index: Option<u64>,
    sequence: Sequence,
    difference: Difference,
    seen: Key,
}

/// A nondeterministic sequence.
#[derive(Clone, Debug)]
pub(crate) struct Unstable {
    pub(crate) index: Option<u64>,
    pub(crate) resource: String,
    pub(crate) difference: Difference,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) groups: BTreeMap<Key, Finding>,
    pub(crate) unstable: Vec<Unstable>,
    pub(crate) unstable_count: u64,
    /// Requests whose stream every side reset, with the index of the sequence: a panic of the server.
    pub(crate) resets: Vec<(Option<u64>, Request)>,
    /// Differences that a run of the same sequence alone did not show.
    pub(crate) unrepeated: u64,
    pub(crate) sequences: u64,
    /// Requests that every side got.
    pub(crate) cases: u64,
    pub(crate) accepted: u64,
    pub(crate) errors: Vec<String>,
    pub(crate) seconds: f64,
    /// Cases by resource.
    pub(crate) by_resource: BTreeMap<String, u64>,
}

pub(crate) struct Search<'a> {
    sides: &'a Sides,
    generator: &'a Generator,
    bounds: Bounds,
    begin: Instant,
    next: AtomicU64,
    runs: AtomicU64,
    found: Mutex<Found>,
    /// Differences to shrink.
    waiting: Mutex<Vec<Different>>,
    /// Workers that shrink.
    shrinkers: AtomicUsize,
    /// Groups that a worker shrinks or will shrink: the others need not do the same.
    shrinking: Mutex<BTreeSet<Key>>,
    /// Entries that expect groups, the architecture, and the day: such groups need no smaller sequence.
    expected: Expected<'a>,
    /// The group of the smallest sequence for a key that the search saw.
    shrunk: Mutex<BTreeMap<Key, Key>>,
}

impl Found {
    /// Marks the expected groups.
    pub(crate) fn expect(&mut self, expected: Expected<'_>) {
        for finding in self.groups.values_mut() {
            finding.expected = expected.of(&finding.key).cloned();
        }
    }

    pub(crate) fn new_groups(&self) -> usize {
        self.groups.values().filter(|finding| finding.expected.is_none()).count()
    }
}

/// Awaits a future. None: the user interrupted the program first. An answer of an emulated server may take a minute.
pub(crate) async fn unless_interrupted<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let interrupted = async {
        while !interrupt::requested() {
            looks.tick().await;
        }
    };
    tokio::select! {
        result = future => Some(result),
        () = interrupted => None,
    }
}

impl NewNames for Search<'_> {
    fn is_late(&self) -> bool {
        interrupt::requested() || self.begin.elapsed() >= self.bounds.time
    }

    fn new_names(&self) -> Names {
        Names::of(self.runs.fetch_add(1, Ordering::Relaxed), self.generator.shared.as_ref())
    }
}

impl<'a> Search<'a> {
    /// `first_run` is the number of the first run on these control planes: names must be new.
    pub(crate) fn new(
        sides: &'a Sides,
        generator: &'a Generator,
        bounds: Bounds,
        expected: Expected<'a>,
        first_run: u64,
    ) -> Search<'a> {
        Search {
            sides,
            generator,
            bounds,
            begin: Instant::now(),
            next: AtomicU64::new(0),
            runs: AtomicU64::new(first_run),
            found: Mutex::default(),
            waiting: Mutex::default(),
            shrinkers: AtomicUsize::new(0),
            shrinking: Mutex::default(),
            expected,
            shrunk: Mutex::default(),
        }
    }

    /// Plays sequences from the first one on.
    pub(crate) async fn all(self, phase: &Phase) -> Found {
        self.alone(phase).await;
        if !self.generator.only_alone() {
            join_all((0..self.bounds.width).map(|_| self.worker(phase))).await;
        }
        self.finished().await
    }

    /// Plays one sequence, as the command that repeats a finding does.
    pub(crate) async fn one(self, index: u64) -> Found {
        self.case(Some(index), &self.generator.sequence(index)).await;
        self.finished().await
    }

    /// Plays kept sequences of the chosen families.
    pub(crate) async fn kept(self, sequences: &[Sequence]) -> Found {
        let only = &self.generator.only;
        for sequence in sequences.iter().filter(|sequence| only.is_empty() || only.contains(&sequence.family)) {
            self.case(None, sequence).await;
        }
        self.finished().await
    }

    async fn finished(self) -> Found {
        let waiting = std::mem::take(&mut *self.waiting());
        let enough = self.bounds.first_only && !self.found().groups.is_empty();
        for different in waiting.into_iter().filter(|_| !enough) {
            match unless_interrupted(self.settle(different)).await {
                Some(Ok(())) => {}
                Some(Err(error)) => self.found().errors.push(format!("{error:#}")),
                None => break,
            }
        }
        let seconds = self.begin.elapsed().as_secs_f64();
        let found = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        Found { seconds, ..found }
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shrunk(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Key>> {
        self.shrunk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Different>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shrinking(&self) -> std::sync::MutexGuard<'_, BTreeSet<Key>> {
        self.shrinking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(&self) -> bool {
        let found = self.found();
        interrupt::requested()
            || self.begin.elapsed() >= self.bounds.time
            || found.cases >= self.bounds.cases
            || found.errors.len() >= ERRORS
            || self.bounds.first_only && !found.groups.is_empty()
    }

    /// Plays sequences that have effects on all others, before them.
    async fn alone(&self, phase: &Phase) {
        let Bounds { time, cases, .. } = self.bounds;
        let (bound, cases) = if self.generator.only_alone() {
            (time, u64::MAX)
        } else {
            (time.min(MOST_ALONE).mul_f64(self.generator.share_alone()), cases / 100)
        };
        for index in (0..cases).filter(|index| is_alone(*index)) {
            if self.over() || self.begin.elapsed() >= bound {
                break;
            }
            self.case(Some(index), &self.generator.sequence(index)).await;
            self.status(phase);
        }
    }

    async fn worker(&self, phase: &Phase) {
        while !self.over() {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if !is_alone(index) {
                self.case(Some(index), &self.generator.sequence(index)).await;
                self.status(phase);
            }
        }
    }

    fn status(&self, phase: &Phase) {
        let found = self.found();
        let seconds = self.begin.elapsed().as_secs_f64();
        phase.status(format!(
            "{} cases, {:.0} a second, {} groups of differences",
            found.cases,
            rate(found.cases, seconds),
            found.groups.len()
        ));
    }

    async fn case(&self, index: Option<u64>, sequence: &Sequence) {
        let Some(played) = unless_interrupted(self.play(index, sequence)).await else { return };
        if let Err(error) = played {
            let name = index.map_or_else(|| "kept sequence".to_owned(), |index| format!("case {index}"));
            self.found().errors.push(format!("{name}, {}: {error:#}", sequence.resource));
        }
    }

    /// Plays a sequence; after a difference, again without its cause.
    async fn play(&self, index: Option<u64>, sequence: &Sequence) -> anyhow::Result<()> {
        let mut sequence = sequence.clone();
        self.found().sequences += 1;
        for _ in 0..REPLAYS {
            let played = self.sides.play(&sequence, &self.new_names()).await?;
            self.count(index, &sequence, &played);
            match played.verdict {
                Verdict::Same => break,
                Verdict::Nondeterministic(difference) => {
                    self.unstable(index, &sequence, difference);
                    break;
                }
                Verdict::Different(difference) => {
                    self.different(index, &sequence, &difference).await?;
                    let rest = cause(&sequence, &difference).and_then(|cause| sequence.without(cause));
                    match rest.filter(|_| !self.over()) {
                        Some(rest) => sequence = rest,
                        None => break,
                    }
                }
            }
        }
        Ok(())
    }

    fn count(&self, index: Option<u64>, sequence: &Sequence, played: &Played) {
        let mut found = self.found();
        found.cases += played.requests;
        found.accepted += played.accepted;
        found.resets.extend(played.reset.and_then(|at| Some((index, sequence.requests.get(at)?.clone()))));
        *found.by_resource.entry(sequence.resource.clone()).or_default() += played.requests;
    }

    fn unstable(&self, index: Option<u64>, sequence: &Sequence, difference: Difference) {
        let mut found = self.found();
        found.unstable_count += 1;
        if found.unstable.len() < EXAMPLES {
            found.unstable.push(Unstable { index, resource: sequence.resource.clone(), difference });
        }
    }

    /// Adds a difference to its group; the first one of a group is shrunk.
    async fn different(&self, index: Option<u64>, sequence: &Sequence, difference: &Difference) -> anyhow::Result<()> {
        let seen = key(sequence, difference);
        let known = self.shrunk().get(&seen).cloned();
        if let Some(key) = known {
            if let Some(group) = self.found().groups.get_mut(&key) {
                group.count += 1;
                group.resources.insert(sequence.resource.clone());
            }
            return Ok(());
        }
        if !self.shrinking().insert(seen.clone()) {
            return Ok(());
        }
        self.waiting().push(Different { index, sequence: sequence.clone(), difference: difference.clone(), seen });
        // Shrinking takes many runs, and the other workers go on with the search.
        while self.shrinkers.load(Ordering::Relaxed) < self.bounds.width.div_ceil(2) {
            let Some(next) = self.waiting().pop() else { break };
            self.shrinkers.fetch_add(1, Ordering::Relaxed);
            let shrunk = self.settle(next).await;
            self.shrinkers.fetch_sub(1, Ordering::Relaxed);
            shrunk?;
        }
        Ok(())
    }

    /// Makes a sequence small, and adds its group.
    async fn settle(&self, Different { index, sequence, difference, seen }: Different) -> anyhow::Result<()> {
        // A kept sequence is small.
        let small = index.is_none() || is_certain(&seen) && self.expected.of(&seen).is_some();
        let effort = if small {
            Effort::KNOWN
        } else if self.bounds.first_only {
            Effort::CERTAIN
        } else {
            Effort::SMALLEST
        };
        let small = shrink(self.sides, &sequence, &seen, self, effort).await;
        self.shrinking().remove(&seen);
        let Some((small, difference)) = small? else {
            self.found().unrepeated += 1;
            // Other than the differences of the references, these are worth a longer run.
            let resource = format!("{}, under test, not repeated", sequence.resource);
            self.unstable(index, &Sequence { resource, ..sequence }, difference);
            return Ok(());
        };
        // The proxy of the self-test answers 502 where a server resets the stream.
        if !self.bounds.first_only {
            refuse_overload(&difference)
                .with_context(|| format!("a difference in {}, also repeated", sequence.resource))?;
        }
        let key = key(&small, &difference);
        self.shrunk().insert(seen, key.clone());
        let resources = BTreeSet::from([sequence.resource]);
        self.add(Finding { key, count: 1, index, resources, sequence: small, difference, expected: None });
        Ok(())
    }

    /// Adds a finding to the groups; of two with one key, the shorter sequence stays.
    fn add(&self, mut finding: Finding) {
        let length = |finding: &Finding| {
            let bodies = finding.sequence.requests.iter().filter_map(|request| request.body.as_ref());
            bodies.map(|body| body.to_string().len()).sum::<usize>()
        };
        let mut found = self.found();
        if let Some(known) = found.groups.remove(&finding.key) {
            let (count, mut resources) = (known.count + finding.count, known.resources.clone());
            resources.extend(std::mem::take(&mut finding.resources));
            let shorter = if length(&finding) < length(&known) { finding } else { known };
            finding = Finding { count, resources, ..shorter };
        }
        found.groups.insert(finding.key.clone(), finding);
    }
}

/// An answer by which a server reports its own time-out or overload says nothing about its architecture, also if a slow
/// side always gives it.
fn refuse_overload(difference: &Difference) -> anyhow::Result<()> {
    let refuse = |answer: &Answer| refuse_raw("a request", answer.status, answer.body.text().as_bytes());
    refuse(&difference.left).and_then(|()| refuse(&difference.right))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn rate(cases: u64, seconds: f64) -> f64 {
    cases as f64 / seconds.max(0.001)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::answer::Content;

    #[test]
    fn overload_of_one_side_is_no_difference_between_architectures() {
        let of = |status: u16, text: &str| {
            let answer = |status, text: &str| Answer { status, headers: Vec::new(), body: Content::Text(text.into()) };
            let (left, right) = (answer(200, ""), answer(status, text));
            refuse_overload(&Difference { at: 0, changes: Vec::new(), left, right, stored: None })
        };
        assert!(of(422, "invalid").is_ok() && of(500, "panic").is_ok());
        assert!(of(504, "Timeout: request did not complete").is_err());
        assert!(of(500, "etcdserver: request timed out").is_err());
    }
}
