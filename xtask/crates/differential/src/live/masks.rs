//! The masks of one side during one sequence: `judge::server_values`, resource versions, uids and times. Everything else is
//! compared.

use std::collections::BTreeMap;

use jiff::Timestamp;
use judge::server_values::{
    Rule, generated_name, hide, hide_ages, rule, shape_of_time, sort_managers, without_numbers,
};

use super::order::sort_errors;
use crate::document::Document;

const MASKS: &[Rule] = &[Rule {
    owner: "metadata",
    member: "resourceVersion",
    unless_sent: false,
    reason: "a revision of the store, which sequences at the same time also advance",
}];

/// The members around a uid that the server chose at random: of an object, and of a Status with the object's uid.
const UID_OWNERS: [&str; 2] = ["metadata", "details"];

/// Seconds around the run in which a time counts as one that a server took from its clock.
const AROUND: i64 = 7200;

/// The field of ObjectMeta in protobuf.
const MANAGED_FIELDS: &str = "17";

/// Replaces seconds of the server's clock in protobuf.
const NOW: &str = "\"<now>\"";

/// The masks of one side during one sequence.
#[derive(Clone, Debug)]
pub(crate) struct Masks {
    /// Values of this side with the word that replaces each.
    words: BTreeMap<String, String>,
    /// When the sequence began, in seconds since 1970.
    now: i64,
}

impl Masks {
    pub(crate) fn new(now: i64) -> Masks {
        Masks { words: BTreeMap::new(), now }
    }

    /// Replaces what must differ in an answer. `sent` is the text of all requests so far.
    pub(crate) fn apply(&mut self, document: &mut Document, sent: &str) {
        hide_ages(document);
        sort_managers(document);
        sort_errors(document);
        self.learn("", document, sent);
        self.replace("", document);
    }

    /// Replaces what was learned from answers, and times, in protobuf, which has no names of members.
    pub(crate) fn apply_to_wire(&self, document: &mut Document) {
        // `metadata` is the first field of an object, and its sixth one is the resource version.
        let metadata = document.member_mut("2").and_then(|object| object.member_mut("1"));
        if let Some(version) = metadata.and_then(|metadata| metadata.member_mut("6")) {
            hide("resourceVersion", version, "");
        }
        self.inside_wire(document);
        let metadata = document.member_mut("2").and_then(|object| object.member_mut("1"));
        if let Some(Document::Object(members)) = metadata {
            members.sort_by_cached_key(|(field, value)| {
                let managers = field == MANAGED_FIELDS;
                (managers, if managers { value.to_string() } else { String::new() })
            });
        }
    }

    fn inside_wire(&self, document: &mut Document) {
        match document {
            Document::Text(_) => document.map_text(|text| self.text(text)),
            Document::Number(literal) => self.wire_number(literal),
            Document::List(items) => items.iter_mut().for_each(|item| self.inside_wire(item)),
            Document::Object(members) => {
                members.iter_mut().for_each(|(_, value)| self.inside_wire(value));
                // The nanoseconds of a time of the server's clock.
                if let [(_, seconds), (_, nanoseconds @ Document::Number(_))] = &mut members[..]
                    && *seconds == Document::Number(NOW.into())
                {
                    *nanoseconds = Document::Number(NOW.into());
                }
            }
            Document::Null | Document::Bool(_) => {}
        }
    }

    fn wire_number(&self, literal: &mut String) {
        if let Ok(number) = literal.parse::<i64>() {
            if self.is_near(number) {
                *literal = NOW.into();
            } else if let Some(word) = self.words.get(literal.as_str()) {
                *literal = format!("\"{word}\"");
            }
        }
    }

    fn learn(&mut self, owner: &str, document: &Document, sent: &str) {
        match document {
            Document::Object(members) => {
                for (key, value) in members {
                    // The value is also replaced in every later text of the side.
                    if key == "uid" && UID_OWNERS.contains(&owner) {
                        self.follow(key, value, "");
                    } else if rule(MASKS, owner, key).is_some_and(|rule| rule.unless_sent) {
                        self.follow(key, value, sent);
                    }
                    self.learn(key, value, sent);
                }
                self.words.extend(generated_name(document));
            }
            // Items belong to the owner of the list.
            Document::List(items) => items.iter().for_each(|item| self.learn(owner, item, sent)),
            _ => {}
        }
    }

    fn follow(&mut self, member: &str, value: &Document, sent: &str) {
        let mut add = |text: &str| {
            let known = text.is_empty() || self.words.contains_key(text) || (!sent.is_empty() && sent.contains(text));
            if !known && text != "None" {
                let count = self.words.len() + 1;
                self.words.insert(text.to_owned(), format!("<{member} {count}>"));
            }
        };
        match value {
            Document::Text(_) => value.decoded().iter().for_each(|text| add(text)),
            Document::Number(literal) => add(literal),
            Document::List(items) => items.iter().filter_map(Document::decoded).for_each(|text| add(&text)),
            _ => {}
        }
    }

    fn replace(&self, owner: &str, document: &mut Document) {
        match document {
            Document::Object(members) => {
                for (key, value) in members {
                    if rule(MASKS, owner, key).is_some_and(|rule| !rule.unless_sent) {
                        hide(key, value, "");
                    }
                    self.replace(key, value);
                }
            }
            Document::List(items) => items.iter_mut().for_each(|item| self.replace(owner, item)),
            Document::Text(_) => document.map_text(|text| self.text(text)),
            Document::Number(literal) => {
                if let Some(word) = self.words.get(literal.as_str()) {
                    *literal = format!("\"{word}\"");
                }
            }
            Document::Null | Document::Bool(_) => {}
        }
    }

