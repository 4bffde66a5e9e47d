//! Encryption at rest, held against values that are put into the store behind the server's back: what a ciphertext is
//! bound to, what is answered for a value that cannot be decrypted, and that no two writes look alike.

use std::collections::BTreeSet;

use anyhow::anyhow;
use model::Level::Should;
use model::Resource;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde_json::json;

use super::bytes::position;
use super::sealing::{Kind, clear, kinds, recovered, sealed, settled};
use crate::api::Response;
use crate::check::{Check, Need, Stop, Verdict};
use crate::ctx::Ctx;
use crate::decrypt::{self, Provider};
use crate::object::{CONFIG_MAPS, INGRESSES, Object};
use crate::{expect, expect_eq, scenario};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.encryption-random",
        level: Should,
        requirement: "Two writes of the same content have different ciphertexts: each begins with a fresh IV or nonce \
                      (aescbc 16 bytes, aesgcm 12, secretbox 24; KMS v2 32 bytes for the key and 12 more), and nothing \
                      behind it is alike.",
        source: "apiserver pkg/storage/value/encrypt/aes, secretbox, envelope/kmsv2",
        observed: "For each provider an object is changed there and back, without managedFields, so that the clear values \
                   of the first and the last write are equal, which decryption proves. Their ciphertexts are compared \
                   in blocks of 16 bytes, and the nonces of all writes with each other.",
        by_hand: "kubectl label secret a x=1; etcdctl get --print-value-only /registry/secrets/default/a | xxd >1; \
                  kubectl label secret a --overwrite x=2; kubectl label secret a --overwrite x=1; (again >2; diff)",
        profiles: &["encrypted"],
        needs: &[],
        run: scenario!(encryption_random),
    },
    Check {
        id: "storage.encryption-aad",
        level: Should,
        requirement: "aesgcm and KMS v2 bind a value to its key in the store: copied to another key it is answered 500 \
                      InternalError. aescbc and secretbox do not: the copy is read there.",
        source: "apiserver pkg/storage/value/encrypt/aes/aes.go, aes_extended_nonce.go, secretbox/secretbox.go \
                 (AuthenticatedData is the etcd key)",
        observed: "For each provider an object's value is put, byte by byte, at its own key and at that of another name. \
                   At its own key it must be read in every case.",
        by_hand: "etcdctl get --print-value-only /registry/secrets/default/a | head -c -1 | etcdctl put \
                  /registry/secrets/default/b; kubectl get secret b",
        profiles: &["encrypted"],
        // A value that cannot be read stops the server's cache of its resource.
        needs: &[Need::Exclusive],
        run: scenario!(encryption_aad),
    },
    Check {
        id: "storage.encryption-wrong-key",
        level: Should,
        requirement: "A GET of a value that no provider of its resource can decrypt is answered 500 InternalError, and so \
                      is a LIST of its resource with the resource version unset; a GET of another object of the \
                      resource and other resources are answered as always. A resource without encryption refuses \
                      values that begin with k8s:enc:.",
        source: "apiserver pkg/storage/value/transformer.go, pkg/storage/value/encrypt/identity/identity.go, \
                 pkg/storage/etcd3/store.go; kubernetes test/integration/controlplane/transformation",
        observed: "Values are put into the store: one of another provider, one under another key's name, one sealed with \
                   another key under the right name, one that names another key of the KMS plugin, and an encrypted one \
                   of a resource that is not encrypted. Each is asked for by GET and LIST, with an object beside it.",
        by_hand: "etcdctl get --print-value-only /registry/configmaps/default/a | head -c -1 | etcdctl put \
                  /registry/secrets/default/b; kubectl get secret b; kubectl get secrets; kubectl get secret a",
        profiles: &["encrypted"],
        needs: &[Need::Exclusive],
        run: scenario!(encryption_wrong_key),
    },
];

async fn encryption_random(ctx: &Ctx) -> Verdict {
    let mut nonces = BTreeSet::new();
    for kind in kinds() {
        let mut object = kind.object("a", "the same text").with("metadata.managedFields", json!([{}]));
        let mut written = Vec::new();
        for label in ["there", "elsewhere", "there"] {
            let wanted = object.with("metadata.labels.place", label).with("metadata.managedFields", json!([{}]));
            object = match written.is_empty() {
                true => ctx.create(kind.resource, &wanted).await?,
                false => ctx.update(kind.resource, &wanted).await?,
            };
            let stored = ctx.must_be_stored(kind.resource, "a").await?;
            expect_eq!(stored.mod_rev.cast_unsigned(), object.rv(), "revision of {}", stored.key);
            let nonce = nonce(&kind, sealed(&stored)?.body)?;
            expect!(nonces.insert(nonce), "{:?} used an IV or nonce twice at {}", kind.provider, stored.key);
            written.push((clear(ctx, &stored)?, stored));
        }
        let [(first, one), (_, _), (last, other)] = &written[..] else { unreachable!("there were three writes") };
        if first != last {
            return Err(Stop::Errored(anyhow!("not exercised: two writes of {} had other contents", one.key)));
        }
        expect!(kind_of_last(&written), "the change in between is not in the value of {}", one.key);
        if let Some(at) = alike(&body(&kind, &one.value)?, &body(&kind, &other.value)?) {
            let provider = kind.provider;
            return Err(Stop::failed(format!("{provider:?}: two writes of {} are alike at byte {at}", one.key)));
        }
        ctx.count("equal writes compared", 1);
    }
    ctx.count("nonces", nonces.len() as u64);
    Ok(())
}

