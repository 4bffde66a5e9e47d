//! One sweep over everything that the server serves: the check creates, finds, decodes and removes every persisted
//! resource, and other resources must leave nothing behind. The release's table defines the right keys and versions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::anyhow;
use http::Method;
use model::StoredResource;
use serde_json::{Value, json};

use crate::storage::layout::{all_stored, sole_key};
use crate::storage::layout_table;
use crate::support::samples::all;
use judge::decode;
use suite::api::{MERGE_PATCH, Request};
use suite::ctx::object_path;
use suite::object::{CORE_EVENTS, DEFINITIONS, EVENTS, NAMESPACES, PODS, SERVICE_ACCOUNTS};
use suite::prelude::*;
use suite::store::KeyValue;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.gvr-sweep",
    place: here!(),
    level: Should,
    requirement: "Every persisted resource in discovery is in the release's table, a create of it makes its one key \
                  with its stored version, a delete removes that key, and resources that are not persisted store \
                  nothing.",
    source: "kubernetes test/integration/etcd/etcd_storage_path_test.go, data.go, etcd_cross_group_test.go",
    observed: "Discovery and table must name the same persisted resources (create and list); only resources that are \
               stored as one kind may share a key, and both must then show the object. The check creates the stub of \
               each row; in the whole store its key, and no other, may contain its name or hold its uid; the check \
               decodes apiVersion and kind there. Then it deletes each object and removes its finalizers, and its key \
               must be gone. A custom resource with the plural and the name of a built-in object must have a separate \
               key. The check posts every resource that can only be created (reviews, bindings, evictions, tokens): no \
               key may appear in the namespace and none that holds such a kind.",
    by_hand: "kubectl api-resources --verbs=create,list; create one of each; etcdctl get --prefix '' --keys-only; \
              kubectl auth can-i get pods; the same etcdctl get again",
    profiles: &["default"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(sweep),
}];

/// Concurrent requests.
const AT_ONCE: usize = 8;

async fn sweep(ctx: &Ctx) -> Verdict {
    let served = layout_table::served(ctx).await?;
    let rows = ctx.store.table()?;
    none_of(&table_faults(rows, &served.persisted), "The table and discovery do not agree")?;
    let made = create_all(ctx, rows).await?;
    check_keys(ctx, &made).await?;
    one_object_through_both_views(ctx).await?;
    own_key_for_a_custom_namesake(ctx).await?;
    all(AT_ONCE, made.iter().map(|made| remove(ctx, made))).await?;
    virtual_resources(ctx, &served.created_only).await
}

/// The differences between table and discovery, and rows that would share a key without being one kind.
fn table_faults(rows: &[StoredResource], persisted: &BTreeSet<String>) -> Vec<String> {
    let name = |r: &Resource| format!("{}/{}/{}", r.group, r.version, r.plural);
    let known: BTreeSet<String> = rows.iter().map(|row| name(&row.resource)).collect();
    let lacking = persisted.difference(&known).map(|place| format!("{place} is served, but the table lacks it"));
    let gone = known.difference(persisted).map(|place| format!("{place} is in the table, but not served"));
    let mut places: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in rows {
        places.entry(&row.resource.stored_at).or_default().insert(&row.stored_as);
    }
    let shared = places.iter().filter(|(_, kinds)| kinds.len() > 1);
    let shared = shared.map(|(place, kinds)| format!("different kinds are stored at {place}: {kinds:?}"));
    lacking.chain(gone).chain(shared).collect()
}

/// A row's object as in the answer to its create.
struct CreatedRow<'a> {
    row: &'a StoredResource,
    object: Object,
    key: String,
}

async fn create_all<'a>(ctx: &'a Ctx, rows: &'a [StoredResource]) -> Verdict<Vec<CreatedRow<'a>>> {
    let made = all(AT_ONCE, rows.iter().map(|row| create_one(ctx, row))).await?;
    ctx.count("resources", made.len() as u64);
    Ok(made)
}

async fn create_one<'a>(ctx: &'a Ctx, row: &'a StoredResource) -> Verdict<CreatedRow<'a>> {
    let stub = layout_table::own_stub(ctx, row).await?;
    let answer = ctx.api.try_create(&row.resource, &stub).await?;
    expect_eq!(answer.status, 201, "status of a create of {}, answered {answer}", row.resource.plural);
    let object = answer.object()?;
    let key = ctx.store.key(&row.resource, object.name()).await?;
    Ok(CreatedRow { row, object, key })
}

