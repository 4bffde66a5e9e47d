//! Stored bytes: their encoding, the protobuf envelope, and the few fields of ObjectMeta that judges need.
//!
//! Layouts: apimachinery `runtime/generated.proto`, `runtime/serializer/protobuf`, `meta/v1/generated.proto`. The code
//! walks the wire format, because a schema-driven decoder does not distinguish an absent field from an empty one.

use std::collections::BTreeMap;

use serde_json::Value;

/// `k8s` and a NUL: kube-apiserver writes this before protobuf.
pub const PROTOBUF_MAGIC: &[u8] = b"k8s\0";
/// Every encryption provider writes this first.
pub const ENCRYPTED: &[u8] = b"k8s:enc:";
/// The self-described CBOR tag.
pub const CBOR: &[u8] = &[0xd9, 0xd9, 0xf7];

/// The encoding of a stored value, recognised by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Protobuf,
    Json,
    Yaml,
    Cbor,
    Encrypted,
    Empty,
}

pub fn encoding(value: &[u8]) -> Encoding {
    match value {
        [] => Encoding::Empty,
        _ if value.starts_with(PROTOBUF_MAGIC) => Encoding::Protobuf,
        _ if value.starts_with(ENCRYPTED) => Encoding::Encrypted,
        _ if value.starts_with(CBOR) => Encoding::Cbor,
        [b'{', ..] => Encoding::Json,
        _ => Encoding::Yaml,
    }
}

/// A field of a protobuf message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    pub number: u32,
    pub value: Wire<'a>,
}

/// A value by wire type. Groups do not occur in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wire<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

/// The fields of a message in byte order; the error names the byte at which it stops being protobuf.
pub fn fields(message: &[u8]) -> Result<Vec<Field<'_>>, String> {
    let mut rest = message;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let at = message.len() - rest.len();
        let field =
            next_field(&mut rest).ok_or_else(|| format!("no protobuf field at byte {at} of {}", message.len()))?;
        found.push(field);
    }
    Ok(found)
}

/// The bytes of the first field with this number.
pub fn field<'a>(fields: &[Field<'a>], number: u32) -> Option<&'a [u8]> {
    all(fields, number).next()
}

/// The bytes of the last field with this number: if a field occurs twice, every reader of protobuf takes the last
/// value.
fn last<'a>(fields: &[Field<'a>], number: u32) -> Option<&'a [u8]> {
    all(fields, number).next_back()
}

fn all<'a>(fields: &[Field<'a>], number: u32) -> impl DoubleEndedIterator<Item = &'a [u8]> {
    fields.iter().filter_map(move |field| match field.value {
        Wire::Bytes(bytes) if field.number == number => Some(bytes),
        _ => None,
    })
}

/// `runtime.Unknown`, the envelope of a stored protobuf value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: String,
    pub kind: String,
    /// The object's own message.
    pub raw: &'a [u8],
    pub content_encoding: Option<&'a [u8]>,
    pub content_type: Option<&'a [u8]>,
    /// The field numbers in byte order.
    pub order: Vec<u32>,
}

/// Removes the magic and reads the envelope.
pub fn envelope(value: &[u8]) -> Result<Envelope<'_>, String> {
    let unknown = value.strip_prefix(PROTOBUF_MAGIC).ok_or("the value does not begin with k8s\\0")?;
    let outer = fields(unknown)?;
    let meta = fields(field(&outer, 1).ok_or("the envelope has no TypeMeta (field 1)")?)?;
    let text = |number| field(&meta, number).map(|b| String::from_utf8_lossy(b).into_owned()).unwrap_or_default();
    Ok(Envelope {
        api_version: text(1),
        kind: text(2),
        raw: field(&outer, 2).ok_or("the envelope has no object (field 2)")?,
        content_encoding: field(&outer, 3),
        content_type: field(&outer, 4),
        order: outer.iter().map(|field| field.number).collect(),
    })
}

/// The object metadata that judges need, from protobuf or JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
}

/// None if the encoding hides it.
pub fn meta(value: &[u8]) -> Option<Meta> {
    match encoding(value) {
        Encoding::Protobuf => protobuf_meta(envelope(value).ok()?.raw),
        Encoding::Json => json_meta(&serde_json::from_slice(value).ok()?),
        Encoding::Yaml | Encoding::Cbor | Encoding::Encrypted | Encoding::Empty => None,
    }
}

/// `apiVersion/kind` of a stored value: `v1/ConfigMap`, `apps/v1/Deployment`.
pub fn stored_kind(value: &[u8]) -> Result<String, String> {
    match encoding(value) {
        Encoding::Protobuf => envelope(value).map(|e| format!("{}/{}", e.api_version, e.kind)),
        Encoding::Json => {
            let value: Value = serde_json::from_slice(value).map_err(|error| error.to_string())?;
            let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
            Ok(format!("{}/{}", text("apiVersion"), text("kind")))
        }
        other => Err(format!("the kind cannot be read from a value encoded as {other:?}")),
    }
}

