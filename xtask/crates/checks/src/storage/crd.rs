//! Custom resources with a schema: strict validation, printer columns, and a change of the storage version.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::assertions::{changes, put_then_deleted};
use suite::api::{JSON, MERGE_PATCH, Request, Response};
pub(crate) use suite::ctx::crd_version as version;
use suite::object::DEFINITIONS;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.crd-strict",
        place: here!(),
        level: Must,
        requirement: "With fieldManager=x&fieldValidation=Strict a custom resource with an unknown or a repeated field \
                      is refused with 400 BadRequest and not stored; an accepted one has generation 1 and the manager x \
                      in its managedFields, shows its definition's printer columns in a Table, is selected by its \
                      labels, and DELETE removes it.",
        source: "apiextensions-apiserver pkg/apiserver/customresource_handler.go (strict decoding), \
                 pkg/registry/customresource/tableconvertor; kubernetes e2e apimachinery/field_validation; KEP-2885",
        observed: "A definition with a schema and a printer column. The check compares the refusals with their \
                   messages and the store after them; the answer to the accepted object and its stored value; lists \
                   with selectors; a Table; and the raw history of the key after DELETE. With fieldValidation=Warn the \
                   unknown field causes a Warning header and is not stored.",
        by_hand: "kubectl create --validate=strict -f fruit.yaml with a field that the schema does not have; kubectl get \
                  fruits (the column); kubectl get fruits -l color=red",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(crd_strict),
    },
    Check {
        id: "storage.crd-storage-version",
        place: here!(),
        level: Should,
        requirement: "When a definition changes its storage version, stored objects keep the old version until their \
                      next write, even a PUT that changes nothing else; new objects are stored in the new version, \
                      status.storedVersions lists both, and every object is served in every version.",
        source: "apiextensions-apiserver pkg/registry/customresourcedefinition/strategy.go, \
                 pkg/apiserver/customresource_handler.go; apiserver pkg/storage/etcd3/store.go (GuaranteedUpdate \
                 compares the encoded bytes)",
        observed: "A definition with v1 and v2; objects created before and after the change, through both versions. \
                   The check compares the apiVersion in the stored bytes of each, before and after a PUT of the \
                   unchanged object.",
        by_hand: "kubectl patch crd fruits.example.org --type=json -p (storage of v1 to false, of v2 to true); etcdctl \
                  get /registry/example.org/fruits/default/a --print-value-only | jq .apiVersion",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(crd_storage_version),
    },
];

/// A namespaced definition `fruits.<group>` with these versions; the resource is that of the first one.
pub(crate) async fn define_versions(ctx: &Ctx, versions: &Value) -> Verdict<Resource> {
    let group = format!("{}.example.org", ctx.name_prefix());
    let resource = ctx.api.define_versions(&group, ("fruits", "Fruit"), true, versions).await?;
    ctx.api.wait_until_served(&resource).await?;
    Ok(resource)
}

async fn crd_strict(ctx: &Ctx) -> Verdict {
    let spec = json!({"type": "object", "properties": {"sweetness": {"type": "integer"}, "note": {"type": "string"}}});
    let mut strict = version("v1", true);
    strict["schema"] = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    strict["additionalPrinterColumns"] = json!([{"name": "Sweet", "type": "integer", "jsonPath": ".spec.sweetness"}]);
    let fruits = define_versions(ctx, &json!([strict])).await?;
    let apple = Object::new(&fruits, "apple").with("metadata.labels.color", "red").with("spec.sweetness", 3);

    refused(ctx, &fruits, &apple).await?;
    let answer = post(ctx, &fruits, "Strict", &apple.to_string()).await?;
    expect_eq!(answer.status, 201, "an object that fits its schema was answered {answer}");
    accepted(ctx, &fruits, &answer.object()?).await?;
    warned(ctx, &fruits).await?;
    selected(ctx, &fruits).await?;
    let deleted = ctx.api.try_delete(&fruits, "apple", &Value::Null).await?;
    expect_eq!(deleted.status, 200, "DELETE was answered {deleted}");
    expect!(ctx.store.find(&fruits, "apple").await?.is_none(), "the key is still there after DELETE");
    let end = ctx.api.create(&fruits, &Object::new(&fruits, "end")).await?;
    put_then_deleted(&changes(ctx, &fruits, "apple", &end).await?, 1)
}

