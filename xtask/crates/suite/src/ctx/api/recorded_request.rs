//! Sends one request and records it with its answer; retries if the server asks for that.

use std::sync::Arc;
use std::time::Instant;

use judge::object_digest::{self, TypeMeta};
use model::Resource;
use model::history::{Answer, Key, Operation, Through, Verb};

use super::CaseApi;
use crate::api::{Request, Response, overload};
use crate::object::Object;
use crate::record::{Recorder, key};
use crate::sightings::Shown;

impl CaseApi {
    /// Sends a request and records every attempt with its answer, including answers that ask the client to retry.
    ///
    /// The name is empty for a collection. `changes`: see [`Operation::changes`].
    pub(super) async fn send_recorded(
        &self,
        verb: Verb,
        resource: &Resource,
        (namespace, name): (&str, &str),
        request: Request,
        changes: bool,
    ) -> anyhow::Result<Response> {
        let client = self.client()?;
        let etcd_prefix = &self.0.profile().prefix;
        let recorder = self.0.recorder(resource);
        let mut retry_budget = self.retry_budget();
        if self.0.external().is_some() && matches!(verb, Verb::Create | Verb::Update | Verb::Patch) {
            // Before the store reports the write: the recorder omits the values of objects that the run did not write.
            recorder.written(&resource.key(etcd_prefix, namespace, name));
        }
        loop {
            let called = recorder.now();
            let result = client.exchange(&request).await;
            let returned = recorder.now();
            let answer = match &result {
                Ok(response) => answer(response, verb, resource, etcd_prefix),
                Err(error) => Answer::Lost { error: format!("{error:#}") },
            };
            let operation = Operation {
                client: Arc::clone(&self.0.client),
                verb,
                prefix: key(&resource.key_prefix(etcd_prefix, Some(namespace))),
                key: (!name.is_empty()).then(|| key(&resource.key(etcd_prefix, namespace, name))),
                query: request.query.clone(),
                based_on: if verb == Verb::Update { based_on(&request.body) } else { None },
                changes,
                called,
                returned,
                answer,
            };
            if let Ok(response) = &result
                && client.records_objects()
            {
                record_shown(recorder, resource, &operation, response);
            }
            recorder.operation(operation);
            self.0.count("operations", 1);
            match &result {
                Ok(response) if retry_budget.waits_for_retry(response).await => self.0.count("repeated requests", 1),
                Ok(response) => {
                    self.skip_if_forbidden(response)?;
                    return overload::refuse_late(&request, recorder.newest_revision(), result?);
                }
                Err(_) => return result,
            }
        }
    }

    pub(super) fn retry_budget(&self) -> RetryBudget {
        RetryBudget { end: Instant::now() + self.0.answer_limit() }
    }
}

/// The time for which a client repeats a request if the server asks for that.
pub(super) struct RetryBudget {
    end: Instant,
}

impl RetryBudget {
    /// Waits as long as the answer asks for. Returns false if the answer asks for no retry, or the time is over.
    pub(super) async fn waits_for_retry(&mut self, response: &Response) -> bool {
        let Some(pause) = response.retry_after().filter(|pause| Instant::now() + *pause < self.end) else {
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

/// Records the objects in an answer. Those of a dry run exist nowhere else.
fn record_shown(recorder: &Recorder, resource: &Resource, operation: &Operation, response: &Response) {
    if operation.query.contains("dryRun") {
        return;
    }
    let api_version = resource.api_version();
    let of = TypeMeta { api_version: &api_version, kind: &resource.kind };
    let body = &response.body;
    let shown: Vec<Shown<'_>> = match (&operation.answer, &operation.key) {
        (Answer::List { items, .. }, _) => {
            let parts = object_digest::of_items(body, of).unwrap_or_default();
            let items = items.iter().zip(parts);
            items
                .map(|((key, rv), part)| Shown { key, rv: *rv, digest: part.digest, object: &body[part.range] })
                .collect()
        }
        (Answer::Object { rv: rv @ 1.., .. }, Some(key)) => {
            let digest = object_digest::of_object(body);
            digest.map(|digest| Shown { key, rv: *rv, digest, object: body }).into_iter().collect()
        }
        _ => Vec::new(),
    };
    let through = match operation.verb {
        Verb::Get | Verb::List => Through::Read,
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => Through::Write,
    };
    let first = || {
        let Operation { verb, prefix, key, query, client, .. } = operation;
        let question = if query.is_empty() { "" } else { "?" };
        format!("{verb:?} {}{question}{query} by {client}", key.as_ref().unwrap_or(prefix))
    };
    recorder.shown((through, &api_version), &shown, &first);
}

/// The resource version in a JSON object; None for other media types.
fn based_on(body: &[u8]) -> Option<u64> {
    let object = Object(serde_json::from_slice(body).ok()?);
    Some(object.rv()).filter(|rv| *rv > 0)
}
