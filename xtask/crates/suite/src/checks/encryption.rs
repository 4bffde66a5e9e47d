//! Encryption at rest: what the store holds for a resource with a cipher and for one without.
//!
//! The bytes are held against the clear value, which the API's own protobuf answer gives: it is the stored form except
//! for the resource version. AES-GCM is decrypted; for the other two ciphers the lengths must be right.

use anyhow::{Context, anyhow};
use base64::{Engine, engine::general_purpose::STANDARD};
use model::Level::Must;
use model::Resource;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde_json::{Value, json};

use super::bare::without_resource_version;
use super::bytes::{difference, head, position};
use crate::api::{PROTOBUF, Request};
use crate::check::{Check, Stop, Verdict};
use crate::ctx::{Ctx, object_path};
use crate::decode::{ENCRYPTED, Encoding, encoding};
use crate::object::{CONFIG_MAPS, LEASES, Object, POD_TEMPLATES, SECRETS, config_map};
use crate::store::KeyValue;
use crate::{expect, expect_eq, scenario};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.encryption-prefix",
    level: Must,
    requirement: "With an EncryptionConfiguration the values of the listed resources begin with \
                  k8s:enc:<provider>:v1:<key name>: and show nothing of the object, other resources are stored in the \
                  clear, and a GET gives the clear object.",
    source: "apiserver pkg/server/options/encryptionconfig/config.go, pkg/storage/value/encrypt; kubernetes \
             test/integration/controlplane/transformation",
    observed: "A ConfigMap (aescbc), a Secret (aesgcm), a PodTemplate (secretbox) and a Lease (none) that carry a \
               marker. The value's prefix and the length that the cipher makes of the clear value are compared, \
               AES-GCM is decrypted with the key from the configuration and the etcd key as authenticated data, and \
               marker, uid, name and kind are looked for.",
    by_hand: "kube-apiserver --encryption-provider-config=…; kubectl create secret generic a --from-literal=k=v; \
              etcdctl get --print-value-only /registry/secrets/default/a | head -c 30",
    profiles: &["encrypted"],
    needs: &[],
    run: scenario!(encryption_prefix),
}];

/// In every sample: long enough not to turn up in random bytes by chance.
const MARKER: &str = "archproof-plain-text-marker";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cipher {
    AesCbc,
    AesGcm,
    Secretbox,
}

async fn encryption_prefix(ctx: &Ctx) -> Verdict {
    let template = json!({"metadata": {"annotations": {"note": MARKER}},
                          "spec": {"containers": [{"name": "c", "image": "none"}]}});
    let data = STANDARD.encode(MARKER);
    encrypted(ctx, &CONFIG_MAPS, config_map("a").with("data.k", MARKER), Cipher::AesCbc, "cbc").await?;
    encrypted(ctx, &SECRETS, Object::new(&SECRETS, "a").with("data.k", data), Cipher::AesGcm, "gcm").await?;
    let template = Object::new(&POD_TEMPLATES, "a").with("template", template);
    encrypted(ctx, &POD_TEMPLATES, template, Cipher::Secretbox, "box").await?;
    in_the_clear(ctx).await
}

async fn encrypted(ctx: &Ctx, resource: &Resource, object: Object, cipher: Cipher, key_name: &str) -> Verdict {
    let created = ctx.create(resource, &object).await?;
    let name = created.name().to_owned();
    let stored = ctx.must_be_stored(resource, &name).await?;
    let namespace = ctx.namespace().await?;
    let request = Request::get(object_path(resource, namespace, &name)).accept(PROTOBUF);
    let answer = ctx.send(&request).await?;
    expect_eq!(answer.status, 200, "status of {request} as protobuf");
    let clear = without_resource_version(&answer.body).map_err(Stop::failed)?;
    // Had the answer none of it, nothing of it could be found in the value.
    expect!(position(&clear, MARKER.as_bytes()).is_some(), "the clear {} does not carry the marker", resource.kind);
    let hidden = [MARKER, &data_of(&created), created.uid(), namespace, &resource.kind];
    if let Some(fault) = sealed_fault(&stored.value, cipher, key_name, clear.len(), &hidden) {
        return Err(Stop::failed(format!("the value of {}: {fault}", stored.key)));
    }
    if cipher == Cipher::AesGcm {
        let key = key_of(ctx, &resource.plural, "aesgcm", key_name)?;
        expect!(opened(&stored, cipher, key_name, &key)? == clear, "{} decrypts to other bytes", stored.key);
        ctx.count("values decrypted", 1);
    }
    let read = ctx.get(resource, &name).await?;
    if let Some(place) = difference(&created.0, &read.0) {
        return Err(Stop::failed(format!("a GET of a {} is not what was created: {place}", resource.kind)));
    }
    ctx.count("encrypted values", 1);
    Ok(())
}

