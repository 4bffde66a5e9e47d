//! A watcher: lists, watches, and continues after the end of its watch as an informer does: from its last resource
//! version, or with a list after a 410.

use std::time::{Duration, Instant};

use judge::fault::{Begin, WatchSegment, Watcher};
use model::Resource;
use model::history::{Frame, FrameKind, Key};

use super::clients::Clients;
use super::{MARKER, MISSED, POLL_INTERVAL, RETRY_PAUSE, SharedState, key_of};
use crate::api::Transport;
use crate::error::CheckError;
use crate::record::key;
use crate::wait;
use crate::watch::{Next, Watch, WatchOptions};

/// How long a watcher reads a stream before it checks the deadline.
const POLL: Duration = Duration::from_millis(500);

/// The client of a watcher, with its record.
struct WatchClient<'a> {
    clients: Clients,
    shared: &'a SharedState,
    resource: &'static Resource,
    transport: Transport,
    record: Watcher,
    marker: Key,
    /// The resource version to resume from; None: the watcher must list.
    at: Option<u64>,
    /// A later event, or a bookmark, promised that everything up to the marker was sent. A marker that is missing then
    /// never comes.
    passed: bool,
}

/// Watches until it sees the marker, the deadline passes, or the marker can no longer come.
pub(super) async fn watch(
    clients: Clients,
    shared: &SharedState,
    resource: &'static Resource,
    transport: Transport,
) -> Result<Watcher, CheckError> {
    let ctx = clients.ctx();
    let prefix = resource.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    let marker = key(&ctx.store.key(resource, MARKER).await?);
    let record = Watcher { client: ctx.client.to_string(), prefix: key(&prefix), segments: Vec::new() };
    let mut client = WatchClient { clients, shared, resource, transport, record, marker, at: None, passed: false };
    while !shared.is_over() && !client.passed && !has_seen(&client.record, &client.marker) {
        if !client.segment().await? {
            if shared.may_change_server() {
                client.clients.next_server();
            }
            wait::pause(client.clients.ctx().scaled_pause(RETRY_PAUSE)).await;
        }
    }
    Ok(client.record)
}

/// Whether a list or an event contained the marker.
pub(super) fn has_seen(watcher: &Watcher, marker: &Key) -> bool {
    watcher.segments.iter().any(|segment| {
        let listed = match &segment.begin {
            Begin::Listed { items, .. } => items.iter().any(|(key, _)| key == marker),
            Begin::Resumed { .. } => false,
        };
        listed || segment.frames.iter().any(|frame| frame.key == *marker)
    })
}

impl WatchClient<'_> {
    /// Runs one more watch. Returns false if the server did not let it begin.
    async fn segment(&mut self) -> Result<bool, CheckError> {
        let (from, begin) = match self.at {
            Some(rv) => (rv, Begin::Resumed { rv }),
            None => match self.list().await {
                Some(begin @ Begin::Listed { rv, .. }) => (rv, begin),
                _ => return Ok(false),
            },
        };
        // A list counts from its answer on, even if the watch after it fails.
        if matches!(begin, Begin::Listed { .. }) {
            self.record.segments.push(WatchSegment { begin: begin.clone(), frames: Vec::new() });
            self.at = Some(from);
        }
        let options = WatchOptions::after(from).bookmarks();
        let mut watch = match self.clients.ctx().api.try_watch(self.transport, self.resource, &options).await {
            Ok(Ok(watch)) => watch,
            Ok(Err(refusal)) if refusal.status == 410 => {
                let error = FrameKind::Error { code: 410, reason: refusal.reason(), message: refusal.message() };
                let frame = Frame { at: 0, kind: error, key: key(""), rv: 0, uid: key("") };
                self.record.segments.push(WatchSegment { begin: Begin::Resumed { rv: from }, frames: vec![frame] });
                self.shared.note_resumed();
                self.at = None;
                return Ok(true);
            }
            Ok(Err(_)) | Err(_) => return Ok(false),
        };
        if !matches!(begin, Begin::Listed { .. }) {
            self.record.segments.push(WatchSegment { begin, frames: Vec::new() });
            self.shared.note_resumed();
        }
        let open = self.shared.watch();
        self.follow(&mut watch).await?;
        drop((open, watch));
        self.wait_for_missed_events().await;
        Ok(true)
    }

    async fn list(&self) -> Option<Begin> {
        let ctx = self.clients.ctx();
        let called = ctx.store.recorder(self.resource).now();
        let list = ctx.api.try_list(self.resource, "").await.ok()?.object().ok()?;
        let items = list.items().iter().map(|item| (key_of(ctx, self.resource, item), item.rv())).collect();
        Some(Begin::Listed { called, rv: list.rv(), items })
    }

    /// Reads to the end of the stream, to the marker, or until the marker can no longer come.
    async fn follow(&mut self, watch: &mut Watch) -> Result<(), CheckError> {
        while !self.shared.is_over() {
            let event = match watch.poll_any(POLL).await? {
                Next::Event(event) => event,
                Next::Nothing => continue,
                Next::End => return Ok(()),
            };
            match &event.frame.kind {
                FrameKind::Error { code: 410, .. } => self.at = None,
                FrameKind::Error { .. } | FrameKind::Unknown { .. } => {}
                _ => self.at = Some(event.frame.rv),
            }
            let seen = event.frame.key == self.marker;
            let bookmark = matches!(event.frame.kind, FrameKind::Bookmark { .. });
            let marked = self.shared.markers().get(&self.marker).copied();
            self.passed =
                (bookmark || event.frame.is_change()) && marked.is_some_and(|marked| event.frame.rv >= marked);
            if let Some(segment) = self.record.segments.last_mut() {
                let is_first = segment.frames.is_empty() && matches!(segment.begin, Begin::Resumed { .. });
                if is_first && event.frame.is_change() {
                    self.shared.note_resumed_late();
                }
                segment.frames.push(event.frame);
            }
            if seen || self.passed {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits for some writes: a client that resumes at once has missed nothing, and exercises nothing.
    async fn wait_for_missed_events(&self) {
        let acknowledged = || self.shared.acknowledged_of(&self.resource.plural);
        let enough = acknowledged() + MISSED;
        let end = Instant::now() + self.clients.ctx().wait_limit();
        while acknowledged() < enough && !self.shared.ended() && Instant::now() < end {
            wait::pause(POLL_INTERVAL).await;
        }
    }
}
