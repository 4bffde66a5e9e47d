//! From found differences to a report: each is shrunk, repeated in new processes, and merged with those of the same key.

use std::collections::BTreeMap;

use sys::interrupt;
use sys::progress::{self, Phase};

use super::search::{Findings, Found, broken, is_generated, key};
use super::side::{Case, Launch, Side, Span};
use crate::changes::changes;
use crate::document::Document;
use crate::group::Key;
use crate::report::Group;
use crate::shrink::shrink;

/// The program of each architecture.
pub(crate) struct Launches {
    pub(crate) reference: Launch,
    pub(crate) tested: Launch,
    /// The defect of the side under test, in a selftest.
    pub(crate) mutant: Option<String>,
}

/// One process of the side under test, and two of the reference.
pub(crate) struct Pair {
    pub(crate) reference: Side,
    again: Side,
    pub(crate) tested: Side,
}

/// The comparison of one input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Also for an input that no side accepts.
    Equal,
    /// The two processes of the reference disagree, so nothing follows for the architectures.
    Varies,
    Differs(Key),
}

/// An input with the answers of the reference and of the side under test.
type Evaluated = (Case, Case, Compared);

impl Compared {
    fn of(subject: &str, reference: &Case, again: &Case, tested: &Case) -> Compared {
        if !reference.agrees(again) {
            Compared::Varies
        } else if reference.agrees(tested) {
            Compared::Equal
        } else {
            Compared::Differs(key(subject, reference, tested))
        }
    }
}

impl Launches {
    pub(crate) fn pair(&self) -> anyhow::Result<Pair> {
        let reference = Side::start(&self.reference, "reference-repeated")?;
        let again = Side::start(&self.reference, "reference-repeated-again")?;
        let mut tested = Side::start(&self.tested, "tested-repeated")?;
        if let Some(mutant) = &self.mutant {
            tested.mutate(mutant)?;
        }
        Ok(Pair { reference, again, tested })
    }
}

impl Pair {
    /// Evaluates inputs on both sides.
    pub(crate) fn evaluate(&mut self, subject: &str, inputs: &[Document]) -> anyhow::Result<Vec<Evaluated>> {
        self.compare(subject, |side| side.evaluate(subject, inputs))
    }

    fn compare(
        &mut self,
        subject: &str,
        ask: impl Fn(&mut Side) -> anyhow::Result<Vec<Case>>,
    ) -> anyhow::Result<Vec<Evaluated>> {
        let (reference, again, tested) = (ask(&mut self.reference)?, ask(&mut self.again)?, ask(&mut self.tested)?);
        let compared = reference.into_iter().zip(again).zip(tested).map(|((reference, again), tested)| {
            let compared = Compared::of(subject, &reference, &again, &tested);
            (reference, tested, compared)
        });
        Ok(compared.collect())
    }
}

/// The groups of a search, and the subjects with differences that new processes did not repeat.
pub(crate) fn groups(
    launches: &Launches,
    findings: &Findings,
    seed: u64,
    phase: &Phase,
) -> anyhow::Result<(Vec<Group>, Vec<String>)> {
    let mut merged: BTreeMap<Key, Group> = BTreeMap::new();
    let mut unrepeated = Vec::new();
    if findings.groups.is_empty() {
        return Ok((Vec::new(), unrepeated));
    }
    let mut pair = launches.pair()?;
    for (i, (key, found)) in findings.groups.iter().enumerate() {
        phase.status(format!("shrinking {} of {}: {}", i + 1, findings.groups.len(), key.subject));
        let index = found.reference.index;
        let repeat = || repeated(&mut pair, key, found, seed);
        let Some(repeat) = unless_interrupted(key, index, seed, repeat)? else { continue };
        let Some((reference, tested, seen)) = repeat else {
            progress::say(&format!("new processes do not repeat {key}: seed {seed}, input {index}"));
            unrepeated.push(key.subject.clone());
            continue;
        };
        let size = reference.input.to_string().len();
        let changes = if reference.input == tested.input {
            changes(&reference.answer, &tested.answer)
        } else {
            changes(&reference.input, &tested.input)
        };
        let group = Group {
            changes,
            key: seen.clone(),
            count: found.count,
            index: Some(index),
            input: reference.input,
            reference: reference.answer,
            tested: tested.answer,
            violation: None,
            expected: None,
        };
        match merged.get_mut(&seen) {
            None => drop(merged.insert(seen, group)),
            Some(known) => {
                known.count += group.count;
                if size < known.input.to_string().len() {
                    *known = Group { count: known.count, ..group };
                }
            }
        }
    }
    Ok((merged.into_values().collect(), unrepeated))
}

