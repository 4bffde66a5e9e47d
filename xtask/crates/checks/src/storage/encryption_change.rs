//! Changes of the EncryptionConfiguration: new and old keys, with and without a restart.

use std::time::Duration;

use anyhow::anyhow;
use serde_json::{Value, json};

use crate::support::encryption_fixture::{
    CONFIGURATION, clear, configuration, file, fresh_key, is_loaded, provider, time_out_is_failure, wait_until_loaded,
    write_file,
};
use crate::support::stored_bytes::head;
use judge::decrypt::Provider;
use suite::api::Request;
use suite::object::{POD_DISRUPTION_BUDGETS, REPLICATION_CONTROLLERS, SECRETS, STORAGE_CAPACITIES};
use suite::prelude::*;
use suite::store::KeyValue;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.encryption-reload",
        place: here!(),
        level: Should,
        requirement: "With --encryption-provider-config-automatic-reload a changed EncryptionConfiguration takes \
                      effect without a restart, within little more than a minute; an invalid one is refused, and the \
                      previous one stays in effect.",
        source: "apiserver pkg/server/options/encryptionconfig/controller/controller.go \
                 (EncryptionConfigFileChangePollDuration)",
        observed: "The check adds an invalid entry to the file; after the metrics have counted a failed reload, values \
                   must be written and read as before. Then it adds a new first key for a resource that no other check \
                   uses: when the digest of the loaded file is the new one, a write must have the new key's prefix and \
                   decrypt with it, earlier values must be readable, and the process must still be the same.",
        by_hand: "sed -i … encryption.yaml; kubectl get --raw /metrics | grep encryption_config_controller; \
                  kubectl annotate csistoragecapacity a x=y; etcdctl get --print-value-only \
                  /registry/csistoragecapacities/default/a | head -c 30",
        profiles: &["encrypted"],
        requires: Requires::OwnCluster(&[Requirement::Control]),
        run: scenario!(encryption_reload),
    },
    Check {
        id: "storage.encryption-rotate",
        place: here!(),
        level: Should,
        requirement: "With a new first provider or key and the old one after it, old values can be read, and the next \
                      PUT rewrites them even if it changes nothing: with the new prefix and a new resource version. \
                      After all values are rewritten, the old provider can be removed. The same holds for values that \
                      were written before the resource was encrypted.",
        source: "apiserver pkg/storage/value/transformer.go (stale), pkg/storage/etcd3/store.go (GuaranteedUpdate); \
                 kubernetes test/integration/controlplane/transformation",
        observed: "The check creates objects of a resource that is stored in the clear and of one with an old key, and \
                   restarts the server with new first providers. GET and LIST must return the same objects; a PUT of \
                   each unchanged object must make one revision, whose value has the new prefix and decrypts to the \
                   same bytes, and a second PUT none. After a restart without the old providers the server must return \
                   the same objects.",
        by_hand: "kubectl get pdb a -o json | kubectl replace -f -; etcdctl get --print-value-only \
                  /registry/poddisruptionbudgets/default/a | head -c 30 (before and after a new first key)",
        profiles: &["encrypted"],
        requires: Requires::OwnCluster(&[Requirement::Exclusive, Requirement::Control]),
        run: scenario!(encryption_rotate),
    },
];

/// The server's poll interval for the file (controller.go).
const POLL: Duration = Duration::from_secs(60);

