//! Sends the same generated inputs to both sides, and finds those with different answers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sys::interrupt;
use sys::progress::Phase;

use super::side::{Case, Launch, Side, Span, Violation};
use crate::group::{Expected, Key};

/// Digests of one request.
const BATCHES: u64 = 16;
/// The inputs of the first request to a subject.
const FIRST: u64 = 256;
/// The most inputs of a request: a differing batch is fetched as a whole.
const MOST: u64 = 1 << 17;
/// A subject with cheap inputs gets more of them, until a request takes this long.
const PACE: Duration = Duration::from_millis(700);
/// Keys for one subject before they are shrunk: of the expected ones, and of the others.
const KEYS: usize = 40;
/// The place of a difference that the generator makes.
const GENERATED: &str = "the generated input";

/// The reference twice, and the side under test.
pub(crate) struct Sides {
    pub(crate) reference: Side,
    pub(crate) again: Side,
    pub(crate) tested: Side,
}

/// When a search ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Time(Duration),
    /// Inputs of each subject.
    Cases(u64),
}

/// A difference as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) reference: Case,
    /// How many inputs had this key.
    pub(crate) count: u64,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) groups: BTreeMap<Key, Found>,
    /// The rules that the side under test breaks: the number of the first input, and how many batches have one.
    pub(crate) violations: BTreeMap<Key, (u64, u64)>,
    /// Subjects whose answers differ between two runs of the reference, with an example.
    pub(crate) unstable: BTreeMap<String, (Case, Case)>,
    /// Inputs by subject.
    pub(crate) inputs: BTreeMap<String, u64>,
}

impl Sides {
    pub(crate) fn start(reference: &Launch, tested: &Launch) -> anyhow::Result<Sides> {
        Ok(Sides {
            reference: Side::start(reference, "reference")?,
            again: Side::start(reference, "reference-again")?,
            tested: Side::start(tested, "tested")?,
        })
    }

    /// Asks all three at the same time.
    fn ask<T: Send>(&mut self, ask: impl Fn(&mut Side) -> anyhow::Result<T> + Sync) -> anyhow::Result<[T; 3]> {
        let [a, b, c] = std::thread::scope(|scope| {
            [&mut self.reference, &mut self.again, &mut self.tested]
                .map(|side| scope.spawn(|| ask(side)))
                .map(|thread| thread.join().expect("a thread that asks a program must not panic"))
        });
        Ok([a?, b?, c?])
    }
}

/// Tries inputs of all subjects in turn until the limit, or until an interrupt. Each subject gets one request at least.
///
/// # Errors
/// A program ended or gave no answer.
pub(crate) fn search(
    sides: &mut Sides,
    subjects: &[String],
    seed: u64,
    limit: Limit,
    expected: Expected<'_>,
    phase: &Phase,
) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let mut sizes: BTreeMap<&str, u64> = subjects.iter().map(|name| (name.as_str(), FIRST)).collect();
    let begin = Instant::now();
    loop {
        let mut worked = false;
        for subject in subjects {
            let from = findings.inputs.get(subject).copied().unwrap_or_default();
            // A slow machine must not leave out subjects.
            let is_late = matches!(limit, Limit::Time(time) if from > 0 && begin.elapsed() >= time);
            if interrupt::requested() || is_late {
                return Ok(findings);
            }
            let size = sizes.get_mut(subject.as_str()).expect("every subject has a size");
            let left = if let Limit::Cases(cases) = limit { cases.saturating_sub(from) } else { u64::MAX };
            let count = left.min(*size);
            if count == 0 {
                continue;
            }
            worked = true;
            phase.status(format!("{subject}, {} groups", findings.groups.len()));
            let asked = Instant::now();
            try_inputs(sides, &Span { subject, seed, from, count }, expected, &mut findings)?;
            *findings.inputs.entry(subject.clone()).or_default() += count;
            *size = next_size(*size, asked.elapsed());
        }
        if !worked {
            return Ok(findings);
        }
    }
}

fn next_size(size: u64, time: Duration) -> u64 {
    if time > 2 * PACE {
        (size / 2).max(BATCHES)
    } else if time < PACE / 2 {
        (size * 2).min(MOST)
    } else {
        size
    }
}

fn try_inputs(
    sides: &mut Sides,
    span: &Span<'_>,
    expected: Expected<'_>,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let batch = span.count.div_ceil(BATCHES);
    let [reference, again, tested] = sides.ask(|side| side.digests(span, batch))?;
    for violation in tested.violations.iter().flatten() {
        let found = findings.violations.entry(broken(span.subject, violation)).or_insert((violation.index, 0));
        found.1 += 1;
    }
    let [reference, again, tested] = [reference, again, tested].map(|side| side.digests);
    let differs = |i: &usize| reference[*i] != again[*i] || reference[*i] != tested[*i];
    for i in (0..reference.len()).filter(differs) {
        let from = span.from + i as u64 * batch;
        let count = batch.min(span.from + span.count - from);
        let part = Span { from, count, ..span.clone() };
        let [reference, again, tested] = sides.ask(|side| side.cases(&part))?;
        for ((reference, again), tested) in reference.into_iter().zip(again).zip(tested) {
            add(findings, expected, span.subject, reference, again, tested);
        }
    }
    Ok(())
}

