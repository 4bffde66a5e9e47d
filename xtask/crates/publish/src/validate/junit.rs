//! Rules for JUnit files. The strict rules are the profile that `junit` writes; a flavour may add to it.

use std::collections::BTreeSet;

use report::Flavour;
use roxmltree::{Document, Node};

use crate::xml;

/// GitLab accepts no larger file.
const LARGEST: usize = 30 << 20;

type Faults = Vec<String>;

pub(super) fn faults(bytes: &[u8], flavour: Flavour) -> Faults {
    if bytes.is_empty() {
        return vec!["the file is empty".into()];
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return vec![format!("the file is not UTF-8: {error}")],
    };
    let mut faults = Faults::new();
    if bytes.len() > LARGEST {
        faults.push(format!("the file has {} bytes; GitLab accepts at most {LARGEST}", bytes.len()));
    }
    // Not every parser checks for illegal characters.
    let legal = |c: &char| matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}');
    if let Some(bad) = text.chars().find(|c| !legal(c)) {
        faults.push(format!("{bad:?} is not a character of XML 1.0"));
    }
    match Document::parse(text) {
        Ok(file) => root(file.root_element(), flavour, &mut faults),
        Err(error) => faults.push(format!("the file is not well-formed: {error}")),
    }
    if let Err(error) = xml::read_again(text) {
        faults.push(format!("not every XML reader accepts the file: {error}"));
    }
    faults
}

fn root(root: Node<'_, '_>, flavour: Flavour, faults: &mut Faults) {
    if root.tag_name().name() != "testsuites" {
        faults.push(format!("the root is `{}` instead of `testsuites`", root.tag_name().name()));
        return;
    }
    attributes(root, &["name", "tests", "failures", "errors", "time"], &[], "testsuites", faults);
    let suites: Vec<Node<'_, '_>> = elements(root).collect();
    if suites.is_empty() {
        faults.push("the file has no suite".into());
    }
    let mut names = BTreeSet::new();
    for suite in &suites {
        let name = suite.attribute("name").unwrap_or_default();
        if !names.insert(name) {
            faults.push(format!("two suites have the name `{name}`"));
        }
        self::suite(*suite, name, flavour, faults);
    }
    for count in ["tests", "failures", "errors"] {
        let sum = suites.iter().filter_map(|suite| number(*suite, count)).try_fold(0, usize::checked_add);
        if sum.is_none() || number(root, count) != sum {
            let sum = sum.map_or("which overflows".to_owned(), |sum| sum.to_string());
            faults.push(format!("`{count}` of the file is not the sum of its suites, {sum}"));
        }
    }
}

fn suite(suite: Node<'_, '_>, name: &str, flavour: Flavour, faults: &mut Faults) {
    let place = format!("suite `{name}`");
    if suite.tag_name().name() != "testsuite" {
        faults.push(format!("`{}` is not a `testsuite`", suite.tag_name().name()));
        return;
    }
    let wanted = ["id", "name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"];
    attributes(suite, &wanted, &[], &place, faults);
    order(suite, &[&["properties"], &["testcase"], &["system-out"], &["system-err"]], &place, faults);
    let cases: Vec<Node<'_, '_>> = elements(suite).filter(|node| node.has_tag_name("testcase")).collect();
    if cases.is_empty() {
        faults.push(format!("{place} has no case"));
    }
    let with = |mark: &str| cases.iter().filter(|case| elements(**case).any(|node| node.has_tag_name(mark))).count();
    let counts = [
        ("tests", cases.len()),
        ("failures", with("failure")),
        ("errors", with("error")),
        ("skipped", with("skipped")),
    ];
    for (count, is) in counts {
        if number(suite, count) != Some(is) {
            let says = suite.attribute(count).unwrap_or("nothing");
            faults.push(format!("{place}: `{count}` says {says}, but there are {is}"));
        }
    }
    if !suite.attribute("timestamp").is_some_and(is_timestamp) {
        faults.push(format!("{place}: `timestamp` is not YYYY-MM-DDTHH:MM:SSZ"));
    }
    let mut names = BTreeSet::new();
    for case in cases {
        let key = (case.attribute("classname"), case.attribute("name"));
        let place = format!("case `{}`", key.1.unwrap_or_default());
        if !names.insert(key) {
            faults.push(format!("{place} is twice in suite `{name}`"));
        }
        self::case(case, &place, flavour, faults);
    }
}

