//! Checks that the same manifests give the same stored bytes on every machine, after the values that the server chooses
//! are masked.
//!
//! What is masked is in [`crate::support::arch_mask`]; what the bytes must be, for each release, in `targets/golden/`. Comparing
//! two runs is `cargo xtask compare`.

use anyhow::{Context, anyhow};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::storage::layout_table;
use crate::support::arch_mask::Mask;
use crate::support::golden_values::{self, FixedValue};
use crate::support::samples;
use judge::decode::{Encoding, encoding};
use suite::api::Response;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.arch-bytes-identical",
    place: here!(),
    level: Should,
    requirement: "The same manifest gives the same stored bytes on every architecture, except for the uid, times and \
                  values that the server allocates.",
    source: "apimachinery pkg/apis/meta/v1/generated.pb.go (maps sorted by key, fields in a fixed order), \
             pkg/runtime/serializer/protobuf and json; no documented guarantee",
    observed: "The check creates fixed objects with maps of many keys, Unicode, empty and null lists, Quantity, \
               IntOrString, Time, MicroTime and managedFields, stored as protobuf, JSON and YAML, and a custom \
               resource. It masks the uid, times, address and node ports without changing a length. The SHA-256 of the \
               masked bytes must be the one in targets/golden/ for the release. The check writes the masked bytes to \
               the run's folder `values`, for `cargo xtask compare`.",
    by_hand: "Create the same object on two machines; run etcdctl get --print-value-only KEY | xxd on both and diff \
              the output: only the bytes of the uid, times and allocated addresses may differ",
    profiles: &["default", "json", "yaml"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(bytes_identical),
}];

const MANIFESTS: &str = include_str!("identical.yaml");
/// The name of the custom resource. It is not in the file because the check must create its definition first.
const CUSTOM: &str = "custom";
/// The number of keys in the map that replaces `{keys}` in the file.
const KEYS: usize = 60;
/// The number of addresses to try for the Service: other cases allocate addresses at the same time.
const ADDRESSES: usize = 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    name: String,
    #[serde(default)]
    group: String,
    plural: String,
    /// The object without apiVersion, kind, name and namespace.
    object: Value,
}

async fn bytes_identical(ctx: &Ctx) -> Verdict {
    let mut all = Vec::new();
    for manifest in manifests(ctx.api.namespace().await?)? {
        let resource = &layout_table::row(ctx, &manifest.group, &manifest.plural)?.resource;
        all.push(stored(ctx, resource, &manifest.name, manifest.object).await?);
    }
    // The flag does not change the encoding of custom resources, so one profile is enough.
    if ctx.profile().name == "default" {
        let things = ctx.api.define(&format!("{}.example", ctx.name_prefix()), "things", "Thing").await?;
        all.push(stored(ctx, &things, CUSTOM, custom_spec()).await?);
    }
    golden_values::compare(ctx, &all)
}

/// Creates the object and reads its value from the store at the revision of the create.
async fn stored(ctx: &Ctx, resource: &Resource, name: &str, fields: Value) -> Verdict<FixedValue> {
    let object = samples::with_fields(Object::new(resource, name), &fields);
    let made = create(ctx, resource, object).await?;
    let value = samples::stored_then(ctx, resource, &made).await?;
    let encoding = match encoding(&value.value) {
        Encoding::Protobuf => "protobuf",
        Encoding::Json => "json",
        Encoding::Yaml => "yaml",
        other => return Err(CheckError::failed(format!("{} is stored as {other:?}", value.key))),
    };
    let mask = Mask::of(&made.0, ctx.name_prefix())?;
    Ok(FixedValue { name: name.to_owned(), encoding, bytes: mask.apply(&value.value) })
}

/// Requests an address of known length for a Service: otherwise the length of the value would depend on the address.
async fn create(ctx: &Ctx, resource: &Resource, object: Object) -> Verdict<Object> {
    if object.0["kind"] != "Service" {
        return Ok(ctx.api.create(resource, &object).await?);
    }
    let taken = |answer: &Response| answer.status == 422 && answer.message().contains("already allocated");
    let mut last = String::new();
    for _ in 0..ADDRESSES {
        let address = address_of_known_length(&mut ctx.random());
        let answer = ctx.api.try_create(resource, &object.clone().with("spec.clusterIP", address)).await?;
        if !taken(&answer) {
            return Ok(answer.object()?);
        }
        last = answer.to_string();
    }
    Err(anyhow!("no address was free: {last}").into())
}

/// An address in the range of Services, 10.96.0.0/16; both random numbers have three digits.
fn address_of_known_length(random: &mut fastrand::Rng) -> String {
    format!("10.96.{}.{}", random.u8(100..), random.u8(100..=254))
}

fn manifests(namespace: &str) -> anyhow::Result<Vec<Manifest>> {
    let text = MANIFESTS.replace("{namespace}", namespace);
    let mut manifests: Vec<Manifest> = serde_yaml::from_str(&text).context("failed to parse identical.yaml")?;
    for manifest in &mut manifests {
        if manifest.object["data"] == "{keys}" {
            manifest.object["data"] = many_keys();
        }
    }
    Ok(manifests)
}

/// Keys whose order by bytes, by words and by insertion differs. The lengths of the values take one or two bytes.
fn many_keys() -> Value {
    let key = |n: usize| {
        let shape = ["a", "A", "z.", "-", "_", "10", "9"][n % 7];
        format!("{shape}{}", (n * 37) % KEYS)
    };
    (0..KEYS).map(|n| (key(n), json!("é".repeat(n * 3)))).collect::<serde_json::Map<String, Value>>().into()
}

fn custom_spec() -> Value {
    json!({"spec": {
        "many": many_keys(),
        "texts": ["", "a\nb", " edges\t", "\u{0}", "\u{2028}", "é", "😀", "<&>", "\"\\", "\u{7f}"],
        "numbers": [0, -1, 9_007_199_254_740_993_i64, i64::MAX, i64::MIN, 0.1, -2.5, 1e-7, 1e21],
        "empty": {"list": [], "map": {}, "text": "", "no": false, "zero": 0},
        "nested": [[[{"a": [{}]}]]],
    }})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn manifests_parse_and_have_distinct_names() {
        let manifests = manifests("n").unwrap();
        let names: BTreeSet<&str> = manifests.iter().map(|manifest| manifest.name.as_str()).collect();
        assert_eq!(names.len(), manifests.len());
        assert!(!names.contains(CUSTOM));
        assert_eq!(manifests[0].object["data"].as_object().unwrap().len(), KEYS);
    }
}
