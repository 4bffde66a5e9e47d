//! Control planes that are still starting while others are in use: who waits for one, and what became of it.
//!
//! `process` starts them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::anyhow;
use model::{ControlError, ProfileInfo};
use sys::deadline::{OnInterrupt, Probe, until};

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The starts of a cluster's control planes, by profile.
#[derive(Default)]
pub(crate) struct Starts {
    /// Those that have not ended. A reason: it will not start.
    pending: Mutex<BTreeMap<String, Option<String>>>,
    /// Where profiles are that are not where they were planned, because another process had taken a port.
    moved: Mutex<BTreeMap<String, ProfileInfo>>,
}

impl Starts {
    pub(crate) fn expect(&self, profiles: impl Iterator<Item = String>) {
        sys::lock(&self.pending).extend(profiles.map(|profile| (profile, None)));
    }

    pub(crate) fn end(&self, profile: &str) {
        sys::lock(&self.pending).remove(profile);
    }

    /// Notes where a profile is that is not where it was planned.
    pub(crate) fn note_move(&self, info: ProfileInfo) {
        sys::lock(&self.moved).insert(info.name.clone(), info);
    }

    /// Notes why the profiles whose start has not ended will not start.
    pub(crate) fn give_up(&self, why: &str) {
        for state in sys::lock(&self.pending).values_mut() {
            state.get_or_insert_with(|| why.to_owned());
        }
    }

    /// Why a profile did not start.
    pub(crate) fn failure(&self) -> Option<String> {
        sys::lock(&self.pending).values().find_map(Clone::clone)
    }

    /// See [`model::Control::started`].
    pub(crate) fn wait(&self, profile: &str) -> Result<Option<ProfileInfo>, ControlError> {
        let what = format!("the start of the profile `{profile}`");
        // Each step of a start has a deadline of its own.
        let ended = until(&what, Duration::MAX, LOOK_EVERY, OnInterrupt::Stop, || {
            match sys::lock(&self.pending).get(profile) {
                None => Probe::Ready(()),
                Some(None) => Probe::NotYet(String::new()),
                Some(Some(why)) => Probe::Hopeless(anyhow!("{why}")),
            }
        });
        ended.map_err(|error| ControlError(format!("{error:#}")))?;
        Ok(sys::lock(&self.moved).get(profile).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_waiting_profile_learns_the_end() {
        let starts = Starts::default();
        starts.expect(["a", "b", "c"].map(str::to_owned).into_iter());
        starts.end("a");
        // A caller may have put a proxy before a profile that is where it was planned.
        assert!(starts.wait("a").unwrap().is_none() && starts.failure().is_none());
        starts.give_up("no port");
        starts.give_up("a later reason");
        for profile in ["b", "c"] {
            assert!(starts.wait(profile).unwrap_err().to_string().contains("no port"), "{profile}");
        }
        assert!(starts.wait("a").is_ok());
        assert_eq!(starts.failure().as_deref(), Some("no port"));
    }
}
