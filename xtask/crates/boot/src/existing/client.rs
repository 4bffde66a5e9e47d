//! Small requests to the apiserver of an external cluster, with advice on their failures.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use model::TlsFiles;
use reqwest::Method;
use reqwest::blocking::Client as Http;
use serde_json::Value;

use super::StoreAccess;
use crate::component::root_cause;

/// The deadline of a request; the server's speed is not known yet.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) struct Client {
    http: Http,
    server: String,
    token: Option<String>,
    /// How long each answer took.
    took: RefCell<Vec<Duration>>,
    /// Whether any answer came over HTTP/1.1.
    http1: Cell<bool>,
}

/// An answer with a JSON body, or `Null`.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Client {
    pub(super) fn new(server: &str, tls: &TlsFiles, token: Option<&str>) -> anyhow::Result<Client> {
        let config = match token {
            Some(_) => tls::without_certificate(&tls.ca, tls::Alpn::Both)?,
            None => tls::client(tls, tls::Alpn::Both)?,
        };
        let (server, token) = (server.to_owned(), token.map(str::to_owned));
        Ok(Client { http: http(config)?, server, token, took: RefCell::default(), http1: Cell::default() })
    }

    pub(super) fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, None)
    }

    pub(super) fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::DELETE, path, None)
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(Method::POST, path, Some(("application/json", body)))
    }

    pub(super) fn put(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(Method::PUT, path, Some(("application/json", body)))
    }

    pub(super) fn patch(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(Method::PATCH, path, Some(("application/merge-patch+json", body)))
    }

    /// The median time of the answers so far.
    pub(super) fn median(&self) -> Duration {
        let mut took = self.took.borrow().clone();
        took.sort();
        took.get(took.len() / 2).copied().unwrap_or_default()
    }

    /// Whether any connection so far did not use HTTP/2.
    pub(super) fn used_http1(&self) -> bool {
        self.http1.get()
    }

    fn send(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> anyhow::Result<Answer> {
        let mut request = self.http.request(method, format!("{}{path}", self.server));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some((media_type, body)) = body {
            request = request.header("Content-Type", media_type).body(body.to_string());
        }
        let begin = Instant::now();
        let answer = request.send().map_err(|error| unreachable_server("apiserver", &self.server, &error))?;
        let status = answer.status().as_u16();
        self.http1.set(self.http1.get() || answer.version() != reqwest::Version::HTTP_2);
        let bytes = answer.bytes().with_context(|| format!("the answer to {path} was cut off"))?;
        self.took.borrow_mut().push(begin.elapsed());
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        if status == 401 {
            bail!(
                "{} does not accept the user's credentials (401 Unauthorized): the token or certificate has expired, \
                 belongs to another cluster, or its ServiceAccount was deleted; create a new token with `kubectl \
                 create token SERVICEACCOUNT --duration 2h`",
                self.server
            );
        }
        Ok(Answer { status, body })
    }
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body of a successful answer. An error otherwise.
    pub(super) fn ok(self, what: &str) -> anyhow::Result<Value> {
        if self.is_success() {
            return Ok(self.body);
        }
        Err(anyhow!("{what} was answered {} {}", self.status, self.message()))
    }

    pub(super) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

fn http(config: tls::ClientConfig) -> anyhow::Result<Http> {
    let http = Http::builder().tls_backend_preconfigured(config).no_proxy().timeout(LIMIT);
    http.redirect(reqwest::redirect::Policy::none()).build().context("failed to create the HTTP client")
}

/// The version that the store reports. None if it speaks only gRPC; then the suite makes the first request to it.
pub(super) fn store_version(store: &StoreAccess) -> anyhow::Result<Option<String>> {
    let endpoint = store.endpoint.trim_end_matches('/');
    let http = http(tls::client(&store.tls, tls::Alpn::Http1)?)?;
    let answer = match http.get(format!("{endpoint}/version")).send() {
        Ok(answer) => answer,
        Err(error) => return Err(unreachable_server("store", endpoint, &error)),
    };
    let body: Value = answer.bytes().ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or(Value::Null);
    Ok(body["etcdserver"].as_str().map(|version| format!("v{version}")))
}

/// An error that says what to do.
fn unreachable_server(what: &str, address: &str, error: &reqwest::Error) -> anyhow::Error {
    let text = root_cause(error);
    let advice = advice(&text);
    anyhow!("failed to reach the {what} at {address}: {text}{advice}")
}

fn advice(text: &str) -> &'static str {
    let any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if any(&["UnknownIssuer", "BadSignature", "unknown issuer"]) {
        "; its certificate is not signed by the given CA"
    } else if any(&["NotValidForName", "not valid for name"]) {
        "; its certificate is for other names: use one of them as the address"
    } else if any(&[
        "CertificateRequired",
        "UnknownCA",
        "BadCertificate",
        "AccessDenied",
        "CertificateUnknown",
        "alert",
    ]) {
        "; it does not accept the client certificate"
    } else if any(&["expired", "Expired"]) {
        "; its certificate has expired"
    } else if any(&["refused", "dns", "unreachable", "timed out", "No route"]) {
        "; no server answers there: check the address, and that the server runs"
    } else {
        ""
    }
}
