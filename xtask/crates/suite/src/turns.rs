//! Who comes when: the order of the profiles, and how many cases of theirs run at the same time.
//!
//! What a case does, and what it needs, is elsewhere (`engine`, `check`).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ClusterInfo, ProfileInfo};
use tokio::sync::Semaphore;

use crate::selection::Case;

/// Who shares the places for cases that run at the same time.
pub(crate) enum Slots {
    All(Arc<Semaphore>),
    /// Each profile has so many of its own. Where few profiles are awake, each of them must get on: in one queue those
    /// behind the profile with most cases would be awake for nothing.
    Each(usize),
}

impl Slots {
    /// `factor` is that of the cluster.
    pub(crate) fn new(jobs: usize, awake: Option<usize>, factor: f64) -> Slots {
        // More than their share on a slow machine, whose deadlines bear it: many cases wait most of the time.
        let all = if factor < ClusterInfo::SLOW { jobs } else { 2 * jobs };
        match awake {
            None => Slots::All(Arc::new(Semaphore::new(jobs.max(1)))),
            Some(awake) => Slots::Each((all / awake.max(1)).clamp(1, jobs.max(1))),
        }
    }

    pub(crate) fn of_profile(&self) -> Arc<Semaphore> {
        match self {
            Slots::All(slots) => Arc::clone(slots),
            Slots::Each(count) => Arc::new(Semaphore::new(*count)),
        }
    }
}

/// The profiles that have cases: the one with most of them first, then those with the longest chains, then those with
/// the fewest cases. Cases that need a profile for themselves follow each other there, and are what a run waits for.
pub(crate) fn in_order<'a>(cases: &'a [Case], profiles: &'a BTreeMap<String, ProfileInfo>) -> Vec<&'a ProfileInfo> {
    let of = |profile: &'a ProfileInfo| cases.iter().filter(|case| case.profile == profile.name);
    let count = |profile: &'a ProfileInfo| of(profile).count();
    let chain = |profile: &'a ProfileInfo| of(profile).filter(|case| case.check.is_exclusive(case.profile)).count();
    let mut order: Vec<&ProfileInfo> = profiles.values().filter(|profile| count(profile) > 0).collect();
    order.sort_by_key(|profile| (Reverse(chain(profile)), count(profile)));
    if let Some(most) = (0..order.len()).max_by_key(|&at| count(order[at])) {
        order[..=most].rotate_right(1);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: f64 = ClusterInfo::SLOW;

    #[test]
    fn few_that_are_awake_have_places_of_their_own() {
        let of = |jobs, awake| Slots::new(jobs, awake, SLOW).of_profile().available_permits();
        assert_eq!(Slots::new(16, Some(4), 1.0).of_profile().available_permits(), 4);
        assert_eq!(of(16, None), 16);
        assert_eq!(of(16, Some(3)), 10);
        assert_eq!((of(1, Some(3)), of(0, Some(3)), of(16, Some(0))), (1, 1, 16));
        let shared = Slots::new(2, None, SLOW);
        let taken = shared.of_profile().try_acquire_owned();
        assert_eq!((taken.is_ok(), shared.of_profile().available_permits()), (true, 1));
        let own = Slots::new(2, Some(2), SLOW);
        let taken = own.of_profile().try_acquire_owned();
        assert_eq!((taken.is_ok(), own.of_profile().available_permits()), (true, 2));
    }
}
