//! How the engine treats an external cluster: it leaves cases out and records less of the store.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{Event, Outcome, StoreInfo};

use super::{Engine, finished, now};
use crate::record::Recorder;
use crate::selection::Case;
use crate::shared;
use crate::store::{Collector, Store};

impl Engine<'_> {
    /// Reports the cases that cannot run on an external cluster as skipped, and returns the others.
    pub(super) fn skip_unfit(&self, cases: Vec<Case>) -> Vec<Case> {
        let (fit, unfit) = shared::divide(cases, &self.cluster.info);
        self.skip(unfit);
        fit
    }

    /// Reports cases that cannot run as skipped, with what they need.
    pub(super) fn skip(&self, cases: Vec<(Case, String)>) {
        for (case, need) in cases {
            self.tell(Event::CaseStarted { at: now(), case: case.name() });
            let outcome = Outcome::Skipped { need };
            self.tell(finished(&case, outcome, Duration::ZERO, BTreeMap::new(), self.options));
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
        let mark = self.cluster.info.shared.as_ref().map(|shared| shared.mark.clone());
        Ok(match info.endpoint.is_empty() {
            true => None,
            false if self.options.alone => Some(Collector::start(store, recorder).await?),
            false => Some(Collector::start_beside_others(store, recorder, mark).await?),
        })
    }
}
