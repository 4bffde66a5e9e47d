//! Field ownership: the managedFields that a write records, and that they are in the stored bytes.

use model::Level::Must;
use model::Resource;
use serde_json::{Map, Value, json};

use judge::decode::{self, Encoding, Field, Wire, object_meta};
use suite::api::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Response, STRATEGIC_PATCH};
use suite::check::{Check, CheckError, Requirement, Requires, Verdict};
use suite::ctx::Ctx;
use suite::object::{CONFIG_MAPS, Object};
use suite::{expect_eq, here, scenario};

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

/// A kind of write; it sets `data.<word>` as manager `<word>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Put,
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Write {
    fn word(self) -> &'static str {
        match self {
            Write::Put => "put",
            Write::Json => "json",
            Write::Merge => "merge",
            Write::Strategic => "strategic",
            Write::Apply => "apply",
        }
    }
}

async fn writes(ctx: &Ctx, resource: &Resource, encoding: Encoding, strategic: bool) -> Verdict {
    let created = ctx.api.create(resource, &Object::new(resource, "a").with("data.post", "v")).await?;
    // Without a fieldManager, kube-apiserver takes the first part of the User-Agent as the manager.
    judge(ctx, resource, encoding, &created, &["archproof"], "Update", "post").await?;
    let mut managers = vec!["archproof"];
    let mut last = created;
    for write in [Write::Put, Write::Json, Write::Merge, Write::Strategic, Write::Apply] {
        if write == Write::Strategic && !strategic {
            continue;
        }
        last = send(ctx, resource, write, &last).await?.object()?;
        managers.push(write.word());
        let operation = if write == Write::Apply { "Apply" } else { "Update" };
        judge(ctx, resource, encoding, &last, &managers, operation, write.word()).await?;
    }
    Ok(())
}

async fn send(ctx: &Ctx, resource: &Resource, write: Write, last: &Object) -> anyhow::Result<Response> {
    let word = write.word();
    let query = format!("fieldManager={word}");
    let data = json!({"data": {word: "v"}});
    let (media_type, patch) = match write {
        Write::Put => {
            let object = last.clone().with(&format!("data.{word}"), "v");
            return ctx.api.try_update_with(resource, &object, &query).await;
        }
        Write::Json => (JSON_PATCH, json!([{"op": "add", "path": "/data/json", "value": "v"}])),
        Write::Merge => (MERGE_PATCH, data),
        Write::Strategic => (STRATEGIC_PATCH, data),
        Write::Apply => (APPLY_PATCH, Object::new(resource, "a").with("data.apply", "v").0),
    };
    ctx.api.try_patch(resource, "a", media_type, &patch, &query).await
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
        .map_err(|fault| CheckError::failed(format!("the write of data.{field} by {writer}: {fault}")))?;

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
fn records(entry: &Value, operation: &str, api_version: &str, field: &str) -> Result<(), String> {
    for (name, expected) in [("operation", operation), ("apiVersion", api_version), ("fieldsType", "FieldsV1")] {
        if entry[name] != expected {
            return Err(format!("{name} is {}, not {expected}, in {entry}", entry[name]));
        }
    }
    let time = entry["time"].as_str().unwrap_or_default();
    if time.parse::<jiff::Timestamp>().is_err() {
        return Err(format!("`{time}` is not a time, in {entry}"));
    }
    if entry["fieldsV1"]["f:data"][format!("f:{field}")] != json!({}) {
        return Err(format!("fieldsV1 does not own f:data f:{field}, in {entry}"));
    }
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
        assert_eq!(records(&entry(), "Update", "v1", "k"), Ok(()));
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

    /// A field of wire type 2.
    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }

    /// A stored ConfigMap with these messages as managedFields (field 17 has a tag of two bytes).
    fn stored(entries: &[Vec<u8>]) -> Vec<u8> {
        let meta: Vec<u8> =
            entries.iter().flat_map(|e| [&[0x8a, 0x01, u8::try_from(e.len()).unwrap()], &e[..]].concat()).collect();
        let object = bytes(1, &meta);
        assert!(object.len() < 128, "the fixture supports only one-byte lengths");
        [decode::PROTOBUF_MAGIC, &bytes(1, b"\x0a\x02v1\x12\x09ConfigMap"), &bytes(2, &object), b"\x1a\0\x22\0"]
            .concat()
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
