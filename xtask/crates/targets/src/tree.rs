//! A YAML document as a tree that keeps details which a typed parser drops: duplicate keys and the position of every
//! node.
//!
//! The YAML library reports a position only inside an error. So nodes are numbered in text order, and [`position`]
//! parses the text again and fails on purpose at the requested number.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// A key or a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// Number in text order; the root is 0.
    pub(crate) id: usize,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    /// A number that is not an integer or is below zero.
    OtherNumber(String),
    Text(String),
    List(Vec<Node>),
    /// Keys and values in text order, including duplicates.
    Mapping(Vec<(Node, Node)>),
}

/// A step from a node to one below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// Line and column, both from 1.
pub(crate) type Position = (usize, usize);

/// The tree of one document, or the YAML library's error and its position.
pub(crate) fn parse(text: &str) -> Result<Node, (Position, String)> {
    build(text, None).map_err(|error| {
        let (line, column) = place(&error);
        // The position precedes the problem.
        let again = format!(" at line {line} column {column}");
        ((line, column), error.to_string().replacen(&again, "", 1))
    })
}

/// The position of the node with this number.
pub(crate) fn position(text: &str, id: usize) -> Position {
    build(text, Some(id)).map_or_else(|error| place(&error), |_| (1, 1))
}

fn place(error: &serde_yaml::Error) -> Position {
    error.location().map_or((1, 1), |at| (at.line(), at.column()))
}

impl Node {
    /// The value of a key; the first one if the key occurs several times.
    pub(crate) fn get(&self, step: &Step) -> Option<&Node> {
        match (&self.value, step) {
            (Value::List(items), Step::Index(index)) => items.get(*index),
            (Value::Mapping(entries), Step::Key(name)) => {
                entries.iter().find(|(key, _)| key.text() == Some(name)).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The path to the node with this number. A key is found under its own name.
    pub(crate) fn path_to(&self, id: usize) -> Option<Vec<Step>> {
        if self.id == id {
            return Some(Vec::new());
        }
        let mut below: Box<dyn Iterator<Item = (Step, bool, &Node)> + '_> = match &self.value {
            Value::List(items) => Box::new(items.iter().enumerate().map(|(i, node)| (Step::Index(i), false, node))),
            Value::Mapping(entries) => Box::new(entries.iter().map(|(key, value)| {
                let name = key.text().map_or_else(|| key.to_string(), str::to_owned);
                (Step::Key(name), key.id == id, value)
            })),
            _ => return None,
        };
        below.find_map(|(step, is_key, node)| {
            let rest = if is_key { Vec::new() } else { node.path_to(id)? };
            Some(std::iter::once(step).chain(rest).collect())
        })
    }
}

/// The node in words, for "found ...".
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::Null => f.write_str("nothing"),
            Value::Bool(value) => write!(f, "the truth value {value}"),
            Value::Unsigned(number) => write!(f, "the number {number}"),
            Value::OtherNumber(number) => write!(f, "the number {number}"),
            Value::Text(text) => write!(f, "the text {text:?}"),
            Value::List(_) => f.write_str("a list"),
            Value::Mapping(_) => f.write_str("a mapping"),
        }
    }
}

/// `sets[0].components[1].package`; keys that would be ambiguous are in brackets and quotes.
pub(crate) fn path_text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Index(index) => text.push_str(&format!("[{index}]")),
            Step::Key(name) if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Key(name) => text.push_str(&format!("[{name:?}]")),
        }
    }
    text
}

fn build(text: &str, stop_at: Option<usize>) -> Result<Node, serde_yaml::Error> {
    let next = Cell::new(0);
    Builder { next: &next, stop_at }.deserialize(serde_yaml::Deserializer::from_str(text))
}

#[derive(Clone, Copy)]
struct Builder<'a> {
    next: &'a Cell<usize>,
    stop_at: Option<usize>,
}

impl<'de> DeserializeSeed<'de> for Builder<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        let id = self.next.get();
        self.next.set(id + 1);
        if self.stop_at == Some(id) {
            return deserializer.deserialize_any(Planted);
        }
        deserializer.deserialize_any(self).map(|value| Node { id, value })
    }
}

/// Accepts nothing, so that the library reports an error with a position.
struct Planted;

impl Visitor<'_> for Planted {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing at all")
    }
}

impl<'de> Visitor<'de> for Builder<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("plain YAML without tags")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    /// An empty document.
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(u64::try_from(number).map_or_else(|_| Value::OtherNumber(number.to_string()), Value::Unsigned))
    }

    fn visit_u128<E>(self, number: u128) -> Result<Value, E> {
        Ok(Value::OtherNumber(number.to_string()))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Value, E> {
        Ok(Value::OtherNumber(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::OtherNumber(format!("{number:?}")))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key_seed(self)? {
            entries.push((key, access.next_value_seed(self)?));
        }
        Ok(Value::Mapping(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a: 1\nb:\n  - x\n  - c: [y, {d: z}]\nb: again\n";

    /// Key and value of every node, with its position, in text order.
    #[test]
    fn every_node_has_its_position() {
        let root = parse(TEXT).unwrap();
        let places: Vec<_> = (0..14).map(|id| (path_text(&root.path_to(id).unwrap()), position(TEXT, id))).collect();
        let expected = [
            ("", 1, 1),
            ("a", 1, 1),
            ("a", 1, 4),
            ("b", 2, 1),
            ("b", 3, 3),
            ("b[0]", 3, 5),
            ("b[1]", 4, 5),
            ("b[1].c", 4, 5),
            ("b[1].c", 4, 8),
            ("b[1].c[0]", 4, 9),
            ("b[1].c[1]", 4, 12),
            ("b[1].c[1].d", 4, 13),
            ("b[1].c[1].d", 4, 16),
            ("b", 5, 1),
        ];
        assert_eq!(places, expected.map(|(path, line, column)| (path.to_owned(), (line, column))));
    }

    #[test]
    fn invalid_yaml_is_refused_with_its_position() {
        for (text, line, column, expected) in [
            ("a: [1\nb: 2\n", 2, 2, "did not find expected ',' or ']', while parsing a flow sequence"),
            ("a: b: c\n", 1, 5, "mapping values are not allowed in this context"),
            ("a: *nowhere\n", 1, 4, "unknown anchor"),
            ("a: !secret x\n", 1, 4, "a: invalid type: enum, expected plain YAML without tags"),
            ("a: 1\n---\na: 2\n", 1, 1, "more than one document"),
        ] {
            let (at, reason) = parse(text).unwrap_err();
            assert!(reason.contains(expected), "{text:?}: {reason}");
            assert_eq!(at, (line, column), "{text:?}");
        }
    }
}
