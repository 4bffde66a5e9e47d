//! JSON documents that keep the spelling of numbers and duplicate members.

use std::fmt::{self, Display, Formatter};

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::digest;

/// Documents of Kubernetes have about ten levels.
const DEEPEST: usize = 100;
/// A part of a shortened document that is not longer than this stays.
const SMALL: usize = 80;
/// Items of a list, or members of an object, in a shortened document.
const MOST: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Document {
    /// Null, a boolean or a number, as spelled.
    Literal(String),
    Text(String),
    List(Vec<Document>),
    Map(Vec<(String, Document)>),
}

impl Document {
    /// None if the text is not an object or a list in JSON, or has more than a hundred levels.
    pub fn parse(text: &str) -> Option<Document> {
        let text = text.trim();
        if !text.starts_with(['{', '[']) {
            return None;
        }
        parse(text, 0)
    }

    pub fn member(&self, name: &str) -> Option<&Document> {
        match self {
            Document::Map(members) => members.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        if let Document::Text(text) = self { Some(text) } else { None }
    }

    /// Sorts the members of all objects by name; duplicates keep their order.
    pub(super) fn sort(&mut self) {
        match self {
            Document::List(items) => items.iter_mut().for_each(Document::sort),
            Document::Map(members) => {
                members.sort_by(|(a, _), (b, _)| a.cmp(b));
                members.iter_mut().for_each(|(_, value)| value.sort());
            }
            Document::Literal(_) | Document::Text(_) => {}
        }
    }

    /// The document with digests instead of large parts, so that its text has about `limit` bytes.
    pub(super) fn shortened(&self, limit: usize) -> Document {
        let text = self.to_string();
        if text.len() <= limit.max(SMALL) {
            return self.clone();
        }
        let of_all = || Document::Text(format!("{} bytes, SHA-256 {}", text.len(), digest(text.as_bytes())));
        match self {
            _ if limit <= SMALL => of_all(),
            Document::List(items) => {
                let part = limit / items.len().max(1);
                let mut short: Vec<Document> = items.iter().take(MOST).map(|item| item.shortened(part)).collect();
                if items.len() > MOST {
                    short.push(of_all());
                }
                Document::List(short)
            }
            Document::Map(members) => {
                let part = limit / members.len().max(1);
                let short = members.iter().take(MOST).map(|(name, value)| (name.clone(), value.shortened(part)));
                let mut short: Vec<(String, Document)> = short.collect();
                if members.len() > MOST {
                    short.push(("…".into(), of_all()));
                }
                Document::Map(short)
            }
            Document::Literal(_) | Document::Text(_) => of_all(),
        }
    }
}

fn parse(text: &str, level: usize) -> Option<Document> {
    if level > DEEPEST {
        return None;
    }
    match text.as_bytes().first()? {
        b'{' => {
            let Members(members) = serde_json::from_str(text).ok()?;
            let each = members.into_iter().map(|(name, raw)| Some((name, parse(raw.get(), level + 1)?)));
            each.collect::<Option<_>>().map(Document::Map)
        }
        b'[' => {
            let Items(items) = serde_json::from_str(text).ok()?;
            items.into_iter().map(|raw| parse(raw.get(), level + 1)).collect::<Option<_>>().map(Document::List)
        }
        b'"' => serde_json::from_str(text).ok().map(Document::Text),
        _ => Some(Document::Literal(text.to_owned())),
    }
}

/// The members of an object with their spelling.
struct Members<'a>(Vec<(String, &'a RawValue)>);

/// The items of a list with their spelling.
struct Items<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

impl<'de> Deserialize<'de> for Items<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Items<'de>;

            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Items(items))
            }
        }
        deserializer.deserialize_seq(Each)
    }
}

/// JSON without spaces.
impl Display for Document {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Document::Literal(literal) => f.write_str(literal),
            Document::Text(text) => quoted(f, text),
            Document::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { "," })?;
                    item.fmt(f)?;
                }
                f.write_str("]")
            }
            Document::Map(members) => {
                f.write_str("{")?;
                for (i, (name, value)) in members.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { "," })?;
                    quoted(f, name)?;
                    f.write_str(":")?;
                    value.fmt(f)?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quoted(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str(&serde_json::to_string(text).map_err(|_| fmt::Error)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_keeps_spelling_and_duplicates() {
        let text = r#"{"b":1.0,"a":[1e30,null,true,"\u00e9\n"],"b":{}}"#;
        let mut document = Document::parse(&text.replace(',', " , ")).unwrap();
        assert_eq!(document.to_string(), text.replace("\\u00e9", "é"));
        document.sort();
        assert_eq!(document.to_string(), r#"{"a":[1e30,null,true,"é\n"],"b":1.0,"b":{}}"#);
        for text in ["", "ok", "{", "[1", "7", "{\"a\":1}x"] {
            assert_eq!(Document::parse(text), None, "{text}");
        }
        assert_eq!(Document::parse(&"[".repeat(DEEPEST + 2)), None);
    }
}
