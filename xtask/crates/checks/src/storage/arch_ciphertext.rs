//! Values that were encrypted on one architecture and are read on another.

use anyhow::{Context, anyhow};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;

use crate::support::encryption_fixture::{Kind, MARKER, clear, custom, kinds, sealed};
use crate::support::stored_bytes::difference;
use crate::support::verdict::within;
use suite::api::Request;
use suite::ctx::object_path;
use suite::keyring::Keyring;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.arch-ciphertext",
    place: here!(),
    level: Must,
    requirement: "A value that was encrypted on one architecture, by aescbc, aesgcm, secretbox or KMS v2, is read on \
                  every other one as the same object, and the values that are encrypted there decrypt anywhere.",
    source: "apiserver pkg/storage/value/encrypt (aes, secretbox, envelope/kmsv2): Go has other code for AES, GHASH, \
             Poly1305 and SHA-256 on each architecture",
    observed: "targets/golden/ciphertexts.json has a value of each provider from an apiserver of the architecture that \
               it names, with the object that the value contains. The profile's configuration and the KMS plugin have their keys. The check puts each \
               value into the store; a GET and a LIST must return the object. Then it creates an object for each \
               provider and decrypts the stored value with the harness's own ciphers.",
    by_hand: "etcdctl get --print-value-only /registry/secrets/default/a on one machine; etcdctl put the value under \
              the same key on another, whose apiserver has the same --encryption-provider-config; kubectl get secret a \
              -o yaml on both",
    profiles: &["encrypted"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(ciphertext),
}];

const GOLDEN: &str = include_str!("../../../../../targets/golden/ciphertexts.json");
/// A part of the keys with which aesgcm and KMS v2 authenticate the values.
const NAMESPACE: &str = "archproof-golden";
const NAME: &str = "a";

/// A value from an apiserver of another machine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ciphertext {
    /// The place in the store.
    key: String,
    /// The stored bytes, base64.
    value: String,
    /// The object that they contain.
    object: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    /// How the values were made.
    #[serde(rename = "about")]
    _about: Vec<String>,
    ciphertexts: Vec<Ciphertext>,
}

async fn ciphertext(ctx: &Ctx) -> Verdict {
    let golden = golden()?;
    for kind in kinds() {
        let resource = custom(ctx, &kind, "goldenthings", "GoldenThing").await?;
        let key = resource.key(&ctx.profile().prefix, NAMESPACE, NAME);
        let value = golden.iter().find(|value| value.key == key);
        let value = value.ok_or_else(|| anyhow!("targets/golden/ciphertexts.json has no value for {key}"))?;
        let read = read_golden(ctx, &resource, value).await;
        // Also after a failure: the watch cache of the resource does not follow while it has an unreadable value.
        let deleted = ctx.store.of(&resource).delete(&key).await;
        read.map_err(within(format!("{:?}", kind.provider)))?;
        deleted?;
        write_own(ctx, &kind, &resource).await?;
    }
    Ok(())
}

fn golden() -> anyhow::Result<Vec<Ciphertext>> {
    let golden: Golden = serde_json::from_str(GOLDEN).context("failed to parse targets/golden/ciphertexts.json")?;
    Ok(golden.ciphertexts)
}

/// Puts the value into the store and reads it through the API.
async fn read_golden(ctx: &Ctx, resource: &Resource, golden: &Ciphertext) -> Verdict {
    let value = STANDARD.decode(&golden.value).context("a golden value is not base64")?;
    ctx.store.of(resource).put(&golden.key, &value).await?;
    let get = Request::get(object_path(resource, NAMESPACE, NAME));
    let answer = ctx.api.send(&get).await?;
    expect_eq!(answer.status, 200, "status of a GET of the golden value, answered {answer}");
    is_golden(&answer.object()?, &golden.object, "a GET")?;
    let listed = ctx.api.send(&Request::get(resource.path(Some(NAMESPACE)))).await?;
    expect_eq!(listed.status, 200, "status of a LIST with the golden value, answered {listed}");
    let items = listed.object()?.items();
    expect_eq!(items.len(), 1, "objects in a LIST with the golden value");
    is_golden(&items[0], &golden.object, "a LIST")?;
    // Last, because with a key that the harness lacks nothing is known of the server.
    let ring = Keyring::of(ctx.profile()).map_err(|fault| anyhow!(fault))?;
    let plain = ring.open(&value, &golden.key).map_err(|fault| anyhow!("the harness cannot decrypt it: {fault}"))?;
    let plain: Value = serde_json::from_slice(&plain).context("the harness decrypts it to no JSON")?;
    if let Some(difference) = difference(&golden.object, &plain) {
        return Err(anyhow!("the harness decrypts it to another object: {difference}").into());
    }
    ctx.count("golden values", 1);
    Ok(())
}

fn is_golden(object: &Object, expected: &Value, by: &str) -> Verdict {
    let seen = object.clone().without("metadata.resourceVersion");
    expect_none!(difference(expected, &seen.0), "{by} of the golden value returns another object");
    Ok(())
}

/// Creates an object and decrypts its value with the harness's own ciphers.
async fn write_own(ctx: &Ctx, kind: &Kind, resource: &Resource) -> Verdict {
    let object = Object::new(resource, NAME).with("spec.text", MARKER).with("spec.unicode", "é😀\u{2028}");
    let created = ctx.api.create(resource, &object).await?;
    let stored = ctx.store.get(resource, NAME).await?;
    let parts = sealed(&stored)?;
    expect_eq!(parts.provider.prefix(parts.name), kind.prefix(), "prefix of {}", stored.key);
    let plain: Value = serde_json::from_slice(&clear(ctx, &stored)?)
        .map_err(|error| CheckError::failed(format!("{} decrypts to no JSON: {error}", stored.key)))?;
    let expected = created.without("metadata.resourceVersion");
    expect_none!(difference(&expected.0, &plain), "{} decrypts to another object", stored.key);
    ctx.count("values decrypted", 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use judge::decrypt;

    #[test]
    fn golden_values_are_one_of_each_provider_with_the_key_golden() {
        let golden = golden().unwrap();
        let mut seen: Vec<String> = Vec::new();
        for value in &golden {
            let bytes = STANDARD.decode(&value.value).unwrap();
            let parts = decrypt::sealed(&bytes).unwrap().unwrap();
            let name = match parts.provider {
                decrypt::Provider::KmsV2 => decrypt::encrypted_object(parts.body).unwrap().key_id,
                _ => parts.name,
            };
            assert_eq!(name, "golden", "{}", value.key);
            let kind = value.object["kind"].as_str();
            assert_eq!((value.object["metadata"]["name"].as_str(), kind), (Some(NAME), Some("GoldenThing")));
            seen.push(format!("{:?}", parts.provider));
        }
        let expected: Vec<String> = kinds().iter().map(|kind| format!("{:?}", kind.provider)).collect();
        assert_eq!(seen, expected);
    }
}
