//! Field ownership: the managedFields that a write records, and that they are in the stored bytes.

use serde_json::{Map, Value, json};

use crate::cc::patch::Kind;
use crate::support::verdict::within;
use judge::decode::{self, Encoding, Field, Wire, object_meta};
use suite::api::Response;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "cc.managed-fields-stored",
    place: here!(),
    level: Must,
    requirement: "Every write through the API records manager, operation (Apply or Update), apiVersion, time, fieldsType \
                  FieldsV1 and fieldsV1 in metadata.managedFields, and this is part of the stored value.",
    source: "apimachinery pkg/util/managedfields (internal/managedfields.go), pkg/apis/meta/v1/generated.proto \
             (ObjectMeta field 17, ManagedFieldsEntry)",
    observed: "The check sends a POST, a PUT and a JSON, merge, strategic and apply patch, each by another manager and \
               for another field, to a ConfigMap and (without strategic) to a custom resource. After each write the \
               entry must record the manager, the field and the operation, and the entries decoded from the stored \
               bytes must equal those that the API returns: protobuf or, on profile json and for custom resources, \
               JSON.",
    by_hand: "kubectl get cm a -o yaml --show-managed-fields; etcdctl get /registry/configmaps/default/a \
              --print-value-only | strings",
    profiles: &["default", "json"],
    requires: Requires::AnyCluster(&[Requirement::RawStore]),
    run: scenario!(managed_fields_stored),
}];

async fn managed_fields_stored(ctx: &Ctx) -> Verdict {
    let built_in = if ctx.profile().name == "json" { Encoding::Json } else { Encoding::Protobuf };
    writes(ctx, &CONFIG_MAPS, built_in, true).await?;
    let fruits = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    writes(ctx, &fruits, Encoding::Json, false).await
}

async fn writes(ctx: &Ctx, resource: &Resource, encoding: Encoding, strategic: bool) -> Verdict {
    let created = ctx.api.create(resource, &Object::new(resource, "a").with("data.post", "v")).await?;
    // Without a fieldManager, kube-apiserver takes the first part of the User-Agent as the manager.
    judge(ctx, resource, encoding, &created, &["archproof"], "Update", "post").await?;
    let mut managers = vec!["archproof"];
    let mut last = created;
    for (word, kind) in [
        ("put", None),
        ("json", Some(Kind::Json)),
        ("merge", Some(Kind::Merge)),
        ("strategic", Some(Kind::Strategic)),
        ("apply", Some(Kind::Apply)),
    ] {
        if kind == Some(Kind::Strategic) && !strategic {
            continue;
        }
        last = send(ctx, resource, word, kind, &last).await?.object()?;
        managers.push(word);
        let operation = if kind == Some(Kind::Apply) { "Apply" } else { "Update" };
        judge(ctx, resource, encoding, &last, &managers, operation, word).await?;
    }
    Ok(())
}

/// Sets `data.<word>` as manager `<word>`, by a patch of this kind or by a PUT.
async fn send(
    ctx: &Ctx,
    resource: &Resource,
    word: &str,
    kind: Option<Kind>,
    last: &Object,
) -> anyhow::Result<Response> {
    let query = format!("fieldManager={word}");
    let Some(kind) = kind else {
        let object = last.clone().with(&format!("data.{word}"), "v");
        return ctx.api.try_update_with(resource, &object, &query).await;
    };
    let patch = match kind {
        Kind::Json => json!([{"op": "add", "path": "/data/json", "value": "v"}]),
        Kind::Merge | Kind::Strategic => json!({"data": {word: "v"}}),
        Kind::Apply => Object::new(resource, "a").with("data.apply", "v").0,
    };
    ctx.api.try_patch(resource, "a", kind.media_type(), &patch, &query).await
}

