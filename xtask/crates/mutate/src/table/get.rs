//! GETs of one object.

use serde_json::json;

use super::tools::{ignored, remember_first, version_shifted};
use super::{Change, Mutant, mutants};
use crate::call::Call;

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
        || version_shifted(Call::is_get, 1);
    "get.future-answered": "A GET at a resource version far in the future succeeds." => "rv.too-large-504",
        || ignored(Call::is_get, &["resourceVersion"]);
};
