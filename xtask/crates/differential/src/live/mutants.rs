//! Defects for the self-test: each changes requests to the side under test, or its answers.

use bytes::Bytes;
use mutate::{Call, Change, Reply};

use crate::document::Document;

/// A defect that the search must find.
pub(crate) struct Defect {
    pub(crate) id: &'static str,
    pub(crate) breaks: &'static str,
    pub(crate) change: fn() -> Change,
}

/// Integers above this are rounded by a conversion to a double.
const EXACT: i128 = 1 << 53;

pub(crate) const DEFECTS: &[Defect] = &[
    Defect {
        id: "rounded-number",
        breaks: "An integer beyond 2^53 is rounded to a double.",
        change: || request(|document| numbers(document, rounded)),
    },
    Defect {
        id: "saturated-integer",
        breaks: "An integer beyond 32 bits becomes the largest 32-bit integer.",
        change: || request(|document| numbers(document, saturated)),
    },
    Defect {
        id: "reordered-twins",
        breaks: "Items of a list with equal keys change their order.",
        change: || request(swap_twins),
    },
    Defect {
        id: "composed-characters",
        breaks: "Decomposed characters are composed.",
        change: || reply(|document| texts(document, composed)),
    },
    Defect {
        id: "truncated-micro-time",
        breaks: "A time loses its microseconds.",
        change: || reply(|document| texts(document, truncated)),
    },
    Defect {
        id: "other-derived-name",
        breaks: "The kind of lists that a definition derives from its kind has another name.",
        change: || reply(|document| texts(document, renamed)),
    },
    Defect {
        id: "dropped-duplicate",
        breaks: "Only the last of several members with the same key reaches the server.",
        change: || request(drop_duplicates),
    },
];

fn request(change: fn(&mut Document)) -> Change {
    Change::Request(Box::new(move |call: &mut Call| edit(&mut call.body, change)))
}

fn reply(change: fn(&mut Document)) -> Change {
    Change::Reply(Box::new(move |_: &Call, reply: &mut Reply| edit(&mut reply.body, change)))
}

/// Leaves a body as it is if the change does nothing.
fn edit(body: &mut Bytes, change: fn(&mut Document)) {
    let Ok(before) = Document::parse_bytes(body) else { return };
    let mut after = before.clone();
    change(&mut after);
    if after != before {
        *body = after.to_string().into();
    }
}

fn numbers(document: &mut Document, change: fn(&str) -> Option<String>) {
    if let Document::Number(literal) = document
        && let Some(other) = change(literal)
    {
        *literal = other;
    }
    document.inner_mut().into_iter().for_each(|value| numbers(value, change));
}

fn texts(document: &mut Document, change: fn(&str) -> Option<String>) {
    if let Some(other) = document.decoded().and_then(|text| change(&text)) {
        *document = Document::text(other);
    }
    document.inner_mut().into_iter().for_each(|value| texts(value, change));
}

#[expect(clippy::cast_precision_loss, reason = "the loss is the defect")]
#[expect(clippy::cast_possible_truncation, reason = "a double that was an i128 before fits into one")]
fn rounded(literal: &str) -> Option<String> {
    let number: i128 = literal.parse().ok().filter(|number: &i128| number.abs() > EXACT)?;
    Some((number as f64 as i128).to_string())
}

fn saturated(literal: &str) -> Option<String> {
    let number: i128 = literal.parse().ok()?;
    (number > i32::MAX.into()).then(|| i32::MAX.to_string())
}

/// Swaps the first two items that are objects with the same first member.
fn swap_twins(document: &mut Document) {
    if let Document::List(items) = document {
        let key = |item: &Document| match item {
            Document::Object(members) => members.first().cloned(),
            _ => None,
        };
        let twin =
            (1..items.len()).find(|index| key(&items[*index]).is_some_and(|k| Some(k) == key(&items[index - 1])));
        if let Some(index) = twin {
            items.swap(index - 1, index);
        }
    }
    document.inner_mut().into_iter().for_each(swap_twins);
}

fn composed(text: &str) -> Option<String> {
    let other = text.replace("e\u{301}", "é").replace("A\u{30a}", "Å");
    (other != text).then_some(other)
}

/// `2020-01-02T03:04:05.000006Z` has 27 characters.
fn truncated(text: &str) -> Option<String> {
    let micro = text.len() == 27 && text.is_ascii() && text.as_bytes()[19] == b'.' && text.ends_with('Z');
    micro.then(|| format!("{}.000000Z", &text[..19]))
}

fn renamed(text: &str) -> Option<String> {
    (text == "GeneratedList").then(|| "GeneratedItems".to_owned())
}

fn drop_duplicates(document: &mut Document) {
    if let Document::Object(members) = document {
        let mut index = 0;
        while index < members.len() {
            let later = members[index + 1..].iter().any(|(key, _)| *key == members[index].0);
            if later {
                members.remove(index);
            } else {
                index += 1;
            }
        }
    }
    document.inner_mut().into_iter().for_each(drop_duplicates);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, change: fn(&mut Document)) -> String {
        let mut document = Document::parse(text).unwrap();
        change(&mut document);
        document.to_string()
    }

    #[test]
    fn defects_change_what_they_say() {
        assert_eq!(rounded("9007199254740993").as_deref(), Some("9007199254740992"));
        assert_eq!((rounded("17"), rounded("1e30")), (None, None));
        assert_eq!(saturated("2147483648").as_deref(), Some("2147483647"));
        let twins = r#"[{"n":"a","v":1},{"n":"a","v":2}]"#;
        assert_eq!(changed(twins, swap_twins), r#"[{"n":"a","v":2},{"n":"a","v":1}]"#);
        assert_eq!(changed(r#"{"a":1,"b":2,"a":3}"#, drop_duplicates), r#"{"b":2,"a":3}"#);
        assert_eq!(truncated("2020-01-02T03:04:05.000006Z").as_deref(), Some("2020-01-02T03:04:05.000000Z"));
        assert_eq!(composed("e\u{301}").as_deref(), Some("é"));
    }
}
