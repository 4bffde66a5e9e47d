//! Makes names of files and anchors from arbitrary text.

use std::collections::BTreeSet;

/// Longest name in bytes, without the number that makes it unique.
const LONGEST: usize = 96;

/// Gives each text a unique name.
#[derive(Default)]
pub(super) struct Names(BTreeSet<String>);

impl Names {
    /// The plain name of a text, with a number if the name is already used.
    pub(super) fn unique(&mut self, raw: &str) -> String {
        let name = plain_name(raw);
        let mut unique = name.clone();
        let mut number = 1;
        // Some file systems do not distinguish `A` from `a`.
        while !self.0.insert(unique.to_lowercase()) {
            number += 1;
            unique = format!("{name}-{number}");
        }
        unique
    }
}

/// Letters, digits, `_`, `-` and inner dots. Never empty, never a hidden file.
pub(crate) fn plain_name(raw: &str) -> String {
    let mut name = String::new();
    for c in raw.chars() {
        let c = if c.is_ascii_alphanumeric() || "_.".contains(c) { c } else { '-' };
        if name.len() < LONGEST && !(c == '-' && name.ends_with('-')) && !(c == '.' && name.ends_with('.')) {
            name.push(c);
        }
    }
    let name = name.trim_matches(|c| c == '-' || c == '.');
    if name.is_empty() { "unnamed".into() } else { name.into() }
}

/// The file name of the picture of a case's watch streams in a run folder.
pub(crate) fn timeline_of(case: &str) -> String {
    format!("{}.svg", case.replace(['[', ']'], "-").trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        for (raw, wanted) in [
            ("storage.roundtrip[json]", "storage.roundtrip-json"),
            ("20261121T100000Z-all/arch", "20261121T100000Z-all-arch"),
            ("../../etc/passwd", "etc-passwd"),
            ("", "unnamed"),
            (".hidden", "hidden"),
            ("a\"b<c>\u{202e}", "a-b-c"),
        ] {
            assert_eq!(plain_name(raw), wanted);
        }
        assert!(plain_name(&"x".repeat(1 << 20)).len() <= LONGEST);
    }

    #[test]
    fn equal_names_get_numbers() {
        let mut names = Names::default();
        assert_eq!(["a", "A", "a/", "b"].map(|raw| names.unique(raw)), ["a", "A-2", "a-3", "b"]);
    }
}
