//! Raw HTTP to an apiserver through kube's client: no retries, no typed objects, and a chosen transport.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http::{HeaderMap, Method, header};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::Body;
use model::{ProfileInfo, Resource};
use serde_json::Value;

use crate::answers::{ClientAnswers, Exchange};
use crate::object::Object;
use objects::ObjectRecorder;

pub(crate) mod objects;
pub mod overload;

pub const JSON: &str = "application/json";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub const CBOR: &str = "application/cbor";

/// The HTTP version on the wire; the TLS handshake offers nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Http1,
    Http2,
}

/// A client of one apiserver with separate connections.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    base: String,
    authorization: Option<String>,
    transport: Transport,
    limit: Duration,
    answers: Option<ClientAnswers>,
    objects: Option<Arc<ObjectRecorder>>,
}

/// A request; `path` and `query` are sent as they are.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub accept: &'static str,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// An answer whose body is still arriving.
pub struct Streaming {
    pub status: u16,
    pub version: http::Version,
    pub headers: HeaderMap,
    pub body: Body,
}

/// The credentials of a profile's administrator for its apiserver.
pub struct Identity {
    pub tls: tls::ClientConfig,
    pub authorization: Option<String>,
}

impl Identity {
    pub fn of(profile: &ProfileInfo) -> anyhow::Result<Identity> {
        let Some(file) = &profile.token else {
            return Ok(Identity { tls: tls::client(&profile.tls, tls::Alpn::Unset)?, authorization: None });
        };
        let token = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        let tls = if profile.client_certificate_required {
            tls::client(&profile.tls, tls::Alpn::Unset)?
        } else {
            tls::without_certificate(&profile.tls.ca, tls::Alpn::Unset)?
        };
        Ok(Identity { tls, authorization: Some(format!("Bearer {}", token.trim())) })
    }
}

impl Api {
    /// Does not connect yet; `limit` applies to a whole answer.
    pub fn new(profile: &ProfileInfo, transport: Transport, limit: Duration) -> anyhow::Result<Api> {
        let Identity { tls, authorization } = Identity::of(profile)?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // Head and body of a request are two writes: with Nagle's algorithm the second one waits for the delayed
        // acknowledgement of the first, 40 ms in every POST, PUT and PATCH.
        tcp.set_nodelay(true);
        let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
        let mut hyper = HyperClient::builder(TokioExecutor::new());
        let connector = match transport {
            Transport::Http1 => builder.enable_http1().wrap_connector(tcp),
            Transport::Http2 => {
                hyper.http2_only(true);
                builder.enable_http2().wrap_connector(tcp)
            }
        };
        let service = hyper.build::<_, Body>(connector);
        let client = kube::Client::new(service, "default");
        let base = profile.apiserver.clone();
        Ok(Api { client, base, authorization, transport, limit, answers: None, objects: None })
    }

    /// Records every complete answer from now on, and the objects in answers to raw requests.
    pub(crate) fn recording(self, answers: Option<ClientAnswers>, objects: Option<ObjectRecorder>) -> Api {
        Api { answers, objects: objects.map(Arc::new), ..self }
    }

    /// Whether the objects that the server shows are those of the recorded store, in the form of the release under test.
    pub(crate) fn records_objects(&self) -> bool {
        self.objects.is_some()
    }

    /// Whether the resource is a custom one; false if the objects are not recorded.
    pub(crate) fn is_custom(&self, resource: &Resource) -> bool {
        self.objects.as_ref().is_some_and(|objects| objects.is_custom(resource))
    }

    pub(crate) fn answers(&self) -> Option<&ClientAnswers> {
        self.answers.as_ref()
    }

    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Sends a request and reads the whole answer. A server's own time-out or overload answer is an error, see
    /// [`overload`].
    pub async fn send(&self, request: &Request) -> anyhow::Result<Response> {
        overload::refuse(request, self.exchange_raw(request).await?)
    }

    /// Like [`Api::exchange`], for a request that is not recorded as an operation.
    pub(crate) async fn exchange_raw(&self, request: &Request) -> anyhow::Result<Response> {
        let response = self.exchange(request).await?;
        if let Some(objects) = &self.objects {
            objects.record(request, &response);
        }
        Ok(response)
    }

    /// Sends a request and reads the whole answer, including time-out and overload answers, for a recorder.
    pub(crate) async fn exchange(&self, request: &Request) -> anyhow::Result<Response> {
        let whole = async {
            let streaming = self.open(request).await?;
            let body = streaming.body.collect().await.map_err(|e| anyhow!("{}", chain(&e)))?.to_bytes();
            Ok(Response { status: streaming.status, headers: streaming.headers, body })
        };
        let result = match tokio::time::timeout(self.limit, whole).await {
            Ok(result) => result,
            Err(_) => Err(anyhow!("{request} was not answered within {:.0} s", self.limit.as_secs_f64())),
        };
        if let (Some(answers), Ok(response)) = (&self.answers, &result) {
            answers.record(request.exchange(response));
        }
        result
    }

    /// Sends a request and returns as soon as the head of the answer has arrived.
    pub async fn open(&self, request: &Request) -> anyhow::Result<Streaming> {
        let answer = self.client.send(self.build(request)?).await;
        let answer = answer.map_err(|error| anyhow!("{request} failed: {}", chain(&error)))?;
        let (head, body) = answer.into_parts();
        Ok(Streaming { status: head.status.as_u16(), version: head.version, headers: head.headers, body })
    }

