//! The forms of names in target files, and the rules for names that several files share.

use crate::document::Document;
use crate::tree::Step;

/// See [`is_name`].
pub(super) fn name(file: &mut Document<'_>, path: &[Step], text: &str) {
    file.require(is_name(text), path, "must be lower-case letters, digits and -");
}

/// A name that none of the earlier ones equals.
pub(super) fn once(file: &mut Document<'_>, path: &[Step], name: &str, earlier: impl IntoIterator<Item: AsRef<str>>) {
    let is_new = earlier.into_iter().all(|earlier| earlier.as_ref() != name);
    file.require(is_new, path, format!("{name} is given twice; delete one of the two"));
}

/// One of the names that another part of the data defines.
pub(super) fn one_of<'a>(file: &mut Document<'_>, path: &[Step], name: &str, valid: impl IntoIterator<Item = &'a str>) {
    let valid: Vec<&str> = valid.into_iter().collect();
    file.require(valid.contains(&name), path, format!("{name} is not one of {}", valid.join(", ")));
}

/// An architecture. A folder without architectures is reported elsewhere.
pub(super) fn architecture(file: &mut Document<'_>, path: &[Step], name: &str, architectures: &[&str]) {
    if !architectures.is_empty() {
        one_of(file, path, name, architectures.iter().copied());
    }
}

/// Names that become folders, flags and parts of reports: `split-events`.
pub(super) fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Names of environment variables, in the form that the data uses.
pub(super) fn is_env_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// A path below a folder that cannot leave it.
pub(super) fn is_relative_path(text: &str) -> bool {
    !text.is_empty() && text.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// "MAJOR.MINOR" as numbers.
pub(crate) fn major_minor(text: &str) -> Option<(u32, u32)> {
    let number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok()).flatten();
    let (major, minor) = text.split_once('.')?;
    Some((number(major)?, number(minor)?))
}

pub(super) fn is_major_minor(text: &str) -> bool {
    major_minor(text).is_some()
}

/// The names in `{name}`. Braces around anything else, as in JSON, are not placeholders.
pub(super) fn placeholders(text: &str) -> Vec<&str> {
    let is_placeholder = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    let after_braces = text.split('{').skip(1);
    after_braces
        .filter_map(|rest| rest.split_once('}'))
        .map(|(name, _)| name)
        .filter(|name| is_placeholder(name))
        .collect()
}

/// The problem text for an unknown placeholder.
pub(super) fn unknown_placeholder(name: &str, known: &[String]) -> String {
    let known: Vec<_> = known.iter().map(|name| format!("{{{name}}}")).collect();
    format!("unknown placeholder {{{name}}}; known here: {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_are_placeholders() {
        for (text, expected) in [
            ("", vec![]),
            ("-X a.b={commit}", vec!["commit"]),
            ("{run}/a and {store.main}", vec!["run", "store.main"]),
            ("{{run}}", vec!["run"]),
            ("identity: {}", vec![]),
            (r#"{"a": {"b": 1}}"#, vec![]),
            (r#"{"a": "{namespace}"}"#, vec!["namespace"]),
            ("{run", vec![]),
            ("{a: b}", vec![]),
        ] {
            assert_eq!(placeholders(text), expected, "{text}");
        }
    }

    #[test]
    fn forms_of_names() {
        for (is_form, good, bad) in [
            (is_name as fn(&str) -> bool, "riscv64 split-events", " |-a|a-|A|a_b|a b|a/b|ä"),
            (is_env_name, "GOAMD64 ETCD_UNSUPPORTED_ARCH", "|1A|a|A-B|_A"),
            (is_relative_path, "server staging/src/k8s.io", "|/a|a/|a//b|../a|a/.."),
            (is_major_minor, "10.0 7.2", "|10|10.|.2|10.0.2|v10.0|a.b"),
        ] {
            good.split(' ').for_each(|text| assert!(is_form(text), "{text:?} is good"));
            bad.split('|').for_each(|text| assert!(!is_form(text), "{text:?} is bad"));
        }
    }
}
