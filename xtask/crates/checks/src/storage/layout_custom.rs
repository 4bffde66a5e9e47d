//! Custom resources in the store: their keys, those of their definitions and API services, and their encoding.

use std::time::Duration;

use serde_json::{Value, json};

use crate::storage::layout::{all_stored, sole_key};
use crate::support::metrics::Metrics;
use judge::decode::{self, Encoding};
use suite::ctx::crd_version;
use suite::object::{API_SERVICES, DEFINITIONS};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.cr-key",
        place: here!(),
        level: Must,
        requirement: "A custom resource is stored under <etcd-prefix>/<group>/<plural>/<namespace>/<name>, its \
                      definition under <etcd-prefix>/apiextensions.k8s.io/customresourcedefinitions/<plural>.<group>, \
                      and the group's APIService under \
                      <etcd-prefix>/apiregistration.k8s.io/apiservices/<version>.<group>.",
        source: "apiextensions-apiserver pkg/apiserver/customresource_handler.go (ResourcePrefix is group/plural), \
                 pkg/cmd/server/options/options.go; kubernetes test/integration/etcd/data.go",
        observed: "The check creates a namespaced and a cluster-scoped definition and an object of each, and waits for \
                   the APIService that the server creates from them. It reads the whole store: each of the five \
                   objects must be at its key and at no other.",
        by_hand: "Create a CustomResourceDefinition fruits.example.org and a Fruit apple; etcdctl get --prefix \
                  /registry/ --keys-only | grep example.org (must show /registry/example.org/fruits/default/apple, \
                  /registry/apiextensions.k8s.io/customresourcedefinitions/fruits.example.org and \
                  /registry/apiregistration.k8s.io/apiservices/v1.example.org)",
        profiles: &["default", "prefix"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(cr_key),
    },
    Check {
        id: "storage.cr-always-json",
        place: here!(),
        level: Must,
        requirement: "Custom resources are stored as JSON, independent of --storage-media-type.",
        source: "apiextensions-apiserver pkg/apiserver/customresource_handler.go (unstructuredNegotiatedSerializer); \
                 KEP-4222 for the gate CBORServingAndStorage, with which it is CBOR",
        observed: "The check posts custom objects as JSON and as YAML and changes one with a PUT: in the store they \
                   must be JSON with the sent content, while a ConfigMap on the same profile has the encoding of the \
                   flag.",
        by_hand: "Create a Fruit apple; etcdctl get /registry/example.org/fruits/default/apple --print-value-only | \
                  head -c 1 (must show {)",
        profiles: &["default", "json", "yaml"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(cr_always_json),
    },
];

const YAML: &str = "application/yaml";
/// With this gate the server stores custom resources as CBOR.
pub(crate) const CBOR_GATE: &str = "CBORServingAndStorage";

async fn cr_key(ctx: &Ctx) -> Verdict {
    let prefix = &ctx.profile().prefix;
    let namespace = ctx.api.namespace().await?;
    let group = group_of(ctx);
    let fruits = ctx.api.define(&group, "fruits", "Fruit").await?;
    let baskets =
        ctx.api.define_versions(&group, ("baskets", "Basket"), false, &json!([crd_version("v1", true)])).await?;
    ctx.api.wait_until_served(&baskets).await?;
    let apple = ctx.api.create(&fruits, &Object::new(&fruits, "apple")).await?;
    let basket = ctx.api.create(&baskets, &Object::new(&baskets, "big")).await?;
    let api_service = api_service(ctx, &format!("v1.{group}")).await?;
    let mut expected = vec![
        (apple, format!("{prefix}/{group}/fruits/{namespace}/apple")),
        (basket, format!("{prefix}/{group}/baskets/big")),
        (api_service, format!("{prefix}/apiregistration.k8s.io/apiservices/v1.{group}")),
    ];
    for name in ["fruits", "baskets"].map(|plural| format!("{plural}.{group}")) {
        let key = format!("{prefix}/apiextensions.k8s.io/customresourcedefinitions/{name}");
        expected.push((ctx.api.get(&DEFINITIONS, &name).await?, key));
    }
    let stored = all_stored(ctx).await?;
    for (object, key) in &expected {
        sole_key(&stored, object, key).map_err(CheckError::failed)?;
    }
    ctx.count("objects located", expected.len() as u64);
    Ok(())
}

/// A group that no other case defines.
fn group_of(ctx: &Ctx) -> String {
    format!("{}.example.org", ctx.name_prefix())
}

