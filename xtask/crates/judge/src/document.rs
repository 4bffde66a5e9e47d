//! JSON documents as they were written: the spelling of numbers and texts, the order of members, duplicate members.

use std::fmt::{self, Display, Formatter, Write};

use serde::de::{Error as _, IgnoredAny};

/// Objects of Kubernetes have about ten levels; the live level of `differential` also sends objects of some hundred.
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
    pub fn parse(text: &str) -> serde_json::Result<Document> {
        Document::parse_within(text, DEEPEST)
    }

    /// # Errors
    /// The text is not JSON, or has more than this number of levels.
    pub fn parse_within(text: &str, levels: usize) -> serde_json::Result<Document> {
        let IgnoredAny = serde_json::from_str(text)?;
        Parser { text, at: 0, levels }.value(0)
    }

    /// Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// As `parse`.
    pub fn parse_bytes(bytes: &[u8]) -> serde_json::Result<Document> {
        Document::parse(&String::from_utf8_lossy(bytes))
    }

    /// The document for a text.
    pub fn text(text: impl Into<String>) -> Document {
        Document::Text(spelled(&text.into()))
    }

    /// A text without its quotes and escapes.
    pub fn decoded(&self) -> Option<String> {
        match self {
            Document::Text(spelled) => decode(spelled).ok(),
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

    /// Replaces the content of a text. Equal content keeps its spelling.
    pub fn map_text(&mut self, change: impl FnOnce(&str) -> String) {
        if let Some(old) = self.decoded() {
            let new = change(&old);
            if new != old {
                *self = Document::text(new);
            }
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

    /// Sorts the members of all objects by name, and spells all texts with the fewest escapes. Duplicates keep their
    /// order.
    pub(crate) fn canonicalize(&mut self) {
        if let Document::Object(members) = self {
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        if let Document::Text(spelled) = self
            && spelled.contains('\\')
            && let Some(text) = self.decoded()
        {
            *self = Document::text(text);
        }
        self.inner_mut().into_iter().for_each(Document::canonicalize);
    }
}

/// JSON without spaces.
impl Display for Document {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Document::Null => f.write_str("null"),
            Document::Bool(value) => write!(f, "{value}"),
            Document::Number(spelled) | Document::Text(spelled) => f.write_str(spelled),
            Document::List(items) => {
                f.write_char('[')?;
                for (i, item) in items.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { "," })?;
                    Display::fmt(item, f)?;
                }
                f.write_char(']')
            }
            Document::Object(members) => {
                f.write_char('{')?;
                for (i, (key, value)) in members.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { "," })?;
                    f.write_str(&spelled(key))?;
                    f.write_char(':')?;
                    Display::fmt(value, f)?;
                }
                f.write_char('}')
            }
        }
    }
}

/// A text in JSON with the fewest escapes.
fn spelled(text: &str) -> String {
    if is_plain(text) { ["\"", text, "\""].concat() } else { serde_json::Value::from(text).to_string() }
}

fn decode(spelled: &str) -> serde_json::Result<String> {
    match spelled.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(text) if is_plain(text) => Ok(text.to_owned()),
        _ => serde_json::from_str(spelled),
    }
}

/// Whether the text needs no escape, and has none.
fn is_plain(text: &str) -> bool {
    !text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\')
}

/// Splits valid JSON in one pass: the answer to a list request has megabytes.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    levels: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self, level: usize) -> serde_json::Result<Document> {
        if level > self.levels {
            return Err(serde_json::Error::custom(format_args!("more than {} levels", self.levels)));
        }
        Ok(match self.peek() {
            Some(b'{') => Document::Object(
                self.sequence(b'}', |parser| Ok((decode(parser.scalar())?, parser.value(level + 1)?)))?,
            ),
            Some(b'[') => Document::List(self.sequence(b']', |parser| parser.value(level + 1))?),
            _ => match self.scalar() {
                "null" => Document::Null,
                "true" => Document::Bool(true),
                "false" => Document::Bool(false),
                text if text.starts_with('"') => Document::Text(text.to_owned()),
                number => Document::Number(number.to_owned()),
            },
        })
    }

    /// The items between an opening sign and `end`.
    fn sequence<T>(
        &mut self,
        end: u8,
        item: impl Fn(&mut Self) -> serde_json::Result<T>,
    ) -> serde_json::Result<Vec<T>> {
        self.at += 1;
        let mut items = Vec::new();
        while self.peek().is_some_and(|byte| byte != end) {
            items.push(item(self)?);
        }
        self.at += 1;
        Ok(items)
    }

    /// A text with its quotes, or a literal.
    fn scalar(&mut self) -> &'a str {
        let is_text = self.peek() == Some(b'"');
        let begin = self.at;
        let bytes = self.text.as_bytes();
        self.at += 1;
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'"' if is_text => {
                    self.at += 1;
                    break;
                }
                b'\\' => self.at += 2,
                b' ' | b'\n' | b'\t' | b'\r' | b',' | b']' | b'}' if !is_text => break,
                _ => self.at += 1,
            }
        }
        self.text.get(begin..self.at).unwrap_or_default()
    }

    /// The next byte that is neither white space nor a separator: in valid JSON, separators carry no information.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' | b',' | b':' => self.at += 1,
                byte => return Some(byte),
            }
        }
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
        let signs = r#"{"a,:\"\\":["}]{[ ,:\\",{},[],"\"",false,-1E+2]}"#;
        assert_eq!(Document::parse(&signs.replace("],", "]\r\n,\t")).unwrap().to_string(), signs);
    }

    #[test]
    fn canonical_document_keeps_numbers_and_duplicates() {
        let text = r#"{"b":1.0,"a":[1e30,null,true,"\u00e9\n"],"b":{}}"#;
        let mut document = Document::parse(&text.replace(',', " , ")).unwrap();
        document.canonicalize();
        assert_eq!(document.to_string(), r#"{"a":[1e30,null,true,"é\n"],"b":1.0,"b":{}}"#);
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
        let nested = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Document::parse(&nested(150)).is_ok());
        assert!(Document::parse(&nested(DEEPEST + 2)).is_err());
        assert!(Document::parse(&nested(50_000)).is_err());
        assert!(Document::parse_within(&nested(102), 100).is_err());
        assert!(Document::parse_within(&nested(101), 100).is_ok());
        for text in ["", "ok", "{", "[1", "[1,]", "nul", "1 2", "{\"a\"}", "{\"a\":1}x", r#"{"\ud800":1}"#] {
            assert!(Document::parse(text).is_err(), "{text}");
        }
    }
}
