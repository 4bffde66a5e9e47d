//! Cases whose requirements a cluster does not meet are skipped; of the store of an external cluster less is recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{Capabilities, Event, Outcome, StoreInfo};

use super::{Engine, finished, now};
use crate::check::missing;
use crate::record::Recorder;
use crate::selection::Case;
use crate::store::{Collector, Store};

impl Engine<'_> {
    /// Reports the cases whose requirements the cluster does not meet, and returns the others.
    pub(super) fn skip_unsupported(&self, cases: Vec<Case>) -> Vec<Case> {
        let (supported, unsupported) = self.supported(cases);
        self.skip(unsupported);
        supported
    }

    /// The cases whose requirements the cluster meets, and the others with what they need.
    pub(super) fn supported(&self, cases: Vec<Case>) -> (Vec<Case>, Vec<(Case, String)>) {
        let capabilities: BTreeMap<&str, Capabilities> = self
            .cluster
            .info
            .profiles
            .iter()
            .map(|(name, profile)| (&**name, self.cluster.capabilities(profile)))
            .collect();
        // An external cluster has one profile; what the others lack does not depend on them.
        let any = || self.cluster.info.profiles.values().next().map(|profile| self.cluster.capabilities(profile));
        let mut supported = Vec::new();
        let mut unsupported = Vec::new();
        for case in cases {
            let of_profile = capabilities.get(case.profile).cloned().or_else(any);
            match of_profile.and_then(|capabilities| missing(case.check, case.profile, &capabilities)) {
                Some(need) => unsupported.push((case, need)),
                None => supported.push(case),
            }
        }
        (supported, unsupported)
    }

    /// Reports cases that cannot run as skipped, with what they need.
    pub(super) fn skip(&self, cases: Vec<(Case, String)>) {
        for (case, need) in cases {
            self.emit(Event::CaseStarted { at: now(), case: case.name() });
            let outcome = Outcome::Skipped { need };
            self.emit(finished(&case, outcome, Duration::ZERO, BTreeMap::new(), self.options));
        }
    }

    /// The collector of a store; None if the store has no endpoint.
    pub(super) async fn collector(
        &self,
        info: &StoreInfo,
        store: &Store,
        recorder: &Recorder,
    ) -> anyhow::Result<Option<Collector>> {
        let (store, recorder) = (store.clone(), recorder.clone());
        let run_label = self.cluster.info.external.as_ref().map(|external| external.run_label.clone());
        Ok(match info.endpoint.is_empty() {
            true => None,
            false if self.options.alone => Some(Collector::start(store, recorder).await?),
            false => Some(Collector::start_beside_others(store, recorder, run_label).await?),
        })
    }
}
