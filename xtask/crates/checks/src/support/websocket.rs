//! A WebSocket client (RFC 6455) that only receives: the handshake, the server's frames, their messages. It is as
//! strict as the RFC: a masked frame, a reserved bit or a wrong Sec-WebSocket-Accept is an error.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes, BytesMut};
use tokio::time::Instant;

use crate::support::raw_connection::{Connection, connect};
use crate::support::watch_raw::shown;
use suite::api::Request;
use suite::api::overload;
use suite::prelude::*;

/// An open connection after its handshake.
pub(crate) struct WebSocket {
    connection: Connection,
    /// A message whose last frame has not come yet.
    begun: Option<(u8, BytesMut)>,
}

/// A complete message, or the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Text(Bytes),
    Binary(Bytes),
    /// The server closes with this code; 1005 if it gave none.
    Close(u16),
    /// The connection ended without a closing handshake.
    Lost(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    is_final: bool,
    opcode: u8,
    payload: Bytes,
}

// Opcodes (RFC 6455, section 5.2).
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// RFC 6455, section 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// RFC 6455, section 7.1.5.
const NO_CODE: u16 = 1005;
/// The largest message of a test.
const LARGEST: u64 = 16 << 20;

impl WebSocket {
    /// Connects and does the handshake; a server that does not switch protocols fails the check.
    pub(crate) async fn open(ctx: &Ctx, request: &Request) -> Verdict<WebSocket> {
        let nonce: [u8; 16] = std::array::from_fn(|_| ctx.random().u8(..));
        let nonce = STANDARD.encode(nonce);
        // The server's library refuses a handshake without an origin.
        let more = format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {nonce}\r\n\
             Origin: {}\r\n",
            ctx.profile().apiserver
        );
        let mut connection = connect(ctx, request, &more).await?;
        connection.what.push_str(" over WebSocket");
        let mut socket = WebSocket { connection, begun: None };
        let deadline = Instant::now() + ctx.answer_limit();
        let head = socket.head(deadline).await?;
        overload::refuse_head(&socket.connection.what, &head, &socket.connection.buffer)?;
        match fault_of_handshake(&head, &nonce) {
            Some(fault) => Err(socket.fail(&format!("the answer {fault}: {head:?}"))),
            None => Ok(socket),
        }
    }

    /// The next message. The client does not answer pings: the server sends none.
    pub(crate) async fn next(&mut self, deadline: Instant, what: &str) -> Verdict<Message> {
        loop {
            if let Some(frame) = take_frame(&mut self.connection.buffer).map_err(|fault| self.fail(&fault))? {
                if let Some(message) = assemble(&mut self.begun, frame).map_err(|fault| self.fail(&fault))? {
                    return Ok(message);
                }
            } else if let Err(error) = self.read(deadline, what).await? {
                return Ok(Message::Lost(error));
            }
        }
    }

    /// Sends a close frame and reads the server's answer to it.
    pub(crate) async fn close(&mut self, deadline: Instant) -> Verdict<Message> {
        // A client must mask; a mask of zeros leaves the code 1000 readable.
        let frame = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8];
        if let Err(error) = self.connection.write(&frame).await {
            return Ok(Message::Lost(error.to_string()));
        }
        loop {
            match self.next(deadline, "the answer to the client's close").await? {
                Message::Text(_) | Message::Binary(_) => {}
                end => return Ok(end),
            }
        }
    }

    async fn head(&mut self, deadline: Instant) -> Verdict<String> {
        loop {
            if let Some(head) = self.connection.take_head() {
                return Ok(head);
            }
            if let Err(error) = self.read(deadline, "the answer's head").await? {
                return Err(self.fail(&format!("{error} within the answer's head")));
            }
        }
    }

    /// `Err` if the connection has ended.
    async fn read(&mut self, deadline: Instant, what: &str) -> Verdict<Result<(), String>> {
        match tokio::time::timeout_at(deadline, self.connection.read()).await {
            Err(_) => Err(CheckError::TimedOut { what: format!("{what} of {}", self.connection.what) }),
            Ok(Ok(0)) => Ok(Err("the connection was closed".into())),
            Ok(Ok(_)) => Ok(Ok(())),
            Ok(Err(error)) => Ok(Err(error.to_string())),
        }
    }

    fn fail(&self, fault: &str) -> CheckError {
        CheckError::failed(format!("{}: {fault}", self.connection.what))
    }
}

pub(crate) fn fault_of_handshake(head: &str, nonce: &str) -> Option<String> {
    let status = head.split("\r\n").next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 101") {
        return Some(format!("should be 101 Switching Protocols, but begins with {status:?}"));
    }
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{nonce}{GUID}").as_bytes());
    let accept = STANDARD.encode(digest);
    for (name, expected) in [("upgrade", "websocket"), ("connection", "upgrade")] {
        let seen = field(head, name);
        if !seen.eq_ignore_ascii_case(expected) {
            return Some(format!("has {name} {seen:?}"));
        }
    }
    let seen = field(head, "sec-websocket-accept");
    (seen != accept).then(|| format!("has Sec-WebSocket-Accept {seen:?} instead of {accept:?}"))
}

