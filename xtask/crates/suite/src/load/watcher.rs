//! A watcher: lists, watches, and continues after the end of its watch as an informer does: from its last resource
//! version, or with a list after a 410.

use std::time::{Duration, Instant};

use judge::fault::{Begin, Leg, Life};
use model::Resource;
use model::history::{Frame, FrameKind, Key};

use super::clients::Clients;
use super::{Board, LOOK_EVERY, MARKER, MISSED, PATIENCE, key_of};
use crate::api::Transport;
use crate::check::Stop;
use crate::record::key;
use crate::wait;
use crate::watch::{Next, Watch, WatchOptions};

/// How long a watcher reads a stream before it checks the deadline.
const LISTEN: Duration = Duration::from_millis(500);

/// A watcher and its state.
struct Watcher<'a> {
    clients: Clients,
    board: &'a Board,
    resource: &'static Resource,
    transport: Transport,
    life: Life,
    marker: Key,
    /// The resource version to resume from; None: the watcher must list.
    at: Option<u64>,
    /// A bookmark promised that everything up to the marker was sent. A marker that is missing then never comes.
    passed: bool,
}

/// Watches until it sees the marker, the deadline passes, or the marker can no longer come.
pub(super) async fn live(
    clients: Clients,
    board: &Board,
    resource: &'static Resource,
    transport: Transport,
) -> Result<Life, Stop> {
    let ctx = clients.ctx();
    let prefix = resource.key_prefix(&ctx.profile().prefix, Some(ctx.namespace().await?));
    let marker = key(&ctx.key(resource, MARKER).await?);
    let life = Life { client: ctx.client.to_string(), prefix: key(&prefix), legs: Vec::new() };
    let mut watcher = Watcher { clients, board, resource, transport, life, marker, at: None, passed: false };
    while !board.is_over() && !watcher.passed && !has_seen(&watcher.life, &watcher.marker) {
        if !watcher.leg().await? {
            if board.may_move() {
                watcher.clients.next_server();
            }
            wait::pause(watcher.clients.ctx().at_ease(PATIENCE)).await;
        }
    }
    Ok(watcher.life)
}

/// Whether a list or an event contained the marker.
pub(super) fn has_seen(life: &Life, marker: &Key) -> bool {
    life.legs.iter().any(|leg| {
        let listed = match &leg.begin {
            Begin::Listed { items, .. } => items.iter().any(|(key, _)| key == marker),
            Begin::Resumed { .. } => false,
        };
        listed || leg.frames.iter().any(|frame| frame.key == *marker)
    })
}

impl Watcher<'_> {
    /// Runs one more part of the life. Returns false if the server did not let it begin.
    async fn leg(&mut self) -> Result<bool, Stop> {
        let (from, begin) = match self.at {
            Some(rv) => (rv, Begin::Resumed { rv }),
            None => match self.list().await {
                Some(begin @ Begin::Listed { rv, .. }) => (rv, begin),
                _ => return Ok(false),
            },
        };
        // A list counts from its answer on, even if the watch after it fails.
        if matches!(begin, Begin::Listed { .. }) {
            self.life.legs.push(Leg { begin: begin.clone(), frames: Vec::new() });
            self.at = Some(from);
        }
        let options = WatchOptions::after(from).bookmarks();
        let mut watch = match self.clients.ctx().try_watch(self.transport, self.resource, &options).await {
            Ok(Ok(watch)) => watch,
            Ok(Err(refusal)) if refusal.status == 410 => {
                let error = FrameKind::Error { code: 410, reason: refusal.reason(), message: refusal.message() };
                let frame = Frame { at: 0, kind: error, key: key(""), rv: 0, uid: key("") };
                self.life.legs.push(Leg { begin: Begin::Resumed { rv: from }, frames: vec![frame] });
                self.board.note_resumed();
                self.at = None;
                return Ok(true);
            }
            Ok(Err(_)) | Err(_) => return Ok(false),
        };
        if !matches!(begin, Begin::Listed { .. }) {
            self.life.legs.push(Leg { begin, frames: Vec::new() });
            self.board.note_resumed();
        }
        let open = self.board.watch();
        self.follow(&mut watch).await?;
        drop((open, watch));
        self.let_something_be_missed().await;
        Ok(true)
    }

    async fn list(&self) -> Option<Begin> {
        let ctx = self.clients.ctx();
        let called = ctx.recorder(self.resource).now();
        let list = ctx.try_list(self.resource, "").await.ok()?.object().ok()?;
        let items = list.items().iter().map(|item| (key_of(ctx, self.resource, item), item.rv())).collect();
        Some(Begin::Listed { called, rv: list.rv(), items })
    }

    /// Reads to the end of the stream or to the marker.
    async fn follow(&mut self, watch: &mut Watch) -> Result<(), Stop> {
        while !self.board.is_over() {
            let event = match watch.poll_any(LISTEN).await? {
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
            let marked = self.board.markers().get(&self.marker).copied();
            self.passed = bookmark && marked.is_some_and(|marked| event.frame.rv >= marked);
            if let Some(leg) = self.life.legs.last_mut() {
                let is_first = leg.frames.is_empty() && matches!(leg.begin, Begin::Resumed { .. });
                if is_first && event.frame.is_change() {
                    self.board.note_resumed_late();
                }
                leg.frames.push(event.frame);
            }
            if seen || self.passed {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits for some writes: a client that resumes at once has missed nothing, and exercises nothing.
    async fn let_something_be_missed(&self) {
        let acknowledged = || self.board.acknowledged_of(&self.resource.plural);
        let enough = acknowledged() + MISSED;
        let end = Instant::now() + self.clients.ctx().limit(30.0);
        while acknowledged() < enough && !self.board.ended() && Instant::now() < end {
            wait::pause(LOOK_EVERY).await;
        }
    }
}
