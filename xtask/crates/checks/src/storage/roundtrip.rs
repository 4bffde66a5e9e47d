//! Objects that set as many fields as possible: written, read back in every view, and read again from another server.

use std::time::Duration;

use anyhow::{Context, anyhow};
use http::Method;
use model::StoredResource;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::stored_bytes::{difference, envelope_fault, lost};
use crate::support::strip_resource_version::strip_resource_version;
use judge::decode::{Encoding, encoding};
use suite::api::{PROTOBUF, Request, Response};
use suite::ctx::object_path;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.roundtrip",
    place: here!(),
    level: Must,
    requirement: "A GET returns every field that was set with its value, after the object was encoded into the store \
                  and decoded again, in JSON, protobuf, Table and metadata alike.",
    source: "apimachinery pkg/api/apitesting/roundtrip (in memory there), apiserver pkg/endpoints/handlers/response.go",
    observed: "The check creates objects with as many fields as the server accepts together, and a custom resource; \
               every field must be in the answer and in a GET from the store and from the watch cache. The protobuf \
               answer must equal the stored protobuf except for the resource version, and an update with it must \
               change nothing. Table and metadata views must have the same metadata. On `reflagged` another \
               apiserver on the same store must show the same in each way.",
    by_hand: "kubectl get podtemplate a -o yaml, also from another kube-apiserver on the same store; \
              curl -H 'Accept: application/json;as=Table;g=meta.k8s.io;v=v1' …/podtemplates/a",
    profiles: &["default", "json", "yaml", "encrypted", "reflagged"],
    requires: Requires::OwnCluster(&[Requirement::ExclusiveOn("reflagged")]),
    run: scenario!(roundtrip),
}];

const MANIFESTS: &str = include_str!("maximal.yaml");
const NAME: &str = "maximal";
/// An apiserver that stores the same media type. Its other flag concerns watches only.
const ANOTHER: &str = "impatient";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    /// Plural; the version is the stored one.
    resource: String,
    /// Without apiVersion, kind and name.
    object: Value,
}

/// An object as in the response to its create.
struct Written {
    resource: Resource,
    created: Object,
    /// Built-in resources only: custom resources have no protobuf.
    stored_as: Option<String>,
}

async fn roundtrip(ctx: &Ctx) -> Verdict {
    let mut written = Vec::new();
    // Before the custom resource is defined: see `Ctx::variant`.
    let other = if ctx.profile().name == "reflagged" { Some(ctx.variant(ANOTHER).await?) } else { None };
    for manifest in manifests(ctx.api.namespace().await?)? {
        written.push(write(ctx, manifest).await?);
    }
    written.push(write_custom(ctx).await?);
    for object in &written {
        read_all_views(ctx, object).await?;
    }
    if let Some(other) = &other {
        for object in &written {
            is_served(other, object).await?;
            read_all_views(other, object).await?;
        }
    }
    ctx.count("objects", written.len() as u64);
    Ok(())
}

async fn write(ctx: &Ctx, manifest: Manifest) -> Verdict<Written> {
    let mut rows = ctx.env.table.rows.iter().filter(|row| row.resource.plural == manifest.resource);
    let row = rows.find(|r| r.stored_as == format!("{}/{}", r.resource.api_version(), r.resource.kind));
    let lacks = || anyhow!("the table of stored resources lacks the stored version of {}", manifest.resource);
    let StoredResource { resource, stored_as, .. } = row.ok_or_else(lacks)?.clone();
    let mut object = Object(manifest.object).with("metadata.name", NAME);
    object = object.with("apiVersion", resource.api_version()).with("kind", resource.kind.clone());
    write_one(ctx, resource, object, Some(stored_as)).await
}

/// Numbers, strings and shapes that an encoding of unstructured content can get wrong.
async fn write_custom(ctx: &Ctx) -> Verdict<Written> {
    let things = ctx.api.define(&format!("{}.archproof.example", ctx.name_prefix()), "things", "Thing").await?;
    let object = Object::new(&things, NAME).with(
        "spec",
        json!({
            "integers": [0, -1, 9_007_199_254_740_993_i64, i64::MAX, i64::MIN],
            "floats": [0.1, -2.5, 1e-7, 1.7976931348623157e308, 5e-324],
            "texts": ["", "a\nb", " edges\t", "\n", "\u{0}", "\u{2028}", "é", "😀", "<&>", "\"\\"],
            "empty": {"list": [], "map": {}, "text": "", "no": false, "zero": 0},
            "keys": {"": 1, "a.b": 2, "Ä": 3, "a": 4, "Z": 5},
            "nested": [[[{"a": [{}]}]]],
        }),
    );
    write_one(ctx, things, object, None).await
}

