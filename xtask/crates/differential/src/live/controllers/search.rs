//! Plays scenarios until the time is used up; repeats, shrinks and groups what differs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fastrand::Rng;
use futures::future::join_all;
use sys::interrupt;
use sys::progress::Phase;

use super::class::{self, ROOT};
use super::scenario::{Chosen, Family, Step};
use super::stage::{Observation, Stage};
use crate::document::Document;
use crate::group::Key;
use crate::live::answer::{Answer, Change, Content, MOST};
use crate::live::finding::Finding;
use crate::live::generate::{mixed, namespace};
use crate::live::play::Difference;
use crate::live::request::{Names, Request, Sequence};
use crate::live::search::{Bounds, ERRORS, Found, Unstable, rate, unless_interrupted};

/// Further runs that must all show a difference in the same way.
const REPEATS: usize = 3;
/// Examples of nondeterminism that the report shows.
const EXAMPLES: usize = 20;
/// Groups at the same places that are shrunk; more of them add to the first.
const SHRUNK: usize = 3;
/// The status of observed objects in the form of an answer.
const OBSERVED: u16 = 200;

pub(crate) struct Search<'a> {
    stage: &'a Stage<'a>,
    families: &'a [&'static Family],
    seed: u64,
    bounds: Bounds,
    begin: Instant,
    next: AtomicU64,
    runs: AtomicU64,
    found: Mutex<Found>,
    unsettled: AtomicU64,
    /// The objects of the last scenario on all sides.
    last: Mutex<Vec<String>>,
    /// Places that a worker shrinks: the others need not do the same.
    shrinking: Mutex<BTreeSet<Places>>,
}

/// A subject with the places of a difference.
type Places = (String, BTreeSet<String>);

/// What the sides made of a scenario.
#[derive(Default)]
struct Compared {
    /// Differences of the side under test, without the places at which the references differ.
    changes: Vec<Change>,
    /// Differences of the references.
    unstable: Vec<Change>,
}

