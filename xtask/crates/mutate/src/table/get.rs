//! GETs of one object.

use serde_json::json;

use super::tools::{remember_first, shift};
use super::{Change, Mutant, mutants};

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "get.stale": "A GET without resource version shows an old state." => "rv.get-unset-linearizable",
        || Change::Reply(remember_first(|call| call.is_get() && call.parameter("resourceVersion").is_none()));
    "get.older-than-asked": "A GET at a resource version shows an older state." => "rv.get-not-older",
        || Change::Reply(remember_first(|call| {
            call.is_get() && call.parameter("resourceVersion").is_some_and(|rv| rv != "0")
        }));
    "get.zero-invented": "A GET at resource version 0 shows a state that never existed." => "rv.get-zero-any",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_get() && call.parameter("resourceVersion") == Some("0") && reply.is_success() {
                reply.edit(|object| object["data"]["mutant"] = json!("was here"));
            }
        }));
    "get.rv-shifted": "Objects carry a resource version that is not their revision in the store." => "rv.equals-modrevision",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_get() && reply.is_success() {
                reply.edit(|object| shift(&mut object["metadata"]["resourceVersion"], 1));
            }
        }));
    "get.future-answered": "A GET at a resource version far in the future succeeds." => "rv.too-large-504",
        || Change::Request(Box::new(|call| if call.is_get() { call.forget("resourceVersion") }));
};