/// POST of a text that may not be a valid object.
async fn post(ctx: &Ctx, resource: &Resource, validation: &str, text: &str) -> anyhow::Result<Response> {
    let query = format!("fieldManager=x&fieldValidation={validation}");
    ctx.api.send(&ctx.api.unrecorded_post(resource).await?.query(query).body(JSON, text)).await
}

async fn refused(ctx: &Ctx, fruits: &Resource, apple: &Object) -> Verdict {
    let unknown = apple.clone().with("spec.bogus", 1).to_string();
    let outside = apple.clone().with("bogus", 1).to_string();
    let twice = apple.to_string().replace("\"sweetness\":3", "\"sweetness\":3,\"sweetness\":4");
    for (text, fault) in [
        (unknown, "unknown field \"spec.bogus\""),
        (outside, "unknown field \"bogus\""),
        (twice, "duplicate field \"spec.sweetness\""),
    ] {
        let answer = post(ctx, fruits, "Strict", &text).await?;
        expect!(answer.is(400, "BadRequest"), "an object with {fault} was answered {answer}");
        let message = answer.message();
        expect!(message.ends_with(&format!("strict decoding error: {fault}")), "{fault} was refused with `{message}`");
        ctx.count("refused objects", 1);
    }
    let wrong = apple.clone().with("spec.sweetness", "3");
    let answer = post(ctx, fruits, "Strict", &wrong.to_string()).await?;
    expect!(answer.is(422, "Invalid"), "a string where the schema requires a number was answered {answer}");
    expect!(ctx.store.find(fruits, "apple").await?.is_none(), "a refused object is stored");
    Ok(())
}

async fn accepted(ctx: &Ctx, fruits: &Resource, apple: &Object) -> Verdict {
    let meta = &apple.0["metadata"];
    expect_eq!(meta["generation"], json!(1), "generation of a new object");
    let entry = &meta["managedFields"][0];
    let writer = (&entry["manager"], &entry["operation"], meta["managedFields"].as_array().map(Vec::len));
    expect_eq!(writer, (&json!("x"), &json!("Update"), Some(1)), "manager, operation and number of entries");
    let stored = ctx.store.get(fruits, "apple").await?;
    let revisions = (stored.create_rev.cast_unsigned(), stored.mod_rev.cast_unsigned());
    expect_eq!(revisions, (apple.rv(), apple.rv()), "create_revision and mod_revision");
    let value: Value = serde_json::from_slice(&stored.value)
        .map_err(|error| CheckError::failed(format!("the stored custom resource is not JSON: {error}")))?;
    expect_eq!(value["spec"], json!({"sweetness": 3}), "the stored spec");
    expect_eq!(value["metadata"]["managedFields"], meta["managedFields"], "the stored managedFields");
    Ok(())
}

