//! Faults of a stored value that its bytes alone show. This file sends no requests.
//!
//! Each `*_fault` says what is wrong, or nothing. Layouts are explained in [`judge::decode`].

use ring::digest::{SHA256, digest};
use serde_json::Value;

use judge::decode::{self, Encoding, Field, Wire, encoding, envelope, object_meta};

/// The value must be protobuf behind the four magic bytes.
pub(crate) fn protobuf_fault(value: &[u8]) -> Result<(), String> {
    match encoding(value) {
        Encoding::Protobuf => Ok(()),
        seen => Err(format!("begins with {}, which is {seen:?}, not 6b 38 73 00", head(value))),
    }
}

/// The envelope must hold only the given TypeMeta (`apps/v1/Deployment`), the object with this name, two empty fields.
pub(crate) fn envelope_fault(value: &[u8], stored_as: &str, name: &str) -> Result<(), String> {
    let seen = envelope(value)?;
    if seen.order != [1, 2, 3, 4] {
        return Err(format!("the envelope has the fields {:?}, not 1, 2, 3, 4", seen.order));
    }
    let kind = format!("{}/{}", seen.api_version, seen.kind);
    if kind != stored_as {
        return Err(format!("the envelope says {kind}, not {stored_as}"));
    }
    if seen.content_encoding != Some(b"") || seen.content_type != Some(b"") {
        return Err("contentEncoding and contentType are not both empty".into());
    }
    if !value.ends_with(b"\x1a\x00\x22\x00") {
        return Err(format!("ends with {}, not 1a 00 22 00", tail(value)));
    }
    match decode::field(&meta_fields(seen.raw)?, object_meta::NAME).unwrap_or_default() {
        seen if seen == name.as_bytes() => Ok(()),
        seen => Err(format!("the object in the envelope is named {:?}", String::from_utf8_lossy(seen))),
    }
}

/// Returns the object if the value is compact JSON of the kind `stored_as` without a resource version, and a newline.
pub(crate) fn json_fault(value: &[u8], stored_as: &str) -> Result<Value, String> {
    if !value.starts_with(b"{") {
        return Err(format!("begins with {}, not with a brace", head(value)));
    }
    let Some(text) = value.strip_suffix(b"\n") else { return Err(format!("ends with {}, not 0a", tail(value))) };
    if let Some(at) = space_outside_strings(text) {
        return Err(format!("is not compact: white space at byte {at}"));
    }
    let object = serde_json::from_slice(text).map_err(|error| format!("is not JSON: {error}"))?;
    typed(object, stored_as)
}

/// Returns the object if the value is YAML, but not JSON, of the kind `stored_as` without a resource version.
pub(crate) fn yaml_fault(value: &[u8], stored_as: &str) -> Result<Value, String> {
    let seen = encoding(value);
    if seen != Encoding::Yaml {
        return Err(format!("begins with {}, which is {seen:?}, not YAML", head(value)));
    }
    let object = serde_yaml::from_slice(value).map_err(|error| format!("is not YAML: {error}"))?;
    typed(object, stored_as)
}

/// The metadata must have managedFields, and no value in a field that only a response may carry.
pub(crate) fn versioned_fault(value: &[u8]) -> Result<(), String> {
    match encoding(value) {
        Encoding::Protobuf => protobuf_versioned_fault(value),
        Encoding::Json => text_versioned_fault(&serde_json::from_slice(value).map_err(|error| error.to_string())?),
        Encoding::Yaml => text_versioned_fault(&serde_yaml::from_slice(value).map_err(|error| error.to_string())?),
        other => Err(format!("is {other:?}: its metadata cannot be read")),
    }
}

/// The first difference of two values, with its path (`spec.ports[0].name`); none if they are equal.
pub(crate) fn difference(expected: &Value, seen: &Value) -> Option<String> {
    differ(expected, seen, true)
}

/// The first field or item of `wanted` that `seen` lacks or has with another value; `seen` may have more fields.
pub(crate) fn lost(wanted: &Value, seen: &Value) -> Option<String> {
    differ(wanted, seen, false)
}

/// The index of `needle` in `value`.
pub(crate) fn position(value: &[u8], needle: &[u8]) -> Option<usize> {
    value.windows(needle.len().max(1)).position(|window| window == needle)
}

/// The first bytes as hexadecimal.
pub(crate) fn head(value: &[u8]) -> String {
    hex(&value[..value.len().min(8)])
}

/// The SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tail(value: &[u8]) -> String {
    hex(&value[value.len().saturating_sub(8)..])
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".into();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<String>>().join(" ")
}

fn typed(object: Value, stored_as: &str) -> Result<Value, String> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let kind = format!("{}/{}", text("apiVersion"), text("kind"));
    if kind != stored_as {
        return Err(format!("says {kind}, not {stored_as}"));
    }
    let Some(metadata) = object["metadata"].as_object() else { return Err("has no metadata".into()) };
    if metadata.contains_key("resourceVersion") {
        return Err(format!("has metadata.resourceVersion {}", metadata["resourceVersion"]));
    }
    Ok(object)
}