async fn encryption_reload(ctx: &Ctx) -> Verdict {
    // An earlier attempt at this case may have changed the file a moment ago.
    wait_until_loaded(ctx).await?;
    let original = configuration(ctx)?;
    let started = metric(ctx, "process_start_time_seconds").await?;
    let failures = metric(ctx, FAILURES).await?;
    let before = create_capacity(ctx, "before").await?;
    let mut broken = original.clone();
    // Capital letters are not allowed; programs that read the keys from the file still find all of them.
    let wrong = provider("aesgcm", "wrong", &fresh_key()?);
    entries(&mut broken)?.push(json!({"resources": ["ConfigMaps"], "providers": [wrong]}));
    write_configuration(ctx, &broken).await?;
    let refused = while_broken(ctx, &before, &failures).await;
    // Replace the broken file even after a failure.
    let name = format!("reload-{}", nonce());
    let mut changed = original.clone();
    put_first(&mut changed, "csistoragecapacities.storage.k8s.io", provider("aesgcm", &name, &fresh_key()?))?;
    let text = write_configuration(ctx, &changed).await?;
    refused?;
    loaded(ctx, &text).await?;
    let after = create_capacity(ctx, "after").await?;
    has_prefix(&after, &Provider::AesGcm.prefix(&name))?;
    clear(ctx, &after)?;
    for object in ["before", "during", "after"] {
        let read = ctx.api.try_get(&STORAGE_CAPACITIES, object, "").await?;
        expect!(read.is_success(), "a GET of `{object}` after the reload is answered {read}");
    }
    expect_eq!(metric(ctx, "process_start_time_seconds").await?, started, "start of the process after the reload");
    Ok(())
}

/// Waits until the server has refused the broken file; then everything must work as before.
async fn while_broken(ctx: &Ctx, before: &KeyValue, failures: &str) -> Verdict {
    let limit = POLL + ctx.limit(15.0);
    let what = "the metrics to count a failed reload of the encryption configuration";
    let counted = suite::wait::until(what, limit, Duration::from_millis(500), || async {
        let now = metric(ctx, FAILURES).await?;
        Ok(if now == failures { Err(format!("`{now}`")) } else { Ok(()) })
    });
    counted.await.map_err(time_out_is_failure)?;
    let during = create_capacity(ctx, "during").await?;
    expect_eq!(prefix(&during), prefix(before), "prefix of {} while the file is broken", during.key);
    ctx.api.create(&SECRETS, &Object::new(&SECRETS, "during")).await?;
    let secret = ctx.store.get(&SECRETS, "during").await?;
    has_prefix(&secret, &Provider::AesGcm.prefix("gcm"))?;
    clear(ctx, &secret)?;
    ctx.count("broken files refused", 1);
    Ok(())
}

/// The metric of failed reloads.
const FAILURES: &str = "apiserver_encryption_config_controller_automatic_reloads_total{status=\"failure\"}";

async fn loaded(ctx: &Ctx, text: &str) -> Verdict {
    let what = "the changed encryption configuration to be loaded";
    let limit = POLL + ctx.limit(15.0);
    let seen = suite::wait::until(what, limit, Duration::from_millis(500), || async { is_loaded(ctx, text).await });
    seen.await.map_err(time_out_is_failure)?;
    ctx.count("files reloaded", 1);
    Ok(())
}

