//! A writer: creates, updates and deletes keys that no other client changes, and records the result of each attempt.

use std::collections::BTreeMap;
use std::time::Duration;

use judge::fault::{Fate, Read, Write};
use model::Resource;
use model::history::Change;
use serde_json::json;

use super::clients::Clients;
use super::{Board, Log, PATIENCE, with_id};
use crate::api::Response;
use crate::check::Stop;
use crate::object::Object;
use crate::overload::{self, AcceptOverload};
use crate::record::key;
use crate::wait;

/// The number of names of one writer.
const NAMES: u32 = 4;
/// The pause between two steps, so that a native server does not get thousands of writes.
const PACE: Duration = Duration::from_millis(10);

/// A writer's knowledge about one of its keys.
#[derive(Clone)]
enum Known {
    Absent,
    There(Object),
    /// A write had no answer, or was refused: only a read shows the state.
    Nothing,
}

/// Writes until the workload ends.
pub(super) async fn write(
    mut clients: Clients,
    board: &Board,
    resource: &'static Resource,
    number: usize,
) -> Result<Log, Stop> {
    let mut log = Log::default();
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    for step in 0u64.. {
        if board.ended() {
            break;
        }
        let mut name = format!("w{number}-k{}", clients.ctx().random().u32(..NAMES));
        let mut before = known.get(&name).cloned().unwrap_or(Known::Absent);
        let chance = clients.ctx().random().u8(..5) == 0;
        let needs_writes = board.needs_writes();
        if needs_writes && matches!(before, Known::Nothing) {
            // No read may look for the state of this key now. A new key needs no read.
            (name, before) = (format!("w{number}-s{step}"), Known::Absent);
        }
        let reads = !needs_writes && (matches!(before, Known::Nothing) || chance);
        let read = if reads { read(&clients, resource, &name, &mut log).await } else { Known::Nothing };
        // A read without an answer is followed by a write to the same server. Otherwise, with four writers and two
        // servers, both writers of a killed server could read at that moment and then move on, and no write would meet
        // the fault (seen in an emulated guest).
        let state = if matches!(read, Known::Nothing) { before } else { read };
        let attempt = Attempt { clients: &clients, resource, name: &name, id: format!("{number}-{step}") };
        let after = match state {
            Known::Nothing => Known::Nothing,
            state => attempt.make(state, board, &mut log).await,
        };
        if board.may_move() && (needs_writes || matches!(after, Known::Nothing)) {
            clients.next_server();
        }
        if matches!(after, Known::Nothing) {
            wait::pause(clients.ctx().at_ease(PATIENCE)).await;
        }
        known.insert(name, after);
        wait::pause(PACE).await;
    }
    Ok(log)
}

/// The state of a key according to a consistent read.
async fn read(clients: &Clients, resource: &Resource, name: &str, log: &mut Log) -> Known {
    let ctx = clients.ctx();
    let Ok(key_text) = ctx.key(resource, name).await else { return Known::Nothing };
    let called = ctx.recorder(resource).now();
    let Ok(answer) = ctx.try_get(resource, name, "").await else { return Known::Nothing };
    let (rv, state) = match (answer.status, answer.object()) {
        (200, Ok(object)) => (Some(object.rv()), Known::There(object)),
        (404, _) => (None, Known::Absent),
        _ => return Known::Nothing,
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
    async fn make(self, state: Known, board: &Board, log: &mut Log) -> Known {
        let ctx = self.clients.ctx();
        let Ok(key_text) = ctx.key(self.resource, self.name).await else { return Known::Nothing };
        let recorder = ctx.recorder(self.resource);
        let called = recorder.now();
        let under_way = board.write();
        let (kind, based_on, answer) = match state {
            Known::There(object) if ctx.random().u8(..4) == 0 => {
                let options = json!({"preconditions": {"resourceVersion": object.rv_text()}});
                (Change::Delete, object.rv(), ctx.try_delete(self.resource, self.name, &options).await)
            }
            Known::There(object) => {
                let rv = object.rv();
                let changed = with_id(object, self.resource, &self.id);
                (Change::Put, rv, ctx.try_change(self.resource, &changed).await)
            }
            Known::Absent | Known::Nothing => {
                let namespace = ctx.namespace().await.unwrap_or_default();
                let made = sample(namespace, self.resource, self.name, &self.id);
                (Change::Put, 0, ctx.try_create(self.resource, &made).await)
            }
        };
        drop(under_way);
        // Only the status tells whether the write may have had an effect.
        let answer = answer.accept(overload::ANY);
        let fate = fate(kind, &answer);
        board.note(&self.resource.plural, fate);
        log.writes.push(Write {
            client: ctx.client.to_string(),
            id: self.id,
            key: key(&key_text),
            kind,
            based_on,
            called,
            returned: recorder.now(),
            fate,
        });
        match (fate, kind, answer.map(|answer| answer.object())) {
            (Fate::Done(_), Change::Delete, _) => Known::Absent,
            (Fate::Done(_), Change::Put, Ok(Ok(object))) => Known::There(object),
            _ => Known::Nothing,
        }
    }
}

/// The effect of a write according to its answer: a client error (4xx) has none; after a server error it is unknown.
fn fate(kind: Change, answer: &anyhow::Result<Response>) -> Fate {
    match answer {
        Ok(answer) if answer.is_success() && kind == Change::Delete => Fate::Done(0),
        Ok(answer) if answer.is_success() => Fate::Done(answer.object().map_or(0, |object| object.rv())),
        Ok(answer) if (400..500).contains(&answer.status) => Fate::Refused,
        _ => Fate::Unknown,
    }
}

/// An object of one of the workload's collections, with the id of the put that creates it.
pub fn sample(namespace: &str, resource: &Resource, name: &str, id: &str) -> Object {
    let object = Object::new(resource, name);
    let object = match resource.plural.as_str() {
        "events" => object.with("involvedObject", json!({"namespace": namespace})),
        _ => object,
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
            (Change::Put, answer(201, object), Fate::Done(7)),
            (Change::Put, answer(200, object), Fate::Done(7)),
            (Change::Delete, answer(200, "{}"), Fate::Done(0)),
            (Change::Put, answer(409, "{}"), Fate::Refused),
            (Change::Put, answer(500, "{}"), Fate::Unknown),
            (Change::Delete, answer(504, "{}"), Fate::Unknown),
            (Change::Put, Err(anyhow::anyhow!("cut")), Fate::Unknown),
        ] {
            assert_eq!(fate(kind, &answer), expected);
        }
    }
}
