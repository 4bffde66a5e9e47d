//! JUnit files, through the `junit-report` crate.
//!
//! That crate writes names unescaped into attributes and texts unescaped into CDATA sections, so it only gets `XmlText`
//! (<https://github.com/bachp/junit-report-rs/issues/47>). `profile` adds what the crate cannot write (counts of skips,
//! properties, attempts). Names contain the architecture because Jenkins merges suites of equal names.

mod profile;
mod single;
mod stages;
mod suite_builder;

use std::collections::BTreeMap;

use anyhow::Result;
use model::{Event, Exit, Outcome};

use crate::joint::Attempt;
use crate::joint::Joint;
use crate::machine;
use crate::text::XmlText;
use crate::verdict;
use crate::view::{Case, Phase, View};

pub use single::{SingleCase, single_suite};
pub use stages::stages;
use suite_builder::SuiteBuilder;

/// The JUnit dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// The common subset of the schemas in use; every known consumer reads it.
    #[default]
    Strict,
    /// With attempts in the format of Maven's Surefire: `flakyFailure`, `rerunError` and so on.
    Surefire,
    /// With file and line of the check, and properties of each case. TestGrid makes metrics of numeric properties.
    Extended,
}

/// The source location of each check, by id: a file relative to the checkout, and a line.
pub type SourceLocations = BTreeMap<String, (String, usize)>;

/// Options for a JUnit file that do not come from the events.
#[derive(Clone, Debug, Default)]
pub struct JunitOptions {
    pub flavour: Flavour,
    /// For the flavour `Extended`.
    pub locations: SourceLocations,
}

/// The result element of a case in the file.
enum Mark {
    Success,
    Skipped,
    Failure,
    Error,
}

/// All data of one case in the file.
struct Entry {
    name: XmlText,
    class: XmlText,
    seconds: f64,
    mark: Mark,
    /// `conformance`, `infrastructure`, `timeout`, `interrupted`, `nothing-ran`; for a skip, `need` or
    /// `expected-failure`.
    kind: &'static str,
    message: XmlText,
    text: XmlText,
    output: Option<XmlText>,
    /// The check's id.
    check: String,
    properties: Vec<(String, String)>,
    attempts: Vec<Attempt>,
}

/// The bytes of the file: a suite for the phases and one for each group of checks. Always contains a case.
pub fn junit(events: &[Event], options: &JunitOptions) -> Result<Vec<u8>> {
    let view = View::of(events);
    let prefix = format!("archproof.{}.{}{}", view.arch(), view.provider(), shard(&view));
    let (entries, groups) = entries(&view, verdict::exit(events), &BTreeMap::new());
    let phases =
        SuiteBuilder { output: Some(told(&view)), ..SuiteBuilder::of(&view, &format!("{prefix}.phases"), entries) };
    let groups =
        groups.into_iter().map(|(group, entries)| SuiteBuilder::of(&view, &format!("{prefix}.{group}"), entries));
    profile::written(std::iter::once(phases).chain(groups).collect(), options)
}

/// The file for several runs: a suite for each, named after its architecture and provider. Names and classes of the
/// cases are those of the run's own file.
pub fn joint_junit(joint: &Joint, options: &JunitOptions) -> Result<Vec<u8>> {
    let mut builders = Vec::new();
    for child in &joint.children {
        let view = View::of(&child.events);
        let class = format!("archproof.{}.phases", child.arch);
        let mut all = Vec::new();
        if !child.events.is_empty() {
            let (phases, groups) = entries(&view, verdict::exit(&child.events), &child.earlier);
            all.extend(phases.into_iter().chain(groups.into_iter().flat_map(|(_, entries)| entries)));
        }
        if child.trouble.is_some() || !all.iter().any(Entry::is_red) && child.exit != Exit::Ok {
            let why = child.trouble.clone().unwrap_or_else(|| format!("the run ended with: {}", child.exit));
            let kind = if child.exit == Exit::Interrupted { "interrupted" } else { "infrastructure" };
            all.push(Entry::error("harness", &class, kind, &why));
        }
        let name = format!("archproof.{}.{}{}", child.arch, child.provider, shard(&view));
        builders.push(SuiteBuilder { output: Some(told(&view)), ..SuiteBuilder::of(&view, &name, all) });
    }
    profile::written(builders, options)
}

/// `.shard-2-of-4`, or nothing. It is part of the names of suites, because Jenkins would merge these, and of the names
/// of everything that every shard has. A check keeps its name and class in any shard.
fn shard(view: &View<'_>) -> String {
    let shard = view.run.and_then(|run| run.shard.as_deref());
    shard.map_or_else(String::new, |shard| format!(".shard-{}", shard.replace('/', "-of-")))
}

