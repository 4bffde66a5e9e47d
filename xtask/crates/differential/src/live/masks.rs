//! What servers choose by themselves and therefore must differ, with the reason; everything else is compared.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::order::{sort_errors, sort_managers};
use crate::document::Document;

/// A rule: values at these members of an object are replaced before answers are compared.
struct Mask {
    /// The member around the value; empty for any.
    owner: &'static str,
    member: &'static str,
    how: How,
    #[expect(dead_code, reason = "the reason is for readers of the table")]
    reason: &'static str,
}

#[derive(Clone, Copy)]
enum How {
    /// The same word for all values.
    Hide,
    /// The same word, and the value is also replaced in every later text of the side.
    Follow,
    /// Like `Follow`, unless the sequence sent the value.
    FollowUnlessSent,
}

const MASKS: &[Mask] = &[
    Mask { owner: "metadata", member: "uid", how: How::Follow, reason: "random" },
    Mask {
        owner: "metadata",
        member: "resourceVersion",
        how: How::Hide,
        reason: "a revision of the store, which sequences at the same time also advance",
    },
    Mask { owner: "details", member: "uid", how: How::Follow, reason: "the uid of the object, in a Status" },
    Mask { owner: "spec", member: "clusterIP", how: How::FollowUnlessSent, reason: "chosen at random from a range" },
    Mask { owner: "spec", member: "clusterIPs", how: How::FollowUnlessSent, reason: "chosen at random from a range" },
    Mask { owner: "spec", member: "healthCheckNodePort", how: How::FollowUnlessSent, reason: "chosen at random" },
    Mask { owner: "ports", member: "nodePort", how: How::FollowUnlessSent, reason: "chosen at random from a range" },
    Mask { owner: "status", member: "token", how: How::Hide, reason: "a signature with the key of the server" },
];

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
            hide("resourceVersion", version);
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
            Document::Text(_) => self.masked(document),
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
                    let mask =
                        MASKS.iter().find(|mask| mask.member == key && (mask.owner == owner || mask.owner.is_empty()));
                    match mask.map(|mask| mask.how) {
                        Some(How::Follow) => self.follow(key, value, ""),
                        Some(How::FollowUnlessSent) => self.follow(key, value, sent),
                        _ => {}
                    }
                    self.learn(key, value, sent);
                }
                self.learn_generated_name(document);
            }
            // Items belong to the owner of the list.
            Document::List(items) => items.iter().for_each(|item| self.learn(owner, item, sent)),
            _ => {}
        }
    }

    /// The suffix after `generateName` is random.
    fn learn_generated_name(&mut self, metadata: &Document) {
        let text = |key: &str| metadata.member(key).and_then(Document::decoded);
        if let (Some(prefix), Some(name)) = (text("generateName"), text("name"))
            && name.len() == prefix.len() + 5
            && name.starts_with(&prefix)
        {
            self.words.insert(name, format!("{prefix}*****"));
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
                    let hidden = MASKS
                        .iter()
                        .any(|mask| mask.member == key && mask.owner == owner && matches!(mask.how, How::Hide));
                    if hidden {
                        hide(key, value);
                    }
                    self.replace(key, value);
                }
            }
            Document::List(items) => items.iter_mut().for_each(|item| self.replace(owner, item)),
            Document::Text(_) => self.masked(document),
            Document::Number(literal) => {
                if let Some(word) = self.words.get(literal.as_str()) {
                    *literal = format!("\"{word}\"");
                }
            }
            Document::Null | Document::Bool(_) => {}
        }
    }

    fn masked(&self, document: &mut Document) {
        if let Some(text) = document.decoded() {
            let other = self.text(&text);
            if other != text {
                *document = Document::text(other);
            }
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
        without_versions(&self.times_inside(&text))
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

/// Replaces resource versions in a message, and in an object that is quoted in a text.
fn without_versions(text: &str) -> String {
    let text = without_numbers_after(text, "resourceVersion");
    // "too old resource version: 17 (19)"
    without_numbers_after(&text, "resource version")
}

fn without_numbers_after(text: &str, word: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = rest.split_at(at + word.len());
        let value = after.trim_start_matches(['\\', '"', ':', ' ']);
        let tail = value.trim_start_matches(|c: char| c.is_ascii_digit());
        result.push_str(before);
        result.push_str(&after[..after.len() - value.len()]);
        if tail.len() < value.len() {
            result.push('*');
        }
        rest = match tail.strip_prefix(" (") {
            Some(other) if tail.len() < value.len() => other.trim_start_matches(|c: char| c.is_ascii_digit()),
            _ => tail,
        };
    }
    result.push_str(rest);
    result
}

/// The rows of a Table contain ages, which grow while the request is on its way.
fn hide_ages(table: &mut Document) {
    let Some(Document::List(rows)) = table.member_mut("rows") else { return };
    for row in rows {
        let Some(Document::List(cells)) = row.member_mut("cells") else { continue };
        for cell in cells {
            if cell.decoded().is_some_and(|text| is_young(&text)) {
                *cell = Document::text("<age>");
            }
        }
    }
}

/// Whether the text is an age that an object can reach during a run: `0s`, `1m7s`.
fn is_young(text: &str) -> bool {
    let shaped = text.len() <= 7 && text.ends_with('s') || text.ends_with('m');
    let digits = text.trim_end_matches(['s', 'm']);
    shaped && digits.len() < text.len() && digits.chars().all(|c| c.is_ascii_digit() || c == 'm') && !digits.is_empty()
}

fn hide(key: &str, value: &mut Document) {
    let empty = value.decoded().is_some_and(|text| text.is_empty() || text == "0");
    if !empty && matches!(value, Document::Text(_) | Document::Number(_)) {
        *value = Document::text(format!("<{key}>"));
    }
}

/// `0000-00-00T00:00:00Z`: a lost fraction of a second still shows.
fn shape_of_time(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
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
