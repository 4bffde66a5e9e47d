//! Digests of API objects, straight from the JSON that a server sent: two objects have the same digest if they are the same
//! JSON except for their resource version. Whole runs are compared with them, so they cost one pass and no tree.
//!
//! Spelling counts where it is content: numbers as written, texts without their escapes. White space and the order of members
//! do not.
//!
//! Not here: what to compare with what (`sightings`), and the places at which two objects differ (`changes`).

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Deepest nesting; deeper objects have no digest.
const DEEPEST: usize = 400;

/// An object inside a larger document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub digest: u64,
    /// Its bytes in the document.
    pub range: Range<usize>,
}

/// The type of an item in a list, which the items of most lists do not say themselves.
#[derive(Clone, Copy, Debug)]
pub struct TypeMeta<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
}

/// The digest of a whole document that is one object; None if it is not JSON.
pub fn of_object(text: &[u8]) -> Option<u64> {
    let mut scanner = Scanner::new(text);
    let digest = scanner.value(Place::Object, 0)?;
    scanner.peek().is_none().then_some(digest)
}

/// The object of a watch event; None if there is none.
pub fn of_event(line: &[u8]) -> Option<Part> {
    let mut scanner = Scanner::new(line);
    let mut found = None;
    scanner.outer(b"object", |scanner| {
        found = Some(scanner.part(None)?);
        Some(())
    })?;
    found
}

/// The items of a list in their order; None if it is not JSON. An item without a type gets the given one.
pub fn of_items(list: &[u8], of: TypeMeta<'_>) -> Option<Vec<Part>> {
    let mut scanner = Scanner::new(list);
    let mut items = Vec::new();
    scanner.outer(b"items", |scanner| {
        if scanner.peek()? != b'[' {
            return scanner.value(Place::Inner, 1).map(drop);
        }
        scanner.at += 1;
        while scanner.peek()? != b']' {
            items.push(scanner.part(Some(of))?);
        }
        scanner.at += 1;
        Some(())
    })?;
    Some(items)
}

/// Kinds of values, so that `1` and `"1"` differ.
#[derive(Clone, Copy)]
enum Tag {
    Object = 1,
    List,
    Text,
    Literal,
}

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The object itself.
    Object,
    /// Its `metadata`.
    Metadata,
    Inner,
}

/// Reads JSON that is valid, and most that is not: an observation is judged by its fields elsewhere.
struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// Digests of members and items of the values around the current one.
    stack: Vec<[u64; 2]>,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a [u8]) -> Scanner<'a> {
        Scanner { text, at: 0, stack: Vec::new() }
    }

    /// Calls `found` at the value of the member `name` of the outermost object, and skips the other members.
    fn outer(&mut self, name: &[u8], mut found: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        if self.peek()? != b'{' {
            return None;
        }
        self.at += 1;
        while self.peek()? != b'}' {
            if self.string()? == name {
                self.peek()?;
                found(self)?;
            } else {
                self.value(Place::Inner, 1)?;
            }
        }
        Some(())
    }

    /// The object that begins here.
    fn part(&mut self, of: Option<TypeMeta<'_>>) -> Option<Part> {
        self.peek()?;
        let begin = self.at;
        let digest = self.object(Place::Object, 1, of)?;
        Some(Part { digest, range: begin..self.at })
    }

    fn value(&mut self, place: Place, depth: usize) -> Option<u64> {
        if depth > DEEPEST {
            return None;
        }
        match self.peek()? {
            b'{' => self.object(place, depth, None),
            b'[' => self.list(depth),
            b'"' => Some(text_digest(self.string()?)),
            _ => Some(hash(Tag::Literal, self.literal()?)),
        }
    }

    fn object(&mut self, place: Place, depth: usize, of: Option<TypeMeta<'_>>) -> Option<u64> {
        if self.peek()? != b'{' {
            return self.value(Place::Inner, depth);
        }
        self.at += 1;
        let first = self.stack.len();
        let (mut has_version, mut has_kind) = (false, false);
        while self.peek()? != b'}' {
            let name = self.string()?;
            let inner = if place == Place::Object && name == b"metadata" { Place::Metadata } else { Place::Inner };
            let digest = self.value(inner, depth + 1)?;
            has_version |= name == b"apiVersion";
            has_kind |= name == b"kind";
            if place != Place::Metadata || name != b"resourceVersion" {
                self.stack.push([text_digest(name), digest]);
            }
        }
        self.at += 1;
        if let Some(TypeMeta { api_version, kind }) = of {
            let missing = [(has_version, "apiVersion", api_version), (has_kind, "kind", kind)];
            let missing = missing.iter().filter(|(has, ..)| !has);
            let digests = missing.map(|(_, name, value)| [text_digest(name.as_bytes()), text_digest(value.as_bytes())]);
            self.stack.extend(digests);
        }
        self.stack[first..].sort_unstable();
        Some(self.fold(Tag::Object, first))
    }

    fn list(&mut self, depth: usize) -> Option<u64> {
        self.at += 1;
        let first = self.stack.len();
        while self.peek()? != b']' {
            let digest = self.value(Place::Inner, depth + 1)?;
            self.stack.push([0, digest]);
        }
        self.at += 1;
        Some(self.fold(Tag::List, first))
    }

    /// The digest of the values on the stack from `first` on, which it removes.
    fn fold(&mut self, tag: Tag, first: usize) -> u64 {
        self.stack.drain(first..).fold(tag as u64, |digest, [name, value]| {
            let mut pair = [0; 16];
            pair[..8].copy_from_slice(&name.to_le_bytes());
            pair[8..].copy_from_slice(&value.to_le_bytes());
            xxh3_64_with_seed(&pair, digest)
        })
    }

    /// A text without its quotes, with its escapes.
    fn string(&mut self) -> Option<&'a [u8]> {
        if self.peek()? != b'"' {
            return None;
        }
        let begin = self.at + 1;
        let mut end = begin;
        loop {
            match self.text.get(end)? {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        self.at = end + 1;
        self.text.get(begin..end)
    }

    /// A number, `true`, `false` or `null`.
    fn literal(&mut self) -> Option<&'a [u8]> {
        let rest = &self.text[self.at..];
        let is_end =
            |byte: &u8| matches!(byte, b',' | b':' | b']' | b'}' | b'"' | b'[' | b'{') || byte.is_ascii_whitespace();
        let length = rest.iter().position(is_end).unwrap_or(rest.len());
        self.at += length;
        (length > 0).then(|| &rest[..length])
    }

    /// The next byte that is neither white space nor a separator: in valid JSON, separators carry no information.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' | b',' | b':' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }
}

