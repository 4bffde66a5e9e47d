//! Plays generated sequences until the time or the number of cases is used up, and collects groups of differences.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use model::ExpectedDifference;
use sys::interrupt;
use sys::progress::Phase;

use super::finding::{Finding, key};
use super::generate::Generator;
use super::play::{Difference, Played, Sides, Verdict};
use super::request::{Names, Request, Sequence};
use super::shrink::{NewNames, shrink};
use crate::group::Key;

/// Examples of nondeterminism that the report shows.
const EXAMPLES: usize = 20;
/// Errors after which a side is given up.
const ERRORS: u64 = 20;

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

/// A nondeterministic sequence.
#[derive(Clone, Debug)]
pub(crate) struct Unstable {
    pub(crate) index: u64,
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
    pub(crate) resets: Vec<(u64, Request)>,
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
    /// Groups that a worker shrinks: the others need not do the same.
    shrinking: Mutex<BTreeSet<Key>>,
}

impl Found {
    /// Marks the expected groups.
    pub(crate) fn expect(&mut self, entries: &[ExpectedDifference], arch: &str, today: &str) {
        for finding in self.groups.values_mut() {
            finding.expected = finding.key.expected(entries, arch, today).cloned();
        }
    }

    pub(crate) fn new_groups(&self) -> usize {
        self.groups.values().filter(|finding| finding.expected.is_none()).count()
    }
}

impl NewNames for Search<'_> {
    fn is_late(&self) -> bool {
        interrupt::requested() || self.begin.elapsed() >= self.bounds.time
    }

    fn new_names(&self) -> Names {
        Names::of(self.runs.fetch_add(1, Ordering::Relaxed))
    }
}

impl<'a> Search<'a> {
    /// `first_run` is the number of the first run on these control planes: names must be new.
    pub(crate) fn new(sides: &'a Sides, generator: &'a Generator, bounds: Bounds, first_run: u64) -> Search<'a> {
        Search {
            sides,
            generator,
            bounds,
            begin: Instant::now(),
            next: AtomicU64::new(0),
            runs: AtomicU64::new(first_run),
            found: Mutex::default(),
            shrinking: Mutex::default(),
        }
    }

    /// Plays sequences from the first one on.
    pub(crate) async fn all(self, phase: &Phase) -> Found {
        join_all((0..self.bounds.width).map(|_| self.worker(phase))).await;
        self.finished()
    }

    /// Plays one sequence, as the command that repeats a finding does.
    pub(crate) async fn one(self, index: u64) -> Found {
        self.case(index).await;
        self.finished()
    }

    fn finished(self) -> Found {
        let seconds = self.begin.elapsed().as_secs_f64();
        let found = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        Found { seconds, ..found }
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shrinking(&self) -> std::sync::MutexGuard<'_, BTreeSet<Key>> {
        self.shrinking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(&self) -> bool {
        let found = self.found();
        interrupt::requested()
            || self.begin.elapsed() >= self.bounds.time
            || found.cases >= self.bounds.cases
            || found.errors.len() as u64 >= ERRORS
            || self.bounds.first_only && !found.groups.is_empty()
    }

    async fn worker(&self, phase: &Phase) {
        while !self.over() {
            self.case(self.next.fetch_add(1, Ordering::Relaxed)).await;
            let found = self.found();
            let seconds = self.begin.elapsed().as_secs_f64();
            phase.status(format!(
                "{} cases, {:.0} a second, {} groups of differences",
                found.cases,
                rate(found.cases, seconds),
                found.groups.len()
            ));
        }
    }

    async fn case(&self, index: u64) {
        let sequence = self.generator.sequence(index);
        if let Err(error) = self.play(index, &sequence).await {
            self.found().errors.push(format!("case {index}, {}: {error:#}", sequence.resource));
        }
    }

    async fn play(&self, index: u64, sequence: &Sequence) -> anyhow::Result<()> {
        let Played { verdict, requests, accepted, reset } = self.sides.play(sequence, &self.new_names()).await?;
        {
            let mut found = self.found();
            found.sequences += 1;
            found.cases += requests;
            found.accepted += accepted;
            found.resets.extend(reset.and_then(|at| Some((index, sequence.requests.get(at)?.clone()))));
            *found.by_resource.entry(sequence.resource.clone()).or_default() += requests;
        }
        match verdict {
            Verdict::Same => Ok(()),
            Verdict::Nondeterministic(difference) => {
                self.unstable(index, sequence, difference);
                Ok(())
            }
            Verdict::Different(difference) => self.different(index, sequence, &difference).await,
        }
    }

    fn unstable(&self, index: u64, sequence: &Sequence, difference: Difference) {
        let mut found = self.found();
        found.unstable_count += 1;
        if found.unstable.len() < EXAMPLES {
            found.unstable.push(Unstable { index, resource: sequence.resource.clone(), difference });
        }
    }

    /// Adds a difference to its group; the first one of a group is shrunk.
    async fn different(&self, index: u64, sequence: &Sequence, difference: &Difference) -> anyhow::Result<()> {
        let key = key(sequence, difference);
        if let Some(known) = self.found().groups.get_mut(&key) {
            known.count += 1;
            known.resources.insert(sequence.resource.clone());
            return Ok(());
        }
        if !self.shrinking().insert(key.clone()) {
            return Ok(());
        }
        let shrunk = shrink(self.sides, sequence, &key, self).await;
        self.shrinking().remove(&key);
        let Some((small, difference)) = shrunk? else {
            self.found().unrepeated += 1;
            self.unstable(index, sequence, difference.clone());
            return Ok(());
        };
        let mut found = self.found();
        let group = found.groups.entry(key.clone()).or_insert_with(|| Finding {
            key,
            count: 0,
            index,
            resources: Default::default(),
            sequence: small,
            difference,
            expected: None,
        });
        group.count += 1;
        group.resources.insert(sequence.resource.clone());
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn rate(cases: u64, seconds: f64) -> f64 {
    cases as f64 / seconds.max(0.001)
}
