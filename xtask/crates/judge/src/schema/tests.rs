//! A small package and small values, written byte by byte.

use serde_json::{Value, json};

use super::*;
use crate::decode::PROTOBUF_MAGIC;
use crate::generate::values::field;

const PROTO: &str = r#"
/*
A licence.
*/
syntax = "proto2";

package k8s.io.api.apps.v1;

import "k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto";

option go_package = "k8s.io/api/apps/v1";

// A message.
message Thing {
  optional .k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta metadata = 1;

  optional int32 replicas = 2;

  repeated string args = 3;

  map<string, bytes> data = 4;

  optional Source source = 5;

  optional string note = 6;

  optional Extra extra = 7;

  optional double share = 8;

  map<string, .k8s.io.apimachinery.pkg.api.resource.Quantity> limits = 9;

  repeated bool flags = 10;
}

message Source {
  optional string path = 1;

  optional Thing inner = 2;
}

message Extra {
  repeated string items = 1;
}
"#;

const GO: &str = "
package v1

const GroupName = \"apps\"

// A list.
type Extra []string

type Thing struct {
\tmetav1.TypeMeta `json:\",inline\"`
\t// +optional
\tmetav1.ObjectMeta `json:\"metadata,omitempty\" protobuf:\"bytes,1,opt,name=metadata\"`
\tReplicas *int32 `json:\"replicas,omitempty\" protobuf:\"varint,2,opt,name=replicas\"`
\tArgs []string `json:\"args\" protobuf:\"bytes,3,rep,name=args\"`
\tData map[string][]byte `json:\"data,omitempty\" protobuf:\"bytes,4,rep,name=data\"`
\tSource `json:\",inline\" protobuf:\"bytes,5,opt,name=source\"`
\tNote string `json:\"theNote,omitempty\" protobuf:\"bytes,6,opt,name=note\"`
\tExtra Extra `json:\"extra,omitempty\" protobuf:\"bytes,7,opt,name=extra\"`
\tShare float64 `json:\"share,omitempty\" protobuf:\"fixed64,8,opt,name=share\"`
\tOther string `protobuf:\"-\"`
}

type Source struct {
\tPath string `json:\"path\" protobuf:\"bytes,1,opt,name=path\"`
\tInner Thing `json:\"inner,omitzero\" protobuf:\"bytes,2,opt,name=inner\"`
}
";

const META: &str = r#"
package k8s.io.apimachinery.pkg.apis.meta.v1;
message ObjectMeta {
  optional string name = 1;
  optional Time creationTimestamp = 8;
}
message Time {
  optional int64 seconds = 1;
  optional int32 nanos = 2;
}
message MicroTime {
  optional int64 seconds = 1;
}
message Duration {
  optional int64 duration = 1;
}
"#;

const META_GO: &str = "
type ObjectMeta struct {
\tName string `json:\"name,omitempty\" protobuf:\"bytes,1,opt,name=name\"`
\tCreationTimestamp Time `json:\"creationTimestamp,omitempty\" protobuf:\"bytes,8,opt,name=creationTimestamp\"`
}
";

const OTHERS: [&str; 3] = [
    "package k8s.io.apimachinery.pkg.api.resource;\nmessage Quantity {\n optional string string = 1;\n}\n",
    "package k8s.io.apimachinery.pkg.util.intstr;\nmessage IntOrString {\n optional int64 type = 1;\n}\n",
    "package k8s.io.apimachinery.pkg.runtime;\nmessage RawExtension {\n optional bytes raw = 1;\n}\n",
];

fn source(text: &str) -> Source<'_> {
    Source { name: "file", text }
}

pub(crate) fn schema() -> Schema {
    let with =
        |proto, go: &[&'static str]| Package { proto: source(proto), go: go.iter().map(|text| source(text)).collect() };
    let mut packages = vec![with(PROTO, &[GO]), with(META, &[META_GO])];
    packages.extend(OTHERS.map(|proto| with(proto, &[])));
    Schema::read(&packages).unwrap()
}

pub(crate) fn stored(object: &[u8]) -> Vec<u8> {
    let kind = [field(1, b"apps/v1"), field(2, b"Thing")].concat();
    [PROTOBUF_MAGIC, &field(1, &kind), &field(2, object)].concat()
}

fn decoded(object: &[u8]) -> Value {
    let decoded = decode_object(&schema(), &stored(object)).unwrap();
    assert_eq!(decoded.unknown, Vec::<String>::new());
    decoded.value
}

#[test]
fn object_has_the_names_and_the_shape_of_json() {
    let meta = field(1, &[field(1, b"a"), field(8, b"\x08\xc0\xe1\xa5\xd8\x06\x10\x00")].concat());
    let limits = field(9, &[field(1, b"cpu"), field(2, &field(1, b"100m"))].concat());
    let object = [
        meta,
        vec![0x10, 3],
        field(3, b"x"),
        field(3, b"y"),
        field(4, &[field(1, b"k"), field(2, b"\xff")].concat()),
        field(5, &[field(1, b"/tmp"), field(2, b"")].concat()),
        field(6, b""),
        field(7, &[field(1, b"one"), field(1, b"two")].concat()),
        [b"\x41".to_vec(), 0.5f64.to_le_bytes().to_vec()].concat(),
        limits,
        field(10, b"\x01\x00"),
    ];
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Thing",
        "metadata": {"name": "a", "creationTimestamp": "2026-11-27T12:00:00Z"},
        "replicas": 3, "args": ["x", "y"], "data": {"k": "/w=="}, "path": "/tmp", "extra": ["one", "two"],
        "share": 0.5, "limits": {"cpu": "100m"}, "flags": [true, false],
    });
    assert_eq!(decoded(&object.concat()), expected);
}

