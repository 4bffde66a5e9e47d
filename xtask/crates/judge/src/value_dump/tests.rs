//! Pieces cover every byte and name its field, in well-formed and malformed values.

use std::collections::BTreeMap;

use super::schema::count;
use super::*;
use crate::decode::PROTOBUF_MAGIC;
use crate::generate::values::field;

/// A ConfigMap `a` with two labels, one finalizer and `data` (field 2), by hand after generated.proto.
fn protobuf() -> Vec<u8> {
    let label = |key: &[u8]| field(11, &[field(1, key), field(2, b"v")].concat());
    let meta = [field(1, b"a"), b"\x38\x01".to_vec(), label(b"x"), label(b"y.z"), field(14, b"f")].concat();
    let object = [field(1, &meta), field(2, &[field(1, b"k"), field(2, b"text")].concat())].concat();
    let kind = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    [PROTOBUF_MAGIC, &field(1, &kind), &field(2, &object), b"\x1a\x00\x22\x00"].concat()
}

const JSON: &[u8] = b"{\"kind\":\"X\",\"metadata\":{\"labels\":{\"a.b\":\"1\"},\"list\":[1, {\"c\":null}],\"e\":{}}}\n";
const YAML: &[u8] = b"kind: X\nmetadata:\n  finalizers:\n  - f\n  labels:\n    a: \"1\"\n  name: n\nspec: {}\n";

fn covers(value: &[u8]) {
    let mut next = 0;
    for piece in split(value) {
        assert_eq!(piece.at, next, "{piece:?} of {value:?}");
        next += piece.length;
    }
    assert_eq!(next, value.len(), "{value:?}");
}

fn says(value: &[u8], path: &str) -> String {
    let all = split(value);
    let paths = || all.iter().map(|piece| piece.path.as_str()).collect::<Vec<&str>>();
    let found = all.iter().find(|piece| piece.path == path);
    found.unwrap_or_else(|| panic!("no {path} in {:?}", paths())).text.clone()
}

#[test]
fn every_byte_is_in_one_piece_of_malformed_values() {
    for value in [&protobuf()[..], JSON, YAML, b"k8s:enc:aescbc:v1:key:\x00\x01", b"\xd9\xd9\xf7\xa0", b"", b"k8s:enc:"]
    {
        for length in 0..=value.len() {
            covers(&value[..length]);
        }
        for at in 0..value.len() {
            let mut broken = value.to_vec();
            broken[at] ^= 0xff;
            covers(&broken);
        }
    }
}

#[test]
fn value_of_any_depth_is_split() {
    covers(&[b"{\"a\":".to_vec(), b"[".repeat(100_000)].concat());
    let nested = (0..4000).fold(Vec::new(), |inner, _| field(1, &inner));
    covers(&[PROTOBUF_MAGIC, &nested].concat());
}

/// A field number that counts how often it is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counted<'a>(u32, &'a std::cell::Cell<u64>);

impl Ord for Counted<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.1.set(self.1.get() + 1);
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Counted<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[test]
#[expect(clippy::mutable_key_type, reason = "the cell counts comparisons, and does not change their result")]
fn cost_of_a_field_does_not_grow_with_the_number_of_fields() {
    let cost = |fields: u32, numbers: u32| {
        let comparisons = std::cell::Cell::new(0);
        let mut seen = BTreeMap::new();
        for field in 0..fields {
            assert_eq!(
                count(&mut seen, Counted(field % numbers, &comparisons)),
                usize::try_from(field / numbers).unwrap()
            );
        }
        comparisons.get() / u64::from(fields)
    };
    for fields in [1 << 10, 1 << 16] {
        assert!(cost(fields, 1) <= 2, "{fields} fields of one number: {} comparisons each", cost(fields, 1));
        // A search in a tree with that many numbers.
        assert!(cost(fields, fields) <= 64, "{fields} numbers: {} comparisons each", cost(fields, fields));
    }
}

