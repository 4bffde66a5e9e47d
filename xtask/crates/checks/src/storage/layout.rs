//! One key per object, and how the server creates it. `layout_flags` covers the effect of the profile's flags on keys,
//! `layout_table` the release's table of resources, `layout_custom` custom resources.

use futures::future::try_join_all;

use crate::storage::layout_table;
use judge::decode;
use suite::object::LEASES;
use suite::prelude::*;
use suite::store::KeyValue;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.key-layout",
        place: here!(),
        level: Must,
        requirement: "A namespaced object is stored under exactly one key, \
                      <etcd-prefix>/<resource>/<namespace>/<name>, a cluster-scoped one under \
                      <etcd-prefix>/<resource>/<name>; without --etcd-prefix the prefix is /registry.",
        source: "apiserver pkg/storage/etcd3/store.go (prepareKey), pkg/registry/generic/registry/store.go \
                 (NamespaceKeyFunc, NoNamespaceKeyFunc); kubernetes pkg/kubeapiserver/options/options.go \
                 (DefaultEtcdPathPrefix), test/integration/etcd/data.go",
        observed: "The check creates objects of both scopes and reads the whole store: the expected key and no other \
                   one may hold an object with the new uid. The profile `default` runs without --etcd-prefix.",
        by_hand: "kubectl create cm a; etcdctl get --prefix '' --keys-only | grep '/a$' (must say \
                  /registry/configmaps/default/a only)",
        profiles: &["default", "prefix"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(key_layout),
    },
    Check {
        id: "storage.create-txn",
        place: here!(),
        level: Must,
        requirement: "A POST writes its key in one transaction that requires mod_revision 0: version 1, \
                      create_revision = mod_revision = resourceVersion; a second POST of the name is answered 409 \
                      AlreadyExists and writes nothing.",
        source: "apiserver pkg/storage/etcd3/store.go (Create, OptimisticPut with revision 0); apimachinery \
                 pkg/api/errors/errors.go (NewAlreadyExists)",
        observed: "The check sends a POST and repeats it; then eight POSTs of one name at the same time, of which one \
                   may win; then a POST of a name whose key the check has put directly into etcd just before, so that \
                   only the store can know of it. The message names resource and group: leases.coordination.k8s.io \
                   \"a\".",
        by_hand: "kubectl create cm a; etcdctl get /registry/configmaps/default/a -w json (version 1); kubectl create \
                  cm a (must say 'configmaps \"a\" already exists'); the same etcdctl get again",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(create_txn),
    },
];