/// The value of a header; empty if it is absent.
fn field(head: &str, wanted: &str) -> String {
    let mut fields = head.split("\r\n").skip(1).filter_map(|row| row.split_once(':'));
    fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, v)| v.trim().to_owned()).unwrap_or_default()
}

/// The next frame; None while it is incomplete.
pub(crate) fn take_frame(buffer: &mut BytesMut) -> Result<Option<Frame>, String> {
    let [first, second, rest @ ..] = &buffer[..] else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(format!("a frame with reserved bits set: {}", shown(buffer)));
    }
    if second & 0x80 != 0 {
        return Err("a server's frame must not be masked".into());
    }
    let opcode = first & 0x0f;
    if !matches!(opcode, 0..=2 | 8..=10) {
        return Err(format!("a frame with the opcode {opcode}"));
    }
    let (head, length) = match second & 0x7f {
        126 => match rest.first_chunk::<2>() {
            Some(length) => (4, u64::from(u16::from_be_bytes(*length))),
            None => return Ok(None),
        },
        127 => match rest.first_chunk::<8>() {
            Some(length) => (10, u64::from_be_bytes(*length)),
            None => return Ok(None),
        },
        short => (2, u64::from(short)),
    };
    if length > LARGEST {
        return Err(format!("a frame that says it has {length} bytes"));
    }
    let length = usize::try_from(length).map_err(|error| error.to_string())?;
    let is_final = first & 0x80 != 0;
    if buffer.len() < head + length {
        return Ok(None);
    }
    buffer.advance(head);
    Ok(Some(Frame { is_final, opcode, payload: buffer.split_to(length).freeze() }))
}

/// Adds a frame to the begun message; returns the message when it is complete.
pub(crate) fn assemble(begun: &mut Option<(u8, BytesMut)>, frame: Frame) -> Result<Option<Message>, String> {
    match frame.opcode {
        PING | PONG => return Ok(None),
        CLOSE => {
            let code = frame.payload.first_chunk::<2>().map_or(NO_CODE, |code| u16::from_be_bytes(*code));
            return Ok(Some(Message::Close(code)));
        }
        TEXT | BINARY if begun.is_some() => return Err("a message began within another one".into()),
        TEXT | BINARY => *begun = Some((frame.opcode, BytesMut::from(&frame.payload[..]))),
        // `take_frame` returns no other opcode.
        _ => {
            let (_, payload) = begun.as_mut().ok_or("a continuation without a first frame")?;
            payload.extend_from_slice(&frame.payload);
        }
    }
    let whole = if frame.is_final { begun.take() } else { None };
    Ok(whole.map(|(opcode, payload)| match opcode {
        TEXT => Message::Text(payload.freeze()),
        _ => Message::Binary(payload.freeze()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(bytes: &[u8]) -> Result<Vec<Message>, String> {
        let (mut buffer, mut begun, mut all) = (BytesMut::from(bytes), None, Vec::new());
        while let Some(frame) = take_frame(&mut buffer)? {
            all.extend(assemble(&mut begun, frame)?);
        }
        Ok(all)
    }

    #[test]
    fn frames_become_messages() {
        let text = |text: &'static str| Message::Text(Bytes::from_static(text.as_bytes()));
        for (bytes, expected) in [
            (&b"\x81\x02hi"[..], vec![text("hi")]),
            (b"\x01\x01h\x89\x00\x80\x01i\x82\x01\x00", vec![text("hi"), Message::Binary(Bytes::from_static(b"\0"))]),
            (b"\x81\x7e\x00\x02hi\x88\x02\x03\xe8", vec![text("hi"), Message::Close(1000)]),
            (b"\x81\x7f\x00\x00\x00\x00\x00\x00\x00\x02hi\x88\x00", vec![text("hi"), Message::Close(NO_CODE)]),
            (b"\x81\x02h", vec![]),
            (b"\x81", vec![]),
        ] {
            assert_eq!(messages(bytes), Ok(expected), "{bytes:?}");
        }
    }

    #[test]
    fn frames_that_the_rfc_forbids_are_rejected() {
        for (bytes, why) in [
            (&b"\xc1\x02hi"[..], "reserved bits"),
            (b"\x81\x82\x00\x00\x00\x00hi", "must not be masked"),
            (b"\x83\x00", "opcode 3"),
            (b"\x80\x02hi", "without a first frame"),
            (b"\x01\x01h\x81\x01i", "within another"),
            (b"\x81\x7f\x7f\x00\x00\x00\x00\x00\x00\x00", "says it has"),
        ] {
            let error = messages(bytes).expect_err(why);
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn handshake_must_prove_that_the_key_was_read() {
        // The example of RFC 6455, section 1.2.
        let good = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        let nonce = "dGhlIHNhbXBsZSBub25jZQ==";
        assert_eq!(fault_of_handshake(good, nonce), None);
        for (head, why) in [
            (good.replace("101", "200"), "should be 101"),
            (good.replace("s3p", "S3p"), "Sec-WebSocket-Accept"),
            (good.replace("Upgrade: websocket", "Upgrade: h2c"), "upgrade"),
            (good.replace("Connection: Upgrade", "Connection: close"), "connection"),
        ] {
            let fault = fault_of_handshake(&head, nonce).expect(why);
            assert!(fault.contains(why), "{why}: {fault}");
        }
    }
}