#[test]
fn empty_values_follow_the_tags() {
    // A pointer to 0 is shown, an empty text with `omitempty` is not, a struct with `omitempty` is. A list without
    // `omitempty` that is absent is nil.
    let object = [field(1, &field(8, b"")), vec![0x10, 0], field(5, &field(1, b"")), field(7, b"")].concat();
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Thing", "metadata": {"creationTimestamp": null}, "replicas": 0, "path": "",
        "extra": [], "args": null, "flags": null, "limits": null,
    });
    assert_eq!(decoded(&object), expected);
}

#[test]
fn unknown_field_is_named_and_the_rest_is_decoded() {
    let inner = field(5, &[field(1, b"p"), field(15, b"?")].concat());
    let decoded = decode_object(&schema(), &stored(&inner)).unwrap();
    assert_eq!((decoded.value["path"].as_str(), &decoded.unknown[..]), (Some("p"), &["source.15".to_owned()][..]));
}

#[test]
fn bytes_that_do_not_fit_are_refused() {
    let mut deep = Vec::new();
    for _ in 0..200 {
        deep = field(5, &field(2, &deep));
    }
    for (object, part) in [
        (field(2, b"x"), "replicas: another type"),
        (vec![0x30, 1], "theNote: another type"),
        (field(6, b"\xff"), "not UTF-8"),
        ([field(6, b"a"), field(6, b"b")].concat(), "theNote: occurs twice"),
        (field(10, b"\x02"), "flags: another type"),
        (field(10, b"\x80"), "flags: cut"),
        ([b"\x41".to_vec(), f64::NAN.to_le_bytes().to_vec()].concat(), "share: not a number"),
        (deep, "nested deeper"),
    ] {
        let why = decode_object(&schema(), &stored(&object)).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
    let other = [PROTOBUF_MAGIC, &field(1, &field(2, b"Other")), &field(2, b"")].concat();
    assert!(decode_object(&schema(), &other).unwrap_err().contains("has no"));
}

#[test]
fn times_and_durations_are_written_as_go_writes_them() {
    let schema = schema();
    let shown = |name: &str, bytes: &[u8]| {
        decode_message(&schema, &format!("k8s.io.apimachinery.pkg.apis.meta.v1.{name}"), bytes).unwrap().value
    };
    assert_eq!(shown("Time", b"\x08\x00"), "1970-01-01T00:00:00Z");
    assert_eq!(shown("Time", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "1969-12-31T23:59:59Z");
    assert_eq!(shown("Time", b"\x08\xff\xb4\x84\xaf\x06"), "2024-02-29T23:59:59Z");
    assert_eq!(shown("MicroTime", b"\x08\x00\x10\xc0\x84\x3d"), "1970-01-01T00:00:00.001000Z");
    let duration = |nanos: u64| {
        let mut bytes = vec![8];
        let mut rest = nanos;
        while rest >= 0x80 {
            bytes.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
            rest >>= 7;
        }
        bytes.push(u8::try_from(rest).unwrap());
        shown("Duration", &bytes)
    };
    for (nanos, text) in [
        (0, "0s"),
        (7, "7ns"),
        (1_500, "1.5µs"),
        (100_000_000, "100ms"),
        (1_500_000_000, "1.5s"),
        (60_000_000_000, "1m0s"),
        (3_600_000_000_000, "1h0m0s"),
        ((-1_000_000_000_i64).cast_unsigned(), "-1s"),
    ] {
        assert_eq!(duration(nanos), text);
    }
}

#[test]
fn cached_form_is_the_same_schema() {
    let text = serde_json::to_string(&schema()).unwrap();
    assert_eq!(serde_json::from_str::<Schema>(&text).unwrap(), schema());
}

#[test]
fn files_that_are_not_generated_are_refused() {
    let package = |body: &str| format!("package a.v1;\nmessage M {{\n{body}\n}}\n");
    for (text, part) in [
        ("message M {\n}\n".to_owned(), "no package"),
        ("package a.v1;\nmessage M {\n".to_owned(), "does not end"),
        ("package a.v1;\nenum E {\n}\n".to_owned(), "line 2: neither"),
        (package("optional string a = 0;"), "line 3: not a field"),
        (package("optional string a = 536870912;"), "not a field"),
        (package("optional string a = 1 [default = 2];"), "not a field"),
        (package("optional group a = 1;"), "not a field"),
        (package("map<bool, string> a = 1;"), "not a field"),
        (package("optional string a = 1;\noptional string b = 1;"), "line 4: a second field"),
        (package("optional Other a = 1;"), "no message a.v1.Other"),
    ] {
        let package = Package { proto: source(&text), go: Vec::new() };
        let why = Schema::read(&[package]).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
    let go = "type M struct {\n\tA string `json:\"a\" protobuf:\"bytes,x,opt,name=a\"`\n}\n";
    let package = Package { proto: source("package a.v1;\n"), go: vec![source(go)] };
    assert!(Schema::read(&[package]).unwrap_err().contains("the tags of M"));
}