/// The same for all spellings of a text.
fn text_digest(spelled: &[u8]) -> u64 {
    if !spelled.contains(&b'\\') {
        return hash(Tag::Text, spelled);
    }
    let quoted = [b"\"", spelled, b"\""].concat();
    let decoded = serde_json::from_slice::<String>(&quoted);
    decoded.map_or_else(|_| hash(Tag::Text, spelled), |text| hash(Tag::Text, text.as_bytes()))
}

fn hash(tag: Tag, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, tag as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str = r#"{"apiVersion":"v1","data":{"a":"é\n<","b":"2"},"kind":"ConfigMap","metadata":{"labels":{"l":"x"},"name":"n","resourceVersion":"7"},"n":[1,9007199254740993,1.0,true,null,{}],"o":{"p":{},"q":{"r":1}}}"#;

    fn digest(text: &str) -> u64 {
        of_object(text.as_bytes()).unwrap()
    }

    #[test]
    fn spelling_order_and_resource_version_do_not_count() {
        let same = [
            OBJECT.replace(',', " ,\n").replace(':', " : "),
            OBJECT.replace("é\\n<", "\\u00e9\\u000a\\u003c"),
            OBJECT.replace(r#""a":"é\n<","b":"2""#, r#""b":"2","a":"é\n<""#),
            OBJECT.replace(r#""resourceVersion":"7""#, r#""resourceVersion":"12""#),
            OBJECT.replace(r#","resourceVersion":"7""#, ""),
        ];
        for text in same {
            assert_ne!(text, OBJECT);
            assert_eq!(digest(&text), digest(OBJECT), "{text}");
        }
    }

    #[test]
    fn each_change_of_content_counts() {
        let changes = [
            ("9007199254740993", "9007199254740992"),
            ("1.0", "1"),
            ("é", "e\u{301}"),
            (r#""l":"x""#, ""),
            (r#""b":"2""#, r#""b":2"#),
            ("null", ""),
            ("true,null", "null,true"),
            (r#""p":{},"q":{"r":1}"#, r#""p":{"r":1},"q":{}"#),
            ("{}]", "[]]"),
            (r#""name":"n""#, r#""name":"m""#),
            (r#""data":{"#, r#""data":{"resourceVersion":"7","#),
        ];
        for (from, to) in changes {
            let text = OBJECT.replacen(from, to, 1);
            assert_ne!(text, OBJECT, "{from}");
            assert_ne!(digest(&text), digest(OBJECT), "{from} to {to}");
        }
    }

    #[test]
    fn items_and_events_have_the_digest_of_their_object() {
        let event = format!(r#"{{"type":"ADDED","object":{OBJECT}}}"#);
        let part = of_event(event.as_bytes()).unwrap();
        assert_eq!((part.digest, &event[part.range]), (digest(OBJECT), OBJECT));
        let item = OBJECT.replace(r#""apiVersion":"v1","#, "").replace(r#","kind":"ConfigMap""#, "");
        let list = format!(r#"{{"metadata":{{"items":[1]}},"items":[{item}, {OBJECT}],"kind":"ConfigMapList"}}"#);
        let of = |kind| of_items(list.as_bytes(), TypeMeta { api_version: "v1", kind }).unwrap();
        let parts = of("ConfigMap");
        assert_eq!(parts.iter().map(|part| part.digest).collect::<Vec<_>>(), [digest(OBJECT); 2]);
        assert_eq!(&list[parts[0].range.clone()], item);
        assert_ne!(of("Secret")[0].digest, digest(OBJECT));
        assert_eq!(of_items(br#"{"items":null}"#, TypeMeta { api_version: "v1", kind: "A" }), Some(Vec::new()));
    }

    #[test]
    fn broken_and_deep_documents_have_no_digest() {
        let deep = format!("{}{}", "[".repeat(DEEPEST + 2), "]".repeat(DEEPEST + 2));
        for text in ["", "{", "{\"a\"", "{\"a\":", "[1", "\"", "\"\\", "{}x", "}", "{\"a\"}", &deep] {
            assert_eq!(of_object(text.as_bytes()), None, "{text}");
        }
        assert_eq!(of_event(br#"{"type":"ADDED"}"#), None);
    }
}
