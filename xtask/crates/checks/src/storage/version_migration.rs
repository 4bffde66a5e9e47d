//! kube-controller-manager migrates stored values to the present version and encryption.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::metrics::Metrics;
use crate::support::release::minor;
use crate::support::stored_bytes::head;
use judge::decrypt::Provider;
use suite::api::Request;
use suite::keyring::Keyring;
use suite::object::{DEFINITIONS, MIGRATIONS, NAMESPACES, POD_TEMPLATES};
use suite::prelude::*;
use suite::store::KeyValue;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.svm",
    place: here!(),
    level: Should,
    requirement: "A StorageVersionMigration rewrites every object of its resource in the present storage version and \
                  encryption, each once and without another change, and then has the condition Succeeded.",
    source: "KEP-4192; kubernetes pkg/controller/storageversionmigrator, test/integration/storageversionmigrator",
    observed: "The check stores PodTemplates of two namespaces in the clear and custom resources as v1. Then it makes \
               v2 the storage version of the custom resources, and goes on at an apiserver on the same store that \
               encrypts PodTemplates. No value may be rewritten before the migrations, for which the check starts \
               kube-controller-manager. After they succeed, each key must have one more version; each PodTemplate must decrypt to its old bytes, each \
               custom resource must be v2, and no value may be the old one. From 1.36 on, the definition must name v2 \
               alone in status.storedVersions.",
    by_hand: "kube-apiserver --feature-gates=StorageVersionMigrator=true \
              --runtime-config=storagemigration.k8s.io/v1beta1=true …; kubectl create -f - <<< '{\"apiVersion\": \
              \"storagemigration.k8s.io/v1beta1\", \"kind\": \"StorageVersionMigration\", \"metadata\": {\"name\": \"m\"}, \
              \"spec\": {\"resource\": {\"resource\": \"podtemplates\"}}}'; kubectl get storageversionmigration m -o yaml; \
              etcdctl get --prefix /registry/podtemplates/ -w fields",
    profiles: &["reflagged"],
    requires: Requires::OwnCluster(&[Requirement::Exclusive, Requirement::Control]),
    run: scenario!(migration),
}];

const GATE: &str = "StorageVersionMigrator";
/// From this minor on, the controller removes the old version from the definition (pkg/controller/storageversionmigrator,
/// migrationrunner.go).
const FIRST_WITH_DEFINITION: u32 = 36;
/// The server that encrypts PodTemplates, and the name of its key (`targets/profiles.yaml`).
const VARIANT: &str = "encrypting";
const KEY_NAME: &str = "migration";

/// The stored values of a resource before its migration.
struct Stored {
    resource: Resource,
    values: Vec<KeyValue>,
}

async fn migration(ctx: &Ctx) -> Verdict {
    if Metrics::read(ctx).await?.gate(GATE) != Some(true) {
        return Err(CheckError::Skipped { need: format!("the feature gate {GATE} to be on") });
    }
    let served = ctx.api.send(&Request::get(MIGRATIONS.path(None))).await?;
    if served.status == 404 {
        return Err(CheckError::Skipped { need: format!("an apiserver that serves {}", MIGRATIONS.api_version()) });
    }
    // Before the custom resource is defined: see `Ctx::variant`.
    let encrypting = ctx.variant(VARIANT).await?;
    let custom = custom_resources(ctx).await?;
    let other = format!("{}-2", ctx.api.namespace().await?);
    ctx.api.create(&NAMESPACES, &Object::new(&NAMESPACES, &other)).await?;
    for name in ["a", "b", "c"] {
        ctx.api.create(&POD_TEMPLATES, &template(name)).await?;
    }
    ctx.api.create_in(&other, &POD_TEMPLATES, &template("d")).await?;
    let templates = stored(ctx, &POD_TEMPLATES).await?;
    expect_eq!(templates.values.len(), 4, "PodTemplates in the store");

    encrypting.api.wait_until_served(&custom.resource).await?;
    let ring = Keyring::of(encrypting.profile()).map_err(|fault| anyhow::anyhow!(fault))?;
    migrated(&encrypting, &templates, &custom, &ring).await
}

async fn migrated(ctx: &Ctx, templates: &Stored, custom: &Stored, ring: &Keyring) -> Verdict {
    let minor = minor(ctx).await?;
    for before in [templates, custom] {
        let now = stored(ctx, &before.resource).await?;
        expect!(now.values == before.values, "{} were rewritten before any migration", before.resource.plural);
    }
    let controllers =
        ctx.control.start("kube-controller-manager", &[("master", &format!("{{apiserver.{VARIANT}}}"))]).await?;
    let verdict = async {
        succeed(ctx, &templates.resource, &template(LATER)).await?;
        rewritten(ctx, templates, |old, new| is_encrypted(old, new, ring)).await?;
        succeed(ctx, &custom.resource, &Object::new(&custom.resource, LATER)).await?;
        rewritten(ctx, custom, is_second_version).await?;
        match minor >= FIRST_WITH_DEFINITION {
            true => only_the_second_version(ctx, &custom.resource).await,
            false => Ok(()),
        }
    };
    let verdict = verdict.await;
    let stopped = controllers.stop().await;
    verdict.and(stopped)
}

