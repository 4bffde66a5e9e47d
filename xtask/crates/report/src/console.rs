//! Shows events to people as they arrive: plain lines, and on a terminal one live line below them.
//!
//! This module does not know stderr or the environment: the caller passes the writer and describes its capabilities.

use std::collections::BTreeMap;
use std::io::Write;

use model::{BuildStep, Event, Outcome, Timestamp};

use crate::counts::{Counts, Word};
use crate::machine;
use crate::text::{duration, plain_line};
use crate::view;

mod screen;

use screen::Plain;
pub use screen::Screen;

/// Longest line of a message or of evidence.
const LINE_BYTES: usize = 400;
/// Lines of a message on the console; the report files contain all of them.
const LINES: usize = 6;
/// Lines of evidence: the first violation and the part of the history around it.
const EVIDENCE_LINES: usize = 14;
/// Lines of the message of a failed phase. A failed phase ends the run, and the cause is often in the last line of a
/// component's log.
const PHASE_LINES: usize = 40;

/// How much of a run the console shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Problems and the summary.
    Quiet,
    /// Also phases and built programs. A pass is a short line; on a terminal it only increments a counter.
    #[default]
    Normal,
    /// Every pass with its counters, all evidence.
    Verbose,
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The writer is a terminal: show a live line, and count passes instead of printing them.
    pub terminal: bool,
    /// Print the time of day (UTC) before each line. For logs, where the reader cannot see when a line appeared.
    pub stamps: bool,
    /// Use colours. The caller sets this if the terminal supports them and the user did not set NO_COLOR.
    pub colour: bool,
    pub verbosity: Verbosity,
    /// The run folder, as printed in the summary.
    pub folder: String,
}

/// Renders events to a writer.
pub struct Console {
    screen: Box<dyn Screen>,
    options: Options,
    /// Running phases with their start times, the latest last.
    phases: Vec<(String, Timestamp)>,
    title: String,
    planned: usize,
    running: usize,
    counts: Counts,
    /// Lines of the final summary about problems in cases and phases, by name.
    bad: BTreeMap<String, String>,
    live: bool,
}

#[derive(Clone, Copy)]
enum Tone {
    Good,
    Bad,
    Dim,
}

impl Console {
    /// Shows a run on a writer that is used for nothing else.
    pub fn new(out: Box<dyn Write + Send>, options: Options) -> Console {
        Console::on(Box::new(Plain::new(out)), options)
    }

    /// Shows a run on a screen that other sources of output may share.
    pub fn on(screen: Box<dyn Screen>, options: Options) -> Console {
        Console {
            screen,
            options,
            phases: Vec::new(),
            title: "run".into(),
            planned: 0,
            running: 0,
            counts: Counts::default(),
            bad: BTreeMap::new(),
            live: false,
        }
    }

    /// Shows one event.
    pub fn event(&mut self, event: &Event) {
        if let Event::PhaseStarted { phase, .. } = event {
            self.screen.phase(Some(&plain_line(phase, 40)));
        }
        // A phase may end while a later one is open.
        let ends_last = matches!((event, self.phases.last()), (Event::PhaseFinished { phase, .. }, Some((last, _)))
            if plain_line(phase, 40) == *last);
        let text = self.render(event);
        let lines = self.stamped(view::at(event), &text);
        let live = self.live_line(view::at(event));
        self.screen.show(&lines, &live);
        self.live = !live.is_empty();
        if ends_last {
            self.screen.phase(None);
        }
    }

    /// Updates the live line to this time. For intervals without events.
    pub fn tick(&mut self, now: &Timestamp) {
        let live = self.live_line(now);
        if self.live && !live.is_empty() {
            self.screen.show("", &live);
        }
    }

