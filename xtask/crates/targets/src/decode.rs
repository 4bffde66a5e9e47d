//! Decodes a tree into a typed value, and reports every problem, not only the first.
//!
//! The types in `model` define which fields exist, which are required, and the type of each; other keys are refused
//! here. For each violation, the decoder notes the problem, replaces the faulty node with a blank that is accepted as any type, and starts again. A
//! value that needed a blank is never returned.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use crate::nearest::nearest;
use crate::tree::{Node, Value};

/// A problem of one node, and the end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{rule}")]
pub(crate) struct Fault {
    /// The number of the node; None for the root.
    pub(crate) at: Option<usize>,
    /// The key that is missing.
    pub(crate) missing: Option<&'static str>,
    pub(crate) rule: String,
}

/// The value in the tree, or all of its problems.
pub(crate) fn decode<T: DeserializeOwned>(root: &Node) -> Result<T, BTreeSet<Fault>> {
    let state = State::default();
    loop {
        match T::deserialize(At::node(root, &state)) {
            Ok(value) if state.faults.borrow().is_empty() => return Ok(value),
            Ok(_) => return Err(state.faults.into_inner()),
            Err(fault) => {
                let at = fault.at.unwrap_or(root.id);
                let is_new = match fault.missing {
                    Some(name) => state.missing.borrow_mut().insert((at, name)),
                    None => state.blank.borrow_mut().insert(at),
                };
                state.faults.borrow_mut().insert(fault);
                if !is_new {
                    return Err(state.faults.into_inner());
                }
            }
        }
    }
}

#[derive(Default)]
struct State {
    faults: RefCell<BTreeSet<Fault>>,
    /// Nodes that were found faulty and are accepted as any type since.
    blank: RefCell<BTreeSet<usize>>,
    /// Required keys that were found missing and count as present and blank since.
    missing: RefCell<BTreeSet<(usize, &'static str)>>,
}

impl State {
    fn note(&self, at: usize, rule: String) {
        self.faults.borrow_mut().insert(Fault { at: Some(at), missing: None, rule });
    }
}

impl serde::de::Error for Fault {
    fn custom<T: std::fmt::Display>(rule: T) -> Self {
        Fault { at: None, missing: None, rule: rule.to_string() }
    }

    fn missing_field(name: &'static str) -> Self {
        Fault { at: None, missing: Some(name), rule: "required, but missing".into() }
    }
}

/// A node of the tree, or a blank.
#[derive(Clone, Copy)]
struct At<'a> {
    node: Option<&'a Node>,
    state: &'a State,
}

impl<'a> At<'a> {
    fn node(node: &'a Node, state: &'a State) -> Self {
        let is_blank = state.blank.borrow().contains(&node.id);
        At { node: (!is_blank).then_some(node), state }
    }

    fn blank(state: &'a State) -> Self {
        At { node: None, state }
    }

    fn expected<T>(self, wanted: &str) -> Result<T, Fault> {
        let node = self.node.expect("a blank is accepted as any type");
        let hint = match (&node.value, wanted) {
            (Value::Null, _) => "; give a value or delete the line",
            (Value::Bool(_) | Value::Unsigned(_) | Value::OtherNumber(_), "text") => "; put it in quotes",
            _ => "",
        };
        Err(Fault { at: Some(node.id), missing: None, rule: format!("expected {wanted}, found {node}{hint}") })
    }

    fn number<'de, V: Visitor<'de>>(self, visitor: V, max: u64) -> Result<V::Value, Fault> {
        match self.node.map(|node| &node.value) {
            None => visitor.visit_u64(0),
            Some(Value::Unsigned(number)) if *number <= max => visitor.visit_u64(*number),
            Some(_) => self.expected(&format!("a whole number from 0 to {max}")),
        }
    }

