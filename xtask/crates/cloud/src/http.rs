//! One request and its answer. `session` decides about repetitions.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use model::Secret;
use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::{Certificate, Method, StatusCode, Url};
use serde::Serialize;
use serde_json::Value;

use crate::fault::Fault;
use crate::mask;

/// Time limit of one request.
const LIMIT: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(20);
/// Longest answer that is read. A page of servers has a few hundred kilobytes.
const LARGEST: u64 = 32 << 20;

/// A request, without the token.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// For messages: "Nova: create the server `x`".
    pub(crate) what: String,
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<Value>,
    /// The request may be repeated although it may have been carried out.
    pub(crate) repeatable: bool,
}

/// A request of a dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    pub method: String,
    pub url: String,
    /// Secrets are replaced by `***`.
    pub headers: BTreeMap<String, String>,
    pub body: Option<Value>,
    /// A dry run sends read-only requests if it has credentials for them.
    pub sent: bool,
}

/// A received answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// `Retry-After`, seconds.
    pub(crate) retry_after: Option<u64>,
    /// The id by which an operator of the cloud can find the request.
    pub(crate) request_id: Option<String>,
    pub(crate) token: Option<Secret>,
    /// Null if the body is not JSON.
    pub(crate) body: Value,
}

/// No answer was received.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) why: String,
    /// The request was never sent, so it has no effect.
    pub(crate) before: bool,
}

impl Call {
    pub(crate) fn get(what: impl Into<String>, url: Url) -> Call {
        Call { what: what.into(), method: Method::GET, url, headers: Vec::new(), body: None, repeatable: true }
    }

    pub(crate) fn post(what: impl Into<String>, url: Url, body: Value) -> Call {
        Call { method: Method::POST, body: Some(body), repeatable: false, ..Call::get(what, url) }
    }

    pub(crate) fn delete(what: impl Into<String>, url: Url) -> Call {
        Call { method: Method::DELETE, ..Call::get(what, url) }
    }

    pub(crate) fn repeatable(self) -> Call {
        Call { repeatable: true, ..self }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Call {
        self.headers.push((name, value.into()));
        self
    }

    /// The request without secrets, for people.
    pub(crate) fn planned(&self, with_token: bool) -> Planned {
        let mut headers: BTreeMap<String, String> =
            self.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        if with_token {
            headers.insert("X-Auth-Token".into(), "***".into());
        }
        let body = self.body.as_ref().map(mask::masked);
        Planned { method: self.method.to_string(), url: self.url.to_string(), headers, body, sent: false }
    }
}

/// The client for all requests. `ca` is a PEM file with additional trusted certificates. `is_here`: the cloud is on
/// this machine.
pub(crate) fn client(ca: Option<&Path>, is_here: bool) -> Result<Client, Fault> {
    tls::install();
    let builder = || {
        let builder = Client::builder().user_agent("archproof").timeout(LIMIT).connect_timeout(CONNECT);
        // Do not follow redirects: the token must not go to another server.
        let builder = builder.redirect(reqwest::redirect::Policy::none());
        // A proxy would get the secrets of plain http requests, which must not leave this machine.
        if is_here { builder.no_proxy() } else { builder }
    };
    let built = match ca {
        // reqwest fails with "No CA certificates were loaded from the system". A cloud on this machine needs none.
        None => builder().build().or_else(|_| builder().tls_certs_only([]).build()),
        Some(file) => {
            let pem = std::fs::read(file)
                .map_err(|error| Fault::config(format!("failed to read the CA file {}: {error}", file.display())))?;
            let certificates = Certificate::from_pem_bundle(&pem)
                .map_err(|error| Fault::config(format!("{} contains no certificates: {error}", file.display())))?;
            builder().tls_certs_merge(certificates).build()
        }
    };
    built.map_err(|error| Fault::config(format!("failed to set up the HTTP client: {}", chain(error))))
}

/// A URL to which secrets may be sent: https, or plain http on this machine.
pub fn address(text: &str, what: &str) -> Result<Url, Fault> {
    let url = Url::parse(text).map_err(|error| Fault::config(format!("{what}: `{text}` is not a URL: {error}")))?;
    let host = url.host_str().unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_here = host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback());
    match url.scheme() {
        _ if !url.username().is_empty() || url.password().is_some() => {
            Err(Fault::config(format!("{what}: the URL contains a password; pass it in the environment or in a file")))
        }
        "https" => Ok(url),
        "http" if is_here => Ok(url),
        _ => Err(Fault::config(format!(
            "{what}: `{text}` is not https; plain http is readable in the network and only allowed for this machine"
        ))),
    }
}

