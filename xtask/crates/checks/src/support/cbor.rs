//! The part of CBOR (RFC 8949) that stored custom resources need: a test whether map keys are sorted, and an encoder
//! that writes values as a server with the feature gate does. This file contains no check.

use serde_json::Value;

pub(crate) use judge::decode::CBOR as TAG;

/// Succeeds if the document is one tagged item whose maps all have their keys in byte order, without duplicates. No item in it
/// has a tag: a custom resource has only the types of JSON.
pub(crate) fn sorted(document: &[u8]) -> Result<(), String> {
    let rest = document.strip_prefix(TAG).ok_or("it does not begin with the tag d9 d9 f7")?;
    let end = item(rest)?;
    if end.is_empty() { Ok(()) } else { Err(format!("{} bytes follow it", end.len())) }
}

/// Reads one item and returns the bytes after it.
fn item(bytes: &[u8]) -> Result<&[u8], String> {
    let (major, argument, rest) = head(bytes)?;
    let length = || usize::try_from(argument).map_err(|error| error.to_string());
    match major {
        0 | 1 | 7 => Ok(rest),
        2 | 3 => rest.get(length()?..).ok_or_else(|| "a text is cut off".to_owned()),
        4 => (0..argument).try_fold(rest, |rest, _| item(rest)),
        5 => {
            let (mut rest, mut last): (&[u8], &[u8]) = (rest, &[]);
            for _ in 0..argument {
                let value = item(rest)?;
                let key = &rest[..rest.len() - value.len()];
                if key <= last {
                    let (key, last) = (String::from_utf8_lossy(key), String::from_utf8_lossy(last));
                    return Err(format!("the map key {key:?} comes after {last:?}"));
                }
                (last, rest) = (key, item(value)?);
            }
            Ok(rest)
        }
        _ => Err(format!("an inner item has the tag {argument}")),
    }
}

/// The major type, the argument and the bytes after them. Only definite lengths are allowed, as in sorted encodings.
fn head(bytes: &[u8]) -> Result<(u8, u64, &[u8]), String> {
    let (first, rest) = bytes.split_first().ok_or("it is cut off")?;
    let size = match first & 0x1f {
        short @ 0..24 => return Ok((first >> 5, u64::from(short), rest)),
        long @ 24..=27 => 1 << (long - 24),
        _ => return Err("an indefinite length".into()),
    };
    let (argument, rest) = rest.split_at_checked(size).ok_or("it is cut off")?;
    Ok((first >> 5, argument.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)), rest))
}

/// A tagged document; strings are byte strings, as Kubernetes writes them.
pub(crate) fn document(value: &Value) -> Vec<u8> {
    let mut bytes = TAG.to_vec();
    write(value, &mut bytes);
    bytes
}

fn write(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Null => bytes.push(0xf6),
        Value::Bool(value) => bytes.push(if *value { 0xf5 } else { 0xf4 }),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => write_head(0, number, bytes),
            (None, Some(negative)) => write_head(1, negative.unsigned_abs() - 1, bytes),
            (None, None) => {
                bytes.push(0xfb);
                bytes.extend(number.as_f64().unwrap_or_default().to_be_bytes());
            }
        },
        Value::String(value) => bytes.extend(text(value)),
        Value::Array(items) => {
            write_head(4, items.len() as u64, bytes);
            items.iter().for_each(|item| write(item, bytes));
        }
        Value::Object(fields) => {
            write_head(5, fields.len() as u64, bytes);
            let mut entries: Vec<(Vec<u8>, &Value)> = fields.iter().map(|(name, value)| (text(name), value)).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            for (name, value) in entries {
                bytes.extend(name);
                write(value, bytes);
            }
        }
    }
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_head(2, text.len() as u64, &mut bytes);
    bytes.extend(text.as_bytes());
    bytes
}

fn write_head(major: u8, argument: u64, bytes: &mut Vec<u8>) {
    let all = argument.to_be_bytes();
    match argument {
        0..24 => bytes.push(major << 5 | all[7]),
        24..0x100 => bytes.extend([major << 5 | 24, all[7]]),
        0x100..0x1_0000 => bytes.extend([major << 5 | 25, all[6], all[7]]),
        _ => {
            bytes.push(major << 5 | 27);
            bytes.extend(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_are_encoded_per_rfc_8949() {
        for (value, expected) in [
            (json!({"b": 1, "a": [true, false, null]}), &b"\xa2Aa\x83\xf5\xf4\xf6Ab\x01"[..]),
            (json!({"aa": -1, "z": 24}), b"\xa2Az\x18\x18Baa\x20"),
            (json!([1000, 0.5, ""]), b"\x83\x19\x03\xe8\xfb\x3f\xe0\0\0\0\0\0\0\x40"),
            (json!(65536), b"\x1b\0\0\0\0\0\x01\0\0"),
        ] {
            let document = document(&value);
            assert_eq!(document, [TAG, expected].concat(), "{value}");
            assert_eq!(sorted(&document), Ok(()), "{value}");
        }
    }

    #[test]
    fn unsorted_and_broken_documents_are_refused() {
        for (what, bytes) in [
            ("unsorted", &b"\xd9\xd9\xf7\xa2Ab\x01Aa\x02"[..]),
            ("unsorted within", b"\xd9\xd9\xf7\x81\xa2Baa\x01Az\x02"),
            ("a key twice", b"\xd9\xd9\xf7\xa2Aa\x01Aa\x02"),
            ("no tag", b"\xa1Aa\x01"),
            ("an inner tag", b"\xd9\xd9\xf7\xa1Aa\xd9\xd9\xf7\x01"),
            ("the tag twice", b"\xd9\xd9\xf7\xd9\xd9\xf7\x01"),
            ("cut off", b"\xd9\xd9\xf7\xa1Aa"),
            ("a cut text", b"\xd9\xd9\xf7\x45ab"),
            ("an indefinite map", b"\xd9\xd9\xf7\xbfAa\x01\xff"),
            ("trailing bytes", b"\xd9\xd9\xf7\x01\x02"),
            ("empty", b""),
        ] {
            assert!(sorted(bytes).is_err(), "{what}");
        }
    }
}