async fn check_keys(ctx: &Ctx, made: &[CreatedRow<'_>]) -> Verdict {
    let stored = all_stored(ctx).await?;
    let faults: Vec<String> = made.iter().filter_map(|made| place_fault(made, &stored)).collect();
    none_of(&faults, "resources are not stored as the table says")
}

/// The first fault in the keys of one object.
fn place_fault(made: &CreatedRow<'_>, stored: &[(String, KeyValue)]) -> Option<String> {
    let CreatedRow { row, object, key } = made;
    let plural = &row.resource.plural;
    if let Err(fault) = sole_key(stored, object, key) {
        return Some(format!("{plural}: {fault}"));
    }
    let named = |kv: &&KeyValue| kv.key.split('/').any(|part| part == object.name()) && kv.key != *key;
    if let Some(second) = stored.iter().map(|(_, kv)| kv).find(named) {
        return Some(format!("{plural}: in addition to {key} there is {}", second.key));
    }
    let value = stored.iter().find(|(_, kv)| kv.key == *key).map(|(_, kv)| kv.value.as_slice());
    match decode::stored_kind(value.unwrap_or_default()) {
        Ok(kind) if kind == row.stored_as => None,
        Ok(kind) => Some(format!("{key} holds a {kind}, must be {}", row.stored_as)),
        Err(error) => Some(format!("{key}: {error}")),
    }
}

/// Two groups serve Events, which are one kind: an Event created through one group must be visible in the other.
async fn one_object_through_both_views(ctx: &Ctx) -> Verdict {
    for (group, other) in [("", &*EVENTS), ("events.k8s.io", &*CORE_EVENTS)] {
        let row = layout_table::row(ctx, group, "events")?;
        let name = layout_table::own_stub(ctx, row).await?.name().to_owned();
        let seen = ctx.api.get(&row.resource, &name).await?;
        let through = ctx.api.try_get(other, &name, "").await?;
        expect_eq!(through.status, 200, "status of a GET of an event of `{group}` through `{}`", other.group);
        let through = through.object()?;
        expect_eq!(through.uid(), seen.uid(), "uid of the event {name} through `{}`", other.group);
    }
    Ok(())
}

/// Creates a custom resource called configmaps, with an object of the same namespace and name as a ConfigMap.
async fn own_key_for_a_custom_namesake(ctx: &Ctx) -> Verdict {
    let custom = ctx.api.define(&format!("{}.example", ctx.name_prefix()), "configmaps", "ConfigMap").await?;
    let built_in = ctx.api.create(&CONFIG_MAPS, &config_map("namesake")).await?;
    let namesake = ctx.api.create(&custom, &Object::new(&custom, "namesake")).await?;
    let stored = all_stored(ctx).await?;
    sole_key(&stored, &built_in, &ctx.store.key(&CONFIG_MAPS, "namesake").await?).map_err(CheckError::failed)?;
    sole_key(&stored, &namesake, &ctx.store.key(&custom, "namesake").await?).map_err(CheckError::failed)
}

async fn remove(ctx: &Ctx, made: &CreatedRow<'_>) -> Verdict {
    let CreatedRow { row, object, key } = made;
    let resource = &row.resource;
    let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    let answer = ctx.api.try_delete(resource, object.name(), &options).await?;
    expect!(answer.is_success(), "the delete of {key} was answered {answer}");
    remove_finalizers(ctx, resource, &Object(answer.json())).await?;
    let store = ctx.store.of(resource);
    if resource != &*DEFINITIONS {
        let held = store.get(key, 0).await?;
        expect!(held.is_none(), "{key} is still there after its delete was answered {}", answer.status);
        return Ok(());
    }
    // The server deletes the objects of a definition first, after the answer.
    let what = format!("the removal of {key}");
    let gone = suite::wait::until(&what, ctx.wait_limit(), Duration::from_millis(50), || async {
        let held = store.get(key, 0).await?;
        Ok(held.map_or(Ok(()), |kv| Err(format!("it is there at revision {}", kv.mod_rev))))
    });
    match gone.await {
        Err(CheckError::TimedOut { what }) => {
            Err(CheckError::failed(format!("a deleted object keeps its key: waited for {what}")))
        }
        other => other,
    }
}

/// Removes the finalizers for which no controller runs here. The server itself handles the finalizer of a definition.
async fn remove_finalizers(ctx: &Ctx, resource: &Resource, deleted: &Object) -> Verdict {
    if resource == &*NAMESPACES {
        let body = deleted.clone().with("spec.finalizers", json!([]));
        let path = format!("{}/finalize", object_path(resource, "", deleted.name()));
        let answer = ctx.api.send(&Request::new(Method::PUT, path).json(&body.0)).await?;
        expect!(answer.is_success(), "finalize of the namespace {} was answered {answer}", deleted.name());
    } else if deleted.0["metadata"]["finalizers"].is_array() && resource != &*DEFINITIONS {
        let patch = json!({"metadata": {"finalizers": null}});
        let answer = ctx.api.try_patch(resource, deleted.name(), MERGE_PATCH, &patch, "").await?;
        expect!(answer.is_success(), "the removal of the finalizers of {} was answered {answer}", deleted.name());
    }
    Ok(())
}

/// A POST of a resource that can only be created.
struct Virtual {
    /// In discovery.
    place: &'static str,
    /// With {ns} for the namespace.
    path: String,
    kind: &'static str,
    body: Value,
}

/// The check creates the Pods `one` and `two` and the service account `account` before.
fn virtual_posts(namespace: &str) -> Vec<Virtual> {
    let post = |place, path, (version, kind): (&str, &'static str), body| {
        let body = Object(body).with("apiVersion", version).with("kind", kind).0;
        Virtual { place, path, kind, body }
    };
    let core = |place, path, kind, body| post(place, format!("/api/v1/namespaces/{{ns}}/{path}"), kind, body);
    let review = |place: &'static str, kind, body| {
        let (version, plural) = place.rsplit_once('/').unwrap_or_default();
        let scope = if plural.starts_with("local") { "namespaces/{ns}/" } else { "" };
        post(place, format!("/apis/{version}/{scope}{plural}"), (version, kind), body)
    };
    let binding = |name: &str| json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "none"}});
    let eviction = json!({"metadata": {"name": "two"}, "deleteOptions": {"gracePeriodSeconds": 0}});
    let audiences = json!({"spec": {"audiences": ["nobody"]}});
    let pods = json!({"namespace": namespace, "verb": "get", "resource": "pods"});
    let attributes = json!({"spec": {"user": "somebody", "resourceAttributes": pods}});
    let path = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    vec![
        core("/v1/bindings", "bindings", ("v1", "Binding"), binding("one")),
        core("/v1/pods/binding", "pods/two/binding", ("v1", "Binding"), binding("two")),
        core("/v1/pods/eviction", "pods/two/eviction", ("policy/v1", "Eviction"), eviction),
        core(
            "/v1/serviceaccounts/token",
            "serviceaccounts/account/token",
            ("authentication.k8s.io/v1", "TokenRequest"),
            audiences,
        ),
        review("authentication.k8s.io/v1/selfsubjectreviews", "SelfSubjectReview", json!({})),
        review("authentication.k8s.io/v1/tokenreviews", "TokenReview", json!({"spec": {"token": "nobody's"}})),
        review("authorization.k8s.io/v1/localsubjectaccessreviews", "LocalSubjectAccessReview", attributes.clone()),
        review("authorization.k8s.io/v1/selfsubjectaccessreviews", "SelfSubjectAccessReview", path),
        review(
            "authorization.k8s.io/v1/selfsubjectrulesreviews",
            "SelfSubjectRulesReview",
            json!({"spec": {"namespace": namespace}}),
        ),
        review("authorization.k8s.io/v1/subjectaccessreviews", "SubjectAccessReview", attributes),
    ]
}

