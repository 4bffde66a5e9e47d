//! One of the compared control planes: its clients, and the state of one run of a sequence on it.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::BodyExt;
use model::ProfileInfo;
use suite::api::{Api, PROTOBUF, Transport};
use suite::decode::{Encoding, encoding};
use suite::store::Store;

use super::answer::{Answer, Content, headers};
use super::masks::Masks;
use super::request::{FIRST_VERSION, NEXT_PAGE, Names, Request, Verb};
use super::{cbor, crd, pages, seats, wire};
use crate::document::Document;

/// How often a request is sent while the server asks for a retry, or does not serve a new resource yet.
const ATTEMPTS: usize = 60;
const PAUSE: Duration = Duration::from_millis(50);
/// How long one answer may take on a fast machine.
const ANSWER: Duration = Duration::from_secs(60);
/// Controllers of a server react within this time.
const QUIET: Duration = Duration::from_millis(150);

/// The status of a watch without a version to begin at, or of a write without an object in protobuf.
const SKIPPED: u16 = 2;
/// The status of an answer that the server broke off.
pub(crate) const RESET: u16 = 0;

/// A control plane.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) profile: ProfileInfo,
    api: Api,
    /// None for an external cluster.
    store: Option<Store>,
    /// How long one answer may take.
    limit: Duration,
    /// The time between two attempts.
    pause: Duration,
    /// How long an object must stay unchanged to count as settled.
    quiet: Duration,
}

/// What one run of a sequence remembers of a side.
pub(crate) struct State {
    masks: Masks,
    first_version: String,
    last_version: String,
    /// The token of the last page.
    next_page: String,
    /// The last object in protobuf.
    last_protobuf: Bytes,
    /// The text of all requests so far.
    sent: String,
    /// Whether the server accepted a definition, so that it will serve a new resource.
    defined: bool,
    /// How many priority levels the server accepted.
    levels: usize,
}

impl Side {
    /// Deadlines are multiplied by `factor`.
    pub(crate) async fn connect(
        name: &'static str,
        profile: &ProfileInfo,
        transport: Transport,
        factor: f64,
    ) -> anyhow::Result<Side> {
        let limit = ANSWER.mul_f64(factor.max(1.0));
        let api = Api::new(profile, transport, limit)?;
        let store = match profile.stores.first().filter(|_| profile.shows_its_stores()) {
            Some(store) => {
                Some(Store::connect(store, limit).await.with_context(|| format!("the store of the side `{name}`"))?)
            }
            None => None,
        };
        let [pause, quiet] = [PAUSE, QUIET].map(|time| time.mul_f64(factor.max(1.0)));
        Ok(Side { name, profile: profile.clone(), api, store, limit, pause, quiet })
    }

