//! What the engine does otherwise in a cluster of somebody else: it leaves cases out and records less of the store.

use model::StoreInfo;

use super::Engine;
use crate::record::Recorder;
use crate::selection::Case;
use crate::shared;
use crate::store::{Collector, Store};

impl Engine<'_> {
    /// Tells of the cases that do not fit a cluster of somebody else, and returns the others.
    pub(super) fn skip_unfit(&self, cases: Vec<Case>) -> Vec<Case> {
        let (fit, unfit) = shared::divide(cases, &self.cluster.info);
        super::skip(&unfit, self.options, &self.sink);
        fit
    }

    /// Nobody collects from a store that cannot be reached.
    pub(super) async fn collector(
        &self,
        info: &StoreInfo,
        store: &Store,
        recorder: &Recorder,
    ) -> anyhow::Result<Option<Collector>> {
        let (store, recorder) = (store.clone(), recorder.clone());
        Ok(match &self.cluster.info.shared {
            _ if info.endpoint.is_empty() => None,
            None => Some(Collector::start(store, recorder).await?),
            Some(shared) => Some(Collector::start_beside_others(store, recorder, shared.mark.clone()).await?),
        })
    }
}