fn protobuf_versioned_fault(value: &[u8]) -> Result<(), String> {
    let meta = meta_fields(envelope(value)?.raw)?;
    for (number, name) in [(object_meta::RESOURCE_VERSION, "resourceVersion"), (object_meta::SELF_LINK, "selfLink")] {
        let found: Vec<&Wire<'_>> = meta.iter().filter(|f| f.number == number).map(|f| &f.value).collect();
        if found != [&Wire::Bytes(b"")] {
            return Err(format!("{name} (field {number} of ObjectMeta) is {found:?}, not once and empty"));
        }
    }
    match decode::field(&meta, object_meta::MANAGED_FIELDS) {
        None | Some([]) => Err("has no managedFields (field 17 of ObjectMeta)".into()),
        Some(_) => Ok(()),
    }
}

fn text_versioned_fault(object: &Value) -> Result<(), String> {
    let metadata = &object["metadata"];
    for name in ["resourceVersion", "selfLink"] {
        if let Some(value) = metadata.get(name) {
            return Err(format!("has metadata.{name} {value}"));
        }
    }
    match metadata["managedFields"].as_array().map_or(0, Vec::len) {
        0 => Err("has no metadata.managedFields".into()),
        _ => Ok(()),
    }
}

/// The fields of an object's ObjectMeta, its first field.
fn meta_fields(object: &[u8]) -> Result<Vec<Field<'_>>, String> {
    let outer = decode::fields(object)?;
    match outer.first() {
        Some(Field { number: 1, value: Wire::Bytes(meta) }) => decode::fields(meta),
        _ => Err("the object does not begin with its ObjectMeta (field 1)".into()),
    }
}

/// The index of the first white space outside JSON strings.
fn space_outside_strings(text: &[u8]) -> Option<usize> {
    let (mut within, mut escaped) = (false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if within => escaped = true,
            b'"' => within = !within,
            b' ' | b'\t' | b'\n' | b'\r' if !within => return Some(at),
            _ => {}
        }
    }
    None
}

fn differ(expected: &Value, seen: &Value, both_ways: bool) -> Option<String> {
    match (expected, seen) {
        (Value::Object(left), Value::Object(right)) => {
            let of_left = left.iter().find_map(|(name, value)| match right.get(name) {
                Some(other) => differ(value, other, both_ways).map(|rest| within(name, &rest)),
                None => Some(format!("{name}: expected {value}, seen nothing")),
            });
            let mut of_right = right.iter().filter(|(name, _)| both_ways && !left.contains_key(*name));
            of_left.or_else(|| of_right.next().map(|(name, value)| format!("{name}: expected nothing, seen {value}")))
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let pairs = left.iter().zip(right).enumerate();
            pairs.into_iter().find_map(|(index, (value, other))| {
                differ(value, other, both_ways).map(|rest| within(&format!("[{index}]"), &rest))
            })
        }
        _ if expected == seen => None,
        _ => Some(format!(": expected {expected}, seen {seen}")),
    }
}

