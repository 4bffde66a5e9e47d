//! The raw store of a case.

use std::time::Duration;

use anyhow::{Context, anyhow};
use judge::RunJudge;
use model::{Outcome, Resource, StoredResource};

use super::{CaseApi, CaseState};
use crate::Keyring;
use crate::error::CheckError;
use crate::record::Recorder;
use crate::sightings;
use crate::store::{KeyValue, Store};

/// The judges of the contents of objects.
const OF_CONTENTS: [&str; 3] = ["cc.same-object", "storage.matches-served", "watch.deleted-object"];

/// What the stores of a profile hold; names of objects are those of the case's namespace.
pub struct CaseStore(pub(super) CaseApi);

impl CaseStore {
    fn state(&self) -> &CaseState {
        &self.0.0
    }

    /// Exactly one row for each resource that the server's release stores; skips the check if the release has no table.
    pub fn table(&self) -> Result<&[StoredResource], CheckError> {
        match &self.state().env.table.lacks {
            None => Ok(&self.state().env.table.rows),
            Some(need) => Err(CheckError::Skipped { need: need.clone() }),
        }
    }

    /// The store that holds this resource.
    pub fn of(&self, resource: &Resource) -> &Store {
        &self.state().store_and_recorder(resource).0
    }

    pub fn recorder(&self, resource: &Resource) -> &Recorder {
        self.state().recorder(resource)
    }

    /// The key under which the store must hold an object of the case's namespace.
    pub async fn key(&self, resource: &Resource, name: &str) -> anyhow::Result<String> {
        let namespace = self.0.namespace_of(resource).await?;
        Ok(resource.key(&self.state().profile().prefix, &namespace, name))
    }

    /// The stored value of an object of the case's namespace.
    pub async fn find(&self, resource: &Resource, name: &str) -> anyhow::Result<Option<KeyValue>> {
        let key = self.key(resource, name).await?;
        Ok(self.of(resource).get(&key, 0).await?)
    }

    /// Like [`CaseStore::find`]; an absent key fails the check.
    pub async fn get(&self, resource: &Resource, name: &str) -> Result<KeyValue, CheckError> {
        let key = self.key(resource, name).await?;
        let found = self.of(resource).get(&key, 0).await?;
        found.ok_or_else(|| CheckError::failed(format!("the store has no key {key}")))
    }

    /// The version of a key after this many writes since its creation. kine reports 0 for every key, which
    /// `storage.create-txn` reports as a failure.
    pub fn expected_key_version(&self, resource: &Resource, writes: i64) -> i64 {
        let info = self.state().profile().store_for(&resource.group, &resource.plural);
        if info.kind.counts_versions() { writes } else { 0 }
    }

    /// All keys and values of the resource in the case's namespace, at `revision` (0: now).
    pub async fn list(&self, resource: &Resource, revision: i64) -> anyhow::Result<Vec<KeyValue>> {
        let namespace = self.0.namespace_of(resource).await?;
        let prefix = resource.key_prefix(&self.state().profile().prefix, Some(&namespace));
        Ok(self.of(resource).list(&prefix, revision).await?.0)
    }

    /// Lets the judges of the whole run compare everything that was shown so far of the resource's objects in the case's
    /// namespace, for a check that shows them in a form which the workload of those judges does not request. The caller waits
    /// first until the store's changes are recorded. A judge that has not enough to compare makes the check errored.
    pub async fn judge_contents(&self, resource: &Resource) -> Result<(), CheckError> {
        let (state, profile) = (self.state(), self.state().profile());
        let prefix = resource.key_prefix(&profile.prefix, Some(&self.0.namespace_of(resource).await?));
        let mut history = self.recorder(resource).contents_below(&prefix);
        let keyring = Keyring::of(profile).ok();
        sightings::complete(&mut history, state.env.schema.as_deref(), keyring.as_ref(), &|_| true);
        let histories = [history];
        let judges = RunJudge::new(&histories);
        for id in OF_CONTENTS {
            let judgement = judges.judge(id, &profile.name).with_context(|| format!("there is no judge {id}"))?;
            match judgement.outcome() {
                Outcome::Passed => {}
                Outcome::Failed { message, evidence } => {
                    return Err(CheckError::Failed { message: format!("{id}: {message}"), evidence });
                }
                other => return Err(anyhow!("{id}: {}", other.message()).into()),
            }
        }
        Ok(())
    }

    /// Compacts the store of `resource` at `revision`; only for checks with the need `Exclusive`. Waits until the
    /// history is recorded up to that revision: etcd cancels a watch that has not reached it ("mvcc: required revision
    /// has been compacted"), which would end the recording.
    pub async fn compact(&self, resource: &Resource, revision: i64) -> Result<(), CheckError> {
        let recorder = self.recorder(resource);
        let what = format!("the record of the store to reach revision {revision}");
        crate::wait::until(&what, self.state().wait_limit(), Duration::from_millis(10), || async {
            let last = recorder.last_revision();
            Ok(if last >= revision { Ok(()) } else { Err(format!("revision {last}")) })
        })
        .await?;
        self.of(resource).compact(revision).await?;
        recorder.compaction(revision);
        Ok(())
    }
}
