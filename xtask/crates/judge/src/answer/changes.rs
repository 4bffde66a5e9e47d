//! The places at which two documents differ.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

use super::document::Document;

/// Characters of a value that a message shows.
const SHOWN: usize = 200;

/// A place with different values. A side without the place has None.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `.spec.containers[0].name`
    path: String,
    left: Option<Document>,
    right: Option<Document>,
}

/// All places, in the order of the names of members.
pub fn changes(left: &Document, right: &Document) -> Vec<Change> {
    let mut found = Vec::new();
    compare(String::new(), Some(left), Some(right), &mut found);
    found
}

fn compare(path: String, left: Option<&Document>, right: Option<&Document>, found: &mut Vec<Change>) {
    match (left, right) {
        _ if left == right => {}
        (Some(Document::List(a)), Some(Document::List(b))) => {
            for i in 0..a.len().max(b.len()) {
                compare(format!("{path}[{i}]"), a.get(i), b.get(i), found);
            }
        }
        (Some(Document::Map(a)), Some(Document::Map(b))) if unique(a) && unique(b) => {
            let names: BTreeSet<&String> = a.iter().chain(b).map(|(name, _)| name).collect();
            for name in names {
                let of = |side: Option<&'_ Document>| side.and_then(|side| side.member(name)).cloned();
                let (left, right) = (of(left), of(right));
                compare(format!("{path}.{name}"), left.as_ref(), right.as_ref(), found);
            }
        }
        _ => found.push(Change { path, left: left.cloned(), right: right.cloned() }),
    }
}

fn unique(members: &[(String, Document)]) -> bool {
    members.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len() == members.len()
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let value = |value: &Option<Document>| match value.as_ref().map(Document::to_string) {
            Some(text) if text.chars().nth(SHOWN).is_some() => text.chars().take(SHOWN).chain(['…']).collect(),
            Some(text) => text,
            None => "absent".to_owned(),
        };
        let path = if self.path.is_empty() { "answer" } else { &self.path };
        write!(f, "{path}: {} / {}", value(&self.left), value(&self.right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_found() {
        let seen = |left, right| -> Vec<String> {
            let changes = changes(&Document::parse(left).unwrap(), &Document::parse(right).unwrap());
            changes.iter().map(ToString::to_string).collect()
        };
        assert_eq!(seen(r#"{"a":[1,2]}"#, r#"{"a":[1,2]}"#), [""; 0]);
        assert_eq!(seen(r#"{"a":[1,2],"b":1}"#, r#"{"a":[1]}"#), [".a[1]: 2 / absent", ".b: 1 / absent"]);
        assert_eq!(seen(r#"{"a":1,"a":2}"#, r#"{"a":1}"#), [r#"answer: {"a":1,"a":2} / {"a":1}"#]);
    }
}
