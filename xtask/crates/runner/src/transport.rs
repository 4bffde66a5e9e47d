//! The connection to a server: allowed addresses, reading an answer, and connection errors.

use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;
use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::redirect::Policy;
use sys::progress;

use crate::call::Answer;
use crate::error::Error;

/// Time limit of one request with its answer.
const LIMIT: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(15);
/// Largest answer that is read.
const ANSWER_BYTES: u64 = 16 << 20;

/// Why there is no answer.
pub(crate) enum TransportError {
    Interrupted,
    Connection {
        why: String,
        /// The server may have received the request.
        begun: bool,
    },
}

pub(crate) fn answer(request: RequestBuilder) -> Result<Answer, TransportError> {
    let response = request.send().map_err(|error| TransportError::Connection {
        why: reason(&error),
        // A header that cannot be sent is a token with an invalid character. The error text does not show the token.
        begun: !error.is_connect() && !error.is_builder(),
    })?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = text(response)?;
    Ok(Answer { status, headers, body })
}

fn text(response: Response) -> Result<String, TransportError> {
    let mut bytes = Vec::new();
    let lost = |why: String| TransportError::Connection { why, begun: true };
    response.take(ANSWER_BYTES + 1).read_to_end(&mut bytes).map_err(|error| lost(error.to_string()))?;
    if bytes.len() as u64 > ANSWER_BYTES {
        return Err(lost(format!("the answer is larger than {ANSWER_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| lost("the answer is not UTF-8 text".into()))
}

/// reqwest has the root cause at the end of the chain.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {}", progress::elapsed(LIMIT));
    }
    anyhow::Chain::new(error).last().map_or_else(String::new, |cause| crate::plain(&cause.to_string()))
}

pub(crate) fn client(base: &Url) -> Result<Client, Error> {
    tls::install();
    // Do not follow redirects: the token must only go to the configured server.
    let builder = || {
        let builder = Client::builder().user_agent("archproof").redirect(Policy::none());
        builder.timeout(LIMIT).connect_timeout(CONNECT)
    };
    let here = base.scheme() == "http";
    // Connections to this machine never use a proxy.
    let built = if here { builder().no_proxy().tls_certs_only([]).build() } else { builder().build() };
    built.map_err(|error| {
        let why = reason(&error);
        Error::Config(format!("no HTTPS on this machine: {why}; are its CA certificates installed (ca-certificates)?"))
    })
}

/// Parses the address of an API. A token must not cross a network in plain text.
pub(crate) fn endpoint(text: &str) -> Result<Url, Error> {
    let wrong = |why: &str| Error::Config(format!("the API's address `{}` {why}", crate::plain(text)));
    let url = Url::parse(&format!("{}/", text.trim().trim_end_matches('/'))).map_err(|_| wrong("is not a URL"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::Config("the API's address contains a password; pass the token in another way".into()));
    }
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_here => Ok(url),
        _ => Err(wrong("is not https; plain http is only allowed for this machine")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_never_crosses_a_network_in_plain_text() {
        for good in ["https://api.github.com", "http://127.0.0.1:4010/x/", "http://[::1]:1", "http://localhost:1"] {
            assert!(endpoint(good).unwrap().as_str().ends_with('/'), "{good}");
        }
        for bad in [
            "http://api.github.com",
            "http://127.0.0.1.example.org",
            "http://127.0.0.1@example.org",
            "https://me:geheim@example.org",
            "ftp://127.0.0.1",
            "http://10.0.0.1",
            "x",
            "",
        ] {
            let error = endpoint(bad).unwrap_err();
            assert_eq!(error.code(), 2, "{bad}");
            assert!(!error.to_string().contains("geheim"), "{error}");
        }
    }
}