/// Numbers of ObjectMeta's fields.
pub mod object_meta {
    pub const NAME: u32 = 1;
    pub const NAMESPACE: u32 = 3;
    pub const SELF_LINK: u32 = 4;
    pub const UID: u32 = 5;
    pub const RESOURCE_VERSION: u32 = 6;
    pub const GENERATION: u32 = 7;
    pub const LABELS: u32 = 11;
    pub const MANAGED_FIELDS: u32 = 17;
}

/// ObjectMeta is field 1 of every object.
fn protobuf_meta(object: &[u8]) -> Option<Meta> {
    let outer = fields(object).ok()?;
    let meta = fields(field(&outer, 1)?).ok()?;
    let text = |number| last(&meta, number).map(|b| String::from_utf8_lossy(b).into_owned()).unwrap_or_default();
    let labels = all(&meta, object_meta::LABELS).filter_map(|entry| {
        let entry = fields(entry).ok()?;
        let text = |number| String::from_utf8_lossy(last(&entry, number).unwrap_or_default()).into_owned();
        Some((text(1), text(2)))
    });
    Some(Meta {
        name: text(object_meta::NAME),
        namespace: text(object_meta::NAMESPACE),
        uid: text(object_meta::UID),
        labels: labels.collect(),
    })
}

fn json_meta(object: &Value) -> Option<Meta> {
    let meta = object.get("metadata")?;
    let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
    let labels = meta["labels"].as_object().into_iter().flatten();
    Some(Meta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        labels: labels.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect(),
    })
}

/// Removes the first field and returns it; None if the bytes do not begin with a field.
pub(crate) fn next_field<'a>(rest: &mut &'a [u8]) -> Option<Field<'a>> {
    let tag = varint(rest)?;
    let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?;
    let value = match tag & 7 {
        0 => Wire::Varint(varint(rest)?),
        1 => Wire::Fixed64(take(rest, 8)?.try_into().ok()?),
        2 => {
            let length = varint(rest)?.try_into().ok()?;
            Wire::Bytes(take(rest, length)?)
        }
        5 => Wire::Fixed32(take(rest, 4)?.try_into().ok()?),
        _ => return None,
    };
    Some(Field { number, value })
}

pub(crate) fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::values::field;

    /// A ConfigMap `a` in `n` with label l=x, by hand after generated.proto.
    fn config_map() -> Vec<u8> {
        let meta = b"\x0a\x01a\x12\x00\x1a\x01n\x22\x00\x2a\x01u\x32\x00\x38\x00\x5a\x06\x0a\x01l\x12\x01x";
        let type_meta = b"\x0a\x02v1\x12\x09ConfigMap";
        [PROTOBUF_MAGIC, &field(1, type_meta), &field(2, &field(1, meta)), b"\x1a\x00\x22\x00"].concat()
    }

    #[test]
    fn reads_envelope() {
        let value = config_map();
        let envelope = envelope(&value).unwrap();
        assert_eq!((envelope.api_version.as_str(), envelope.kind.as_str()), ("v1", "ConfigMap"));
        assert_eq!(envelope.order, [1, 2, 3, 4]);
        assert_eq!(envelope.content_encoding, Some(b"".as_slice()));
        let meta = meta(&value).unwrap();
        assert_eq!((meta.name.as_str(), meta.namespace.as_str(), meta.uid.as_str()), ("a", "n", "u"));
        assert_eq!(meta.labels["l"], "x");
        assert_eq!(stored_kind(&value).unwrap(), "v1/ConfigMap");
    }

    #[test]
    fn last_value_of_a_repeated_field_counts() {
        let meta = b"\x0a\x01a\x0a\x01b\x5a\x09\x0a\x01l\x12\x01x\x12\x01y";
        let value = [PROTOBUF_MAGIC, b"\x0a\x00", &field(2, &field(1, meta))].concat();
        let meta = super::meta(&value).unwrap();
        assert_eq!((meta.name.as_str(), meta.labels["l"].as_str()), ("b", "y"));
        let borrowed = crate::stored::meta(&value).unwrap();
        assert_eq!((borrowed.name, &borrowed.labels[..]), ("b", &[("l", "y")][..]));
        let broken = [&value[..value.len() - 3], b"\x12\x02y"].concat();
        assert_eq!((super::meta(&broken).map(|meta| meta.labels.len()), crate::stored::meta(&broken)), (Some(0), None));
    }

    #[test]
    fn truncated_values_are_not_complete() {
        let value = config_map();
        // A cut at the end of a field leaves valid protobuf; then a field of the envelope is missing.
        for length in 0..value.len() {
            let complete = envelope(&value[..length]).is_ok_and(|e| e.order == [1, 2, 3, 4]);
            assert!(!complete, "{length} bytes of {}", value.len());
        }
    }

    #[test]
    fn encoding_is_recognised_by_the_first_bytes() {
        for (value, expected) in [
            (&b""[..], Encoding::Empty),
            (b"k8s\0\x0a", Encoding::Protobuf),
            (b"k8s:enc:aescbc:v1:k:", Encoding::Encrypted),
            (b"{\"kind\":1}", Encoding::Json),
            (b"apiVersion: v1\n", Encoding::Yaml),
            (b"\xd9\xd9\xf7\xa0", Encoding::Cbor),
        ] {
            assert_eq!(encoding(value), expected, "{value:?}");
        }
    }
}
