//! Every codec with every cipher: the decrypted value must be the codec's bytes.

use crate::support::encryption_fixture::{Kind, MARKER, clear, custom, kinds, sealed, shown};
use crate::support::stored_bytes::{difference, json_fault, position, protobuf_fault, yaml_fault};
use crate::support::strip_resource_version::strip_resource_version;
use suite::api::{JSON, PROTOBUF, Request};
use suite::ctx::object_path;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.codec-matrix",
    place: here!(),
    level: Should,
    requirement: "For every media type of storage (protobuf, JSON, YAML; JSON for custom resources) and every provider \
                  (aescbc, aesgcm, secretbox, KMS v2), a value has the provider's prefix, shows nothing of the object, \
                  decrypts to exactly the bytes of the codec, and can be read through the API, also by a server with \
                  another media type.",
    source: "apiserver pkg/storage/etcd3/store.go (codec, then transformer), pkg/server/storage/storage_codec.go, \
             pkg/storage/value/encrypt",
    observed: "On servers of one store, one for each media type, the check creates an object of a resource of each \
               provider, on the first one also custom resources. It decrypts the stored \
               value with the configured key and compares it, byte by byte, with the API's answer in that media type \
               without its resource version. At the end it reads all objects from the profile's own server.",
    by_hand: "kube-apiserver --storage-media-type=application/json --encryption-provider-config=… ; kubectl create \
              secret generic a; etcdctl get --print-value-only /registry/secrets/default/a | head -c 30",
    profiles: &["encrypted"],
    requires: Requires::OwnCluster(&[Requirement::Exclusive, Requirement::First, Requirement::Control]),
    run: scenario!(codec_matrix),
}];

const YAML: &str = "application/yaml";

async fn codec_matrix(ctx: &Ctx) -> Verdict {
    let mut created = Vec::new();
    // Before custom resources are defined: see `Ctx::variant`.
    let (json, yaml) = futures::try_join!(ctx.variant("json"), ctx.variant("yaml"))?;
    of_codec(ctx, PROTOBUF, &mut created).await?;
    custom_resources(ctx, &mut created).await?;
    of_codec(&json, JSON, &mut created).await?;
    of_codec(&yaml, YAML, &mut created).await?;
    for (resource, object) in &created {
        read_back(ctx, resource, object).await?;
    }
    Ok(())
}

/// Creates an object for each provider on a server that stores in this media type.
async fn of_codec(ctx: &Ctx, media_type: &'static str, created: &mut Vec<(Resource, Object)>) -> Verdict {
    let name = media_type.rsplit(['/', '.']).next().unwrap_or_default();
    for kind in kinds() {
        let object = ctx.api.create(kind.resource, &kind.object(name, MARKER)).await?;
        cell(ctx, kind.resource, &object, &kind, media_type).await?;
        created.push((kind.resource.clone(), object));
    }
    Ok(())
}

/// Creates a custom resource for each provider, by its group.
async fn custom_resources(ctx: &Ctx, created: &mut Vec<(Resource, Object)>) -> Verdict {
    for kind in kinds() {
        let resource = custom(ctx, &kind, "sealedthings", "SealedThing").await?;
        let wanted = Object::new(&resource, "a").with("spec.text", MARKER).with("spec.n", 3);
        let object = ctx.api.create(&resource, &wanted).await?;
        cell(ctx, &resource, &object, &kind, JSON).await?;
        created.push((resource, object));
    }
    Ok(())
}

async fn cell(ctx: &Ctx, resource: &Resource, object: &Object, kind: &Kind, media_type: &'static str) -> Verdict {
    let stored = ctx.store.get(resource, object.name()).await?;
    let parts = sealed(&stored)?;
    expect_eq!(parts.provider.prefix(parts.name), kind.prefix(), "prefix of {}", stored.key);
    let namespace = ctx.api.namespace().await?;
    let hidden = shown(parts.body, &[MARKER, object.uid(), namespace, &resource.kind]);
    expect!(hidden.is_none(), "{} shows `{}` in the clear", stored.key, hidden.unwrap_or_default());
    let seen = clear(ctx, &stored)?;
    if let Some(length) = kind.provider.length(seen.len()) {
        expect_eq!(parts.body.len(), length, "length of the {:?} ciphertext at {}", kind.provider, stored.key);
    }
    let stored_as = format!("{}/{}", resource.api_version(), resource.kind);
    let wrong = |fault: String| CheckError::failed(format!("{} decrypts to a value that {fault}", stored.key));
    let parsed = match media_type {
        PROTOBUF => protobuf_fault(&seen),
        JSON => json_fault(&seen, &stored_as).map(drop),
        _ => yaml_fault(&seen, &stored_as).map(drop),
    };
    parsed.map_err(wrong)?;
    let request = Request::get(object_path(resource, namespace, object.name())).accept(media_type);
    let answer = ctx.api.send(&request).await?;
    expect_eq!(answer.status, 200, "status of {request} as {media_type}");
    let expected = unversioned(&answer.body, media_type, object.rv_text()).map_err(CheckError::failed)?;
    // If the answer did not contain the marker, a search for it in the value would prove nothing.
    // Formats in which bytes are text have a Secret's data in base64.
    let shows = position(&expected, MARKER.as_bytes()).is_some() || resource.kind == "Secret";
    expect!(shows, "{request} shows no marker");
    let text = String::from_utf8_lossy;
    let (key, seen_text, right) = (&stored.key, text(&seen), text(&expected));
    expect!(seen == expected, "{key} decrypts to `{seen_text}`, but the API returns `{right}`");
    read_back(ctx, resource, object).await?;
    ctx.count("cells of the matrix", 1);
    Ok(())
}

/// The stored form of an object with this answer: everything except the resource version.
fn unversioned(answer: &[u8], media_type: &str, rv: &str) -> Result<Vec<u8>, String> {
    let field = match media_type {
        PROTOBUF => return strip_resource_version(answer),
        JSON => format!("\"resourceVersion\":\"{rv}\","),
        _ => format!("\n  resourceVersion: \"{rv}\""),
    };
    let at = position(answer, field.as_bytes()).ok_or_else(|| format!("the answer has no `{}`", field.trim()))?;
    Ok([&answer[..at], &answer[at + field.len()..]].concat())
}

async fn read_back(ctx: &Ctx, resource: &Resource, object: &Object) -> Verdict {
    let read = ctx.api.try_get(resource, object.name(), "").await?;
    expect!(read.is_success(), "{} `{}` is answered {read}", resource.kind, object.name());
    let place = difference(&object.0, &read.object()?.0);
    expect_none!(place, "a GET of the {} `{}` differs from the created object", resource.kind, object.name());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_resource_version_is_removed_from_text() {
        let json = br#"{"metadata":{"name":"a","resourceVersion":"7","uid":"u"},"data":{"resourceVersion":"8"}}"#;
        let bare = br#"{"metadata":{"name":"a","uid":"u"},"data":{"resourceVersion":"8"}}"#;
        assert_eq!(unversioned(json, JSON, "7").unwrap(), bare);
        let yaml = b"metadata:\n  resourceVersion: \"7\"\n  uid: u\n";
        assert_eq!(unversioned(yaml, YAML, "7").unwrap(), b"metadata:\n  uid: u\n");
        assert!(unversioned(b"metadata: {}\n", YAML, "7").is_err());
    }
}
