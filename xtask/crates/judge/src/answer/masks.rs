//! The masks of recorded answers: `server_values`, and what the run chooses by itself. Everything else is compared.

use crate::document::Document;
use crate::server_values::{
    Rule, generated_name, hide, hide_ages, rule, shape_of_time, sort_managers, without_numbers,
};

const MASKS: &[Rule] = &[
    Rule {
        owner: "",
        member: "resourceVersion",
        unless_sent: false,
        reason: "a revision of the store, which other cases also advance",
    },
    Rule { owner: "metadata", member: "continue", unless_sent: false, reason: "contains a revision of the store" },
    Rule {
        owner: "data",
        member: "before",
        unless_sent: false,
        reason: "checks of watches store a revision in each object that they write",
    },
    Rule { owner: "", member: "platform", unless_sent: false, reason: "/version names the architecture" },
];

/// More phrases before a number that is a revision of the store or a port of the run.
const BEFORE_NUMBERS: &[&str] = &[
    ", current",
    "127.0.0.1:",
    "localhost:",
    "in the precondition",
    "in precondition",
    "in object meta",
    "ResourceVersion in record",
];

const SECONDS_OF_A_DAY: i64 = 86_400;
/// The beginning of each continue token: `{"v":"meta.k8s.io` in base64.
const CONTINUE: &str = "eyJ2IjoibWV0YS5rOHMuaW8";
/// A shorter text contains neither a time nor a number after a phrase.
const SHORTEST: usize = 11;
/// `0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f`.
const UUID: &str = "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh";
const UUID_BYTES: usize = UUID.len();

/// The masks of one run.
#[derive(Clone, Debug)]
pub struct Masks {
    /// The days of the run, `2026-11-26`: a time on one of them is a time of the server's clock.
    days: Vec<String>,
    /// Seconds since 1970 when the run began.
    now: i64,
    /// Names that the run or a server generated, with their replacements.
    words: Vec<(String, String)>,
}

impl Masks {
    /// `now`: seconds since 1970.
    pub fn new(now: i64) -> Masks {
        let days = (-1..=1).map(|day| date(now.div_euclid(SECONDS_OF_A_DAY) + day)).collect();
        Masks { days, now, words: Vec::new() }
    }

    /// Replaces a name in all texts from now on.
    pub fn replace(&mut self, name: &str, replacement: &str) {
        if !name.is_empty() && !self.words.iter().any(|(known, _)| known == name) {
            self.words.push((name.to_owned(), replacement.to_owned()));
        }
    }

    /// Finds names that a server completed by a random suffix, so that later texts can be masked.
    pub fn learn(&mut self, document: &Document) {
        if let Some((name, replacement)) = generated_name(document) {
            self.replace(&name, &replacement);
        }
        document.inner().into_iter().for_each(|value| self.learn(value));
    }

    pub(super) fn apply(&self, document: &mut Document, sent: &str) {
        hide_ages(document);
        self.inside("", document, sent);
        sort_managers(document);
    }

    fn inside(&self, owner: &str, document: &mut Document, sent: &str) {
        match document {
            Document::Object(members) => {
                for (name, value) in members {
                    // managedFields name items of a list by their keys: `k:{"uid":"…"}`.
                    if name.starts_with("k:{") {
                        *name = self.text(name);
                    }
                    match rule(MASKS, owner, name) {
                        Some(rule) => hide(name, value, if rule.unless_sent { sent } else { "" }),
                        None => self.inside(name, value, sent),
                    }
                }
            }
            // Items belong to the owner of the list.
            Document::List(items) => items.iter_mut().for_each(|item| self.inside(owner, item, sent)),
            document => document.map_text(|text| self.text(text)),
        }
    }

    /// A text without the run's values. A time of the server's clock keeps its format.
    pub fn text(&self, text: &str) -> String {
        if text.len() < SHORTEST && self.words.is_empty() {
            return text.to_owned();
        }
        let mut text = text.to_owned();
        for (name, replacement) in &self.words {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), replacement);
            }
        }
        if text.len() >= UUID_BYTES && text.contains('-') {
            text = without_uuids(&text);
        }
        for day in &self.days {
            if text.contains(day.as_str()) {
                text = without_times(&text, day);
            }
        }
        without_numbers(&text, BEFORE_NUMBERS)
    }

    /// A field of a value in protobuf, by its path.
    pub(super) fn field(&self, path: &str, text: &str) -> String {
        let is_time = text.parse().is_ok_and(|seconds: i64| (seconds - self.now).abs() < SECONDS_OF_A_DAY);
        // The metadata of a list is decoded like that of an object, where its version has another field's name; items have
        // numbers instead of names.
        let may_be_version = ["resourceVersion", "generateName", ".6"].iter().any(|end| path.ends_with(end));
        let text_inside = text.trim_matches('"');
        if text_inside.starts_with(CONTINUE) || may_be_version && is_version(text_inside) {
            return "*".into();
        }
        if is_time || path.ends_with("nanos") { "<now>".into() } else { self.text(text) }
    }

    /// A query as sent, in which only numbers of a resource version and tokens must differ.
    pub fn query(&self, query: &str) -> String {
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some(("continue", _)) => "continue=*".to_owned(),
            Some(("resourceVersion", value)) if is_version(value) => "resourceVersion=*".to_owned(),
            Some(("resourceVersion", _)) => pair.to_owned(),
            _ => self.text(pair),
        });
        pairs.collect::<Vec<String>>().join("&")
    }
}

