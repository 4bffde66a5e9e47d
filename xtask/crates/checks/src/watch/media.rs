//! Watches in media types other than JSON of whole objects: protobuf, metadata only, tables.

use serde_json::{Value, json};

use crate::support::compare_with_json::{Reference, compare_with_json, refused};
use crate::support::page::difference;
use crate::support::strip_resource_version::strip_resource_version;
use crate::support::watch_form_stream::Over;
use crate::support::watch_forms::{Content, Form, Sent};
use judge::decode;
use suite::object::{CORE_EVENTS, LEASES};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "watch.protobuf-frames",
        place: here!(),
        level: Should,
        requirement: "A watch that accepts application/vnd.kubernetes.protobuf is answered with \
                      application/vnd.kubernetes.protobuf;stream=watch, each event a frame of a 4-byte big-endian length \
                      and a WatchEvent without magic, whose raw object begins with the magic; its events are those of \
                      the JSON watch, and their objects the stored ones with their resource version.",
        source: "apiserver pkg/endpoints/handlers/watch.go; apimachinery pkg/runtime/serializer/protobuf/protobuf.go \
                 (LengthDelimitedFramer)",
        observed: "Such watches of ConfigMaps and Leases (watch cache) and Events (store) over HTTP/1.1 and HTTP/2 run \
                   together with a JSON watch while objects are written. Both must be the store's history, and the \
                   bytes of each object, without the resource version, must be the stored bytes. Initial events with \
                   their bookmark and an ERROR with its Status must have this form, too. The judges check these \
                   streams with all others.",
        by_hand: "curl -sN -H 'Accept: application/vnd.kubernetes.protobuf;stream=watch' \
                  'https://SERVER/api/v1/namespaces/default/configmaps?watch=true' | xxd",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace, Requirement::Http2]),
        run: scenario!(protobuf_frames),
    },
    Check {
        id: "watch.table",
        place: here!(),
        level: Should,
        requirement: "A watch that accepts as=Table sends each event as a Table of one row, with columnDefinitions in \
                      the first event only and as many cells as columns; includeObject selects whether the row has no \
                      object, its metadata or the whole object; order and resource versions are those of the JSON \
                      watch.",
        source: "kubernetes test/integration/apiserver/apiserver_test.go; apiserver pkg/endpoints/handlers/response.go \
                 (watchEmbeddedEncoder, asTable)",
        observed: "Watches with includeObject unset, None, Metadata and Object of ConfigMaps, Events and a custom \
                   resource run together with a JSON watch while objects are written, over HTTP/1.1 and HTTP/2. Both \
                   must be the store's history, with the names and objects of the JSON watch. Initial events end with \
                   a bookmark in a row (406 before 1.34).",
        by_hand: "curl -sN -H 'Accept: application/json;as=Table;g=meta.k8s.io;v=v1' \
                  'https://SERVER/api/v1/namespaces/default/configmaps?watch=true&includeObject=Object'",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace, Requirement::Http2]),
        run: scenario!(table),
    },
    Check {
        id: "watch.partial-metadata",
        place: here!(),
        level: Should,
        requirement: "A watch that accepts as=PartialObjectMetadata sends only the metadata of each object, as JSON or \
                      protobuf, in the order and with the resource versions of the full watch.",
        source: "kubernetes test/integration/apiserver/apiserver_test.go (TestMetadataClient, TestTransform); apiserver \
                 pkg/endpoints/handlers/response.go (asPartialObjectMetadata)",
        observed: "Such watches of ConfigMaps, Events and a custom resource in both encodings run together with a JSON \
                   watch while objects are written, over HTTP/1.1 and HTTP/2. Both must be the store's history; the \
                   metadata must be that of the JSON watch, in protobuf the stored bytes.",
        by_hand: "curl -sN -H 'Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1' \
                  'https://SERVER/api/v1/namespaces/default/configmaps?watch=true'",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace, Requirement::Http2]),
        run: scenario!(partial_metadata),
    },
];