fn case(case: Node<'_, '_>, place: &str, flavour: Flavour, faults: &mut Faults) {
    let extended = flavour == Flavour::Extended;
    let more: &[&str] = if extended { &["file", "line"] } else { &[] };
    attributes(case, &["name", "classname", "time"], more, place, faults);
    for attribute in ["name", "classname"] {
        if case.attribute(attribute).is_none_or(|value| value.trim().is_empty()) {
            faults.push(format!("{place}: `{attribute}` is empty"));
        }
    }
    let properties: &[&str] = if extended { &["properties"] } else { &[] };
    let attempts: &[&str] = match flavour {
        Flavour::Surefire => &["flakyFailure", "flakyError", "rerunFailure", "rerunError"],
        Flavour::Strict | Flavour::Extended => &[],
    };
    let groups = [properties, &["skipped", "error", "failure"], attempts, &["system-out"], &["system-err"]];
    order(case, &groups, place, faults);
    let marks: Vec<Node<'_, '_>> =
        elements(case).filter(|node| ["skipped", "error", "failure"].contains(&node.tag_name().name())).collect();
    if marks.len() > 1 {
        faults.push(format!("{place} has {} results", marks.len()));
    }
    for mark in marks {
        let message = mark.attribute("message").unwrap_or_default().trim();
        // TestGrid drops a skip without a reason, and a skip with the reason "skipped".
        if message.is_empty() || message == "skipped" {
            faults.push(format!("{place}: `{}` has no reason", mark.tag_name().name()));
        }
        let skipped = mark.has_tag_name("skipped");
        if skipped && !extended && mark.has_attribute("type") {
            faults.push(format!("{place}: not every schema allows a type of `skipped`"));
        }
        if !skipped && mark.attribute("type").is_none_or(str::is_empty) {
            faults.push(format!("{place}: `{}` has no type", mark.tag_name().name()));
        }
    }
}

/// Requires the wanted attributes and refuses all others except the allowed ones. Checks `time` wherever it occurs.
fn attributes(node: Node<'_, '_>, wanted: &[&str], allowed: &[&str], place: &str, faults: &mut Faults) {
    for attribute in node.attributes().map(|attribute| attribute.name()) {
        if !wanted.contains(&attribute) && !allowed.contains(&attribute) {
            faults.push(format!("{place}: no schema allows the attribute `{attribute}`"));
        }
    }
    for name in wanted.iter().filter(|name| node.attribute(**name).is_none()) {
        faults.push(format!("{place}: `{name}` is missing"));
    }
    if !node.attribute("time").is_none_or(is_time) {
        faults.push(format!("{place}: `time` is not plain seconds with three digits"));
    }
}

/// Elements must come in the order of these groups; other elements are refused.
fn order(node: Node<'_, '_>, groups: &[&[&str]], place: &str, faults: &mut Faults) {
    let mut reached = 0;
    for name in elements(node).map(|child| child.tag_name().name()) {
        match groups.iter().position(|group| group.contains(&name)) {
            None => faults.push(format!("{place}: `{name}` does not belong here")),
            Some(at) if at < reached => faults.push(format!("{place}: `{name}` comes too late")),
            Some(at) => reached = at,
        }
    }
}

fn elements<'a, 'i>(node: Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(Node::is_element)
}

fn number(node: Node<'_, '_>, attribute: &str) -> Option<usize> {
    node.attribute(attribute)?.parse().ok()
}

/// `12.345`: some readers do not know exponents or thousands separators.
fn is_time(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.split_once('.').is_some_and(|(whole, part)| digits(whole) && digits(part) && part.len() == 3)
}

