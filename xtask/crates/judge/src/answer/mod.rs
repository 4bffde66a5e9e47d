//! Answers of an API server in the form in which two runs are compared: canonical, without values that must differ.
//!
//! Canonical JSON has sorted members and no spaces, and numbers keep their spelling, so `1e30` and `1000` are different
//! from any other spelling. Protobuf is a line for each field, all other media types are text.

mod masks;

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::decode::PROTOBUF_MAGIC;
use crate::document::Document;
use crate::value_dump::split;
pub use masks::Masks;

/// Bytes of a digest, of which the record keeps hexadecimal digits.
const DIGEST: usize = 12;
/// Levels of a document; those of Kubernetes have about ten.
const DEEPEST: usize = 100;
/// A part of a shortened document that is not longer than this stays.
const SMALL: usize = 80;
/// Items of a list, or members of an object, in a shortened document.
const MOST: usize = 64;

/// A body in canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canonical {
    text: String,
    /// None if the body is not JSON.
    document: Option<Document>,
}

impl Canonical {
    /// The canonical form of a body. `sent` is the body of the request.
    pub fn of(body: &[u8], masks: &Masks, sent: &[u8]) -> Canonical {
        let text = std::str::from_utf8(body);
        if let Some(mut document) = text.ok().and_then(document) {
            masks.apply(&mut document, std::str::from_utf8(sent).unwrap_or_default());
            document.canonicalize();
            return Canonical { text: document.to_string(), document: Some(document) };
        }
        let text = match text {
            _ if body.starts_with(PROTOBUF_MAGIC) => fields(body, masks),
            Ok(text) => masks.text(text),
            Err(_) => format!("{} bytes, SHA-256 {}", body.len(), digest(body)),
        };
        Canonical { text, document: None }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn digest(&self) -> String {
        digest(self.text.as_bytes())
    }

    /// The text, in which digests replace large parts if it is longer than `limit`.
    pub fn shortened(&self, limit: usize) -> String {
        match &self.document {
            _ if self.text.len() <= limit => self.text.clone(),
            Some(document) => shortened(document, limit).to_string(),
            None => {
                let end = (0..=limit).rev().find(|end| self.text.is_char_boundary(*end)).unwrap_or(0);
                format!("{}… ({} bytes)", &self.text[..end], self.text.len())
            }
        }
    }
}

/// None if the text is not an object or a list in JSON, or has more than a hundred levels.
pub fn document(text: &str) -> Option<Document> {
    let is_container = text.trim_start().starts_with(['{', '[']);
    if is_container { Document::parse_within(text, DEEPEST).ok() } else { None }
}

/// The document with digests instead of large parts, so that its text has about `limit` bytes.
fn shortened(document: &Document, limit: usize) -> Document {
    let text = document.to_string();
    if text.len() <= limit.max(SMALL) {
        return document.clone();
    }
    let of_all = || Document::text(format!("{} bytes, SHA-256 {}", text.len(), digest(text.as_bytes())));
    match document {
        _ if limit <= SMALL => of_all(),
        Document::List(items) => {
            let part = limit / items.len().max(1);
            let mut short: Vec<Document> = items.iter().take(MOST).map(|item| shortened(item, part)).collect();
            if items.len() > MOST {
                short.push(of_all());
            }
            Document::List(short)
        }
        Document::Object(members) => {
            let part = limit / members.len().max(1);
            let short = members.iter().take(MOST).map(|(name, value)| (name.clone(), shortened(value, part)));
            let mut short: Vec<(String, Document)> = short.collect();
            if members.len() > MOST {
                short.push(("…".into(), of_all()));
            }
            Document::Object(short)
        }
        _ => of_all(),
    }
}

/// A line for each field of a value in protobuf. Lines with the sizes of messages are left out: they depend on the
/// number of digits of a resource version.
fn fields(value: &[u8], masks: &Masks) -> String {
    let mut text = String::new();
    for piece in split(value).iter().filter(|piece| !piece.text.starts_with("message of ")) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {}", piece.path, masks.field(&piece.path, &piece.text));
    }
    text
}

/// The beginning of the SHA-256, in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(DIGEST).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Canonical {
        Canonical::of(text.as_bytes(), &Masks::new(0), b"")
    }

    #[test]
    fn one_rounded_number_changes_the_digest() {
        let of = |text| canonical(text).digest();
        assert_eq!(of(r#"{"a": 9007199254740993, "b": 1}"#), of(r#"{"b":1,"a":9007199254740993}"#));
        assert_ne!(of(r#"{"a":9007199254740993}"#), of(r#"{"a":9007199254740992}"#));
        assert_ne!(of(r#"{"a":1e30}"#), of(r#"{"a":1000000000000000019884624838656}"#));
        assert_ne!(of(r#"{"a":[1,2]}"#), of(r#"{"a":[2,1]}"#));
    }

    #[test]
    fn only_objects_and_lists_are_documents() {
        for text in ["", "ok", "{", "[1", "7", "{\"a\":1}x"] {
            assert_eq!(document(text), None, "{text}");
        }
        assert_eq!(document(&format!("{}{}", "[".repeat(DEEPEST + 2), "]".repeat(DEEPEST + 2))), None);
        assert_eq!(document(" [1 ] ").unwrap().to_string(), "[1]");
    }

    #[test]
    fn large_body_is_shortened_by_digests_of_its_parts() {
        let long = "x".repeat(500);
        let of = |end: &str| canonical(&format!(r#"{{"a":"{long}","b":{{"c":1,"d":"{long}{end}"}}}}"#)).shortened(300);
        let (one, other) = (of("1"), of("2"));
        assert!(one.len() < 400 && one != other, "{one}");
        assert!(one.contains(r#""c":1"#), "{one}");
        assert_eq!(canonical("x y").shortened(1), "x… (3 bytes)");
    }
}
