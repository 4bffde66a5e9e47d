//! One raw watch of the whole store during the whole run: it records the history with which everything else is
//! compared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use model::history::{Change, Key, Revision, Snapshot};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::client::{KeyValue, Store};
use super::wire;
use crate::record::{Recorder, key};

/// The pause before a broken watch is opened again: etcd may be restarting.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);
/// How often the collector asks for progress while it waits for the end of the history.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// A running collection.
pub struct Collector {
    store: Store,
    recorder: Recorder,
    names: Names,
    /// The revision up to which the record is complete.
    seen: watch::Receiver<i64>,
    ask_progress: mpsc::Sender<()>,
    task: JoinHandle<anyhow::Error>,
}

impl Collector {
    /// Begins at the store's first revision, or at the current one if earlier revisions are compacted.
    pub async fn start(store: Store, recorder: Recorder) -> anyhow::Result<Collector> {
        match store.keys("", 1).await {
            Ok(_) => Ok(Collector::begin(store, recorder, Names::All, 0)),
            Err(error) if error.is_compacted() => Collector::from_now(store, recorder, Names::All).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Begins at the current revision of a store with other writers. With a mark, only keys of this run's objects are
    /// recorded unchanged: the store may hold secrets of other users, and people share histories.
    pub async fn start_beside_others(
        store: Store,
        recorder: Recorder,
        mark: Option<String>,
    ) -> anyhow::Result<Collector> {
        let names = match mark {
            Some(mark) => Names::OfRun { mark, recorder: recorder.clone() },
            None => Names::All,
        };
        Collector::from_now(store, recorder, names).await
    }

    async fn from_now(store: Store, recorder: Recorder, names: Names) -> anyhow::Result<Collector> {
        let (initial, revision) = store.keys("", 0).await?;
        let initial = names.snapshots(initial);
        recorder.meta(|meta| meta.initial = initial);
        Ok(Collector::begin(store, recorder, names, revision))
    }

    fn begin(store: Store, recorder: Recorder, names: Names, first_rev: i64) -> Collector {
        recorder.meta(|meta| meta.first_rev = first_rev);
        let (reported, seen) = watch::channel(first_rev);
        let (ask_progress, asked) = mpsc::channel(1);
        let watcher = Watcher {
            store: store.clone(),
            recorder: recorder.clone(),
            reported,
            asked,
            names: names.clone(),
            keys: BTreeMap::new(),
        };
        let task = tokio::spawn(watcher.run());
        Collector { store, recorder, names, seen, ask_progress, task }
    }

    /// Waits until everything up to `revision` is recorded.
    pub async fn wait_for(&self, revision: i64, limit: Duration) -> anyhow::Result<()> {
        let mut seen = self.seen.clone();
        let arrived = async {
            loop {
                // If the channel is full, a request is already under way.
                let _ = self.ask_progress.try_send(());
                let look = tokio::time::timeout(PROGRESS_EVERY, seen.wait_for(|rev| *rev >= revision));
                match look.await {
                    Ok(Ok(_)) => return Ok(()),
                    Ok(Err(_)) => bail!("the raw watch has ended"),
                    Err(_) => {}
                }
            }
        };
        match tokio::time::timeout(limit, arrived).await {
            Ok(result) => result,
            Err(_) => {
                let at = *self.seen.borrow();
                bail!("the raw watch reached revision {at} of {revision} within {:.0} s", limit.as_secs_f64())
            }
        }
    }

    /// Ends the collection at the store's current revision.
    pub async fn finish(self, limit: Duration) -> anyhow::Result<()> {
        let revision = self.store.revision().await?;
        self.wait_for(revision, limit).await.context("the store's history is incomplete")?;
        let (last, _) = self.store.keys("", revision).await?;
        self.task.abort();
        let last = self.names.snapshots(last);
        self.recorder.meta(|meta| {
            meta.last_rev = revision;
            meta.last = last;
        });
        Ok(())
    }
}

/// The task behind a collector.
struct Watcher {
    store: Store,
    recorder: Recorder,
    reported: watch::Sender<i64>,
    asked: mpsc::Receiver<()>,
    names: Names,
    /// Keys repeat in nearly every revision, so each text is kept once.
    keys: BTreeMap<Vec<u8>, Key>,
}

impl Watcher {
    /// Watches forever, also when the store restarts; returns only an error after which the watch cannot continue.
    async fn run(mut self) -> anyhow::Error {
        for attempt in 0u64.. {
            match self.watch_once(attempt > 0).await {
                Ok(()) => {}
                Err(Trouble::Broken) => {
                    self.store.next_member();
                    crate::wait::pause(REOPEN_PAUSE).await;
                }
                Err(Trouble::Lost(error)) => return error,
            }
        }
        anyhow!("the raw watch broke too often")
    }

    /// Runs one watch, from the first revision that is not recorded yet until the watch breaks.
    async fn watch_once(&mut self, again: bool) -> Result<(), Trouble> {
        let (requests, receiver) = mpsc::channel::<wire::WatchRequest>(4);
        let (key, range_end) = self.store.range_of("");
        let create = wire::WatchCreateRequest {
            key,
            range_end,
            start_revision: self.reported.borrow().saturating_add(1),
            progress_notify: true,
            prev_kv: true,
            watch_id: 0,
        };
        let request = wire::WatchRequest { create: Some(create), progress: None };
        requests.send(request).await.map_err(|_| Trouble::Broken)?;
        let mut answers = self.store.stream(receiver).await.map_err(|_| Trouble::Broken)?;
        if again {
            self.recorder.reopened(self.reported.borrow().saturating_add(1));
        }
        loop {
            tokio::select! {
                answer = answers.message() => match answer {
                    Ok(Some(answer)) => self.take(answer)?,
                    Ok(None) | Err(_) => return Err(Trouble::Broken),
                },
                Some(()) = self.asked.recv() => {
                    let progress = Some(wire::WatchProgressRequest {});
                    let request = wire::WatchRequest { create: None, progress };
                    requests.send(request).await.map_err(|_| Trouble::Broken)?;
                }
            }
        }
    }

    fn take(&mut self, answer: wire::WatchResponse) -> Result<(), Trouble> {
        if answer.canceled {
            return Err(Trouble::Lost(anyhow!(
                "etcd cancelled the raw watch: {} (compacted at {})",
                answer.cancel_reason,
                answer.compact_revision
            )));
        }
        let at = self.recorder.now();
        let last_event = answer.events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| kv.mod_revision).max();
        let revision = |event| self.names.revision(&mut self.keys, event, at);
        let revisions: Vec<Revision> = answer.events.into_iter().filter_map(revision).collect();
        let progress = revisions.is_empty() && !answer.created;
        self.recorder.revisions(revisions);
        // A response without events is a progress notification: everything up to its revision has been sent.
        let complete = if progress { answer.header.map(|header| header.revision) } else { last_event };
        if let Some(complete) = complete {
            self.reported.send_if_modified(|seen| {
                let newer = complete > *seen;
                *seen = complete.max(*seen);
                newer
            });
        }
        Ok(())
    }
}

enum Trouble {
    /// The watch can be opened again from the last revision seen.
    Broken,
    Lost(anyhow::Error),
}

/// The keys that are recorded unchanged, with their values.
#[derive(Clone)]
enum Names {
    All,
    /// Those of the objects that the run with this mark has created.
    OfRun {
        mark: String,
        recorder: Recorder,
    },
}

impl Names {
    /// Whether the key and its value are recorded unchanged.
    ///
    /// Objects in a namespace of the run belong to the run, and so do all objects of a definition that it created.
    /// Secrets are an exception: clusters copy pull secrets and certificates into each namespace, so only Secrets that
    /// the run wrote count. The mark anywhere in a key is not enough, because its five letters may be part of any name.
    fn shows(&self, key: &[u8]) -> bool {
        let Names::OfRun { mark, recorder } = self else { return true };
        let key = String::from_utf8_lossy(key);
        if recorder.has_written(&key) {
            return true;
        }
        let segments: Vec<&str> = key.split('/').collect();
        let [places @ .., name] = segments.as_slice() else { return false };
        // The apiserver creates an APIService `VERSION.GROUP` for each definition of the run.
        if let ([.., "apiregistration.k8s.io", "apiservices"], Some((_, group))) = (places, name.split_once('.')) {
            return is_of_run(group, mark);
        }
        let is_secret = matches!(places, [.., "secrets", _]);
        !is_secret && places.iter().any(|place| is_of_run(place, mark))
    }