fn is_version(text: &str) -> bool {
    text != "0" && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn without_uuids(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('-') {
        let begin = at.saturating_sub(8);
        let candidate = rest.get(begin..begin + UUID_BYTES).filter(|candidate| is_uuid(candidate));
        match candidate {
            Some(_) => {
                result.push_str(&rest[..begin]);
                result.push_str("<uid>");
                rest = &rest[begin + UUID_BYTES..];
            }
            None => {
                result.push_str(&rest[..=at]);
                rest = &rest[at + 1..];
            }
        }
    }
    result + rest
}

fn is_uuid(text: &str) -> bool {
    UUID.bytes().zip(text.bytes()).all(|(p, b)| if p == b'h' { b.is_ascii_hexdigit() } else { p == b })
}

/// Replaces the digits of all times on this day.
fn without_times(text: &str, day: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(day) {
        result.push_str(&rest[..at]);
        let end = rest[at..].find(|c: char| !matches!(c, '0'..='9' | '-' | ':' | '.' | 'T')).unwrap_or(rest.len() - at);
        result.push_str(&shape_of_time(&rest[at..at + end]));
        rest = &rest[at + end..];
    }
    result + rest
}

/// The date of a day since 1970 in the Gregorian calendar.
/// <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>
fn date(days: i64) -> String {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-26T12:00:00Z.
    const NOW: i64 = 1_795_694_400;
    const UID: &str = "0a1b2c3d-0a1b-4a1b-8a1b-0a1b2c3d4e5f";

    fn masked(text: &str, sent: &str) -> String {
        let mut document = Document::parse(text).unwrap();
        Masks::new(NOW).apply(&mut document, sent);
        document.to_string()
    }

    #[test]
    fn dates_are_of_the_gregorian_calendar() {
        for (days, text) in [(0, "1970-01-01"), (-1, "1969-12-31"), (11_016, "2000-02-29"), (20_783, "2026-11-26")] {
            assert_eq!(date(days), text);
        }
        assert_eq!(Masks::new(NOW).days, ["2026-11-25", "2026-11-26", "2026-11-27"]);
    }

    #[test]
    fn values_of_the_server_are_masked() {
        let text = format!(
            r#"{{"metadata":{{"uid":"{UID}","resourceVersion":"17","creationTimestamp":"2026-11-26T12:00:01Z"}},"message":"uid x{UID} at 2026-11-26T12:00:01.5Z"}}"#
        );
        let expected = r#"{"metadata":{"uid":"<uid>","resourceVersion":"<resourceVersion>","creationTimestamp":"0000-00-00T00:00:00Z"},"message":"uid x<uid> at 0000-00-00T00:00:00.0Z"}"#;
        assert_eq!(masked(&text, ""), expected);
        let text = "Too large resource version: 12, current: 7; too old resource version: 3 (5)";
        let expected = "Too large resource version: *, current: *; too old resource version: * (*)";
        assert_eq!(Masks::new(NOW).text(text), expected);
    }

    #[test]
    fn values_of_the_client_are_compared() {
        let text = r#"{"spec":{"clusterIP":"10.0.0.7","renewTime":"2020-01-02T03:04:05.000006Z","n":4294967297}}"#;
        assert_eq!(masked(text, r#""10.0.0.7""#), text);
        assert_eq!(masked(text, ""), text.replace("10.0.0.7", "<clusterIP>"));
    }

    #[test]
    fn ages_in_tables_are_hidden() {
        assert_eq!(
            masked(r#"{"rows":[{"cells":["a","3s","1m7s","7",7]}]}"#, ""),
            r#"{"rows":[{"cells":["a","<age>","<age>","7",7]}]}"#
        );
    }

    #[test]
    fn generated_names_are_masked_in_later_texts() {
        let mut masks = Masks::new(NOW);
        masks.learn(&Document::parse(r#"{"metadata":{"generateName":"a-","name":"a-x7k2p"}}"#).unwrap());
        assert_eq!(masks.text("/api/v1/pods/a-x7k2p"), "/api/v1/pods/a-*****");
    }

    #[test]
    fn versions_and_times_in_protobuf_are_masked() {
        let masks = Masks::new(NOW);
        for (path, text, expected) in [
            ("metadata.resourceVersion", "\"17\"", "*"),
            ("metadata.generateName", "\"338\"", "*"),
            ("metadata.namespace", "\"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Mzk2fQ\"", "*"),
            ("2[0].1.6", "\"338\"", "*"),
            ("metadata.creationTimestamp.seconds", "1795694401", "<now>"),
            ("spec.replicas", "338", "338"),
            ("metadata.generateName", "\"a-\"", "\"a-\""),
        ] {
            assert_eq!(masks.field(path, text), expected, "{path}");
        }
    }

    #[test]
    fn only_versions_and_tokens_of_a_query_are_masked() {
        let masks = Masks::new(NOW);
        let query = "limit=2&resourceVersion=17&continue=abc&resourceVersionMatch=Exact";
        assert_eq!(masks.query(query), "limit=2&resourceVersion=*&continue=*&resourceVersionMatch=Exact");
        assert_eq!(masks.query("resourceVersion=0"), "resourceVersion=0");
        assert_eq!(masks.query("resourceVersion=x1"), "resourceVersion=x1");
    }
}
