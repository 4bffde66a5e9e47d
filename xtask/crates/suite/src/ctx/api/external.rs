//! External clusters: labels that identify the run's objects, missing rights, and transports.

use model::{External, Resource};
use serde_json::json;

use super::CaseApi;
use crate::api::{Response, Transport};
use crate::error::Forbidden;
use crate::object::Object;

impl CaseApi {
    /// HTTP/2, or HTTP/1.1 if the endpoint of an external cluster speaks only HTTP/1.1.
    pub fn transport(&self) -> Transport {
        match self.0.external() {
            Some(external) if external.http1_only => Transport::Http1,
            _ => Transport::Http2,
        }
    }

    /// The transports that the endpoint speaks.
    pub fn transports(&self) -> &'static [Transport] {
        match self.transport() {
            Transport::Http1 => &[Transport::Http1],
            Transport::Http2 => &[Transport::Http1, Transport::Http2],
        }
    }

    /// The object with the label of the run if it is cluster-scoped, so that another command can remove it if this one
    /// is killed.
    pub(super) fn labelled(&self, resource: &Resource, object: &Object) -> Object {
        let mut object = object.clone();
        if let Some(external) = self.0.external().filter(|_| !resource.namespaced) {
            if !object.0["metadata"]["labels"].is_object() {
                object.0["metadata"]["labels"] = json!({});
            }
            object.0["metadata"]["labels"][External::LABEL] = json!(external.run_label);
        }
        object
    }

    /// Skips the check if the user of an external cluster lacks a right, which says nothing about the server.
    pub(super) fn skip_if_forbidden(&self, answer: &Response) -> anyhow::Result<()> {
        match forbidden(answer).filter(|_| self.0.external().is_some()) {
            Some(need) => Err(Forbidden { need }.into()),
            None => Ok(()),
        }
    }
}

/// The right that an authorizer found missing. Admission refuses with the same status but with another text.
fn forbidden(answer: &Response) -> Option<String> {
    if answer.status != 403 {
        return None;
    }
    // `configmaps is forbidden: User "x" cannot create resource "configmaps" in API group "" in the namespace "y"`, or
    // `forbidden: User "x" cannot get path "/metrics"`.
    let message = answer.message();
    let (_, asked) = message.split_once("forbidden: User ")?.1.split_once(" cannot ")?;
    let asked = asked.split(" in the namespace ").next().unwrap_or(asked).split(": ").next().unwrap_or(asked);
    Some(format!("the right to {}", asked.trim_end_matches(" at the cluster scope")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn missing_right_is_distinguished_from_refusal_by_admission() {
        for (status, message, need) in [
            (
                403,
                "configmaps is forbidden: User \"x\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"y\"",
                Some("the right to create resource \"configmaps\" in API group \"\""),
            ),
            (
                403,
                "nodes is forbidden: User \"x\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: RBAC: role not found",
                Some("the right to list resource \"nodes\" in API group \"\""),
            ),
            (403, "forbidden: User \"x\" cannot get path \"/metrics\"", Some("the right to get path \"/metrics\"")),
            (403, "configmaps \"a\" is forbidden: unable to create new content in namespace y", None),
            (404, "forbidden: User \"x\" cannot get path \"/metrics\"", None),
        ] {
            let body = Bytes::from(json!({"kind": "Status", "message": message}).to_string());
            let answer = Response { status, headers: http::HeaderMap::new(), body };
            assert_eq!(forbidden(&answer).as_deref(), need, "{message}");
        }
    }
}