    /// The lines that an event adds, each ended by a newline. Most events add no line or one line.
    fn render(&mut self, event: &Event) -> String {
        let talks = self.options.verbosity >= Verbosity::Normal;
        match event {
            Event::RunStarted { run, .. } => {
                self.title = plain_line(&format!("{}, provider {}", run.arch, run.provider), LINE_BYTES);
                let shard =
                    run.shard.as_ref().map_or_else(String::new, |shard| format!(", shard {}", plain_line(shard, 40)));
                let id = plain_line(&run.id, LINE_BYTES);
                let line = format!("{}, run {id}{shard}, seed {}\n", self.title, run.seed);
                if talks { line } else { String::new() }
            }
            Event::PhaseStarted { at, phase } => {
                self.phases.push((plain_line(phase, 40), at.clone()));
                if talks && !self.options.terminal { format!("{} ...\n", plain_line(phase, 40)) } else { String::new() }
            }
            Event::PhaseFinished { phase, outcome, seconds, .. } => {
                self.phase(&plain_line(phase, 40), outcome, *seconds)
            }
            Event::Built { artifact, .. } if talks => {
                let step = match &artifact.step {
                    BuildStep::Hit { .. } => "cache hit".to_owned(),
                    BuildStep::Built { why, seconds, .. } => format!("built in {}: {why}", duration(*seconds)),
                    BuildStep::Exported { .. } => "built elsewhere".to_owned(),
                    BuildStep::Prebuilt => format!("taken from {}", artifact.source),
                };
                let what = format!("{} {} ({}), {step}", artifact.component, artifact.version, artifact.go);
                plain_line(&what, LINE_BYTES) + "\n"
            }
            Event::Booted { execution, factor, versions, machine, .. } => {
                let versions: String = versions.iter().map(|(name, version)| format!(", {name} {version}")).collect();
                let facts = machine.iter().map(|machine| machine::line(machine));
                let lines = [format!("{execution}, slowdown factor {factor:.2}{versions}")].into_iter().chain(facts);
                let notes = machine.iter().flat_map(|machine| machine::warnings(machine));
                lines
                    .filter(|_| talks)
                    .map(|line| plain_line(&line, LINE_BYTES) + "\n")
                    .chain(notes.map(|note| format!("note: {}\n", plain_line(&note, 4 * LINE_BYTES))))
                    .collect()
            }
            Event::SuitePlanned { cases, seed, .. } => {
                self.planned = self.planned.saturating_add(*cases);
                if talks { format!("{cases} cases, seed {seed}\n") } else { String::new() }
            }
            Event::CaseStarted { .. } => {
                self.running += 1;
                String::new()
            }
            Event::CaseFinished { .. } => self.case(event),
            Event::Note { text, .. } => format!("note: {}\n", plain_line(text, 4 * LINE_BYTES)),
            Event::RunFinished { exit, seconds, .. } => self.summary(*exit, *seconds),
            Event::Built { .. } | Event::ProcessorTime { .. } => String::new(),
        }
    }

    fn phase(&mut self, phase: &str, outcome: &Outcome, seconds: f64) -> String {
        if let Some(index) = self.phases.iter().rposition(|(name, _)| name == phase) {
            self.phases.remove(index);
        }
        let fine = outcome.exit() == model::Exit::Ok;
        if fine && self.options.verbosity == Verbosity::Quiet {
            return String::new();
        }
        let word = self.toned(outcome.word(), tone(outcome));
        let mut text = format!("{phase} {word} {}\n", duration(seconds));
        if !fine {
            text += &self.block(&outcome.message(), PHASE_LINES);
            self.bad.insert(format!("phase {phase}"), format!("{}: {}", outcome.word(), one_line(outcome)));
        }
        text + &self.block(&outcome.evidence().join("\n"), EVIDENCE_LINES)
    }

    fn case(&mut self, event: &Event) -> String {
        let Event::CaseFinished { case, outcome, seconds, counters, repeat, .. } = event else { return String::new() };
        self.running = self.running.saturating_sub(1);
        self.counts.add(Word::of(outcome));
        let case = plain_line(case, 200);
        let fine = outcome.exit() == model::Exit::Ok;
        let hidden = match self.options.verbosity {
            Verbosity::Quiet => fine,
            Verbosity::Normal => self.options.terminal && matches!(outcome, Outcome::Passed),
            Verbosity::Verbose => false,
        };
        if hidden {
            return String::new();
        }
        let mut text = format!("{} {case} {}", self.toned(outcome.word(), tone(outcome)), duration(*seconds));
        if fine {
            if *outcome != Outcome::Passed {
                text += &format!(": {}", one_line(outcome));
            } else if self.options.verbosity == Verbosity::Verbose {
                text += &counters
                    .iter()
                    .map(|(name, number)| format!(", {number} {}", plain_line(name, 40)))
                    .collect::<String>();
            }
            return text + "\n";
        }
        text.push('\n');
        let lines = |least: usize| if self.options.verbosity == Verbosity::Verbose { usize::MAX } else { least };
        text += &self.block(&outcome.message(), lines(LINES));
        text += &self.block(&outcome.evidence().join("\n"), lines(EVIDENCE_LINES));
        let repeat = plain_line(repeat, LINE_BYTES);
        text += &self.block(&format!("repeat: {repeat}"), 1);
        self.bad.insert(case, format!("{}: {}\n      {repeat}", outcome.word(), one_line(outcome)));
        text
    }

