//! Protobuf: the envelope and ObjectMeta by name, everything else by number with a guessed type.

use std::collections::BTreeMap;

use super::{DEEPEST, Piece, cut, piece, quoted};
use crate::decode::{PROTOBUF_MAGIC, Wire, next_field};

/// Field number, name, and type of the content.
type Row = (u32, &'static str, Shape);

#[derive(Clone, Copy)]
enum Shape {
    Text,
    /// Varints, and bytes whose type only a schema could tell.
    Guess,
    /// Field 1 is the key, field 2 the value.
    Map,
    Message(&'static [Row]),
}

use Shape::{Guess, Map, Message, Text};

/// `runtime.Unknown`.
const ENVELOPE: &[Row] = &[
    (1, "typeMeta", Message(&[(1, "apiVersion", Text), (2, "kind", Text)])),
    (2, "raw", Message(OBJECT)),
    (3, "contentEncoding", Text),
    (4, "contentType", Text),
];
const OBJECT: &[Row] = &[(1, "metadata", Message(OBJECT_META))];
const OBJECT_META: &[Row] = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (4, "selfLink", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Guess),
    (8, "creationTimestamp", Message(TIME)),
    (9, "deletionTimestamp", Message(TIME)),
    (10, "deletionGracePeriodSeconds", Guess),
    (11, "labels", Map),
    (12, "annotations", Map),
    (13, "ownerReferences", Message(OWNER)),
    (14, "finalizers", Text),
    (17, "managedFields", Message(MANAGED)),
];
const TIME: &[Row] = &[(1, "seconds", Guess), (2, "nanos", Guess)];
const OWNER: &[Row] = &[
    (1, "kind", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "controller", Guess),
    (7, "blockOwnerDeletion", Guess),
];
const MANAGED: &[Row] = &[
    (1, "manager", Text),
    (2, "operation", Text),
    (3, "apiVersion", Text),
    (4, "time", Message(TIME)),
    (6, "fieldsType", Text),
    (7, "fieldsV1", Message(&[(1, "raw", Text)])),
    (8, "subresource", Text),
];
const ENTRY: &[Row] = &[(1, "key", Text), (2, "value", Text)];

/// A message and its position in the value.
struct Place<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    path: &'a str,
}

/// The whole value. The paths of the fields in the envelope's object omit the envelope's name.
pub(super) fn envelope(value: &[u8]) -> Vec<Piece> {
    let at = PROTOBUF_MAGIC.len();
    let mut out = vec![piece(0, at, 0, "", "the magic bytes of protobuf, \"k8s\\0\"")];
    message(&Place { bytes: &value[at..], at, depth: 0, path: "" }, ENVELOPE, &mut out);
    out
}

/// Counts one more field of that number; returns how many came before it. The number of fields of a message is only
/// bounded by half of its bytes.
pub(super) fn count<N: Ord>(seen: &mut BTreeMap<N, usize>, number: N) -> usize {
    let count = seen.entry(number).or_default();
    *count += 1;
    *count - 1
}

/// Adds the pieces of a message as far as it can be read.
fn message(place: &Place<'_>, rows: &[Row], out: &mut Vec<Piece>) {
    let mut rest = place.bytes;
    let mut seen = BTreeMap::new();
    while !rest.is_empty() {
        let before = rest;
        let Some(field) = next_field(&mut rest) else {
            let at = place.at + place.bytes.len() - before.len();
            return out.push(piece(at, before.len(), place.depth, place.path, "not protobuf"));
        };
        let whole = &before[..before.len() - rest.len()];
        let at = place.at + place.bytes.len() - before.len();
        let row = rows.iter().find(|(number, ..)| *number == field.number);
        let name = row.map_or_else(|| field.number.to_string(), |(_, name, _)| (*name).to_owned());
        let index = count(&mut seen, field.number);
        let again = index > 0 || is_next(rest, field.number);
        let name = if again { format!("{name}[{index}]") } else { name };
        let path = join(place.path, &name);
        let shape = row.map_or(Guess, |(_, _, shape)| *shape);
        one(&Place { bytes: whole, at, depth: place.depth, path: &path }, &field.value, shape, out);
    }
}

/// One field; `place` is the whole field, including tag and length.
fn one(place: &Place<'_>, value: &Wire<'_>, shape: Shape, out: &mut Vec<Piece>) {
    let Place { bytes: whole, at, depth, path } = *place;
    let mut leaf = |text: &str| out.push(piece(at, whole.len(), depth, path, text));
    let bytes = match value {
        Wire::Varint(number) => return leaf(&number.cast_signed().to_string()),
        Wire::Fixed64(bytes) => return leaf(&f64::from_le_bytes(*bytes).to_string()),
        Wire::Fixed32(bytes) => return leaf(&f32::from_le_bytes(*bytes).to_string()),
        Wire::Bytes(bytes) => *bytes,
    };
    let rows = match shape {
        Text => return leaf(&as_text(bytes)),
        Message(rows) => rows,
        Map => return map_entry(place, bytes, out),
        Guess if depth < DEEPEST && looks_like_message(bytes) => &[],
        Guess => return leaf(&as_text(bytes)),
    };
    let head = whole.len() - bytes.len();
    out.push(piece(at, head, depth, path, &format!("message of {} bytes", bytes.len())));
    // Every path would begin with the envelope's name.
    let path = if path == "raw" { "" } else { path };
    message(&Place { bytes, at: at + head, depth: depth + 1, path }, rows, out);
}

/// A map entry is a message of two fields; its path contains its key.
fn map_entry(place: &Place<'_>, bytes: &[u8], out: &mut Vec<Piece>) {
    let name = place.path.split('[').next().unwrap_or(place.path);
    let key = crate::decode::fields(bytes).ok().and_then(|fields| crate::decode::field(&fields, 1));
    let path = cut(format!("{name}[{}]", String::from_utf8_lossy(key.unwrap_or_default())));
    let head = place.bytes.len() - bytes.len();
    out.push(piece(place.at, head, place.depth, &path, &format!("entry of {} bytes", bytes.len())));
    message(&Place { bytes, at: place.at + head, depth: place.depth + 1, path: &path }, ENTRY, out);
}

/// Whether the next field has the same number: then the first one of a list is shown with its index too.
fn is_next(mut rest: &[u8], number: u32) -> bool {
    next_field(&mut rest).is_some_and(|field| field.number == number)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { cut(format!("{path}.{name}")) }
}

fn as_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if is_readable(text) => quoted(text),
        _ => format!("{} bytes", bytes.len()),
    }
}

fn is_readable(text: &str) -> bool {
    text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\r'))
}

/// A message begins with a tag, which for the low field numbers is a control character; text rarely does.
fn looks_like_message(bytes: &[u8]) -> bool {
    let is_text = std::str::from_utf8(bytes).is_ok_and(|text| is_readable(text) && !text.starts_with(char::is_control));
    !bytes.is_empty() && !is_text && crate::decode::fields(bytes).is_ok()
}
