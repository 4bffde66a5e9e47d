//! Servers whose controllers do not finish their work, and servers that go back in time after a restore.

use http::Method;
use serde_json::json;

use super::tools::{each_event, each_list, sent, shift};
use super::{Means, Mutant, mutants};
use crate::store::StoreChange;

/// The amount by which a restore raises revisions.
const BUMP: i64 = 1_000_000_000;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "svm.nothing-migrated": "A migration reports success, but its objects are unchanged." => "storage.svm" on "reflagged",
        // Leases change all the time, so the controller does not have to wait for a bookmark.
        || sent(
            |call| call.method == Method::POST && call.path.ends_with("/storageversionmigrations"),
            |object| object["spec"]["resource"] = json!({"group": "coordination.k8s.io", "resource": "leases"}),
        );
    "svm.old-version-stored": "A definition keeps its first version as the storage version." => "storage.svm" on "reflagged",
        || sent(|call| call.method == Method::PUT && call.path.contains("/customresourcedefinitions/"), |object| {
            for version in object["spec"]["versions"].as_array_mut().into_iter().flatten() {
                version["storage"] = json!(version["name"] == "v1");
            }
        });
    "restore.expired-watch-empty": "A watch from a resource version before a restore gets 200 and ends without an error." => "rv.snapshot-restore" on "disruptive",
        || each_event(|_, event| if event["type"] == "ERROR" { vec![] } else { vec![event] });
    "restore.list-goes-back": "A list after a restore has a resource version from before the restore." => "rv.snapshot-restore" on "disruptive",
        || each_list(|list| {
            let rv = &mut list["metadata"]["resourceVersion"];
            if rv.as_str().and_then(|text| text.parse().ok()).is_some_and(|number: i64| number > BUMP) {
                shift(rv, -BUMP);
            }
        });
};

// WatchResponse, Event and KeyValue of etcd's `rpc.proto` and `kv.proto`.
const EVENTS: u64 = 11;
const KV: u64 = 2;
const KEY: u64 = 1;

pub(super) static BY_STORE: &[Mutant] = mutants! { Means::Store;
    "namespace.orphans": "The store's watch omits PodTemplates, so no controller deletes them before their namespace." => "storage.namespace-delete" on "reflagged",
        || StoreChange::of_replies(|method, message| {
            if method == "Watch" {
                message.retain(EVENTS, |event| {
                    !String::from_utf8_lossy(event.message(KV).bytes(KEY)).contains("/podtemplates/ap-")
                });
            }
        });
};