async fn protobuf_frames(ctx: &Ctx) -> Verdict {
    let both = [(Over::Http1, Form::Protobuf), (Over::Http2, Form::Protobuf)];
    tokio::try_join!(
        compare_with_json(ctx, &CONFIG_MAPS, &both, same_bytes),
        compare_with_json(ctx, &CORE_EVENTS, &both[..1], same_bytes),
        compare_with_json(ctx, &LEASES, &both[1..], same_bytes),
        refused(ctx, Over::Http1, Form::Protobuf, &CONFIG_MAPS),
        refused(ctx, Over::Http2, Form::Protobuf, &CORE_EVENTS),
    )?;
    Ok(())
}

async fn table(ctx: &Ctx) -> Verdict {
    let custom = &ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "shapes", "Shape").await?;
    let forms = [
        (Over::Http1, Form::Table("")),
        (Over::Http2, Form::Table("None")),
        (Over::Http1, Form::Table("Metadata")),
        (Over::Http2, Form::Table("Object")),
    ];
    tokio::try_join!(
        compare_with_json(ctx, &CONFIG_MAPS, &forms, same_row),
        compare_with_json(ctx, &CORE_EVENTS, &forms[2..3], same_row),
        compare_with_json(ctx, custom, &forms[2..], same_row),
        refused(ctx, Over::Http1, Form::Table(""), &CONFIG_MAPS),
    )?;
    Ok(())
}

async fn partial_metadata(ctx: &Ctx) -> Verdict {
    let custom = &ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "shapes", "Shape").await?;
    let forms = [
        (Over::Http1, Form::Metadata),
        (Over::Http2, Form::Metadata),
        (Over::Http1, Form::MetadataProtobuf),
        (Over::Http2, Form::MetadataProtobuf),
    ];
    tokio::try_join!(
        compare_with_json(ctx, &CONFIG_MAPS, &forms, same_metadata),
        compare_with_json(ctx, &CORE_EVENTS, &forms[1..3], same_metadata),
        compare_with_json(ctx, custom, &forms[1..3], same_metadata),
        refused(ctx, Over::Http2, Form::Metadata, &CONFIG_MAPS),
        refused(ctx, Over::Http1, Form::MetadataProtobuf, &CONFIG_MAPS),
    )?;
    Ok(())
}

/// The object of a protobuf event must be the stored one, except for the resource version.
pub(crate) fn same_bytes(_: Form, _: usize, reference: &Reference, sent: &Sent) -> Option<String> {
    let Content::Protobuf(value) = &sent.content else { return Some("it is not protobuf".into()) };
    match strip_resource_version(value) {
        Ok(bare) if bare[..] == reference.stored[..] => None,
        Ok(bare) => {
            let at = bare.iter().zip(&*reference.stored).take_while(|(a, b)| a == b).count();
            let (seen, stored) = (bare.len(), reference.stored.len());
            Some(format!("its {seen} bytes differ from the {stored} stored ones from byte {at} on"))
        }
        Err(fault) => Some(fault),
    }
}

fn same_metadata(form: Form, _: usize, reference: &Reference, sent: &Sent) -> Option<String> {
    let value = match &sent.content {
        Content::Json(object) => return fault_of_partial(object, &reference.object),
        Content::Protobuf(value) => value,
    };
    let read = || -> Result<Option<String>, String> {
        let envelope = decode::envelope(value)?;
        let kind = format!("{} {}", envelope.api_version, envelope.kind);
        if kind != "meta.k8s.io/v1 PartialObjectMetadata" {
            return Ok(Some(format!("it is a {kind}")));
        }
        let numbers: Vec<u32> = decode::fields(envelope.raw)?.iter().map(|field| field.number).collect();
        if numbers != [1] {
            return Ok(Some(format!("it has the fields {numbers:?} instead of metadata only")));
        }
        let meta = decode::meta(value).ok_or("metadata that cannot be read")?;
        let expected = &reference.object["metadata"];
        let labels = json!(meta.labels);
        if [&meta.name, &meta.namespace, &meta.uid] != [&expected["name"], &expected["namespace"], &expected["uid"]]
            || labels != *expected.get("labels").unwrap_or(&json!({}))
        {
            return Ok(Some(format!("its metadata is {meta:?}, in JSON {expected}")));
        }
        // Custom resources are stored as JSON.
        if !reference.stored.starts_with(decode::PROTOBUF_MAGIC) {
            return Ok(None);
        }
        let metadata = |value: &[u8]| -> Result<Vec<u8>, String> {
            let envelope = decode::envelope(value)?;
            Ok(decode::field(&decode::fields(envelope.raw)?, 1).unwrap_or_default().to_vec())
        };
        let same = metadata(&strip_resource_version(value)?)? == metadata(&reference.stored)?;
        Ok((!same).then(|| "the bytes of its metadata are not the stored ones".into()))
    };
    read().unwrap_or_else(|fault| Some(format!("{}: {fault}", form.name())))
}

