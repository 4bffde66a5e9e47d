//! The places at which two documents differ.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::document::Document;

/// Two documents that differ in more places are different as a whole.
const MOST: usize = 50;
/// Characters of a value that messages show.
const SHOWN: usize = 200;

/// A place with different values. A side without the place has None.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// `.spec.containers[0].name`; empty for the whole document.
    pub path: String,
    #[serde(serialize_with = "as_text")]
    pub left: Option<Document>,
    #[serde(serialize_with = "as_text")]
    pub right: Option<Document>,
}

impl Change {
    /// The path without indexes, and the kinds of both values: `.items[*].size number/absent`.
    pub fn shape(&self) -> String {
        let kind = |value: &Option<Document>| value.as_ref().map_or("absent", Document::kind);
        let (left, right) = (kind(&self.left), kind(&self.right));
        let kinds = if left == right { left.to_owned() } else { format!("{left}/{right}") };
        let path = without_indexes(&self.path);
        if path.is_empty() { kinds } else { format!("{path} {kinds}") }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: &Option<Document>| value.as_ref().map_or_else(|| "absent".to_owned(), shortened);
        let path = if self.path.is_empty() { "answer" } else { self.path.as_str() };
        write!(f, "{path}: {} / {}", value(&self.left), value(&self.right))
    }
}

fn as_text<S: serde::Serializer>(value: &Option<Document>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(Document::to_string).serialize(serializer)
}

/// The beginning of a document's text.
pub fn shortened(document: &Document) -> String {
    let text = document.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

fn without_indexes(path: &str) -> String {
    let mut shape = String::new();
    for (i, part) in path.split('[').enumerate() {
        match part.split_once(']') {
            Some((index, rest)) if i > 0 && index.bytes().all(|b| b.is_ascii_digit()) => {
                shape.push_str("[*]");
                shape.push_str(rest);
            }
            _ => {
                shape.push_str(if i > 0 { "[" } else { "" });
                shape.push_str(part);
            }
        }
    }
    shape
}

/// All differences in the order of the left document; one for the whole document if there are more than 50.
pub fn changes(left: &Document, right: &Document) -> Vec<Change> {
    let found = first_changes(left, right, MOST + 1);
    if found.len() > MOST {
        let (left, right) = (Some(left.clone()), Some(right.clone()));
        return vec![Change { path: String::new(), left, right }];
    }
    found
}

/// At most this number of differences, in the order of the left document.
pub fn first_changes(left: &Document, right: &Document, most: usize) -> Vec<Change> {
    let mut found = Vec::new();
    compare("", Some(left), Some(right), most, &mut found);
    found
}

/// The shapes of changes, sorted and without repetition.
pub fn shapes(changes: &[Change]) -> BTreeSet<String> {
    changes.iter().map(Change::shape).collect()
}

fn compare(path: &str, left: Option<&Document>, right: Option<&Document>, most: usize, found: &mut Vec<Change>) {
    if found.len() >= most || left == right {
        return;
    }
    match (left, right) {
        (Some(Document::Object(a)), Some(Document::Object(b))) if names(a) == names(b) => {
            // Also pairs duplicates: both sides have the same names in the same order.
            for ((name, left), (_, right)) in a.iter().zip(b) {
                compare(&format!("{path}.{name}"), Some(left), Some(right), most, found);
            }
        }
        (Some(Document::Object(a)), Some(Document::Object(b))) if unique(a) && unique(b) => {
            let all: BTreeSet<&str> = names(a).into_iter().chain(names(b)).collect();
            if all.len() == a.len() && all.len() == b.len() {
                // Only the order differs, or the order too.
                found.push(Change { path: path.to_owned(), left: left.cloned(), right: right.cloned() });
                return;
            }
            let of = |members: &[(String, Document)], name: &str| {
                members.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
            };
            for name in all {
                let (left, right) = (of(a, name), of(b, name));
                compare(&format!("{path}.{name}"), left.as_ref(), right.as_ref(), most, found);
            }
        }
        (Some(Document::List(a)), Some(Document::List(b))) => {
            for i in 0..a.len().max(b.len()) {
                compare(&format!("{path}[{i}]"), a.get(i), b.get(i), most, found);
            }
        }
        _ => found.push(Change { path: path.to_owned(), left: left.cloned(), right: right.cloned() }),
    }
}

fn names(members: &[(String, Document)]) -> Vec<&str> {
    members.iter().map(|(name, _)| name.as_str()).collect()
}

fn unique(members: &[(String, Document)]) -> bool {
    names(members).into_iter().collect::<BTreeSet<_>>().len() == members.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(left: &str, right: &str) -> Vec<String> {
        let changes = changes(&Document::parse(left).unwrap(), &Document::parse(right).unwrap());
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_differing_place_is_found() {
        assert_eq!(seen(r#"{"a":1,"b":[1,2]}"#, r#"{"a":1,"b":[1,2]}"#), [""; 0]);
        assert_eq!(seen(r#"{"a":1,"b":[1,2]}"#, r#"{"a":1.0,"b":[1]}"#), [".a: 1 / 1.0", ".b[1]: 2 / absent"]);
        assert_eq!(seen(r#"{"a":1}"#, r#"{"b":1}"#), [".a: 1 / absent", ".b: absent / 1"]);
        assert_eq!(seen(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#), [r#"answer: {"a":1,"b":2} / {"b":2,"a":1}"#]);
        assert_eq!(seen(r#"{"a":1,"a":2}"#, r#"{"a":1,"a":3}"#), [".a: 2 / 3"]);
        assert_eq!(seen(r#"{"a":1,"a":2}"#, r#"{"a":1}"#), [r#"answer: {"a":1,"a":2} / {"a":1}"#]);
        assert_eq!(seen(r#"{"a":[1,2],"b":1}"#, r#"{"a":[1]}"#), [".a[1]: 2 / absent", ".b: 1 / absent"]);
    }

    #[test]
    fn many_changes_are_one_of_the_whole_document() {
        let documents = ["1", "2"].map(|item| Document::parse(&format!("[{}{item}]", format!("{item},").repeat(60))));
        let [left, right] = documents.map(Result::unwrap);
        assert_eq!(first_changes(&left, &right, usize::MAX).len(), 61);
        assert_eq!(changes(&left, &right), [Change { path: String::new(), left: Some(left), right: Some(right) }]);
    }

    #[test]
    fn shape_has_no_indexes_and_no_values() {
        let change = Change { path: ".a[12].b".into(), left: Some(Document::Number("1".into())), right: None };
        assert_eq!(change.shape(), ".a[*].b number/absent");
        assert_eq!(without_indexes("[0].a[x].b[]"), "[*].a[x].b[*]");
    }
}