async fn in_the_clear(ctx: &Ctx) -> Verdict {
    let lease = Object::new(&LEASES, "a").with("spec.holderIdentity", MARKER);
    ctx.create(&LEASES, &lease).await?;
    let stored = ctx.must_be_stored(&LEASES, "a").await?;
    expect_eq!(encoding(&stored.value), Encoding::Protobuf, "encoding of {}, which has no cipher", stored.key);
    expect!(position(&stored.value, MARKER.as_bytes()).is_some(), "{} does not show the marker", stored.key);
    Ok(())
}

/// The Secret's marker as a reader of its JSON would meet it.
fn data_of(object: &Object) -> String {
    object.0["data"]["k"].as_str().unwrap_or(MARKER).to_owned()
}

impl Cipher {
    fn prefix(self, key_name: &str) -> String {
        let provider = match self {
            Cipher::AesCbc => "aescbc",
            Cipher::AesGcm => "aesgcm",
            Cipher::Secretbox => "secretbox",
        };
        format!("k8s:enc:{provider}:v1:{key_name}:")
    }

    /// What it makes of `clear` bytes: IV and padding; nonce and tag; nonce and tag.
    fn length(self, clear: usize) -> usize {
        match self {
            Cipher::AesCbc => 16 + (clear / 16 + 1) * 16,
            Cipher::AesGcm => 12 + clear + 16,
            Cipher::Secretbox => 24 + clear + 16,
        }
    }
}

/// What is wrong with the bytes of an encrypted value whose clear form has `clear` bytes.
fn sealed_fault(value: &[u8], cipher: Cipher, key_name: &str, clear: usize, hidden: &[&str]) -> Option<String> {
    let prefix = cipher.prefix(key_name);
    let Some(sealed) = value.strip_prefix(prefix.as_bytes()) else {
        let encrypted = value.starts_with(ENCRYPTED);
        let seen = String::from_utf8_lossy(&value[..value.len().min(prefix.len())]);
        let seen = if encrypted { format!("`{seen}`") } else { head(value) };
        return Some(format!("begins with {seen}, not with `{prefix}`"));
    };
    if let Some(text) = hidden.iter().find(|text| position(sealed, text.as_bytes()).is_some()) {
        return Some(format!("shows `{text}` in the clear"));
    }
    let length = cipher.length(clear);
    (sealed.len() != length)
        .then(|| format!("has {} bytes behind its prefix; {clear} bytes make {length} with {cipher:?}", sealed.len()))
}

/// The clear form of an AES-GCM value; an error when it was sealed with another key or for another etcd key.
fn opened(stored: &KeyValue, cipher: Cipher, key_name: &str, key: &[u8]) -> Result<Vec<u8>, Stop> {
    let prefix = cipher.prefix(key_name);
    let sealed = stored.value.strip_prefix(prefix.as_bytes()).unwrap_or_default();
    let Some((nonce, sealed)) = sealed.split_first_chunk::<NONCE_LEN>() else {
        return Err(Stop::failed(format!("{} is too short for a nonce", stored.key)));
    };
    let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| anyhow!("the key is not one of AES-256"))?;
    let mut bytes = sealed.to_vec();
    let clear = LessSafeKey::new(key)
        .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(stored.key.as_bytes()), &mut bytes)
        .map_err(|_| {
            Stop::failed(format!("{} does not decrypt with the configured key and its etcd key", stored.key))
        })?;
    Ok(clear.to_vec())
}

/// A key out of the profile's EncryptionConfiguration.
fn key_of(ctx: &Ctx, plural: &str, provider: &str, key_name: &str) -> anyhow::Result<Vec<u8>> {
    let path = ctx.profile().dir.join("encryption.yaml");
    let text = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
    let configuration: Value = serde_yaml::from_slice(&text)?;
    key_in(&configuration, plural, provider, key_name)
        .with_context(|| format!("{} has no {provider} key `{key_name}` for {plural}", path.display()))
}