/// Representative rows of the table: core and named groups, both scopes, with a watch cache and (events) without.
const SAMPLES: &[(&str, &str)] = &[
    ("", "configmaps"),
    ("", "secrets"),
    ("", "events"),
    ("apps", "deployments"),
    ("coordination.k8s.io", "leases"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("storage.k8s.io", "storageclasses"),
];

/// POSTs of one name at the same time.
const RACERS: usize = 8;

/// All keys of the profile's stores with their values, each with the name of its store.
pub(crate) async fn all_stored(ctx: &Ctx) -> anyhow::Result<Vec<(String, KeyValue)>> {
    let mut all = Vec::new();
    for (name, (store, _)) in &ctx.env.stores {
        let (kvs, _) = store.list("", 0).await?;
        all.extend(kvs.into_iter().map(|kv| (name.clone(), kv)));
    }
    Ok(all)
}

/// Only the key `expected` may hold `object`; the error names the keys that hold it.
pub(crate) fn sole_key(stored: &[(String, KeyValue)], object: &Object, expected: &str) -> Result<(), String> {
    let uid = object.uid();
    if uid.is_empty() {
        return Err(format!("{} has no uid", object.name()));
    }
    let holders = stored.iter().filter(|(_, kv)| holds(&kv.value, uid)).map(|(_, kv)| kv.key.as_str());
    let found: Vec<&str> = holders.collect();
    match found[..] {
        [key] if key == expected => Ok(()),
        [] => Err(format!("nothing in the store holds the object that should be at {expected} (uid {uid})")),
        _ => Err(format!("the object must be at the key {expected} alone, but is at {}", found.join(", "))),
    }
}

/// Whether the value is the object with this uid. An object that only refers to it (an event about it) is not.
fn holds(value: &[u8], uid: &str) -> bool {
    match decode::meta(value) {
        Some(meta) => meta.uid == uid,
        // YAML, or not an object: only the text can show the uid.
        None => value.windows(uid.len()).any(|window| window == uid.as_bytes()),
    }
}

async fn key_layout(ctx: &Ctx) -> Verdict {
    let prefix = &ctx.profile().prefix;
    let namespace = ctx.api.namespace().await?;
    for (group, plural) in SAMPLES {
        let row = layout_table::row(ctx, group, plural)?;
        let object = layout_table::own_stub(ctx, row).await?;
        let middle = if row.resource.namespaced { format!("{namespace}/") } else { String::new() };
        let expected = format!("{prefix}/{plural}/{middle}{}", object.name());
        created_at(ctx, &row.resource, &object, &expected).await?;
    }
    // RBAC allows any path segment as a name; the key contains it unchanged.
    let roles = &layout_table::row(ctx, "rbac.authorization.k8s.io", "clusterroles")?.resource;
    let name = format!("{}:x.Y_z", ctx.name_prefix());
    created_at(ctx, roles, &Object::new(roles, &name), &format!("{prefix}/clusterroles/{name}")).await?;
    let flags = &ctx.profile().flags;
    if !flags.is_empty() && !flags.contains_key("etcd-prefix") {
        expect_eq!(prefix.as_str(), "/registry", "the prefix of a server without --etcd-prefix");
        ctx.count("objects below the default prefix", SAMPLES.len() as u64 + 1);
    }
    Ok(())
}

async fn created_at(ctx: &Ctx, resource: &Resource, object: &Object, expected: &str) -> Verdict {
    let made = ctx.api.create(resource, object).await?;
    ctx.count("objects located", 1);
    sole_key(&all_stored(ctx).await?, &made, expected).map_err(CheckError::failed)
}

async fn create_txn(ctx: &Ctx) -> Verdict {
    let lease = Object::new(&LEASES, "a").with("spec.holderIdentity", "first");
    create_twice(ctx, &CONFIG_MAPS, &config_map("a"), "configmaps \"a\" already exists").await?;
    create_twice(ctx, &LEASES, &lease, "leases.coordination.k8s.io \"a\" already exists").await?;
    create_at_once(ctx).await?;
    create_over_uncached_key(ctx).await
}

async fn create_twice(ctx: &Ctx, resource: &Resource, object: &Object, refusal: &str) -> Verdict {
    let answer = ctx.api.try_create(resource, object).await?;
    expect_eq!(answer.status, 201, "status of the first POST, answered {answer}");
    let first = ctx.store.get(resource, "a").await?;
    check_created_once(&first, answer.object()?.rv()).map_err(CheckError::failed)?;
    let other = object.clone().with("metadata.labels.again", "true");
    let again = ctx.api.try_create(resource, &other).await?;
    expect!(again.is(409, "AlreadyExists"), "the second POST of a name was answered {again}");
    expect_eq!(again.message(), refusal, "message of the refusal");
    let after = ctx.store.get(resource, "a").await?;
    let of = |kv: &KeyValue| format!("version {} at {} with {} bytes", kv.version, kv.mod_rev, kv.value.len());
    let (key, before, now) = (&first.key, of(&first), of(&after));
    expect!(after == first, "the refused POST changed {key}: {before}, afterwards {now}");
    Ok(())
}

/// Only the store can decide which POST was first.
async fn create_at_once(ctx: &Ctx) -> Verdict {
    let objects: Vec<Object> = (0..RACERS).map(|n| config_map("raced").with("data.by", n.to_string())).collect();
    let answers = try_join_all(objects.iter().map(|object| ctx.api.try_create(&CONFIG_MAPS, object))).await?;
    let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
    expect_eq!(won.len(), 1, "winners among {RACERS} POSTs of one name at the same time");
    for answer in lost {
        expect!(answer.is(409, "AlreadyExists"), "a POST that lost the race was answered {answer}");
    }
    let stored = ctx.store.get(&CONFIG_MAPS, "raced").await?;
    check_created_once(&stored, won[0].object()?.rv()).map_err(CheckError::failed)?;
    ctx.count("racing creates", RACERS as u64);
    Ok(())
}

/// Puts a deleted object's value back under its key; no cache of the server knows of it when the POST arrives.
async fn create_over_uncached_key(ctx: &Ctx) -> Verdict {
    ctx.api.create(&CONFIG_MAPS, &config_map("unseen")).await?;
    let old = ctx.store.get(&CONFIG_MAPS, "unseen").await?;
    ctx.api.delete(&CONFIG_MAPS, "unseen").await?;
    let revision = ctx.store.of(&CONFIG_MAPS).put(&old.key, &old.value).await?;
    let answer = ctx.api.try_create(&CONFIG_MAPS, &config_map("unseen").with("data.k", "new")).await?;
    expect!(answer.is(409, "AlreadyExists"), "a POST of a name whose key is in the store was answered {answer}");
    let stored = ctx.store.get(&CONFIG_MAPS, "unseen").await?;
    expect_eq!((stored.mod_rev, stored.version), (revision, 1), "revision and version after the refused POST");
    Ok(())
}

/// The key must be as after one transaction that created it at the resource version.
fn check_created_once(kv: &KeyValue, rv: u64) -> Result<(), String> {
    let rv = rv.cast_signed();
    if (kv.version, kv.create_rev, kv.mod_rev) == (1, rv, rv) && rv > 0 {
        return Ok(());
    }
    Err(format!(
        "{} must have version 1 and be created and modified at the answer's resourceVersion {rv}; it has version {}, \
         create_revision {}, mod_revision {}",
        kv.key, kv.version, kv.create_rev, kv.mod_rev
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use suite::object::{DEFINITIONS, INGRESSES, NODES, SERVICES};

    fn stored(entries: &[(&str, &[u8])]) -> Vec<(String, KeyValue)> {
        let kv = |key: &str, value: &[u8]| KeyValue { key: key.into(), value: value.into(), ..KeyValue::default() };
        entries.iter().map(|(key, value)| ("main".to_owned(), kv(key, value))).collect()
    }

    #[test]
    fn keys_have_the_documented_layout() {
        for (resource, expected) in [
            (&CONFIG_MAPS, "/registry/configmaps/default/a"),
            (&SERVICES, "/registry/services/specs/default/a"),
            (&INGRESSES, "/registry/ingress/default/a"),
            (&NODES, "/registry/minions/a"),
            (&DEFINITIONS, "/registry/apiextensions.k8s.io/customresourcedefinitions/a"),
        ] {
            assert_eq!(resource.key("/registry", "default", "a"), expected);
        }
    }

    #[test]
    fn object_must_be_at_its_key_only() {
        let object = Object(json!({"metadata": {"name": "a", "uid": "u-1"}}));
        let right = "/registry/configmaps/default/a";
        let itself: &[u8] = br#"{"metadata":{"name":"a","uid":"u-1"}}"#;
        let event: &[u8] = br#"{"metadata":{"name":"e","uid":"u-2"},"involvedObject":{"uid":"u-1"}}"#;
        let other = ("/registry/events/default/e", event);
        let yaml: &[u8] = b"metadata:\n  name: a\n  uid: u-1\n";
        assert_eq!(sole_key(&stored(&[(right, itself), other]), &object, right), Ok(()));
        assert_eq!(sole_key(&stored(&[(right, yaml), other]), &object, right), Ok(()));
        for (part, entries) in [
            ("nothing in the store", &[other][..]),
            ("nothing in the store", &[(right, event)]),
            ("alone, but is at /registry/default/a", &[("/registry/default/a", itself)]),
            ("alone, but is at /configmaps/default/a", &[("/configmaps/default/a", itself)]),
            ("a, /registry/index/a", &[(right, itself), ("/registry/index/a", itself)]),
            ("a, /registry/yaml/a", &[(right, itself), ("/registry/yaml/a", yaml)]),
        ] {
            let error = sole_key(&stored(entries), &object, right).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let nameless = Object(json!({"metadata": {"name": "a"}}));
        assert!(sole_key(&stored(&[(right, itself)]), &nameless, right).is_err());
    }

    #[test]
    fn new_key_must_have_one_version_at_the_answers_revision() {
        let good = KeyValue { create_rev: 7, mod_rev: 7, version: 1, ..KeyValue::default() };
        assert_eq!(check_created_once(&good, 7), Ok(()));
        for (bad, rv) in [
            (good.clone(), 8),
            (good.clone(), 0),
            (KeyValue { version: 2, ..good.clone() }, 7),
            (KeyValue { create_rev: 6, ..good.clone() }, 7),
            (KeyValue { mod_rev: 8, version: 2, ..good.clone() }, 7),
            (KeyValue { create_rev: 0, mod_rev: 0, ..good }, 0),
        ] {
            assert!(check_created_once(&bad, rv).is_err(), "{bad:?} {rv}");
        }
    }
}
