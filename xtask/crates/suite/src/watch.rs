//! One watch of the API: opened, read event by event, recorded when it ends. It never resumes or lists again by itself.

mod lines;

use std::time::Duration;

use anyhow::{Context, anyhow};
use http_body_util::BodyExt;
use judge::object_digest;
use model::Resource;
use model::history::{End, Frame, FrameKind, Selector, Start, Stream};
use serde_json::{Map, Value};

use crate::answers::{ClientAnswers, Exchange};
use crate::api::overload;
use crate::api::{Api, CBOR, JSON, Request, Response, Streaming, chain};
use crate::error::CheckError;
use crate::object::Object;
use crate::record::{Recorder, key};
pub(crate) use lines::take_line;
use lines::{Damaged, Fault, Line, Lines};

/// The parameters of a watch. `Default` is a watch of all objects with `resourceVersion` unset.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// None: the parameter is not sent.
    pub resource_version: Option<String>,
    pub labels: String,
    pub fields: String,
    pub bookmarks: bool,
    /// `sendInitialEvents=true&resourceVersionMatch=NotOlderThan`.
    pub initial_events: bool,
    pub timeout_seconds: Option<u32>,
    /// Asks for CBOR instead of JSON. The events are read as the JSON that the server writes for them.
    pub cbor: bool,
    /// The stream that this one resumes, by id.
    pub resumes: Option<u64>,
}

/// The error of an apiserver whose store sent a change without its previous value; the apiserver then ends the stream,
/// which it may do.
///
/// etcd checks whether a watcher wants previous values before it registers that wish (`needPrevKV` in sendLoop,
/// `prevKV` in recvLoop, server/etcdserver/api/v3rpc/watch.go, 3.6.16), so a change at the start of a watch lacks its
/// previous value. Seen in an emulated guest, without watch cache. Kubernetes cannot use a store that omits the
/// previous value at any other time.
pub const MISSING_PREV_KV: &str = "etcd event received with PrevKv=nil";

/// An event with the object it carries.
#[derive(Clone, Debug)]
pub struct Event {
    pub frame: Frame,
    pub object: Object,
}

/// An open watch. Dropping it closes the stream and hands the record to the recorder.
pub struct Watch {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub version: http::Version,
    lines: Option<Lines>,
    record: Option<Stream>,
    recorder: Recorder,
    answers: Option<ClientAnswers>,
    records_objects: bool,
    /// Whether the objects are custom ones: CBOR shows their numbers as JSON does.
    is_custom: bool,
    path: String,
    accept: &'static str,
    target: Target,
}

/// The place of the events' objects in the store.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) resource: Resource,
    pub(crate) etcd_prefix: String,
}

impl WatchOptions {
    /// A watch that begins after `rv`.
    pub fn after(rv: u64) -> WatchOptions {
        WatchOptions { resource_version: Some(rv.to_string()), ..WatchOptions::default() }
    }

    pub fn bookmarks(mut self) -> WatchOptions {
        self.bookmarks = true;
        self
    }

    pub fn labels(mut self, selector: &str) -> WatchOptions {
        self.labels = selector.to_owned();
        self
    }

    pub fn fields(mut self, selector: &str) -> WatchOptions {
        self.fields = selector.to_owned();
        self
    }

    pub fn timeout(mut self, seconds: u32) -> WatchOptions {
        self.timeout_seconds = Some(seconds);
        self
    }

    pub fn in_cbor(mut self) -> WatchOptions {
        self.cbor = true;
        self
    }

    /// Marks the stream as the continuation of another one.
    pub fn resuming(mut self, stream: u64) -> WatchOptions {
        self.resumes = Some(stream);
        self
    }

    /// The query string.
    pub fn query(&self) -> String {
        let mut pairs = vec![("watch", "true".to_owned())];
        let mut add = |name, value: &str| pairs.push((name, value.to_owned()));
        if let Some(rv) = &self.resource_version {
            add("resourceVersion", rv);
        }
        if !self.labels.is_empty() {
            add("labelSelector", &self.labels);
        }
        if !self.fields.is_empty() {
            add("fieldSelector", &self.fields);
        }
        if self.bookmarks {
            add("allowWatchBookmarks", "true");
        }
        if self.initial_events {
            add("sendInitialEvents", "true");
            add("resourceVersionMatch", "NotOlderThan");
        }
        if let Some(seconds) = self.timeout_seconds {
            add("timeoutSeconds", &seconds.to_string());
        }
        let borrowed: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
        crate::api::query(&borrowed)
    }

