//! A TLS reverse proxy in front of one apiserver, over HTTP/1.1 and HTTP/2 as the client chooses.
//!
//! If no mutant changes an answer, it passes unchanged: status, headers, and the body piece by piece. The proxy serves
//! only clients with a certificate of the run's CA. Their tokens pass. A certificate cannot pass, because TLS ends
//! here: if the profile has no token, the proxy shows the server the administrator's certificate.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use futures::StreamExt;
use http::HeaderValue;
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING, UPGRADE,
};
use http::{Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::client::legacy::Error as ClientError;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use model::ProfileInfo;
use tls::ClientConfig;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::call::{Call, Reply};
use crate::stream::Lines;
use crate::table::{Change, Filter};
use crate::tls_listener::{self, Error, TlsListener, upstream};

type Body = UnsyncBoxBody<Bytes, Error>;
type Upstream = tls_listener::Upstream<Full<Bytes>>;

/// A running proxy. Dropping it closes it and all its connections.
pub struct Proxy(TlsListener);

/// Data for all connections.
struct Shared {
    base: String,
    tls: ClientConfig,
    over_1: Upstream,
    /// Behind a mutex, because mutants remember earlier messages.
    change: Mutex<Change>,
}

impl Proxy {
    /// Forwards to the profile's apiserver, with the same server certificate. Clients need a certificate: see
    /// [`ProfileInfo::client_certificate_required`].
    pub fn start(profile: &ProfileInfo, change: Change) -> anyhow::Result<Proxy> {
        let tls = match profile.token {
            Some(_) => tls::without_certificate(&profile.tls.ca, tls::Alpn::Unset)?,
            None => tls::client(&profile.tls, tls::Alpn::Unset)?,
        };
        let shared = Arc::new(Shared {
            base: profile.apiserver.clone(),
            over_1: upstream(tls.clone(), false),
            tls,
            change: Mutex::new(change),
        });
        TlsListener::open(&profile.tls.ca, move |stream| connection(stream, Arc::clone(&shared))).map(Proxy)
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.0.port)
    }
}

async fn connection(stream: TlsStream<TcpStream>, shared: Arc<Shared>) {
    // A server allows a hundred streams on one connection, so each client connection gets a separate one to the server.
    let over_2 = upstream(shared.tls.clone(), true);
    let service = hyper::service::service_fn(move |request| {
        let (shared, over_2) = (Arc::clone(&shared), over_2.clone());
        async move { Ok::<_, Infallible>(shared.answer(request, &over_2).await) }
    });
    let _ =
        auto::Builder::new(TokioExecutor::new()).serve_connection_with_upgrades(TokioIo::new(stream), service).await;
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>, over_2: &Upstream) -> Response<Body> {
        match self.forward(request, over_2).await {
            Ok(response) => response,
            Err(error) => {
                let text = format!("the proxy failed to forward the request: {error:#}");
                let mut response = Response::new(full(text.into()));
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                // Without it, informers of client-go pause twice as long after each answer, up to a minute, and come back
                // long after the apiserver has started. Nothing was sent, so a write may be repeated, too.
                if error.downcast_ref::<ClientError>().is_some_and(ClientError::is_connect) {
                    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
                }
                response
            }
        }
    }

    async fn forward(&self, mut request: Request<Incoming>, over_2: &Upstream) -> anyhow::Result<Response<Body>> {
        let version = request.version();
        let upgrade = request.headers().contains_key(UPGRADE).then(|| hyper::upgrade::on(&mut request));
        let mut call = received(request).await?;
        match &mut *self.change() {
            Change::Request(change) => change(&mut call),
            // A filter reads lines of JSON. In a compressed stream it changes nothing and holds the end of the last event
            // until later bytes contain a newline: an informer waited for a bookmark, which comes once a minute. Go's clients
            // accept gzip, and since 1.37 the server compresses watches with initial events (WatchListCompression).
            Change::Events(_) if call.is_watch() => drop(call.headers.remove(ACCEPT_ENCODING)),
            _ => {}
        }
        let client = if version == Version::HTTP_2 { over_2 } else { &self.over_1 };
        let mut outgoing = self.outgoing(&call, version)?;
        if upgrade.is_some() {
            outgoing.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        }
        let mut answer = client.request(outgoing).await.context("the apiserver did not answer")?;
        if let Some(near) = upgrade.filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS) {
            tokio::spawn(joined(near, hyper::upgrade::on(&mut answer)));
            return Ok(answer.map(|_| full(Bytes::new())));
        }
        let (mut head, body) = answer.into_parts();
        head.headers.remove(CONNECTION);
        head.headers.remove(TRANSFER_ENCODING);
        if call.is_watch() && head.status == StatusCode::OK {
            let media_type = head.headers.get(CONTENT_TYPE).map_or(&[][..], |of| of.as_bytes());
            let body = match &mut *self.change() {
                // Filters read lines of JSON; in protobuf they would wait for the end of a line.
                Change::Events(make) if media_type.starts_with(b"application/json") => streamed(body, make(&call)),
                Change::Cut(which) if which(&call) => without_end(body),
                Change::Cbor(change) if media_type.starts_with(b"application/cbor") => changed(body, *change),
                _ => streamed(body, None),
            };
            if let Change::Reply(change) = &mut *self.change() {
                // Only the head of the stream has arrived yet.
                let mut reply = Reply { status: 200, headers: head.headers.clone(), body: Bytes::new() };
                change(&call, &mut reply);
                head.headers = reply.headers;
            }
            return Ok(Response::from_parts(head, body));
        }
        let body = body.collect().await.context("the apiserver's answer broke off")?.to_bytes();
        let mut reply = Reply { status: head.status.as_u16(), headers: head.headers.clone(), body };
        if let Change::Reply(change) = &mut *self.change() {
            change(&call, &mut reply);
        }
        head.status = StatusCode::from_u16(reply.status).context("a mutant's status")?;
        head.headers = reply.headers;
        head.headers.insert(CONTENT_LENGTH, reply.body.len().into());
        Ok(Response::from_parts(head, full(reply.body)))
    }

    fn outgoing(&self, call: &Call, version: Version) -> anyhow::Result<Request<Full<Bytes>>> {
        let query = encoded(&call.query);
        let question = if query.is_empty() { "" } else { "?" };
        let mut request = Request::builder()
            .method(call.method.clone())
            .version(version)
            .uri(format!("{}{}{question}{query}", self.base, call.path))
            .body(Full::new(call.body.clone()))
            .context("a mutant's request")?;
        let mut headers = call.headers.clone();
        for name in [HOST, CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH] {
            headers.remove(name);
        }
        *request.headers_mut() = headers;
        Ok(request)
    }

    fn change(&self) -> std::sync::MutexGuard<'_, Change> {
        self.change.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Copies the bytes that follow a switch of protocols, unchanged.