    /// Entries with text keys, each key once. With `fields`, only those keys.
    fn entries(self, node: &'a Node, entries: &'a [(Node, Node)], fields: Option<&[&str]>) -> Vec<(&'a str, At<'a>)> {
        let mut seen: Vec<(&str, At<'_>)> = Vec::new();
        for (key, value) in entries {
            let Some(name) = key.text() else {
                self.state.note(key.id, format!("expected text as key, found {key}; put it in quotes"));
                continue;
            };
            if name == "<<" {
                self.state.note(key.id, "merge keys are not used here; write the entries out".into());
            } else if let Some(fields) = fields.filter(|fields| !fields.contains(&name)) {
                self.state.note(key.id, unknown_key(name, fields));
            } else if seen.iter().any(|(earlier, _)| *earlier == name) {
                self.state.note(key.id, "given twice; delete one of the two".into());
            } else {
                seen.push((name, At::node(value, self.state)));
            }
        }
        let missing = self.state.missing.borrow();
        let added = missing.iter().filter(|(at, _)| *at == node.id).map(|(_, name)| (*name, At::blank(self.state)));
        seen.extend(added);
        seen
    }

    fn mapping<'de, V: Visitor<'de>>(
        self,
        visitor: V,
        fields: Option<&'static [&'static str]>,
    ) -> Result<V::Value, Fault> {
        let Some(node) = self.node else {
            let all = fields.unwrap_or_default().iter().map(|name| (*name, self)).collect();
            return visitor.visit_map(Entries::new(all));
        };
        let Value::Mapping(entries) = &node.value else { return self.expected("a mapping") };
        let access = Entries::new(self.entries(node, entries, fields));
        visitor.visit_map(access).map_err(|fault| Fault { at: fault.at.or(Some(node.id)), ..fault })
    }
}

fn unknown_key(name: &str, fields: &[&str]) -> String {
    match nearest(name, fields.iter().copied()) {
        Some(meant) => format!("unknown key; did you mean `{meant}`?"),
        None => format!("unknown key; valid here: {}", fields.join(", ")),
    }
}

impl<'de> Deserializer<'de> for At<'_> {
    type Error = Fault;

    /// For values of any type, such as a Kubernetes object.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.node.map(|node| &node.value) {
            None => visitor.visit_unit(),
            Some(Value::Bool(_)) => self.deserialize_bool(visitor),
            Some(Value::Unsigned(_)) => self.deserialize_u64(visitor),
            Some(Value::Text(_)) => self.deserialize_str(visitor),
            Some(Value::List(_)) => self.deserialize_seq(visitor),
            Some(Value::Mapping(_)) => self.deserialize_map(visitor),
            Some(Value::Null | Value::OtherNumber(_)) => self.expected("text, a whole number, a list or a mapping"),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.node.map(|node| &node.value) {
            None => visitor.visit_bool(false),
            Some(Value::Bool(value)) => visitor.visit_bool(*value),
            Some(_) => self.expected("true or false"),
        }
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor, u8::MAX.into())
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor, u16::MAX.into())
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor, u32::MAX.into())
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor, u64::MAX)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.node.map(|node| &node.value) {
            None => visitor.visit_str(""),
            Some(Value::Text(text)) => visitor.visit_str(text),
            Some(_) => self.expected("text"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    /// A key without a value is treated as a mistake, not as "none".
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.node.is_none() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.node.map(|node| &node.value) {
            None => visitor.visit_seq(Items { state: self.state, rest: [].iter() }),
            Some(Value::List(items)) => visitor.visit_seq(Items { state: self.state, rest: items.iter() }),
            Some(_) => self.expected("a list"),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.mapping(visitor, None)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.mapping(visitor, Some(fields))
    }

    /// One word out of several; target files do not use variants with content.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let word = match self.node {
            None => variants.first(),
            Some(node) => variants.iter().find(|variant| node.text() == Some(variant)),
        };
        match word {
            Some(word) => visitor.visit_enum(StrDeserializer::new(word)),
            None => self.expected(&format!("one of {}", variants.join(", "))),
        }
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct
        identifier ignored_any
    }
}

struct Items<'a> {
    state: &'a State,
    rest: std::slice::Iter<'a, Node>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        self.rest.next().map(|node| seed.deserialize(At::node(node, self.state))).transpose()
    }
}

struct Entries<'a> {
    rest: std::vec::IntoIter<(&'a str, At<'a>)>,
    value: Option<At<'a>>,
}

impl<'a> Entries<'a> {
    fn new(entries: Vec<(&'a str, At<'a>)>) -> Self {
        Entries { rest: entries.into_iter(), value: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(IntoDeserializer::<Fault>::into_deserializer(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        seed.deserialize(self.value.take().expect("serde asks for the key first"))
    }
}