    fn build(&self, request: &Request) -> anyhow::Result<http::Request<Body>> {
        let question = if request.query.is_empty() { "" } else { "?" };
        let uri = format!("{}{}{question}{}", self.base, request.path, request.query);
        let mut builder = http::Request::builder()
            .method(request.method.clone())
            .uri(&uri)
            .header(header::ACCEPT, request.accept)
            .header(header::USER_AGENT, "archproof");
        if !request.body.is_empty() {
            builder = builder.header(header::CONTENT_TYPE, request.content_type);
        }
        if let Some(authorization) = &self.authorization {
            builder = builder.header(header::AUTHORIZATION, authorization);
        }
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        builder.body(Body::from(request.body.clone())).with_context(|| format!("`{uri}` is not a valid request"))
    }
}

impl Request {
    pub fn new(method: Method, path: impl Into<String>) -> Request {
        Request {
            method,
            path: path.into(),
            query: String::new(),
            accept: JSON,
            content_type: JSON,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub fn get(path: impl Into<String>) -> Request {
        Request::new(Method::GET, path)
    }

    pub fn query(mut self, query: impl Into<String>) -> Request {
        self.query = query.into();
        self
    }

    pub fn accept(mut self, media_type: &'static str) -> Request {
        self.accept = media_type;
        self
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Request {
        self.headers.push((name, value.into()));
        self
    }

    pub fn body(mut self, content_type: &'static str, body: impl Into<Vec<u8>>) -> Request {
        self.content_type = content_type;
        self.body = body.into();
        self
    }

    pub fn json(self, value: &Value) -> Request {
        self.body(JSON, value.to_string())
    }
}

impl Request {
    /// The record of the request with its answer.
    pub(crate) fn exchange(&self, response: &Response) -> Exchange {
        let warnings = response.headers.get_all(header::WARNING).iter();
        let warnings = warnings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        Exchange {
            method: self.method.to_string(),
            path: self.path.clone(),
            query: self.query.clone(),
            accept: self.accept,
            content_type: Some(self.content_type).filter(|media_type| *media_type != JSON),
            headers: self.headers.clone(),
            sent: self.body.clone(),
            event: None,
            status: response.status,
            meaning: std::iter::once(response.header("content-type").to_owned()).chain(warnings).collect(),
            received: response.body.clone(),
        }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let question = if self.query.is_empty() { "" } else { "?" };
        write!(f, "{} {}{question}{}", self.method, self.path, self.query)
    }
}

impl Response {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The pause that a server asks for while it refuses all requests: 429 with Retry-After. A cache that is being
    /// filled answers so ("storage is (re)initializing"), for a new custom resource and after each change of its
    /// definition. client-go obeys it too, for every verb (rest/with_retry.go).
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.header("retry-after").parse().ok()?;
        (self.status == 429).then(|| Duration::from_secs(seconds))
    }

    /// The body as JSON; `Null` if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The body as an object; if the request was refused, an error with the answer.
    pub fn object(&self) -> anyhow::Result<Object> {
        anyhow::ensure!(self.is_success(), "refused: {self}");
        let value = serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {self}"))?;
        Ok(Object(value))
    }

    /// `reason` of a Status; empty if it is absent.
    pub fn reason(&self) -> String {
        self.json()["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// `message` of a Status; empty if it is absent.
    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }

    pub fn is(&self, status: u16, reason: &str) -> bool {
        self.status == status && self.reason() == reason
    }

    /// A response header as text; empty if it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl std::fmt::Display for Response {
    /// The status and the first part of the body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 400;
        let text = String::from_utf8_lossy(&self.body);
        let short: String = text.chars().take(SHOWN).collect();
        let dots = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
        write!(f, "{} {}{dots}", self.status, short.trim())
    }
}

impl Transport {
    pub fn name(self) -> &'static str {
        match self {
            Transport::Http1 => "http/1.1",
            Transport::Http2 => "http/2",
        }
    }
}

/// A query string from pairs; values are percent-encoded.
pub fn query(pairs: &[(&str, &str)]) -> String {
    let encoded = pairs.iter().map(|(name, value)| format!("{name}={}", percent_encode(value)));
    encoded.collect::<Vec<String>>().join("&")
}

fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// An error with all its causes: kube and hyper put the interesting part at the end.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let next = source.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_429_with_seconds_asks_for_a_retry() {
        for (status, header, seconds) in
            [(429, Some("1"), Some(1)), (429, None, None), (429, Some("soon"), None), (504, Some("1"), None)]
        {
            let mut headers = HeaderMap::new();
            headers.extend(header.map(|value| (header::RETRY_AFTER, value.parse().unwrap())));
            let response = Response { status, headers, body: Bytes::new() };
            assert_eq!(response.retry_after(), seconds.map(Duration::from_secs), "{status} {header:?}");
        }
    }

    #[test]
    fn query_values_are_encoded() {
        assert_eq!(
            query(&[("labelSelector", "a in (b,c)"), ("limit", "2")]),
            "labelSelector=a%20in%20%28b%2Cc%29&limit=2"
        );
    }
}