#[test]
fn long_names_are_not_repeated_in_every_path_below_them() {
    let size = |value: &[u8]| -> usize { split(value).iter().map(|piece| piece.path.len() + piece.text.len()).sum() };
    let protobuf = |n: usize| {
        let label = [field(1, &vec![b'k'; n]), b"\x18\x01".repeat(n)].concat();
        [PROTOBUF_MAGIC, &field(2, &field(1, &field(11, &label)))].concat()
    };
    let json = |n: usize| format!("{{\"{}\":[{}0]}}", "k".repeat(n), "0,".repeat(n)).into_bytes();
    let yaml = |n: usize| format!("{}:\n{}", "k".repeat(n), "  a: b\n".repeat(n)).into_bytes();
    for (value, what) in [(&protobuf as &dyn Fn(usize) -> Vec<u8>, "protobuf"), (&json, "JSON"), (&yaml, "YAML")] {
        let (small, large) = (value(2000), value(8000));
        covers(&large);
        let times = large.len().div_ceil(small.len());
        assert!(size(&large) <= 2 * times * size(&small), "{what}: {} and {} bytes", size(&small), size(&large));
    }
}

#[test]
fn protobuf_fields_have_names() {
    let value = protobuf();
    assert_eq!(says(&value, "typeMeta.kind"), "\"ConfigMap\"");
    assert_eq!(says(&value, "metadata.name"), "\"a\"");
    assert_eq!(says(&value, "metadata.generation"), "1");
    assert_eq!(says(&value, "metadata.labels[y.z].value"), "\"v\"");
    assert_eq!(says(&value, "metadata.finalizers"), "\"f\"");
    assert_eq!(says(&value, "2.2"), "\"text\"");
    assert_eq!(says(&value, "contentType"), "\"\"");
}

#[test]
fn json_members_and_yaml_lines_have_paths() {
    assert_eq!(says(JSON, "metadata.labels[a.b]"), "\"1\"");
    assert_eq!(says(JSON, "metadata.list[1].c"), "null");
    assert_eq!(says(JSON, "metadata.list[0]"), "1");
    assert_eq!(says(YAML, "metadata.labels.a"), "\"a: \\\"1\\\"\"");
    assert_eq!(says(YAML, "metadata.name"), "\"name: n\"");
    assert_eq!(says(YAML, "metadata.finalizers"), "\"finalizers:\"");
    assert_eq!(says(YAML, "spec"), "\"spec: {}\"");
}

#[test]
fn byte_offset_leads_to_field_and_line() {
    let value = protobuf();
    let all = split(&value);
    let at = value.windows(4).position(|window| window == b"text").unwrap();
    assert_eq!(piece_at(&all, at).unwrap().path, "2.2");
    assert_eq!(piece_at(&all, value.len()), None);
    let lines = hex_lines(&value, &all);
    assert!(lines[0].starts_with("000000  6b 38 73 00 "), "{}", lines[0]);
    assert!(lines.iter().any(|line| line.ends_with("labels[y.z]: entry of 8 bytes")), "{lines:#?}");
}

#[test]
fn encrypted_value_names_provider_and_key() {
    let seen = encryption(b"k8s:enc:aesgcm:v1:gcm:::\x00").unwrap();
    assert_eq!(seen, ("aesgcm".to_owned(), "gcm".to_owned(), 22));
    assert_eq!(encryption(b"k8s:enc:kms:v2:name:\x0a").unwrap().0, "kms v2");
    assert_eq!(encryption(b"k8s:enc:aesgcm"), None);
    assert_eq!(encryption(b"{\"a\":\"b:c:d:e:f:g\"}"), None);
}

#[test]
fn fields_have_the_names_of_the_schema() {
    let schema = crate::schema::tests::schema();
    let limits = field(9, &[field(1, b"cpu"), field(2, &field(1, b"100m"))].concat());
    let object = [field(1, &field(1, b"a")), vec![0x10, 3], field(6, b"n"), limits, field(15, b"new")].concat();
    let value = crate::schema::tests::stored(&object);
    let pieces = split_with(&value, Some(&schema));
    let said = |path: &str| pieces.iter().find(|piece| piece.path == path).map(|piece| piece.text.as_str());
    assert_eq!(said("metadata.name"), Some("\"a\""));
    assert_eq!(said("replicas"), Some("3"));
    assert_eq!(said("theNote"), Some("\"n\""));
    assert_eq!(said("limits[cpu].value.string"), Some("\"100m\""));
    assert_eq!(said("15"), Some("\"new\""));
    // Every byte stays in exactly one piece.
    assert_eq!(pieces.iter().map(|piece| piece.length).sum::<usize>(), value.len());
    for length in 0..value.len() {
        let cut = split_with(&value[..length], Some(&schema));
        assert_eq!(cut.iter().map(|piece| piece.length).sum::<usize>(), length);
    }
}