fn add(findings: &mut Findings, expected: Expected<'_>, subject: &str, reference: Case, again: Case, tested: Case) {
    if !reference.agrees(&again) {
        findings.unstable.entry(subject.to_owned()).or_insert((reference, again));
        return;
    }
    if reference.agrees(&tested) {
        return;
    }
    let key = key(subject, &reference, &tested);
    if let Some(found) = findings.groups.get_mut(&key) {
        found.count += 1;
        return;
    }
    // A hundred expected keys must not keep a new one out.
    let is_expected = |key: &Key| expected.of(key).is_some();
    let alike = |known: &&Key| known.subject == subject && is_expected(known) == is_expected(&key);
    if findings.groups.keys().filter(alike).count() < KEYS {
        findings.groups.insert(key, Found { reference, count: 1 });
    }
}

/// The key of a broken rule.
pub(crate) fn broken(subject: &str, violation: &Violation) -> Key {
    let class = format!("{}: {}", violation.oracle, violation.class);
    Key { subject: subject.to_owned(), class, shape: ["broken rule".to_owned()].into() }
}

/// The key of two cases that differ. If the inputs differ, the generator depends on the architecture.
pub(crate) fn key(subject: &str, reference: &Case, tested: &Case) -> Key {
    if reference.input != tested.input {
        let shape = [GENERATED.to_owned()].into();
        return Key { subject: subject.to_owned(), class: String::new(), shape };
    }
    Key::of(subject, &reference.class, &reference.answer, &tested.answer)
}

/// Whether the generator makes the difference. Sides that are given an input do not show it.
pub(crate) fn is_generated(key: &Key) -> bool {
    key.shape.contains(GENERATED)
}

#[cfg(test)]
mod tests {
    use model::ExpectedDifference;

    use super::*;
    use crate::document::Document;

    fn case(answer: &str) -> Case {
        let input = Document::parse("1").unwrap();
        Case {
            index: 0,
            input,
            answer: Document::parse(answer).unwrap(),
            class: String::new(),
            invalid: false,
            violates: None,
        }
    }

    #[test]
    fn difference_between_runs_of_the_reference_is_never_one_between_architectures() {
        let mut findings = Findings::default();
        let mut add = |answers: [&str; 3]| {
            let [reference, again, tested] = answers.map(case);
            add(&mut findings, Expected::default(), "s", reference, again, tested);
            (findings.groups.values().map(|found| found.count).collect::<Vec<_>>(), findings.unstable.len())
        };
        assert_eq!(add(["1", "2", "3"]), (vec![], 1));
        assert_eq!(add(["1", "1", "1"]), (vec![], 1));
        assert_eq!(add(["1", "1", "2"]), (vec![1], 1));
        assert_eq!(add(["1", "1", "2"]), (vec![2], 1));
    }

    #[test]
    fn many_expected_keys_keep_no_new_one_out() {
        let of = |class: &str, answer: &str| Case { class: class.to_owned(), ..case(answer) };
        let entry = ExpectedDifference {
            subject: "s".into(),
            classes: (0..3 * KEYS).map(|number| format!("known {number}")).collect(),
            arch: vec![],
            shows: vec!["next integers".into()],
            follows: vec![],
            reason: "r".into(),
            issue: "https://example.org".into(),
            expires: "2027-03-31".into(),
        };
        let expected = Expected { entries: &[entry], arch: "two", today: "2026-12-01" };
        let mut findings = Findings::default();
        for class in expected.entries[0].classes.iter().map(String::as_str).chain(["new"]) {
            add(&mut findings, expected, "s", of(class, "1"), of(class, "1"), of(class, "2"));
        }
        assert_eq!(findings.groups.len(), KEYS + 1);
        assert!(findings.groups.keys().any(|key| key.class == "new"));
    }

    #[test]
    fn generator_that_depends_on_the_architecture_has_a_key() {
        let other = Case { input: Document::parse("2").unwrap(), ..case("1") };
        assert!(is_generated(&key("s", &case("1"), &other)) && !is_generated(&key("s", &case("1"), &case("2"))));
    }

    #[test]
    fn requests_grow_until_they_take_their_time() {
        assert_eq!(next_size(256, Duration::from_millis(1)), 512);
        assert_eq!(next_size(256, PACE), 256);
        assert_eq!(next_size(256, 3 * PACE), 128);
        assert_eq!(next_size(BATCHES, 30 * PACE), BATCHES);
        assert_eq!(next_size(MOST, Duration::ZERO), MOST);
    }
}
