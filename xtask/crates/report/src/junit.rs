//! `junit.xml`, through the `junit-report` crate.
//!
//! That crate writes names raw into attributes and texts raw into CDATA sections, so nothing reaches it but `XmlText`
//! (<https://github.com/bachp/junit-report-rs/issues/47>). It has no properties: the facts of the run are the output of
//! the suite `phases`. Names carry the architecture because Jenkins merges suites of equal names.

mod single;

use anyhow::{Result, anyhow};
use junit_report::{Duration, OffsetDateTime, Report, TestCase, TestResult, TestSuite};
use model::{Event, Exit, Outcome};

use crate::joint::Joint;
use crate::machine;
use crate::text::{XmlText, millis};
use crate::verdict;
use crate::view::{Case, Phase, View};

pub use single::{SingleCase, single_suite};

/// How a case stands in the file.
enum Mark {
    Success,
    Skipped,
    Failure,
    Error,
}

/// Everything that the crate is given of one case.
struct Entry {
    name: XmlText,
    class: XmlText,
    seconds: f64,
    mark: Mark,
    /// `conformance`, `infrastructure`, `timeout`, `interrupted`, `nothing-ran`; `need` and `expected-failure` of a skip.
    kind: &'static str,
    message: XmlText,
    text: XmlText,
    output: Option<XmlText>,
}

/// The file's bytes: a suite for the phases and one for each group of checks. Never without a case.
pub fn junit(events: &[Event]) -> Result<Vec<u8>> {
    let view = View::of(events);
    let prefix = format!("archproof.{}.{}{}", view.arch(), view.provider(), shard(&view));
    let mut report = Report::new();
    let (entries, groups) = entries(&view, verdict::exit(events));
    let mut suite = suite(&view, &format!("{prefix}.phases"), entries);
    suite.system_out = Some(XmlText::output(facts(&view)).cdata());
    report.add_testsuite(suite);
    for (group, entries) in groups {
        report.add_testsuite(self::suite(&view, &format!("{prefix}.{group}"), entries));
    }
    written(&report)
}

/// The file for several runs: a suite for each, named after its architecture and provider. Names and classes of the
/// cases are those of the run's own file.
pub(crate) fn joint_junit(joint: &Joint) -> Result<Vec<u8>> {
    let mut report = Report::new();
    for child in &joint.children {
        let view = View::of(&child.events);
        let class = format!("archproof.{}.phases", child.arch);
        let mut all = Vec::new();
        if !child.events.is_empty() {
            let (phases, groups) = entries(&view, verdict::exit(&child.events));
            all.extend(phases.into_iter().chain(groups.into_iter().flat_map(|(_, entries)| entries)));
        }
        if child.trouble.is_some() || !all.iter().any(Entry::is_red) && child.exit != Exit::Ok {
            let why = child.trouble.clone().unwrap_or_else(|| format!("the run ended with: {}", child.exit));
            let kind = if child.exit == Exit::Interrupted { "interrupted" } else { "infrastructure" };
            all.push(Entry::error("harness", &class, kind, &why));
        }
        let mut suite = suite(&view, &format!("archproof.{}.{}{}", child.arch, child.provider, shard(&view)), all);
        suite.system_out = Some(XmlText::output(facts(&view)).cdata());
        report.add_testsuite(suite);
    }
    written(&report)
}

fn written(report: &Report) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    report.write_xml(&mut bytes).map_err(|error| anyhow!("cannot make junit.xml: {error}"))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// `.shard-2-of-4`, or nothing. It is in the names of suites, which Jenkins would merge, and of what every shard has;
/// a check keeps its name and class, whichever shard it falls into.
fn shard(view: &View<'_>) -> String {
    let shard = view.run.and_then(|run| run.shard.as_deref());
    shard.map_or_else(String::new, |shard| format!(".shard-{}", shard.replace('/', "-of-")))
}

/// The cases of the phases, and those of each group of checks.
fn entries<'a>(view: &View<'a>, exit: Exit) -> (Vec<Entry>, Vec<(&'a str, Vec<Entry>)>) {
    let class = format!("archproof.{}", view.arch());
    let of_phases = format!("{class}{}.phases", shard(view));
    let mut entries = phases(view, &of_phases);
    let groups: Vec<(&str, Vec<Entry>)> = view
        .by_group()
        .into_iter()
        .map(|(group, cases)| (group, cases.iter().map(|case| checked(case, &format!("{class}.{group}"))).collect()))
        .collect();
    let red = entries.iter().chain(groups.iter().flat_map(|(_, entries)| entries)).any(Entry::is_red);
    entries.push(whole_run(view, &of_phases, exit, red));
    (entries, groups)
}

fn phases(view: &View<'_>, class: &str) -> Vec<Entry> {
    let entry = |phase: &Phase<'_>| {
        let mut entry = Entry::new(phase.name, class, phase.seconds, &phase.outcome());
        if phase.ended.is_none() {
            entry.kind = "interrupted";
        } else if matches!(entry.mark, Mark::Failure) && phase.name != "suite" {
            // A build or boot that failed says nothing about the product's promises.
            (entry.mark, entry.kind) = (Mark::Error, "infrastructure");
        }
        if let Some(Outcome::Failed { message, evidence }) = phase.ended {
            entry.text = XmlText::failure(format!("{message}\n{}", evidence.join("\n")));
        }
        entry
    };
    view.phases.iter().map(entry).collect()
}