impl<'a> Search<'a> {
    /// `first_run` is the number of the first run on these control planes: names must be new.
    pub(crate) fn new(
        stage: &'a Stage<'a>,
        families: &'a [&'static Family],
        seed: u64,
        bounds: Bounds,
        first_run: u64,
    ) -> Search<'a> {
        Search {
            stage,
            families,
            seed,
            bounds,
            begin: Instant::now(),
            next: AtomicU64::new(0),
            runs: AtomicU64::new(first_run),
            found: Mutex::default(),
            unsettled: AtomicU64::new(0),
            last: Mutex::default(),
            shrinking: Mutex::default(),
        }
    }

    /// Plays scenarios from the first one on.
    pub(crate) async fn all(self, phase: &Phase) -> (Found, u64) {
        join_all((0..self.bounds.width).map(|_| self.worker(phase))).await;
        self.finished()
    }

    /// Plays one scenario, as the command that repeats a finding does. Also returns the last objects of all sides.
    pub(crate) async fn one(self, index: u64) -> (Found, u64, Vec<String>) {
        self.case(index).await;
        let last = std::mem::take(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner));
        let (found, unsettled) = self.finished();
        (found, unsettled, last)
    }

    /// The result, and the number of waits that ended before the controllers did.
    fn finished(self) -> (Found, u64) {
        let seconds = self.begin.elapsed().as_secs_f64();
        let found = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        (Found { seconds, ..found }, self.unsettled.into_inner())
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_late(&self) -> bool {
        interrupt::requested() || self.begin.elapsed() >= self.bounds.time
    }

    /// Whether the self-test has its group.
    fn is_answered(&self) -> bool {
        self.bounds.first_only && !self.found().groups.is_empty()
    }

    fn over(&self) -> bool {
        self.is_late()
            || self.is_answered()
            || self.next.load(Ordering::Relaxed) >= self.bounds.cases
            || self.found().errors.len() >= ERRORS
    }

    async fn worker(&self, phase: &Phase) {
        while !self.over() {
            self.case(self.next.fetch_add(1, Ordering::Relaxed)).await;
            let found = self.found();
            phase.status(format!(
                "{} scenarios, {:.1} a second, {} groups of differences",
                found.sequences,
                rate(found.sequences, self.begin.elapsed().as_secs_f64()),
                found.groups.len()
            ));
        }
    }

    async fn case(&self, index: u64) {
        let mut rng = Rng::with_seed(mixed(self.seed, index));
        let Some(family) = self.families.get(rng.usize(..self.families.len().max(1))) else { return };
        let chosen = Chosen::draw(family, &mut rng);
        let Some(played) = unless_interrupted(self.play(index, family, &chosen)).await else { return };
        if let Err(error) = played {
            self.found().errors.push(format!("case {index}, {}: {error:#}", family.name));
        }
    }

    async fn run(&self, family: &Family, chosen: &Chosen) -> anyhow::Result<(Observation, Compared)> {
        let names = Names::of(self.runs.fetch_add(1, Ordering::Relaxed), None);
        let seen = self.stage.play(family, chosen, &names).await?;
        self.unsettled.fetch_add(seen.unsettled, Ordering::Relaxed);
        let compared = compare(&seen.documents);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) =
            seen.documents.iter().map(ToString::to_string).collect();
        Ok((seen, compared))
    }

    async fn play(&self, index: u64, family: &Family, chosen: &Chosen) -> anyhow::Result<()> {
        let (seen, compared) = self.run(family, chosen).await?;
        {
            let mut found = self.found();
            found.sequences += 1;
            found.cases += seen.requests;
            found.accepted += seen.accepted;
            *found.by_resource.entry(class::subject(family)).or_default() += seen.requests;
        }
        if !compared.unstable.is_empty() {
            self.unstable(index, class::subject(family), &seen, compared.unstable);
        }
        if compared.changes.is_empty() {
            return Ok(());
        }
        self.different(index, family, chosen, &seen, compared.changes).await
    }

    fn unstable(&self, index: u64, resource: String, seen: &Observation, changes: Vec<Change>) {
        let mut found = self.found();
        found.unstable_count += 1;
        if found.unstable.len() < EXAMPLES {
            let difference = difference(seen, changes);
            found.unstable.push(Unstable { index: Some(index), resource, difference });
        }
    }

    /// Adds to a known group, if enough groups show at the same places.
    fn is_known(&self, places: &Places) -> bool {
        let mut found = self.found();
        let same = |key: &Key| key.subject == places.0 && key.shape == places.1;
        let count = found.groups.keys().filter(|key| same(key)).count();
        if count < SHRUNK {
            return false;
        }
        if let Some((_, group)) = found.groups.iter_mut().find(|(key, _)| same(key)) {
            group.count += 1;
        }
        true
    }

    async fn different(
        &self,
        index: u64,
        family: &Family,
        chosen: &Chosen,
        seen: &Observation,
        changes: Vec<Change>,
    ) -> anyhow::Result<()> {
        let key = class::key(family, chosen, &changes);
        let places = (key.subject, key.shape);
        let shrinking = || self.shrinking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_known(&places) || !shrinking().insert(places.clone()) {
            return Ok(());
        }
        let shrunk = self.shrink(family, chosen, &changes).await;
        shrinking().remove(&places);
        let Some((small, seen, changes)) = shrunk? else {
            self.found().unrepeated += 1;
            // Other than the differences of the references, these are worth a longer run.
            self.unstable(index, format!("{}, under test, not repeated", class::subject(family)), seen, changes);
            return Ok(());
        };
        let key = class::key(family, &small, &changes);
        let mut found = self.found();
        let group = found.groups.entry(key.clone()).or_insert_with(|| Finding {
            key,
            count: 0,
            index: Some(index),
            resources: BTreeSet::from([class::subject(family)]),
            sequence: sequence(family, &small),
            difference: difference(&seen, changes),
            expected: None,
        });
        group.count += 1;
        Ok(())
    }

    /// The changes that every repeat shows in the same way. None if there is no such change.
    async fn repeated(
        &self,
        family: &Family,
        chosen: &Chosen,
        first: &[Change],
        repeats: usize,
    ) -> anyhow::Result<Option<(Observation, Vec<Change>)>> {
        let mut last = None;
        let mut remaining = first.to_vec();
        for _ in 0..repeats {
            // The end of the search's time is no reason: on a slow machine it would hide every difference.
            if interrupt::requested() || self.is_answered() {
                return Ok(None);
            }
            let (seen, compared) = self.run(family, chosen).await?;
            remaining.retain(|change| compared.changes.contains(change));
            if remaining.is_empty() {
                return Ok(None);
            }
            last = Some(seen);
        }
        Ok(last.map(|seen| (seen, remaining)))
    }

    /// Returns fields to their usual values as long as the same place differs.
    async fn shrink(
        &self,
        family: &Family,
        chosen: &Chosen,
        first: &[Change],
    ) -> anyhow::Result<Option<(Chosen, Observation, Vec<Change>)>> {
        let Some((mut seen, mut changes)) = self.repeated(family, chosen, first, REPEATS).await? else {
            return Ok(None);
        };
        let mut best = chosen.clone();
        let fields: Vec<&super::scenario::Field> = chosen.unusual(family).map(|(field, _)| field).collect();
        for field in fields {
            // The self-test asks only whether there is a difference.
            if self.is_late() || self.bounds.first_only {
                break;
            }
            let candidate = best.without(field);
            let (_, compared) = self.run(family, &candidate).await?;
            let shared = compared.changes.iter().any(|c| changes.iter().any(|known| known.place == c.place));
            if !shared {
                continue;
            }
            if let Some((again, confirmed)) = self.repeated(family, &candidate, &compared.changes, REPEATS).await? {
                (best, seen, changes) = (candidate, again, confirmed);
            }
        }
        Ok(Some((best, seen, changes)))
    }
}

