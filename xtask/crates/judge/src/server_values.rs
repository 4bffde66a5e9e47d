//! Values that a server chooses by itself and that therefore differ between two runs, with the reason. All comparisons
//! of answers share these rules; `answer::masks` and the live level of `differential` add those for what they record.

use crate::document::Document;

/// A rule: the value of this member is not compared.
pub struct Rule {
    /// The member around the value; empty for any.
    pub owner: &'static str,
    pub member: &'static str,
    /// A value that the client sent is compared.
    pub unless_sent: bool,
    pub reason: &'static str,
}

const SHARED: &[Rule] = &[
    Rule { owner: "spec", member: "clusterIP", unless_sent: true, reason: "chosen at random from a range" },
    Rule { owner: "spec", member: "clusterIPs", unless_sent: true, reason: "chosen at random from a range" },
    Rule { owner: "spec", member: "healthCheckNodePort", unless_sent: true, reason: "chosen at random from a range" },
    Rule { owner: "ports", member: "nodePort", unless_sent: true, reason: "chosen at random from a range" },
    Rule { owner: "status", member: "token", unless_sent: false, reason: "a signature with the key of the server" },
];

/// Phrases before a number that is a revision of the store.
const BEFORE_VERSIONS: [&str; 2] = ["resourceVersion", "resource version"];

/// The server shortens a longer `generateName` (apiserver, pkg/storage/names/generate.go).
const LONGEST_PREFIX: usize = 58;
/// The server appends this many random characters to `generateName`.
const SUFFIX: &str = "*****";

/// The shared rule, or the comparison's own rule, for a member of an object.
pub fn rule(own: &'static [Rule], owner: &str, member: &str) -> Option<&'static Rule> {
    let fits = |rule: &&Rule| rule.member == member && (rule.owner.is_empty() || rule.owner == owner);
    own.iter().chain(SHARED).find(fits)
}

/// Replaces the value of a member unless it is empty or contained in `sent`.
pub fn hide(member: &str, value: &mut Document, sent: &str) {
    let (text, unset) = match value {
        Document::List(items) => return items.iter_mut().for_each(|item| hide(member, item, sent)),
        Document::Number(literal) => (literal.clone(), false),
        Document::Text(spelled) => {
            let unset = ["\"\"", "\"0\"", "\"None\""].contains(&spelled.as_str());
            (value.decoded().unwrap_or_default(), unset)
        }
        _ => return,
    };
    if !unset && (sent.is_empty() || !sent.contains(&text)) {
        *value = Document::text(format!("<{member}>"));
    }
}

/// The rows of a Table contain ages, which grow while the request is on its way.
pub fn hide_ages(table: &mut Document) {
    let Some(Document::List(rows)) = table.member_mut("rows") else { return };
    for row in rows {
        let Some(Document::List(cells)) = row.member_mut("cells") else { continue };
        for cell in cells {
            cell.map_text(|text| if is_young(text) { "<age>".into() } else { text.into() });
        }
    }
}

/// Whether the text is an age that an object can reach during a run: `0s`, `1m7s`, `12m`.
fn is_young(text: &str) -> bool {
    let digits = text.trim_end_matches(['s', 'm']);
    text.len() <= 7
        && !digits.is_empty()
        && digits.len() < text.len()
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'm')
}

/// Entries of `managedFields` are sorted by time, in whole seconds: their order depends on when a second ends.
pub fn sort_managers(document: &mut Document) {
    match document {
        Document::Object(members) => {
            for (key, value) in members {
                match value {
                    Document::List(entries) if key == "managedFields" => entries.sort_by_cached_key(without_time),
                    value => sort_managers(value),
                }
            }
        }
        Document::List(items) => items.iter_mut().for_each(sort_managers),
        _ => {}
    }
}

fn without_time(entry: &Document) -> String {
    match entry {
        Document::Object(members) => {
            Document::Object(members.iter().filter(|(key, _)| key != "time").cloned().collect()).to_string()
        }
        other => other.to_string(),
    }
}

