//! A TLS proxy between an apiserver, or the suite, and a store: it forwards gRPC calls message by message, and a mutant
//! may change each.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::{Buf, Bytes, BytesMut};
use futures::StreamExt;
use http::header::HOST;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use model::StoreInfo;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::message::Message;
use crate::tls_listener::{Error, TlsListener, UNREAD, Upstream, upstream};

type Body = UnsyncBoxBody<Bytes, Error>;

/// Called with each message of a call, and the method's name: `Range`, `Txn`, `Watch`, `LeaseGrant`.
pub type OnMessage = Box<dyn FnMut(&str, &mut Message) + Send>;

/// The changes of a proxy to the messages that it forwards.
#[derive(Default)]
pub struct StoreChange {
    /// Changes messages from the client.
    pub request: Option<OnMessage>,
    /// Changes messages from the store.
    pub reply: Option<OnMessage>,
}

impl StoreChange {
    pub(crate) fn of_requests(change: impl FnMut(&str, &mut Message) + Send + 'static) -> StoreChange {
        StoreChange { request: Some(Box::new(change)), reply: None }
    }

    pub(crate) fn of_replies(change: impl FnMut(&str, &mut Message) + Send + 'static) -> StoreChange {
        StoreChange { request: None, reply: Some(Box::new(change)) }
    }
}

/// A running proxy. Dropping it closes it and all its connections.
pub struct StoreProxy(TlsListener);

struct Shared {
    base: String,
    upstream: Upstream<Body>,
    /// Behind a mutex, because mutants remember earlier messages.
    change: Mutex<StoreChange>,
}

#[derive(Clone, Copy)]
enum Direction {
    Request,
    Reply,
}

impl StoreProxy {
    /// Forwards to the store, with the same server certificate. The store has no tokens: the proxy shows it the
    /// administrator's certificate, and serves only clients with a certificate of the same CA.
    pub fn start(store: &StoreInfo, change: StoreChange) -> anyhow::Result<StoreProxy> {
        let upstream = upstream(tls::client(&store.tls, tls::Alpn::Unset)?, true);
        let shared = Arc::new(Shared { base: store.endpoint.clone(), upstream, change: Mutex::new(change) });
        TlsListener::open(&store.tls.ca, move |stream| connection(stream, Arc::clone(&shared))).map(StoreProxy)
    }

    /// The port on the loopback address of this machine.
    pub fn port(&self) -> u16 {
        self.0.port
    }
}

async fn connection(stream: TlsStream<TcpStream>, shared: Arc<Shared>) {
    let service = hyper::service::service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(shared, request).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new()).http2_only();
    server.http2().max_send_buf_size(UNREAD as usize);
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let (mut head, body) = request.into_parts();
    let method: Arc<str> = head.uri.path().rsplit('/').next().unwrap_or_default().into();
    head.headers.remove(HOST);
    let forwarded = format!("{}{}", shared.base, head.uri.path()).parse().map(|uri| {
        head.uri = uri;
        Request::from_parts(head, changed(body, &method, Direction::Request, &shared))
    });
    let answered = match forwarded {
        Ok(request) => shared.upstream.request(request).await.ok(),
        Err(_) => None,
    };
    match answered {
        Some(answer) => answer.map(|body| changed(body, &method, Direction::Reply, &shared)),
        None => {
            let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}

/// A body whose messages a mutant may change; trailers pass unchanged.
fn changed(body: Incoming, method: &Arc<str>, direction: Direction, shared: &Arc<Shared>) -> Body {
    let (method, shared) = (Arc::clone(method), Arc::clone(shared));
    let mut messages = Messages::default();
    let frames = BodyStream::new(body).filter_map(move |frame| {
        let passed = match frame.map(Frame::into_data) {
            Ok(Ok(piece)) => {
                let whole = messages.pass(&piece, |message| shared.change(direction, &method, message));
                (!whole.is_empty()).then(|| Ok(Frame::data(whole)))
            }
            Ok(Err(trailers)) => Some(Ok(trailers)),
            Err(error) => Some(Err(Error::from(error))),
        };
        std::future::ready(passed)
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Shared {
    fn change(&self, direction: Direction, method: &str, message: &mut Message) {
        let mut change = self.change.lock().unwrap_or_else(|e| e.into_inner());
        let hook = match direction {
            Direction::Request => &mut change.request,
            Direction::Reply => &mut change.reply,
        };
        if let Some(hook) = hook {
            hook(method, message);
        }
    }
}

/// Splits a body into gRPC messages: a flag for compression, the length as four bytes, the message.
#[derive(Default)]
pub(crate) struct Messages {
    rest: BytesMut,
}

impl Messages {
    const HEAD: usize = 5;

    /// The messages that are complete so far, each changed; an incomplete message waits for its end.
    pub(crate) fn pass(&mut self, piece: &[u8], mut change: impl FnMut(&mut Message)) -> Bytes {
        self.rest.extend_from_slice(piece);
        let mut passed = BytesMut::new();
        while let Some(length) = self.length() {
            let mut whole = self.rest.split_to(Messages::HEAD + length);
            let plain = whole[0] == 0;
            match Message::parse(&whole[Messages::HEAD..]).filter(|_| plain) {
                Some(mut message) => {
                    change(&mut message);
                    let bytes = message.encode();
                    passed.extend_from_slice(&[0]);
                    passed.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
                    passed.extend_from_slice(&bytes);
                }
                None => passed.extend_from_slice(&whole),
            }
            whole.clear();
        }
        passed.freeze()
    }

    /// The length of the next message, if it is complete.
    fn length(&self) -> Option<usize> {
        let length = usize::try_from(self.rest.get(1..Messages::HEAD)?.get_u32()).ok()?;
        (self.rest.len() >= Messages::HEAD + length).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_split_at_any_byte_are_changed_whole() {
        let stream = [0, 0, 0, 0, 2, 0x08, 5, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x08, 5];
        for cut in 0..stream.len() {
            let mut messages = Messages::default();
            let add = |message: &mut Message| message.set_number(1, message.number(1) + 1);
            let mut passed = messages.pass(&stream[..cut], add).to_vec();
            passed.extend_from_slice(&messages.pass(&stream[cut..], add));
            // The empty message gets a field; the compressed one passes unchanged.
            assert_eq!(
                passed,
                [0, 0, 0, 0, 2, 0x08, 6, 0, 0, 0, 0, 2, 0x08, 1, 1, 0, 0, 0, 2, 0x08, 5],
                "cut at {cut}"
            );
        }
    }
}