    /// A raw GET, for the schemas.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Bytes> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = suite::api::Request::get(path).query(query);
        let response = self.api.send(&request).await?;
        anyhow::ensure!(response.is_success(), "{request}: {response}");
        Ok(response.body)
    }

    /// Sends a request that must succeed.
    pub(crate) async fn must(&self, request: &suite::api::Request) -> anyhow::Result<()> {
        let response = self.api.send(request).await?;
        anyhow::ensure!(response.is_success(), "the side `{}`, {request}: {response}", self.name);
        Ok(())
    }

    /// Whether stored values can be read.
    pub(crate) fn shows_its_store(&self) -> bool {
        self.store.is_some()
    }

    fn store(&self) -> anyhow::Result<&Store> {
        self.store.as_ref().with_context(|| format!("the side `{}` does not show its store", self.name))
    }

    /// All keys of the store with the revision of their last change.
    pub(crate) async fn keys(&self) -> anyhow::Result<Vec<(String, i64)>> {
        let (keys, _) = self.store()?.keys(&format!("{}/", self.profile.prefix), 0).await?;
        Ok(keys.into_iter().map(|key| (key.key, key.mod_rev)).collect())
    }

    pub(crate) fn state(now: i64) -> State {
        State {
            masks: Masks::new(now),
            first_version: String::new(),
            last_version: String::new(),
            next_page: String::new(),
            last_protobuf: Bytes::new(),
            sent: String::new(),
            defined: false,
            levels: 0,
        }
    }

    pub(crate) fn request(request: &Request, names: &Names, last_version: &str) -> suite::api::Request {
        let body = request.body.as_ref().map(|body| names.fill(&body.to_string(), last_version));
        let mut raw = suite::api::Request::new(request.verb.method(), names.path(&request.path, last_version))
            .query(names.fill(&request.query, last_version))
            .accept(request.accept);
        if let Some(body) = body {
            raw = raw.body(request.content_type, encoded(request.content_type, body));
        }
        if let Some(shared) = &names.shared {
            shared.restrict(&mut raw);
        }
        raw
    }

    /// Sends a request, and returns the answer after the masks.
    pub(crate) async fn send(&self, state: &mut State, request: &Request, names: &Names) -> anyhow::Result<Answer> {
        if request.verb == Verb::Seats {
            return self.seats(state, request, names).await;
        }
        let mut raw = Side::request(request, names, &state.last_version);
        raw.query = raw.query.replace(NEXT_PAGE, &state.next_page);
        if raw.content_type == PROTOBUF {
            if state.last_protobuf.is_empty() {
                return Ok(Answer { status: SKIPPED, headers: Vec::new(), body: Content::Absent });
            }
            raw.body = state.last_protobuf.to_vec();
        }
        if request.verb == Verb::Watch {
            if state.first_version.is_empty() {
                return Ok(Answer { status: SKIPPED, headers: Vec::new(), body: Content::Absent });
            }
            raw.query = raw.query.replace(FIRST_VERSION, &state.first_version);
        }
        if let Some(body) = request.body.as_ref().filter(|_| raw.body.len() < 10_000) {
            state.sent.push_str(&names.fill(&body.to_string(), ""));
        }
        let mut attempt = 1;
        loop {
            let (status, all, body) = match self.exchange(&raw).await {
                Ok(answer) => answer,
                // A server resets the stream of a request whose handler panics.
                Err(error) if format!("{error:#}").contains("stream error received") => {
                    return Ok(Answer {
                        status: RESET,
                        headers: Vec::new(),
                        body: Content::Text("the server reset the stream".into()),
                    });
                }
                Err(error) => return Err(error),
            };
            // A new custom resource is not served at once.
            let again = status == 429 || request.verb == Verb::List && status == 404 && state.defined;
            if again && attempt < ATTEMPTS {
                attempt += 1;
                suite::wait::pause(self.pause).await;
                continue;
            }
            if request.verb == Verb::Create && status < 300 {
                state.defined |= request.path == crd::DEFINITIONS;
                state.levels += usize::from(request.path == seats::COLLECTION);
            }
            if status == 200 && raw.accept == PROTOBUF {
                state.last_protobuf = body.clone();
            }
            return Ok(state.answer(status, &all, &body));
        }
    }

    /// The seats of all priority levels, once the server has those of the sequence and they stay the same. Other seats say
    /// nothing: the server has not computed them yet.
    async fn seats(&self, state: &State, request: &Request, names: &Names) -> anyhow::Result<Answer> {
        let wanted: usize =
            request.query.strip_prefix("levels=").and_then(|count| count.parse().ok()).unwrap_or_default();
        // A level that the server refused, or that a smaller sequence lacks, has no seats.
        let wanted = wanted.min(state.levels);
        let raw = suite::api::Request::get(&request.path).accept("text/plain");
        let mut before = Document::Null;
        for _ in 0..ATTEMPTS {
            let response = self.api.send(&raw).await?;
            anyhow::ensure!(response.is_success(), "the side `{}`, {raw}: {response}", self.name);
            let mut seats = seats::parse(&String::from_utf8_lossy(&response.body));
            seats::without_deleted(&mut seats, &names.label);
            let steady = seats == before;
            before = seats;
            if steady && seats::complete(&before, &names.label) >= wanted {
                return Ok(Answer { status: 200, headers: Vec::new(), body: Content::Document(before) });
            }
            suite::wait::pause(self.pause).await;
        }
        anyhow::bail!("the metrics of the side `{}` do not show the seats of {wanted} new priority levels", self.name)
    }

    async fn exchange(&self, raw: &suite::api::Request) -> anyhow::Result<(u16, http::HeaderMap, Bytes)> {
        let whole = async {
            let streaming = self.api.open(raw).await?;
            let (status, all) = (streaming.status, streaming.headers);
            let body = streaming.body.collect().await.map_err(|error| anyhow::anyhow!("{raw}: {error}"))?.to_bytes();
            Ok::<_, anyhow::Error>((status, all, body))
        };
        // A server that never answers must not keep the search from its end.
        let late = || format!("the side `{}`, {raw}: no answer within {:.0} s", self.name, self.limit.as_secs_f64());
        tokio::time::timeout(self.limit, whole).await.with_context(late)?
    }

    /// Waits until no controller of the server changes the object any more.
    pub(crate) async fn settle(&self, path: &str, names: &Names) -> anyhow::Result<()> {
        let request = suite::api::Request::get(names.path(path, ""));
        let mut before = String::new();
        for _ in 0..ATTEMPTS {
            let response = self.api.send(&request).await?;
            let version = response.json()["metadata"]["resourceVersion"].to_string();
            if version == before {
                break;
            }
            before = version;
            suite::wait::pause(self.quiet).await;
        }
        Ok(())
    }

    /// A stored value after the masks.
    pub(crate) async fn stored(&self, state: &mut State, key: &str, names: &Names) -> anyhow::Result<Content> {
        let key = format!("{}{}", self.profile.prefix, names.fill(key, ""));
        let found = self.store()?.get(&key, 0).await.with_context(|| format!("failed to read {key}"))?;
        Ok(found.map_or(Content::Absent, |found| state.stored(&found.value)))
    }
}

