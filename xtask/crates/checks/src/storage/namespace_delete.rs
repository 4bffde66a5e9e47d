//! The namespace controller leaves nothing of a deleted namespace in the store.

use std::time::Duration;

use model::history::Change;
use serde_json::{Value, json};

use crate::support::samples;
use suite::api::{MERGE_PATCH, Request};
use suite::object::NAMESPACES;
use suite::prelude::*;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.namespace-delete",
    place: here!(),
    level: Extra,
    requirement: "Deleting a namespace removes all keys `<prefix>/*/<namespace>/` before the namespace's own; while a \
                  finalizer blocks the removal of one of its objects, the namespace is Terminating and its key stays.",
    source: "kubernetes pkg/controller/namespace/deletion/namespaced_resources_deleter.go (deleteAllContent)",
    observed: "The check creates an object of every namespaced resource of the release's table, one of a custom \
               resource, and a ConfigMap with a finalizer, and starts kube-controller-manager with its namespace \
               controller. After the DELETE the namespace must report that finalizers remain, and stay with the \
               objects that have them; after the check has removed the finalizers, its key must be removed. In the raw \
               history each key's last change must be its deletion, at a revision below that of the namespace's, and a \
               Range at that revision must show none of them.",
    by_hand: "kubectl create ns a; kubectl -n a create cm b; kubectl -n a patch cm b --type merge -p \
              '{\"metadata\":{\"finalizers\":[\"example.org/hold\"]}}'; etcdctl watch --prefix /registry/ & kubectl \
              delete ns a --wait=false; kubectl -n a patch cm b --type merge -p '{\"metadata\":{\"finalizers\":null}}'",
    profiles: &["reflagged"],
    requires: Requires::OwnCluster(&[Requirement::Exclusive, Requirement::Control]),
    run: scenario!(namespace_delete),
}];

const HOLD: &str = "example.org/hold";
/// The pause between two looks at the store.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A namespace and the objects in it.
struct DeletedNamespace {
    name: String,
    keys: Vec<String>,
    /// The objects with finalizers, those of the check or the server's.
    held: Vec<(Resource, String)>,
}

async fn namespace_delete(ctx: &Ctx) -> Verdict {
    // The definition must exist before the controller manager, which looks for new resources only every 30 s.
    let fruits = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    let controllers = ctx.control.start("kube-controller-manager", &[]).await?;
    let deleted = filled(ctx, &fruits).await?;
    let verdict = removed(ctx, &deleted).await;
    let stopped = controllers.stop().await;
    let cleared = if verdict.is_err() { clear(ctx, &deleted.name).await } else { Ok(()) };
    verdict.and(stopped).and(cleared)
}

/// Deletes the keys of the namespace. The server no longer shows these objects, so no request can remove them.
async fn clear(ctx: &Ctx, namespace: &str) -> Verdict {
    for key in remaining_keys(ctx, namespace, 0).await? {
        ctx.store.of(&CONFIG_MAPS).delete(&key).await?;
    }
    Ok(())
}

/// Creates a namespace with an object of every resource.
async fn filled(ctx: &Ctx, fruits: &Resource) -> Verdict<DeletedNamespace> {
    let name = format!("{}-doomed", ctx.name_prefix());
    ctx.api.create(&NAMESPACES, &Object::new(&NAMESPACES, &name)).await?;
    let mut objects = vec![
        (fruits.clone(), Object::new(fruits, "apple")),
        (CONFIG_MAPS.clone(), config_map("held").with("metadata.finalizers", json!([HOLD]))),
    ];
    for row in ctx.store.table()?.iter().filter(|row| row.resource.namespaced) {
        objects.push((row.resource.clone(), samples::object(row, &row.name, &name)?));
    }
    let mut deleted = DeletedNamespace { name, keys: Vec::new(), held: Vec::new() };
    for (resource, object) in objects {
        let object = ctx.api.create_in(&deleted.name, &resource, &object).await?;
        deleted.keys.push(resource.key(&ctx.profile().prefix, &deleted.name, object.name()));
        if object.0["metadata"]["finalizers"].is_array() {
            deleted.held.push((resource, object.name().to_owned()));
        }
    }
    let stored = remaining_keys(ctx, &deleted.name, 0).await?;
    let lacks = deleted.keys.iter().find(|key| !stored.contains(key));
    expect!(lacks.is_none(), "the store has no key {lacks:?} after its object was created");
    ctx.count("objects", deleted.keys.len() as u64);
    Ok(deleted)
}

