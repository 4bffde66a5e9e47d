//! The schedule: the order of the profiles, and the number of their cases that run at the same time.
//!
//! `engine` runs the cases, and `check` defines their needs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ClusterInfo, ProfileInfo};
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

/// The profiles that have cases: the one with the most cases first, then those with the most exclusive cases, then
/// those with the fewest cases. Exclusive cases of a profile run one after the other, so a run has to wait for them.
pub(crate) fn profile_order<'a>(
    cases: &'a [Case],
    profiles: &'a BTreeMap<String, ProfileInfo>,
) -> Vec<&'a ProfileInfo> {
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