/// Checks the answer to a write and the stored value. The last of the managers is the writer.
async fn judge(
    ctx: &Ctx,
    resource: &Resource,
    encoding: Encoding,
    answer: &Object,
    managers: &[&str],
    operation: &str,
    field: &str,
) -> Verdict {
    let shown = answer.0["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<&str> = shown.iter().filter_map(|entry| entry["manager"].as_str()).collect();
    names.sort_unstable();
    let mut expected = managers.to_vec();
    expected.sort_unstable();
    expect_eq!(names, expected, "managers of the {} after the write of data.{field}", resource.kind);
    let writer = managers.last().copied().unwrap_or_default();
    let entry = shown.iter().find(|entry| entry["manager"] == writer).unwrap_or(&Value::Null);
    records(entry, operation, &resource.api_version(), field)
        .map_err(within(format!("the write of data.{field} by {writer}")))?;

    let stored = ctx.store.get(resource, "a").await?;
    expect_eq!(stored.mod_rev.cast_unsigned(), answer.rv(), "mod_revision after the write of data.{field}");
    expect_eq!(decode::encoding(&stored.value), encoding, "encoding of the stored {}", resource.kind);
    let entries = stored_entries(&stored.value)
        .map_err(|fault| CheckError::failed(format!("managedFields of the stored {}: {fault}", resource.kind)))?;
    expect_eq!(entries, shown, "managedFields in the stored {}, and in the answer", resource.kind);
    ctx.count("entries", entries.len() as u64);
    Ok(())
}

/// The entry must record this write of `data.<field>`; the error describes the difference.
fn records(entry: &Value, operation: &str, api_version: &str, field: &str) -> Verdict {
    for (name, expected) in [("operation", operation), ("apiVersion", api_version), ("fieldsType", "FieldsV1")] {
        expect!(entry[name] == expected, "{name} is {}, not {expected}, in {entry}", entry[name]);
    }
    let time = entry["time"].as_str().unwrap_or_default();
    expect!(time.parse::<jiff::Timestamp>().is_ok(), "`{time}` is not a time, in {entry}");
    let owned = &entry["fieldsV1"]["f:data"][format!("f:{field}")];
    expect!(*owned == json!({}), "fieldsV1 does not own f:data f:{field}, in {entry}");
    Ok(())
}

/// `metadata.managedFields` of a stored value, in the form that the API returns.
fn stored_entries(value: &[u8]) -> Result<Vec<Value>, String> {
    match decode::encoding(value) {
        Encoding::Json => {
            let object: Value = serde_json::from_slice(value).map_err(|error| error.to_string())?;
            Ok(object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default())
        }
        Encoding::Protobuf => {
            let object = decode::fields(decode::envelope(value)?.raw)?;
            let meta = decode::fields(decode::field(&object, 1).ok_or("the object has no metadata (field 1)")?)?;
            let entries = meta.iter().filter(|field| field.number == object_meta::MANAGED_FIELDS);
            entries.map(protobuf_entry).collect()
        }
        other => Err(format!("cannot be read from a value encoded as {other:?}")),
    }
}

/// A ManagedFieldsEntry: strings by field number; 4 is the time, 7 a message with the fields as JSON. Empty strings are
/// left out, as in JSON.
fn protobuf_entry(field: &Field<'_>) -> Result<Value, String> {
    let Wire::Bytes(message) = field.value else {
        return Err(format!("an entry is not a message but {:?}", field.value));
    };
    let fields = decode::fields(message)?;
    let mut entry = Map::new();
    for (number, name) in [(1, "manager"), (2, "operation"), (3, "apiVersion"), (6, "fieldsType"), (8, "subresource")] {
        let text = decode::field(&fields, number).ok_or_else(|| format!("an entry has no {name} (field {number})"))?;
        if !text.is_empty() {
            entry.insert(name.to_owned(), String::from_utf8_lossy(text).into());
        }
    }
    if let Some(time) = decode::field(&fields, 4) {
        entry.insert("time".to_owned(), protobuf_time(time)?.into());
    }
    if let Some(owned) = decode::field(&fields, 7) {
        let raw = decode::fields(owned)?;
        let json = decode::field(&raw, 1).ok_or("fieldsV1 has no raw JSON (field 1)")?;
        let owned: Value = serde_json::from_slice(json).map_err(|error| format!("fieldsV1 is not JSON: {error}"))?;
        entry.insert("fieldsV1".to_owned(), owned);
    }
    Ok(Value::Object(entry))
}

/// A Time: seconds since 1970 in field 1. The API shows whole seconds, so nanoseconds in field 2 must be 0.
fn protobuf_time(message: &[u8]) -> Result<String, String> {
    let mut seconds = 0;
    for field in decode::fields(message)? {
        match (field.number, &field.value) {
            (1, Wire::Varint(value)) => seconds = value.cast_signed(),
            (2, Wire::Varint(0)) => {}
            _ => return Err(format!("a time has an unexpected field {field:?}")),
        }
    }
    let time = jiff::Timestamp::from_second(seconds).map_err(|error| error.to_string())?;
    Ok(time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::strip_resource_version::bytes;
    use crate::support::strip_resource_version::tests::END;

    fn entry() -> Value {
        json!({
            "manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}, "f:k": {}}},
        })
    }

    #[test]
    fn entry_must_record_manager_operation_and_field() {
        let without = |field: &str| Object(entry()).without(field).0;
        let with = |field: &str, value: Value| Object(entry()).with(field, value).0;
        records(&entry(), "Update", "v1", "k").unwrap();
        for bad in [
            Value::Null,
            without("operation"),
            without("apiVersion"),
            without("time"),
            without("fieldsType"),
            without("fieldsV1"),
            with("operation", "Apply".into()),
            with("apiVersion", "v2".into()),
            with("time", "yesterday".into()),
            with("fieldsType", "FieldsV2".into()),
            with("fieldsV1", json!({"f:data": {"f:other": {}}})),
        ] {
            assert!(records(&bad, "Update", "v1", "k").is_err(), "{bad}");
        }
    }

    /// A stored ConfigMap with these messages as managedFields.
    fn stored(entries: &[Vec<u8>]) -> Vec<u8> {
        let meta: Vec<u8> = entries.iter().flat_map(|entry| bytes(object_meta::MANAGED_FIELDS, entry)).collect();
        let kind = bytes(1, b"\x0a\x02v1\x12\x09ConfigMap");
        [decode::PROTOBUF_MAGIC, &kind, &bytes(2, &bytes(1, &meta)), END].concat()
    }

    fn message(time: &[u8], owned: &[u8]) -> Vec<u8> {
        [
            bytes(1, b"m"),
            bytes(2, b"Update"),
            bytes(3, b"v1"),
            bytes(4, time),
            bytes(6, b"FieldsV1"),
            bytes(7, &bytes(1, owned)),
            bytes(8, b""),
        ]
        .concat()
    }

    /// 2026-01-02T03:04:05Z is 1767323045 seconds.
    const TIME: &[u8] = b"\x08\xa5\xeb\xdc\xca\x06\x10\x00";
    const OWNED: &[u8] = br#"{"f:data":{".":{},"f:k":{}}}"#;

    #[test]
    fn entries_are_read_from_protobuf_and_json() {
        assert_eq!(stored_entries(&stored(&[message(TIME, OWNED)])), Ok(vec![entry()]));
        assert_eq!(stored_entries(&stored(&[])), Ok(vec![]));
        let json = json!({"kind": "ConfigMap", "metadata": {"name": "a", "managedFields": [entry()]}}).to_string();
        assert_eq!(stored_entries(json.as_bytes()), Ok(vec![entry()]));
        assert_eq!(stored_entries(br#"{"metadata":{"name":"a"}}"#), Ok(vec![]));
    }

    #[test]
    fn broken_entries_are_refused() {
        let no_manager = message(TIME, OWNED)[3..].to_vec();
        for (what, value) in [
            ("no JSON in fieldsV1", stored(&[message(TIME, b"{")])),
            ("nanoseconds", stored(&[message(b"\x08\x01\x10\x01", OWNED)])),
            ("no manager", stored(&[no_manager])),
            ("a cut entry", stored(&[message(TIME, OWNED)[..20].to_vec()])),
            ("YAML", b"metadata:\n".to_vec()),
            ("nothing", Vec::new()),
        ] {
            assert!(stored_entries(&value).is_err(), "{what}: {:?}", stored_entries(&value));
        }
    }
}
