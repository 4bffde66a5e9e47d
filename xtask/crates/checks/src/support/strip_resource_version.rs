//! Converts a protobuf value from a response into the value that the store must hold: the same bytes, except that the
//! resource version is present and empty and that all enclosing lengths match.

use prost::encoding::{WireType, encode_key, encode_varint};

use judge::decode::{self, Field, PROTOBUF_MAGIC, Wire, object_meta};

/// The protobuf value of a response with an empty resource version: the value that the store must hold for the object.
pub(crate) fn strip_resource_version(value: &[u8]) -> Result<Vec<u8>, String> {
    let unknown = value.strip_prefix(PROTOBUF_MAGIC).ok_or("the value does not begin with k8s\\0")?;
    let mut stripped = PROTOBUF_MAGIC.to_vec();
    for field in decode::fields(unknown)? {
        let object = match field {
            Field { number: 2, value: Wire::Bytes(object) } => Some(strip_object(object)?),
            _ => None,
        };
        write(&mut stripped, &field, object.as_deref());
    }
    Ok(stripped)
}

fn strip_object(object: &[u8]) -> Result<Vec<u8>, String> {
    let mut stripped = Vec::with_capacity(object.len());
    for (index, field) in decode::fields(object)?.iter().enumerate() {
        let meta = match field {
            Field { number: 1, value: Wire::Bytes(meta) } if index == 0 => Some(strip_meta(meta)?),
            _ => None,
        };
        write(&mut stripped, field, meta.as_deref());
    }
    Ok(stripped)
}

fn strip_meta(meta: &[u8]) -> Result<Vec<u8>, String> {
    let mut stripped = Vec::with_capacity(meta.len());
    for field in decode::fields(meta)? {
        let emptied = (field.number == object_meta::RESOURCE_VERSION).then_some([].as_slice());
        write(&mut stripped, &field, emptied);
    }
    Ok(stripped)
}

/// Writes a field, with the bytes of `replaced` if it is given.
fn write(out: &mut Vec<u8>, field: &Field<'_>, replaced: Option<&[u8]>) {
    match (&field.value, replaced) {
        (Wire::Varint(number), _) => {
            encode_key(field.number, WireType::Varint, out);
            encode_varint(*number, out);
        }
        (Wire::Fixed64(bytes), _) => {
            encode_key(field.number, WireType::SixtyFourBit, out);
            out.extend(bytes);
        }
        (Wire::Fixed32(bytes), _) => {
            encode_key(field.number, WireType::ThirtyTwoBit, out);
            out.extend(bytes);
        }
        (Wire::Bytes(bytes), replaced) => {
            let bytes = replaced.unwrap_or(bytes);
            encode_key(field.number, WireType::LengthDelimited, out);
            encode_varint(bytes.len() as u64, out);
            out.extend(bytes);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Fields 3 and 4 of the envelope, both empty.
    pub(crate) const END: &[u8] = b"\x1a\x00\x22\x00";

    pub(crate) fn bytes(number: u32, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, &Field { number, value: Wire::Bytes(bytes) }, None);
        out
    }

    /// A ConfigMap `a` with the given fields 4, 6 and 17 of its metadata, in an envelope of the given fields.
    pub(crate) fn value(self_link: &[u8], rv: &[u8], managed: &[u8], rest: &[u8]) -> Vec<u8> {
        let managed = if managed.is_empty() { Vec::new() } else { bytes(17, managed) };
        let meta = [bytes(1, b"a"), bytes(4, self_link), bytes(6, rv), b"\x38\x01".to_vec(), managed].concat();
        let object = [bytes(1, &meta), bytes(2, b"data")].concat();
        let kind = [bytes(1, b"v1"), bytes(2, b"ConfigMap")].concat();
        [PROTOBUF_MAGIC, &bytes(1, &kind), &bytes(2, &object), rest].concat()
    }

    #[test]
    fn emptying_the_resource_version_shrinks_enclosing_lengths() {
        // Lengths from 128 bytes on take two bytes and must shrink to one byte.
        let answered = value(b"", &[b'9'; 150], b"m", END);
        assert_eq!(strip_resource_version(&answered).unwrap(), value(b"", b"", b"m", END));
        assert!(strip_resource_version(b"{}").is_err());
    }
}