/// The cases of the phases, and those of each group of checks.
fn entries<'a>(
    view: &View<'a>,
    exit: Exit,
    earlier: &BTreeMap<String, Vec<Attempt>>,
) -> (Vec<Entry>, Vec<(&'a str, Vec<Entry>)>) {
    let class = format!("archproof.{}", view.arch());
    let of_phases = format!("{class}{}.phases", shard(view));
    let mut entries = phases(view, &of_phases);
    let groups: Vec<(&str, Vec<Entry>)> = view
        .by_group()
        .into_iter()
        .map(|(group, cases)| {
            let class = format!("{class}.{group}");
            (group, cases.iter().map(|case| checked(case, &class, earlier.get(case.name))).collect())
        })
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
            // A failed build or boot says nothing about conformance.
            (entry.mark, entry.kind) = (Mark::Error, "infrastructure");
        }
        entry
    };
    view.phases.iter().map(entry).collect()
}

fn checked(case: &Case<'_>, class: &str, earlier: Option<&Vec<Attempt>>) -> Entry {
    let mut entry = Entry::new(case.name, class, case.seconds, &case.outcome);
    entry.attempts = earlier.cloned().unwrap_or_default();
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
    entry.check = facts.check.to_owned();
    let words = [
        ("level", facts.level_word()),
        ("profile", facts.profile),
        ("requirement", facts.requirement),
        ("source", facts.source),
        ("repeat", facts.repeat),
    ];
    entry.properties.extend(words.map(|(name, value)| (name.to_owned(), value.to_owned())));
    entry.properties.extend(facts.counters.iter().map(|(name, number)| (name.clone(), number.to_string())));
    entry
}

/// The case `run`: it passes only if the run finished. If the verdict is red but no other case is, this case is red.
fn whole_run(view: &View<'_>, class: &str, exit: Exit, red: bool) -> Entry {
    let error = |kind, why: String| Entry::error("run", class, kind, &why);
    match view.cut_short() {
        Some(why) => error("interrupted", why),
        None if exit == Exit::NothingRan => error("nothing-ran", format!("nothing ran: {}", view.counts().sentence())),
        None if exit != Exit::Ok && !red => error("infrastructure", format!("the run ended with: {exit}")),
        None => Entry::new("run", class, 0.0, &Outcome::Passed),
    }
}

/// The facts and notes, for a reader who has only this file.
fn told(view: &View<'_>) -> XmlText {
    let mut lines: Vec<String> = facts(view).into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    if let Some(machine) = view.machine() {
        lines.extend(machine::notes(machine).iter().map(|note| format!("note: {note}")));
    }
    lines.extend(view.notes.iter().map(|note| format!("note: {note}")));
    XmlText::output(lines.join("\n"))
}

/// The facts without the notes, as names and values.
fn facts(view: &View<'_>) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> = Vec::new();
    let mut fact = |name: &str, value: &str| facts.push((name.to_owned(), value.to_owned()));
    if let Some(run) = view.run {
        fact("run", &run.id);
        fact("harness", &run.harness);
        fact("host", &run.host);
        run.sources.iter().for_each(|(set, source)| fact(&format!("source of {set}"), source));
        run.shard.iter().for_each(|shard| fact("shard", shard));
        fact("seed", &run.seed.to_string());
        fact("repeat", &run.command);
    }
    if let Some(booted) = &view.booted {
        fact("execution", booted.execution);
        fact("factor", &booted.factor.to_string());
        booted.versions.iter().for_each(|(server, version)| fact(&format!("version of {server}"), version));
    }
    if let Some(machine) = view.machine() {
        machine::facts(machine).iter().for_each(|(name, value)| fact(name, value));
    }
    facts
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
        let text = match outcome {
            Outcome::Failed { evidence, .. } => XmlText::failure(format!("{message}\n{}", evidence.join("\n"))),
            _ => XmlText::failure(&message),
        };
        Entry {
            name: XmlText::name(name),
            class: XmlText::name(class),
            seconds,
            mark,
            kind,
            text,
            message: XmlText::message(message),
            output: None,
            check: String::new(),
            properties: Vec::new(),
            attempts: Vec::new(),
        }
    }

    /// An error that does not come from the outcome of a case or phase.
    fn error(name: &str, class: &str, kind: &'static str, why: &str) -> Entry {
        let (message, text) = (XmlText::message(why), XmlText::failure(why));
        Entry { mark: Mark::Error, kind, message, text, ..Entry::new(name, class, 0.0, &Outcome::Passed) }
    }

    fn is_red(&self) -> bool {
        matches!(self.mark, Mark::Failure | Mark::Error)
    }
}

#[cfg(test)]
mod tests;
