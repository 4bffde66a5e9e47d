//! The form of stored bytes: the three media types, the protobuf envelope, and fields that must not be stored.
//!
//! Encryption and round trips are in files of their own; what a fault of some bytes is, in [`crate::support::stored_bytes`].

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::samples;
use crate::support::stored_bytes::{
    difference, envelope_fault, json_fault, protobuf_fault, versioned_fault, yaml_fault,
};
use suite::object::{API_SERVICES, DEFINITIONS};
use suite::prelude::*;
use suite::store::KeyValue;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.media-type-protobuf",
        place: here!(),
        level: Must,
        requirement: "Without --storage-media-type the value of every object of a built-in group is protobuf after the \
                      bytes 6b 38 73 00.",
        source: "apimachinery pkg/runtime/serializer/protobuf/protobuf.go, kubernetes \
                 pkg/controlplane/apiserver/options/options.go",
        observed: "The check creates an object of each resource and reads its key from the store. Exceptions are \
                   CustomResourceDefinitions and APIServices, whose servers in the same process get a JSON codec \
                   (pkg/controlplane/apiserver/apiextensions.go and aggregator.go, LegacyCodec): the check expects \
                   JSON there.",
        by_hand: "kubectl create cm a; etcdctl get --print-value-only /registry/configmaps/default/a | head -c 4 | xxd",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(media_type_protobuf),
    },
    Check {
        id: "storage.protobuf-envelope",
        place: here!(),
        level: Must,
        requirement: "After the magic bytes a protobuf value is a runtime.Unknown: TypeMeta with the storage version, \
                      the object, and two empty fields, so that it ends with 1a 00 22 00.",
        source: "apimachinery pkg/runtime/generated.proto, pkg/runtime/serializer/protobuf/protobuf.go",
        observed: "The check walks through the values of an object of each resource field by field: numbers and order, \
                   apiVersion and kind, contentEncoding and contentType, and the name of the object inside.",
        by_hand: "etcdctl get --print-value-only /registry/configmaps/default/a | tail -c +5 | protoc --decode_raw",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(protobuf_envelope),
    },
    Check {
        id: "storage.media-type-json",
        place: here!(),
        level: Must,
        requirement: "With --storage-media-type=application/json the value of a built-in object is one compact JSON \
                      object with kind, apiVersion and metadata, ending in one newline, without a resource version.",
        source: "apimachinery pkg/runtime/serializer/json/json.go, kubernetes test/integration/etcd",
        observed: "The check creates an object of each resource; its value must be such JSON, in the storage version, \
                   and equal the answer except for the resource version (and a PersistentVolumeClaim's status.phase, \
                   which is not stored: each read sets it).",
        by_hand: "kube-apiserver --storage-media-type=application/json; kubectl create cm a; \
                  etcdctl get --print-value-only /registry/configmaps/default/a | jq -c .",
        profiles: &["json"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(media_type_json),
    },
    Check {
        id: "storage.media-type-yaml",
        place: here!(),
        level: Must,
        requirement: "With --storage-media-type=application/yaml the value of a built-in object is YAML with the same \
                      meaning as its JSON; a media type that is none of the three is refused at the start.",
        source: "apiserver pkg/server/options/etcd.go, apimachinery pkg/runtime/serializer/json/json.go",
        observed: "The values of an object of each resource, and of a ConfigMap of texts that YAML could take for \
                   another type, must parse to the answer except for the resource version. kube-apiserver makes YAML \
                   by reading its JSON as YAML (sigs.k8s.io/yaml JSONToYAML), which turns U+0085 into a space and \
                   refuses U+007F to U+009F and U+FFFE with 500. This violates the requirement; the check accepts \
                   these three deviations and no other. On `disruptive` the check starts further apiservers with two \
                   wrong values; each must exit with the message.",
        by_hand: "kube-apiserver --storage-media-type=application/yaml; kubectl create cm a; \
                  etcdctl get --print-value-only /registry/configmaps/default/a; \
                  kube-apiserver --storage-media-type=application/xml (ends)",
        profiles: &["yaml", "disruptive"],
        requires: Requires::OwnCluster(&[Requirement::ControlOn("disruptive")]),
        run: scenario!(media_type_yaml),
    },
    Check {
        id: "storage.no-rv-in-value",
        place: here!(),
        level: Must,
        requirement: "A stored value never contains a resource version or self link, even if the request did, and it \
                      contains managedFields.",
        source: "apiserver pkg/storage/api_object_versioner.go (PrepareObjectForStorage)",
        observed: "The check creates an object of each resource and a custom resource and then replaces them with both \
                   fields set. In JSON and YAML the fields must be absent, in protobuf they must be present and empty \
                   (32 00 and 22 00).",
        by_hand: "kubectl create cm a; kubectl annotate cm a x=y; \
                  etcdctl get --print-value-only /registry/configmaps/default/a | tail -c +5 | protoc --decode_raw",
        profiles: &["default", "json", "yaml"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(no_rv_in_value),
    },
];

async fn media_type_protobuf(ctx: &Ctx) -> Verdict {
    for sample in samples::create(ctx).await? {
        protobuf_fault(&sample.stored.value).map_err(|fault| sample.failed(&fault))?;
    }
    for stored in of_other_servers(ctx).await? {
        expect!(stored.value.starts_with(b"{"), "{} must be JSON, independent of the flag", stored.key);
    }
    Ok(())
}

/// A CustomResourceDefinition and an APIService, which the extension server and the aggregator store.
async fn of_other_servers(ctx: &Ctx) -> Verdict<[KeyValue; 2]> {
    let group = format!("{}.archproof.example", ctx.name_prefix());
    ctx.api.define(&group, "things", "Thing").await?;
    let definition = ctx.store.get(&DEFINITIONS, &format!("things.{group}")).await?;
    // The aggregator itself creates one for each group and version that the server has.
    let service = ctx.store.get(&API_SERVICES, "v1.apps").await?;
    Ok([definition, service])
}

async fn protobuf_envelope(ctx: &Ctx) -> Verdict {
    for sample in samples::create(ctx).await? {
        envelope_fault(&sample.stored.value, &sample.row.stored_as, sample.object.name())
            .map_err(|fault| sample.failed(&fault))?;
    }
    Ok(())
}

async fn media_type_json(ctx: &Ctx) -> Verdict {
    equal_to_answers(ctx, json_fault).await
}

async fn media_type_yaml(ctx: &Ctx) -> Verdict {
    if ctx.profile().name == "disruptive" {
        return other_media_types_are_refused(ctx).await;
    }
    equal_to_answers(ctx, yaml_fault).await?;
    texts_stay_texts(ctx).await
}

/// Each value must be of the media type, and equal to the answer if that has the stored version.
async fn equal_to_answers(ctx: &Ctx, parse: fn(&[u8], &str) -> Result<Value, String>) -> Verdict {
    for sample in samples::create(ctx).await? {
        let parsed = parse(&sample.stored.value, &sample.row.stored_as).map_err(|fault| sample.failed(&fault))?;
        if sample.is_answered_as_stored() {
            if let Some(place) = sample.difference(&parsed) {
                return Err(sample.failed(&format!("differs from the answer to the create: {place}")));
            }
            ctx.count("values compared with the answer", 1);
        }
    }
    Ok(())
}

/// Texts that a careless YAML encoder turns into another type.
const AMBIGUOUS: &[&[&str]] = &[
    // Null, booleans, numbers, dates, merges.
    &["~", "null", "true", "no", "on", "0x10", "010", "1e3", "1_000", ".inf", "2001-01-01", "12:30:45", "=", "<<"],
    // Syntax.
    &["-", "- a", "a: b", "a #b", "#c", "{}", "[", "*a", "&a", "!a", "%a", "@a", "`a", "'", "\"", "\\", "| ", ">"],
    &["---", "...", "? a"],
    // White space, and characters beyond ASCII.
    &["", " ", "\t", "a\nb\n", "\n", "a\r\nb", "trailing ", "\u{2028}", "\u{feff}", "é", "😀"],
];

async fn texts_stay_texts(ctx: &Ctx) -> Verdict {
    let texts = AMBIGUOUS.concat();
    let data = texts.iter().enumerate().map(|(index, text)| (format!("k{index}"), json!(text))).collect();
    let object = config_map("texts").with("data", Value::Object(data));
    ctx.api.create(&CONFIG_MAPS, &object).await?;
    let stored = ctx.store.get(&CONFIG_MAPS, "texts").await?;
    let parsed = yaml_fault(&stored.value, "v1/ConfigMap").map_err(CheckError::failed)?;
    let differs = |seen: &Value| difference(&object.0["data"], &seen["data"]).map(|place| format!("data.{place}"));
    expect_none!(differs(&parsed), "the YAML at {}", stored.key);
    let read = ctx.api.get(&CONFIG_MAPS, "texts").await?;
    expect_none!(differs(&read.0), "a GET of {}", stored.key);
    ctx.count("texts", texts.len() as u64);
    some_texts_cannot_be_written(ctx).await
}

/// Characters that JSON and protobuf can carry but the server's YAML cannot, with the known result; None: refused.
const BEYOND_YAML: &[(&str, Option<&str>)] = &[("a\u{85}b", Some("a b")), ("\u{7f}", None), ("\u{80}", None)];

/// Each text must be kept, changed in the known way, or refused without a stored object.
async fn some_texts_cannot_be_written(ctx: &Ctx) -> Verdict {
    for (index, (text, changed)) in BEYOND_YAML.iter().enumerate() {
        let name = format!("beyond-{index}");
        let answer = ctx.api.try_create(&CONFIG_MAPS, &config_map(&name).with("data.k", *text)).await?;
        let stored = ctx.store.find(&CONFIG_MAPS, &name).await?;
        if answer.is_success() {
            let read = ctx.api.get(&CONFIG_MAPS, &name).await?;
            let seen = read.0["data"]["k"].as_str();
            expect!(seen == Some(*text) || seen == *changed, "{text:?} became {seen:?} in storage");
            ctx.count("texts that YAML storage is known to change", u64::from(seen != Some(*text)));
        } else {
            let known = answer.status == 500 && answer.message() == "yaml: control characters are not allowed";
            expect!(known && changed.is_none(), "a ConfigMap with {text:?} was refused: {answer}");
            expect!(stored.is_none(), "a refused ConfigMap with {text:?} is stored");
            ctx.count("texts that YAML storage is known to refuse", 1);
        }
    }
    Ok(())
}

async fn other_media_types_are_refused(ctx: &Ctx) -> Verdict {
    const FLAG: &str = "storage-media-type";
    for wrong in ["application/xml", "application/cbor"] {
        let flags = ctx.profile().flags.iter().filter(|(flag, _)| flag.as_str() != FLAG);
        let mut flags: Vec<String> = flags.map(|(flag, value)| format!("--{flag}={value}")).collect();
        flags.push(format!("--{FLAG}={wrong}"));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let Err(refused) = ctx.control.tool("kube-apiserver", &flags).await else {
            return Err(CheckError::failed(format!("the apiserver ended without an error with --{FLAG}={wrong}")));
        };
        let refusal = format!(
            "--storage-media-type \"{wrong}\" invalid, allowed values: application/json, \
             application/vnd.kubernetes.protobuf, application/yaml"
        );
        // klog quotes the error, and with it the quotes in the message.
        let message = format!("err={refusal:?}");
        let said = refused.into_outcome().message();
        if !said.contains("command failed") {
            return Err(anyhow::anyhow!("the apiserver did not run to its end: {said}").into());
        }
        expect!(said.contains(&message), "a start with --{FLAG}={wrong} does not say `{message}`, but: {said}");
        ctx.count("media types refused", 1);
    }
    Ok(())
}

async fn no_rv_in_value(ctx: &Ctx) -> Verdict {
    let samples = samples::create(ctx).await?;
    let mut created = BTreeMap::new();
    for sample in &samples {
        created.insert(sample.stored.key.clone(), sample.stored.mod_rev);
        versioned_fault(&sample.stored.value).map_err(|fault| sample.failed(&format!("after a create it {fault}")))?;
    }
    // The object keeps the resource version of the answer to its create.
    let set_both =
        |object: Object| object.with("metadata.labels.changed", "yes").with("metadata.selfLink", "/api/v1/x");
    for sample in samples::update(ctx, samples, set_both).await? {
        let key = &sample.stored.key;
        expect!(Some(&sample.stored.mod_rev) > created.get(key), "the update of {key} changed nothing");
        versioned_fault(&sample.stored.value).map_err(|fault| sample.failed(&format!("after an update it {fault}")))?;
    }
    custom_resources_too(ctx).await
}

async fn custom_resources_too(ctx: &Ctx) -> Verdict {
    let things = ctx.api.define(&format!("{}.archproof.example", ctx.name_prefix()), "things", "Thing").await?;
    let first = ctx.api.create(&things, &Object::new(&things, "a").with("spec.n", 1)).await?;
    let with_link = first.clone().with("spec.n", 2).with("metadata.selfLink", "/api/v1/link");
    let updated = ctx.api.update(&things, &with_link).await?;
    let stored = ctx.store.get(&things, "a").await?;
    let revisions = (stored.create_rev.cast_unsigned(), stored.mod_rev.cast_unsigned());
    expect_eq!(revisions, (first.rv(), updated.rv()), "revisions of {} after a create and an update", stored.key);
    versioned_fault(&stored.value).map_err(|fault| CheckError::failed(format!("the value of {} {fault}", stored.key)))
}
