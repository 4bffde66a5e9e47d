//! A suite before it is written: makes names unique and cuts texts to a size that consumers accept.

use std::collections::BTreeSet;

use junit_report::{Duration, OffsetDateTime, TestCase, TestResult, TestSuite};

use super::{Entry, Mark, facts};
use crate::text::{XmlText, duration, millis};
use crate::view::View;

/// Size of all texts of a file. GitLab refuses 30 MB, TestGrid 100 MB; names and attributes come on top.
const TEXT_BYTES: usize = 16 << 20;
/// Texts are not cut below this size: with so many cases the file is large in any case.
const LEAST_BYTES: usize = 256;

/// A suite with its cases.
pub(super) struct SuiteBuilder {
    pub(super) name: String,
    /// RFC 3339.
    pub(super) started: String,
    pub(super) host: String,
    pub(super) properties: Vec<(String, String)>,
    pub(super) entries: Vec<Entry>,
    pub(super) output: Option<XmlText>,
}

impl SuiteBuilder {
    pub(super) fn of(view: &View<'_>, name: &str, entries: Vec<Entry>) -> SuiteBuilder {
        SuiteBuilder {
            name: name.to_owned(),
            started: view.started.to_owned(),
            // Kernel and machine say more than "localhost", the crate's default, and do not disclose a host name.
            host: view.run.map_or("unknown", |run| &run.host).to_owned(),
            properties: facts(view),
            entries,
            output: None,
        }
    }

    /// The suite in the types of the `junit-report` crate.
    pub(super) fn suite(&self) -> TestSuite {
        let mut suite = TestSuite::new(XmlText::name(&self.name).as_str());
        // `profile` writes the real timestamp; the crate's default is the current time.
        suite.timestamp = OffsetDateTime::UNIX_EPOCH;
        suite.testcases = self.entries.iter().map(test_case).collect();
        suite.system_out = self.output.as_ref().map(XmlText::cdata);
        suite
    }

    pub(super) fn count(&self, wanted: impl Fn(&Mark) -> bool) -> usize {
        self.entries.iter().filter(|entry| wanted(&entry.mark)).count()
    }

    pub(super) fn millis(&self) -> u64 {
        self.entries.iter().map(|entry| millis(entry.seconds)).sum()
    }

    /// Adds replaced attempts to the output, for readers without an element for attempts.
    pub(super) fn tell_attempts(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| !entry.attempts.is_empty()) {
            let mut text = entry.output.as_ref().map_or_else(String::new, |output| format!("{}\n", output.as_str()));
            for attempt in &entry.attempts {
                let (word, message) = (attempt.outcome.word(), attempt.outcome.message());
                let after = duration(attempt.seconds);
                text += &format!("replaced attempt in run {}: {word} after {after}: {message}\n", attempt.run);
            }
            entry.output = Some(XmlText::output(text));
        }
    }
}

/// Renames suites of equal names, and cases of equal name and class in one suite: GitLab drops duplicates, Jenkins
/// merges them.
pub(super) fn tell_apart(builders: &mut [SuiteBuilder]) {
    let mut suites = BTreeSet::new();
    for builder in builders {
        let mut cases = BTreeSet::new();
        builder.name = unused(&builder.name, |name| suites.insert(XmlText::name(name)));
        for entry in &mut builder.entries {
            let class = entry.class.clone();
            let given = entry.name.as_str();
            let given = if given.trim().is_empty() { "(no name)" } else { given };
            let name = unused(given, |name| cases.insert((class.clone(), XmlText::name(name))));
            entry.name = XmlText::name(name);
        }
    }
}

fn unused(name: &str, mut insert: impl FnMut(&str) -> bool) -> String {
    if insert(name) {
        return name.to_owned();
    }
    // The number is in front: at the end, a cut of a long name would remove it.
    let other = |number: usize| format!("({number}) {name}");
    let numbers = 2..usize::MAX;
    numbers.map(other).find(|name| insert(name)).unwrap_or_default()
}

/// Cuts the longest texts until the sum is small enough.
pub(super) fn fit(builders: &mut [SuiteBuilder]) {
    let texts = |builder: &SuiteBuilder| -> Vec<usize> {
        let of_entry = |entry: &Entry| [entry.text_bytes(), entry.output.as_ref().map_or(0, |o| o.as_str().len())];
        builder.entries.iter().flat_map(of_entry).collect()
    };
    let lengths: Vec<usize> = builders.iter().flat_map(texts).collect();
    let all = |limit: usize| lengths.iter().map(|length| length.min(&limit)).sum::<usize>();
    let mut limit = lengths.iter().copied().max().unwrap_or(0);
    if all(limit) <= TEXT_BYTES {
        return;
    }
    while limit > LEAST_BYTES && all(limit) > TEXT_BYTES {
        limit /= 2;
    }
    for entry in builders.iter_mut().flat_map(|builder| &mut builder.entries) {
        entry.text = entry.text.cut(limit);
        entry.output = entry.output.as_ref().map(|output| output.cut(limit));
    }
}

impl Entry {
    /// Size of the text in the file: a pass has no text.
    fn text_bytes(&self) -> usize {
        if matches!(self.mark, Mark::Success) { 0 } else { self.text.as_str().len() }
    }
}

/// The only place that passes texts to the crate: attributes unchanged, bodies as CDATA.
fn test_case(entry: &Entry) -> TestCase {
    let type_ = entry.kind.to_owned();
    let message = entry.message.as_str().to_owned();
    let cause = Some(entry.text.cdata());
    let mut case = TestCase::success(entry.name.as_str(), Duration::ZERO);
    case.time = Duration::milliseconds(i64::try_from(millis(entry.seconds)).expect("millis gives at most 1e12"));
    case.set_classname(entry.class.as_str());
    case.system_out = entry.output.as_ref().map(XmlText::cdata);
    case.result = match entry.mark {
        Mark::Success => TestResult::Success,
        Mark::Skipped => TestResult::SkippedWithCause { type_, message, cause },
        Mark::Failure => TestResult::Failure { type_, message, cause },
        Mark::Error => TestResult::Error { type_, message, cause },
    };
    case
}