async fn removed(ctx: &Ctx, deleted: &DeletedNamespace) -> Verdict {
    let path = format!("{}/{}", NAMESPACES.path(None), deleted.name);
    let answer = ctx.api.try_delete(&NAMESPACES, &deleted.name, &Value::Null).await?;
    expect!(answer.is_success(), "DELETE of the namespace was answered {answer}");
    let held: Vec<String> =
        deleted.held.iter().map(|(of, name)| of.key(&ctx.profile().prefix, &deleted.name, name)).collect();
    // By then the controller has seen the remaining objects and has decided.
    let what = "the namespace to report that finalizers remain";
    wait::until(what, limit(ctx), POLL_INTERVAL, || async {
        let seen = ctx.api.send(&Request::get(path.clone())).await?;
        expect_eq!(seen.status, 200, "a GET of the namespace while a finalizer holds up {held:?}");
        let seen = Object(seen.json());
        let remaining = seen.condition("NamespaceFinalizersRemaining");
        Ok(if remaining.is_some() { Ok(()) } else { Err(seen.0["status"].to_string()) })
    })
    .await?;
    let seen = ctx.api.get(&NAMESPACES, &deleted.name).await?;
    expect_eq!(seen.0["status"]["phase"].as_str(), Some("Terminating"), "phase of the namespace");
    ctx.store.get(&NAMESPACES, &deleted.name).await?;
    let remaining_keys = remaining_keys(ctx, &deleted.name, 0).await?;
    let lost = held.iter().find(|key| !remaining_keys.contains(key));
    expect!(lost.is_none(), "{lost:?} is gone, although its object has a finalizer");
    for (resource, name) in &deleted.held {
        let patch = json!({"metadata": {"finalizers": null}}).to_string();
        let object = format!("{}/{name}", resource.path(Some(&deleted.name)));
        let request = Request::new(http::Method::PATCH, object).body(MERGE_PATCH, patch);
        let answer = ctx.api.send(&request).await?;
        expect!(answer.is_success(), "{request} was answered {answer}");
    }
    before_the_namespace(ctx, deleted).await
}

/// Waits for the deletion of the namespace's key and checks the store at that revision.
async fn before_the_namespace(ctx: &Ctx, deleted: &DeletedNamespace) -> Verdict {
    let recorder = ctx.store.recorder(&NAMESPACES);
    let own = NAMESPACES.key(&ctx.profile().prefix, "", &deleted.name);
    let what = "the removal of the namespace's key";
    let end = wait::until(what, limit(ctx), POLL_INTERVAL, || async {
        let last = recorder.changes_of(&own).pop();
        let gone = last.filter(|last| last.kind == Change::Delete).map(|last| last.rev);
        Ok(gone.ok_or_else(|| "it is still there".to_owned()))
    })
    .await?;
    let then = remaining_keys(ctx, &deleted.name, end).await?;
    let then = then.join(", ");
    expect!(then.is_empty(), "when the namespace's key was removed, at revision {end}, the store still had {then}");
    let now = remaining_keys(ctx, &deleted.name, 0).await?;
    expect!(now.is_empty(), "after the namespace's key was removed the store got {}", now.join(", "));
    for key in &deleted.keys {
        let last = recorder.changes_of(key).pop();
        let last = last.ok_or_else(|| anyhow::anyhow!("no change of {key} was recorded"))?;
        let in_time = last.kind == Change::Delete && last.rev < end;
        expect!(in_time, "the last change of {key} is {:?}@{}, the namespace's is at {end}", last.kind, last.rev);
    }
    ctx.count("keys deleted before their namespace", deleted.keys.len() as u64);
    Ok(())
}

/// The keys in a namespace, at a revision (0: now), in their order.
async fn remaining_keys(ctx: &Ctx, namespace: &str, revision: i64) -> Verdict<Vec<String>> {
    let below = format!("{}/", ctx.profile().prefix);
    let (keys, _) = ctx.store.of(&NAMESPACES).keys(&below, revision).await?;
    let part = format!("/{namespace}/");
    Ok(keys.into_iter().map(|kv| kv.key).filter(|key| key.contains(&part)).collect())
}

/// The controller starts five seconds after the DELETE, and looks again after eight seconds if finalizers remain. Each
/// time it sends requests for some thirty resources, one after the other.
fn limit(ctx: &Ctx) -> Duration {
    Duration::from_secs(30) + ctx.wait_limit()
}
