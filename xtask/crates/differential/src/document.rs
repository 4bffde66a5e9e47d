//! JSON documents as they were written: the spelling of numbers and texts, the order of members, duplicate members.

use std::fmt;

use anyhow::{Context, bail};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Documents of Kubernetes have about ten levels.
const DEEPEST: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Document {
    Null,
    Bool(bool),
    /// As spelled: `1e30`.
    Number(String),
    /// As spelled, with quotes and escapes.
    Text(String),
    List(Vec<Document>),
    /// In order, with duplicates.
    Map(Vec<(String, Document)>),
}

impl Document {
    /// # Errors
    /// The text is not JSON, or has more than 200 levels.
    pub fn parse(text: &str) -> anyhow::Result<Document> {
        parse(serde_json::from_str(text).context("not JSON")?, 0)
    }

    /// A text without its quotes and escapes.
    pub fn decoded(&self) -> Option<String> {
        match self {
            Document::Text(spelled) => serde_json::from_str(spelled).ok(),
            _ => None,
        }
    }

    /// The document for a text.
    pub fn of_text(text: &str) -> Document {
        Document::Text(serde_json::Value::from(text).to_string())
    }

    /// The kind of the value, in the words of JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Document::Null => "null",
            Document::Bool(_) => "boolean",
            Document::Number(_) => "number",
            Document::Text(_) => "string",
            Document::List(_) => "array",
            Document::Map(_) => "object",
        }
    }

    /// The first member with this name.
    pub fn member(&self, name: &str) -> Option<&Document> {
        match self {
            Document::Map(members) => members.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
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
            Document::Map(members) => {
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
            Document::Map(parsed.collect::<anyhow::Result<_>>()?)
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
    fn deep_and_broken_documents_are_refused() {
        assert!(Document::parse(&format!("{}{}", "[".repeat(150), "]".repeat(150))).is_ok());
        assert!(Document::parse(&format!("{}{}", "[".repeat(50_000), "]".repeat(50_000))).is_err());
        for text in ["", "{", "[1,]", "nul", "1 2", "{\"a\"}"] {
            assert!(Document::parse(text).is_err(), "{text}");
        }
    }
}
