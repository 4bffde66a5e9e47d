//! The report of a differential run: text for people, `differential.json`, JUnit with a case for each group.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context;
use model::{ExpectedDifference, Outcome};
use report::{SingleCase, single_suite};
use serde::{Serialize, Serializer};

use crate::changes::{Change, shortened};
use crate::document::Document;
use crate::group::Key;

/// Changes of a group that the text shows.
const SHOWN: usize = 6;

/// Differences with one cause, and the smallest input that shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    #[serde(flatten)]
    pub key: Key,
    /// Inputs with this difference among those that were looked at.
    pub count: u64,
    /// The number of the first input, or None for a kept input.
    pub index: Option<u64>,
    #[serde(serialize_with = "text")]
    pub input: Document,
    #[serde(serialize_with = "text")]
    pub reference: Document,
    #[serde(serialize_with = "text")]
    pub tested: Document,
    pub changes: Vec<Change>,
    /// The rule that the answer of the side under test breaks, with any answer of the reference.
    pub violation: Option<String>,
    /// The entry of `differences:` that names it.
    pub expected: Option<ExpectedDifference>,
}

/// The facts and results of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub level: &'static str,
    /// GOARCH and execution of both sides: `ARCH, qemu-ARCH-static 7.2`.
    pub reference: String,
    pub tested: String,
    pub arch: String,
    pub against: String,
    pub seed: Option<u64>,
    pub started: String,
    pub seconds: f64,
    /// Inputs by subject.
    pub inputs: BTreeMap<String, u64>,
    pub groups: Vec<Group>,
    /// Subjects whose answers differ between two runs on one architecture.
    pub unstable: Vec<String>,
}

fn text<S: Serializer>(document: &Document, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(document)
}

impl Report {
    pub fn new_groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| group.expected.is_none())
    }

    /// Marks the expected groups.
    pub fn expect(&mut self, entries: &[ExpectedDifference], today: &str) {
        for group in &mut self.groups {
            group.expected = group.key.expected(entries, &self.arch, today).cloned();
        }
    }

    /// One line: what was compared, and the numbers.
    pub fn summary(&self) -> String {
        let (total, new) = (self.groups.len(), self.new_groups().count());
        let inputs: u64 = self.inputs.values().sum();
        let unstable = match self.unstable.len() {
            0 => String::new(),
            n => format!("; answers of {n} subjects vary on one architecture"),
        };
        format!(
            "{inputs} inputs of {} subjects in {:.0} s, {total} groups of differences and broken rules, {new} of them new{unstable}",
            self.inputs.len(),
            self.seconds,
        )
    }

    /// The whole report as text. `files` is the folder of the inputs.
    pub fn text(&self, files: &Path) -> String {
        let mut out = format!("{} against {}\n", self.tested, self.reference);
        for (i, group) in self.groups.iter().enumerate() {
            let state = group.expected.as_ref().map_or_else(|| "NEW".to_owned(), |e| format!("expected, {}", e.issue));
            // Writing to a String cannot fail.
            let _ = writeln!(out, "\n{} [{state}]", group.key);
            let _ = writeln!(out, "  input   {}", shortened(&group.input));
            if let Some(violation) = &group.violation {
                let _ = writeln!(out, "  {}  {violation}", self.arch);
            }
            for change in group.changes.iter().take(SHOWN) {
                let _ = writeln!(out, "  {}/{}  {change}", self.against, self.arch);
            }
            if group.changes.len() > SHOWN {
                let _ = writeln!(out, "  and {} more places", group.changes.len() - SHOWN);
            }
            let file = files.join(file_name(i, group));
            let sides = format!("{} --against {}", selection(&self.arch), self.against);
            let _ = writeln!(out, "  repeat  cargo xtask differential {sides} --input {}", file.display());
        }
        for subject in &self.unstable {
            let _ = writeln!(out, "\n{subject}: answers vary between two runs on one architecture");
        }
        let _ = writeln!(out, "\n{}", self.summary());
        out
    }

    /// Writes `differential.json`, `differential.txt`, `junit.xml`, and a file for each group's input.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let inputs = folder.join("inputs");
        fs::create_dir_all(&inputs).with_context(|| format!("failed to create {}", inputs.display()))?;
        let write = |path: &Path, content: &[u8]| {
            fs::write(path, content).with_context(|| format!("failed to write {}", path.display()))
        };
        for (i, group) in self.groups.iter().enumerate() {
            write(&inputs.join(file_name(i, group)), kept(group).as_bytes())?;
        }
        write(&folder.join("differential.json"), &serde_json::to_vec_pretty(self)?)?;
        write(&folder.join("differential.txt"), self.text(&inputs).as_bytes())?;
        write(&folder.join("junit.xml"), &self.junit()?)
    }

    fn junit(&self) -> anyhow::Result<Vec<u8>> {
        let suite = format!("archproof.{}.differential.{}", self.arch, self.level);
        let case = |name: String, outcome, output| SingleCase { name, class: suite.clone(), outcome, output };
        let groups = self.groups.iter().map(|group| {
            let differs = || format!("{} differs from {}", self.arch, self.against);
            let message = group.violation.clone().unwrap_or_else(differs);
            let outcome = match &group.expected {
                Some(expected) => Outcome::ExpectedFailure { message, issue: expected.issue.clone() },
                None => Outcome::Failed { message, evidence: group.changes.iter().map(ToString::to_string).collect() },
            };
            case(group.key.to_string(), outcome, shortened(&group.input))
        });
        let equal = self.inputs.iter().filter(|(subject, _)| !self.groups.iter().any(|g| g.key.subject == **subject));
        let equal = equal.map(|(subject, inputs)| {
            let outcome = if self.unstable.contains(subject) {
                // No statement about the architecture, and no failure: the exit code is 0, too.
                Outcome::Skipped { need: "the same answers in two runs on one architecture".into() }
            } else {
                Outcome::Passed
            };
            case(subject.clone(), outcome, format!("{inputs} inputs"))
        });
        single_suite(&suite, &self.started, &groups.chain(equal).collect::<Vec<_>>())
    }
}

