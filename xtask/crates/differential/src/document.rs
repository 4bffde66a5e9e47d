//! JSON documents as they were written: the spelling of numbers and texts, the order of members, duplicate members.

use std::fmt;

use anyhow::{Context, bail};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Objects of Kubernetes have about ten levels; the live level also sends objects of some hundred.
const DEEPEST: usize = 400;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Document {
    Null,
    Bool(bool),
    /// As spelled: `1e30`.
    Number(String),
    /// As spelled, with quotes and escapes.
    Text(String),
    List(Vec<Document>),
    /// In order, with duplicates.
    Object(Vec<(String, Document)>),
}

impl Document {
    /// # Errors
    /// The text is not JSON, or has more than 400 levels.
    pub fn parse(text: &str) -> anyhow::Result<Document> {
        parse(serde_json::from_str(text).context("not JSON")?, 0)
    }

    /// Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// As `parse`.
    pub fn parse_bytes(bytes: &[u8]) -> anyhow::Result<Document> {
        Document::parse(&String::from_utf8_lossy(bytes))
    }

    /// The document for a text.
    pub fn text(text: impl Into<String>) -> Document {
        Document::Text(serde_json::Value::from(text.into()).to_string())
    }

    /// A text without its quotes and escapes.
    pub fn decoded(&self) -> Option<String> {
        match self {
            Document::Text(spelled) => serde_json::from_str(spelled).ok(),
            _ => None,
        }
    }

    /// An object of these members.
    pub fn object<K: Into<String>>(members: impl IntoIterator<Item = (K, Document)>) -> Document {
        Document::Object(members.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// The kind of the value, in the words of JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Document::Null => "null",
            Document::Bool(_) => "boolean",
            Document::Number(_) => "number",
            Document::Text(_) => "string",
            Document::List(_) => "array",
            Document::Object(_) => "object",
        }
    }

    /// The last member with this name: readers that accept duplicates take the last one.
    pub fn member(&self, name: &str) -> Option<&Document> {
        let Document::Object(members) = self else { return None };
        members.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn member_mut(&mut self, name: &str) -> Option<&mut Document> {
        let Document::Object(members) = self else { return None };
        members.iter_mut().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The value at the end of a chain of members.
    pub fn at(&self, path: &[&str]) -> Option<&Document> {
        path.iter().try_fold(self, |inner, name| inner.member(name))
    }

    /// Replaces the member, or adds it at the end. A value that is not an object becomes one.
    pub fn set(&mut self, name: &str, value: Document) {
        if !matches!(self, Document::Object(_)) {
            *self = Document::Object(Vec::new());
        }
        if let Some(old) = self.member_mut(name) {
            *old = value;
        } else if let Document::Object(members) = self {
            members.push((name.to_owned(), value));
        }
    }

    /// The values right below this one.
    pub fn inner(&self) -> Vec<&Document> {
        match self {
            Document::List(items) => items.iter().collect(),
            Document::Object(members) => members.iter().map(|(_, value)| value).collect(),
            _ => Vec::new(),
        }
    }

    pub fn inner_mut(&mut self) -> Vec<&mut Document> {
        match self {
            Document::List(items) => items.iter_mut().collect(),
            Document::Object(members) => members.iter_mut().map(|(_, value)| value).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether the value is this document or a part of it.
    pub fn contains(&self, value: &Document) -> bool {
        self == value || self.inner().into_iter().any(|inner| inner.contains(value))
    }
}

/// JSON without spaces.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Document::Null => f.write_str("null"),
            Document::Bool(value) => write!(f, "{value}"),
            Document::Number(spelled) | Document::Text(spelled) => f.write_str(spelled),
            Document::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Document::Object(members) => {
                f.write_str("{")?;
                for (i, (key, value)) in members.iter().enumerate() {
                    let key = serde_json::Value::from(key.as_str());
                    write!(f, "{}{key}:{value}", if i == 0 { "" } else { "," })?;
                }
                f.write_str("}")
            }
        }
    }
}

fn parse(raw: &RawValue, depth: usize) -> anyhow::Result<Document> {
    if depth > DEEPEST {
        bail!("more than {DEEPEST} levels");
    }
    let text = raw.get();
    Ok(match text.as_bytes().first() {
        Some(b'{') => {
            let members: Members<'_> = serde_json::from_str(text)?;
            let parsed = members.0.into_iter().map(|(key, value)| Ok((key, parse(value, depth + 1)?)));
            Document::Object(parsed.collect::<anyhow::Result<_>>()?)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            Document::List(items.into_iter().map(|item| parse(item, depth + 1)).collect::<anyhow::Result<_>>()?)
        }
        Some(b'"') => Document::Text(text.to_owned()),
        Some(b'n') => Document::Null,
        Some(b't') => Document::Bool(true),
        Some(b'f') => Document::Bool(false),
        _ => Document::Number(text.to_owned()),
    })
}

/// The members of an object, which a map would sort and merge.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_keeps_spelling_order_and_duplicates() {
        let text = r#"{"b":1e30,"a":[-0,1.50,{"k":null}],"b":"\u00e9 é","c":true}"#;
        assert_eq!(Document::parse(text).unwrap().to_string(), text);
        let spaced = Document::parse(" { \"a\" : [ 1 , 2 ] } ").unwrap();
        assert_eq!(spaced.to_string(), r#"{"a":[1,2]}"#);
    }

    #[test]
    fn last_of_duplicate_members_counts() {
        let mut document = Document::parse(r#"{"a":1,"a":{"b":"\u00e9"}}"#).unwrap();
        assert_eq!(document.at(&["a", "b"]).and_then(Document::decoded).as_deref(), Some("é"));
        assert!(document.contains(&Document::Number("1".into())));
        document.set("a", Document::text("x\n"));
        assert_eq!(document.to_string(), r#"{"a":1,"a":"x\n"}"#);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        assert_eq!(Document::parse_bytes(b"\"a\xff\"").unwrap(), Document::text("a\u{fffd}"));
    }

    #[test]
    fn deep_and_broken_documents_are_refused() {
        assert!(Document::parse(&format!("{}{}", "[".repeat(150), "]".repeat(150))).is_ok());
        assert!(Document::parse(&format!("{}{}", "[".repeat(50_000), "]".repeat(50_000))).is_err());
        for text in ["", "{", "[1,]", "nul", "1 2", "{\"a\"}"] {
            assert!(Document::parse(text).is_err(), "{text}");
        }
    }
}
