//! Entry points for the fuzz crate: other forms of watches, WebSockets, chunked bodies, and texts of servers.

use bytes::{Bytes, BytesMut};

use crate::support::metrics::Metrics;
use crate::support::watch_forms::{Form, Sent};
use crate::support::websocket::{Message, assemble, fault_of_handshake, take_frame};
use crate::support::{etcd_requests, watch_raw};
use crate::watch::framing::{dechunk, fault_of_head, fault_of_lines};

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] =
    &[("suite-watch-forms", forms), ("suite-websocket", websocket), ("suite-chunks", chunks), ("suite-texts", texts)];

/// The body of a watch in each form. It must give the same events, no matter where it is split.
fn forms(bytes: &[u8]) {
    for form in [Form::Json, Form::Protobuf, Form::Metadata, Form::MetadataProtobuf, Form::Table("Object")] {
        let whole = events(form, &[bytes]);
        for split in [bytes.len() / 2, bytes.len() / 3, bytes.len().saturating_sub(1)] {
            assert_eq!(events(form, &[&bytes[..split], &bytes[split..]]), whole, "{form:?} split at {split}");
        }
        for sent in whole.into_iter().flatten() {
            let about = sent.about();
            assert!(about.as_ref().is_ok_and(|about| about.rv > 0 || form.is_protobuf()) || about.is_err());
            assert!(sent.kind().is_some() || !sent.is_change(), "a change without a kind");
            assert!(!sent.ends_initial() || !sent.is_change());
            assert_eq!(form.read(sent.payload.clone()).as_ref(), Ok(&sent));
            let _ = suite::api::overload::refuse_event("a watch", "watch=true", &sent.payload);
        }
    }
}

/// The events of a body that comes in pieces, up to the first invalid event.
fn events(form: Form, pieces: &[&[u8]]) -> Vec<Option<Sent>> {
    let (mut buffer, mut seen) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match form.cut(&mut buffer).and_then(|payload| payload.map(|payload| form.read(payload)).transpose()) {
                Ok(Some(sent)) => seen.push(Some(sent)),
                Ok(None) => break,
                Err(_) => {
                    seen.push(None);
                    return seen;
                }
            }
        }
    }
    seen
}

/// Data of a WebSocket server. No matter where it is split, the messages must be the same, and hold no more than was
/// sent.
fn websocket(bytes: &[u8]) {
    let whole = messages(&[bytes]);
    let length = |message: &Message| match message {
        Message::Text(payload) | Message::Binary(payload) => payload.len(),
        Message::Close(_) | Message::Lost(_) => 0,
    };
    assert!(whole.0.iter().map(length).sum::<usize>() <= bytes.len());
    for split in [bytes.len() / 2, bytes.len() / 3, bytes.len().min(1)] {
        assert_eq!(messages(&[&bytes[..split], &bytes[split..]]), whole, "split at {split}");
    }
    let _ = fault_of_handshake(&String::from_utf8_lossy(bytes), "dGhlIHNhbXBsZSBub25jZQ==");
}

/// The messages up to the first fault, and whether there was one.
fn messages(pieces: &[&[u8]]) -> (Vec<Message>, bool) {
    let (mut buffer, mut begun, mut seen) = (BytesMut::new(), None, Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match take_frame(&mut buffer).and_then(|frame| frame.map(|frame| assemble(&mut begun, frame)).transpose()) {
                Ok(Some(message)) => seen.extend(message),
                Ok(None) => break,
                Err(_) => return (seen, true),
            }
        }
    }
    (seen, false)
}

/// A chunked body must have the same content as when it comes in one chunk.
fn chunks(bytes: &[u8]) {
    let Ok((body, count)) = dechunk(bytes) else { return };
    assert!(body.len() < bytes.len() && count <= body.len(), "{count} chunks of {} bytes", body.len());
    let size = format!("{:x}\r\n", body.len());
    let one = [size.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let expected = if body.is_empty() { b"0\r\n\r\n".to_vec() } else { one };
    assert_eq!(dechunk(&expected), Ok((body.clone(), usize::from(!body.is_empty()))));
    let joined: Vec<u8> = watch_raw::lines(&body).join(&b'\n');
    assert!(body.starts_with(&joined) && body.len() <= joined.len() + 1);
    let _ = (fault_of_lines(&body, &[1]), fault_of_head(&String::from_utf8_lossy(&body)));
}

/// Texts of servers: the metrics of an apiserver, the log of etcd.
fn texts(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    for request in etcd_requests::logged(&text) {
        let keys: usize = request.keys().iter().map(|key| key.len()).sum();
        assert!(keys <= request.content.len());
    }
    let metrics = Metrics(text);
    let samples = metrics.sum("a_total", &[("resource", "x")]);
    assert!(samples.is_none() || metrics.has_any("a_total"));
    let _ = metrics.gate("On");
    let _ = Bytes::copy_from_slice(bytes);
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