    /// The key, or a digest of it with a prefix that no key of an apiserver has.
    fn of(&self, text: &str) -> Key {
        if self.shows(text.as_bytes()) {
            return key(text);
        }
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let short: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        key(&format!("other:{short}"))
    }

    /// The record of an event; `keys` holds the text of each key once.
    fn revision(&self, keys: &mut BTreeMap<Vec<u8>, Key>, event: wire::Event, at: u64) -> Option<Revision> {
        let kv = event.kv?;
        let name = keys.get(&kv.key).cloned().unwrap_or_else(|| {
            let name = self.of(&String::from_utf8_lossy(&kv.key));
            keys.insert(kv.key.clone(), Arc::clone(&name));
            name
        });
        let value = if self.shows(&kv.key) { kv.value.into() } else { Arc::default() };
        Some(Revision {
            at,
            rev: kv.mod_revision,
            key: name,
            kind: if event.r#type == 0 { Change::Put } else { Change::Delete },
            version: kv.version,
            create_rev: kv.create_revision,
            lease: kv.lease,
            prev_rev: event.prev_kv.map_or(0, |previous| previous.mod_revision),
            value,
        })
    }

    fn snapshots(&self, values: Vec<KeyValue>) -> Vec<Snapshot> {
        let snapshot = |kv: KeyValue| Snapshot {
            key: self.of(&kv.key),
            create_rev: kv.create_rev,
            mod_rev: kv.mod_rev,
            version: kv.version,
        };
        values.into_iter().map(snapshot).collect()
    }
}

/// A watch response parsed from its bytes, its serialised form, and the revisions that the collector records of it. For
/// the fuzz crate.
pub(crate) fn recorded(message: &[u8]) -> Option<(wire::WatchResponse, Vec<u8>, Vec<Revision>)> {
    use prost::Message;
    let answer = wire::WatchResponse::decode(message).ok()?;
    let mut keys = BTreeMap::new();
    let events = answer.events.clone().into_iter();
    let revisions = events.filter_map(|event| Names::All.revision(&mut keys, event, 0)).collect();
    let written = answer.encode_to_vec();
    Some((answer, written, revisions))
}

/// Whether a namespace or a group has a name that `Ctx` generates: `ap-CHECK-MARK`, `ap-CHECK-MARK-1.example.org`.
fn is_of_run(place: &str, mark: &str) -> bool {
    let end = format!("-{mark}");
    let ends_there =
        |(at, _): (usize, &str)| !place[at + end.len()..].starts_with(|next: char| next.is_ascii_lowercase());
    place.starts_with("ap-") && place.match_indices(&end).any(ends_there)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Clock;

    fn of_run() -> (Names, Recorder) {
        let recorder = Recorder::new(Clock::start(), "default", "main");
        (Names::OfRun { mark: "qwert".into(), recorder: recorder.clone() }, recorder)
    }

    #[test]
    fn values_of_foreign_objects_are_not_recorded() {
        let (names, _) = of_run();
        for key in [
            "/registry/configmaps/ap-cc-x-qwert/a",
            "/registry/configmaps/ap-list-order-qwert0/a",
            "/registry/ap-storage-x-qwert.example.org/fruits/default/a",
            "/registry/ap-storage-x-qwert-1.example.org/fruits/a",
            "/registry/apiregistration.k8s.io/apiservices/v1.ap-storage-x-qwert.example.org",
        ] {
            assert!(names.shows(key.as_bytes()), "{key}");
        }
        for key in [
            "/registry/secrets/shop/qwertz-keyboards",
            "/registry/secrets/qwert/password",
            "/registry/secrets/shop/ap-cc-x-qwert",
            "/registry/secrets/ap-cc-x-qwertz/password",
            "/registry/secrets/ap-cc-x-other/password",
            "/registry/configmaps/my-ap-cc-x-qwert/a",
            "/registry/namespaces/qwert",
            "/registry/apiregistration.k8s.io/apiservices/v1.ap-storage-x-qwertz.example.org",
            "/registry/apiregistration.k8s.io/apiservices/v1.metrics.qwert",
            "/registry/secrets/apiservices/v1.ap-storage-x-qwert.example.org",
            "qwert",
        ] {
            assert!(!names.shows(key.as_bytes()), "{key}");
        }
    }

    #[test]
    fn only_secrets_that_the_run_wrote_are_recorded() {
        let (names, recorder) = of_run();
        let (copied, own) = ("/registry/secrets/ap-cc-x-qwert/pull", "/registry/secrets/ap-cc-x-qwert/a");
        recorder.written(own);
        assert!(names.shows(own.as_bytes()));
        assert!(!names.shows(copied.as_bytes()));
        let value = |name: &str| {
            let kv =
                wire::KeyValue { key: name.into(), value: b"hidden".to_vec(), mod_revision: 7, ..Default::default() };
            let event = wire::Event { kv: Some(kv), ..Default::default() };
            names.revision(&mut BTreeMap::new(), event, 0).unwrap().value
        };
        assert_eq!(&*value(own), b"hidden");
        assert_eq!(&*value(copied), b"");
        recorder.written("/registry/namespaces/ap-cc-x-qwert");
        assert!(names.shows(b"/registry/namespaces/ap-cc-x-qwert"), "a cluster-scoped object of the run");
    }

    /// The recorder is locked while the closure makes the snapshots, and each snapshot calls the recorder.
    #[test]
    fn snapshots_of_a_run_are_recorded_without_deadlock() {
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (names, recorder) = of_run();
            let key = "/registry/configmaps/ap-cc-x-qwert/a".to_owned();
            let kv = KeyValue { key, value: Vec::new(), create_rev: 1, mod_rev: 2, version: 1, lease: 0 };
            recorder.meta(|meta| meta.initial = names.snapshots(vec![kv]));
            ended.send(recorder.take().meta.initial.len()).unwrap();
        });
        assert_eq!(end.recv_timeout(Duration::from_secs(20)), Ok(1), "the recorder is deadlocked");
    }

    #[test]
    fn foreign_keys_are_recorded_as_digests() {
        let (names, _) = of_run();
        assert_eq!(&*names.of("/registry/configmaps/ap-cc-x-qwert/a"), "/registry/configmaps/ap-cc-x-qwert/a");
        let secret = names.of("/registry/secrets/shop/password");
        assert!(secret.starts_with("other:") && secret.len() == 22 && !secret.contains("password"), "{secret}");
        assert_ne!(secret, names.of("/registry/secrets/shop/other"));
        assert!(!names.shows(b"/registry/secrets/shop/password"));
        assert_eq!(&*Names::All.of("/registry/secrets/shop/password"), "/registry/secrets/shop/password");
    }
}
