//! A file with one suite of outcomes that do not belong to a run: the result of `cargo xtask compare`.

use anyhow::Result;
use model::Outcome;

use super::{Entry, JunitOptions, SuiteBuilder, profile};
use crate::text::XmlText;

/// A case of such a suite.
pub struct SingleCase {
    pub name: String,
    pub class: String,
    pub outcome: Outcome,
    /// Shown as the output of the case; empty: no output.
    pub output: String,
}

/// The bytes of a file with this one suite. Always contains a case: an empty suite becomes an error.
pub fn single_suite(name: &str, started: &str, cases: &[SingleCase]) -> Result<Vec<u8>> {
    let mut entries: Vec<Entry> = cases.iter().map(entry).collect();
    if entries.is_empty() {
        entries.push(Entry::error("compare", name, "nothing-ran", "there was nothing to compare"));
    }
    let (name, started) = (name.to_owned(), started.to_owned());
    let builder = SuiteBuilder { name, started, host: "unknown".into(), properties: Vec::new(), entries, output: None };
    profile::written(vec![builder], &JunitOptions::default())
}

fn entry(case: &SingleCase) -> Entry {
    let mut entry = Entry::new(&case.name, &case.class, 0.0, &case.outcome);
    if !case.output.is_empty() {
        entry.output = Some(XmlText::output(&case.output));
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_suite_is_red() {
        let text = |cases: &[SingleCase]| String::from_utf8(single_suite("s", "", cases).unwrap()).unwrap();
        assert!(text(&[]).contains("nothing-ran"));
        let failed = Outcome::Failed { message: "a]]>b".into(), evidence: vec!["00  01".into()] };
        let case = SingleCase { name: "n".into(), class: "c".into(), outcome: failed, output: String::new() };
        let seen = text(&[case]);
        assert!(seen.contains("<failure") && seen.contains("00  01"), "{seen}");
    }
}