fn key_in(configuration: &Value, plural: &str, provider: &str, key_name: &str) -> Option<Vec<u8>> {
    let resources = configuration["resources"].as_array()?;
    let entry = resources.iter().find(|e| e["resources"].as_array().is_some_and(|of| of.contains(&json!(plural))))?;
    let providers = entry["providers"].as_array()?.iter();
    let keys: Vec<&Value> = providers.filter_map(|p| p[provider]["keys"].as_array()).flatten().collect();
    let key = keys.into_iter().find(|key| key["name"] == key_name)?;
    STANDARD.decode(key["secret"].as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::PROTOBUF_MAGIC;

    fn sealed(prefix: &str, length: usize) -> Vec<u8> {
        [prefix.as_bytes(), &vec![0xaa; length]].concat()
    }

    #[test]
    fn a_value_is_refused_for_a_wrong_prefix_length_or_text() {
        use Cipher::{AesCbc, AesGcm, Secretbox};
        for (prefix, length, cipher, word) in [
            // A whole block of padding is added to a multiple of 16: 32 bytes make an IV and three blocks.
            ("k8s:enc:aescbc:v1:k:", 64, AesCbc, ""),
            ("k8s:enc:aescbc:v1:k:", 48, AesCbc, "behind its prefix"),
            ("k8s:enc:aesgcm:v1:k:", 60, AesGcm, ""),
            ("k8s:enc:aesgcm:v1:k:", 44, AesGcm, "behind its prefix"),
            ("k8s:enc:secretbox:v1:k:", 72, Secretbox, ""),
            ("k8s:enc:secretbox:v1:k:", 60, Secretbox, "behind its prefix"),
            ("k8s:enc:aescbc:v1:other:", 64, AesCbc, "not with"),
            ("k8s:enc:aesgcm:v1:k:", 64, AesCbc, "not with"),
            ("k8s:enc:aescbc:v2:k:", 64, AesCbc, "not with"),
            ("k8s:enc:aescbc:v1:k", 64, AesCbc, "not with"),
            ("", 64, AesCbc, "aa aa"),
            ("k8s:enc:aescbc:v1:k:with a secret", 31, AesCbc, "in the clear"),
        ] {
            let fault = sealed_fault(&sealed(prefix, length), cipher, "k", 32, &["absent", "secret"]);
            assert_eq!(fault.is_some(), !word.is_empty(), "{prefix} {length}: {fault:?}");
            assert!(fault.unwrap_or_default().contains(word), "{prefix} {length}");
        }
        assert!(sealed_fault(PROTOBUF_MAGIC, AesGcm, "k", 32, &[]).is_some());
    }

    #[test]
    fn aes_gcm_is_bound_to_its_key_and_its_place() {
        let key = [7u8; 32];
        let mut bytes = b"clear".to_vec();
        let sealing = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).unwrap());
        let nonce = [1u8; NONCE_LEN];
        let place = Aad::from(b"/registry/secrets/n/a".as_slice());
        sealing.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), place, &mut bytes).unwrap();
        let value = [b"k8s:enc:aesgcm:v1:k:".as_slice(), &nonce, &bytes].concat();
        let at = |key: &str| KeyValue {
            key: key.into(),
            value: value.clone(),
            create_rev: 1,
            mod_rev: 1,
            version: 1,
            lease: 0,
        };
        let open = |place: &str, key: &[u8]| opened(&at(place), Cipher::AesGcm, "k", key);
        assert_eq!(open("/registry/secrets/n/a", &key).unwrap(), b"clear");
        assert!(open("/registry/secrets/n/b", &key).is_err());
        assert!(open("/registry/secrets/n/a", &[8; 32]).is_err());
    }

    #[test]
    fn the_key_of_a_resource_is_found_by_provider_and_name() {
        let configuration = json!({"resources": [
            {"resources": ["configmaps"], "providers": [{"aescbc": {"keys": [{"name": "k", "secret": "Yw=="}]}}]},
            {"resources": ["secrets"], "providers": [
                {"aesgcm": {"keys": [{"name": "j", "secret": "ag=="}, {"name": "k", "secret": "cw=="}]}},
                {"identity": {}},
            ]},
        ]});
        assert_eq!(key_in(&configuration, "secrets", "aesgcm", "k").unwrap(), b"s");
        assert_eq!(key_in(&configuration, "secrets", "aescbc", "k"), None);
        assert_eq!(key_in(&configuration, "pods", "aesgcm", "k"), None);
    }
}
