//! The key by which the apiservers of one store learn of its compactions.

use std::fmt::Display;
use std::time::Duration;

use suite::prelude::*;
use suite::store::Store;

/// The apiserver that compacts a store writes the revision here (apiserver pkg/storage/etcd3/compact.go). kine has no
/// such key.
pub(crate) const COMPACTED: &str = "compact_rev_key";
/// How often caches look for a compaction (pkg/storage/cacher/compactor.go, compactorPollPeriod), on every machine.
pub(crate) const CACHES_LOOK_EVERY: Duration = Duration::from_secs(15);

/// Writes what an apiserver writes after a compaction of the store.
pub(crate) async fn announce(store: &Store, compacted: impl Display) -> Verdict {
    store.put(COMPACTED, compacted.to_string().as_bytes()).await?;
    Ok(())
}