fn compare([reference, second, tested]: &[Document; 3]) -> Compared {
    let content = |document: &Document| Content::Document(document.clone());
    let all = |left: &Document, right: &Document| content(left).changes_within(ROOT, &content(right), usize::MAX);
    let mut unstable = all(reference, second);
    let mut changes = all(reference, tested);
    changes.retain(|change| !unstable.iter().any(|other| overlap(&change.place, &other.place)));
    // Only now: a list of the first places could consist of unstable ones.
    changes.truncate(MOST);
    unstable.truncate(MOST);
    Compared { changes, unstable }
}

/// Whether one place is the other one or contains it.
fn overlap(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', ' ']))
}

fn difference(seen: &Observation, changes: Vec<Change>) -> Difference {
    let [reference, _, tested] = &seen.documents;
    let answer = |document: &Document| Answer {
        status: OBSERVED,
        headers: Vec::new(),
        body: Content::Document(document.clone()),
    };
    Difference { at: 0, changes, left: answer(reference), right: answer(tested), stored: None }
}

/// The requests of a scenario, for the report.
fn sequence(family: &Family, chosen: &Chosen) -> Sequence {
    let sent = (family.build)(chosen).into_iter().filter_map(|step| match step {
        Step::Send(request) => Some(request),
        _ => None,
    });
    let mut requests: Vec<Request> = std::iter::once(namespace()).chain(sent).collect();
    if let Some(last) = requests.last_mut() {
        last.trial = Some(chosen.trial(family));
    }
    Sequence {
        resource: class::subject(family),
        requests,
        keys: Vec::new(),
        settles: None,
        family: crate::live::request::Family::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(documents: [&str; 3]) -> (Vec<String>, usize) {
        let compared = compare(&documents.map(|text| Document::parse(text).unwrap()));
        (compared.changes.into_iter().map(|change| change.place).collect(), compared.unstable.len())
    }

    #[test]
    fn places_at_which_references_differ_are_not_differences() {
        let base = r#"{"a":{"x":1},"b":1}"#;
        assert_eq!(compared([base, base, base]), (vec![], 0));
        assert_eq!(compared([base, base, r#"{"a":{"x":2},"b":1}"#]), (vec!["objects.a.x".into()], 0));
        let unstable = r#"{"a":{"x":3},"b":1}"#;
        assert_eq!(compared([base, unstable, r#"{"a":{"x":2},"b":7}"#]), (vec!["objects.b".into()], 1));
        assert_eq!(compared([base, unstable, r#"{"a":0,"b":1}"#]), (vec![], 1));
    }

    #[test]
    fn many_unstable_places_hide_no_other() {
        let of = |x: u8, b: u8| format!(r#"{{"a":[{}],"b":{b}}}"#, vec![format!(r#"{{"x":{x}}}"#); 2 * MOST].join(","));
        let documents = [of(1, 1), of(2, 1), of(3, 2)];
        let documents: [&str; 3] = std::array::from_fn(|side| documents[side].as_str());
        assert_eq!(compared(documents), (vec!["objects.b".into()], MOST));
    }

    #[test]
    fn place_overlaps_with_its_parts_only() {
        assert!(overlap("objects.a", "objects.a.b") && overlap("objects.a[*].b", "objects.a"));
        assert!(!overlap("objects.a", "objects.ab"));
    }
}