/// The samples of a metric, `NAME{LABEL}` or `NAME`; empty if there are none.
async fn metric(ctx: &Ctx, name: &str) -> Verdict<String> {
    let answer = ctx.api.send(&Request::get("/metrics")).await?;
    expect_eq!(answer.status, 200, "status of the metrics");
    let (family, label) = name.trim_end_matches('}').split_once('{').unwrap_or((name, ""));
    let text = String::from_utf8_lossy(&answer.body);
    let lines = text.lines().filter(|line| line.starts_with(family) && line.contains(label));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

async fn create_capacity(ctx: &Ctx, name: &str) -> Verdict<KeyValue> {
    let object = Object::new(&STORAGE_CAPACITIES, name).with("storageClassName", "any");
    ctx.api.create(&STORAGE_CAPACITIES, &object).await?;
    ctx.store.get(&STORAGE_CAPACITIES, name).await
}

async fn encryption_rotate(ctx: &Ctx) -> Verdict {
    wait_until_loaded(ctx).await?;
    let original = file(ctx, CONFIGURATION)?;
    let verdict = rotated(ctx).await;
    // Delete the values that only the new keys can decrypt before removing those; the server reloads the file itself.
    let deleted = delete_samples(ctx).await;
    let restored = write_file(ctx, CONFIGURATION, &original).await;
    verdict.and(deleted).and(restored)
}

async fn delete_samples(ctx: &Ctx) -> Verdict {
    for (resource, _) in samples() {
        for name in NAMES {
            ctx.api.try_delete(resource, name, &Value::Null).await?;
        }
    }
    Ok(())
}

const NAMES: [&str; 2] = ["a", "b"];

/// Resources with the old prefix of their values; empty if they are stored in the clear.
fn samples() -> [(&'static Resource, String); 2] {
    [(&REPLICATION_CONTROLLERS, String::new()), (&POD_DISRUPTION_BUDGETS, Provider::Secretbox.prefix("old"))]
}

async fn rotated(ctx: &Ctx) -> Verdict {
    let name = format!("turn-{}", nonce());
    let keys = [provider("aesgcm", &name, &fresh_key()?), provider("aescbc", &name, &fresh_key()?)];
    let prefixes = [Provider::AesGcm.prefix(&name), Provider::AesCbc.prefix(&name)];
    let mut first = Vec::new();
    for (resource, old) in samples() {
        for name in NAMES {
            let object = ctx.api.create(resource, &Object::new(resource, name).with("spec", spec(resource))).await?;
            let stored = ctx.store.get(resource, name).await?;
            has_prefix(&stored, &old)?;
            let clear = !stored.value.starts_with(b"k8s:enc:");
            expect!(clear || !old.is_empty(), "{} is encrypted already", stored.key);
            first.push((resource, object, stored));
        }
    }
    let mut turned = configuration(ctx)?;
    for (resource, key) in ["replicationcontrollers", "poddisruptionbudgets.policy"].into_iter().zip(&keys) {
        put_first(&mut turned, resource, key.clone())?;
    }
    restart_with(ctx, &turned).await?;
    let mut rewritten = Vec::new();
    for (resource, object, stored) in first {
        let prefix = if *resource == *REPLICATION_CONTROLLERS { &prefixes[0] } else { &prefixes[1] };
        rewritten.push((resource, rewrite(ctx, resource, &object, &stored, prefix).await?));
    }
    // Keep only the new keys.
    for (resource, key) in ["replicationcontrollers", "poddisruptionbudgets.policy"].into_iter().zip(keys) {
        *entry(&mut turned, resource)? = json!({"resources": [resource], "providers": [key]});
    }
    restart_with(ctx, &turned).await?;
    for (resource, object) in &rewritten {
        same(ctx, resource, object).await?;
    }
    for (resource, _) in samples() {
        let listed = ctx.api.list(resource, "").await?.items().len();
        expect_eq!(listed, NAMES.len(), "objects in a list of {} without the old key", resource.plural);
    }
    Ok(())
}

/// Sends a PUT of the unchanged object twice. Returns the object after the first one.
async fn rewrite(ctx: &Ctx, resource: &Resource, object: &Object, stored: &KeyValue, prefix: &str) -> Verdict<Object> {
    same(ctx, resource, object).await?;
    let listed = ctx.api.list(resource, "").await?;
    expect!(listed.items().iter().any(|item| item.uid() == object.uid()), "a list lacks {}", stored.key);
    let still = ctx.store.get(resource, object.name()).await?;
    expect!(still == *stored, "{} was rewritten without a request", stored.key);
    let put = ctx.api.update(resource, object).await?;
    let anew = ctx.store.get(resource, object.name()).await?;
    expect!(put.rv() > object.rv(), "a PUT of the old value at {} has not rewritten it", stored.key);
    let expected = (put.rv(), ctx.store.expected_key_version(resource, stored.version + 1));
    expect_eq!((anew.mod_rev.cast_unsigned(), anew.version), expected, "revision of {}", anew.key);
    has_prefix(&anew, prefix)?;
    let old = if stored.value.starts_with(b"k8s:enc:") { clear(ctx, stored)? } else { stored.value.clone() };
    expect!(clear(ctx, &anew)? == old, "a PUT of {} that changes nothing has changed its content", anew.key);
    let again = ctx.api.update(resource, &put).await?;
    expect_eq!(again.rv(), put.rv(), "resource version after a second PUT of {}", anew.key);
    ctx.count("values written anew", 1);
    Ok(put)
}

async fn same(ctx: &Ctx, resource: &Resource, object: &Object) -> Verdict {
    let read = ctx.api.try_get(resource, object.name(), "").await?;
    expect!(read.is_success(), "a GET of {} `{}` is answered {read}", resource.kind, object.name());
    expect_eq!(read.object()?, *object, "{} `{}` after a change of keys", resource.kind, object.name());
    Ok(())
}

/// Writes the configuration where the server reads it; returns its text.
async fn write_configuration(ctx: &Ctx, configuration: &Value) -> Verdict<String> {
    let text = serde_json::to_string_pretty(configuration).map_err(anyhow::Error::from)?;
    write_file(ctx, CONFIGURATION, &text).await?;
    Ok(text)
}

async fn restart_with(ctx: &Ctx, configuration: &Value) -> Verdict {
    write_configuration(ctx, configuration).await?;
    ctx.control.restart_with(&[]).await
}

fn spec(resource: &Resource) -> Value {
    if resource.kind == "PodDisruptionBudget" {
        return json!({"minAvailable": 1});
    }
    json!({"replicas": 0, "selector": {"a": "b"}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "none"}]},
    }})
}