/// The APIService that the server creates for a definition's group by itself, a moment later.
async fn api_service(ctx: &Ctx, name: &str) -> Verdict<Object> {
    let what = format!("the APIService {name}");
    suite::wait::until(&what, ctx.wait_limit(), Duration::from_millis(50), || async {
        let answer = ctx.api.try_get(&API_SERVICES, name, "").await?;
        Ok(if answer.is_success() { Ok(answer.object()?) } else { Err(answer.to_string()) })
    })
    .await
}

async fn cr_always_json(ctx: &Ctx) -> Verdict {
    let fruits = ctx.api.define(&group_of(ctx), "fruits", "Fruit").await?;
    let content = json!({"sweet": true, "grams": 182, "price": 0.25, "name": "Äpfel\n", "of": [{"a": null}, "b"]});
    let apple = ctx.api.create(&fruits, &Object::new(&fruits, "apple").with("spec", content.clone())).await?;
    custom_value(ctx, &fruits, "apple", &content).await?;

    let version = fruits.api_version();
    let yaml = format!("apiVersion: {version}\nkind: Fruit\nmetadata:\n  name: pear\nspec:\n  sweet: no idea\n");
    let answer = ctx.api.send(&ctx.api.unrecorded_post(&fruits).await?.body(YAML, yaml)).await?;
    expect_eq!(answer.status, 201, "status of a POST in YAML, answered {answer}");
    custom_value(ctx, &fruits, "pear", &json!({"sweet": "no idea"})).await?;

    let changed = json!({"sweet": false});
    ctx.api.update(&fruits, &apple.with("spec", changed.clone())).await?;
    custom_value(ctx, &fruits, "apple", &changed).await?;
    ctx.count("custom values", 3);

    // Without this a server that ignores the flag would pass.
    ctx.api.create(&CONFIG_MAPS, &config_map("built-in")).await?;
    let stored = ctx.store.get(&CONFIG_MAPS, "built-in").await?;
    let flag = ctx.profile().flags.get("storage-media-type").map(String::as_str);
    expect_eq!(decode::encoding(&stored.value), encoding_of(flag), "encoding of a ConfigMap with the flag {flag:?}");
    Ok(())
}

async fn custom_value(ctx: &Ctx, resource: &Resource, name: &str, spec: &Value) -> Verdict {
    let stored = ctx.store.get(resource, name).await?;
    if decode::encoding(&stored.value) == Encoding::Cbor && Metrics::read(ctx).await?.gate(CBOR_GATE) == Some(true) {
        return Err(CheckError::Skipped { need: format!("the feature gate {CBOR_GATE} to be off") });
    }
    custom_fault(&stored.value, spec).map_err(|fault| CheckError::failed(format!("{}: {fault}", stored.key)))
}

/// The value of a custom resource must be JSON with this spec.
fn custom_fault(value: &[u8], spec: &Value) -> Result<(), String> {
    if value.first() != Some(&b'{') {
        let start = String::from_utf8_lossy(&value[..value.len().min(12)]).into_owned();
        return Err(format!("the value must be JSON, but is {:?} and begins with {start:?}", decode::encoding(value)));
    }
    let parsed: Value = serde_json::from_slice(value).map_err(|error| format!("the value is not JSON: {error}"))?;
    if &parsed["spec"] == spec {
        return Ok(());
    }
    Err(format!("the stored spec is {}, must be {spec}", parsed["spec"]))
}

fn encoding_of(media_type: Option<&str>) -> Encoding {
    match media_type {
        Some("application/json") => Encoding::Json,
        Some(YAML) => Encoding::Yaml,
        _ => Encoding::Protobuf,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_with_the_sent_content_is_accepted() {
        let spec = json!({"a": 1});
        assert_eq!(custom_fault(b"{\"spec\":{\"a\":1}}\n", &spec), Ok(()));
        for (value, part) in [
            (&b"k8s\0\x0a\x02v1"[..], "Protobuf"),
            (b"spec:\n  a: 1\n", "Yaml"),
            (b"\xd9\xd9\xf7\xa0", "Cbor"),
            (b"k8s:enc:aescbc:v1:k:", "Encrypted"),
            (b"", "Empty"),
            // YAML's flow style begins like JSON.
            (b"{spec: {a: 1}}", "not JSON"),
            (b"{\"spec\":{\"a\":1}", "not JSON"),
            (b"{\"spec\":{\"a\":2}}", "must be {\"a\":1}"),
            (b"{\"spec\":{\"a\":1.0}}", "must be {\"a\":1}"),
            (b"{}", "the stored spec is null"),
        ] {
            let error = custom_fault(value, &spec).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