    fn start(&self) -> Start {
        let rv: u64 = self.resource_version.as_deref().and_then(|rv| rv.parse().ok()).unwrap_or(0);
        match (&self.resource_version, rv) {
            _ if self.initial_events => Start::InitialEvents(rv),
            (None, _) => Start::Unset,
            (Some(_), 0) => Start::Zero,
            (Some(_), rv) => Start::After(rv),
        }
    }

    fn selector(&self) -> Option<Selector> {
        let none = self.labels.is_empty() && self.fields.is_empty();
        (!none).then(|| Selector { labels: self.labels.clone(), fields: self.fields.clone() })
    }
}

/// Opens a watch on the collection at `path`, whose keys are below `prefix`. A refusal is recorded and returned.
pub(crate) async fn open(
    api: &Api,
    recorder: &Recorder,
    client: &str,
    path: &str,
    prefix: &str,
    target: Target,
    options: &WatchOptions,
) -> anyhow::Result<Result<Watch, Response>> {
    let (accept, form) = if options.cbor { (CBOR, " CBOR") } else { (JSON, "") };
    let mut record = Stream {
        id: recorder.stream_id(),
        client: client.into(),
        transport: format!("{}{form}", api.transport().name()),
        prefix: key(prefix),
        selector: options.selector(),
        start: options.start(),
        query: options.query(),
        resumes: options.resumes,
        opened: recorder.now(),
        frames: Vec::new(),
        closed: 0,
        end: End::Client,
    };
    let request = Request::get(path).query(options.query()).accept(accept);
    let Streaming { status, version, headers, body } = api.open(&request).await?;
    if status != 200 {
        let body = body.collect().await.map_err(|e| anyhow!("{}", chain(&e)))?.to_bytes();
        let refusal = Response { status, headers, body };
        if let Some(answers) = api.answers() {
            answers.record(request.exchange(&refusal));
        }
        record.end = End::Refused { status, reason: refusal.reason() };
        record.closed = recorder.now();
        recorder.stream(record);
        return Ok(Err(refusal));
    }
    let lines = Some(Lines::new(body, &headers));
    let (recorder, answers) = (recorder.clone(), api.answers().cloned());
    Ok(Ok(Watch {
        status,
        headers,
        version,
        lines,
        record: Some(record),
        recorder,
        answers,
        records_objects: api.records_objects(),
        is_custom: api.is_custom(&target.resource),
        path: path.into(),
        accept,
        target,
    }))
}

impl Watch {
    /// The number under which the stream is recorded.
    pub fn id(&self) -> u64 {
        self.record.as_ref().map_or(0, |record| record.id)
    }

    /// The highest resource version seen in a change or bookmark after the initial part; a client resumes from it.
    pub fn last_rv(&self) -> u64 {
        let frames = self.record.iter().flat_map(|record| &record.frames);
        frames.filter(|f| !matches!(f.kind, FrameKind::Error { .. })).map(|f| f.rv).max().unwrap_or(0)
    }

    /// The next event; None when the server has ended the stream. Times out if no event comes within `limit`.
    pub async fn next(&mut self, limit: Duration) -> Result<Option<Event>, CheckError> {
        match self.poll(limit).await? {
            Next::Event(event) => Ok(Some(*event)),
            Next::End => Ok(None),
            Next::Nothing => Err(CheckError::TimedOut {
                what: format!("the next event of {} ({:.0} s)", self.describe(), limit.as_secs_f64()),
            }),
        }
    }

    /// Like [`Watch::next`], but silence is a result instead of a time-out.
    pub async fn poll(&mut self, limit: Duration) -> Result<Next, CheckError> {
        let next = self.poll_any(limit).await?;
        if let Next::Event(event) = &next
            && let FrameKind::Error { code, .. } = event.frame.kind
        {
            let status = event.object.to_string();
            let query = self.record.as_ref().map_or("", |record| &record.query);
            let newest = self.recorder.newest_revision();
            overload::refuse_late_error(self.describe(), query, newest, code, status.as_bytes())?;
        }
        Ok(next)
    }

