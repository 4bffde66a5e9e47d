//! The reports of runs that were started together: a summary on the console, `summary.md`, `run.json`.
//!
//! Each run keeps its own folder with all files. The joint reports count and link to these folders; they repeat only
//! unexpected results in full. The joint `junit.xml` is written by `junit`, like that of a single run.

use std::collections::BTreeMap;

use model::{Event, Exit, Outcome, Timestamp};
use serde::Serialize;

use crate::hardware;
use crate::markdown::{FILE_BYTES, cell, details, fenced};
use crate::text::{cut_middle, duration, plain_line, pretty, title};
use crate::verdict::{self, Verdict, worse};
use crate::view::View;

/// Longest explanation in a line.
const LINE_BYTES: usize = 400;

/// Runs that were started together.
#[derive(Clone, Debug, Default)]
pub struct Joint {
    /// Name of the common folder.
    pub id: String,
    pub started: Timestamp,
    /// The command line that repeats all of these runs.
    pub command: String,
    pub seconds: f64,
    /// `2/4`, see [`model::RunInfo`].
    pub shard: Option<String>,
    /// The largest number of runs at the same time.
    pub jobs: usize,
    /// In the order in which the user requested them.
    pub children: Vec<Child>,
}

/// A result that was replaced by the result of another attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The run that the result is from.
    pub run: String,
    pub outcome: Outcome,
    pub seconds: f64,
}

/// One of the runs.
#[derive(Clone, Debug)]
pub struct Child {
    /// GOARCH under test.
    pub arch: String,
    pub provider: String,
    /// Empty: the run did not begin.
    pub events: Vec<Event>,
    /// Why the run did not begin, or what is wrong with its record.
    pub trouble: Option<String>,
    pub exit: Exit,
    /// The folder of the run's own reports, relative to the joint ones; None without reports, or if they are elsewhere.
    pub folder: Option<String>,
    /// Replaced results, by case; see [`crate::merge`].
    pub earlier: BTreeMap<String, Vec<Attempt>>,
}

/// The fields are in the order of the written keys.
#[derive(Serialize)]
struct JointFile<'a> {
    id: &'a str,
    started: &'a str,
    command: &'a str,
    shard: Option<&'a str>,
    jobs: usize,
    exit: Verdict,
    seconds: f64,
    children: Vec<ChildEntry<'a>>,
}

#[derive(Serialize)]
struct ChildEntry<'a> {
    arch: &'a str,
    provider: &'a str,
    /// The run's own record, relative to this file; null if the run did not begin.
    record: Option<String>,
    exit: Verdict,
    trouble: Option<&'a str>,
    seconds: Option<f64>,
    execution: Option<&'a str>,
    factor: Option<f64>,
    planned: usize,
    counts: BTreeMap<&'static str, usize>,
}

impl Joint {
    /// The worst exit of all runs; `NothingRan` without a run.
    pub fn exit(&self) -> Exit {
        self.children.iter().map(|child| child.exit).reduce(worse).unwrap_or(Exit::NothingRan)
    }

    /// Pretty JSON with a final newline.
    pub fn run_json(&self) -> String {
        pretty(&JointFile {
            id: &self.id,
            started: &self.started,
            command: &self.command,
            shard: self.shard.as_deref(),
            jobs: self.jobs,
            exit: Verdict::of(self.exit()),
            seconds: self.seconds,
            children: self.children.iter().map(Child::entry).collect(),
        })
    }

    /// The verdict, one line for each run, then the folder. The last line has no newline.
    pub fn summary(&self, folder: &str) -> String {
        let exit = self.exit();
        let total = duration(self.seconds);
        let subject = plain_line(&self.subject(), LINE_BYTES);
        let mut text = format!("{subject}: {exit} (exit {}) in {total}", exit.code());
        // A width above 65,535 panics, and the name is foreign.
        let width = self.children.iter().map(|child| child.arch.len().min(LINE_BYTES)).max().unwrap_or_default();
        for child in &self.children {
            let view = View::of(&child.events);
            let seconds = view.finished.map_or_else(String::new, |(_, seconds)| format!(" in {}", duration(seconds)));
            text += &format!("\n  {:width$}  {}{seconds}; {}", child.arch, child.exit, view.counts().sentence());
            if let Some(trouble) = &child.trouble {
                text += &format!("; {}", plain_line(trouble, LINE_BYTES));
            }
        }
        let folder = plain_line(folder, LINE_BYTES);
        text + &format!("\n  files: {folder} (summary.md, junit.xml, run.json, a folder each)")
    }

