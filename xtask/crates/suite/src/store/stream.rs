//! Several watches of the store on one stream; [`super::Collector`] uses a separate stream.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::client::{Store, method_path};
use super::wire::{Event, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};
use crate::api::chain;
use crate::error::StoreError;

/// The watch ID of a progress notification for all watches of a stream.
pub const EVERY_WATCH: i64 = -1;

/// A message on a watch stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchMessage {
    Created {
        watch: i64,
    },
    Progress {
        watch: i64,
        revision: i64,
    },
    /// `last` is the revision of the last event.
    Events {
        watch: i64,
        last: i64,
    },
}

impl WatchMessage {
    /// Whether these are events of another watch than the one that was created first.
    fn is_of_another(&self, first: &WatchMessage) -> bool {
        match (self, first) {
            (WatchMessage::Events { watch, .. }, WatchMessage::Created { watch: first }) => watch != first,
            _ => false,
        }
    }
}

impl Store {
    /// A stream of watches; it sends the messages from `requests` to the store.
    pub(super) async fn stream(
        &self,
        requests: mpsc::Receiver<WatchRequest>,
    ) -> Result<Streaming<WatchResponse>, Status> {
        let mut grpc = self.channel();
        grpc.ready().await.map_err(|error| Status::unavailable(chain(&error)))?;
        let requests = futures::stream::unfold(requests, |mut requests| async move {
            requests.recv().await.map(|request| (request, requests))
        });
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let path = method_path("Watch", "Watch");
        Ok(grpc.streaming(tonic::Request::new(requests), path, codec).await?.into_inner())
    }

    /// Opens a watch of a prefix that is up to date. Then sends, without a pause in between, `asked` requests for
    /// progress and a request for a second watch of the same prefix from `start`. Returns all messages up to the first
    /// events of the second watch.
    pub async fn second_watch(&self, prefix: &str, start: i64, asked: usize) -> Result<Vec<WatchMessage>, StoreError> {
        self.must_be_there(what)?;
        let whole = async {
            let (requests, receiver) = mpsc::channel(asked + 2);
            let ask = |request| requests.try_send(request).map_err(|error| Status::internal(error.to_string()));
            ask(self.create(prefix, 0))?;
            let mut stream = self.stream(receiver).await?;
            let mut messages = vec![next(&mut stream).await?];
            for _ in 0..asked {
                ask(WatchRequest { create: None, progress: Some(WatchProgressRequest {}) })?;
            }
            ask(self.create(prefix, start))?;
            // Events of the first watch prove nothing, so the loop waits for events of another watch.
            while !messages.last().is_some_and(|last| last.is_of_another(&messages[0])) {
                messages.push(next(&mut stream).await?);
            }
            Ok(messages)
        };
        let late = |_| Err(Status::deadline_exceeded(format!("no events within {:.0} s", self.limit().as_secs_f64())));
        let messages = tokio::time::timeout(self.limit(), whole).await.unwrap_or_else(late);
        messages.map_err(|status: Status| failed(&status))
    }

    fn create(&self, prefix: &str, start_revision: i64) -> WatchRequest {
        let (key, range_end) = self.range_of(prefix);
        let create = WatchCreateRequest { key, range_end, start_revision, ..Default::default() };
        WatchRequest { create: Some(create), progress: None }
    }

    /// Opens a stream and sends the requests for all these watches before it reads the first answer.
    pub async fn watch_together(&self, specs: &[WatchSpec]) -> Result<WatchGroup, StoreError> {
        self.must_be_there(what)?;
        // One more for a request for progress.
        let (requests, receiver) = mpsc::channel(specs.len() + 1);
        for (spec, watch_id) in specs.iter().zip(1..) {
            let (key, range_end) =
                if spec.prefix { self.range_of(&spec.key) } else { (spec.key.clone().into_bytes(), Vec::new()) };
            let create =
                WatchCreateRequest { key, range_end, start_revision: spec.start, watch_id, ..Default::default() };
            let request = WatchRequest { create: Some(create), progress: None };
            requests.try_send(request).map_err(|error| failed(&Status::internal(error.to_string())))?;
        }
        let late = |_| Err(Status::deadline_exceeded("the stream did not open"));
        let opened = tokio::time::timeout(self.limit(), self.stream(receiver)).await.unwrap_or_else(late);
        let stream = opened.map_err(|status| failed(&status))?;
        let records = vec![WatchRecord::default(); specs.len()];
        Ok(WatchGroup { records, strays: 0, caught_up: BTreeMap::new(), progress: 0, requests, stream })
    }
}

/// One of the watches that are created together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSpec {
    pub key: String,
    /// Whether the watch covers all keys that begin with `key`.
    pub prefix: bool,
    /// The first revision; 0: the next one.
    pub start: i64,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEvent {
    pub key: String,
    pub rev: i64,
    /// None: the key was deleted.
    pub value: Option<Vec<u8>>,
}

/// The messages for one watch.
#[derive(Clone, Debug, Default)]
pub struct WatchRecord {
    /// The store's revision in the answer to the request; None without an answer.
    pub created: Option<i64>,
    /// Why the store refused or cancelled the watch.
    pub cancelled: Option<String>,
    /// The compacted revision in the cancellation of a watch that is older; 0 otherwise.
    pub compacted: i64,
    pub events: Vec<StoreEvent>,
    /// The number of events that came before the answer to the request.
    pub early: usize,
}