async fn warned(ctx: &Ctx, fruits: &Resource) -> Verdict {
    let pear = Object::new(fruits, "pear").with("metadata.labels.color", "green").with("spec", json!({"bogus": 1}));
    let answer = post(ctx, fruits, "Warn", &pear.to_string()).await?;
    expect_eq!(answer.status, 201, "an unknown field with fieldValidation=Warn was answered {answer}");
    let warning = answer.header("warning");
    expect!(warning.contains(r#"unknown field \"spec.bogus\""#), "an unknown field caused the warning `{warning}`");
    let object = answer.object()?;
    expect!(object.0["spec"]["bogus"].is_null(), "an unknown field was kept: {object}");
    Ok(())
}

async fn selected(ctx: &Ctx, fruits: &Resource) -> Verdict {
    for (selector, expected) in
        [("color=red", vec!["apple"]), ("color!=red", vec!["pear"]), ("color", vec!["apple", "pear"])]
    {
        let query = suite::api::query(&[("labelSelector", selector)]);
        let list = ctx.api.list(fruits, &query).await?.items();
        let names: Vec<&str> = list.iter().map(Object::name).collect();
        expect_eq!(names, expected, "objects selected by {selector}");
    }
    let path = fruits.path(Some(ctx.api.namespace().await?));
    let request = Request::get(path).accept("application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = ctx.api.send(&request).await?.object()?.0;
    expect_eq!(table["kind"], json!("Table"), "kind of a Table");
    let columns: Vec<&Value> =
        table["columnDefinitions"].as_array().into_iter().flatten().map(|column| &column["name"]).collect();
    expect_eq!(columns, [&json!("Name"), &json!("Sweet")], "columns of the Table");
    let rows: Vec<&Value> = table["rows"].as_array().into_iter().flatten().map(|row| &row["cells"]).collect();
    expect_eq!(rows, [&json!(["apple", 3]), &json!(["pear", null])], "rows of the Table");
    Ok(())
}

async fn crd_storage_version(ctx: &Ctx) -> Verdict {
    let v1 = define_versions(ctx, &json!([version("v1", true), version("v2", false)])).await?;
    let v2 = Resource { version: "v2".into(), ..v1.clone() };
    let old = ctx.api.create(&v1, &Object::new(&v1, "old").with("data.k", "v")).await?;
    ctx.api.create(&v2, &Object::new(&v2, "old-too").with("data.k", "v")).await?;
    for name in ["old", "old-too"] {
        stored_as(ctx, &v1, name, &v1).await?;
    }
    let definition = format!("fruits.{}", v1.group);
    let swapped = json!({"spec": {"versions": [version("v1", false), version("v2", true)]}});
    let answer = ctx.api.try_patch(&DEFINITIONS, &definition, MERGE_PATCH, &swapped, "").await?.object()?;
    expect_eq!(answer.0["status"]["storedVersions"], json!(["v1", "v2"]), "status.storedVersions after the change");
    first_in_new_version(ctx, &v1, &v2).await?;

    // Existing objects do not change, and the server serves them in both versions.
    for name in ["old", "old-too"] {
        stored_as(ctx, &v1, name, &v1).await?;
    }
    for resource in [&v1, &v2] {
        let read = ctx.api.get(resource, "old").await?;
        let seen = (&read.0["apiVersion"], read.rv(), &read.0["data"]["k"]);
        let (version, data) = (json!(resource.api_version()), json!("v"));
        expect_eq!(seen, (&version, old.rv(), &data), "apiVersion, version and data of the old object");
        for item in ctx.api.list(resource, "").await?.items() {
            expect_eq!(item.0["apiVersion"], json!(resource.api_version()), "apiVersion in a list");
        }
    }
    let same = ctx.api.update(&v1, &ctx.api.get(&v1, "old").await?).await?;
    expect!(same.rv() > old.rv(), "a PUT that changes nothing did not rewrite an object of the old version");
    stored_as(ctx, &v1, "old", &v2).await?;
    stored_as(ctx, &v1, "old-too", &v1).await?;
    let again = ctx.api.update(&v1, &same).await?;
    expect_eq!(again.rv(), same.rv(), "resourceVersion after a PUT of an object of the new version");
    Ok(())
}

/// The object's stored bytes must have the API version of `stored`.
async fn stored_as(ctx: &Ctx, resource: &Resource, name: &str, stored: &Resource) -> Verdict {
    expect_eq!(stored_version(ctx, resource, name).await?, stored.api_version(), "the stored apiVersion of `{name}`");
    ctx.count("stored versions", 1);
    Ok(())
}

async fn stored_version(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict<String> {
    let value: Value = serde_json::from_slice(&ctx.store.get(resource, name).await?.value)
        .map_err(|error| CheckError::failed(format!("the stored `{name}` is not JSON: {error}")))?;
    Ok(value["apiVersion"].as_str().unwrap_or_default().to_owned())
}

/// The server applies a changed definition a moment after it has answered.
async fn first_in_new_version(ctx: &Ctx, v1: &Resource, v2: &Resource) -> Verdict {
    suite::wait::until("new objects to be stored as v2", ctx.wait_limit(), Duration::from_millis(200), || async {
        ctx.api.create(v1, &Object::new(v1, "new")).await?;
        let version = stored_version(ctx, v1, "new").await?;
        if version == v2.api_version() {
            return Ok(Ok(()));
        }
        ctx.api.delete(v1, "new").await?;
        Ok(Err(version))
    })
    .await
}
