//! Servers that hide or misreport a lost connection to the store, and stores that lose events or conditions after one.

use std::collections::BTreeSet;

use http::Method;
use serde_json::json;

use super::fault::is_write_of_workload;
use super::tools::{added, rehearsed};
use super::{Change, Means, Mutant, mutants};
use crate::call::{Call, Reply};
use crate::store::StoreChange;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "fault.link-write-invented": "The server acknowledges a write that did not reach the store." => "fault.store-cut" on "reflagged",
        || Change::Reply(Box::new(|call, reply| if failed_write(call, reply) {
            reply.status = 200;
            reply.body = call.body.clone();
            reply.edit(|object| object["metadata"]["resourceVersion"] = json!("1"));
        }));
    "fault.link-always-ready": "The server reports ready while its connections to the store are cut." => "fault.store-cut" on "reflagged",
        || Change::Reply(Box::new(|call, reply| if call.path == "/readyz" { reply.status = 200 }));
    "fault.link-done-refused": "The server reports a conflict for a write whose answer from the store was lost." => "fault.store-half" on "reflagged",
        || Change::Reply(Box::new(|call, reply| if failed_write(call, reply) {
            reply.status = 409;
            reply.edit(|status| {
                status["code"] = json!(409);
                status["reason"] = json!("Conflict");
            });
        }));
    "fault.link-read-from-cache": "The server answers a read without a resource version from the cache." => "fault.store-delay" on "reflagged",
        || added(|call| call.is_get() && call.parameter("resourceVersion").is_none(), "resourceVersion", "0");
    "fault.disk-write-not-awaited": "The server acknowledges a create before it is stored." => "fault.etcd-slow-disk" on "reflagged",
        || added(|call| call.method == Method::POST && call.path.ends_with("/secrets"), "dryRun", "All");
    "fault.disk-writes-lost": "The server acknowledges some creates and updates without storing them." => "fault.etcd-slow-disk" on "reflagged",
        || rehearsed(is_write_of_workload, 9);
};

pub(super) static BY_STORE: &[Mutant] = mutants! { Means::Store;
    "fault.link-watch-resumes-late": "A store watch that is opened again after its connection was cut begins too late." => "fault.store-cut" on "reflagged",
        watch_resumes_late;
    // Only of transactions on the keys that the check writes twice.
    "fault.link-condition-forgotten": "The store executes a transaction even if its condition does not hold." => "fault.store-half" on "reflagged",
        || StoreChange::of_requests(|method, message| {
            if method == "Txn" {
                message.retain(COMPARE, |compare| {
                    !String::from_utf8_lossy(compare.bytes(COMPARE_KEY)).contains("/half-")
                });
            }
        });
};

// TxnRequest and PutRequest; WatchRequest and WatchCreateRequest.
const COMPARE: u64 = 1;
const COMPARE_KEY: u64 = 3;
const CREATE: u64 = 1;
const KEY: u64 = 1;
const START_REVISION: u64 = 3;
/// The number of omitted revisions.
const SKIPPED: u64 = 4;

/// Whether a write got a server error, which leaves its result open.
pub(super) fn failed_write(call: &Call, reply: &Reply) -> bool {
    let writes = call.method == Method::POST || call.method == Method::PUT;
    writes && reply.status >= 500 && call.path.contains("/namespaces/ap-")
}

/// Changes a key's watches from the second one on, because the server must be able to start.
fn watch_resumes_late() -> StoreChange {
    let mut seen = BTreeSet::new();
    StoreChange::of_requests(move |method, message| {
        if method == "Watch" {
            message.edit(CREATE, |create| {
                let key = create.bytes(KEY).to_vec();
                let is_ours = key.ends_with(b"/configmaps/") || key.ends_with(b"/events/");
                let from = create.number(START_REVISION);
                if is_ours && !seen.insert(key) && from > 0 {
                    create.set_number(START_REVISION, from + SKIPPED);
                }
            });
        }
    })
}
