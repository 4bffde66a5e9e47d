//! Watches in any form and over any carrier, read event by event and recorded like every other stream, so that the
//! judges of the whole run compare them with the store's history and with the JSON streams.

use std::time::Duration;

use anyhow::anyhow;
use model::history::{End, Frame, Key, Start, Stream};
use tokio::time::Instant;

use crate::support::expected_events::{ExpectedEvent, excerpt};
use crate::support::watch_forms::{Content, Form, Sent};
use crate::support::watch_raw::{Raw, request, shown};
use crate::support::websocket::{Message, WebSocket};
use judge::object_digest;
use judge::schema::decode_object;
use suite::api::Transport;
use suite::api::overload;
use suite::prelude::*;
use suite::record::key;

/// The carrier of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Http1,
    Http2,
    WebSocket,
}

/// An open stream and all events that it has sent.
pub(crate) struct FormStream<'c> {
    pub(crate) form: Form,
    pub(crate) events: Vec<Sent>,
    ctx: &'c Ctx,
    resource: &'c Resource,
    over: Over,
    carrier: Carrier,
    record: Stream,
    is_recorded: bool,
}

enum Carrier {
    Http(Box<Raw>),
    WebSocket(Box<WebSocket>),
}

impl Over {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Over::Http1 => "http/1.1",
            Over::Http2 => "http/2",
            Over::WebSocket => "websocket",
        }
    }
}