fn is_timestamp(text: &str) -> bool {
    text.len() == "2026-11-21T10:00:00Z".len() && text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"<testsuites name="x" tests="2" failures="1" errors="0" time="1.500">
<testsuite id="0" name="s" tests="2" failures="1" errors="0" skipped="1" time="1.500" timestamp="2026-11-21T10:00:00Z" hostname="h">
<testcase name="a" classname="c" time="1.500"><failure type="t" message="m">text</failure><system-out>o</system-out></testcase>
<testcase name="b" classname="c" time="0.000"><skipped message="m"/></testcase>
</testsuite></testsuites>"#;

    fn faults_of(text: &str, flavour: Flavour) -> Faults {
        faults(text.as_bytes(), flavour)
    }

    #[test]
    fn each_rule_refuses_its_violation() {
        assert_eq!(faults_of(GOOD, Flavour::Strict), Faults::new());
        #[rustfmt::skip]
        let table = [
            ("tests=\"2\" failures=\"1\" errors=\"0\" skipped", "tests=\"3\" failures=\"1\" errors=\"0\" skipped", "`tests` says 3, but there are 2"),
            ("skipped=\"1\"", "skipped=\"0\"", "`skipped` says 0"),
            ("name=\"x\" tests=\"2\"", "name=\"x\" tests=\"1\"", "not the sum"),
            (" id=\"0\"", "", "`id` is missing"),
            (" id=\"0\"", " id=\"0\" package=\"p\"", "`package`"),
            ("time=\"1.500\" timestamp", "time=\"1,500.0\" timestamp", "three digits"),
            ("10:00:00Z", "10:00:00", "YYYY-MM-DD"),
            ("name=\"b\"", "name=\"a\"", "twice"),
            ("name=\"b\"", "name=\" \"", "`name` is empty"),
            ("name=\"b\"", "name=\"b\" file=\"f\"", "`file`"),
            ("message=\"m\"/>", "message=\"skipped\"/>", "no reason"),
            ("<failure type=\"t\"", "<failure", "no type"),
            ("<skipped", "<skipped type=\"t\"", "not every schema"),
            ("<system-out>o</system-out>", "<error type=\"t\" message=\"m\"/>", "2 results"),
            ("text</failure>", "</failure><properties/>", "`properties` does not belong"),
            ("text</failure>", "\u{1}</failure>", "not a character"),
            ("text</failure>", "\u{ffff}</failure>", "not a character"),
            ("</testsuites>", "", "not well-formed"),
            ("<testcase name=\"a\"", "<system-err/><testcase name=\"a\"", "comes too late"),
        ];
        for (from, to, part) in table {
            let bad = GOOD.replacen(from, to, 1);
            assert_ne!(bad, GOOD, "{from}");
            let faults = faults_of(&bad, Flavour::Strict);
            assert!(faults.iter().any(|fault| fault.contains(part)), "{part}: {faults:?}");
        }
    }

    #[test]
    fn both_xml_readers_must_accept_the_file() {
        let unnamed = GOOD.replacen("<testsuite ", "<:testsuite ", 1);
        let faults = faults_of(&unnamed, Flavour::Strict);
        assert!(faults.iter().any(|fault| fault.contains("not every XML reader accepts")), "{faults:?}");
    }

    #[test]
    fn overflowing_counts_are_a_fault() {
        let count = usize::MAX.to_string();
        let suite = format!("<testsuite tests=\"{count}\" failures=\"{count}\" errors=\"{count}\"/>");
        let file = format!("<testsuites tests=\"{count}\">{suite}{suite}</testsuites>");
        let faults = faults_of(&file, Flavour::Strict);
        assert!(faults.iter().any(|fault| fault.contains("`tests` of the file is not the sum")), "{faults:?}");
    }

    #[test]
    fn flavour_allows_only_its_additions() {
        let extended = GOOD.replace("name=\"b\"", "name=\"b\" file=\"f\" line=\"1\"");
        let flaky = GOOD.replace("text</failure>", "</failure><rerunError type=\"t\" message=\"m\"/>");
        for (text, flavour, fine) in [
            (&extended, Flavour::Extended, true),
            (&extended, Flavour::Surefire, false),
            (&flaky, Flavour::Surefire, true),
            (&flaky, Flavour::Strict, false),
        ] {
            assert_eq!(faults_of(text, flavour).is_empty(), fine, "{flavour:?}");
        }
    }
}