/// Watches on one stream, which ends when the value is dropped.
pub struct WatchGroup {
    /// In the order of the requests.
    pub records: Vec<WatchRecord>,
    /// Messages with events for a watch that was not requested.
    pub strays: usize,
    /// The messages whose last event is older than the message, by the revision of the message: a watch that the store
    /// has brought up to date.
    pub caught_up: BTreeMap<i64, usize>,
    /// The last revision up to which the store reported that all watches are complete.
    progress: i64,
    requests: mpsc::Sender<WatchRequest>,
    stream: Streaming<WatchResponse>,
}

/// The time without a message after which a stream is asked for progress again. etcd does not answer while a watch of
/// the stream is behind.
const QUIET: Duration = Duration::from_millis(100);

impl WatchGroup {
    /// Reads until the last request is answered; the store answers in the order of the requests.
    pub async fn read_answers(&mut self, limit: Duration) -> Result<(), StoreError> {
        let end = Instant::now() + limit;
        while self.records.last().is_some_and(|last| last.created.is_none()) {
            self.next("the answers to all requests for watches", end).await?;
        }
        Ok(())
    }

    /// Reads until the store reports that it has sent all events up to `revision`. Progress may overtake the events of
    /// a watch whose request is not answered yet: call [`WatchGroup::read_answers`] first.
    pub async fn read_to(&mut self, revision: i64, limit: Duration) -> Result<(), StoreError> {
        let end = Instant::now() + limit;
        self.ask_for_progress();
        while self.progress < revision {
            if !self.next("progress of all watches of a stream", end).await? {
                self.ask_for_progress();
            }
        }
        Ok(())
    }

    /// Reads this many messages. The store keeps the rest, if the connection is unbuffered.
    pub async fn read_messages(&mut self, count: usize, limit: Duration) -> Result<(), StoreError> {
        let end = Instant::now() + limit;
        let mut read = 0;
        while read < count {
            read += usize::from(self.next("messages of a stream of watches", end).await?);
        }
        Ok(())
    }

    /// Reads until the records are as wanted; false if they are not within the limit.
    pub async fn read_until(
        &mut self,
        wanted: impl Fn(&[WatchRecord]) -> bool,
        limit: Duration,
    ) -> Result<bool, StoreError> {
        let end = Instant::now() + limit;
        while !wanted(&self.records) {
            if Instant::now() > end {
                return Ok(false);
            }
            self.next("the wanted events of a stream of watches", end + QUIET).await?;
        }
        Ok(true)
    }

    fn ask_for_progress(&self) {
        // If the channel is full, a request is already under way.
        let _ = self.requests.try_send(WatchRequest { create: None, progress: Some(WatchProgressRequest {}) });
    }

    /// Takes the next message. False if none came for a while.
    async fn next(&mut self, awaited: &str, end: Instant) -> Result<bool, StoreError> {
        if Instant::now() > end {
            return Err(failed(&Status::deadline_exceeded(format!("not within the time limit: {awaited}"))));
        }
        let answer = match tokio::time::timeout(QUIET, self.stream.message()).await {
            Ok(answer) => answer.map_err(|status| failed(&status))?,
            Err(_) => return Ok(false),
        };
        let ended = || failed(&Status::unavailable("the stream has ended"));
        self.take(answer.ok_or_else(ended)?);
        Ok(true)
    }

    fn take(&mut self, answer: WatchResponse) {
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        if answer.watch_id == EVERY_WATCH && !answer.created {
            self.progress = self.progress.max(revision);
            return;
        }
        let Some(at) = self.place(&answer) else {
            self.strays += 1;
            return;
        };
        let record = &mut self.records[at];
        if answer.canceled {
            record.cancelled = Some(format!("{} (compacted: {})", answer.cancel_reason, answer.compact_revision));
            record.compacted = answer.compact_revision;
        }
        if answer.created {
            record.created = Some(revision);
            return;
        }
        let events: Vec<StoreEvent> = answer.events.into_iter().filter_map(StoreEvent::read).collect();
        if events.last().is_some_and(|last| last.rev < revision) {
            *self.caught_up.entry(revision).or_default() += 1;
        }
        if record.created.is_none() {
            record.early += events.len();
        }
        record.events.extend(events);
    }

    /// The index of the watch that a message is about. A refusal has no ID: it is for the request after the last one
    /// with an answer.
    fn place(&self, answer: &WatchResponse) -> Option<usize> {
        let at = if answer.watch_id == EVERY_WATCH {
            self.records.iter().rposition(|record| record.created.is_some()).map_or(0, |last| last + 1)
        } else {
            usize::try_from(answer.watch_id.checked_sub(1)?).ok()?
        };
        (at < self.records.len()).then_some(at)
    }
}

impl StoreEvent {
    fn read(event: Event) -> Option<StoreEvent> {
        let kv = event.kv?;
        let value = (event.r#type == 0).then_some(kv.value);
        Some(StoreEvent { key: String::from_utf8_lossy(&kv.key).into_owned(), rev: kv.mod_revision, value })
    }
}

fn what() -> String {
    "etcd Watch/Watch".to_owned()
}

fn failed(status: &Status) -> StoreError {
    StoreError { what: what(), code: status.code(), message: status.message().to_owned() }
}

async fn next(stream: &mut Streaming<WatchResponse>) -> Result<WatchMessage, Status> {
    let answer = stream.message().await?.ok_or_else(|| Status::new(Code::Unavailable, "the stream has ended"))?;
    let (watch, revision) = (answer.watch_id, answer.header.map_or(0, |header| header.revision));
    let last = answer.events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| kv.mod_revision).max();
    match last {
        _ if answer.canceled => Err(Status::aborted(format!("the watch was cancelled: {}", answer.cancel_reason))),
        _ if answer.created => Ok(WatchMessage::Created { watch }),
        None => Ok(WatchMessage::Progress { watch, revision }),
        Some(last) => Ok(WatchMessage::Events { watch, last }),
    }
}
