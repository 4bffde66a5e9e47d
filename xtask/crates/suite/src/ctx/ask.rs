//! Sends one request and records it with its answer; retries if the server asks for that.

use std::sync::Arc;
use std::time::Instant;

use model::Resource;
use model::history::{Answer, Key, Operation, Verb};

use super::{Ctx, Question};
use crate::api::{Api, Response};
use crate::object::Object;
use crate::overload;
use crate::record::key;

impl Ctx {
    /// Sends a request and records every attempt with its answer, including answers that ask the client to retry.
    pub(super) async fn ask(&self, question: Question<'_>) -> anyhow::Result<Response> {
        self.ask_over(self.api()?, question).await
    }

    pub(super) async fn ask_over(&self, api: &Api, question: Question<'_>) -> anyhow::Result<Response> {
        let Question { verb, resource, namespace, name, request, changes } = question;
        let etcd_prefix = &self.profile().prefix;
        let recorder = self.recorder(resource);
        let mut patience = self.patience();
        if self.shared().is_some() && matches!(verb, Verb::Create | Verb::Update | Verb::Patch) {
            // Before the store reports the write: the recorder omits the values of objects that the run did not write.
            recorder.written(&resource.key(etcd_prefix, namespace, name));
        }
        loop {
            let called = recorder.now();
            let result = api.exchange(&request).await;
            let returned = recorder.now();
            let answer = match &result {
                Ok(response) => answer(response, verb, resource, etcd_prefix),
                Err(error) => Answer::Lost { error: format!("{error:#}") },
            };
            recorder.operation(Operation {
                client: Arc::clone(&self.client),
                verb,
                prefix: key(&resource.key_prefix(etcd_prefix, Some(namespace))),
                key: (!name.is_empty()).then(|| key(&resource.key(etcd_prefix, namespace, name))),
                query: request.query.clone(),
                based_on: if verb == Verb::Update { based_on(&request.body) } else { None },
                changes,
                called,
                returned,
                answer,
            });
            self.count("operations", 1);
            match &result {
                Ok(response) if patience.has(response).await => self.count("repeated requests", 1),
                Ok(response) => {
                    self.must_be_allowed(response)?;
                    return overload::refuse(&request, result?);
                }
                Err(_) => return result,
            }
        }
    }

    pub(super) fn patience(&self) -> Patience {
        Patience { end: Instant::now() + self.limit(30.0) }
    }
}

/// The time for which a client repeats a request if the server asks for that.
pub(super) struct Patience {
    end: Instant,
}

impl Patience {
    /// Waits as long as the answer asks for. Returns false if the answer asks for no retry, or the time is over.
    pub(super) async fn has(&mut self, response: &Response) -> bool {
        let Some(pause) = response.asks_for_patience().filter(|pause| Instant::now() + *pause < self.end) else {
            return false;
        };
        crate::wait::pause(pause).await;
        true
    }
}

fn answer(response: &Response, verb: Verb, resource: &Resource, etcd_prefix: &str) -> Answer {
    let status = response.status;
    let body = Object(response.json());
    if !response.is_success() {
        return Answer::Refused { status, reason: response.reason() };
    }
    if verb != Verb::List {
        return Answer::Object { status, rv: body.rv() };
    }
    let items = body.0["items"].as_array().into_iter().flatten().map(|item| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default();
        let at: Key = key(&resource.key(etcd_prefix, text("namespace"), text("name")));
        (at, text("resourceVersion").parse().unwrap_or(0))
    });
    Answer::List { status, rv: body.rv(), items: items.collect(), more: !body.meta("continue").is_empty() }
}

/// The resource version in a JSON object; None for other media types.
fn based_on(body: &[u8]) -> Option<u64> {
    let object = Object(serde_json::from_slice(body).ok()?);
    Some(object.rv()).filter(|rv| *rv > 0)
}
