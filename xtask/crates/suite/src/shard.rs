//! `--shard i/n`: selects the part of the cases that a run takes, so that n machines share the work about evenly.
//!
//! The split is a pure function of the cases and the recorded durations: machines with the same data agree without
//! communication. All judges of a profile stay together, because each part that judges a profile must first create the
//! traffic to judge. Other cases of the profile may be in other parts; there the judges only look for violations.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::str::FromStr;

use model::Durations;

use crate::check::Run;
use crate::selection::Case;

/// One of several parts, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: NonZeroUsize,
}

/// A text that is not a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAShard(String);

impl std::error::Error for NotAShard {}

impl std::fmt::Display for NotAShard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` is not a shard: write I/N with I from 1 to N, such as 2/4 for the second of four parts", self.0)
    }
}

impl Shard {
    /// The cases of this part, in the order in which they were given.
    pub fn of(self, cases: &[Case], durations: &Durations) -> Vec<Case> {
        split(cases, durations, self.of).swap_remove(self.number - 1)
    }

    /// Whether an item of a list without durations is in this part; `place` counts from 0. Neighbours are in different parts.
    pub fn has(self, place: usize) -> bool {
        place % self.of == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = NotAShard;

    fn from_str(text: &str) -> Result<Shard, NotAShard> {
        let parse = || {
            let (number, of) = text.split_once('/')?;
            let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit()).then(|| part.parse::<usize>().ok())?;
            let (number, of) = (digits(number)?, NonZeroUsize::new(digits(of)?)?);
            // Every part takes memory here, and no user has so many machines.
            ((1..=of.get()).contains(&number) && of.get() <= 1000).then_some(Shard { number, of })
        };
        parse().ok_or_else(|| NotAShard(text.to_owned()))
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// Cases that must be in the same part.
struct Unit {
    profile: &'static str,
    /// Indexes of the cases.
    cases: Vec<usize>,
    cost: u64,
}

/// A part that is being filled.
#[derive(Default)]
struct Part {
    profiles: BTreeSet<&'static str>,
    cases: Vec<usize>,
    cost: u64,
}

/// Puts every case in exactly one of `n` parts; parts stay empty only if there are fewer units than parts.
///
/// Assigns the longest unit first, each to the part that then has the least work. A profile that the part does not have
/// yet costs it a control plane.
fn split(cases: &[Case], durations: &Durations, n: NonZeroUsize) -> Vec<Vec<Case>> {
    let mut parts: Vec<Part> = (0..n.get()).map(|_| Part::default()).collect();
    for unit in units(cases, durations) {
        let after = |part: &Part| {
            let start = if part.profiles.contains(unit.profile) { 0 } else { durations.control_plane };
            part.cost.saturating_add(start).saturating_add(unit.cost)
        };
        // Takes the first of equal parts.
        let Some(best) = parts.iter_mut().min_by_key(|part| after(part)) else { continue };
        best.cost = after(best);
        best.profiles.insert(unit.profile);
        best.cases.extend(unit.cases);
    }
    let in_order = |mut part: Part| {
        part.cases.sort_unstable();
        part.cases.into_iter().map(|index| cases[index]).collect()
    };
    parts.into_iter().map(in_order).collect()
}

/// The units, longest first; equal ones are sorted by name, so that the order of the given cases does not matter.
fn units(cases: &[Case], durations: &Durations) -> Vec<Unit> {
    let mut judged: BTreeMap<&'static str, Unit> = BTreeMap::new();
    let mut units = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let cost = durations.of(&case.name());
        let profile = case.profile;
        if matches!(case.check.run, Run::Judge) {
            let traffic = || Unit { profile, cases: Vec::new(), cost: durations.traffic };
            let unit = judged.entry(profile).or_insert_with(traffic);
            unit.cases.push(index);
            unit.cost = unit.cost.saturating_add(cost);
        } else {
            units.push(Unit { profile, cases: vec![index], cost });
        }
    }
    units.extend(judged.into_values());
    let name = |unit: &Unit| unit.cases.iter().map(|index| cases[*index].name()).min();
    units.sort_by_cached_key(|unit| (std::cmp::Reverse(unit.cost), name(unit)));
    units
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::Selection;
    use crate::test_checks::CHECKS;

    fn names(cases: &[Case]) -> Vec<String> {
        cases.iter().map(Case::name).collect()
    }

    fn parts(cases: &[Case], durations: &Durations, n: usize) -> Vec<Vec<Case>> {
        let part = |number| Shard { number, of: NonZeroUsize::new(n).unwrap() }.of(cases, durations);
        (1..=n).map(part).collect()
    }

    /// The cost of a part: control planes, traffic if it contains judges, cases.
    fn cost(part: &[Case], durations: &Durations) -> u64 {
        let profiles: BTreeSet<&str> = part.iter().map(|case| case.profile).collect();
        let judged = part.iter().filter(|case| matches!(case.check.run, Run::Judge));
        let judged: BTreeSet<&str> = judged.map(|case| case.profile).collect();
        let cases: u64 = part.iter().map(|case| durations.of(&case.name())).sum();
        profiles.len() as u64 * durations.control_plane + judged.len() as u64 * durations.traffic + cases
    }

    /// Random durations for most of the cases, and a random selection of the cases. Judges take little time, as they do
    /// in practice: the judges of a profile cannot be divided, which a split by number would ignore.
    fn draw(random: &mut fastrand::Rng) -> (Vec<Case>, Durations) {
        let all = Selection::default().cases(CHECKS.iter()).unwrap();
        let mut cases: Vec<Case> = all.iter().copied().filter(|_| random.u8(..4) > 0).collect();
        random.shuffle(&mut cases);
        let mut time = |case: &Case| if is_judged(case) { random.u64(1..30) } else { random.u64(..30_000) };
        let measured = all.iter().map(|case| (case, time(case)));
        let measured = measured.filter(|(case, time)| is_judged(case) || *time > 3_000);
        let times = measured.map(|(case, time)| (case.name(), time)).collect();
        let durations = Durations { control_plane: random.u64(1..5_000), traffic: random.u64(1..5_000), cases: times };
        (cases, durations)
    }

    fn is_judged(case: &Case) -> bool {
        matches!(case.check.run, Run::Judge)
    }

    #[test]
    fn every_place_is_in_one_part() {
        let parts: Vec<Shard> = (1..=3).map(|number| format!("{number}/3").parse().unwrap()).collect();
        for place in 0..7 {
            let having: Vec<usize> = parts.iter().filter(|part| part.has(place)).map(|part| part.number).collect();
            assert_eq!(having, [place % 3 + 1]);
        }
    }

    #[test]
    fn every_case_is_in_one_shard_and_judges_of_a_profile_stay_together() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..100 {
            let (cases, durations) = draw(&mut random);
            let n = random.usize(1..12);
            let parts = parts(&cases, &durations, n);
            let mut together: Vec<String> = parts.iter().flat_map(|part| names(part)).collect();
            together.sort();
            let mut expected = names(&cases);
            expected.sort();
            assert_eq!(together, expected, "{n} parts");
            let mut judging: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
            for (number, part) in parts.iter().enumerate() {
                for case in part.iter().filter(|case| is_judged(case)) {
                    judging.entry(case.profile).or_default().insert(number);
                }
            }
            assert!(judging.values().all(|parts| parts.len() == 1), "{judging:?}");
        }
    }

    #[test]
    fn order_of_given_cases_does_not_matter() {
        let mut random = fastrand::Rng::with_seed(6);
        for _ in 0..20 {
            let (mut cases, durations) = draw(&mut random);
            let n = random.usize(2..6);
            let sorted = |cases: &[Case]| -> Vec<BTreeSet<String>> {
                parts(cases, &durations, n).iter().map(|part| names(part).into_iter().collect()).collect()
            };
            let before = sorted(&cases);
            random.shuffle(&mut cases);
            assert_eq!(sorted(&cases), before);
        }
    }

    /// No part takes longer than an even share plus one unit, and a split by number is hardly ever as good.
    #[test]
    fn shards_are_balanced_by_duration() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut better = 0;
        for _ in 0..100 {
            let (cases, durations) = draw(&mut random);
            let n = random.usize(2..9);
            let parts = parts(&cases, &durations, n);
            let costs: Vec<u64> = parts.iter().map(|part| cost(part, &durations)).collect();
            let longest = units(&cases, &durations)[0].cost + durations.control_plane;
            let (sum, most) = (costs.iter().sum::<u64>(), *costs.iter().max().unwrap());
            assert!(most <= sum / n as u64 + longest, "{costs:?}");
            let naive = cases.chunks(cases.len().div_ceil(n)).map(|part| cost(part, &durations)).max().unwrap();
            better += usize::from(most < naive);
        }
        assert!(better >= 90, "only {better} of 100 are better than a split by number");
    }

    #[test]
    fn no_shard_is_empty_while_there_are_enough_units() {
        let mut random = fastrand::Rng::with_seed(8);
        let (cases, durations) = draw(&mut random);
        let units = units(&cases, &durations).len();
        assert!(parts(&cases, &durations, units).iter().all(|part| !part.is_empty()));
        let more = parts(&cases, &durations, units + 2);
        assert_eq!(more.iter().filter(|part| part.is_empty()).count(), 2);
        assert!(parts(&[], &durations, 3).iter().all(Vec::is_empty));
    }

    #[test]
    fn shards_are_counted_from_one() {
        for good in ["1/1", "2/4", "12/12"] {
            assert_eq!(good.parse::<Shard>().unwrap().to_string(), good);
        }
        for bad in ["", "1", "0/4", "5/4", "1/0", "-1/4", "+1/4", "1/4/2", "a/b", "/", "1/99999999999999999999"] {
            assert!(bad.parse::<Shard>().unwrap_err().to_string().contains("I/N"), "{bad}");
        }
    }
}
