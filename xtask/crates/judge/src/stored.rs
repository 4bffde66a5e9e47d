//! The metadata inside a stored value, borrowed: judges read a million values for their uids, so this allocates
//! nothing.
//!
//! `crate::decode` reads the same for people; a test compares the two.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use crate::decode::{Encoding, Field, PROTOBUF_MAGIC, Wire, encoding, next_field, object_meta};

/// The parts of ObjectMeta that judges need. Absent fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) uid: &'a str,
    pub(super) labels: Vec<(&'a str, &'a str)>,
}

/// None if the encoding hides the metadata or the value is malformed.
pub(super) fn meta(value: &[u8]) -> Option<Meta<'_>> {
    match encoding(value) {
        Encoding::Protobuf => protobuf(value.strip_prefix(PROTOBUF_MAGIC)?),
        Encoding::Json => json(value),
        Encoding::Yaml | Encoding::Cbor | Encoding::Encrypted | Encoding::Empty => None,
    }
}

#[derive(Deserialize)]
struct JsonObject<'a> {
    #[serde(borrow)]
    metadata: JsonMeta<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JsonMeta<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    labels: BTreeMap<Text<'a>, Text<'a>>,
}

/// A key or value of a map, borrowed if it can be.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn json(value: &[u8]) -> Option<Meta<'_>> {
    let JsonObject { metadata } = serde_json::from_slice(value).ok()?;
    let labels = metadata.labels.into_iter().map(|(key, value)| Some((borrowed(key.0)?, borrowed(value.0)?)));
    Some(Meta {
        name: borrowed(metadata.name)?,
        namespace: borrowed(metadata.namespace)?,
        uid: borrowed(metadata.uid)?,
        labels: labels.collect::<Option<_>>()?,
    })
}

/// Refuses escapes in a name, uid or label: none of them may contain a character that needs one.
fn borrowed(text: Cow<'_, str>) -> Option<&str> {
    match text {
        Cow::Borrowed(text) => Some(text),
        Cow::Owned(_) => None,
    }
}

/// `runtime.Unknown.raw` (2) holds the object, whose field 1 is its ObjectMeta.
fn protobuf(unknown: &[u8]) -> Option<Meta<'_>> {
    let object = first(unknown, 2)?;
    let mut rest = first(object, 1)?;
    let mut meta = Meta::default();
    while let Some((number, bytes)) = next(&mut rest)? {
        match number {
            object_meta::NAME => meta.name = text(bytes)?,
            object_meta::NAMESPACE => meta.namespace = text(bytes)?,
            object_meta::UID => meta.uid = text(bytes)?,
            object_meta::LABELS => meta.labels.push((label(bytes, 1)?, label(bytes, 2)?)),
            _ => {}
        }
    }
    Some(meta)
}

/// Key (1) or value (2) of a map entry; an absent one is empty. The last one counts; None if the entry is malformed.
fn label(entry: &[u8], number: u32) -> Option<&str> {
    let mut rest = entry;
    let mut label = "";
    while let Some((found, bytes)) = next(&mut rest)? {
        if found == number {
            label = text(bytes)?;
        }
    }
    Some(label)
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// The first length-delimited field with this number.
fn first(message: &[u8], number: u32) -> Option<&[u8]> {
    let mut rest = message;
    while let Some((found, bytes)) = next(&mut rest)? {
        if found == number {
            return Some(bytes);
        }
    }
    None
}

/// The next length-delimited field; skips numbers and fixed fields. Outer None: not protobuf; inner None: the end.
#[expect(clippy::option_option, reason = "distinguishes the end from an error in a loop that runs ten million times")]
fn next<'a>(rest: &mut &'a [u8]) -> Option<Option<(u32, &'a [u8])>> {
    while !rest.is_empty() {
        if let Field { number, value: Wire::Bytes(bytes) } = next_field(rest)? {
            return Some(Some((number, bytes)));
        }
    }
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;

    #[test]
    fn finds_the_same_metadata_as_the_decoder() {
        let protobuf = [
            b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x1f\x0a\x1d".as_slice(),
            b"\x0a\x01a\x12\x00\x1a\x01n\x2a\x04u-id\x38\x00\x5a\x06\x0a\x01l\x12\x01x\x5a\x03\x0a\x01m",
            b"\x1a\x00\x22\x00",
        ]
        .concat();
        let json = br#"{"kind":"Fruit","metadata":{"labels":{"l":"x","m":""},"name":"a","namespace":"n",
            "ownerReferences":[{"uid":"other"}],"uid":"u-id"},"spec":[{"uid":"no"}]}"#;
        for value in [protobuf.as_slice(), json] {
            let ours = meta(value).unwrap();
            let expected = Meta { name: "a", namespace: "n", uid: "u-id", labels: vec![("l", "x"), ("m", "")] };
            assert_eq!(ours, expected);
            let theirs = decode::meta(value).unwrap();
            assert_eq!((ours.name, ours.namespace, ours.uid), (&*theirs.name, &*theirs.namespace, &*theirs.uid));
            let labels: Vec<(&str, &str)> = theirs.labels.iter().map(|(k, v)| (&**k, &**v)).collect();
            assert_eq!(ours.labels, labels);
        }
    }

    #[test]
    fn unreadable_metadata_yields_none() {
        for value in [
            &b""[..],
            b"k8s:enc:aescbc:v1:k:xyz",
            b"metadata:\n  uid: u\n",
            b"k8s\0\x12\xff",
            b"{\"metadata\":3}",
            b"{\"a\"",
        ] {
            assert_eq!(meta(value), None, "{value:?}");
        }
    }
}