/// A partial object must have exactly the metadata of the whole one.
fn fault_of_partial(seen: &Value, whole: &Value) -> Option<String> {
    let expected = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"],
    });
    difference(seen, &expected)
}

fn same_row(form: Form, place: usize, reference: &Reference, sent: &Sent) -> Option<String> {
    let Form::Table(include) = form else { return Some("it is not a table".into()) };
    fault_of_table(include, place == 0, &reference.object, sent.json())
}

fn fault_of_table(include: &str, is_first: bool, whole: &Value, table: &Value) -> Option<String> {
    if table["kind"] != "Table" || table["apiVersion"] != "meta.k8s.io/v1" {
        return Some(format!("it is a {} {}", table["apiVersion"], table["kind"]));
    }
    let count = |value: &Value| value.as_array().map_or(0, Vec::len);
    let columns = count(&table["columnDefinitions"]);
    if is_first != (columns > 0) {
        let place = if is_first { "the first event" } else { "a later event" };
        return Some(format!("{place} has {columns} column definitions"));
    }
    if count(&table["rows"]) != 1 {
        return Some(format!("it has {} rows instead of one", count(&table["rows"])));
    }
    let row = &table["rows"][0];
    if is_first && columns != count(&row["cells"]) {
        return Some(format!("{} cells for {columns} columns", count(&row["cells"])));
    }
    if table["metadata"]["resourceVersion"] != whole["metadata"]["resourceVersion"] {
        return Some(format!("the table's own metadata is {}", table["metadata"]));
    }
    match include {
        "None" => (!row["object"].is_null()).then(|| format!("includeObject=None, but the row has {}", row["object"])),
        "Object" => difference(&row["object"], whole),
        _ => fault_of_partial(&row["object"], whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Value {
        json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v"},
               "metadata": {"name": "a", "resourceVersion": "5", "labels": {"x": "y"}}})
    }

    fn partial() -> Value {
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole()["metadata"]})
    }

    #[test]
    fn partial_object_has_only_the_metadata() {
        assert_eq!(fault_of_partial(&partial(), &whole()), None);
        for (path, value) in [
            ("kind", json!("ConfigMap")),
            ("metadata.labels.x", json!("z")),
            ("metadata.resourceVersion", json!("4")),
            ("data", json!({"k": "v"})),
        ] {
            let bad = Object(partial()).with(path, value).0;
            assert!(fault_of_partial(&bad, &whole()).is_some(), "{bad}");
        }
    }

    #[test]
    fn table_has_one_row_and_columns_once() {
        let table = |columns: Value, rows: Value| {
            json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "5"},
                   "columnDefinitions": columns, "rows": rows})
        };
        let columns = json!([{"name": "Name"}, {"name": "Data"}]);
        let row = |object: Value| json!([{"cells": ["a", 1], "object": object}]);
        let partial = partial();
        for (include, first, table, why) in [
            ("None", true, table(columns.clone(), row(Value::Null)), ""),
            ("Object", false, table(Value::Null, row(whole())), ""),
            ("", false, table(json!([]), row(partial.clone())), ""),
            ("None", true, table(columns.clone(), row(partial.clone())), "but the row has"),
            ("Metadata", false, table(Value::Null, row(whole())), "apiVersion"),
            ("Object", false, table(Value::Null, row(partial.clone())), "apiVersion"),
            ("", true, table(Value::Null, row(partial.clone())), "the first event has 0"),
            ("", false, table(columns, row(partial.clone())), "a later event has 2"),
            ("", false, table(Value::Null, json!([])), "0 rows"),
            ("", true, table(json!([{"name": "Name"}]), row(partial)), "2 cells for 1 columns"),
        ] {
            let fault = fault_of_table(include, first, &whole(), &table).unwrap_or_default();
            assert!(fault.contains(why) && fault.is_empty() == why.is_empty(), "{why}: {fault}");
        }
    }
}
