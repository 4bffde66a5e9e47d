//! The body of a watch, cut into events. Events in CBOR are a sequence (RFC 8742); each becomes the line that the server would
//! write in JSON, so all that follows is the same for both.

use bytes::{Buf, Bytes, BytesMut};
use futures::StreamExt;
use http::{HeaderMap, header};
use http_body_util::BodyStream;
use judge::{cbor, decode};
use kube::client::Body;

use crate::api::chain;

/// Why a body has no next event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection broke.
    Transport(String),
    /// The server sent bytes that are not an event.
    Event(Damaged),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damaged {
    /// The first of the bytes, printable.
    pub(super) sent: String,
    pub(super) why: String,
}

/// The media type of a watch whose client accepts CBOR (apiserver, pkg/endpoints/handlers/watch.go).
const CBOR_SEQUENCE: &str = "application/cbor-seq";

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) json: Bytes,
    /// Whether the event came in CBOR with a floating-point number: see [`cbor::AsJson::has_float`].
    pub(super) has_float: bool,
}

/// An open body.
pub(super) struct Lines {
    body: BodyStream<Body>,
    buffer: BytesMut,
    is_cbor: bool,
}

impl Lines {
    pub(super) fn new(body: Body, headers: &HeaderMap) -> Lines {
        let is_cbor = headers.get(header::CONTENT_TYPE).is_some_and(|of| of == CBOR_SEQUENCE);
        Lines { body: BodyStream::new(body), buffer: BytesMut::new(), is_cbor }
    }

    /// The next event; None at the end of the body. Cancel-safe: no data is lost. A damaged event stays the next one.
    pub(super) async fn next(&mut self) -> Result<Option<Line>, Fault> {
        loop {
            if let Some(line) = self.take().map_err(Fault::Event)? {
                return Ok(Some(line));
            }
            match self.body.next().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(Fault::Transport(chain(&error))),
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    let length = self.buffer.len();
                    let why = format!("the stream ended within an event, after {length} bytes of it");
                    return Err(Fault::Transport(why));
                }
            }
        }
    }

    fn take(&mut self) -> Result<Option<Line>, Damaged> {
        match self.is_cbor {
            true => take_value(&mut self.buffer),
            false => Ok(take_line(&mut self.buffer).map(|json| Line { json, has_float: false })),
        }
    }
}

/// Removes the next complete line from the front, and returns it without its line end.
pub(crate) fn take_line(buffer: &mut BytesMut) -> Option<Bytes> {
    let end = buffer.iter().position(|byte| *byte == b'\n')?;
    let line = buffer.split_to(end).freeze();
    buffer.advance(1);
    Some(line)
}

/// Removes the next complete value of a sequence from the front. The server writes the tag before each of them.
pub(super) fn take_value(buffer: &mut BytesMut) -> Result<Option<Line>, Damaged> {
    let begin = &buffer[..buffer.len().min(decode::CBOR.len())];
    if !decode::CBOR.starts_with(begin) {
        return Err(damaged(buffer, "an event in CBOR does not begin with the tag d9 d9 f7".into()));
    }
    let decoded = cbor::first_to_json(buffer)
        .map_err(|why| damaged(buffer, format!("an event in CBOR cannot be decoded: {why}")))?;
    let Some((json, length)) = decoded else { return Ok(None) };
    buffer.advance(length);
    Ok(Some(Line { json: json.text.into(), has_float: json.has_float }))
}

fn damaged(buffer: &[u8], why: String) -> Damaged {
    const SHOWN: usize = 500;
    let dots = if buffer.len() > SHOWN { "…" } else { "" };
    Damaged { sent: format!("{}{dots}", buffer[..buffer.len().min(SHOWN)].escape_ascii()), why }
}