fn file_name(index: usize, group: &Group) -> String {
    format!("{:03}-{}.json", index + 1, group.key.subject)
}

/// A group in the format of `targets/differential/*.json`.
fn kept(group: &Group) -> String {
    let string = |text: &str| serde_json::Value::from(text);
    let about = string(&group.key.to_string());
    format!("{{\"subject\": {},\n \"about\": {about},\n \"input\": {}}}\n", string(&group.key.subject), group.input)
}

/// The options that select an architecture by its label: `--arch ARCH --cpu NAME`.
pub(crate) fn selection(label: &str) -> String {
    match label.split_once('-') {
        Some((arch, cpu)) => format!("--arch {arch} --cpu {cpu}"),
        None => format!("--arch {label}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Kept;

    fn report() -> Report {
        let (reference, tested) = (Document::parse("0").unwrap(), Document::parse("-1").unwrap());
        let group = Group {
            key: Key::of("a.b", "c", &reference, &tested),
            count: 2,
            index: Some(7),
            input: Document::parse(r#"{"replicas":1e30}"#).unwrap(),
            changes: crate::changes::changes(&reference, &tested),
            violation: None,
            reference,
            tested,
            expected: None,
        };
        Report {
            level: "library",
            reference: "one, native".into(),
            tested: "two, emulated".into(),
            arch: "two".into(),
            against: "one".into(),
            seed: Some(1),
            started: "2026-11-26T00:00:00Z".into(),
            seconds: 1.0,
            inputs: BTreeMap::from([("a.b".into(), 100), ("equal".into(), 50), ("varies".into(), 50)]),
            groups: vec![group],
            unstable: vec!["varies".into()],
        }
    }

    #[test]
    fn text_has_both_answers_and_the_command_that_repeats_it() {
        let text = report().text(Path::new("F"));
        for part in
            ["a.b (c): 0 and -1 [NEW]", r#"{"replicas":1e30}"#, "one/two  answer: 0 / -1", "--input F/001-a.b.json"]
        {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn expected_group_is_not_new() {
        let mut report = report();
        let entry = ExpectedDifference {
            subject: "a.b".into(),
            classes: vec![],
            arch: vec![],
            shows: vec!["0 and -1".into()],
            follows: vec![],
            reason: "r".into(),
            issue: "https://example.org/1".into(),
            expires: "2027-01-01".into(),
        };
        report.expect(std::slice::from_ref(&entry), "2026-12-01");
        assert_eq!(report.new_groups().count(), 0);
        let junit = String::from_utf8(report.junit().unwrap()).unwrap();
        assert!(junit.matches("<skipped").count() == 2 && !junit.contains("<failure"), "{junit}");
        report.expect(&[entry], "2027-01-02");
        assert!(String::from_utf8(report.junit().unwrap()).unwrap().contains("<failure"));
    }

    #[test]
    fn written_input_can_be_read_again() {
        let group = &report().groups[0];
        let kept = Kept::parse(&kept(group)).unwrap();
        assert_eq!((kept.subject.as_str(), &kept.input), ("a.b", &group.input));
    }
}
