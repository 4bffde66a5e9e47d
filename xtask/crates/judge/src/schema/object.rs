//! From the bytes of a message to the JSON value that a server shows for it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{Empty, Field, Kind, Scalar, Schema, forms};
use crate::decode::{Envelope, Wire, envelope, fields};

/// Deepest nesting of messages. A schema in a CustomResourceDefinition is the deepest that occurs.
const DEEPEST: usize = 100;

#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// The paths of fields that the schema does not have: `spec.17`. An older release does not know them.
    pub unknown: Vec<String>,
}

/// A stored protobuf value with its envelope.
///
/// # Errors
/// The envelope is damaged, the release has no such kind, or the object does not fit its schema.
pub fn decode_object(schema: &Schema, value: &[u8]) -> Result<Decoded, String> {
    let mut decoder = Decoder { schema, unknown: Vec::new() };
    let value = decoder.enveloped(&envelope(value)?, &Place { path: "", depth: 0 })?;
    Ok(Decoded { value, unknown: decoder.unknown })
}

/// A message by its full name.
///
/// # Errors
/// The bytes do not fit the schema.
pub fn decode_message(schema: &Schema, name: &str, bytes: &[u8]) -> Result<Decoded, String> {
    let mut decoder = Decoder { schema, unknown: Vec::new() };
    let value = decoder.message(name, bytes, &Place { path: "", depth: 0 })?;
    Ok(Decoded { value, unknown: decoder.unknown })
}

pub(super) struct Decoder<'a> {
    schema: &'a Schema,
    unknown: Vec<String>,
}

/// Where a message is.
pub(super) struct Place<'a> {
    path: &'a str,
    depth: usize,
}