async fn joined(near: OnUpgrade, far: OnUpgrade) {
    let Ok((near, far)) = tokio::try_join!(near, far) else { return };
    let (mut near, mut far) = (TokioIo::new(near), TokioIo::new(far));
    // If either side ends, the connection is over; the proxy ignores errors here.
    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
}

async fn received(request: Request<Incoming>) -> anyhow::Result<Call> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|error| anyhow!("the request broke off: {error}"))?.to_bytes();
    Ok(Call {
        method: head.method,
        path: head.uri.path().to_owned(),
        query: decoded(head.uri.query().unwrap_or_default()),
        headers: head.headers,
        body,
    })
}

fn full(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

fn streamed(body: Incoming, filter: Option<Filter>) -> Body {
    let Some(filter) = filter else { return body.map_err(Error::from).boxed_unsync() };
    let mut lines = Lines::new(filter);
    let frames = BodyStream::new(body).filter_map(move |frame| {
        let passed = match frame {
            Ok(frame) => frame.into_data().ok().map(|piece| lines.pass(&piece)).filter(|piece| !piece.is_empty()),
            Err(error) => return std::future::ready(Some(Err(Error::from(error)))),
        };
        std::future::ready(passed.map(|piece| Ok(Frame::data(piece))))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The body with each of its pieces changed.
fn changed(body: Incoming, change: fn(&mut [u8])) -> Body {
    let change = move |piece: Bytes| {
        let mut piece = Vec::from(piece);
        change(&mut piece);
        Bytes::from(piece)
    };
    body.map_frame(move |frame| frame.map_data(change)).map_err(Error::from).boxed_unsync()
}

/// The whole body, but the stream breaks where it should be completed.
fn without_end(body: Incoming) -> Body {
    let cut = futures::stream::iter([Err(Error::from("the proxy cuts the stream"))]);
    let frames = BodyStream::new(body).map(|frame| frame.map_err(Error::from)).chain(cut);
    StreamBody::new(frames).boxed_unsync()
}

pub(crate) fn decoded(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (unescaped(k), unescaped(v))).collect()
}

pub(crate) fn encoded(query: &[(String, String)]) -> String {
    let pairs = query.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail
            .get(..2)
            // `from_str_radix` accepts a sign, but an escape has none.
            .filter(|two| two.iter().all(u8::is_ascii_hexdigit))
            .and_then(|two| std::str::from_utf8(two).ok())
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_forwarded_unchanged() {
        for query in ["", "limit=2&continue=eyJ2Ijoi%2B%2F", "labelSelector=a%20in%20%28b%2Cc%29&watch=true"] {
            assert_eq!(encoded(&decoded(query)), query);
        }
        assert_eq!(encoded(&decoded("a=%+1%zz%")), "a=%25%201%25zz%25");
    }
}