fn checked(case: &Case<'_>, class: &str) -> Entry {
    let mut entry = Entry::new(case.name, class, case.seconds, &case.outcome);
    let Some(facts) = &case.facts else {
        entry.kind = "interrupted";
        return entry;
    };
    let mut text = format!("Requirement ({}): {}\n", facts.level_word(), facts.requirement);
    text += &format!("Outcome: {}\nMessage: {}\n", case.outcome.word(), case.outcome.message());
    if let Outcome::Failed { evidence, .. } = &*case.outcome {
        text += &format!("Evidence:\n  {}\n", evidence.join("\n  "));
    }
    text += &format!("Source: {}\nProfile: {}\nRepeat: {}\n", facts.source, facts.profile, facts.repeat);
    entry.text = XmlText::failure(text);
    if !facts.counters.is_empty() {
        let lines: Vec<String> = facts.counters.iter().map(|(name, number)| format!("{name}: {number}")).collect();
        entry.output = Some(XmlText::output(lines.join("\n")));
    }
    entry
}

/// The case `run`: it ends well only when the run came to its end, and is red when the verdict is and nothing else.
fn whole_run(view: &View<'_>, class: &str, exit: Exit, red: bool) -> Entry {
    let passed = || Entry::new("run", class, 0.0, &Outcome::Passed);
    let error = |kind, why: String| Entry::error("run", class, kind, &why);
    match view.cut_short() {
        Some(why) => error("interrupted", why),
        None if exit == Exit::NothingRan => error("nothing-ran", format!("nothing ran: {}", view.counts().sentence())),
        None if exit != Exit::Ok && !red => error("infrastructure", format!("the run ended with: {exit}")),
        None => passed(),
    }
}

/// What a reader of the file alone must know.
fn facts(view: &View<'_>) -> String {
    let mut lines = Vec::new();
    if let Some(run) = view.run {
        lines.extend([format!("run: {}", run.id), format!("harness: {}", run.harness), format!("host: {}", run.host)]);
        lines.extend(run.sources.iter().map(|(set, source)| format!("source of {set}: {source}")));
        lines.extend(run.shard.iter().map(|shard| format!("shard: {shard}")));
        lines.extend([format!("seed: {}", run.seed), format!("repeat: {}", run.command)]);
    }
    if let Some(booted) = &view.booted {
        lines.extend([format!("execution: {}", booted.execution), format!("factor: {}", booted.factor)]);
        lines.extend(booted.versions.iter().map(|(server, version)| format!("version of {server}: {version}")));
    }
    if let Some(machine) = view.machine() {
        lines.extend(machine::facts(machine).into_iter().map(|(name, value)| format!("{name}: {value}")));
        lines.extend(machine::notes(machine).iter().map(|note| format!("note: {note}")));
    }
    lines.extend(view.notes.iter().map(|note| format!("note: {note}")));
    lines.join("\n")
}

impl Entry {
    fn new(name: &str, class: &str, seconds: f64, outcome: &Outcome) -> Entry {
        let (mark, kind, message) = match outcome {
            Outcome::Passed => (Mark::Success, "", String::new()),
            Outcome::Failed { .. } | Outcome::UnexpectedPass { .. } => {
                (Mark::Failure, "conformance", outcome.message())
            }
            Outcome::Errored { .. } => (Mark::Error, "infrastructure", outcome.message()),
            Outcome::TimedOut { .. } => (Mark::Error, "timeout", outcome.message()),
            Outcome::Skipped { .. } => (Mark::Skipped, "need", outcome.message()),
            Outcome::ExpectedFailure { message, issue } => {
                (Mark::Skipped, "expected-failure", format!("expected failure: {message} ({issue})"))
            }
        };
        Entry {
            name: XmlText::name(name),
            class: XmlText::name(class),
            seconds,
            mark,
            kind,
            text: XmlText::failure(&message),
            message: XmlText::message(message),
            output: None,
        }
    }

    /// An error that no outcome of a case or phase stands for.
    fn error(name: &str, class: &str, kind: &'static str, why: &str) -> Entry {
        let (message, text) = (XmlText::message(why), XmlText::failure(why));
        Entry { mark: Mark::Error, kind, message, text, ..Entry::new(name, class, 0.0, &Outcome::Passed) }
    }

    fn is_red(&self) -> bool {
        matches!(self.mark, Mark::Failure | Mark::Error)
    }
}

fn suite(view: &View<'_>, name: &str, entries: Vec<Entry>) -> TestSuite {
    let mut suite = TestSuite::new(XmlText::name(name).as_str());
    // Jenkins would put it in front of the name.
    suite.package = String::new();
    // The crate's default is "localhost"; the kernel and machine say more and name nobody's computer.
    suite.hostname = XmlText::message(view.run.map_or("unknown", |run| &run.host)).as_str().to_owned();
    suite.timestamp = timestamp(view.started);
    suite.testcases = entries.into_iter().map(test_case).collect();
    suite
}

/// The only place where texts pass into the crate: attributes as they are, bodies as CDATA.
fn test_case(entry: Entry) -> TestCase {
    let type_ = entry.kind.to_owned();
    let message = entry.message.as_str().to_owned();
    let cause = Some(entry.text.cdata());
    let mut case = TestCase::success(entry.name.as_str(), Duration::ZERO);
    case.time = Duration::milliseconds(i64::try_from(millis(entry.seconds)).expect("millis gives at most 1e12"));
    case.set_classname(entry.class.as_str());
    case.system_out = entry.output.map(|output| output.cdata());
    case.result = match entry.mark {
        Mark::Success => TestResult::Success,
        Mark::Skipped => TestResult::SkippedWithCause { type_, message, cause },
        Mark::Failure => TestResult::Failure { type_, message, cause },
        Mark::Error => TestResult::Error { type_, message, cause },
    };
    case
}

/// Whole seconds; 1970 for what is no time (the crate panics on years that RFC 3339 cannot write).
fn timestamp(text: &str) -> OffsetDateTime {
    let seconds = text.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
    OffsetDateTime::from_unix_timestamp(seconds.max(0)).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
