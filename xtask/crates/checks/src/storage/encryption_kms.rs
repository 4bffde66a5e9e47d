//! KMS v2: the stored envelope, and the effect of a new key of the plugin.

use std::time::Duration;

use anyhow::anyhow;

use crate::support::encryption_fixture::{
    KMS_KEYS, KMS_LABEL, Kind, MARKER, clear, file, kinds, sealed, shown, time_out_is_failure, unversioned, write_file,
};
use judge::decrypt::{EncryptedObject, GCM_NONCE, INFO, SEED, TAG, encrypted_object};
use suite::api::Request;
use suite::prelude::*;
use suite::store::KeyValue;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.kmsv2-envelope",
    place: here!(),
    level: Should,
    requirement: "After k8s:enc:kms:v2:<name>: comes an EncryptedObject: encryptedData, the plugin's current keyID, \
                  encryptedDEKSource as the plugin wrapped it (both up to 1 kB), its annotations (up to 32 kB) and the \
                  type HKDF_SHA256_XNONCE_AES_GCM_SEED. When the plugin has a new key ID, old values can be read, and \
                  the next PUT rewrites them under it, even if it changes nothing.",
    source: "KEP-3299; apiserver pkg/storage/value/encrypt/envelope/kmsv2/envelope.go, kmsv2/v2/api.proto, \
             pkg/server/options/encryptionconfig/config.go",
    observed: "The check reads the fields of an object's value, unwraps the seed with the plugin's key and annotation, \
               derives a key from it, and decrypts the data with the etcd key as authenticated data: the result must \
               be the protobuf that the API returns. Then it changes the plugin's current key. The server asks for it \
               once a minute, and sooner when a client requests the plugin's health; from then on a PUT of an \
               unchanged object must make one revision under the new key ID, with the same content, and an object \
               without a PUT must still be readable.",
    by_hand: "etcdctl get --print-value-only /registry/controllerrevisions/default/a | tail -c +22 | head -c -1 | protoc \
              --decode_raw",
    profiles: &["encrypted"],
    requires: Requires::OwnCluster(&[Requirement::Control]),
    run: scenario!(kmsv2_envelope),
}];

/// The limits in envelope.go, 1 kB and 32 kB.
const LARGEST: usize = 1024;
const LARGEST_ANNOTATIONS: usize = 32 * 1024;

async fn kmsv2_envelope(ctx: &Ctx) -> Verdict {
    let [.., kind] = kinds();
    let keys = file(ctx, KMS_KEYS)?;
    let current = keys.lines().find_map(|line| line.strip_prefix("current "));
    let current = current.ok_or_else(|| anyhow!("the plugin's file names no current key"))?;
    wait_until_used(ctx, &kind, current).await?;
    let mut objects = Vec::new();
    for name in ["turned", "left"] {
        let object = ctx.api.create(kind.resource, &kind.object(name, MARKER)).await?;
        objects.push((object, ctx.store.get(kind.resource, name).await?));
    }
    for (object, stored) in &objects {
        envelope(ctx, &kind, object, stored, current).await?;
    }
    let [(turned, old), (left, _)] = &objects[..] else { unreachable!("there are two objects") };
    let again = ctx.api.update(kind.resource, turned).await?;
    expect_eq!(again.rv(), turned.rv(), "resource version after a PUT of {} under its own key", old.key);
    let next = if current == "first" { "second" } else { "first" };
    write_file(ctx, KMS_KEYS, &keys.replace(&format!("current {current}"), &format!("current {next}"))).await?;
    let rewritten = wait_until_rewritten(ctx, &kind, turned).await?;
    let stored = ctx.store.get(kind.resource, "turned").await?;
    let version = ctx.store.expected_key_version(kind.resource, old.version + 1);
    expect_eq!(stored.version, version, "version of {} after the PUT under the new key", stored.key);
    envelope(ctx, &kind, &rewritten, &stored, next).await?;
    expect!(clear(ctx, &stored)? == clear(ctx, old)?, "the PUT of {} has changed its content", stored.key);
    let read = ctx.api.get(kind.resource, "left").await?;
    expect_eq!(read, *left, "the object that is still under the key {current}");
    ctx.count("key IDs", 2);
    Ok(())
}

/// Where the server answers with the health of the plugin, and asks the plugin for its key.
const HEALTH: &str = "/healthz/kms-providers";

/// The server asks the plugin once a minute by itself, and at most every 20 s when its health is requested.
fn limit(ctx: &Ctx) -> Duration {
    Duration::from_secs(70) + ctx.limit(10.0)
}

/// Writes an object until it is stored under this key. An earlier attempt at this case may have changed the key a moment
/// ago.
async fn wait_until_used(ctx: &Ctx, kind: &Kind, key_id: &str) -> Verdict {
    ctx.api.create(kind.resource, &kind.object("probe", MARKER)).await?;
    let what = format!("an object to be stored under the plugin's key {key_id}");
    let used = suite::wait::until(&what, limit(ctx), Duration::from_secs(1), || async {
        let stored = ctx.store.get(kind.resource, "probe").await?;
        let seen = encrypted_object(sealed(&stored)?.body).map_err(CheckError::failed)?.key_id.to_owned();
        if seen == key_id {
            return Ok(Ok(()));
        }
        ctx.api.send(&Request::get(HEALTH)).await?;
        ctx.api.update(kind.resource, &ctx.api.get(kind.resource, "probe").await?).await?;
        Ok(Err(format!("the key {seen}")))
    });
    used.await.map_err(time_out_is_failure)
}