/// The rules that the side under test breaks, each with the smallest input, and the subjects whose broken rules a new
/// process did not repeat.
pub(crate) fn violations(
    launches: &Launches,
    findings: &Findings,
    seed: u64,
    phase: &Phase,
) -> anyhow::Result<(Vec<Group>, Vec<String>)> {
    let (mut groups, mut unrepeated) = (Vec::new(), Vec::new());
    if findings.violations.is_empty() {
        return Ok((groups, unrepeated));
    }
    let mut tested = Side::start(&launches.tested, "tested-alone")?;
    for (key, (index, count)) in &findings.violations {
        phase.status(format!("shrinking {}", key.subject));
        match unless_interrupted(key, *index, seed, || smallest_violation(&mut tested, key, *index, seed))? {
            None => {}
            Some(Some(group)) => groups.push(Group { count: *count, index: Some(*index), ..group }),
            Some(None) => {
                progress::say(&format!("a new process does not repeat {key}: seed {seed}, input {index}"));
                unrepeated.push(key.subject.clone());
            }
        }
    }
    Ok((groups, unrepeated))
}

/// None after an interrupt: the report has the groups so far, and a message names the others.
fn unless_interrupted<T>(
    key: &Key,
    index: u64,
    seed: u64,
    repeat: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<Option<T>> {
    let repeated = if interrupt::requested() { None } else { Some(repeat()) };
    match repeated {
        Some(Err(error)) if !interrupt::requested() => Err(error),
        Some(Ok(repeated)) => Ok(Some(repeated)),
        _ => {
            progress::say(&format!("not repeated because of the interrupt: {key}: seed {seed}, input {index}"));
            Ok(None)
        }
    }
}

fn smallest_violation(tested: &mut Side, key: &Key, index: u64, seed: u64) -> anyhow::Result<Option<Group>> {
    let span = Span { subject: &key.subject, seed, from: index, count: 1 };
    let Some(first) = tested.cases(&span)?.pop() else { return Ok(None) };
    let input = shrink(&first.input, |inputs| {
        let cases = tested.evaluate(&key.subject, inputs)?;
        Ok(cases.iter().map(|case| breaks(&key.subject, case).as_ref() == Some(key)).collect())
    })?;
    let smallest = tested.evaluate(&key.subject, &[input])?.pop();
    Ok(smallest.and_then(|case| broken_rule(&key.subject, case)))
}

fn breaks(subject: &str, case: &Case) -> Option<Key> {
    case.violates.as_ref().filter(|_| !case.invalid).map(|violation| broken(subject, violation))
}

/// The group of a case that breaks a rule.
pub(crate) fn broken_rule(subject: &str, case: Case) -> Option<Group> {
    let key = breaks(subject, &case)?;
    Some(Group {
        key,
        count: 1,
        index: None,
        input: case.input,
        reference: case.answer.clone(),
        tested: case.answer,
        changes: Vec::new(),
        violation: case.violates.map(|violation| violation.text),
        expected: None,
    })
}

/// The smallest input with the difference, in processes that did not take part in the search. None if they do not show it.
fn repeated(pair: &mut Pair, key: &Key, found: &Found, seed: u64) -> anyhow::Result<Option<(Case, Case, Key)>> {
    let subject = key.subject.as_str();
    if is_generated(key) {
        // Sides that are given an input do not generate it.
        let span = Span { subject, seed, from: found.reference.index, count: 1 };
        return Ok(differing(pair.compare(subject, |side| side.cases(&span))?));
    }
    let smallest = shrunk(pair, key, found)?;
    let small = differing(pair.evaluate(subject, &[smallest])?);
    if small.is_some() {
        return Ok(small);
    }
    // The smallest input may be one whose answers vary. That of the search may show more.
    Ok(differing(pair.evaluate(subject, std::slice::from_ref(&found.reference.input))?))
}

fn differing(compared: Vec<Evaluated>) -> Option<(Case, Case, Key)> {
    compared.into_iter().find_map(|(reference, tested, compared)| match compared {
        Compared::Differs(key) => Some((reference, tested, key)),
        Compared::Equal | Compared::Varies => None,
    })
}

fn shrunk(pair: &mut Pair, key: &Key, found: &Found) -> anyhow::Result<Document> {
    shrink(&found.reference.input, |inputs| {
        let compared = pair.evaluate(&key.subject, inputs)?;
        Ok(compared
            .iter()
            .map(|(_, _, seen)| matches!(seen, Compared::Differs(seen) if seen.is_part_of(key)))
            .collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(input: &str, answer: &str, invalid: bool) -> Case {
        let [input, answer] = [input, answer].map(|text| Document::parse(text).unwrap());
        Case { index: 0, input, answer, class: String::new(), invalid, violates: None }
    }

    fn differs(reference: &Case, tested: &Case) -> bool {
        matches!(Compared::of("s", reference, reference, tested), Compared::Differs(_))
    }

    #[test]
    fn input_that_one_side_refuses_is_a_difference() {
        let (accepted, refused) = (case("1", "null", false), case("1", "null", true));
        assert!(differs(&accepted, &refused) && differs(&refused, &accepted));
        assert!(!differs(&accepted, &accepted) && !differs(&refused, &refused));
        assert_eq!(Compared::of("s", &accepted, &refused, &refused), Compared::Varies);
    }

    #[test]
    fn input_that_is_generated_on_one_side_only_is_a_difference() {
        assert!(differs(&case("1", "1", false), &case("2", "1", false)));
    }
}
