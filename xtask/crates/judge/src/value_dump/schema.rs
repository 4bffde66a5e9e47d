//! Protobuf. With the schema of the release, all fields have their names; without it the envelope and ObjectMeta have them,
//! and the others have numbers and a guessed type.

use std::collections::BTreeMap;

use super::{DEEPEST, Piece, cut, piece, quoted};
use crate::decode::{Envelope, PROTOBUF_MAGIC, Wire, next_field};
use crate::schema::{Kind, Schema};

/// Field number, name, and type of the content.
type Row = (u32, &'static str, Fixed);

/// The type of a field in the tables below.
#[derive(Clone, Copy)]
enum Fixed {
    Text,
    /// Varints, and bytes whose type only a schema could tell.
    Guess,
    /// Field 1 is the key, field 2 the value.
    Map,
    Message(&'static [Row]),
}

use Fixed::{Guess, Map, Message, Text};

/// What is known about the fields of a message.
#[derive(Clone, Copy)]
enum Rows<'a> {
    Fixed(&'static [Row]),
    /// A message of the release.
    Of(&'a Schema, &'a str),
    /// An entry of a map, with the type of its values.
    Entry(&'a Schema, &'a Kind),
}

/// The type of one field.
#[derive(Clone, Copy)]
enum Shape<'a> {
    Text,
    Flag,
    Guess,
    Bytes,
    Map(Rows<'a>),
    Message(Rows<'a>),
}

/// The field of the envelope with the object.
const RAW: &str = "raw";

/// `runtime.Unknown`.
const ENVELOPE: &[Row] = &[
    (1, "typeMeta", Message(&[(1, "apiVersion", Text), (2, "kind", Text)])),
    (2, RAW, Message(OBJECT)),
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

impl<'a> Rows<'a> {
    /// The name and the type of a field.
    fn field(self, number: u32) -> Option<(&'a str, Shape<'a>)> {
        match self {
            Rows::Fixed(rows) => {
                let (_, name, shape) = rows.iter().find(|(known, ..)| *known == number)?;
                Some((name, Shape::fixed(*shape)))
            }
            Rows::Of(schema, message) => {
                let field = schema.messages.get(message)?.fields.get(&number)?;
                Some((&field.name, Shape::of(schema, &field.kind)))
            }
            Rows::Entry(schema, kind) => match number {
                1 => Some(("key", Shape::Text)),
                2 => Some(("value", Shape::of(schema, kind))),
                _ => None,
            },
        }
    }
}

impl<'a> Shape<'a> {
    fn fixed(shape: Fixed) -> Shape<'a> {
        match shape {
            Text => Shape::Text,
            Guess => Shape::Guess,
            Map => Shape::Map(Rows::Fixed(ENTRY)),
            Message(rows) => Shape::Message(Rows::Fixed(rows)),
        }
    }

    fn of(schema: &'a Schema, kind: &'a Kind) -> Shape<'a> {
        match kind {
            Kind::Text => Shape::Text,
            Kind::Bytes => Shape::Bytes,
            Kind::Bool => Shape::Flag,
            Kind::Int | Kind::Double => Shape::Guess,
            Kind::Message(name) => Shape::Message(Rows::Of(schema, name)),
            Kind::Map(_, kind) => Shape::Map(Rows::Entry(schema, kind)),
        }
    }
}

/// The whole value. The paths of the fields in the envelope's object omit the envelope's name.
pub(super) fn envelope(value: &[u8], schema: Option<&Schema>) -> Vec<Piece> {
    let at = PROTOBUF_MAGIC.len();
    let mut out = vec![piece(0, at, 0, "", "the magic bytes of protobuf, \"k8s\\0\"")];
    let known = schema.and_then(|schema| {
        let Envelope { api_version, kind, .. } = crate::decode::envelope(value).ok()?;
        Some((schema, schema.message_of(&api_version, &kind)?))
    });
    let object = known.as_ref().map_or(Rows::Fixed(OBJECT), |(schema, name)| Rows::Of(schema, name));
    message(&Place { bytes: &value[at..], at, depth: 0, path: "" }, Rows::Fixed(ENVELOPE), object, &mut out);
    out
}

/// Counts one more field of that number; returns how many came before it. The number of fields of a message is only
/// bounded by half of its bytes.
pub(super) fn count<N: Ord>(seen: &mut BTreeMap<N, usize>, number: N) -> usize {
    let count = seen.entry(number).or_default();
    *count += 1;
    *count - 1
}

/// Adds the pieces of a message as far as it can be read. `object` describes the object in an envelope.
fn message(place: &Place<'_>, rows: Rows<'_>, object: Rows<'_>, out: &mut Vec<Piece>) {
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
        let known = rows.field(field.number);
        let name = known.map_or_else(|| field.number.to_string(), |(name, _)| name.to_owned());
        let index = count(&mut seen, field.number);
        let again = index > 0 || is_next(rest, field.number);
        let is_map = matches!(known, Some((_, Shape::Map(_))));
        let name = if again && !is_map { format!("{name}[{index}]") } else { name };
        let path = join(place.path, &name);
        let shape = match known {
            Some((RAW, Shape::Message(_))) if place.depth == 0 => Shape::Message(object),
            Some((_, shape)) => shape,
            None => Shape::Guess,
        };
        one(&Place { bytes: whole, at, depth: place.depth, path: &path }, &field.value, shape, out);
    }
}

/// One field; `place` is the whole field, including tag and length.
fn one(place: &Place<'_>, value: &Wire<'_>, shape: Shape<'_>, out: &mut Vec<Piece>) {
    let Place { bytes: whole, at, depth, path } = *place;
    let mut leaf = |text: &str| out.push(piece(at, whole.len(), depth, path, text));
    let bytes = match (value, shape) {
        (Wire::Varint(number @ (0 | 1)), Shape::Flag) => return leaf(if *number == 1 { "true" } else { "false" }),
        (Wire::Varint(number), _) => return leaf(&number.cast_signed().to_string()),
        (Wire::Fixed64(bytes), _) => return leaf(&f64::from_le_bytes(*bytes).to_string()),
        (Wire::Fixed32(bytes), _) => return leaf(&f32::from_le_bytes(*bytes).to_string()),
        (Wire::Bytes(bytes), _) => *bytes,
    };
    let rows = match shape {
        Shape::Text | Shape::Bytes => return leaf(&as_text(bytes)),
        Shape::Map(rows) => return map_entry(place, bytes, rows, out),
        Shape::Message(rows) if depth < DEEPEST => rows,
        Shape::Guess if depth < DEEPEST && looks_like_message(bytes) => Rows::Fixed(&[]),
        Shape::Guess | Shape::Flag | Shape::Message(_) => return leaf(&as_text(bytes)),
    };
    let head = whole.len() - bytes.len();
    out.push(piece(at, head, depth, path, &format!("message of {} bytes", bytes.len())));
    // Every path would begin with the envelope's name.
    let path = if depth == 0 && path == RAW { "" } else { path };
    message(&Place { bytes, at: at + head, depth: depth + 1, path }, rows, rows, out);
}

/// A map entry is a message of two fields; its path contains its key.
fn map_entry(place: &Place<'_>, bytes: &[u8], rows: Rows<'_>, out: &mut Vec<Piece>) {
    let key = crate::decode::fields(bytes).ok().and_then(|fields| crate::decode::field(&fields, 1));
    let path = cut(format!("{}[{}]", place.path, String::from_utf8_lossy(key.unwrap_or_default())));
    let head = place.bytes.len() - bytes.len();
    out.push(piece(place.at, head, place.depth, &path, &format!("entry of {} bytes", bytes.len())));
    message(&Place { bytes, at: place.at + head, depth: place.depth + 1, path: &path }, rows, rows, out);
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
