//! Documents as CBOR (RFC 8949), as far as kube-apiserver reads and writes it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::document::Document;

/// With this tag, bytes are CBOR in every encoding that kube-apiserver recognises.
pub(crate) const TAG: &[u8] = &[0xd9, 0xd9, 0xf7];

/// Deeper documents are compared as bytes.
const DEEPEST: usize = 400;

/// The document as CBOR. An integer literal is an integer as far as 64 bits hold it, else a float.
pub(crate) fn encode(document: &Document) -> Vec<u8> {
    let mut bytes = TAG.to_vec();
    append(&mut bytes, document);
    bytes
}

fn append(bytes: &mut Vec<u8>, document: &Document) {
    match document {
        Document::Null => bytes.push(0xf6),
        Document::Bool(value) => bytes.push(0xf4 + u8::from(*value)),
        Document::Number(literal) => number(bytes, literal),
        Document::Text(spelled) => text(bytes, &document.decoded().unwrap_or_else(|| spelled.clone())),
        Document::List(items) => {
            head(bytes, 4, items.len() as u64);
            items.iter().for_each(|item| append(bytes, item));
        }
        Document::Object(members) => {
            head(bytes, 5, members.len() as u64);
            for (key, value) in members {
                text(bytes, key);
                append(bytes, value);
            }
        }
    }
}

fn number(bytes: &mut Vec<u8>, literal: &str) {
    if let Ok(number) = literal.parse::<u64>() {
        head(bytes, 0, number);
    } else if let Ok(number) = literal.parse::<i64>() {
        // A negative number n is written as -1 - n.
        head(bytes, 1, !number.cast_unsigned());
    } else if let Ok(number) = literal.parse::<f64>() {
        bytes.push(0xfb);
        bytes.extend(number.to_be_bytes());
    } else {
        // Only YAML has this spelling.
        text(bytes, literal);
    }
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    head(bytes, 3, text.len() as u64);
    bytes.extend(text.as_bytes());
}

/// The type and its number or length, in the shortest form.
fn head(bytes: &mut Vec<u8>, major: u8, number: u64) {
    let major = major << 5;
    if let Ok(small) = u8::try_from(number) {
        if small < 24 { bytes.push(major | small) } else { bytes.extend([major | 24, small]) }
    } else if let Ok(number) = u16::try_from(number) {
        bytes.push(major | 25);
        bytes.extend(number.to_be_bytes());
    } else if let Ok(number) = u32::try_from(number) {
        bytes.push(major | 26);
        bytes.extend(number.to_be_bytes());
    } else {
        bytes.push(major | 27);
        bytes.extend(number.to_be_bytes());
    }
}

/// The document of tagged bytes. None if they are not CBOR of one value.
pub(crate) fn decode(bytes: &[u8]) -> Option<Document> {
    let mut rest = bytes.strip_prefix(TAG)?;
    let document = value(&mut rest, 0)?;
    rest.is_empty().then_some(document)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn value(rest: &mut &[u8], depth: usize) -> Option<Document> {
    let first = *take(rest, 1)?.first()?;
    let (major, short) = (first >> 5, first & 0x1f);
    if depth > DEEPEST {
        return None;
    }
    if major == 7 {
        return simple(rest, short);
    }
    let number = match short {
        0..24 => u64::from(short),
        24..28 => take(rest, 1 << (short - 24))?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
        _ => return None,
    };
    let length = usize::try_from(number).ok();
    Some(match major {
        0 => Document::Number(number.to_string()),
        1 => Document::Number((-1 - i128::from(number)).to_string()),
        2 | 3 => bytes(take(rest, length?)?),
        4 => Document::List((0..number).map(|_| value(rest, depth + 1)).collect::<Option<_>>()?),
        5 => {
            let member = |_| Some((key(rest, depth)?, value(rest, depth + 1)?));
            let mut members: Vec<(String, Document)> = (0..number).map(member).collect::<Option<_>>()?;
            // kube-apiserver writes answers in the order of Go's maps, which changes from answer to answer.
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Document::Object(members)
        }
        // A tag says how to present the value that follows.
        _ => value(rest, depth + 1)?,
    })
}

fn key(rest: &mut &[u8], depth: usize) -> Option<String> {
    let key = value(rest, depth + 1)?;
    Some(key.decoded().unwrap_or_else(|| key.to_string()))
}

/// kube-apiserver writes text as bytes.
fn bytes(bytes: &[u8]) -> Document {
    match std::str::from_utf8(bytes) {
        Ok(text) => Document::text(text),
        Err(_) => Document::text(format!("base64:{}", STANDARD.encode(bytes))),
    }
}

fn simple(rest: &mut &[u8], short: u8) -> Option<Document> {
    Some(match short {
        20 => Document::Bool(false),
        21 => Document::Bool(true),
        22 => Document::Null,
        // The bits of a half-precision float are compared as they are.
        25 => Document::text(format!("half:{:02x?}", take(rest, 2)?)),
        26 => Document::Number(format!("{:?}", f32::from_be_bytes(take(rest, 4)?.try_into().ok()?))),
        27 => Document::Number(format!("{:?}", f64::from_be_bytes(take(rest, 8)?.try_into().ok()?))),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_survive() {
        for text in [
            r#"{"a":[1,-1,24,-300,65536,9223372036854775807,-9223372036854775808,18446744073709551615],"b":null}"#,
            r#"{"a":true,"a":false,"long":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","n":[1.5,1e30]}"#,
        ] {
            let document = Document::parse(text).unwrap();
            assert_eq!(decode(&encode(&document)).unwrap(), document);
        }
    }

    #[test]
    fn integers_beyond_64_bits_become_floats() {
        let document = Document::Number("18446744073709551616".into());
        assert_eq!(decode(&encode(&document)).unwrap(), Document::Number("1.8446744073709552e19".into()));
    }

    #[test]
    fn truncated_bytes_are_refused() {
        let bytes = encode(&Document::parse(r#"{"a":[1.5,"x"]}"#).unwrap());
        assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_none()));
        assert_eq!(decode(b"{}"), None);
    }
}