/// `path` below `base`; `base` may end with a slash.
pub(crate) fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let folder = url.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("{folder}/{path}"));
    url
}

pub(crate) fn send(client: &Client, call: &Call, token: Option<&Secret>) -> Result<Answer, Lost> {
    let mut request: RequestBuilder =
        client.request(call.method.clone(), call.url.clone()).header("Accept", "application/json");
    for (name, value) in &call.headers {
        request = request.header(*name, value);
    }
    if let Some(token) = token {
        request = request.header("X-Auth-Token", token.expose());
    }
    if let Some(body) = &call.body {
        request = request.json(body);
    }
    let lost = |error: reqwest::Error| Lost { before: error.is_connect() || error.is_builder(), why: chain(error) };
    read(request.send().map_err(lost)?)
}

fn read(response: Response) -> Result<Answer, Lost> {
    use std::io::Read;
    let status = response.status();
    let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.trim().to_owned());
    let retry_after = header("retry-after").and_then(|text| text.parse().ok());
    let request_id = header("x-openstack-request-id").or_else(|| header("x-compute-request-id"));
    let token = header("x-subject-token").map(Secret::from);
    let mut bytes = Vec::new();
    let lost = |why: String| Lost { why, before: false };
    let ended = response.take(LARGEST + 1).read_to_end(&mut bytes);
    ended.map_err(|error| lost(format!("the answer broke off: {error}")))?;
    if bytes.len() as u64 > LARGEST {
        return Err(lost(format!("the answer is larger than {} MiB", LARGEST >> 20)));
    }
    Ok(Answer { status, retry_after, request_id, token, body: serde_json::from_slice(&bytes).unwrap_or_default() })
}

impl Answer {
    /// The error message of the server: each OpenStack service wraps `message` in another structure.
    pub(crate) fn said(&self) -> String {
        let wrapped = self.body.as_object().into_iter().flatten().find_map(|(_, inner)| inner.get("message"));
        let message = wrapped.or_else(|| self.body.get("message")).or_else(|| self.body.get("NeutronError"));
        let text = message.and_then(Value::as_str).unwrap_or_default();
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
    }
}

/// The complete chain of causes in one line, without the URL, which the message already contains.
fn chain(error: reqwest::Error) -> String {
    format!("{:#}", anyhow::Error::from(error.without_url()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_go_over_https_or_stay_on_this_machine() {
        for good in
            ["https://cloud.example.org:5000/v3", "http://127.0.0.1:5000/v3", "http://[::1]:1", "http://localhost"]
        {
            assert!(address(good, "x").is_ok(), "{good}");
        }
        for bad in [
            "http://cloud.example.org",
            "http://127.0.0.1.example.org",
            "http://localhost.example.org",
            "ftp://127.0.0.1",
            "file:///etc/passwd",
            "cloud",
            "",
            "https://user:planted@cloud.example.org",
        ] {
            let error = address(bad, "the identity endpoint").unwrap_err();
            assert!(error.text.contains("the identity endpoint") && !error.text.contains("planted"), "{error}");
        }
    }

    #[test]
    fn answer_above_the_limit_is_an_error_and_not_an_empty_answer() {
        let of_length = |length: u64| {
            let text = format!("7{}", " ".repeat(usize::try_from(length).unwrap() - 1));
            read(http::Response::new(text).into())
        };
        assert_eq!(of_length(LARGEST).unwrap().body, json!(7));
        let lost = of_length(LARGEST + 1).unwrap_err();
        assert!(!lost.before && lost.why == "the answer is larger than 32 MiB", "{}", lost.why);
    }

    #[test]
    fn error_messages_of_all_services_are_found() {
        let answer =
            |body| Answer { status: StatusCode::FORBIDDEN, retry_after: None, request_id: None, token: None, body };
        for (body, expected) in [
            (json!({"forbidden": {"code": 403, "message": "Quota exceeded"}}), "Quota exceeded"),
            (json!({"error": {"code": 401, "message": "No", "title": "Unauthorized"}}), "No"),
            (json!({"NeutronError": {"type": "X", "message": "m", "detail": ""}}), "m"),
            (json!({"message": "plain\nlines", "code": "404"}), "plain lines"),
            (json!([1]), ""),
            (Value::Null, ""),
        ] {
            assert_eq!(answer(body.clone()).said(), expected, "{body}");
        }
    }

    #[test]
    fn paths_are_joined_with_and_without_a_slash() {
        for base in ["https://h/compute/v2.1", "https://h/compute/v2.1/"] {
            assert_eq!(
                below(&Url::parse(base).unwrap(), "servers/detail").as_str(),
                "https://h/compute/v2.1/servers/detail"
            );
        }
    }
}
