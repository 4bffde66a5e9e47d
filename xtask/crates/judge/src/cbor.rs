//! CBOR as Kubernetes writes it (RFC 8949), to JSON. Strings are byte strings with UTF-8 in them; bytes that JSON shows in
//! base64 have tag 22 (apimachinery `runtime/serializer/cbor`). Times and quantities are strings, as in JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use crate::decode::CBOR;

/// As deep as Kubernetes reads it.
const DEEPEST: usize = 64;

/// The tag of bytes that JSON shows in base64.
const BASE64: u64 = 22;

/// The fault of a value whose end is missing.
const CUT: &str = "cut";

/// Decodes a whole value, with or without the tag in front.
///
/// # Errors
/// The value is damaged, uses what Kubernetes does not write, or does not end after the first item. Names the byte.
pub fn decode(value: &[u8]) -> Result<Value, String> {
    let mut reader = Reader::new(value, false);
    let decoded = reader.item(0).and_then(|decoded| match reader.rest {
        [] => Ok(decoded),
        _ => Err("bytes after the value"),
    });
    decoded.map_err(|why| reader.fault(why, value))
}

/// An object as a server writes it in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsJson {
    pub text: String,
    /// Whether a number is floating point. JSON of a built-in object repeats such a number as a client wrote it, because only
    /// raw JSON contains any (`RawExtension`); CBOR has only its value.
    pub has_float: bool,
}

/// Decodes a whole value into the JSON that the server writes for the same object.
///
/// # Errors
/// As [`decode`].
pub fn to_json(value: &[u8]) -> Result<AsJson, String> {
    decode(value).map(|decoded| as_json(&decoded))
}

/// Decodes the first value of a sequence (RFC 8742), which is a watch event, like [`to_json`], and returns it with its length;
/// None if its end is missing. The value of the event's key `object` may have a tag of its own: an apiserver encodes the object
/// as a document and embeds it (apimachinery, runtime/extension.go, `MarshalCBOR`). It writes no such tag elsewhere.
///
/// # Errors
/// The value is damaged, or uses what Kubernetes does not write. Names the byte.
pub fn first_to_json(sequence: &[u8]) -> Result<Option<(AsJson, usize)>, String> {
    let mut reader = Reader::new(sequence, true);
    match reader.item(0) {
        Ok(decoded) => Ok(Some((as_json(&decoded), sequence.len() - reader.rest.len()))),
        Err(CUT) => Ok(None),
        Err(why) => Err(reader.fault(why, sequence)),
    }
}

fn as_json(decoded: &Value) -> AsJson {
    let mut text = String::new();
    write(decoded, &mut text);
    AsJson { text, has_float: has_float(decoded) }
}

/// Whether the value contains a floating-point number.
pub fn has_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_float),
        Value::Object(fields) => fields.values().any(has_float),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(number) => text.push_str(&float(number)),
            None => text.push_str(&number.to_string()),
        },
        Value::Array(items) => write_all('[', ']', items, text, write),
        Value::Object(fields) => write_all('{', '}', fields, text, |(name, value), text| {
            text.push_str(&Value::from(name.as_str()).to_string());
            text.push(':');
            write(value, text);
        }),
        Value::Null | Value::Bool(_) | Value::String(_) => text.push_str(&value.to_string()),
    }
}

fn write_all<T>(
    begin: char,
    end: char,
    items: impl IntoIterator<Item = T>,
    text: &mut String,
    write: impl Fn(T, &mut String),
) {
    text.push(begin);
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        write(item, text);
    }
    text.push(end);
}

/// The shortest form that is read as the same number, as Go's encoding/json chooses it: `1`, `0.5`, `1e-7`, `1e+21`.
fn float(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return number.to_string();
    }
    let form = format!("{number:e}");
    if form.contains("e-") { form } else { form.replace('e', "e+") }
}

struct Reader<'a> {
    rest: &'a [u8],
    is_event: bool,
}

/// The head of an item: its major type, and its argument; None for an indefinite length.
type Head = (u8, Option<u64>);

