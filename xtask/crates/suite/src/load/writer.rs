//! A writer: creates, updates and deletes keys that no other client changes, and records the result of each attempt.

use std::collections::BTreeMap;
use std::time::Duration;

use judge::fault::{Read, Write, WriteResult};
use model::Resource;
use model::history::Change;
use serde_json::json;

use super::clients::Clients;
use super::{Log, RETRY_PAUSE, SharedState, objects, with_id};
use crate::api::Response;
use crate::api::overload::{self, AcceptOverload};
use crate::error::CheckError;
use crate::object::Object;
use crate::record::key;
use crate::wait;

/// The number of names of one writer.
const NAMES: u32 = 4;

/// A writer's knowledge about one of its keys.
#[derive(Clone)]
enum KeyState {
    Absent,
    Present(Object),
    /// A write had no answer, or was refused: only a read shows the state.
    Unknown,
}

/// Writes until the workload ends.
pub(super) async fn write(
    mut clients: Clients,
    shared: &SharedState,
    resource: &'static Resource,
    (number, pace): (usize, Duration),
) -> Result<Log, CheckError> {
    let mut log = Log::default();
    let mut known: BTreeMap<String, KeyState> = BTreeMap::new();
    for step in 0u64.. {
        if shared.ended() {
            break;
        }
        let mut name = format!("w{number}-k{}", clients.ctx().random().u32(..NAMES));
        let mut before = known.get(&name).cloned().unwrap_or(KeyState::Absent);
        let chance = clients.ctx().random().u8(..5) == 0;
        let needs_writes = shared.needs_writes();
        if needs_writes && matches!(before, KeyState::Unknown) {
            // No read may look for the state of this key now. A new key needs no read.
            (name, before) = (format!("w{number}-s{step}"), KeyState::Absent);
        }
        let reads = !needs_writes && (matches!(before, KeyState::Unknown) || chance);
        let read = if reads { read(&clients, resource, &name, &mut log).await } else { KeyState::Unknown };
        // A read without an answer is followed by a write to the same server. Otherwise, with four writers and two
        // servers, both writers of a killed server could read at that moment and then move on, and no write would meet
        // the fault (seen in an emulated guest).
        let state = if matches!(read, KeyState::Unknown) { before } else { read };
        let attempt = Attempt { clients: &clients, resource, name: &name, id: format!("{number}-{step}") };
        let after = match state {
            KeyState::Unknown => KeyState::Unknown,
            state => attempt.make(state, shared, &mut log).await,
        };
        if shared.may_change_server() && (needs_writes || matches!(after, KeyState::Unknown)) {
            clients.next_server();
        }
        if matches!(after, KeyState::Unknown) {
            wait::pause(clients.ctx().scaled_pause(RETRY_PAUSE)).await;
        }
        known.insert(name, after);
        wait::pause(pace).await;
    }
    Ok(log)
}

/// The state of a key according to a consistent read.
async fn read(clients: &Clients, resource: &Resource, name: &str, log: &mut Log) -> KeyState {
    let ctx = clients.ctx();
    let Ok(key_text) = ctx.store.key(resource, name).await else { return KeyState::Unknown };
    let called = ctx.store.recorder(resource).now();
    let Ok(answer) = ctx.api.try_get(resource, name, "").await else { return KeyState::Unknown };
    let (rv, state) = match (answer.status, answer.object()) {
        (200, Ok(object)) => (Some(object.rv()), KeyState::Present(object)),
        (404, _) => (None, KeyState::Absent),
        _ => return KeyState::Unknown,
    };
    log.reads.push(Read { client: ctx.client.to_string(), key: key(&key_text), called, rv });
    state
}

/// One change of one key.
struct Attempt<'a> {
    clients: &'a Clients,
    resource: &'static Resource,
    name: &'a str,
    id: String,
}

impl Attempt<'_> {
    /// Creates an absent object; updates, and sometimes deletes, an existing one.
    async fn make(self, state: KeyState, shared: &SharedState, log: &mut Log) -> KeyState {
        let ctx = self.clients.ctx();
        let Ok(key_text) = ctx.store.key(self.resource, self.name).await else { return KeyState::Unknown };
        let recorder = ctx.store.recorder(self.resource);
        let called = recorder.now();
        let under_way = shared.write();
        let (kind, based_on, answer) = match state {
            KeyState::Present(object) if ctx.random().u8(..4) == 0 => {
                let options = json!({"preconditions": {"resourceVersion": object.rv_text()}});
                (Change::Delete, object.rv(), ctx.api.try_delete(self.resource, self.name, &options).await)
            }
            KeyState::Present(object) => {
                let rv = object.rv();
                let changed = with_id(object, self.resource, &self.id);
                (Change::Put, rv, ctx.api.try_change(self.resource, &changed).await)
            }
            KeyState::Absent | KeyState::Unknown => {
                let namespace = ctx.api.namespace().await.unwrap_or_default();
                let made = sample(namespace, self.resource, self.name, &self.id);
                (Change::Put, 0, ctx.api.try_create(self.resource, &made).await)
            }
        };
        drop(under_way);
        // Only the status tells whether the write may have had an effect.
        let answer = answer.accept(overload::ANY);
        let result = result(kind, &answer);
        shared.note(&self.resource.plural, result);
        log.writes.push(Write {
            client: ctx.client.to_string(),
            id: self.id,
            key: key(&key_text),
            kind,
            based_on,
            called,
            returned: recorder.now(),
            result,
        });
        match (result, kind, answer.map(|answer| answer.object())) {
            (WriteResult::Done(_), Change::Delete, _) => KeyState::Absent,
            (WriteResult::Done(_), Change::Put, Ok(Ok(object))) => KeyState::Present(object),
            _ => KeyState::Unknown,
        }
    }
}

/// The effect of a write according to its answer: a client error (4xx) has none; after a server error it is unknown.
fn result(kind: Change, answer: &anyhow::Result<Response>) -> WriteResult {
    match answer {
        Ok(answer) if answer.is_success() && kind == Change::Delete => WriteResult::Done(0),
        Ok(answer) if answer.is_success() => WriteResult::Done(answer.object().map_or(0, |object| object.rv())),
        Ok(answer) if (400..500).contains(&answer.status) => WriteResult::Refused,
        _ => WriteResult::Unknown,
    }
}

/// An object of one of the workload's collections, with the id of the put that creates it.
pub fn sample(namespace: &str, resource: &Resource, name: &str, id: &str) -> Object {
    let object = Object::new(resource, name);
    let object = match resource.plural.as_str() {
        "events" => object.with("involvedObject", json!({"namespace": namespace})),
        other => objects::with_required_fields(object, other),
    };
    with_id(object, resource, id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    #[test]
    fn only_client_errors_are_certain_to_have_no_effect() {
        let answer =
            |status, body: &str| Ok(Response { status, headers: HeaderMap::new(), body: body.to_owned().into() });
        let object = r#"{"metadata":{"resourceVersion":"7"}}"#;
        for (kind, answer, expected) in [
            (Change::Put, answer(201, object), WriteResult::Done(7)),
            (Change::Put, answer(200, object), WriteResult::Done(7)),
            (Change::Delete, answer(200, "{}"), WriteResult::Done(0)),
            (Change::Put, answer(409, "{}"), WriteResult::Refused),
            (Change::Put, answer(500, "{}"), WriteResult::Unknown),
            (Change::Delete, answer(504, "{}"), WriteResult::Unknown),
            (Change::Put, Err(anyhow::anyhow!("cut")), WriteResult::Unknown),
        ] {
            assert_eq!(result(kind, &answer), expected);
        }
    }
}