/// Whether the write in the middle had another content.
fn kind_of_last<T>(written: &[(Vec<u8>, T)]) -> bool {
    written[0].0 != written[1].0
}

/// What the provider encrypted, with its nonce.
fn body(kind: &Kind, value: &[u8]) -> Result<Vec<u8>, Stop> {
    let parts = decrypt::sealed(value).map_err(Stop::failed)?.ok_or_else(|| Stop::failed("a value is clear"))?;
    Ok(match kind.provider {
        Provider::KmsV2 => decrypt::encrypted_object(parts.body).map_err(Stop::failed)?.data.to_vec(),
        _ => parts.body.to_vec(),
    })
}

/// The random bytes in front; with the provider, because they differ in length.
fn nonce(kind: &Kind, body: &[u8]) -> Result<(Provider, Vec<u8>), Stop> {
    let (bytes, length) = match kind.provider {
        Provider::KmsV2 => {
            let object = decrypt::encrypted_object(body).map_err(Stop::failed)?;
            (object.data, decrypt::INFO + decrypt::GCM_NONCE)
        }
        provider => (body, provider.nonce()),
    };
    let nonce = bytes.get(..length).ok_or_else(|| Stop::failed(format!("{:?}: shorter than a nonce", kind.provider)))?;
    Ok((kind.provider, nonce.to_vec()))
}

/// The first block of 16 bytes that both have at the same place.
fn alike(one: &[u8], other: &[u8]) -> Option<usize> {
    one.chunks_exact(16).zip(other.chunks_exact(16)).position(|(a, b)| a == b).map(|block| block * 16)
}

async fn encryption_aad(ctx: &Ctx) -> Verdict {
    settled(ctx).await?;
    for kind in kinds() {
        ctx.create(kind.resource, &kind.object("a", "bound")).await?;
        let key = ctx.key(kind.resource, "copy").await?;
        let verdict = copied(ctx, &kind, &key).await;
        remove(ctx, &[(kind.resource, key)]).await?;
        verdict?;
        // By name: to the server's cache the copy was the object, which it has now forgotten.
        ctx.delete(kind.resource, "a").await?;
    }
    Ok(())
}

async fn copied(ctx: &Ctx, kind: &Kind, key: &str) -> Verdict {
    let Kind { provider, resource, .. } = kind;
    let stored = ctx.must_be_stored(resource, "a").await?;
    ctx.store(resource).put(&stored.key, &stored.value).await?;
    let own = ctx.try_get(resource, "a", "").await?;
    expect!(own.is_success(), "{provider:?}: a value put back at its own key is answered {own}");
    ctx.store(resource).put(key, &stored.value).await?;
    let copy = ctx.try_get(resource, "copy", "").await?;
    if matches!(provider, Provider::AesGcm | Provider::KmsV2) {
        let refused = copy.is(500, "InternalError") && copy.message().contains("message authentication failed");
        expect!(refused, "{provider:?}: a copy at another key is answered {copy}");
        ctx.count("copies refused", 1);
    } else {
        expect!(copy.is_success(), "{provider:?}: a copy at another key is answered {copy}");
        let (copy, own) = (copy.object()?, own.object()?);
        expect_eq!(copy.uid(), own.uid(), "{provider:?}: uid in the copy");
        ctx.count("copies read", 1);
    }
    Ok(())
}

/// A value that must not be readable, and the words that the server says of it.
struct Unreadable {
    resource: &'static Resource,
    name: &'static str,
    value: Vec<u8>,
    says: &'static str,
}

async fn encryption_wrong_key(ctx: &Ctx) -> Verdict {
    settled(ctx).await?;
    for kind in kinds() {
        ctx.create(kind.resource, &kind.object("a", "beside")).await?;
    }
    let backend = json!({"service": {"name": "a", "port": {"number": 80}}});
    ctx.create(&INGRESSES, &Object::new(&INGRESSES, "a").with("spec.defaultBackend", backend)).await?;
    let mut places = Vec::new();
    let verdict = unreadable_values(ctx, &mut places).await;
    remove(ctx, &places).await?;
    verdict
}