async fn write_one(ctx: &Ctx, resource: Resource, object: Object, stored_as: Option<String>) -> Verdict<Written> {
    let created = ctx.api.create(&resource, &object).await?;
    if let Some(place) = lost(&object.0, &created.0) {
        return Err(CheckError::failed(format!("the create of a {} lost {place}", resource.kind)));
    }
    ctx.count("fields", leaves(&object.0));
    Ok(Written { resource, created, stored_as })
}

async fn read_all_views(ctx: &Ctx, written: &Written) -> Verdict {
    let Written { resource, created, .. } = written;
    let kind = &resource.kind;
    // The store answers a GET without resourceVersion, the watch cache one with a number (apiserver
    // pkg/storage/cacher/delegator.go).
    for query in [String::new(), format!("resourceVersion={}", created.rv())] {
        let read = ctx.api.try_get(resource, NAME, &query).await?.object()?;
        let place = difference(&created.0, &read.0);
        expect_none!(place, "a GET of a {kind} with `{query}` differs from the created object");
    }
    if let Some(stored_as) = &written.stored_as {
        protobuf_view(ctx, written, stored_as).await?;
    }
    let metadata = view(ctx, written, METADATA, "").await?.json();
    expect_none!(metadata_fault(&metadata, created), "the metadata view of a {kind}");
    let table = view(ctx, written, TABLE, "").await?.json();
    expect_none!(table_fault(&table, created, false), "the Table view of a {kind}");
    let table = view(ctx, written, TABLE, "includeObject=Object").await?.json();
    expect_none!(table_fault(&table, created, true), "the Table view with objects of a {kind}");
    ctx.count("views", 5 + 2 * u64::from(written.stored_as.is_some()));
    Ok(())
}

async fn view(ctx: &Ctx, written: &Written, accept: &'static str, query: &str) -> Verdict<Response> {
    let path = object_path(&written.resource, ctx.api.namespace().await?, NAME);
    let request = Request::get(path).query(query).accept(accept);
    let answer = ctx.api.send(&request).await?;
    expect_eq!(answer.status, 200, "status of {request} as {accept}");
    Ok(answer)
}

/// The protobuf answer must be the stored value, and equal the JSON answer: an update with it changes nothing.
async fn protobuf_view(ctx: &Ctx, written: &Written, stored_as: &str) -> Verdict {
    let Written { resource, created, .. } = written;
    let answer = view(ctx, written, PROTOBUF, "").await?;
    expect_none!(envelope_fault(&answer.body, stored_as, NAME).err(), "the protobuf view of a {}", resource.kind);
    let stored = ctx.store.get(resource, NAME).await?;
    if encoding(&stored.value) == Encoding::Protobuf {
        let bare = strip_resource_version(&answer.body).map_err(CheckError::failed)?;
        expect!(bare == stored.value, "the protobuf view of {} has other bytes than its value", stored.key);
        ctx.count("values equal to the protobuf view", 1);
    }
    let path = object_path(resource, ctx.api.namespace().await?, NAME);
    let back = Request::new(Method::PUT, path).body(PROTOBUF, answer.body.to_vec());
    let updated = ctx.api.send(&back).await?.object()?;
    let place = difference(&created.0, &updated.0);
    expect_none!(place, "an update of a {} with its own protobuf is not a no-op", resource.kind);
    Ok(())
}

/// The first fault in a PartialObjectMetadata of `object`.
fn metadata_fault(view: &Value, object: &Object) -> Option<String> {
    if view["kind"] != "PartialObjectMetadata" {
        return Some(format!("it is a {}", view["kind"]));
    }
    difference(&object.0["metadata"], &view["metadata"])
}

