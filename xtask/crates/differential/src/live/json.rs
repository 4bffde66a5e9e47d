//! JSON documents without loss: numbers keep their text, members keep their order, and duplicate members stay.

use std::fmt::{self, Display, Formatter, Write};

/// The deepest nesting that the parser accepts. Deeper documents are compared as text.
const DEEPEST: usize = 600;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Document {
    Null,
    Bool(bool),
    /// The literal as it was written. A generator may use any literal here, also one that is not a number.
    Number(String),
    Text(String),
    List(Vec<Document>),
    Object(Vec<(String, Document)>),
}

/// The position and the reason of the first error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not JSON at byte {at}: {reason}")]
pub(crate) struct Malformed {
    at: usize,
    reason: &'static str,
}

impl Document {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Document, Malformed> {
        let mut parser = Parser { bytes, at: 0 };
        let document = parser.value(0)?;
        parser.space();
        if parser.at < bytes.len() { Err(parser.error("more bytes follow the value")) } else { Ok(document) }
    }

    pub(crate) fn text(text: impl Into<String>) -> Document {
        Document::Text(text.into())
    }

    /// An object of these members.
    pub(crate) fn object<K: Into<String>>(members: impl IntoIterator<Item = (K, Document)>) -> Document {
        Document::Object(members.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// The last member with this key: readers that accept duplicates take the last one.
    pub(crate) fn get(&self, key: &str) -> Option<&Document> {
        let Document::Object(members) = self else { return None };
        members.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Document> {
        let Document::Object(members) = self else { return None };
        members.iter_mut().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The value at the end of a chain of members.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Document> {
        path.iter().try_fold(self, |inner, key| inner.get(key))
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Document::Text(text) = self { Some(text) } else { None }
    }

    /// Replaces the member, or adds it at the end. A value that is not an object becomes one.
    pub(crate) fn set(&mut self, key: &str, value: Document) {
        if !matches!(self, Document::Object(_)) {
            *self = Document::Object(Vec::new());
        }
        if let Some(old) = self.get_mut(key) {
            *old = value;
        } else if let Document::Object(members) = self {
            members.push((key.to_owned(), value));
        }
    }

    /// How many values it contains, itself included.
    pub(crate) fn size(&self) -> usize {
        match self {
            Document::List(items) => 1 + items.iter().map(Document::size).sum::<usize>(),
            Document::Object(members) => 1 + members.iter().map(|(_, value)| value.size()).sum::<usize>(),
            _ => 1,
        }
    }
}

impl Display for Document {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Document::Null => f.write_str("null"),
            Document::Bool(value) => write!(f, "{value}"),
            Document::Number(literal) => f.write_str(literal),
            Document::Text(text) => quoted(f, text),
            Document::List(items) => {
                f.write_char('[')?;
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        f.write_char(',')?;
                    }
                    item.fmt(f)?;
                }
                f.write_char(']')
            }
            Document::Object(members) => {
                f.write_char('{')?;
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        f.write_char(',')?;
                    }
                    quoted(f, key)?;
                    f.write_char(':')?;
                    value.fmt(f)?;
                }
                f.write_char('}')
            }
        }
    }
}

fn quoted(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            c if u32::from(c) < 0x20 => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn error(&self, reason: &'static str) -> Malformed {
        Malformed { at: self.at, reason }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Consumes this byte if it is next.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<Document, Malformed> {
        if depth > DEEPEST {
            return Err(self.error("too deep"));
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Document::Text),
            Some(b'-' | b'0'..=b'9') => Ok(self.number()),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<Document, Malformed> {
        let words = [("null", Document::Null), ("true", Document::Bool(true)), ("false", Document::Bool(false))];
        for (word, value) in words {
            if self.bytes[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.error("no value"))
    }

    fn number(&mut self) -> Document {
        let begin = self.at;
        while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.at += 1;
        }
        Document::Number(String::from_utf8_lossy(&self.bytes[begin..self.at]).into_owned())
    }

    fn list(&mut self, depth: usize) -> Result<Document, Malformed> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.space();
            if items.is_empty() && self.take(b']') {
                return Ok(Document::List(items));
            }
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take(b']') {
                return Ok(Document::List(items));
            }
            if !self.take(b',') {
                return Err(self.error("no comma in a list"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Document, Malformed> {
        self.at += 1;
        let mut members = Vec::new();
        loop {
            self.space();
            if members.is_empty() && self.take(b'}') {
                return Ok(Document::Object(members));
            }
            if self.peek() != Some(b'"') {
                return Err(self.error("no key"));
            }
            let key = self.string()?;
            self.space();
            if !self.take(b':') {
                return Err(self.error("no colon after a key"));
            }
            members.push((key, self.value(depth + 1)?));
            self.space();
            if self.take(b'}') {
                return Ok(Document::Object(members));
            }
            if !self.take(b',') {
                return Err(self.error("no comma in an object"));
            }
        }
    }

    /// Replaces what is not UTF-8, and a surrogate without its other half, by U+FFFD.
    fn string(&mut self) -> Result<String, Malformed> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            match self.peek() {
                None => return Err(self.error("a string has no end")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(String::from_utf8_lossy(&text).into_owned());
                }
                Some(b'\\') => {
                    let c = self.escape()?;
                    text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(byte) => {
                    self.at += 1;
                    text.push(byte);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, Malformed> {
        self.at += 1;
        let kind = self.peek().ok_or_else(|| self.error("an escape has no end"))?;
        self.at += 1;
        Ok(match kind {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'"' | b'\\' | b'/' => char::from(kind),
            b'u' => return self.unicode(),
            _ => return Err(self.error("an unknown escape")),
        })
    }

    fn unicode(&mut self) -> Result<char, Malformed> {
        let first = self.hex()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let before = self.at;
        if self.bytes[self.at..].starts_with(b"\\u") {
            self.at += 2;
            let second = self.hex()?;
            if (0xdc00..0xe000).contains(&second) {
                let joined = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        self.at = before;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex(&mut self) -> Result<u32, Malformed> {
        let digits = self.bytes.get(self.at..self.at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let value = value.ok_or_else(|| self.error("four hexadecimal digits are missing"))?;
        self.at += 4;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_keeps_literals_order_and_duplicates() {
        for text in [
            r#"{"b":1e30,"a":[1.0,-0,18446744073709551616],"b":null}"#,
            r#"{"text":"é\u0001\n\"\\","empty":{},"list":[],"yes":true}"#,
        ] {
            assert_eq!(Document::parse(text.as_bytes()).unwrap().to_string(), text);
        }
        let document = Document::parse(br#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(document.get("a"), Some(&Document::Number("2".into())));
    }

    #[test]
    fn malformed_documents_are_refused() {
        for text in ["", "{", "[1", "[1,]", "{\"a\"}", "{\"a\":1,}", "\"\\x\"", "1 2", "\"\\u12\"", "nul"] {
            assert!(Document::parse(text.as_bytes()).is_err(), "{text}");
        }
        let deep = "[".repeat(DEEPEST + 2);
        assert_eq!(Document::parse(deep.as_bytes()).unwrap_err().reason, "too deep");
    }

    #[test]
    fn surrogates_without_their_half_become_replacement_characters() {
        let document = Document::parse(br#""\ud83d\ude00 \ud800 \ud800\u0041""#).unwrap();
        assert_eq!(document, Document::text("\u{1f600} \u{fffd} \u{fffd}A"));
    }
}
