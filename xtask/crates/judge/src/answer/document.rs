//! JSON documents that keep the spelling of numbers and duplicate members.

use std::fmt::{self, Display, Formatter};

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
        let mut parser = Parser { text, at: 0 };
        if !matches!(parser.peek()?, b'{' | b'[') {
            return None;
        }
        let document = parser.value(0)?;
        parser.peek().is_none().then_some(document)
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

/// A parser of one pass: an answer of a list has megabytes.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self, level: usize) -> Option<Document> {
        if level > DEEPEST {
            return None;
        }
        match self.peek()? {
            b'{' => {
                let member = |parser: &mut Self| {
                    let name = parser.string()?;
                    parser.take(b':')?;
                    Some((name, parser.value(level + 1)?))
                };
                self.sequence(b'}', member).map(Document::Map)
            }
            b'[' => self.sequence(b']', |parser| parser.value(level + 1)).map(Document::List),
            b'"' => self.string().map(Document::Text),
            _ => {
                let rest = &self.text[self.at..];
                let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
                let literal = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
                self.at += literal.len();
                (!literal.is_empty()).then(|| Document::Literal(literal.to_owned()))
            }
        }
    }

    /// The items between an opening sign and `end`.
    fn sequence<T>(&mut self, end: u8, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        self.at += 1;
        let mut items = Vec::new();
        if self.peek()? == end {
            self.at += 1;
            return Some(items);
        }
        loop {
            items.push(item(self)?);
            if self.peek()? == end {
                self.at += 1;
                return Some(items);
            }
            self.take(b',')?;
        }
    }

    /// The text of a string without its quotes and escapes.
    fn string(&mut self) -> Option<String> {
        self.take(b'"')?;
        let begin = self.at;
        let bytes = self.text.as_bytes();
        let mut escapes = false;
        while *bytes.get(self.at)? != b'"' {
            let escape = bytes[self.at] == b'\\';
            escapes |= escape;
            self.at += 1 + usize::from(escape);
        }
        self.at += 1;
        if escapes {
            return serde_json::from_str(self.text.get(begin - 1..self.at)?).ok();
        }
        Some(self.text.get(begin..self.at - 1)?.to_owned())
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }
}

/// JSON without spaces.
impl Display for Document {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.write_str(&text)
    }
}

impl Document {
    /// Appends JSON without spaces.
    pub(super) fn write(&self, out: &mut String) {
        match self {
            Document::Literal(literal) => out.push_str(literal),
            Document::Text(text) => quoted(text, out),
            Document::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    item.write(out);
                }
                out.push(']');
            }
            Document::Map(members) => {
                out.push('{');
                for (i, (name, value)) in members.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    quoted(name, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

fn quoted(text: &str, out: &mut String) {
    if text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        out.push_str(&serde_json::Value::from(text).to_string());
    } else {
        out.push('"');
        out.push_str(text);
        out.push('"');
    }
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
