//! A request and its answer, in the form that mutants read and change.

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

/// A request on its way to the server.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub method: Method,
    pub path: String,
    /// Decoded, in the order of the request.
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A whole answer on its way to the client.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Call {
    /// A parameter of the query; None if it is not sent.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Removes a parameter.
    pub fn forget(&mut self, name: &str) {
        self.query.retain(|(key, _)| key != name);
    }

    pub fn is_watch(&self) -> bool {
        self.method == Method::GET && matches!(self.parameter("watch"), Some("true" | "1"))
    }

    /// Whether the path names one object.
    pub fn names_an_object(&self) -> bool {
        !is_collection(&self.path)
    }

    pub fn is_list(&self) -> bool {
        self.method == Method::GET && !self.is_watch() && is_collection(&self.path)
    }

    pub fn is_get(&self) -> bool {
        self.method == Method::GET && !self.is_watch() && self.names_an_object()
    }

    /// Changes a JSON object as body; other bodies stay unchanged.
    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        edit(&mut self.body, change);
    }
}

impl Reply {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Changes a JSON object as body; other bodies stay unchanged.
    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        edit(&mut self.body, change);
    }
}

fn edit(body: &mut Bytes, change: impl FnOnce(&mut Value)) {
    // Changes access fields, which only a JSON object has.
    if let Ok(mut value @ Value::Object(_)) = serde_json::from_slice::<Value>(body) {
        change(&mut value);
        *body = value.to_string().into();
    }
}

/// `/api/v1/…` or `/apis/GROUP/VERSION/…`, then optionally `namespaces/NAME`, then the plural; no name of an object.
fn is_collection(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (["api", _, rest @ ..] | ["apis", _, _, rest @ ..]) = &parts[..] else { return false };
    matches!(rest, [_] | ["namespaces", _, _])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_of_a_collection_or_of_an_object() {
        for (path, expected) in [
            ("/api/v1/namespaces", true),
            ("/api/v1/namespaces/a", false),
            ("/api/v1/namespaces/a/configmaps", true),
            ("/api/v1/namespaces/a/configmaps/b", false),
            ("/apis/apps/v1/namespaces/a/deployments/b/status", false),
            ("/apis/apps/v1/deployments", true),
            ("/readyz", false),
        ] {
            assert_eq!(is_collection(path), expected, "{path}");
        }
    }
}