/// The first fault in a Table that shows only `object`, with its metadata or as a whole.
fn table_fault(view: &Value, object: &Object, whole: bool) -> Option<String> {
    if view["kind"] != "Table" {
        return Some(format!("it is a {}", view["kind"]));
    }
    let rows = view["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let [row] = rows else { return Some(format!("it has {} rows, not 1", rows.len())) };
    let columns = view["columnDefinitions"].as_array().map_or(&[][..], Vec::as_slice);
    let cells = row["cells"].as_array().map_or(&[][..], Vec::as_slice);
    if columns.len() != cells.len() {
        return Some(format!("it has {} columns and {} cells", columns.len(), cells.len()));
    }
    // The first column, except with events, which begin with their age.
    let Some(at) = columns.iter().position(|column| column["format"] == "name") else {
        return Some("it has no column for the name".into());
    };
    if cells[at] != object.name() {
        return Some(format!("its cell for the name is {}", cells[at]));
    }
    if whole { difference(&object.0, &row["object"]) } else { metadata_fault(&row["object"], object) }
}

/// Waits until another server on the same store serves the object. It may not know the custom resource yet.
async fn is_served(other: &Ctx, object: &Written) -> Verdict {
    let path = object_path(&object.resource, other.api.namespace().await?, NAME);
    let what = format!("{path} at another server");
    suite::wait::until(&what, other.wait_limit(), Duration::from_millis(50), || async {
        let answer = other.api.send(&Request::get(path.clone())).await?;
        expect!(answer.status != 404 || object.stored_as.is_none(), "{path} does not exist for another server");
        Ok(if answer.is_success() { Ok(()) } else { Err(answer.to_string()) })
    })
    .await?;
    other.count("objects read from another server", 1);
    Ok(())
}

fn manifests(namespace: &str) -> anyhow::Result<Vec<Manifest>> {
    serde_yaml::from_str(&MANIFESTS.replace("{namespace}", namespace)).context("maximal.yaml is invalid")
}

/// Values that are neither maps nor lists.
fn leaves(value: &Value) -> u64 {
    match value {
        Value::Object(map) => map.values().map(leaves).sum(),
        Value::Array(list) => list.iter().map(leaves).sum(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_parse_and_set_many_fields() {
        let manifests = manifests("n").unwrap();
        let fields: u64 = manifests.iter().map(|manifest| leaves(&manifest.object)).sum();
        assert!(fields > 400, "{fields}");
        let event = manifests.iter().find(|manifest| manifest.resource == "events").unwrap();
        assert_eq!(event.object["involvedObject"]["namespace"], "n");
        assert_eq!(event.object["metadata"]["labels"]["app"], "maximal");
    }

    #[test]
    fn table_is_rejected_for_each_deviation() {
        let object = Object(json!({"kind": "X", "metadata": {"name": "a", "uid": "u"}, "spec": 1}));
        let metadata = json!({"kind": "PartialObjectMetadata", "metadata": {"name": "a", "uid": "u"}});
        let columns = json!([{"format": "name"}, {}]);
        let table = |cells: Value, object: &Value| json!({"kind": "Table", "columnDefinitions": columns, "rows": [{"cells": cells, "object": object}]});
        assert_eq!(table_fault(&table(json!(["a", 1]), &metadata), &object, false), None);
        assert_eq!(table_fault(&table(json!(["a", 1]), &object.0), &object, true), None);
        let other = json!({"kind": "PartialObjectMetadata", "metadata": {"name": "a", "uid": "v"}});
        for (bad, whole) in [
            (object.0.clone(), true),
            (json!({"kind": "Table", "columnDefinitions": [], "rows": []}), false),
            (json!({"kind": "Table", "rows": [{"cells": [], "object": metadata}]}), false),
            (
                json!({"kind": "Table", "columnDefinitions": [{}], "rows": [{"cells": ["a"], "object": metadata}]}),
                false,
            ),
            (table(json!(["b", 1]), &metadata), false),
            (table(json!(["a"]), &metadata), false),
            (table(json!(["a", 1]), &other), false),
            (table(json!(["a", 1]), &object.0), false),
            (table(json!(["a", 1]), &metadata), true),
        ] {
            assert!(table_fault(&bad, &object, whole).is_some(), "{bad}");
        }
    }

    #[test]
    fn metadata_view_must_have_all_metadata_and_its_kind() {
        let object = Object(json!({"kind": "X", "metadata": {"name": "a", "labels": {"l": ""}}}));
        let view = |kind: &str, metadata: Value| json!({"kind": kind, "metadata": metadata});
        let metadata = object.0["metadata"].clone();
        assert_eq!(metadata_fault(&view("PartialObjectMetadata", metadata.clone()), &object), None);
        assert!(metadata_fault(&view("X", metadata), &object).is_some());
        assert!(metadata_fault(&view("PartialObjectMetadata", json!({"name": "a"})), &object).is_some());
    }
}