    /// The Markdown page: a table of the runs, then all unexpected results, run by run, then the limits of the runs.
    pub fn markdown(&self) -> String {
        let exit = self.exit();
        let mut page = format!("# {}: {} (exit {})\n\n", cell(&self.subject()), title(&exit.to_string()), exit.code());
        page += "| architecture | verdict | cases | execution | slowdown | time |\n\
                 | --- | --- | --- | --- | ---: | ---: |\n";
        self.children.iter().for_each(|child| page += &child.row());
        page += &format!("\nRun {}, {}", cell(&self.id), duration(self.seconds));
        page += &self.shard.iter().map(|shard| format!(", shard {}", cell(shard))).collect::<String>();
        page += &format!(", at most {} at the same time.\n\n{}", self.jobs, fenced("sh", &self.command));
        for child in &self.children {
            if let Some(trouble) = &child.trouble {
                page += &format!("## {}\n\n{}", cell(&child.arch), fenced("text", trouble));
            }
            let view = View::of(&child.events);
            page += &broken_phases(&view, &child.arch);
            page += &details(&view, &format!("{}: not as expected", child.arch));
        }
        page += &self.not_shown();
        cut_middle(page, FILE_BYTES)
    }

    /// What the runs could not show. Entries that hold for several runs appear once.
    fn not_shown(&self) -> String {
        let mut entries: Vec<(String, Vec<String>)> = Vec::new();
        for child in &self.children {
            let run = format!("{} ({})", child.arch, child.provider);
            for entry in hardware::not_shown(&View::of(&child.events)) {
                match entries.iter_mut().find(|(other, _)| *other == entry) {
                    // Shards of a run.
                    Some((_, runs)) if runs.contains(&run) => {}
                    Some((_, runs)) => runs.push(run.clone()),
                    None => entries.push((entry, vec![run.clone()])),
                }
            }
        }
        if entries.is_empty() {
            return String::new();
        }
        let lines: String =
            entries.iter().map(|(entry, runs)| format!("- {}: {}\n", cell(&runs.join(", ")), cell(entry))).collect();
        format!("## What these runs could not show\n\n{lines}\n")
    }

    fn subject(&self) -> String {
        let names: Vec<&str> = self.children.iter().map(|child| child.arch.as_str()).collect();
        names.join(", ")
    }
}

/// Phases that were not as expected, with their messages.
fn broken_phases(view: &View<'_>, arch: &str) -> String {
    let broken = view.phases.iter().filter(|phase| phase.outcome().exit() != Exit::Ok);
    let text = |phase: &crate::view::Phase<'_>| {
        let outcome = phase.outcome();
        let heading = cell(&format!("{arch}: {} {}", phase.name, outcome.word()));
        format!("## {heading}\n\n{}", fenced("text", &outcome.message()))
    };
    broken.map(text).collect()
}

impl Child {
    /// A run without its own report folder.
    pub fn of(events: Vec<Event>) -> Child {
        let view = View::of(&events);
        let (arch, provider) = (view.arch().to_owned(), view.provider().to_owned());
        let exit = verdict::exit(&events);
        Child { arch, provider, events, trouble: None, exit, folder: None, earlier: BTreeMap::new() }
    }

    fn entry(&self) -> ChildEntry<'_> {
        let view = View::of(&self.events);
        ChildEntry {
            arch: &self.arch,
            provider: &self.provider,
            record: self.folder.as_ref().map(|folder| format!("{folder}/run.json")),
            exit: Verdict::of(self.exit),
            trouble: self.trouble.as_deref(),
            seconds: view.finished.map(|(_, seconds)| seconds),
            execution: view.booted.as_ref().map(|booted| booted.execution),
            factor: view.booted.as_ref().map(|booted| booted.factor),
            planned: view.planned,
            counts: view.counts().iter().collect(),
        }
    }

    fn row(&self) -> String {
        let view = View::of(&self.events);
        let (execution, factor) = view
            .booted
            .as_ref()
            .map_or_else(Default::default, |booted| (cell(booted.execution), format!("{:.2}", booted.factor)));
        let time = view.finished.map_or_else(String::new, |(_, seconds)| duration(seconds));
        let shard = view.run.and_then(|run| run.shard.as_ref());
        let arch = cell(&shard.map_or_else(|| self.arch.clone(), |shard| format!("{} {shard}", self.arch)));
        // Link only to a page that exists.
        let arch = match &self.folder {
            Some(folder) => format!("[{arch}]({}/summary.md)", cell(folder)),
            None => arch,
        };
        let verdict = title(&self.exit.to_string());
        let (code, counts) = (self.exit.code(), view.counts().sentence());
        format!("| {arch} | {verdict} ({code}) | {counts} | {execution} | {factor} | {time} |\n")
    }
}

#[cfg(test)]
mod tests;