/// Requests the plugin's health and PUTs the unchanged object, until that makes a revision.
async fn wait_until_rewritten(ctx: &Ctx, kind: &Kind, object: &Object) -> Verdict<Object> {
    let what = "a PUT to rewrite an object under the plugin's new key";
    let rewritten = suite::wait::until(what, limit(ctx), Duration::from_secs(1), || async {
        let health = ctx.api.send(&Request::get(HEALTH)).await?;
        let put = ctx.api.update(kind.resource, object).await?;
        let seen = || format!("resource version {}; the plugins' health is {health}", put.rv());
        Ok(if put.rv() > object.rv() { Ok(put) } else { Err(seen()) })
    });
    // The requirement is that the server uses the new key.
    rewritten.await.map_err(time_out_is_failure)
}

/// Checks the envelope and its content.
async fn envelope(ctx: &Ctx, kind: &Kind, object: &Object, stored: &KeyValue, key_id: &str) -> Verdict {
    let parts = sealed(stored)?;
    expect_eq!(parts.provider.prefix(parts.name), kind.prefix(), "prefix of {}", stored.key);
    let envelope =
        encrypted_object(parts.body).map_err(|fault| CheckError::failed(format!("{}: {fault}", stored.key)))?;
    let expected = unversioned(ctx, kind.resource, object.name()).await?;
    expect_none!(fault_of_envelope(&envelope, key_id, expected.len()), "the envelope at {}", stored.key);
    let hidden = shown(parts.body, &[MARKER, object.uid(), ctx.api.namespace().await?]);
    expect!(hidden.is_none(), "{} shows `{}` in the clear", stored.key, hidden.unwrap_or_default());
    expect!(clear(ctx, stored)? == expected, "{} decrypts to other bytes than the API returns", stored.key);
    ctx.count("envelopes opened", 1);
    Ok(())
}

/// The fault of an envelope around `clear` bytes.
fn fault_of_envelope(envelope: &EncryptedObject<'_>, key_id: &str, clear: usize) -> Option<String> {
    let EncryptedObject { data, key_id: seen, source, annotations, source_type, order } = envelope;
    let length = INFO + GCM_NONCE + clear + TAG;
    let annotated: usize = annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted != [1, 2, 3, 4, 5] {
        return Some(format!("it has the fields {order:?}, not each of 1 to 5 once"));
    }
    if *seen != key_id {
        return Some(format!("the key ID is `{seen}`, the plugin's is `{key_id}`"));
    }
    if *source_type != SEED {
        return Some(format!("the type of the wrapped key is {source_type}, not {SEED}, a seed"));
    }
    if source.is_empty() || source.len() > LARGEST || seen.len() > LARGEST || annotated > LARGEST_ANNOTATIONS {
        let (key_id, source) = (seen.len(), source.len());
        return Some(format!("key ID {key_id}, wrapped key {source}, annotations {annotated} bytes: one is too large"));
    }
    if annotations.len() != 1 || annotations[0].0 != KMS_LABEL {
        let names: Vec<&str> = annotations.iter().map(|(name, _)| *name).collect();
        return Some(format!("the annotations are {names:?}, not the plugin's {KMS_LABEL}"));
    }
    (data.len() != length).then(|| format!("the data has {} bytes; {clear} bytes must become {length}", data.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_part_of_an_envelope_is_a_fault() {
        let data = [0; INFO + GCM_NONCE + 5 + TAG];
        let (large, label) = ([0; LARGEST + 1], b"l".as_slice());
        let good = EncryptedObject {
            data: &data,
            key_id: "k",
            source: b"s",
            annotations: vec![(KMS_LABEL, label)],
            source_type: SEED,
            order: vec![1, 2, 3, 4, 5],
        };
        assert_eq!(fault_of_envelope(&good, "k", 5), None);
        for (bad, word) in [
            (EncryptedObject { order: vec![1, 2, 3, 5], ..good.clone() }, "fields"),
            (EncryptedObject { order: vec![1, 2, 3, 4, 5, 6], ..good.clone() }, "fields"),
            (EncryptedObject { key_id: "j", ..good.clone() }, "key ID"),
            (EncryptedObject { source: b"", ..good.clone() }, "too large"),
            (EncryptedObject { source: &large, ..good.clone() }, "too large"),
            (EncryptedObject { source_type: 0, ..good.clone() }, "type"),
            (EncryptedObject { annotations: vec![("other", label)], ..good.clone() }, "annotations"),
            (EncryptedObject { data: &data[1..], ..good.clone() }, "data"),
        ] {
            let fault = fault_of_envelope(&bad, "k", 5).unwrap_or_default();
            assert!(fault.contains(word), "{word}: {fault}");
        }
    }
}