/// An object that the check creates while a migration runs.
const LATER: &str = "later";

/// Creates a migration and waits until it has succeeded.
///
/// The controller migrates the objects that the garbage collector's watch has delivered, once that watch is as new as
/// the migration: at once after a change of the resource, otherwise with the next bookmark, after up to a minute.
async fn succeed(ctx: &Ctx, resource: &Resource, later: &Object) -> Verdict {
    let limit = Duration::from_secs(90) + ctx.wait_limit();
    let mut number = 0;
    // The controller gives up if the garbage collector, which starts at the same time, has not listed the resource a
    // minute after the creation of the migration. Seen in an emulated guest; a new migration succeeds.
    wait::until("a migration that the garbage collector is ready for", limit, POLL_INTERVAL, || {
        number += 1;
        migrate(ctx, resource, number, later, limit)
    })
    .await?;
    ctx.count("migrations", 1);
    Ok(())
}

/// One migration; the inner error is the reason if the garbage collector was not ready.
async fn migrate(
    ctx: &Ctx,
    resource: &Resource,
    number: u32,
    later: &Object,
    limit: Duration,
) -> Verdict<Result<(), String>> {
    let name = format!("{}-{}-{number}", ctx.name_prefix(), resource.plural);
    let what = json!({"resource": {"group": resource.group, "resource": resource.plural}});
    ctx.api.create(&MIGRATIONS, &Object::new(&MIGRATIONS, &name).with("spec", what)).await?;
    let is_dated = |migration: &Object| migration.0["status"]["resourceVersion"].is_string();
    if let Err(early) = reached(ctx, &name, "the migration to have a resource version", is_dated, limit).await? {
        return Ok(Err(early));
    }
    let later = later.clone().with("metadata.name", format!("{}-{number}", later.name()));
    ctx.api.create(resource, &later).await?;
    let has_succeeded = |migration: &Object| migration.condition("Succeeded").is_some();
    reached(ctx, &name, "the migration to succeed", has_succeeded, limit).await
}

/// Waits until the migration is as wanted. The controller may give up at any time before: it looks for the garbage
/// collector's watch only when the migration has a resource version.
async fn reached(
    ctx: &Ctx,
    name: &str,
    what: &str,
    wanted: fn(&Object) -> bool,
    limit: Duration,
) -> Verdict<Result<(), String>> {
    wait::until(what, limit, POLL_INTERVAL, || async {
        let migration = ctx.api.get(&MIGRATIONS, name).await?;
        if let Some(message) = too_early(&migration) {
            ctx.count("migrations before the garbage collector", 1);
            return Ok(Ok(Err(message)));
        }
        fail_if_failed(&migration)?;
        Ok(if wanted(&migration) { Ok(Ok(())) } else { Err(migration.0["status"].to_string()) })
    })
    .await
}

/// What the controller says of a resource that the garbage collector does not watch yet (kubernetes pkg/controller/
/// storageversionmigrator/storageversionmigrator.go).
fn too_early(migration: &Object) -> Option<String> {
    let failed = migration.condition("Failed")?;
    let message = failed["message"].as_str()?;
    message.contains("resource does not exist in GC").then(|| message.to_owned())
}

const POLL_INTERVAL: Duration = Duration::from_millis(200);

fn fail_if_failed(migration: &Object) -> Verdict {
    expect!(migration.condition("Failed").is_none(), "the migration has failed: {}", migration.0["status"]);
    Ok(())
}

/// Every value must have been rewritten once; `fault` compares the old value with the new one.
async fn rewritten(ctx: &Ctx, before: &Stored, fault: impl Fn(&KeyValue, &KeyValue) -> Option<String>) -> Verdict {
    let now = stored(ctx, &before.resource).await?;
    for old in &before.values {
        let Some(new) = now.values.iter().find(|new| new.key == old.key) else {
            return Err(CheckError::failed(format!("the migration has lost {}", old.key)));
        };
        expect!(new.mod_rev > old.mod_rev, "{} was not rewritten, although the migration has succeeded", old.key);
        let version = ctx.store.expected_key_version(&before.resource, old.version + 1);
        expect_eq!(new.version, version, "version of {} after the migration", old.key);
        expect_none!(fault(old, new), "{} after the migration", old.key);
        ctx.count("values rewritten", 1);
    }
    Ok(())
}

