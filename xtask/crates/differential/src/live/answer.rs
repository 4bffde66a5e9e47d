//! Answers of the sides, and how two of them differ.

use crate::document::Document;

/// Headers whose value a client acts on.
const MEANINGFUL: [&str; 4] = ["content-type", "warning", "location", "content-encoding"];

/// The most differing places that a report lists.
pub(crate) const MOST: usize = 20;

/// An answer after the masks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Content,
}

/// A body or a stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Document(Document),
    /// Neither JSON nor Kubernetes' protobuf.
    Text(String),
    Absent,
}

/// A place at which two answers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// `status`, `header warning`, `body.spec.replicas`, `stored.2.3`, with `[*]` for indexes.
    pub(crate) place: String,
    pub(crate) left: String,
    pub(crate) right: String,
}

/// The meaningful headers; `retry-after` only by its presence, because the time depends on the load.
pub(crate) fn headers(all: &http::HeaderMap, mask: impl Fn(&str) -> String) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for name in MEANINGFUL {
        for value in all.get_all(name) {
            found.push((name.to_owned(), mask(&String::from_utf8_lossy(value.as_bytes()))));
        }
    }
    if all.contains_key("retry-after") {
        found.push(("retry-after".into(), "set".into()));
    }
    found
}

impl Answer {
    pub(crate) fn changes(&self, other: &Answer) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.status != other.status {
            changes.push(Change::new("status", self.status, other.status));
        }
        if self.headers != other.headers {
            let shown = |headers: &[(String, String)]| {
                headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("; ")
            };
            changes.push(Change::new("headers", shown(&self.headers), shown(&other.headers)));
        }
        changes.extend(self.body.changes("body", &other.body));
        changes
    }
}

impl Change {
    fn new(place: &str, left: impl ToString, right: impl ToString) -> Change {
        Change { place: place.to_owned(), left: left.to_string(), right: right.to_string() }
    }
}

impl Content {
    pub(crate) fn text(&self) -> String {
        match self {
            Content::Document(document) => document.to_string(),
            Content::Text(text) => text.clone(),
            Content::Absent => "absent".into(),
        }
    }

    /// The first differing places.
    fn changes(&self, place: &str, other: &Content) -> Vec<Change> {
        self.changes_within(place, other, MOST)
    }

    /// At most this number of differing places.
    pub(crate) fn changes_within(&self, place: &str, other: &Content, most: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        match (self, other) {
            (Content::Document(left), Content::Document(right)) => compare(place, left, right, most, &mut changes),
            (left, right) if left != right => changes.push(Change::new(place, left.text(), right.text())),
            _ => {}
        }
        changes
    }
}

fn compare(place: &str, left: &Document, right: &Document, most: usize, changes: &mut Vec<Change>) {
    if left == right || changes.len() >= most {
        return;
    }
    match (left, right) {
        (Document::Object(lefts), Document::Object(rights)) if same_keys(lefts, rights) => {
            for ((key, left), (_, right)) in lefts.iter().zip(rights) {
                compare(&format!("{place}.{key}"), left, right, most, changes);
            }
        }
        (Document::Object(lefts), Document::Object(rights)) => {
            let before = changes.len();
            for (key, value) in lefts {
                match right.member(key) {
                    Some(other) => compare(&format!("{place}.{key}"), value, other, most, changes),
                    None => changes.push(Change::new(&format!("{place}.{key}"), value, "absent")),
                }
            }
            for (key, value) in rights.iter().filter(|(key, _)| left.member(key).is_none()) {
                changes.push(Change::new(&format!("{place}.{key}"), "absent", value));
            }
            if changes.len() == before {
                changes.push(Change::new(&format!("{place} (order or duplicates of members)"), left, right));
            }
        }
        (Document::List(lefts), Document::List(rights)) if lefts.len() == rights.len() => {
            for (left, right) in lefts.iter().zip(rights) {
                compare(&format!("{place}[*]"), left, right, most, changes);
            }
        }
        _ => changes.push(Change::new(place, left, right)),
    }
}

fn same_keys(left: &[(String, Document)], right: &[(String, Document)]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|((left, _), (right, _))| left == right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(left: &str, right: &str) -> Vec<String> {
        let content = |text: &str| Content::Document(Document::parse(text).unwrap());
        let changes = content(left).changes("body", &content(right));
        changes.into_iter().map(|change| format!("{}: {} | {}", change.place, change.left, change.right)).collect()
    }

    #[test]
    fn changes_name_the_place() {
        assert_eq!(changes(r#"{"a":[{"b":1}]}"#, r#"{"a":[{"b":1.0}]}"#), ["body.a[*].b: 1 | 1.0"]);
        assert_eq!(changes(r#"{"a":1}"#, r#"{"b":1}"#), ["body.a: 1 | absent", "body.b: absent | 1"]);
        assert_eq!(changes("[1]", "[1,2]"), ["body: [1] | [1,2]"]);
        assert_eq!(changes(r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#), [""; 0]);
    }

    #[test]
    fn order_and_duplicates_are_compared() {
        assert_eq!(changes(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#).len(), 1);
        assert_eq!(changes(r#"{"a":1,"a":1}"#, r#"{"a":1}"#).len(), 1);
    }
}
