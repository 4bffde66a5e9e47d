//! What cases leave behind: its removal, and the report of what remains.

use std::time::{Duration, Instant};

use model::history::History;
use model::{Event, Outcome};

use super::{ActiveProfile, Engine, POLL_INTERVAL, now};
use crate::ctx::Ctx;
use crate::{contention, wait};

pub(super) const CLEAN_UP_LIMIT: Duration = Duration::from_secs(60);
/// How long the server may take to finish the deletions that the clean-up of the cases began.
const RESIDUE_LIMIT: Duration = Duration::from_secs(10);

impl Engine<'_> {
    /// Waits until the server has removed the objects of deleted definitions, which it does a moment after its answer. In
    /// other runs, what remains ends with the control planes, or its owner removes it.
    pub(super) async fn wait_until_clean(&self, active: &ActiveProfile) -> anyhow::Result<()> {
        if !self.leaves_nothing() {
            return Ok(());
        }
        let deadline = Instant::now() + contention::limit(RESIDUE_LIMIT, self.cluster.info.factor);
        for (store, _) in active.env.stores.values() {
            while Instant::now() < deadline {
                let (keys, _) = store.keys("", 0).await?;
                if !keys.iter().any(|kv| is_residue(&kv.key)) {
                    break;
                }
                wait::pause(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Whether no object of the run may remain at its end.
    fn leaves_nothing(&self) -> bool {
        self.options.alone && self.options.clean_up
    }

    /// Reports objects that remain, because every check must remove the objects that it creates.
    pub(super) fn report_residue(&self, histories: &[History]) {
        for history in histories.iter().filter(|_| self.leaves_nothing()) {
            let (profile, store) = (&history.meta.profile, &history.meta.store);
            let left: Vec<&str> = history.meta.last.iter().map(|kv| &*kv.key).filter(|key| is_residue(key)).collect();
            if !left.is_empty() {
                let text = format!("left behind in {profile}/{store}: {}", left.join(", "));
                self.emit(Event::Note { at: now(), text });
            }
        }
    }
}

/// Every name that a case makes begins like its namespace, see `CaseState::name_prefix`.
fn is_residue(key: &str) -> bool {
    key.contains("/ap-")
}

/// A check that leaves objects behind disturbs others: that is an error, but not of the server.
pub(super) async fn clean_up(ctx: &Ctx, outcome: Outcome) -> Outcome {
    let limit = contention::limit(CLEAN_UP_LIMIT, ctx.factor());
    let cleaned = tokio::time::timeout(limit, ctx.api.clean_up()).await;
    let trouble = match cleaned {
        Ok(Ok(())) => return outcome,
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => format!("not complete within {:.0} s", limit.as_secs_f64()),
    };
    match outcome {
        Outcome::Passed => Outcome::errored("clean-up", trouble),
        other => other,
    }
}