async fn unreadable_values(ctx: &Ctx, places: &mut Vec<(&'static Resource, String)>) -> Verdict {
    for Unreadable { resource, name, value, says } in unreadable(ctx).await? {
        let key = ctx.key(resource, name).await?;
        places.push((resource, key.clone()));
        ctx.store(resource).put(&key, &value).await?;
        refused(&ctx.try_get(resource, name, "").await?, says, &format!("a GET of {key}"))?;
        refused(&ctx.try_list(resource, "").await?, says, &format!("a LIST with {key}"))?;
        let beside = ctx.try_get(resource, "a", "").await?;
        expect!(beside.is_success(), "beside {key} another object is answered {beside}");
        ctx.count("values refused", 1);
        // Only one at a time: a LIST tells the first that it cannot read.
        ctx.store(resource).delete(&key).await?;
    }
    let others = ctx.try_list(&CONFIG_MAPS, "").await?;
    expect!(others.is_success(), "a LIST of another resource is answered {others}");
    Ok(())
}

async fn unreadable(ctx: &Ctx) -> Result<Vec<Unreadable>, Stop> {
    let [cbc, gcm, _, kms] = kinds();
    let of_cbc = ctx.must_be_stored(cbc.resource, "a").await?.value;
    let stored = ctx.must_be_stored(gcm.resource, "a").await?;
    let clear = clear(ctx, &stored)?;
    let body = sealed(&stored)?.body;
    let renamed = [gcm.provider.prefix("another").as_bytes(), body].concat();
    let place = ctx.key(gcm.resource, "other-key").await?;
    let of_other_key = [gcm.prefix().as_bytes(), &sealed_with_another_key(&clear, &place)?].concat();
    let of_kms = ctx.must_be_stored(kms.resource, "a").await?;
    let of_no_key = with_another_key_id(&of_kms.value)?;
    let no_provider = "no matching prefix found";
    Ok(vec![
        Unreadable { resource: gcm.resource, name: "other-provider", value: of_cbc.clone(), says: no_provider },
        Unreadable { resource: gcm.resource, name: "other-name", value: renamed, says: no_provider },
        Unreadable {
            resource: gcm.resource,
            name: "other-key",
            value: of_other_key,
            says: "cipher: message authentication failed",
        },
        Unreadable { resource: kms.resource, name: "no-key", value: of_no_key, says: "failed to decrypt DEK" },
        Unreadable {
            resource: &INGRESSES,
            name: "encrypted",
            value: of_cbc,
            says: "identity transformer tried to read encrypted data",
        },
    ])
}

/// What AES-GCM makes of the bytes at this place with a key that nobody has.
fn sealed_with_another_key(clear: &[u8], place: &str) -> Result<Vec<u8>, Stop> {
    let key = UnboundKey::new(&AES_256_GCM, &[0x5a; 32]).map_err(|_| anyhow!("no key of AES-256"))?;
    let nonce = [0x17; NONCE_LEN];
    let mut bytes = clear.to_vec();
    LessSafeKey::new(key)
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(place.as_bytes()), &mut bytes)
        .map_err(|_| anyhow!("AES-GCM refused to seal a value"))?;
    Ok([&nonce[..], &bytes].concat())
}

/// The same value with a key ID of the same length that the plugin does not know.
fn with_another_key_id(value: &[u8]) -> Result<Vec<u8>, Stop> {
    let parts = decrypt::sealed(value).map_err(Stop::failed)?.ok_or_else(|| Stop::failed("a value is clear"))?;
    let id = decrypt::encrypted_object(parts.body).map_err(Stop::failed)?.key_id;
    // With the number of its field and its length, so that it is not found by chance in the random bytes before it.
    let field = [&[0x12, u8::try_from(id.len()).unwrap_or_default()], id.as_bytes()].concat();
    let at = position(value, &field).ok_or_else(|| Stop::Errored(anyhow!("the key ID is not in the value")))? + 2;
    let mut other = value.to_vec();
    other[at..at + id.len()].fill(b'x');
    Ok(other)
}

fn refused(answer: &Response, says: &str, what: &str) -> Verdict {
    expect!(answer.is(500, "InternalError") && answer.message().contains(says), "{what} is answered {answer}");
    Ok(())
}

/// Takes values out of the store, and waits until the server lists those resources again: others need them.
async fn remove(ctx: &Ctx, places: &[(&'static Resource, String)]) -> Verdict {
    for (resource, key) in places {
        ctx.store(resource).delete(key).await?;
    }
    for (resource, _) in places {
        recovered(ctx, resource).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_blocks_are_found_at_their_place() {
        let one = [[1; 16], [2; 16], [3; 16]].concat();
        let other = [[2; 16], [2; 16], [4; 16]].concat();
        assert_eq!(alike(&one, &other), Some(16));
        assert_eq!(alike(&one[..16], &other[..16]), None);
    }

    #[test]
    fn the_key_id_is_replaced_and_nothing_else() {
        let value = b"k8s:enc:kms:v2:vault:\x0a\x03key\x12\x03key\x1a\x01w";
        let other = with_another_key_id(value).unwrap();
        assert_eq!(other, b"k8s:enc:kms:v2:vault:\x0a\x03key\x12\x03xxx\x1a\x01w");
    }
}
