//! Protobuf bytes as documents: the fields in byte order, without a schema.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use suite::decode::{self, PROTOBUF_MAGIC, Wire};

use crate::document::Document;

/// Deeper messages stay bytes.
const DEEPEST: usize = 24;

/// A stored value or an answer in protobuf. None if the bytes are not protobuf in Kubernetes' envelope.
pub(crate) fn document(value: &[u8]) -> Option<Document> {
    message(value.strip_prefix(PROTOBUF_MAGIC)?, 0)
}

fn message(bytes: &[u8], depth: usize) -> Option<Document> {
    let fields = decode::fields(bytes).ok()?;
    Some(Document::object(fields.into_iter().map(|field| (field.number.to_string(), content(&field.value, depth)))))
}

fn content(value: &Wire<'_>, depth: usize) -> Document {
    match value {
        // Signed fields are written as the 64 bits of their value.
        Wire::Varint(number) => Document::Number(number.cast_signed().to_string()),
        Wire::Fixed64(bytes) => Document::Number(format!("{:e}", f64::from_le_bytes(*bytes))),
        Wire::Fixed32(bytes) => Document::Number(format!("{:e}", f32::from_le_bytes(*bytes))),
        Wire::Bytes(bytes) => inner(bytes, depth),
    }
}

/// Text where the bytes read as text, otherwise a message where they parse as one, otherwise base64.
fn inner(bytes: &[u8], depth: usize) -> Document {
    let printable = |c: char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(printable) => return json(text).unwrap_or_else(|| Document::text(text)),
        _ => {}
    }
    let parsed = if depth < DEEPEST { message(bytes, depth + 1) } else { None };
    parsed.unwrap_or_else(|| Document::text(format!("base64:{}", STANDARD.encode(bytes))))
}

/// JSON inside protobuf: managed fields, raw extensions.
fn json(text: &str) -> Option<Document> {
    if text.starts_with('{') { Document::parse(text).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_members() {
        let value = b"k8s\0\x0a\x04\x0a\x02v1\x12\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x12\x02ok";
        assert_eq!(document(value).unwrap().to_string(), r#"{"1":{"1":"v1"},"2":{"1":-1,"2":"ok"}}"#);
        assert_eq!(document(b"{}"), None);
    }
}
