//! Converts a protobuf value from a response into the value that the store must hold: the same bytes, except that the
//! resource version is present and empty and that all enclosing lengths match.

use prost::encoding::{WireType, encode_key, encode_varint};

use judge::decode::{self, PROTOBUF_MAGIC, Wire, object_meta};

/// The protobuf value of a response with an empty resource version: the value that the store must hold for the object.
pub(crate) fn strip_resource_version(value: &[u8]) -> Result<Vec<u8>, String> {
    // The object in runtime.Unknown, its ObjectMeta, and the field there.
    const PATH: [u32; 3] = [2, 1, object_meta::RESOURCE_VERSION];
    let unknown = value.strip_prefix(PROTOBUF_MAGIC).ok_or("the value does not begin with k8s\\0")?;
    Ok([PROTOBUF_MAGIC, &emptied(unknown, &PATH)?].concat())
}

/// The message with an empty field at this path of field numbers.
fn emptied(message: &[u8], path: &[u32]) -> Result<Vec<u8>, String> {
    let [number, rest @ ..] = path else { return Ok(Vec::new()) };
    let mut out = Vec::with_capacity(message.len());
    for field in decode::fields(message)? {
        match field.value {
            Wire::Varint(value) => {
                encode_key(field.number, WireType::Varint, &mut out);
                encode_varint(value, &mut out);
            }
            Wire::Fixed64(value) => {
                encode_key(field.number, WireType::SixtyFourBit, &mut out);
                out.extend(value);
            }
            Wire::Fixed32(value) => {
                encode_key(field.number, WireType::ThirtyTwoBit, &mut out);
                out.extend(value);
            }
            Wire::Bytes(value) if field.number == *number => out.extend(bytes(field.number, &emptied(value, rest)?)),
            Wire::Bytes(value) => out.extend(bytes(field.number, value)),
        }
    }
    Ok(out)
}

/// A length-delimited field.
pub(crate) fn bytes(number: u32, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 8);
    encode_key(number, WireType::LengthDelimited, &mut out);
    encode_varint(value.len() as u64, &mut out);
    out.extend(value);
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Fields 3 and 4 of the envelope, both empty.
    pub(crate) const END: &[u8] = b"\x1a\x00\x22\x00";

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
