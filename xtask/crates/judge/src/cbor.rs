//! CBOR as Kubernetes writes it (RFC 8949), to JSON. Strings are byte strings with UTF-8 in them; bytes that JSON shows in
//! base64 have tag 22 (apimachinery `runtime/serializer/cbor`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use crate::decode::CBOR;

/// As deep as Kubernetes reads it.
const DEEPEST: usize = 64;

/// The tag of bytes that JSON shows in base64.
const BASE64: u64 = 22;

/// Decodes a whole value, with or without the tag in front.
///
/// # Errors
/// The value is damaged, uses what Kubernetes does not write, or does not end after the first item. Names the byte.
pub fn decode(value: &[u8]) -> Result<Value, String> {
    let item = value.strip_prefix(CBOR).unwrap_or(value);
    let mut reader = Reader { rest: item };
    let decoded = reader.item(0).and_then(|decoded| match reader.rest {
        [] => Ok(decoded),
        _ => Err("bytes after the value"),
    });
    decoded.map_err(|why| format!("{why} at byte {} of {}", value.len() - reader.rest.len(), value.len()))
}

struct Reader<'a> {
    rest: &'a [u8],
}

/// The head of an item: its major type, and its argument; None for an indefinite length.
type Head = (u8, Option<u64>);

impl<'a> Reader<'a> {
    fn item(&mut self, depth: usize) -> Result<Value, &'static str> {
        if depth > DEEPEST {
            return Err("nested too deep");
        }
        if let Some((simple, rest)) = self.rest.split_first().filter(|(first, _)| **first >> 5 == 7) {
            self.rest = rest;
            return self.simple(simple & 0x1f);
        }
        match self.head()? {
            (0, Some(number)) => Ok(number.into()),
            (1, Some(number)) => {
                let number = i64::try_from(number).map_err(|_| "a number below 64 bits")?;
                Ok((-1 - number).into())
            }
            (major @ (2 | 3), length) => Ok(text(self.string(major, length)?)?.into()),
            (4, length) => {
                let mut items = Vec::new();
                while self.more(length, items.len())? {
                    items.push(self.item(depth + 1)?);
                }
                Ok(items.into())
            }
            (5, length) => {
                let mut entries = Map::new();
                while self.more(length, entries.len())? {
                    let (major, length) = self.head()?;
                    if !matches!(major, 2 | 3) {
                        return Err("a key that is not a string");
                    }
                    let key = text(self.string(major, length)?)?;
                    let value = self.item(depth + 1)?;
                    if entries.insert(key, value).is_some() {
                        return Err("a key that occurs twice");
                    }
                }
                Ok(entries.into())
            }
            (6, Some(BASE64)) => match self.head()? {
                (2, length) => Ok(STANDARD.encode(self.string(2, length)?).into()),
                _ => Err("a tag for bytes before something else"),
            },
            _ => Err("an item that Kubernetes does not write"),
        }
    }

    /// Whether a collection has another item.
    fn more(&mut self, length: Option<u64>, so_far: usize) -> Result<bool, &'static str> {
        match (length, self.rest) {
            (Some(length), _) => Ok((so_far as u64) < length),
            (None, [0xff, rest @ ..]) => {
                self.rest = rest;
                Ok(false)
            }
            (None, []) => Err("cut"),
            (None, _) => Ok(true),
        }
    }

    fn head(&mut self) -> Result<Head, &'static str> {
        let first = self.take(1)?[0];
        let argument = match first & 0x1f {
            small @ 0..24 => Some(u64::from(small)),
            size @ 24..28 => Some(self.number(1 << (size - 24))?),
            31 => None,
            _ => return Err("a reserved length"),
        };
        Ok((first >> 5, argument))
    }

    /// A number in network order.
    fn number(&mut self, bytes: usize) -> Result<u64, &'static str> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// The bytes of a string; one of indefinite length consists of strings.
    fn string(&mut self, major: u8, length: Option<u64>) -> Result<Vec<u8>, &'static str> {
        let Some(length) = length else {
            let mut whole = Vec::new();
            while self.more(None, 0)? {
                match self.head()? {
                    (part, Some(length)) if part == major => whole.extend_from_slice(self.bytes(length)?),
                    _ => return Err("a part of a string of another type"),
                }
            }
            return Ok(whole);
        };
        Ok(self.bytes(length)?.to_vec())
    }

    fn bytes(&mut self, length: u64) -> Result<&'a [u8], &'static str> {
        self.take(usize::try_from(length).map_err(|_| "cut")?)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or("cut")?;
        self.rest = rest;
        Ok(taken)
    }

    fn simple(&mut self, kind: u8) -> Result<Value, &'static str> {
        let float = match kind {
            20 => return Ok(false.into()),
            21 => return Ok(true.into()),
            22 => return Ok(Value::Null),
            25 => half(u16::try_from(self.number(2)?).unwrap_or_default()),
            26 => f32::from_bits(u32::try_from(self.number(4)?).unwrap_or_default()).into(),
            27 => f64::from_bits(self.number(8)?),
            _ => return Err("a simple value that Kubernetes does not write"),
        };
        Number::from_f64(float).map(Value::Number).ok_or("a number that JSON does not have")
    }
}