    /// Like [`Watch::poll`], but an ERROR by which the server reports its own time-out or overload is an event, for
    /// clients that continue after it.
    pub async fn poll_any(&mut self, limit: Duration) -> Result<Next, CheckError> {
        let Some(lines) = &mut self.lines else { return Ok(Next::End) };
        let line = match tokio::time::timeout(limit, lines.next()).await {
            Err(_) => return Ok(Next::Nothing),
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return Ok(self.finish(End::Server)),
            Ok(Err(Fault::Transport(error))) => return Ok(self.finish(End::Broken { error })),
            // An end would hide it: some readers wait for one.
            Ok(Err(Fault::Event(Damaged { sent, why }))) => {
                return Err(anyhow!(why).context(format!("{} sent {sent}", self.describe())).into());
            }
        };
        Ok(Next::Event(Box::new(self.take(line)?)))
    }

    /// Reads and records an event.
    fn take(&mut self, line: Line) -> anyhow::Result<Event> {
        let (kind, object) = parse_event(&line.json)
            .with_context(|| format!("{} sent {}", self.describe(), String::from_utf8_lossy(&line.json)))?;
        let event = self.event(kind, object);
        self.record_shown(&event.frame, &line);
        if let Some(record) = &mut self.record {
            record.frames.push(event.frame.clone());
        }
        if let (Some(answers), Some(record)) = (&self.answers, &self.record) {
            // The server decides when to send a bookmark.
            if !matches!(event.frame.kind, FrameKind::Bookmark { .. }) {
                let request = Request::get(self.path.as_str()).query(record.query.as_str()).accept(self.accept);
                answers.record(event.exchange(&request, line.json));
            }
        }
        Ok(event)
    }

    /// Reads until `done` returns true, and returns all events including the last one.
    pub async fn read_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&Event) -> bool,
    ) -> Result<Vec<Event>, CheckError> {
        let deadline = tokio::time::Instant::now() + limit;
        let mut events = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            match self.poll(left).await? {
                Next::Event(event) => {
                    events.push(*event);
                    if events.last().is_some_and(&mut done) {
                        return Ok(events);
                    }
                }
                Next::End => {
                    let broken = match self.end() {
                        Some(End::Broken { error }) => format!("; the connection broke: {error}"),
                        _ => String::new(),
                    };
                    let seen = summary(&events);
                    let text = format!("{} ended before {what}; it sent {seen}{broken}", self.describe());
                    // A server that reports its own error proves nothing about the events that it would have sent.
                    let last = events.last().map(|event| &event.frame.kind);
                    let cannot = matches!(last, Some(FrameKind::Error { code: 500.., .. }));
                    return Err(if cannot { CheckError::Errored(anyhow!(text)) } else { CheckError::failed(text) });
                }
                Next::Nothing => {
                    let seen = summary(&events);
                    let what = format!("{what} on {} ({:.0} s); it sent {seen}", self.describe(), limit.as_secs_f64());
                    return Err(CheckError::TimedOut { what });
                }
            }
        }
    }

    /// Reads until an event with this resource version or a later one arrives.
    pub async fn read_to(&mut self, rv: u64, limit: Duration) -> Result<Vec<Event>, CheckError> {
        self.read_until(&format!("resource version {rv}"), limit, |event| event.frame.rv >= rv).await
    }

    /// Reads all events until the server ends the stream.
    pub async fn read_to_end(&mut self, limit: Duration) -> Result<Vec<Event>, CheckError> {
        let deadline = tokio::time::Instant::now() + limit;
        let mut events = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            match self.next(left).await? {
                Some(event) => events.push(event),
                None => return Ok(events),
            }
        }
    }

    /// How the stream ended; None while it is open.
    pub fn end(&self) -> Option<&End> {
        self.lines.is_none().then_some(()).and(self.record.as_ref()).map(|record| &record.end)
    }

    fn finish(&mut self, end: End) -> Next {
        self.lines = None;
        if let Some(record) = &mut self.record {
            record.end = end;
            record.closed = self.recorder.now();
        }
        Next::End
    }

    fn describe(&self) -> String {
        let record = self.record.as_ref();
        record.map_or_else(String::new, |r| format!("watch #{} of {} ({})", r.id, r.prefix, r.query))
    }

    /// Records the object of a change.
    fn record_shown(&self, frame: &Frame, Line { json, has_float }: &Line) {
        let keeps_numbers = self.is_custom || !has_float;
        if !self.records_objects || !frame.is_change() || !keeps_numbers {
            return;
        }
        let Some(part) = object_digest::of_event(json) else { return };
        let first = || {
            let (transport, client) = self.record.as_ref().map_or(("", ""), |of| (&*of.transport, &*of.client));
            format!("{} over {transport} by {client}", self.describe())
        };
        let api_version = self.target.resource.api_version();
        self.recorder.event_shown(&api_version, frame, (part.digest, &json[part.range]), &first);
    }

    fn event(&self, kind: FrameKind, object: Object) -> Event {
        let at = self.recorder.now();
        let is_change = matches!(kind, FrameKind::Added | FrameKind::Modified | FrameKind::Deleted);
        let key = match is_change {
            true => self.target.resource.key(&self.target.etcd_prefix, object.namespace(), object.name()),
            false => String::new(),
        };
        // A stream may have a hundred thousand events, so equal texts are shared.
        let (key, uid) = (self.recorder.text(&key), self.recorder.text(object.uid()));
        let frame = Frame { at, kind, key, rv: object.rv(), uid };
        Event { frame, object }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(mut record) = self.record.take() {
            if record.closed == 0 {
                record.closed = self.recorder.now();
            }
            self.recorder.stream(record);
        }
    }
}

