//! When the objects of each run last changed in the store of a side.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::live::side::Side;

/// The keys of a run at the last look, as a hash, and the time of their last change.
#[derive(Clone, Copy, Debug)]
struct Seen {
    keys: u64,
    changed: Instant,
}

#[derive(Default)]
struct State {
    looked: Option<Instant>,
    runs: BTreeMap<String, Seen>,
    error: Option<String>,
}

/// Looks at a store again and again. Dropping it ends that.
pub(crate) struct Activity {
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Activity {
    /// Must be called within a runtime.
    pub(crate) fn start(side: &Side, interval: Duration) -> Activity {
        let state = Arc::new(Mutex::new(State::default()));
        let (side, shared) = (side.clone(), Arc::clone(&state));
        let task = tokio::spawn(async move {
            loop {
                let keys = side.keys().await;
                shared.lock().unwrap_or_else(PoisonError::into_inner).record(keys, Instant::now());
                suite::wait::pause(interval).await;
            }
        });
        Activity { state, task }
    }

    /// How long the objects of the run with this label have been unchanged, at the last look; None if no look followed
    /// `since`.
    pub(crate) fn quiet(&self, label: &str, since: Instant) -> Option<Duration> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).quiet(label, since)
    }

    /// The last error of a look.
    pub(crate) fn error(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).error.clone()
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    fn record(&mut self, keys: anyhow::Result<Vec<(String, i64)>>, now: Instant) {
        match keys {
            Ok(keys) => self.look(&keys, now),
            Err(error) => self.error = Some(format!("{error:#}")),
        }
    }

    fn look(&mut self, keys: &[(String, i64)], now: Instant) {
        let mut hashes: BTreeMap<&str, DefaultHasher> = BTreeMap::new();
        for (key, revision) in keys {
            if let Some(label) = label(key) {
                (key, revision).hash(hashes.entry(label).or_default());
            }
        }
        let runs = std::mem::take(&mut self.runs);
        for (label, hash) in hashes {
            let keys = hash.finish();
            let before = runs.get(label).filter(|seen| seen.keys == keys);
            let changed = before.map_or(now, |seen| seen.changed);
            self.runs.insert(label.to_owned(), Seen { keys, changed });
        }
        self.looked = Some(now);
        self.error = None;
    }

    fn quiet(&self, label: &str, since: Instant) -> Option<Duration> {
        let looked = self.looked.filter(|looked| *looked > since)?;
        Some(self.runs.get(label).map_or(Duration::ZERO, |seen| looked.duration_since(seen.changed)))
    }
}

/// The label of the run in a key, which is its namespace or the beginning of a name.
fn label(key: &str) -> Option<&str> {
    key.split('/').find_map(|part| {
        let digits = part.strip_prefix('d')?;
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        (end >= 7).then(|| &part[..=end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_belong_to_the_run_of_their_label() {
        assert_eq!(label("/registry/pods/d0000012/a"), Some("d0000012"));
        assert_eq!(label("/registry/minions/d0000012-n1"), Some("d0000012"));
        assert_eq!(label("/registry/pods/default/a"), None);
    }

    #[test]
    fn change_of_a_key_restarts_the_quiet_time() {
        let mut state = State::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let keys = |revision| vec![("/registry/pods/d0000012/a".to_owned(), revision)];
        state.look(&keys(1), at(1));
        state.look(&keys(1), at(3));
        assert_eq!(state.quiet("d0000012", begin), Some(Duration::from_secs(2)));
        state.look(&keys(2), at(4));
        assert_eq!(state.quiet("d0000012", begin), Some(Duration::ZERO));
        assert_eq!(state.quiet("d0000012", at(5)), None);
    }
}
