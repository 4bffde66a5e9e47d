//! Groups of differences with one cause, and which of them are expected.

use std::collections::BTreeSet;

use judge::look::looks;
use model::ExpectedDifference;
use serde::Serialize;

use crate::changes::{changes, shapes};
use crate::document::Document;

/// Differences with the same key are one group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// A subject of the library level, or a kind of request of the live level.
    pub subject: String,
    /// The kind of input, if the subject has several; parts are separated by ", ".
    pub class: String,
    /// Which answers are errors; else what their differences look like, and without a class, where they are.
    pub shape: BTreeSet<String>,
}

impl Key {
    /// The key of two different answers.
    pub fn of(subject: &str, class: &str, left: &Document, right: &Document) -> Key {
        let mut shape = match (is_error(left), is_error(right)) {
            (false, true) => BTreeSet::from(["answer/error".to_owned()]),
            (true, false) => BTreeSet::from(["error/answer".to_owned()]),
            (true, true) if !class.is_empty() => BTreeSet::from(["error/error".to_owned()]),
            // With a class, one cause shows at many places of a document.
            (false, false) if !class.is_empty() => looks(left, right),
            _ => shapes(&changes(left, right)),
        };
        // One side alone takes it for an input.
        if shape.is_empty() {
            shape.insert("validity".to_owned());
        }
        Key { subject: subject.to_owned(), class: class.to_owned(), shape }
    }

    /// Whether a smaller input with this key shows the same cause, or a part of it.
    pub fn is_part_of(&self, whole: &Key) -> bool {
        let classes = |key: &Key| key.class.split(", ").map(str::to_owned).collect::<BTreeSet<_>>();
        self.subject == whole.subject && classes(self).is_subset(&classes(whole)) && self.shape.is_subset(&whole.shape)
    }

    /// The entry that explains what differs, or that does so together with those of the other parts of the class.
    pub fn expected<'a>(
        &self,
        entries: &'a [ExpectedDifference],
        arch: &str,
        today: &str,
    ) -> Option<&'a ExpectedDifference> {
        let of = |class: &str| -> Vec<&'a ExpectedDifference> {
            entries.iter().filter(|entry| entry.concerns(&self.subject, class, arch, today)).collect()
        };
        let parts = || -> Option<&'a ExpectedDifference> {
            let parts: Vec<_> = self.class.split(", ").map(of).collect();
            let are_known = parts.iter().all(|entries| !entries.is_empty());
            ExpectedDifference::explaining(&parts.concat(), &self.shape).filter(|_| are_known)
        };
        ExpectedDifference::explaining(&of(&self.class), &self.shape).or_else(parts)
    }
}

/// The known groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected<'a> {
    pub(crate) entries: &'a [ExpectedDifference],
    pub(crate) arch: &'a str,
    pub(crate) today: &'a str,
}

impl<'a> Expected<'a> {
    /// The entry that expects the group.
    pub(crate) fn of(self, key: &Key) -> Option<&'a ExpectedDifference> {
        key.expected(self.entries, self.arch, self.today)
    }
}

