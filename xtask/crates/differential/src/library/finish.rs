//! From found differences to a report: each is shrunk, repeated in new processes, and merged with those of the same key.

use std::collections::BTreeMap;

use sys::interrupt;
use sys::progress::Phase;

use super::search::{Findings, Found, broken, key};
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
#[derive(Debug)]
pub(crate) enum Compared {
    /// Also for an input that a side does not accept.
    Equal,
    /// The two processes of the reference disagree, so nothing follows for the architectures.
    Varies,
    Differs(Key),
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
    pub(crate) fn evaluate(
        &mut self,
        subject: &str,
        inputs: &[Document],
    ) -> anyhow::Result<Vec<(Case, Case, Compared)>> {
        let reference = self.reference.evaluate(subject, inputs)?;
        let again = self.again.evaluate(subject, inputs)?;
        let tested = self.tested.evaluate(subject, inputs)?;
        let compared = reference.into_iter().zip(again).zip(tested).map(|((reference, again), tested)| {
            let compared = if !reference.agrees(&again) {
                Compared::Varies
            } else if reference.invalid || tested.invalid || reference.agrees(&tested) {
                Compared::Equal
            } else {
                Compared::Differs(key(subject, &reference, &tested))
            };
            (reference, tested, compared)
        });
        Ok(compared.collect())
    }
}

/// The groups of a search, and the subjects with differences that new processes did not repeat.
pub(crate) fn groups(
    launches: &Launches,
    findings: &Findings,
    phase: &Phase,
) -> anyhow::Result<(Vec<Group>, Vec<String>)> {
    let mut merged: BTreeMap<Key, Group> = BTreeMap::new();
    let mut unrepeated = Vec::new();
    if findings.groups.is_empty() {
        return Ok((Vec::new(), unrepeated));
    }
    let mut pair = launches.pair()?;
    for (i, (key, found)) in findings.groups.iter().enumerate() {
        interrupt::check()?;
        phase.status(format!("shrinking {} of {}: {}", i + 1, findings.groups.len(), key.subject));
        let input = shrunk(&mut pair, key, found)?;
        // A second evaluation, after others, and in processes that did not take part in the search.
        let [(reference, tested, seen)] = pair.evaluate(&key.subject, &[input])?.try_into().expect("one answer each");
        let Compared::Differs(seen) = seen else {
            unrepeated.push(key.subject.clone());
            continue;
        };
        let size = reference.input.to_string().len();
        let group = Group {
            changes: changes(&reference.answer, &tested.answer),
            key: seen.clone(),
            count: found.count,
            index: Some(found.reference.index),
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

/// The rules that the side under test breaks, each with the smallest input.
pub(crate) fn violations(
    launches: &Launches,
    findings: &Findings,
    seed: u64,
    phase: &Phase,
) -> anyhow::Result<Vec<Group>> {
    let mut groups = Vec::new();
    if findings.violations.is_empty() {
        return Ok(groups);
    }
    let mut tested = Side::start(&launches.tested, "tested-alone")?;
    for (key, (index, count)) in &findings.violations {
        interrupt::check()?;
        phase.status(format!("shrinking {}", key.subject));
        let span = Span { subject: &key.subject, seed, from: *index, count: 1 };
        let Some(first) = tested.cases(&span)?.pop() else { continue };
        let input = shrink(&first.input, |inputs| {
            let cases = tested.evaluate(&key.subject, inputs)?;
            Ok(cases.iter().map(|case| breaks(&key.subject, case).as_ref() == Some(key)).collect())
        })?;
        let smallest = tested.evaluate(&key.subject, &[input])?.pop();
        groups.extend(smallest.and_then(|case| broken_rule(&key.subject, case)).map(|group| Group {
            count: *count,
            index: Some(*index),
            ..group
        }));
    }
    Ok(groups)
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

fn shrunk(pair: &mut Pair, key: &Key, found: &Found) -> anyhow::Result<Document> {
    shrink(&found.reference.input, |inputs| {
        let compared = pair.evaluate(&key.subject, inputs)?;
        Ok(compared
            .iter()
            .map(|(_, _, seen)| matches!(seen, Compared::Differs(seen) if seen.is_part_of(key)))
            .collect())
    })
}