/// The body in its media type.
fn encoded(content_type: &str, body: String) -> Vec<u8> {
    if content_type.contains("cbor")
        && let Ok(document) = Document::parse(&body)
    {
        return cbor::encode(&document);
    }
    body.into_bytes()
}

/// A JSON or CBOR document, or the events of a watch as a list.
fn parsed(body: &[u8]) -> Option<Document> {
    if body.starts_with(cbor::TAG) {
        return cbor::decode(body);
    }
    let document = Document::parse_bytes(body).ok();
    let lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    if document.is_none() && lines.len() > 1 && body.starts_with(b"{\"type\"") {
        return lines
            .into_iter()
            .map(|line| Document::parse_bytes(line).ok())
            .collect::<Option<_>>()
            .map(Document::List);
    }
    document
}

impl State {
    fn answer(&mut self, status: u16, all: &http::HeaderMap, body: &[u8]) -> Answer {
        let body = match parsed(body) {
            Some(mut document) => {
                let text = |member: &str| document.at(&["metadata", member]).and_then(Document::decoded);
                let kind = document.member("kind").and_then(Document::decoded);
                // A list has no uid; its version is no version of an object.
                if let (Some(version), Some(_)) = (text("resourceVersion"), text("uid")) {
                    if self.first_version.is_empty() && text("name").is_some() && kind.as_deref() != Some("Namespace") {
                        self.first_version.clone_from(&version);
                    }
                    self.last_version = version;
                }
                if let Some(token) = pages::read_token(&mut document) {
                    self.next_page = token;
                }
                self.masks.apply(&mut document, &self.sent);
                Content::Document(document)
            }
            None => self.wire(body),
        };
        Answer { status, headers: headers(all, |text| self.masks.text(text)), body }
    }

    fn wire(&self, body: &[u8]) -> Content {
        match wire::document(body) {
            Some(mut document) => {
                self.masks.apply_to_wire(&mut document);
                Content::Document(document)
            }
            None => Content::Text(self.masks.text(&String::from_utf8_lossy(body))),
        }
    }

    fn stored(&mut self, value: &[u8]) -> Content {
        match (encoding(value), parsed(value)) {
            (Encoding::Json | Encoding::Cbor, Some(mut document)) => {
                self.masks.apply(&mut document, &self.sent);
                Content::Document(document)
            }
            _ => self.wire(value),
        }
    }
}