impl<'c> FormStream<'c> {
    /// Opens a watch in the case's namespace after `rv`, or with initial events without `rv`.
    pub(crate) async fn open(
        ctx: &'c Ctx,
        over: Over,
        form: Form,
        resource: &'c Resource,
        rv: Option<u64>,
        more: &str,
    ) -> Verdict<FormStream<'c>> {
        let begin = match rv {
            Some(rv) => format!("resourceVersion={rv}"),
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true".into(),
        };
        let query = format!("{begin}{}{more}", form.parameters());
        let request = request(ctx, resource, &query).await?.accept(form.accept());
        let recorder = ctx.store.recorder(resource);
        let record = Stream {
            id: recorder.stream_id(),
            client: ctx.client.clone(),
            transport: format!("{} {}", over.name(), form.name()),
            prefix: key(&resource.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?))),
            selector: None,
            start: rv.map_or(Start::InitialEvents(0), Start::After),
            query: request.query.clone(),
            resumes: None,
            opened: recorder.now(),
            frames: Vec::new(),
            closed: 0,
            end: End::Client,
        };
        let carrier = match over {
            Over::WebSocket => Carrier::WebSocket(Box::new(WebSocket::open(ctx, &request).await?)),
            Over::Http1 => Carrier::Http(Box::new(Raw::send(ctx, Transport::Http1, request).await?)),
            Over::Http2 => Carrier::Http(Box::new(Raw::send(ctx, Transport::Http2, request).await?)),
        };
        let events = Vec::new();
        let stream = FormStream { form, events, ctx, resource, over, carrier, record, is_recorded: false };
        // A WebSocket's response is that of the handshake; its Content-Type says nothing about the events.
        if let Carrier::Http(raw) = &stream.carrier {
            let seen = raw.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
            let expected = form.content_type();
            if seen != expected {
                return Err(stream.fail(&format!("the Content-Type should be {expected}, seen {seen:?}")));
            }
        }
        Ok(stream)
    }

    /// Reads up to the change at `rv`, which must come.
    pub(crate) async fn read_to(&mut self, rv: u64) -> Verdict {
        let reached = |sent: &Sent| sent.is_change() && sent.about().is_ok_and(|about| about.rv >= rv);
        self.read_until(&format!("the change at {rv}"), reached).await
    }

    /// Reads until there is an event that `done` accepts.
    pub(crate) async fn read_until(&mut self, what: &str, done: impl Fn(&Sent) -> bool) -> Verdict {
        let deadline = Instant::now() + self.ctx.event_limit();
        while !self.events.last().is_some_and(&done) {
            if let Some(end) = self.next(deadline, what).await? {
                return Err(self.ended_before(&end, what));
            }
        }
        Ok(())
    }

    /// Reads until the server ends the stream.
    pub(crate) async fn read_to_end(&mut self, limit: Duration) -> Verdict<End> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(end) = self.next(deadline, "the end").await? {
                return Ok(end);
            }
        }
    }

    /// Reads one more event, or the end.
    async fn next(&mut self, deadline: Instant, what: &str) -> Verdict<Option<End>> {
        loop {
            let payload = match &mut self.carrier {
                Carrier::WebSocket(socket) => match socket.next(deadline, what).await? {
                    Message::Text(payload) if !self.form.is_protobuf() => Some(payload),
                    Message::Binary(payload) if self.form.is_protobuf() => Some(payload),
                    Message::Close(code) => {
                        let end = if code == 1000 { End::Server } else { broken(&format!("close code {code}")) };
                        return Ok(Some(self.ended(end)));
                    }
                    Message::Lost(error) => return Ok(Some(self.ended(broken(&error)))),
                    other => return Err(self.fail(&format!("the message is of the wrong kind: {other:?}"))),
                },
                Carrier::Http(raw) => self.form.cut(&mut raw.unread).map_err(|fault| self.fail(&fault))?,
            };
            if let Some(payload) = payload {
                self.take(payload)?;
                return Ok(None);
            }
            let Carrier::Http(raw) = &mut self.carrier else { continue };
            match raw.read_piece(deadline, what).await? {
                None => {}
                Some(_) if !raw.unread.is_empty() => {
                    let left = raw.unread.len();
                    return Err(self.fail(&format!("the stream ended within an event, after {left} bytes of it")));
                }
                Some(None) => return Ok(Some(self.ended(End::Server))),
                Some(Some(error)) => return Ok(Some(self.ended(broken(&error)))),
            }
        }
    }

    /// Closes a WebSocket as the client; returns the server's answer.
    pub(crate) async fn close(&mut self) -> Verdict<Message> {
        match &mut self.carrier {
            Carrier::WebSocket(socket) => socket.close(Instant::now() + self.ctx.answer_limit()).await,
            Carrier::Http(_) => Err(CheckError::Errored(anyhow!("only a WebSocket has a closing handshake"))),
        }
    }

    fn take(&mut self, payload: bytes::Bytes) -> Verdict {
        let sent = self.form.read(payload).map_err(|fault| self.fail(&fault))?;
        if sent.word == "ERROR" {
            let code = if sent.code() == 0 { 500 } else { sent.code() };
            let newest = self.ctx.store.recorder(self.resource).newest_revision();
            let what = format!("a watch in the form {:?}", self.form);
            overload::refuse_late_error(what, &self.record.query, newest, code, &sent.payload)?;
        }
        if let Some(kind) = sent.kind() {
            let about = sent.about().map_err(|fault| self.fail(&fault))?;
            let at = self.ctx.store.recorder(self.resource).now();
            let key = if sent.is_change() { key(&format!("{}{}", self.record.prefix, about.name)) } else { key("") };
            let frame = Frame { at, kind, key, rv: about.rv, uid: about.uid.as_str().into() };
            self.record_shown(&frame, &sent);
            self.record.frames.push(frame);
        }
        self.events.push(sent);
        Ok(())
    }

    /// Records the object of a change, if the form has all of it.
    fn record_shown(&self, frame: &Frame, sent: &Sent) {
        let object = match (self.form, &sent.content) {
            (Form::Json, Content::Json(object)) => Some(object.to_string()),
            (Form::Protobuf, Content::Protobuf(value)) => self.decoded(value),
            _ => None,
        };
        let Some(object) = object.filter(|_| frame.is_change()) else { return };
        let Some(digest) = object_digest::of_object(object.as_bytes()) else { return };
        let first = || {
            let Stream { id, transport, query, client, .. } = &self.record;
            format!("watch #{id} over {transport} ({query}) by {client}")
        };
        let recorder = self.ctx.store.recorder(self.resource);
        recorder.event_shown(&self.resource.api_version(), frame, (digest, object.as_bytes()), &first);
    }

    /// Protobuf as JSON; None if the types of the release do not describe all of it.
    fn decoded(&self, value: &[u8]) -> Option<String> {
        let decoded = decode_object(self.ctx.env.schema.as_deref()?, value).ok()?;
        decoded.unknown.is_empty().then(|| decoded.value.to_string())
    }

    fn ended(&mut self, end: End) -> End {
        self.record.end = end.clone();
        end
    }

    /// The changes of the stream, in its order.
    pub(crate) fn delivered(&self) -> Vec<ExpectedEvent> {
        let changes = self.record.frames.iter().filter(|frame| frame.is_change());
        changes
            .map(|frame| ExpectedEvent { word: frame.kind.word().into(), key: Key::clone(&frame.key), rv: frame.rv })
            .collect()
    }

    /// `http/2, protobuf: FAULT`, with the sent events as evidence.
    pub(crate) fn fail(&self, fault: &str) -> CheckError {
        let message =
            format!("watch of {} over {} in {}: {fault}", self.resource.plural, self.over.name(), self.form.name());
        CheckError::Failed { message, evidence: vec![format!("the stream: {}", excerpt(&self.delivered()))] }
    }

    /// A failure, unless the server's last event was an error of its own.
    fn ended_before(&self, end: &End, what: &str) -> CheckError {
        let last = self.events.last();
        let shown = last.map_or_else(String::new, |sent| shown(&sent.payload));
        match self.fail(&format!("the stream ended ({end:?}) before {what}; its last event was `{shown}`")) {
            CheckError::Failed { message, .. } if last.is_some_and(Sent::is_server_error) => anyhow!(message).into(),
            stop => stop,
        }
    }

    /// Passes the stream to the judges, except a stream without uids: judges compare them.
    pub(crate) fn record(&mut self) {
        let known = self.record.frames.iter().all(|frame| !frame.is_change() || !frame.uid.is_empty());
        if known && !self.is_recorded {
            let recorder = self.ctx.store.recorder(self.resource);
            let closed = recorder.now();
            recorder.stream(Stream { closed, ..self.record.clone() });
            self.is_recorded = true;
            self.ctx.count("streams for the judges", 1);
        }
    }
}

fn broken(error: &str) -> End {
    End::Broken { error: error.to_owned() }
}