impl Decoder<'_> {
    /// An object in its envelope, which has its version and kind.
    pub(super) fn enveloped(&mut self, envelope: &Envelope<'_>, place: &Place<'_>) -> Result<Value, String> {
        let Envelope { api_version, kind, raw, .. } = envelope;
        let name = self.schema.message_of(api_version, kind);
        let name = name.ok_or_else(|| format!("the release has no {api_version} {kind}"))?;
        let mut value = self.message(&name, raw, &Place { path: place.path, depth: place.depth + 1 })?;
        if let Value::Object(object) = &mut value {
            object.insert("apiVersion".into(), api_version.clone().into());
            object.insert("kind".into(), kind.clone().into());
        }
        Ok(value)
    }

    pub(super) fn message(&mut self, name: &str, bytes: &[u8], place: &Place<'_>) -> Result<Value, String> {
        if place.depth > DEEPEST {
            return Err(format!("{}: nested deeper than {DEEPEST} messages", place.path));
        }
        if let Some(form) = forms::form(name) {
            return form(self, bytes, place).map_err(|why| format!("{}: {why}", place.path));
        }
        let (fields, list) = self.fields(name, bytes, place)?;
        Ok(if list { fields.into_values().next().unwrap_or_else(|| Value::Array(Vec::new())) } else { fields.into() })
    }

    /// The fields of a message, and whether JSON shows only its list.
    pub(super) fn fields(
        &mut self,
        name: &str,
        bytes: &[u8],
        place: &Place<'_>,
    ) -> Result<(Map<String, Value>, bool), String> {
        let schema = self.schema;
        let message = schema.messages.get(name).ok_or_else(|| format!("{}: no message {name}", place.path))?;
        let mut object = Map::new();
        for wire in fields(bytes).map_err(|why| format!("{}: {why}", place.path))? {
            let Some(field) = message.fields.get(&wire.number) else {
                self.unknown.push(joined(place.path, &wire.number.to_string()));
                continue;
            };
            let path = joined(place.path, &field.name);
            let inner = Place { path: &path, depth: place.depth + 1 };
            self.add(&mut object, field, &wire.value, &inner)?;
        }
        // Protobuf has no nil list, map or bytes; JSON shows them unless the tag omits them.
        for field in message.fields.values().filter(|field| !message.list && field.is_null_if_absent()) {
            object.entry(field.name.clone()).or_insert(Value::Null);
        }
        Ok((object, message.list))
    }

    fn add(
        &mut self,
        object: &mut Map<String, Value>,
        field: &Field,
        wire: &Wire<'_>,
        place: &Place<'_>,
    ) -> Result<(), String> {
        if let Kind::Map(key, kind) = &field.kind {
            let (key, value) = self.entry(*key, kind, wire, place)?;
            let entries = object.entry(field.name.clone()).or_insert_with(|| Value::Object(Map::new()));
            entries.as_object_mut().ok_or_else(|| format!("{}: not a map", place.path))?.insert(key, value);
            return Ok(());
        }
        if field.repeated {
            let mut items = self.items(&field.kind, wire, place)?;
            let list = object.entry(field.name.clone()).or_insert_with(|| Value::Array(Vec::new()));
            list.as_array_mut().ok_or_else(|| format!("{}: not a list", place.path))?.append(&mut items);
            return Ok(());
        }
        let value = self.value(&field.kind, wire, place)?;
        let leave_out = match field.empty {
            Empty::Shown => false,
            Empty::Omitted => !matches!(field.kind, Kind::Message(_)) && is_zero(&value),
            Empty::Zero => is_zero(&value),
        };
        if leave_out {
            return Ok(());
        }
        let again = || format!("{}: occurs twice", place.path);
        match value {
            Value::Object(inner) if field.inline => {
                for (name, value) in inner {
                    if object.insert(name, value).is_some() {
                        return Err(again());
                    }
                }
            }
            value => {
                if object.insert(field.name.clone(), value).is_some() {
                    return Err(again());
                }
            }
        }
        Ok(())
    }

    /// The items in one occurrence of a repeated field: several if they are packed.
    fn items(&mut self, kind: &Kind, wire: &Wire<'_>, place: &Place<'_>) -> Result<Vec<Value>, String> {
        match (kind, wire) {
            (Kind::Int | Kind::Bool, Wire::Bytes(packed)) => {
                let mut rest = *packed;
                let mut items = Vec::new();
                while !rest.is_empty() {
                    let number = crate::decode::varint(&mut rest).ok_or_else(|| format!("{}: cut", place.path))?;
                    items.push(scalar(kind, &Wire::Varint(number), place)?);
                }
                Ok(items)
            }
            _ => Ok(vec![self.value(kind, wire, place)?]),
        }
    }

    fn value(&mut self, kind: &Kind, wire: &Wire<'_>, place: &Place<'_>) -> Result<Value, String> {
        match (kind, wire) {
            (Kind::Message(name), Wire::Bytes(bytes)) => self.message(name, bytes, place),
            _ => scalar(kind, wire, place),
        }
    }

    /// A map entry: field 1 is the key, field 2 the value; an empty one may be absent.
    fn entry(
        &mut self,
        key: Scalar,
        kind: &Kind,
        wire: &Wire<'_>,
        place: &Place<'_>,
    ) -> Result<(String, Value), String> {
        let Wire::Bytes(bytes) = wire else { return Err(format!("{}: not an entry of a map", place.path)) };
        let (mut name, mut value) = (None, None);
        for field in fields(bytes).map_err(|why| format!("{}: {why}", place.path))? {
            let slot = match field.number {
                1 => &mut name,
                2 => &mut value,
                number => {
                    self.unknown.push(joined(place.path, &number.to_string()));
                    continue;
                }
            };
            *slot = Some(field.value);
        }
        let key = match (key, name) {
            (_, None) => String::new(),
            (Scalar::Text, Some(Wire::Bytes(text))) => string(text, place)?,
            (Scalar::Int, Some(Wire::Varint(number))) => number.cast_signed().to_string(),
            _ => return Err(format!("{}: a key of another type", place.path)),
        };
        let empty = match kind {
            Kind::Int | Kind::Bool => Wire::Varint(0),
            Kind::Double => Wire::Fixed64([0; 8]),
            Kind::Text | Kind::Bytes | Kind::Message(_) | Kind::Map(..) => Wire::Bytes(b""),
        };
        let path = format!("{}[{key}]", place.path);
        let inner = Place { path: &path, depth: place.depth };
        let value = self.value(kind, &value.unwrap_or(empty), &inner)?;
        Ok((key, value))
    }
}

fn scalar(kind: &Kind, wire: &Wire<'_>, place: &Place<'_>) -> Result<Value, String> {
    Ok(match (kind, wire) {
        (Kind::Text, Wire::Bytes(text)) => string(text, place)?.into(),
        (Kind::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Kind::Bool, Wire::Varint(number @ (0 | 1))) => (*number == 1).into(),
        (Kind::Int, Wire::Varint(number)) => number.cast_signed().into(),
        (Kind::Double, Wire::Fixed64(bytes)) => double(f64::from_le_bytes(*bytes), place)?,
        _ => return Err(format!("{}: another type than the schema has", place.path)),
    })
}

/// Go's JSON has no NaN. It writes whole numbers without a fraction.
fn double(number: f64, place: &Place<'_>) -> Result<Value, String> {
    #[expect(clippy::cast_possible_truncation, reason = "only whole numbers that fit")]
    if number.fract() == 0.0 && number.abs() < 9e15 {
        return Ok((number as i64).into());
    }
    let number = serde_json::Number::from_f64(number).ok_or_else(|| format!("{}: not a number", place.path))?;
    Ok(Value::Number(number))
}

fn string(text: &[u8], place: &Place<'_>) -> Result<String, String> {
    let text = std::str::from_utf8(text).map_err(|_| format!("{}: text that is not UTF-8", place.path))?;
    Ok(text.to_owned())
}

/// What `omitzero` and, for scalars, `omitempty` leave out.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