/// The result of one read from a stream.
#[derive(Debug)]
pub enum Next {
    Event(Box<Event>),
    End,
    Nothing,
}

impl Event {
    /// The record of the event for comparison with other runs.
    fn exchange(&self, request: &Request, line: bytes::Bytes) -> Exchange {
        let answer = Response { status: 200, headers: http::HeaderMap::new(), body: line };
        Exchange {
            method: "WATCH".into(),
            event: Some(format!("{} {}", self.word(), self.object.name())),
            ..request.exchange(&answer)
        }
    }

    pub fn word(&self) -> &str {
        self.frame.kind.word()
    }
}

/// "ADDED a@5, MODIFIED a@6".
pub fn summary(events: &[Event]) -> String {
    const SHOWN: usize = 20;
    if events.is_empty() {
        return "nothing".into();
    }
    let words = events.iter().take(SHOWN).map(|event| match &event.frame.kind {
        FrameKind::Error { code, message, .. } => format!("{} {code} `{message}`", event.word()),
        _ => format!("{} {}@{}", event.word(), event.object.name(), event.frame.rv),
    });
    let dots = if events.len() > SHOWN { format!(", … ({} in all)", events.len()) } else { String::new() };
    format!("{}{dots}", words.collect::<Vec<String>>().join(", "))
}

/// The event of a line. Without a type its kind is unknown; without an object its object is empty. Judges refuse both.
///
/// # Errors
/// The line is not a JSON object.
pub(crate) fn parse_event(line: &[u8]) -> anyhow::Result<(FrameKind, Object)> {
    let mut fields: Map<String, Value> = serde_json::from_slice(line).context("the event is not a JSON object")?;
    let object = Object(fields.remove("object").unwrap_or_default());
    let word = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    Ok((frame_kind(word, &object), object))
}

fn frame_kind(word: &str, object: &Object) -> FrameKind {
    match word {
        "ADDED" => FrameKind::Added,
        "MODIFIED" => FrameKind::Modified,
        "DELETED" => FrameKind::Deleted,
        "BOOKMARK" => {
            let annotation = &object.0["metadata"]["annotations"]["k8s.io/initial-events-end"];
            FrameKind::Bookmark { end_of_initial: annotation.as_str() == Some("true") }
        }
        "ERROR" => FrameKind::Error {
            code: object.0["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0),
            reason: object.0["reason"].as_str().unwrap_or_default().to_owned(),
            message: object.0["message"].as_str().unwrap_or_default().to_owned(),
        },
        other => FrameKind::Unknown { name: other.to_owned() },
    }
}

#[cfg(test)]
mod tests;