/// Whether the subject ended with an error. An answer with further members reports an error of one of its parts.
fn is_error(answer: &Document) -> bool {
    matches!(answer, Document::Object(members) if members.len() == 1 && answer.member("error").is_some())
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.subject)?;
        if !self.class.is_empty() {
            write!(f, " ({})", self.class)?;
        }
        let shape: Vec<&str> = self.shape.iter().map(String::as_str).collect();
        write!(f, ": {}", shape.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(left: &str, right: &str) -> Key {
        Key::of("s", "", &Document::parse(left).unwrap(), &Document::parse(right).unwrap())
    }

    #[test]
    fn key_says_where_answers_differ() {
        assert_eq!(key(r#"{"a":1}"#, r#"{"error":"x"}"#).to_string(), "s: answer/error");
        assert_eq!(key(r#"{"error":"x"}"#, r#"{"error":"y"}"#).to_string(), "s: .error string");
        assert_eq!(key(r#"{"a":[1,2]}"#, r#"{"a":[3,4]}"#).to_string(), "s: .a[*] number");
        let part = [r#"{"error":"<nil>","a":1}"#, r#"{"error":"<nil>","a":2}"#];
        assert_eq!(key(part[0], part[1]).to_string(), "s: .a number");
    }

    #[test]
    fn smaller_input_shows_a_part_of_the_group() {
        let whole = key(r#"{"a":1,"b":1}"#, r#"{"a":2,"b":2}"#);
        assert!(key(r#"{"a":1}"#, r#"{"a":2}"#).is_part_of(&whole));
        assert!(!key(r#"{"c":1}"#, r#"{"c":2}"#).is_part_of(&whole));
        let of = |class: &str| Key { class: class.into(), ..whole.clone() };
        assert!(of("large").is_part_of(&of("large, with fraction")));
        assert!(!of("small").is_part_of(&of("large, with fraction")));
    }

    #[test]
    fn class_stands_for_all_places_of_its_cause() {
        let of = |left: &str, right: &str| {
            let (left, right) = (Document::parse(left).unwrap(), Document::parse(right).unwrap());
            Key::of("s", "c", &left, &right)
        };
        let known = of(r#"{"a":{"b":0}}"#, r#"{"a":{"b":-1}}"#);
        assert_eq!(known, of(r#"{"c":{"d":[0]}}"#, r#"{"c":{"d":[-1]}}"#));
        // Another cause in the same class.
        assert_ne!(known, of(r#"{"a":{"b":5}}"#, r#"{"a":{"b":7}}"#));
        assert_ne!(known, of(r#"{"a":1}"#, r#"{"error":"x"}"#));
    }

    #[test]
    fn input_of_one_side_only_has_a_shape() {
        assert_eq!(key("null", "null").to_string(), "s: validity");
    }

    fn entry(classes: &[&str]) -> ExpectedDifference {
        ExpectedDifference {
            subject: "s".into(),
            classes: classes.iter().map(|class| (*class).to_owned()).collect(),
            arch: vec!["two".into()],
            shows: vec!["0 and -1".into()],
            follows: vec![],
            reason: "r".into(),
            issue: "https://example.org".into(),
            expires: "2027-03-31".into(),
        }
    }

    fn is_expected(class: &str, entry: ExpectedDifference, arch: &str, today: &str) -> bool {
        let shape = BTreeSet::from(["0 and -1".to_owned()]);
        let key = Key { subject: "s".into(), class: class.into(), shape };
        key.expected(&[entry], arch, today).is_some()
    }

    #[test]
    fn difference_with_another_cause_in_the_class_is_new() {
        let of = |left: &str, right: &str| {
            let (left, right) = (Document::parse(left).unwrap(), Document::parse(right).unwrap());
            Key::of("s", "c", &left, &right).expected(&[entry(&["c"])], "two", "2027-01-01").is_some()
        };
        assert!(of("0", "-1") && of(r#"{"a":0}"#, r#"{"a":-1}"#) && of("-1", "0"));
        assert!(!of("5", "7") && !of(r#"{"a":0,"b":5}"#, r#"{"a":-1,"b":7}"#));
        assert!(!of("0", r#"{"error":"x"}"#) && !of("0", "0"));
    }

    #[test]
    fn only_the_named_group_is_expected_until_its_day() {
        assert!(is_expected("c", entry(&["c"]), "two", "2027-03-31"));
        assert!(!is_expected("c", entry(&["c"]), "two", "2027-04-01"));
        assert!(!is_expected("c", entry(&["c"]), "one", "2027-01-01"));
        assert!(!is_expected("c", entry(&["d"]), "two", "2027-01-01"));
    }

    #[test]
    fn group_of_several_expected_causes_is_expected() {
        let expected = |class| is_expected(class, entry(&["a", "b", "int32, beyond"]), "two", "2027-01-01");
        assert!(expected("a") && expected("a, b") && expected("int32, beyond"));
        assert!(!expected("a, c") && !expected("int32") && !expected(""));
    }
}
