//! Several watches of the store on one stream; [`super::Collector`] uses a separate stream.

use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::client::{Store, method_path};
use super::wire::{WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};
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
        let what = || "etcd Watch/Watch".to_owned();
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
        messages.map_err(|status: Status| StoreError {
            what: what(),
            code: status.code(),
            message: status.message().to_owned(),
        })
    }

    fn create(&self, prefix: &str, start_revision: i64) -> WatchRequest {
        let (key, range_end) = self.range_of(prefix);
        let create = WatchCreateRequest { key, range_end, start_revision, progress_notify: false, prev_kv: false };
        WatchRequest { create: Some(create), progress: None }
    }
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
