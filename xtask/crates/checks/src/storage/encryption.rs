//! Encryption at rest: the stored values of resources with a cipher and of one without.
//!
//! The check compares them with the clear value, which it takes from the API's protobuf answer: that equals the stored
//! form except for the resource version.

use crate::support::encryption_fixture::{Kind, MARKER, clear, kinds, shown, unversioned};
use crate::support::stored_bytes::{difference, head, position};
use judge::decode::{ENCRYPTED, Encoding, encoding};
use suite::object::LEASES;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.encryption-prefix",
    place: here!(),
    level: Must,
    requirement: "With an EncryptionConfiguration the values of the listed resources begin with \
                  k8s:enc:<provider>:v1:<key name>: (KMS v2: k8s:enc:kms:v2:<plugin>:) and show nothing of the object, \
                  other resources are stored in the clear, and a GET returns the clear object.",
    source: "apiserver pkg/server/options/encryptionconfig/config.go, pkg/storage/value/encrypt; kubernetes \
             test/integration/controlplane/transformation",
    observed: "The check creates a ConfigMap (aescbc), a Secret (aesgcm), a PodTemplate (secretbox), a \
               ControllerRevision (KMS v2) and a Lease (none) that contain a marker. It compares the value's prefix \
               and the length that the cipher must give the clear value, decrypts the value with the key from the \
               configuration (KMS v2: of the plugin), and searches it for marker, uid, namespace and kind.",
    by_hand: "kube-apiserver --encryption-provider-config=…; kubectl create secret generic a --from-literal=k=v; \
              etcdctl get --print-value-only /registry/secrets/default/a | head -c 30",
    profiles: &["encrypted"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(encryption_prefix),
}];

async fn encryption_prefix(ctx: &Ctx) -> Verdict {
    for kind in kinds() {
        encrypted(ctx, &kind).await?;
    }
    in_the_clear(ctx).await
}

async fn encrypted(ctx: &Ctx, kind: &Kind) -> Verdict {
    let resource = kind.resource;
    let created = ctx.api.create(resource, &kind.object("a", MARKER)).await?;
    let name = created.name().to_owned();
    let stored = ctx.store.get(resource, &name).await?;
    let namespace = ctx.api.namespace().await?;
    let expected = unversioned(ctx, resource, &name).await?;
    // If the answer did not contain the marker, a search for it in the value would prove nothing.
    expect!(position(&expected, MARKER.as_bytes()).is_some(), "the clear {} does not carry the marker", resource.kind);
    // A Secret has its marker in base64.
    let data = created.0["data"]["k"].as_str().unwrap_or(MARKER);
    let hidden = [MARKER, data, created.uid(), namespace, &resource.kind];
    expect_none!(sealed_fault(&stored.value, kind, expected.len(), &hidden), "the value of {}", stored.key);
    expect!(clear(ctx, &stored)? == expected, "{} decrypts to other bytes", stored.key);
    ctx.count("values decrypted", 1);
    let read = ctx.api.get(resource, &name).await?;
    let place = difference(&created.0, &read.0);
    expect_none!(place, "a GET of a {} differs from the created object", resource.kind);
    ctx.count("encrypted values", 1);
    Ok(())
}

async fn in_the_clear(ctx: &Ctx) -> Verdict {
    let lease = Object::new(&LEASES, "a").with("spec.holderIdentity", MARKER);
    ctx.api.create(&LEASES, &lease).await?;
    let stored = ctx.store.get(&LEASES, "a").await?;
    expect_eq!(encoding(&stored.value), Encoding::Protobuf, "encoding of {}, which has no cipher", stored.key);
    expect!(position(&stored.value, MARKER.as_bytes()).is_some(), "{} does not show the marker", stored.key);
    Ok(())
}

/// The fault of an encrypted value whose clear form has `clear` bytes.
fn sealed_fault(value: &[u8], kind: &Kind, clear: usize, hidden: &[&str]) -> Option<String> {
    let prefix = kind.prefix();
    let Some(sealed) = value.strip_prefix(prefix.as_bytes()) else {
        let encrypted = value.starts_with(ENCRYPTED);
        let seen = String::from_utf8_lossy(&value[..value.len().min(prefix.len())]);
        let seen = if encrypted { format!("`{seen}`") } else { head(value) };
        return Some(format!("begins with {seen}, not with `{prefix}`"));
    };
    if let Some(text) = shown(sealed, hidden) {
        return Some(format!("shows `{text}` in the clear"));
    }
    let (provider, seen) = (kind.provider, sealed.len());
    let length = provider.length(clear)?;
    (seen != length)
        .then(|| format!("has {seen} bytes after its prefix; {provider:?} must make {length} of {clear} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use judge::decode::PROTOBUF_MAGIC;
    use judge::decrypt::Provider::{self, AesCbc, AesGcm, KmsV2, Secretbox};

    fn sealed(prefix: &str, length: usize) -> Vec<u8> {
        [prefix.as_bytes(), &vec![0xaa; length]].concat()
    }

    fn kind(provider: Provider) -> Kind {
        Kind { provider, name: "k", resource: &LEASES }
    }

    #[test]
    fn wrong_prefix_length_or_clear_text_is_a_fault() {
        for (prefix, length, provider, word) in [
            // Padding adds a whole block to a multiple of 16: 32 bytes become an IV and three blocks.
            ("k8s:enc:aescbc:v1:k:", 64, AesCbc, ""),
            ("k8s:enc:aescbc:v1:k:", 48, AesCbc, "after its prefix"),
            ("k8s:enc:aesgcm:v1:k:", 60, AesGcm, ""),
            ("k8s:enc:aesgcm:v1:k:", 44, AesGcm, "after its prefix"),
            ("k8s:enc:secretbox:v1:k:", 72, Secretbox, ""),
            ("k8s:enc:secretbox:v1:k:", 60, Secretbox, "after its prefix"),
            ("k8s:enc:kms:v2:k:", 200, KmsV2, ""),
            ("k8s:enc:kms:v1:k:", 200, KmsV2, "not with"),
            ("k8s:enc:aescbc:v1:other:", 64, AesCbc, "not with"),
            ("k8s:enc:aesgcm:v1:k:", 64, AesCbc, "not with"),
            ("k8s:enc:aescbc:v2:k:", 64, AesCbc, "not with"),
            ("k8s:enc:aescbc:v1:k", 64, AesCbc, "not with"),
            ("", 64, AesCbc, "aa aa"),
            ("k8s:enc:aescbc:v1:k:with a secret", 31, AesCbc, "in the clear"),
        ] {
            let fault = sealed_fault(&sealed(prefix, length), &kind(provider), 32, &["absent", "secret"]);
            assert_eq!(fault.is_some(), !word.is_empty(), "{prefix} {length}: {fault:?}");
            assert!(fault.unwrap_or_default().contains(word), "{prefix} {length}");
        }
        assert!(sealed_fault(PROTOBUF_MAGIC, &kind(AesGcm), 32, &[]).is_some());
    }
}
