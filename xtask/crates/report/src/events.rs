//! `events.jsonl`: the record of a run, from which every report can be written again.
//!
//! One event per line. Each line is written to the file before any other consumer gets the event, so a killed run
//! leaves a readable prefix.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use model::{BuildStep, Event};
use sys::progress::timestamp;

use crate::Console;

/// Largest event log in bytes that is read.
const LOG_BYTES: u64 = 1 << 30;

/// Collects the events of a run, from any thread.
pub struct EventLog {
    path: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    events: Vec<Event>,
    console: Option<Console>,
    /// The first write error. Later events are still kept in memory.
    write_error: Option<std::io::Error>,
}

impl EventLog {
    /// Creates a new log. An existing file is an error: the record of another run is never overwritten.
    pub fn create(path: &Path, console: Option<Console>) -> Result<EventLog> {
        let file = File::create_new(path).with_context(|| format!("cannot create the event log {}", path.display()))?;
        let inner = Inner { file, events: Vec::new(), console, write_error: None };
        Ok(EventLog { path: path.to_owned(), inner: Mutex::new(inner) })
    }

    /// Writes one event, then shows it. `finish` reports a write error; the reports lose no case by it.
    pub fn append(&self, mut event: Event) {
        repair_numbers(&mut event);
        let mut line = serde_json::to_vec(&event).expect("an event is strings, numbers and maps with string keys");
        line.push(b'\n');
        let mut inner = self.lock();
        if inner.write_error.is_none()
            && let Err(error) = inner.file.write_all(&line)
        {
            let text = format!("cannot write {}, the run continues without it: {error}", self.path.display());
            inner.show(&Event::Note { at: timestamp(), text });
            inner.write_error = Some(error);
        }
        inner.show(&event);
        inner.events.push(event);
    }

    /// Updates the console's live line with the elapsed time. No-op without a console.
    pub fn tick(&self) {
        if let Some(console) = &mut self.lock().console {
            console.tick(&timestamp());
        }
    }

    /// All events so far.
    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// Syncs the log to disk. Errors: the log on disk is incomplete, so reports cannot be written again from it.
    pub fn finish(&self) -> Result<()> {
        let mut inner = self.lock();
        let written = match inner.write_error.take() {
            Some(error) => Err(error),
            None => inner.file.sync_all(),
        };
        written.with_context(|| format!("the event log {} is incomplete", self.path.display()))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere must not lose the record of the run: each step above leaves `Inner` consistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn show(&mut self, event: &Event) {
        if let Some(console) = &mut self.console {
            console.event(event);
        }
    }
}

/// The events of a log. A truncated last line (the run was killed while writing it) is left out, and a `Note` reports
/// that. Errors: the file is unreadable, or any other line is not an event.
pub fn read(path: &Path) -> Result<Vec<Event>> {
    let bytes = sys::foreign::read(path, LOG_BYTES)?;
    parse(&bytes).with_context(|| format!("in the event log {}", path.display()))
}

pub fn parse(bytes: &[u8]) -> Result<Vec<Event>> {
    let mut events: Vec<Event> = Vec::new();
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        match serde_json::from_slice(line) {
            Ok(event) => events.push(event),
            Err(_) if line.trim_ascii().is_empty() => {}
            Err(_) if !line.ends_with(b"\n") => {
                let at = events.last().map_or("", crate::view::at).to_owned();
                let text =
                    format!("the event log ends in the middle of line {} ({} bytes left out)", index + 1, line.len());
                events.push(Event::Note { at, text });
            }
            Err(error) => bail!("line {} is not an event: {error}", index + 1),
        }
    }
    Ok(events)
}

/// Replaces NaN and infinities: JSON would write them as null, and the log could not be read back.
fn repair_numbers(event: &mut Event) {
    let number = match event {
        Event::PhaseFinished { seconds, .. } | Event::CaseFinished { seconds, .. } => seconds,
        Event::RunFinished { seconds, .. } | Event::Booted { factor: seconds, .. } => seconds,
        Event::Built { artifact, .. } => match &mut artifact.step {
            BuildStep::Built { seconds, .. } => seconds,
            BuildStep::Hit { .. } | BuildStep::Prebuilt | BuildStep::Exported { .. } => return,
        },
        Event::RunStarted { .. }
        | Event::PhaseStarted { .. }
        | Event::SuitePlanned { .. }
        | Event::CaseStarted { .. }
        | Event::Note { .. }
        | Event::ProcessorTime { .. } => return,
    };
    if !number.is_finite() {
        *number = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn lines(events: &[Event]) -> Vec<u8> {
        events.iter().flat_map(|event| [serde_json::to_vec(event).unwrap(), vec![b'\n']].concat()).collect()
    }

    #[test]
    fn complete_logs_round_trip() {
        let mut events = fixture::run();
        for text in fixture::hostile_texts() {
            events.extend(fixture::hostile(&text[..text.len().min(5000)]));
            events.push(Event::Note { at: timestamp(), text });
        }
        assert_eq!(parse(&lines(&events)).unwrap(), events);
    }

    #[test]
    fn truncated_log_gives_the_events_before_the_cut() {
        let events = fixture::run();
        let bytes = lines(&events);
        for end in 0..bytes.len() {
            let read = parse(&bytes[..end]).unwrap();
            let whole = bytes[..end].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(read[..whole], events[..whole]);
            match &read[whole..] {
                [] => assert!(end == 0 || bytes[end - 1] == b'\n'),
                // Only the newline is missing.
                [event] if *event == events[whole] => assert_eq!(bytes[end], b'\n'),
                [Event::Note { text, .. }] => assert!(text.contains(&format!("line {}", whole + 1)), "{text}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn broken_line_in_the_middle_is_an_error() {
        let mut bytes = b"{\"event\":\"note\"}\n".to_vec();
        bytes.extend(lines(&fixture::run()));
        let error = parse(&bytes).unwrap_err().to_string();
        assert!(error.starts_with("line 1 is not an event: missing field"), "{error}");
    }

    #[test]
    fn log_accepts_events_from_all_threads_and_is_readable_at_any_time() {
        let dir = std::env::temp_dir().join(format!("report-threads-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("events.jsonl");
        let log = EventLog::create(&path, None).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let log = &log;
                scope.spawn(move || {
                    for number in 0..50 {
                        log.append(fixture::case(&format!("t{thread}.n{number}"), model::Outcome::Passed));
                        assert!(read(&log.path).is_ok());
                    }
                });
            }
        });
        let outcome = model::Outcome::Passed;
        log.append(Event::PhaseFinished { at: timestamp(), phase: "suite".into(), outcome, seconds: f64::NAN });
        log.finish().unwrap();
        assert_eq!(read(&path).unwrap(), log.events());
        assert_eq!(log.events().len(), 201);
        assert!(EventLog::create(&path, None).is_err(), "a second log opened the same file");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn timestamp_has_milliseconds_and_parses() {
        let text = timestamp();
        assert_eq!(text.len(), "2026-11-21T10:00:00.250Z".len(), "{text}");
        assert!(text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok(), "{text}");
    }
}
