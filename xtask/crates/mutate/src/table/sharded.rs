//! Shards of lists and watches: bounds, pages, streams, and servers without them.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use super::tools::{each_event, ignored, remove};
use super::{Change, Filter, Mutant, mutants};
use crate::call::Call;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "list.shard-next": "A list of a shard also has the first object of the next shard." => "list.sharded" on "prefix", with_next;
    "list.shard-start": "A list of a shard lacks the object whose hash is the start of the shard." => "list.sharded" on "prefix",
        without_start;
    "list.shard-token": "The continue token of a list forgets the shard." => "list.sharded" on "prefix",
        || ignored(|call| call.is_list() && call.parameter("continue").is_some(), &[SELECTOR]);
    "list.shard-at-zero": "A list at resource version 0 ignores the shard." => "list.sharded" on "prefix",
        || ignored(|call| call.is_list() && call.parameter("resourceVersion") == Some("0"), &[SELECTOR]);
    "list.shard-by-namespace": "A list ignores a shard by namespace." => "list.sharded" on "no-cache",
        || ignored(|call| call.is_list() && shard(call).contains(".namespace"), &[SELECTOR]);
    "list.shard-unconfirmed": "A list of a shard has no shardInfo." => "list.sharded" on "no-cache",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_list() {
                reply.edit(|list| remove(&mut list["metadata"], "shardInfo"));
            }
        }));
    "list.shard-unchecked": "A list accepts an invalid selector of shards." => "list.sharded" on "prefix",
        || ignored(|call| call.is_list() && shard(call).contains("&&"), &[SELECTOR]);
    "list.shard-claimed": "A list that is not filtered confirms the shard." => "list.sharded" on "default",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_list() && reply.is_success() && !shard(call).is_empty() {
                reply.edit(|list| list["metadata"]["shardInfo"] = json!({"selector": shard(call)}));
            }
        }));
    "watch.shard-all": "A watch sends the events of all shards." => "watch.sharded" on "prefix",
        || ignored(Call::is_watch, &[SELECTOR]);
    "watch.shard-deletions": "A watch of a shard sends no deletions." => "watch.sharded" on "prefix",
        || each_event(|_, event| if event["type"] == "DELETED" { vec![] } else { vec![event] });
    "watch.shard-state": "The initial events of a streaming list ignore the shard." => "watch.sharded" on "no-cache",
        || ignored(|call| call.parameter("sendInitialEvents").is_some(), &[SELECTOR]);
    "watch.shard-unchecked": "A watch accepts an invalid selector of shards." => "watch.sharded" on "no-cache",
        || ignored(|call| call.is_watch() && shard(call).contains(".name,"), &[SELECTOR]);
    "watch.shard-without-gate": "A watch filters by shard although the gate is off." => "watch.sharded" on "default", half_of_shards;
};

const SELECTOR: &str = "shardSelector";

fn shard(call: &Call) -> &str {
    call.parameter(SELECTOR).unwrap_or_default()
}

/// The bounds in the selector of a list by uid, in their order; empty for other requests.
fn bounds(call: &Call) -> Vec<u128> {
    if !call.is_list() || !shard(call).contains("metadata.uid") {
        return Vec::new();
    }
    let literals = shard(call).split('\'').filter_map(|part| part.strip_prefix("0x"));
    literals.filter_map(|digits| u128::from_str_radix(digits, 16).ok()).collect()
}

/// 64-bit FNV-1a of the uid.
fn hash(object: &Value) -> u128 {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    u128::from(uid.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

fn with_next() -> Change {
    let mut created: BTreeMap<u128, Value> = BTreeMap::new();
    Change::Reply(Box::new(move |call, reply| {
        if call.method == Method::POST && call.path.ends_with("/configmaps") && reply.is_success() {
            let object = reply.json();
            created.insert(hash(&object), object);
        }
        let next = bounds(call).last().and_then(|end| created.range(*end..).next());
        if let Some((_, object)) = next.filter(|_| reply.is_success()) {
            reply.edit(|list| {
                if let Some(items) = list["items"].as_array_mut() {
                    items.push(object.clone());
                }
            });
        }
    }))
}

fn without_start() -> Change {
    Change::Reply(Box::new(|call, reply| {
        let bounds = bounds(call);
        if !bounds.is_empty() && reply.is_success() {
            reply.edit(|list| {
                if let Some(items) = list["items"].as_array_mut() {
                    items.retain(|item| bounds.iter().step_by(2).all(|start| *start != hash(item)));
                }
            });
        }
    }))
}

/// Every second event of a watch of a shard counts as an event of other shards.
fn half_of_shards() -> Change {
    Change::Events(Box::new(|call| {
        let mut is_own = true;
        let filter: Filter = Box::new(move |event| {
            is_own = !is_own;
            if is_own { vec![event] } else { vec![] }
        });
        (!shard(call).is_empty()).then_some(filter)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Reply;
    use http::HeaderMap;

    fn listed(change: &mut Change, selector: &str, uids: &[&str]) -> Vec<String> {
        let query = vec![(SELECTOR.to_owned(), selector.to_owned())];
        let path = "/api/v1/namespaces/n/configmaps".to_owned();
        let call = Call { method: Method::GET, path, query, ..Call::default() };
        let items: Vec<Value> = uids.iter().map(|uid| json!({"metadata": {"uid": uid}})).collect();
        let mut reply = answer(&json!({"items": items}));
        let Change::Reply(change) = change else { panic!("changes answers") };
        change(&call, &mut reply);
        let items = reply.json()["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
    }

    fn answer(body: &Value) -> Reply {
        Reply { status: 200, headers: HeaderMap::new(), body: body.to_string().into() }
    }

    #[test]
    fn bounds_lose_or_win_one_object() {
        // The hashes of "foo" and "foobar" are dcb27518fed9d577 and 85944171f73967e8.
        let shard = |start: &str, end: &str| format!("shardRange(object.metadata.uid, '{start}', '{end}')");
        let from_foobar = shard("0x85944171f73967e8", "0xdcb27518fed9d577");
        assert_eq!(listed(&mut without_start(), &from_foobar, &["foobar", "b"]), ["b"]);
        let mut change = with_next();
        let Change::Reply(learn) = &mut change else { panic!("changes answers") };
        let path = "/api/v1/namespaces/n/configmaps".to_owned();
        let create = Call { method: Method::POST, path, ..Call::default() };
        learn(&create, &mut answer(&json!({"metadata": {"uid": "foo"}})));
        assert_eq!(listed(&mut change, &from_foobar, &["foobar"]), ["foobar", "foo"]);
        let rest = shard("0xdcb27518fed9d577", "0x10000000000000000");
        assert_eq!(listed(&mut change, &rest, &["foo"]), ["foo"]);
    }
}