    /// A text without the server's own values. A time that the server took from its clock keeps its format.
    pub(crate) fn text(&self, text: &str) -> String {
        if let Some(word) = self.words.get(text) {
            return word.clone();
        }
        if self.is_now(text) {
            return shape_of_time(text);
        }
        let mut text = text.to_owned();
        // A short value could be a part of any other text.
        for (value, word) in self.words.iter().filter(|(value, _)| value.len() > 6) {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), word);
            }
        }
        without_numbers(&self.times_inside(&text), &[])
    }

    fn is_near(&self, seconds: i64) -> bool {
        seconds.saturating_sub(self.now).saturating_abs() < AROUND
    }

    fn is_now(&self, text: &str) -> bool {
        let time: Option<Timestamp> = text.parse().ok();
        time.is_some_and(|time| self.is_near(time.as_second()))
    }

    /// Replaces times of the server's clock within a text.
    fn times_inside(&self, text: &str) -> String {
        let mut result = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("-") {
            // The year precedes the first dash.
            let begin = at.saturating_sub(4);
            let time = rest.get(begin..).map(time_at).filter(|time| !time.is_empty() && self.is_now(time));
            match time {
                Some(time) => {
                    result.push_str(&rest[..begin]);
                    result.push_str(&shape_of_time(time));
                    rest = &rest[begin + time.len()..];
                }
                None => {
                    result.push_str(&rest[..=at]);
                    rest = &rest[at + 1..];
                }
            }
        }
        result.push_str(rest);
        result
    }
}

/// The beginning of the text that is a time in UTC; empty if it does not begin with one.
fn time_at(text: &str) -> &str {
    const PATTERN: &[u8] = b"dddd-dd-ddTdd:dd:dd";
    let bytes = text.as_bytes();
    let fits = bytes.len() > PATTERN.len()
        && PATTERN.iter().zip(bytes).all(|(p, b)| if *p == b'd' { b.is_ascii_digit() } else { p == b });
    if !fits {
        return "";
    }
    let end = text[PATTERN.len()..].find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or_default() + PATTERN.len();
    if bytes.get(end) == Some(&b'Z') { &text[..=end] } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-26T12:00:00Z.
    const NOW: i64 = 1_795_694_400;

    fn masked(text: &str, sent: &str) -> String {
        let mut document = Document::parse(text).unwrap();
        Masks::new(NOW).apply(&mut document, sent);
        document.to_string()
    }

    #[test]
    fn values_of_the_server_are_masked() {
        let text = r#"{"metadata":{"uid":"0a1b2c3d-1","resourceVersion":"17","creationTimestamp":"2026-11-26T12:00:01Z"},"message":"uid 0a1b2c3d-1 at 2026-11-26T12:00:01Z"}"#;
        let expected = r#"{"metadata":{"uid":"<uid 1>","resourceVersion":"<resourceVersion>","creationTimestamp":"0000-00-00T00:00:00Z"},"message":"uid <uid 1> at 0000-00-00T00:00:00Z"}"#;
        assert_eq!(masked(text, ""), expected);
    }

    #[test]
    fn values_of_the_client_are_compared() {
        for text in [
            r#"{"spec":{"renewTime":"2020-01-02T03:04:05.000006Z","resourceVersion":"7"}}"#,
            r#"{"spec":{"uid":"x","clusterIP":"None"}}"#,
        ] {
            assert_eq!(masked(text, ""), text);
        }
        assert_eq!(masked(r#"{"spec":{"clusterIP":"10.0.0.7"}}"#, "10.0.0.7"), r#"{"spec":{"clusterIP":"10.0.0.7"}}"#);
        assert_eq!(masked(r#"{"spec":{"clusterIP":"10.0.0.7"}}"#, ""), r#"{"spec":{"clusterIP":"<clusterIP 1>"}}"#);
    }

    #[test]
    fn truncated_time_of_the_server_still_shows() {
        assert_ne!(masked(r#"{"t":"2026-11-26T12:00:01.000000Z"}"#, ""), masked(r#"{"t":"2026-11-26T12:00:01Z"}"#, ""));
    }

    #[test]
    fn object_in_a_text_is_masked() {
        let text = r#"{"m":"Invalid value: \"{\\\"resourceVersion\\\":\\\"921\\\",\\\"t\\\":\\\"2026-11-26T12:00:01Z\\\"}\" at d-2020-01-02T03:04:05Z"}"#;
        let masked = masked(text, "");
        assert!(masked.contains(r#"resourceVersion\\\":\\\"*\\\""#), "{masked}");
        assert!(masked.contains("0000-00-00T00:00:00Z") && masked.contains("d-2020-01-02T03:04:05Z"), "{masked}");
    }

    #[test]
    fn ages_in_tables_are_masked() {
        let text = r#"{"rows":[{"cells":["a","7s","1m30s","6y12d","s","m"]}]}"#;
        assert_eq!(masked(text, ""), r#"{"rows":[{"cells":["a","<age>","<age>","6y12d","s","m"]}]}"#);
    }

    #[test]
    fn suffix_of_a_generated_name_is_masked() {
        let text = r#"{"metadata":{"generateName":"a-","name":"a-x7k2q"}}"#;
        assert_eq!(masked(text, ""), r#"{"metadata":{"generateName":"a-","name":"a-*****"}}"#);
    }
}