fn is_encrypted(old: &KeyValue, new: &KeyValue, ring: &Keyring) -> Option<String> {
    let prefix = Provider::AesGcm.prefix(KEY_NAME);
    if !new.value.starts_with(prefix.as_bytes()) {
        return Some(format!("it begins with {}, not with `{prefix}`", head(&new.value)));
    }
    match ring.open(&new.value, &new.key) {
        Ok(clear) if clear == old.value => None,
        Ok(clear) => Some(format!("it decrypts to {}, not to the old value", head(&clear))),
        Err(fault) => Some(fault),
    }
}

/// Compares values of a custom resource whose versions differ in nothing else.
fn is_second_version(old: &KeyValue, new: &KeyValue) -> Option<String> {
    let parsed = |kv: &KeyValue| serde_json::from_slice::<Value>(&kv.value).unwrap_or_default();
    let (old, new) = (parsed(old), parsed(new));
    let version = |object: &Value, version: &str| object["apiVersion"].as_str().is_some_and(|v| v.ends_with(version));
    if !version(&old, "/v1") || !version(&new, "/v2") {
        return Some(format!("its version was {} and is {}", old["apiVersion"], new["apiVersion"]));
    }
    (old["spec"] != new["spec"] || old["metadata"]["uid"] != new["metadata"]["uid"])
        .then(|| format!("it was {old} and is {new}"))
}

/// Creates custom resources that are stored as v1, then makes v2 the storage version.
async fn custom_resources(ctx: &Ctx) -> Verdict<Stored> {
    let resource = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    for name in ["a", "b"] {
        ctx.api.create(&resource, &Object::new(&resource, name).with("spec.colour", name)).await?;
    }
    let before = stored(ctx, &resource).await?;
    expect_eq!(before.values.len(), 2, "custom resources in the store");
    let name = format!("{}.{}", resource.plural, resource.group);
    let defined = wait::until("the definition to be changed", ctx.wait_limit(), POLL_INTERVAL, || async {
        // The apiserver may still be writing the definition's status, so an update may conflict.
        let mut definition = ctx.api.get(&DEFINITIONS, &name).await?;
        let versions = &mut definition.0["spec"]["versions"];
        let mut second = versions[0].clone();
        second["name"] = json!("v2");
        versions[0]["storage"] = json!(false);
        *versions = json!([versions[0], second]);
        let answer = ctx.api.try_update(&DEFINITIONS, &definition).await?;
        Ok(if answer.is_success() { Ok(()) } else { Err(answer.to_string()) })
    });
    defined.await?;
    let second = Resource { version: "v2".into(), ..resource };
    ctx.api.wait_until_served(&second).await?;
    Ok(Stored { resource: second, ..before })
}

/// The controller removes the old versions after the migration has succeeded.
async fn only_the_second_version(ctx: &Ctx, resource: &Resource) -> Verdict {
    let name = format!("{}.{}", resource.plural, resource.group);
    wait::until("the definition to name v2 alone as stored", ctx.wait_limit(), POLL_INTERVAL, || async {
        let stored = ctx.api.get(&DEFINITIONS, &name).await?.0["status"]["storedVersions"].clone();
        Ok(if stored == json!(["v2"]) { Ok(()) } else { Err(stored.to_string()) })
    })
    .await
}

/// All stored values of a resource in the namespaces of this case. If the clean-up of an earlier attempt failed, there
/// may be others.
async fn stored(ctx: &Ctx, resource: &Resource) -> Verdict<Stored> {
    let prefix = resource.key_prefix(&ctx.profile().prefix, None);
    let (mut values, _) = ctx.store.of(resource).list(&prefix, 0).await?;
    let namespace = ctx.api.namespace().await?;
    values.retain(|kv| kv.key.contains(namespace));
    Ok(Stored { resource: resource.clone(), values })
}

fn template(name: &str) -> Object {
    Object::new(&POD_TEMPLATES, name).with("template.spec.containers", json!([{"name": "c", "image": "none"}]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unready_garbage_collector_is_tolerated() {
        let migration = |message: &str| {
            let conditions = json!([
                {"type": "Running", "status": "False", "message": "Migration completed"},
                {"type": "Failed", "status": "True", "message": message},
            ]);
            Object::new(&MIGRATIONS, "a").with("status", json!({"conditions": conditions}))
        };
        let early = "migration encountered unhandled error: resource does not exist in GC: %!w(<nil>)";
        assert!(too_early(&migration(early)).is_some());
        assert!(too_early(&migration("migration encountered unhandled error: conflict")).is_none());
        assert!(too_early(&Object::new(&MIGRATIONS, "a")).is_none());
        assert!(fail_if_failed(&migration("conflict")).is_err());
    }
}