fn within(step: &str, rest: &str) -> String {
    if rest.starts_with([':', '[']) { format!("{step}{rest}") } else { format!("{step}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::strip_resource_version::bytes;
    use crate::support::strip_resource_version::tests::{END, value};
    use judge::decode::PROTOBUF_MAGIC;
    use serde_json::json;

    #[test]
    fn every_deviation_of_an_envelope_is_a_fault() {
        let good = value(b"", b"", b"m", END);
        let fault = |value: &[u8]| envelope_fault(value, "v1/ConfigMap", "a");
        assert_eq!(fault(&good), Ok(()));
        let other_type = [bytes(3, b""), bytes(4, b"text/plain")].concat();
        let swapped = [bytes(4, b""), bytes(3, b"")].concat();
        for (bad, word) in [
            (good[4..].to_vec(), "does not begin"),
            (value(b"", b"", b"m", b""), "fields [1, 2]"),
            (value(b"", b"", b"m", b"\x1a\x00"), "fields [1, 2, 3]"),
            (value(b"", b"", b"m", &swapped), "fields [1, 2, 4, 3]"),
            (value(b"", b"", b"m", &other_type), "not both empty"),
            (value(b"", b"", b"m", &[END, END].concat()), "fields"),
            // The same length in two bytes: valid protobuf, but not the bytes that the serializer writes.
            (value(b"", b"", b"m", b"\x1a\x00\x22\x80\x00"), "ends with"),
            ([PROTOBUF_MAGIC, &bytes(1, b""), &bytes(2, b""), END].concat(), "says /"),
        ] {
            let fault = fault(&bad).unwrap_err();
            assert!(fault.contains(word), "{word}: {fault}");
        }
        assert!(envelope_fault(&good, "v2/ConfigMap", "a").is_err());
        assert!(envelope_fault(&good, "v1/ConfigMap", "b").is_err());
    }

    #[test]
    fn protobuf_requires_the_magic_bytes() {
        assert_eq!(protobuf_fault(b"k8s\0\x0a"), Ok(()));
        for bad in [&b""[..], b"k8s", b"k8s:enc:aescbc:v1:k:", b"{}", b"\x0ak8s\0"] {
            assert!(protobuf_fault(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn json_must_be_compact_and_end_in_one_newline() {
        let good = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a b\" {\n"}}"#;
        let line = |text: &[u8]| [text, b"\n"].concat();
        assert!(json_fault(&line(good), "v1/ConfigMap").is_ok());
        for (bad, word) in [
            (good.to_vec(), "not 0a"),
            (line(&line(good)), "white space"),
            (line(br#"{"kind": "ConfigMap","apiVersion":"v1","metadata":{}}"#), "white space at byte 8"),
            (line(br#"{"kind":"ConfigMap","apiVersion":"v1"}"#), "no metadata"),
            (line(br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":""}}"#), "resourceVersion"),
            (line(br#"{"kind":"ConfigMap","metadata":{}}"#), "says /ConfigMap"),
            (line(br#"{"kind":"Secret","apiVersion":"v1","metadata":{}}"#), "says v1/Secret"),
            (line(br#"[{}]"#), "brace"),
            (line(br#"{"kind":"#), "not JSON"),
            (b"kind: ConfigMap\n".to_vec(), "brace"),
        ] {
            let fault = json_fault(&bad, "v1/ConfigMap").unwrap_err();
            assert!(fault.contains(word), "{word}: {fault}");
        }
    }

    #[test]
    fn json_is_not_taken_for_yaml() {
        let good = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
        assert_eq!(yaml_fault(good, "v1/ConfigMap").unwrap()["metadata"]["name"], "a");
        for (bad, word) in [
            (&b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{}}\n"[..], "Json"),
            (b"k8s\0", "Protobuf"),
            (b"apiVersion: v1\nkind: Secret\nmetadata: {}\n", "says v1/Secret"),
            (b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  resourceVersion: \"1\"\n", "resourceVersion"),
            (b"apiVersion: v1\nkind: [ConfigMap\n", "is not YAML"),
        ] {
            let fault = yaml_fault(bad, "v1/ConfigMap").unwrap_err();
            assert!(fault.contains(word), "{word}: {fault}");
        }
    }

    #[test]
    fn stored_resource_version_or_self_link_is_found_in_every_encoding() {
        assert_eq!(versioned_fault(&value(b"", b"", b"m", END)), Ok(()));
        assert_eq!(versioned_fault(br#"{"metadata":{"managedFields":[{}]}}"#), Ok(()));
        assert_eq!(versioned_fault(b"metadata:\n  managedFields:\n  - manager: m\n"), Ok(()));
        for (bad, word) in [
            (value(b"", b"7", b"m", END), "resourceVersion"),
            (value(b"/api", b"", b"m", END), "selfLink"),
            (value(b"", b"", b"", END), "managedFields"),
            (br#"{"metadata":{"resourceVersion":"","managedFields":[{}]}}"#.to_vec(), "resourceVersion"),
            (br#"{"metadata":{"selfLink":"/api","managedFields":[{}]}}"#.to_vec(), "selfLink"),
            (br#"{"metadata":{"managedFields":[]}}"#.to_vec(), "managedFields"),
            (b"metadata:\n  resourceVersion: \"7\"\n".to_vec(), "resourceVersion"),
            (b"k8s:enc:aescbc:v1:k:x".to_vec(), "Encrypted"),
            (b"k8s\0\x0a".to_vec(), "protobuf"),
        ] {
            let fault = versioned_fault(&bad).unwrap_err();
            assert!(fault.contains(word), "{word}: {fault}");
        }
        // Absent is not empty: the generated marshaler always writes both fields.
        let absent = [bytes(1, &[bytes(1, b"a"), bytes(17, b"m")].concat())].concat();
        let absent = [PROTOBUF_MAGIC, &bytes(1, b""), &bytes(2, &absent), END].concat();
        assert!(versioned_fault(&absent).is_err_and(|fault| fault.contains("[]")));
    }

    #[test]
    fn difference_names_its_path() {
        let base = json!({"a": {"b": [1, {"c": "x"}]}, "d": null});
        assert_eq!(difference(&base, &base), None);
        let changed = json!({"a": {"b": [1, {"c": "y"}]}, "d": null});
        assert_eq!(difference(&base, &changed).unwrap(), r#"a.b[1].c: expected "x", seen "y""#);
        let more = json!({"a": {"b": [1, {"c": "x", "e": 0}]}, "d": null});
        assert_eq!(difference(&base, &more).unwrap(), "a.b[1].e: expected nothing, seen 0");
        assert_eq!(lost(&base, &more), None);
        assert_eq!(lost(&more, &base).unwrap(), "a.b[1].e: expected 0, seen nothing");
        assert!(lost(&base, &json!({"a": {"b": [1]}, "d": null})).is_some());
    }

    #[test]
    fn bytes_are_found_at_any_position() {
        assert_eq!(position(b"hay needle", b"needle"), Some(4));
        assert_eq!(position(b"hay", b"needle"), None);
    }
}