// Edits of the configuration as JSON.

fn entries(configuration: &mut Value) -> anyhow::Result<&mut Vec<Value>> {
    configuration["resources"].as_array_mut().ok_or_else(|| anyhow!("the configuration lists no resources"))
}

/// The entry of a resource; a missing one is added, with values in the clear.
fn entry<'a>(configuration: &'a mut Value, resource: &str) -> anyhow::Result<&'a mut Value> {
    let entries = entries(configuration)?;
    let is_it = |entry: &Value| entry["resources"].as_array().is_some_and(|of| of.contains(&json!(resource)));
    let at = entries.iter().position(is_it).unwrap_or_else(|| {
        entries.push(json!({"resources": [resource], "providers": [{"identity": {}}]}));
        entries.len() - 1
    });
    Ok(&mut entries[at])
}

fn put_first(configuration: &mut Value, resource: &str, provider: Value) -> anyhow::Result<()> {
    let providers = entry(configuration, resource)?["providers"].as_array_mut();
    providers.ok_or_else(|| anyhow!("{resource} has no providers"))?.insert(0, provider);
    Ok(())
}

/// A part of a key's name that no other case of the cluster has used. Not seeded: a second run with the same seed on
/// the same cluster must not reuse the names of its old keys.
fn nonce() -> String {
    format!("{:08x}", fastrand::u32(..))
}

/// `k8s:enc:<provider>:v1:<key name>:`, or empty.
fn prefix(stored: &KeyValue) -> String {
    match judge::decrypt::sealed(&stored.value) {
        Ok(Some(parts)) => parts.provider.prefix(parts.name),
        _ => String::new(),
    }
}

fn has_prefix(stored: &KeyValue, prefix: &str) -> Verdict {
    let seen = head(&stored.value);
    expect!(stored.value.starts_with(prefix.as_bytes()), "{} begins with {seen}, not with `{prefix}`", stored.key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_provider_is_put_first() {
        let mut configuration = json!({"resources": [{"resources": ["a"], "providers": [{"old": 1}]}]});
        put_first(&mut configuration, "a", json!({"new": 1})).unwrap();
        put_first(&mut configuration, "b", json!({"new": 2})).unwrap();
        assert_eq!(
            configuration,
            json!({"resources": [
                {"resources": ["a"], "providers": [{"new": 1}, {"old": 1}]},
                {"resources": ["b"], "providers": [{"new": 2}, {"identity": {}}]},
            ]})
        );
        assert!(put_first(&mut json!({}), "a", json!(1)).is_err());
    }
}