impl<'a> Reader<'a> {
    fn new(value: &'a [u8], is_event: bool) -> Reader<'a> {
        let mut reader = Reader { rest: value, is_event };
        reader.skip_tag();
        reader
    }

    fn skip_tag(&mut self) {
        self.rest = self.rest.strip_prefix(CBOR).unwrap_or(self.rest);
    }

    /// The fault with the byte of the value at which the reader is.
    fn fault(&self, why: &str, value: &[u8]) -> String {
        format!("{why} at byte {} of {}", value.len() - self.rest.len(), value.len())
    }

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
                    if self.is_event && depth == 0 && key == "object" {
                        self.skip_tag();
                    }
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
            (None, []) => Err(CUT),
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
        self.take(usize::try_from(length).map_err(|_| CUT)?)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(CUT)?;
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
    fn floating_point_numbers_are_written_as_go_does() {
        for (number, expected) in [
            (1.0, "1"),
            (-0.0, "-0"),
            (0.5, "0.5"),
            (100_000.0, "100000"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (-1.25e-9, "-1.25e-9"),
            (999_999_999_999_999_900_000.0, "999999999999999900000"),
            (1e21, "1e+21"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
        ] {
            let bytes = [&b"\xfb"[..], &f64::to_be_bytes(number)].concat();
            assert_eq!(to_json(&bytes), Ok(AsJson { text: expected.into(), has_float: true }), "{number}");
        }
        // A whole number of 16 bits, as the server shortens it, inside a list and a map.
        assert_eq!(to_json(b"\xa1\x41a\x82\xf9\x3c\x00\x01").unwrap().text, r#"{"a":[1,1]}"#);
    }

    #[test]
    fn object_in_cbor_has_the_digest_of_its_json() {
        // The same object as the server writes it: strings as byte strings, a time as text, bytes with tag 22.
        let json = r#"{"data":"/wA=","kind":"Thing","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","name":"\u003cé\n"},"n":[9007199254740993,-7,1.5,1e+21,null,true]}"#;
        let bytes: &[u8] = b"\xd9\xd9\xf7\xa4\
            \x44kind\x45Thing\
            \x41n\x86\x1b\x00\x20\x00\x00\x00\x00\x00\x01\x26\xf9\x3e\x00\xfb\x44\x4b\x1a\xe4\xd6\xe2\xef\x50\xf6\xf5\
            \x44data\xd6\x42\xff\x00\
            \x48metadata\xa2\x44name\x44<\xc3\xa9\x0a\x51creationTimestamp\x742026-01-02T03:04:05Z";
        let seen = to_json(bytes).unwrap();
        assert!(seen.has_float);
        let digest = |text: &str| crate::object_digest::of_object(text.as_bytes()).unwrap();
        assert_eq!(digest(&seen.text), digest(json), "{}", seen.text);
        let altered = seen.text.replace("9007199254740993", "9007199254740992");
        assert_ne!(digest(&altered), digest(json));
        assert!(!to_json(b"\xa1\x41a\x81\x01").unwrap().has_float);
    }

    #[test]
    fn sequence_is_read_value_by_value() {
        let (first, second) =
            (&b"\xd9\xd9\xf7\xa1\x46object\xd9\xd9\xf7\xf9\x3c\x00"[..], &b"\xd9\xd9\xf7\x9f\x41b\xff"[..]);
        let sequence = [first, second].concat();
        let shown =
            |text: &str, has_float, bytes: &[u8]| Ok(Some((AsJson { text: text.into(), has_float }, bytes.len())));
        assert_eq!(first_to_json(&sequence), shown(r#"{"object":1}"#, true, first));
        assert_eq!(first_to_json(&sequence[first.len()..]), shown(r#"["b"]"#, false, second));
        for value in [first, second] {
            for length in 0..value.len() {
                assert_eq!(first_to_json(&value[..length]), Ok(None), "{length} bytes of {value:02x?}");
            }
        }
        let why = first_to_json(b"\xd9\xd9\xf7\xa1\x01\x02").unwrap_err();
        assert_eq!(why, "a key that is not a string at byte 5 of 6");
    }

    #[test]
    fn inner_tag_is_accepted_only_before_the_object_of_an_event() {
        let event = b"\xd9\xd9\xf7\xa2\x44type\x45ADDED\x46object\xd9\xd9\xf7\xa1\x41n\x01";
        let (json, length) = first_to_json(event).unwrap().unwrap();
        assert_eq!((json.text.as_str(), length), (r#"{"object":{"n":1},"type":"ADDED"}"#, event.len()));
        // The body of a GET is the same bytes without a stream around them.
        for refused in [decode(event).map(|_| ()), to_json(event).map(|_| ())] {
            assert_eq!(refused.unwrap_err(), "an item that Kubernetes does not write at byte 25 of 29");
        }
        for elsewhere in [
            &b"\xd9\xd9\xf7\xa1\x44type\xd9\xd9\xf7\x45ADDED"[..],
            b"\xd9\xd9\xf7\xa1\x46object\xd9\xd9\xf7\xa1\x46object\xd9\xd9\xf7\x01",
            b"\xd9\xd9\xf7\xa1\x46object\xd9\xd9\xf7\xd9\xd9\xf7\x01",
            b"\xd9\xd9\xf7\x81\xa1\x46object\xd9\xd9\xf7\x01",
            b"\xd9\xd9\xf7\xa1\xd9\xd9\xf7\x46object\x01",
            b"\xd9\xd9\xf7\xd9\xd9\xf7\x01",
        ] {
            assert!(first_to_json(elsewhere).is_err(), "{}", elsewhere.escape_ascii());
            assert!(decode(elsewhere).is_err(), "{}", elsewhere.escape_ascii());
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
            (b"\xd9\xd9\xf7\xd9\xd9\xf7\x01", "does not write"),
            (b"\xd9\xd9\xf7\xa1\x41a\xd9\xd9\xf7\xa1\x41b\x01", "does not write"),
            (&b"\x81".repeat(100), "too deep"),
        ] {
            let why = decode(bytes).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