    /// Counts, problems with the commands that repeat them, and the location of the files.
    fn summary(&mut self, exit: model::Exit, seconds: f64) -> String {
        self.phases.clear();
        let tone = if exit == model::Exit::Ok { Tone::Good } else { Tone::Bad };
        let verdict = self.toned(&format!("{exit} (exit {})", exit.code()), tone);
        let mut text = format!("{}: {verdict} in {}\n", self.title, duration(seconds));
        text += &format!("  {} of {} planned\n", self.counts.sentence(), self.planned);
        for (name, line) in &self.bad {
            text += &format!("  {name} {line}\n");
        }
        if !self.options.folder.is_empty() {
            let folder = plain_line(&self.options.folder, LINE_BYTES);
            text += &format!("  files: {folder} (summary.md, junit.xml, run.json, events.jsonl)\n");
        }
        text
    }

    /// The first `limit` lines of a text, indented.
    fn block(&self, raw: &str, limit: usize) -> String {
        let lines: Vec<&str> = raw.lines().filter(|line| !line.trim().is_empty()).collect();
        let mut block: String =
            lines.iter().take(limit).map(|line| format!("    {}\n", plain_line(line, LINE_BYTES))).collect();
        if lines.len() > limit {
            block += &self.toned(&format!("    ... {} more lines in junit.xml", lines.len() - limit), Tone::Dim);
            block.push('\n');
        }
        block
    }

    /// `suite 12/52 · 3 running · 14 s`; empty if there is no live line.
    fn live_line(&self, now: &str) -> String {
        let Some((phase, since)) = self.phases.last().filter(|_| self.options.terminal) else { return String::new() };
        let mut line = phase.clone();
        if phase == "suite" {
            line += &format!(" {}/{} · {} running", self.counts.total(), self.planned, self.running);
            let bad = self.bad.keys().filter(|name| !name.starts_with("phase ")).count();
            if bad > 0 {
                line += &format!(" · {bad} not as expected");
            }
        }
        let seconds = match (since.parse::<jiff::Timestamp>(), now.parse::<jiff::Timestamp>()) {
            (Ok(since), Ok(now)) => now.as_second().saturating_sub(since.as_second()).max(0),
            _ => return line,
        };
        format!("{line} · {seconds} s")
    }

    /// The lines with the time of day before each, if `stamps` is set.
    fn stamped(&self, at: &str, text: &str) -> String {
        if !self.options.stamps {
            return text.to_owned();
        }
        let time = at.parse::<jiff::Timestamp>().ok().and_then(|_| at.get(11..19)).unwrap_or("--:--:--");
        text.lines().map(|line| format!("{time} {line}\n")).collect()
    }

    fn toned(&self, text: &str, tone: Tone) -> String {
        let code = match tone {
            _ if !self.options.colour => return text.to_owned(),
            Tone::Good => "32",
            Tone::Bad => "1;31",
            Tone::Dim => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

fn one_line(outcome: &Outcome) -> String {
    plain_line(outcome.message().lines().find(|line| !line.trim().is_empty()).unwrap_or(""), LINE_BYTES)
}

fn tone(outcome: &Outcome) -> Tone {
    match outcome {
        Outcome::Passed => Tone::Good,
        Outcome::Skipped { .. } | Outcome::ExpectedFailure { .. } => Tone::Dim,
        Outcome::Failed { .. }
        | Outcome::UnexpectedPass { .. }
        | Outcome::Errored { .. }
        | Outcome::TimedOut { .. } => Tone::Bad,
    }
}

#[cfg(test)]
mod tests;