async fn virtual_resources(ctx: &Ctx, served: &BTreeSet<String>) -> Verdict {
    let namespace = ctx.api.namespace().await?;
    let posts = virtual_posts(namespace);
    let strange: Vec<&String> = served.iter().filter(|place| !posts.iter().any(|row| row.place == **place)).collect();
    if !strange.is_empty() {
        return Err(anyhow!("served only for creation, but not exercised here: {strange:?}").into());
    }
    ctx.api.create(&SERVICE_ACCOUNTS, &Object::new(&SERVICE_ACCOUNTS, "account")).await?;
    for pod in ["one", "two"] {
        let containers = json!([{"name": "c", "image": "none"}]);
        ctx.api.create(&PODS, &Object::new(&PODS, pod).with("spec.containers", containers)).await?;
    }
    let (before, _) = ctx.store.of(&PODS).keys("", 0).await?;
    for row in posts.iter().filter(|row| served.contains(row.place)) {
        let request = Request::new(Method::POST, row.path.replace("{ns}", namespace)).json(&row.body);
        let answer = ctx.api.send(&request).await?;
        let what = format!("a POST of a {}", row.kind);
        none_of(&left_by(row, &all_stored(ctx).await?, &before, namespace), &what)?;
        expect_eq!(answer.status, 201, "status of a POST to {}, answered {answer}", row.path);
        ctx.count("virtual resources", 1);
    }
    // The two requests that act on Pods must have had their effect: otherwise they could not have left anything.
    let bound = ctx.api.get(&PODS, "one").await?;
    expect_eq!(bound.0["spec"]["nodeName"], json!("none"), "node of the pod that was bound");
    expect_eq!(ctx.api.try_get(&PODS, "two", "").await?.status, 404, "status of a GET of the pod that was evicted");
    Ok(())
}