/// The name that a server completed by a random suffix, with the replacement.
pub fn generated_name(metadata: &Document) -> Option<(String, String)> {
    let text = |name| metadata.member(name).and_then(Document::decoded);
    let (prefix, name) = (text("generateName")?, text("name")?);
    let kept = prefix.get(..prefix.len().min(LONGEST_PREFIX))?;
    let generated = name.len() == kept.len() + SUFFIX.len() && name.starts_with(kept);
    generated.then(|| (name, format!("{kept}{SUFFIX}")))
}

/// A time without its digits, `0000-00-00T00:00:00Z`: a lost fraction of a second still shows.
pub fn shape_of_time(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

/// Replaces revisions of the store, and the numbers after the comparison's own phrases.
pub fn without_numbers(text: &str, own: &[&str]) -> String {
    let mut text = text.to_owned();
    for phrase in BEFORE_VERSIONS.iter().chain(own) {
        if !text.contains(phrase) {
            continue;
        }
        let mut parts = text.split(phrase);
        let mut result = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            result.push_str(phrase);
            result.push_str(&without_first_number(part));
        }
        text = result;
    }
    text
}

/// `: 17 (12)` becomes `: * (*)`.
fn without_first_number(text: &str) -> String {
    let number = text.trim_start_matches(['\\', '"', ':', ' ', '(', '=']);
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == number.len() {
        return text.to_owned();
    }
    let rest = if rest.starts_with(" (") { without_first_number(rest) } else { rest.to_owned() };
    format!("{}*{rest}", &text[..text.len() - number.len()])
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
    fn ages_in_tables_are_hidden() {
        let table = r#"{"rows":[{"cells":["12m","1000000m"]}]}"#;
        assert_eq!(changed(table, hide_ages), r#"{"rows":[{"cells":["<age>","1000000m"]}]}"#);
    }

    #[test]
    fn managers_have_no_order() {
        let text = r#"{"metadata":{"managedFields":[{"manager":"b","time":"1"},{"manager":"a","time":"2"}]}}"#;
        let sorted = r#"{"metadata":{"managedFields":[{"manager":"a","time":"2"},{"manager":"b","time":"1"}]}}"#;
        assert_eq!(changed(text, sort_managers), sorted);
    }

    #[test]
    fn suffix_of_a_generated_name_is_masked() {
        let of = |prefix: &str, name: &str| {
            let members = [("generateName", prefix), ("name", name)].map(|(key, text)| (key, Document::text(text)));
            generated_name(&Document::object(members)).map(|(_, replacement)| replacement)
        };
        assert_eq!(of("a-", "a-x7k2q").as_deref(), Some("a-*****"));
        assert_eq!(of("a-", "b-x7k2q"), None);
        let (long, kept) = ("a".repeat(60), "a".repeat(LONGEST_PREFIX));
        assert_eq!(of(&long, &format!("{kept}x7k2q")), Some(format!("{kept}*****")));
    }

    #[test]
    fn empty_and_sent_values_are_compared() {
        let of = |text: &str, sent: &str| {
            let mut value = Document::parse(text).unwrap();
            hide("x", &mut value, sent);
            value.to_string()
        };
        for text in [r#""""#, r#""0""#, r#""None""#, "null", "{}"] {
            assert_eq!(of(text, ""), text);
        }
        assert_eq!(of(r#"["10.0.0.7",30001]"#, ""), r#"["<x>","<x>"]"#);
        assert_eq!(of(r#"["10.0.0.7",30001]"#, "10.0.0.7"), r#"["10.0.0.7","<x>"]"#);
    }

    #[test]
    fn numbers_after_phrases_are_hidden() {
        for (text, expected) in [
            ("too old resource version: 3 (5)", "too old resource version: * (*)"),
            (r#"{\"resourceVersion\":\"921\",\"n\":7}"#, r#"{\"resourceVersion\":\"*\",\"n\":7}"#),
            ("resourceVersionMatch is forbidden, 3", "resourceVersionMatch is forbidden, 3"),
        ] {
            assert_eq!(without_numbers(text, &[]), expected);
        }
    }
}