/// A number of 16 bits: a sign, 5 bits of exponent, 10 of fraction.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

fn text(bytes: Vec<u8>) -> Result<String, &'static str> {
    String::from_utf8(bytes).map_err(|_| "text that is not UTF-8")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_the_specification() {
        // RFC 8949, appendix A.
        for (bytes, value) in [
            (&b"\x00"[..], json!(0)),
            (b"\x18\x64", json!(100)),
            (b"\x1b\x00\x00\x00\xe8\xd4\xa5\x10\x00", json!(1_000_000_000_000_u64)),
            (b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", json!(u64::MAX)),
            (b"\x20", json!(-1)),
            (b"\x39\x03\xe7", json!(-1000)),
            (b"\xf9\x3c\x00", json!(1.0)),
            (b"\xf9\x00\x01", json!(5.960_464_477_539_063e-8)),
            (b"\xf9\xc4\x00", json!(-4.0)),
            (b"\xfa\x47\xc3\x50\x00", json!(100_000.0)),
            (b"\xfb\x3f\xf1\x99\x99\x99\x99\x99\x9a", json!(1.1)),
            (b"\xf4", json!(false)),
            (b"\xf6", Value::Null),
            (b"\x45\x68\x65\x6c\x6c\x6f", json!("hello")),
            (b"\x62\xc3\xbc", json!("ü")),
            (b"\xd6\x42\xff\x00", json!("/wA=")),
            (b"\x83\x01\x02\x03", json!([1, 2, 3])),
            (b"\x9f\x01\x9f\x02\xff\xff", json!([1, [2]])),
            (b"\xbf\x41a\x01\xff", json!({"a": 1})),
            (b"\xd9\xd9\xf7\xa2\x41a\x01\x41b\x80", json!({"a": 1, "b": []})),
            (b"\x5f\x42ab\x41c\xff", json!("abc")),
        ] {
            assert_eq!(decode(bytes), Ok(value), "{bytes:02x?}");
        }
    }

    #[test]
    fn damaged_values_are_refused() {
        for (bytes, part) in [
            (&b""[..], "cut at byte 0"),
            (b"\x82\x01", "cut at byte 2"),
            (b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff\x01", "cut"),
            (b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff\x01", "cut"),
            (b"\x01\x02", "bytes after the value"),
            (b"\xa2\x41a\x01\x41a\x02", "occurs twice"),
            (b"\xa1\x01\x02", "not a string"),
            (b"\x41\xff", "not UTF-8"),
            (b"\xf9\x7e\x00", "does not have"),
            (b"\x1c", "reserved"),
            (b"\xc0\x61a", "does not write"),
            (b"\x3b\xff\xff\xff\xff\xff\xff\xff\xff", "below 64 bits"),
            (&b"\x81".repeat(100), "too deep"),
        ] {
            let why = decode(bytes).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