/// Keys that hold such a kind, and new keys in the case's namespace.
fn left_by(row: &Virtual, stored: &[(String, KeyValue)], before: &[KeyValue], namespace: &str) -> Vec<String> {
    let of_kind =
        |kv: &KeyValue| decode::stored_kind(&kv.value).is_ok_and(|kind| kind.ends_with(&format!("/{}", row.kind)));
    let is_ours = |kv: &KeyValue| kv.key.contains(&format!("/{namespace}/"));
    let is_new = |kv: &KeyValue| !before.iter().any(|old| old.key == kv.key);
    let left = stored.iter().map(|(_, kv)| kv).filter(|kv| of_kind(kv) || is_ours(kv) && is_new(kv));
    left.map(|kv| format!("left the key {}", kv.key)).collect()
}

fn none_of(faults: &[String], what: &str) -> Verdict {
    let Some(first) = faults.first() else { return Ok(()) };
    Err(CheckError::Failed { message: format!("{what}: {first} ({} in all)", faults.len()), evidence: faults.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::layout_table::tests::row;
    use suite::object::DEPLOYMENTS;

    fn kv(key: &str, value: &str) -> KeyValue {
        KeyValue { key: key.into(), value: value.into(), ..KeyValue::default() }
    }

    #[test]
    fn table_must_match_discovery_and_share_no_key() {
        let rows = [row(&CORE_EVENTS, "v1/Event"), row(&EVENTS, "v1/Event")];
        let both = BTreeSet::from(["/v1/events".to_owned(), "events.k8s.io/v1/events".to_owned()]);
        assert!(table_faults(&rows, &both).is_empty());
        let more: BTreeSet<String> = both.iter().cloned().chain(["new.k8s.io/v1/things".to_owned()]).collect();
        assert_eq!(table_faults(&rows, &more).len(), 1);
        assert_eq!(table_faults(&rows[..1], &both).len(), 1);
        assert_eq!(table_faults(&rows, &BTreeSet::from(["/v1/events".to_owned()])).len(), 1);
        let apart = [rows[0].clone(), row(&EVENTS, "events.k8s.io/v1/Event")];
        assert_eq!(table_faults(&apart, &both).len(), 1);
    }

    #[test]
    fn object_must_have_one_key_with_its_kind() {
        let row = row(&DEPLOYMENTS, "apps/v1/Deployment");
        let object = Object(json!({"metadata": {"name": "a", "uid": "u"}}));
        let made = CreatedRow { row: &row, object, key: "/registry/deployments/n/a".into() };
        let right = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"uid":"u"}}"#;
        let at = |entries: &[(&str, &str)]| {
            let stored: Vec<_> = entries.iter().map(|(key, value)| (String::new(), kv(key, value))).collect();
            place_fault(&made, &stored)
        };
        assert_eq!(at(&[(&made.key, right), ("/registry/pods/n/ab", "{}")]), None);
        let old = r#"{"apiVersion":"apps/v1beta1","kind":"Deployment","metadata":{"uid":"u"}}"#;
        for bad in [
            &[][..],
            &[("/registry/apps/deployments/n/a", right)],
            &[(&made.key, right), ("/registry/copy/n/a", right)],
            &[(&made.key, right), ("/registry/index/a", "{}")],
            &[(&made.key, old)],
        ] {
            assert!(at(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn keys_left_by_a_virtual_resource_are_found() {
        let before = [kv("/registry/pods/n/one", "")];
        let binding = &virtual_posts("n")[0];
        let left = |key: &str, value: &str| left_by(binding, &[(String::new(), kv(key, value))], &before, "n").len();
        assert_eq!(left("/registry/pods/n/one", "{}"), 0);
        assert_eq!(left("/registry/pods/other/two", "{}"), 0);
        assert_eq!(left("/registry/pods/n/two", "{}"), 1);
        assert_eq!(left("/registry/bindings/other/one", r#"{"apiVersion":"v1","kind":"Binding"}"#), 1);
    }
}
