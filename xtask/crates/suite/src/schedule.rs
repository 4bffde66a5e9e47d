//! The schedule: the order of the profiles, and the number of their cases that run at the same time.
//!
//! `engine` runs the cases, and `check` defines their needs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ClusterInfo, Durations};
use tokio::sync::Semaphore;

use crate::selection::Case;

/// How profiles share the slots for cases that run at the same time.
pub(crate) enum Slots {
    /// One queue for all profiles, except for those with exclusive cases: these run after the other cases of the profile, one
    /// by one, and the run ends with the longest such chain. Their profiles have this many slots each.
    All(Arc<Semaphore>, usize),
    /// Each profile has this many slots. If only a few profiles are active at a time, each of them must make progress:
    /// in one common queue, profiles behind the one with the most cases would be active without running a case.
    Each(usize),
}

impl Slots {
    /// `factor` is the cluster's slowdown.
    pub(crate) fn new(jobs: usize, max_active: Option<usize>, factor: f64) -> Slots {
        // On a slow machine more than the even share: many cases wait most of the time, and the deadlines are long
        // enough.
        let all = if factor < ClusterInfo::SLOW { jobs } else { 2 * jobs };
        match max_active {
            None => Slots::All(Arc::new(Semaphore::new(jobs.max(1))), (jobs / 4).max(1)),
            Some(max_active) => Slots::Each((all / max_active.max(1)).clamp(1, jobs.max(1))),
        }
    }

    pub(crate) fn of_profile(&self, has_exclusive: bool) -> Arc<Semaphore> {
        match self {
            Slots::All(slots, _) if !has_exclusive => Arc::clone(slots),
            Slots::All(_, count) | Slots::Each(count) => Arc::new(Semaphore::new(*count)),
        }
    }
}

/// The shares of an active profile. While its exclusive cases run, one after the other, it has one of them: these mostly
/// wait, and another profile can use the processors.
pub(crate) const SHARES: u32 = 2;

/// The names of the profiles with cases, in the order in which they become active if only a few may be: the one with the
/// most cases, whose slots are in use longest, then as in [`start_order`].
pub(crate) fn profile_order(cases: &[Case], durations: &Durations) -> Vec<&'static str> {
    let count = |name: &str| cases.iter().filter(|case| case.profile == name).count();
    let mut order = start_order(cases, durations);
    if let Some(most) = (0..order.len()).max_by_key(|&at| count(order[at])) {
        order[..=most].rotate_right(1);
    }
    order
}

/// The names of the profiles with cases, in the order in which their control planes should start: the one whose cases
/// take longest even if nothing else runs comes first. That is the longest of those that run together, followed by the
/// exclusive ones.
pub fn start_order(cases: &[Case], durations: &Durations) -> Vec<&'static str> {
    let mut paths: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
    for case in cases {
        let time = durations.of(&case.name());
        let (together, alone) = paths.entry(case.profile).or_default();
        if case.check.is_exclusive(case.profile) {
            *alone += time;
        } else {
            *together = time.max(*together);
        }
    }
    let mut order: Vec<&'static str> = paths.keys().copied().collect();
    order.sort_by_key(|profile| Reverse(paths[profile].0 + paths[profile].1));
    order
}

/// The exclusive cases of a profile in their order: see [`Requirement::After`](crate::Requirement::After).
pub(crate) fn in_sequence(cases: Vec<&Case>) -> Vec<&Case> {
    let ids: Vec<&str> = cases.iter().map(|case| case.check.id).collect();
    let comes_later = |case: &&Case| case.check.after().is_some_and(|first| ids.contains(&first));
    let (later, mut order): (Vec<&Case>, Vec<&Case>) = cases.into_iter().partition(comes_later);
    for case in later {
        let first = order.iter().position(|other| Some(other.check.id) == case.check.after());
        order.insert(first.map_or(order.len(), |at| at + 1), case);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::Selection;
    use crate::test_checks::CHECKS;

    fn cases() -> Vec<Case> {
        Selection::default().cases(CHECKS.iter()).unwrap()
    }

    #[test]
    fn longest_path_starts_first() {
        let times = [("list.expired", 50), ("fault.restart", 40), ("watch.expired", 60), ("storage.all", 70)];
        let cases_of = times.iter().map(|(case, time)| ((*case).to_owned(), *time)).collect();
        let durations = Durations { control_plane: 1, traffic: 1, cases: cases_of };
        // On `disruptive` 60 and then 40; on `default` 70; on the others the median, 60.
        let order = start_order(&cases(), &durations);
        assert_eq!(order[..2], ["disruptive", "default"]);
        assert_eq!(order.len(), 7);
        // `default` has the most cases.
        let active = profile_order(&cases(), &durations);
        assert_eq!((&active[..2], &active[2..]), (&["default", "disruptive"][..], &order[2..]));
    }

    #[test]
    fn later_case_comes_after_the_one_that_it_names() {
        let all = cases();
        let named = |id: &str| all.iter().find(|case| case.check.id == id).unwrap();
        let names = |cases: Vec<&Case>| cases.iter().map(|case| case.check.id).collect::<Vec<_>>();
        let (late, first, other) = (named("watch.cache"), named("fault.restart"), named("list.expired"));
        assert_eq!(names(in_sequence(vec![late, first, other])), ["fault.restart", "watch.cache", "list.expired"]);
        assert_eq!(names(in_sequence(vec![late, other])), ["watch.cache", "list.expired"]);
    }

    const SLOW: f64 = ClusterInfo::SLOW;

    #[test]
    fn few_active_profiles_have_separate_slots() {
        let of = |jobs, max_active| Slots::new(jobs, max_active, SLOW).of_profile(false).available_permits();
        assert_eq!(Slots::new(16, Some(4), 1.0).of_profile(false).available_permits(), 4);
        assert_eq!(of(16, None), 16);
        assert_eq!(of(16, Some(3)), 10);
        assert_eq!((of(1, Some(3)), of(0, Some(3)), of(16, Some(0))), (1, 1, 16));
        let shared = Slots::new(2, None, SLOW);
        let taken = shared.of_profile(false).try_acquire_owned();
        assert_eq!((taken.is_ok(), shared.of_profile(false).available_permits()), (true, 1));
        assert_eq!(shared.of_profile(true).available_permits(), 1);
        let own = Slots::new(2, Some(2), SLOW);
        let taken = own.of_profile(true).try_acquire_owned();
        assert_eq!((taken.is_ok(), own.of_profile(true).available_permits()), (true, 2));
    }
}
