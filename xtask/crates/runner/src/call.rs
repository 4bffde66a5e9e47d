//! One request and its answer, as plain data.

use reqwest::Method;
use reqwest::header::HeaderMap;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

use crate::error::{Error, Refused};
use crate::limits::{Limits, Repeat};
use crate::plain;

/// A request. Neither path nor query ever contains a secret.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// The parts of the path, not encoded.
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Option<Value>,
    /// The permission that the call needs, for people.
    pub(crate) needs: &'static str,
}

/// An answer of any status.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Call {
    pub(crate) fn new(method: Method, base: Vec<String>, path: &[&str], needs: &'static str) -> Call {
        let path = base.into_iter().chain(path.iter().map(|part| (*part).to_owned())).collect();
        Call { method, path, query: Vec::new(), body: None, needs }
    }

    pub(crate) fn with(mut self, body: Value) -> Call {
        self.body = Some(body);
        self
    }

    pub(crate) fn asking(mut self, name: &'static str, value: impl ToString) -> Call {
        self.query.push((name, value.to_string()));
        self
    }

    pub(crate) fn changes(&self) -> bool {
        self.method != Method::GET
    }

    pub(crate) fn repeat(&self) -> Repeat {
        if self.method == Method::POST || self.method == Method::PATCH { Repeat::NotBegun } else { Repeat::Harmless }
    }

    pub(crate) fn remote(&self, why: impl Into<String>, may_be_done: bool) -> Error {
        Error::Remote { call: self.to_string(), why: why.into(), may_be_done }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} /{}", self.method, self.path.join("/"))
    }
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The answer if it is a success.
    pub(crate) fn success(self, call: &Call) -> Result<Answer, Error> {
        if self.is_success() { Ok(self) } else { Err(Error::from(Box::new(self.refused(call)))) }
    }

    /// The parsed body of a success. If the body cannot be read, the server may still have done what was requested.
    pub(crate) fn json<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        serde_json::from_str(&self.body).map_err(|error| {
            let text = error.to_string();
            // Other messages of the parser quote values, which may be secrets.
            let what = if text.starts_with("missing field") { text } else { unreadable(&error) };
            call.remote(format!("the answer does not match the documentation: {what}"), call.changes())
        })
    }

    fn refused(&self, call: &Call) -> Refused {
        let header = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok()).map(plain);
        Refused {
            call: call.to_string(),
            status: self.status,
            message: message(&self.body),
            request_id: header("x-github-request-id").or_else(|| header("x-request-id")),
            accepted: header("x-accepted-github-permissions"),
            needs: call.needs,
            limit: Limits::of(&self.headers, &self.body).is_limit(self.status),
        }
    }
}

/// The server's error message: `message` and `errors` of GitHub, `message` or `error` of GitLab. Each is a string or a
/// structure that contains strings.
fn message(body: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(body) else {
        return if body.trim().is_empty() { "no message".into() } else { plain(body) };
    };
    let said = ["message", "error_description", "error"].iter().find_map(|key| value.get(key)).map(words);
    let more = value.get("errors").map(words).map(|errors| format!(" ({errors})")).unwrap_or_default();
    plain(&format!("{}{more}", said.unwrap_or_else(|| "no message".into())))
}

fn unreadable(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Io | Category::Eof => "it is truncated",
        Category::Syntax => "it is not JSON",
        Category::Data => "a value has another type",
    };
    format!("{what}, at line {} column {}", error.line(), error.column())
}

fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_are_found_in_every_format() {
        for (body, expected) in [
            (r#"{"message": "Not Found", "documentation_url": "x"}"#, "Not Found"),
            (r#"{"message": "Invalid", "errors": [{"field": "labels"}]}"#, r#"Invalid ([{"field":"labels"}])"#),
            (r#"{"message": {"base": ["no"]}}"#, r#"{"base":["no"]}"#),
            (r#"{"error": "insufficient_scope", "error_description": "needs more"}"#, "needs more"),
            ("", "no message"),
            ("[]", "no message"),
            ("<html>\n502\u{1b}[2J</html>", "<html> 502 [2J</html>"),
        ] {
            assert_eq!(message(body), expected, "{body}");
        }
    }

    #[test]
    fn only_creating_calls_are_not_repeated() {
        for (method, expected) in [
            (Method::GET, Repeat::Harmless),
            (Method::PUT, Repeat::Harmless),
            (Method::DELETE, Repeat::Harmless),
            (Method::POST, Repeat::NotBegun),
            (Method::PATCH, Repeat::NotBegun),
        ] {
            assert_eq!(Call::new(method, Vec::new(), &["x"], "").repeat(), expected);
        }
    }
}
