//! A JUnit file for each stage of a run: each phase, and each group of checks. For systems that show files one by one,
//! and for systems that expect `artifacts/junit_*.xml`.

use std::collections::BTreeMap;

use anyhow::Result;
use model::Event;

use super::{Entry, JunitOptions, SuiteBuilder, entries, profile, shard, told};
use crate::verdict;
use crate::view::View;

/// Name and bytes of each file: `junit_<arch>-<stage>.xml`, and `junit_<arch>-run.xml` about the run as a whole.
///
/// The files contain the cases of `junit.xml`, each case in one file, with the same names and classes.
pub fn stages(events: &[Event], options: &JunitOptions) -> Result<Vec<(String, Vec<u8>)>> {
    let view = View::of(events);
    let (phases, groups) = entries(&view, verdict::exit(events), &BTreeMap::new());
    let mut stages: Vec<(String, Vec<Entry>)> = Vec::new();
    for entry in phases {
        let name = entry.name.as_str().to_owned();
        match stages.iter_mut().find(|(stage, _)| *stage == name) {
            Some((_, entries)) => entries.push(entry),
            None => stages.push((name, vec![entry])),
        }
    }
    stages.extend(groups.into_iter().map(|(group, entries)| (group.to_owned(), entries)));
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for (stage, entries) in stages {
        let suite = format!("archproof.{}.{}{}.{stage}", view.arch(), view.provider(), shard(&view));
        let builder =
            SuiteBuilder { output: (stage == "run").then(|| told(&view)), ..SuiteBuilder::of(&view, &suite, entries) };
        let name = format!("junit_{}-{}{}", word(view.arch()), word(&stage), word(&shard(&view)));
        let taken = files.iter().filter(|(other, _)| other.starts_with(&name)).count();
        let number = if taken == 0 { String::new() } else { format!("_{taken:02}") };
        files.push((format!("{name}{number}.xml"), profile::written(vec![builder], options)?));
    }
    Ok(files)
}

/// Keeps the characters that every file system allows in a name. TestGrid splits names at underscores.
fn word(text: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    text.chars().take(60).map(kept).collect::<String>().replace('.', "-")
}
