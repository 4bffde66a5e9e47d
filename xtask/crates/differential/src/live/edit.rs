//! Edits of an object in a request: a value at a path, duplicate members, items with equal keys, another order.

use fastrand::Rng;

use super::schema::{Part, Step};
use super::values;
use crate::document::Document;

pub(super) fn step_into<'a>(value: &'a Document, step: &Step) -> Option<&'a Document> {
    match (value, step) {
        (_, Step::Field(field)) => value.member(field),
        (Document::List(items), Step::Item) => items.first(),
        _ => None,
    }
}

/// Sets the value at the end of the path; missing values on the way get their required fields.
pub(super) fn put(object: &mut Document, path: &[Part], value: Document) {
    let Some((part, rest)) = path.split_first() else {
        *object = value;
        return;
    };
    match &part.step {
        Step::Field(field) => {
            if object.member(field).is_none() {
                object.set(field, part.fresh.clone());
            }
            if let Some(inner) = object.member_mut(field) {
                put(inner, rest, value);
            }
        }
        Step::Item => {
            if !matches!(object, Document::List(items) if !items.is_empty()) {
                *object = Document::List(vec![part.fresh.clone()]);
            }
            if let Document::List(items) = object
                && let Some(first) = items.first_mut()
            {
                put(first, rest, value);
            }
        }
    }
}

/// An object with nothing but the path to the value. Items of lists are whole, because patches may replace lists.
pub(super) fn sparse(base: Option<&Document>, path: &[Part], value: Document) -> Document {
    let Some((part, rest)) = path.split_first() else { return value };
    let known = base.and_then(|base| step_into(base, &part.step));
    match &part.step {
        Step::Field(field) => {
            let inner = match known {
                Some(known) => sparse(Some(known), rest, value),
                None => {
                    let mut fresh = part.fresh.clone();
                    put(&mut fresh, rest, value);
                    fresh
                }
            };
            Document::object([(field.clone(), inner)])
        }
        Step::Item => {
            let mut item = known.unwrap_or(&part.fresh).clone();
            put(&mut item, rest, value);
            Document::List(vec![item])
        }
    }
}

/// Repeats a member of a random object, with another value.
pub(super) fn duplicate(rng: &mut Rng, body: &mut Document) {
    if let Document::Object(members) = body
        && !members.is_empty()
    {
        let index = rng.usize(..members.len());
        if rng.u8(..3) > 0 && matches!(&members[index].1, Document::Object(inner) if !inner.is_empty()) {
            return duplicate(rng, &mut members[index].1);
        }
        let (key, value) = members[index].clone();
        let other = if rng.bool() { value } else { values::number(rng).document };
        members.insert(rng.usize(..=index), (key, other));
    }
}

/// Repeats the first item of a random list of objects with another value, so that two items have the same keys.
pub(super) fn twin(rng: &mut Rng, body: &mut Document) {
    let mut lists = Vec::new();
    object_lists(body, &mut lists);
    if lists.is_empty() {
        return;
    }
    let items = lists.swap_remove(rng.usize(..lists.len()));
    let Some(mut twin) = items.first().cloned() else { return };
    if let Document::Object(members) = &mut twin {
        match members.last_mut().filter(|_| rng.bool()) {
            Some((_, value @ (Document::Text(_) | Document::Number(_)))) => *value = values::number(rng).document,
            _ => members.push(("value".into(), Document::text(if rng.bool() { "x" } else { "y" }))),
        }
    }
    items.push(twin);
}

fn object_lists<'a>(document: &'a mut Document, found: &mut Vec<&'a mut Vec<Document>>) {
    match document {
        Document::Object(members) => members.iter_mut().for_each(|(_, value)| object_lists(value, found)),
        Document::List(items) if matches!(items.first(), Some(Document::Object(members)) if !members.is_empty()) => {
            found.push(items);
        }
        _ => {}
    }
}

pub(super) fn shuffle(rng: &mut Rng, body: &mut Document) {
    match body {
        Document::Object(members) => {
            rng.shuffle(members);
            members.iter_mut().for_each(|(_, value)| shuffle(rng, value));
        }
        Document::List(items) => items.iter_mut().for_each(|item| shuffle(rng, item)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(step: Step, fresh: &str) -> Part {
        Part { step, fresh: Document::parse(fresh).unwrap() }
    }

    fn path() -> Vec<Part> {
        let field = |name: &str| Step::Field(name.into());
        vec![
            part(field("spec"), "{}"),
            part(field("list"), "[]"),
            part(Step::Item, r#"{"name":"x"}"#),
            part(field("n"), "1"),
        ]
    }

    fn document(text: &str) -> Document {
        Document::parse(text).unwrap()
    }

    #[test]
    fn missing_values_on_the_way_get_required_fields() {
        let value = || Document::Number("1e30".into());
        let mut whole = document(r#"{"a":1}"#);
        put(&mut whole, &path(), value());
        assert_eq!(whole.to_string(), r#"{"a":1,"spec":{"list":[{"name":"x","n":1e30}]}}"#);
        let base = document(r#"{"a":1,"spec":{"b":2,"list":[{"name":"y","m":3}]}}"#);
        assert_eq!(
            sparse(Some(&base), &path(), value()).to_string(),
            r#"{"spec":{"list":[{"name":"y","m":3,"n":1e30}]}}"#
        );
    }
}
