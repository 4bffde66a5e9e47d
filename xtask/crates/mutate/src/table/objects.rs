//! Concurrency control and objects: preconditions of writes, returned objects, and refusals.

use http::Method;
use serde_json::{Value, json};

use super::list::is_exact;
use super::tools::{answered, field_ignored, ignored, remove, sent, status_changed};
use super::transport::json_for;
use super::{Change, Mutant, mutants};
use crate::call::Call;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "objects.strict-ignored": "The server drops unknown fields although the request asks for strict validation." => "storage.crd-strict",
        || ignored(|_| true, &["fieldValidation"]);
    "objects.manager-ignored": "The server does not record the field manager of a request." => "storage.crd-strict",
        || ignored(|_| true, &["fieldManager"]);
    "objects.history-kept": "A list at a compacted revision shows the current state." => "storage.compaction-retention" on "yaml",
        || ignored(is_exact, &["resourceVersionMatch", "resourceVersion"]);
    "objects.put-creates": "A PUT of an absent object succeeds for every type." => "cc.put-create",
        || status_changed(|call| call.method == Method::PUT, 404, 201);
    "objects.unconditional-refused": "The server refuses every PUT without a resource version." => "cc.unconditional-put",
        || sent(|call| call.method == Method::PUT, |object| {
            if object["metadata"]["resourceVersion"].is_null() {
                object["metadata"]["resourceVersion"] = json!("1");
            }
        });
    "objects.status-writes-all": "A PUT of the status also changes the rest of the object." => "cc.subresource-status",
        || Change::Request(Box::new(|call| {
            if call.method == Method::PUT && let Some(object) = call.path.strip_suffix("/status") {
                call.path = object.to_owned();
            }
        }));
    "objects.old-uid": "An object that is created again has the uid of its predecessor." => "cc.delete-recreate", old_uid;
    "objects.orphan-option-lost": "A deletion ignores orphanDependents." => "cc.delete-response-code",
        || field_ignored(Method::DELETE, "/orphanDependents");
    "objects.collection-without-selector": "The deletion of a collection ignores its selector." => "cc.delete-collection",
        || ignored(|call| call.method == Method::DELETE, &["labelSelector"]);
    "objects.grace-ignored": "A deletion ignores its grace period." => "cc.grace-period",
        || field_ignored(Method::DELETE, "/gracePeriodSeconds");
    "objects.absent-hidden": "The server reports success for the deletion of an absent object." => "cc.linearizable-history",
        || Change::Reply(Box::new(|call, reply| {
            if call.method == Method::DELETE && reply.status == 404 {
                reply.status = 200;
                reply.body = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}).to_string().into();
            }
        }));
    "objects.finalizer-held": "An update does not remove finalizers." => "cc.finalizer-race",
        || sent(|call| call.method == Method::PUT && call.path.contains("/configmaps/"), |object| {
            if object["metadata"]["finalizers"].is_null() {
                object["metadata"]["finalizers"] = json!(["example.org/hold"]);
            }
        });
    "objects.apply-forced": "A server-side apply always takes fields from their owners." => "storage.managed-fields-ssa",
        || Change::Request(Box::new(|call| {
            if call.parameter("force") == Some("false") {
                call.forget("force");
                call.query.push(("force".into(), "true".into()));
            }
        }));
    "objects.dry-run-writes": "A dry run writes to the store." => "storage.dryrun",
        || ignored(|_| true, &["dryRun"]);
    "objects.version-on-create": "A create with a resource version succeeds." => "storage.write-metadata",
        || field_ignored(Method::POST, "/metadata/resourceVersion");
    "objects.too-large-unsaid": "The server answers 201 for an object that is too large for the store." => "storage.size-limits",
        || status_changed(|call| call.method == Method::POST, 500, 201);
    "objects.name-counted": "Generated names end with a number." => "storage.generate-name", name_counted;
    "objects.case-folded": "The server converts names to lower case." => "storage.case-and-paths",
        || sent(|call| call.method == Method::POST, |object| {
            if let Some(name) = object["metadata"]["name"].as_str().map(str::to_lowercase) {
                object["metadata"]["name"] = name.into();
            }
        });
    "objects.versions-forgotten": "A definition does not list the versions in which objects are stored." => "storage.crd-storage-version",
        || answered(
            |call| call.path.contains("/customresourcedefinitions/"),
            |definition| remove(&mut definition["status"], "storedVersions"),
        );
    "objects.unreadable-left-out": "A list omits objects that the server cannot decode." => "storage.corrupt-object" on "short-events",
        || status_changed(Call::is_list, 500, 200);
    "objects.watch-without-cbor": "A watch that asks for CBOR gets JSON." => "storage.cbor" on "short-events",
        || json_for(Call::is_watch);
};

/// Repeats the first uid of each name in later answers to creates.
fn old_uid() -> Change {
    let mut uids = std::collections::BTreeMap::<String, Value>::new();
    Change::Reply(Box::new(move |call, reply| {
        if call.method == Method::POST && reply.is_success() {
            reply.edit(|object| {
                let name = format!("{} {}", call.path, object["metadata"]["name"]);
                let uid = object["metadata"]["uid"].clone();
                object["metadata"]["uid"] = uids.entry(name).or_insert(uid).clone();
            });
        }
    }))
}

fn name_counted() -> Change {
    let mut count = 0;
    Change::Request(Box::new(move |call| {
        if call.method == Method::POST {
            call.edit(|object| {
                let Some(prefix) = object["metadata"]["generateName"].as_str().map(str::to_owned) else { return };
                if object["metadata"]["name"].is_null() {
                    count += 1;
                    object["metadata"]["name"] = format!("{prefix}{count:05}").into();
                }
            });
        }
    }))
}
