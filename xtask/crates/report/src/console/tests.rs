//! Compares the console output byte for byte.

use std::sync::{Arc, Mutex};

use model::Exit;

use super::screen::CLEAR;
use super::*;
use crate::fixture;

/// A writer whose content the test can read.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A stderr that was closed.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }
}

fn shown(events: &[Event], options: Options) -> String {
    let paper = Paper::default();
    let mut console = Console::new(Box::new(paper.clone()), options);
    events.iter().for_each(|event| console.event(event));
    let bytes = paper.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

fn file(verbosity: Verbosity) -> Options {
    Options { verbosity, stamps: true, folder: "reports/20261121T100000Z-mix64".into(), ..Options::default() }
}

#[test]
fn log_output_matches_golden_file() {
    assert_eq!(shown(&fixture::run(), file(Verbosity::Normal)), include_str!("../../tests/console.txt"));
}

#[test]
fn quiet_shows_problems_and_summary() {
    let text = shown(&fixture::run(), file(Verbosity::Quiet));
    let normal = shown(&fixture::run(), file(Verbosity::Normal));
    assert!(text.lines().all(|line| normal.lines().any(|other| other == line)), "{text}");
    assert!(text.starts_with("10:00:20 failed watch.ordered 0.50 s\n"), "{text}");
    assert!(!text.contains("10:00:20 passed") && !text.contains("10:00:20 skipped"), "{text}");
    assert!(text.contains("note: namespace a-1 was left behind") && text.contains("files: reports/"), "{text}");
}

#[test]
fn machine_notes_are_shown_even_when_quiet() {
    let booted: Vec<Event> =
        fixture::run_in_machine().into_iter().filter(|event| matches!(event, Event::Booted { .. })).collect();
    let notes = "10:00:05 note: restored from a memory snapshot: keys and certificates come from the run that created it\n\
                 10:00:05 note: the lock is old\n\
                 10:00:05 note: busybox-static 1.0 all: the locked 0.9 is no longer on the mirror\n";
    assert_eq!(shown(&booted, file(Verbosity::Quiet)), notes);
    let text = shown(&booted, file(Verbosity::Normal));
    let line = "\n10:00:05 QEMU 11.1.3 (debian), tcg (the guest is of another architecture than the host), \
                Linux 6.12.107-mix64, 2 processors, 1088 MiB, warm in 1.25 s\n";
    assert!(text.contains(line) && text.ends_with(notes), "{text}");
}

#[test]
fn verbose_shows_counters_and_all_evidence() {
    let evidence: Vec<String> = (0..20).map(|number| format!("event {number}")).collect();
    let long = fixture::case("rv.a", Outcome::Failed { message: "m".into(), evidence });
    let events = [fixture::case("rv.b", Outcome::Passed), long];
    let verbose = shown(&events, file(Verbosity::Verbose));
    assert!(verbose.starts_with("10:00:20 passed rv.b 0.50 s, 30 events, 12 operations\n"), "{verbose}");
    assert!(verbose.contains("event 19") && !verbose.contains("more lines"));
    let normal = shown(&events, file(Verbosity::Normal));
    assert!(normal.contains("    event 13\n") && !normal.contains("event 14\n"), "{normal}");
    assert!(normal.contains("    ... 6 more lines in junit.xml\n"), "{normal}");
}

#[test]
fn terminal_has_one_live_line_that_disappears_at_the_end() {
    let at = fixture::at;
    let start = |case: &str| Event::CaseStarted { at: at(10), case: case.into() };
    let paper = Paper::default();
    let mut console = Console::new(Box::new(paper.clone()), Options { terminal: true, ..Options::default() });
    let mut after = |event: Option<Event>, now: u32| {
        match event {
            Some(event) => console.event(&event),
            None => console.tick(&at(now)),
        }
        String::from_utf8(std::mem::take(&mut *paper.0.lock().unwrap())).unwrap()
    };
    assert_eq!(after(None, 5), "");
    assert_eq!(after(Some(Event::PhaseStarted { at: at(6), phase: "suite".into() }), 0), "suite 0/0 · 0 running · 0 s");
    assert_eq!(after(Some(fixture::planned(2)), 0), "\r\x1b[K2 cases, seed 42\nsuite 0/2 · 0 running · 0 s");
    assert_eq!(after(Some(start("rv.a")), 0), "\r\x1b[Ksuite 0/2 · 1 running · 4 s");
    assert_eq!(after(Some(start("rv.b")), 0), "\r\x1b[Ksuite 0/2 · 2 running · 4 s");
    // On a terminal, a pass only increments the counter.
    assert_eq!(after(Some(fixture::case("rv.a", Outcome::Passed)), 0), "\r\x1b[Ksuite 1/2 · 1 running · 14 s");
    assert_eq!(after(None, 40), "\r\x1b[Ksuite 1/2 · 1 running · 34 s");
    assert_eq!(
        after(Some(fixture::case("rv.b", Outcome::failed("lost"))), 0),
        "\r\x1b[Kfailed rv.b 0.50 s\n    lost\n    repeat: cargo xtask ci --check rv.b --seed 42\n\
         suite 2/2 · 0 running · 1 not as expected · 14 s"
    );
    assert_eq!(after(Some(fixture::phase("suite", Outcome::Passed)), 0), "\r\x1b[Ksuite passed 1.50 s\n");
    assert_eq!(after(None, 50), "");
    assert!(after(Some(fixture::finished(Exit::Conformance)), 0).starts_with("run: conformance failures (exit 100)"));
}

#[test]
fn colours_are_off_by_default() {
    let options = |colour| Options { terminal: true, colour, verbosity: Verbosity::Verbose, ..Options::default() };
    let events: Vec<Event> =
        fixture::run().into_iter().filter(|event| matches!(event, Event::CaseFinished { .. })).collect();
    assert!(!shown(&events, options(false)).contains('\x1b'));
    let text = shown(&events, options(true));
    assert!(
        text.contains("\x1b[32mpassed\x1b[0m watch.a") && text.contains("\x1b[1;31mfailed\x1b[0m watch.o"),
        "{text}"
    );
}

#[test]
fn hostile_text_does_not_control_the_terminal() {
    for raw in fixture::hostile_texts() {
        let events = fixture::hostile(&raw);
        for verbosity in [Verbosity::Quiet, Verbosity::Verbose] {
            let text = shown(&events, file(verbosity));
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:.200?}");
            assert!(text.lines().all(|line| line.len() < 2500), "a line of {:.80?} is too long", raw);
            let terminal = Options { terminal: true, verbosity, ..Options::default() };
            let text = shown(&events, terminal).replace(CLEAR, "");
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:.200?}");
        }
    }
}

#[test]
fn closed_writer_does_not_fail_the_run() {
    let mut console = Console::new(Box::new(Closed), Options::default());
    fixture::run().iter().for_each(|event| console.event(event));
}

#[test]
fn shared_screen_gets_lines_and_live_line_separately() {
    type Shown = Arc<Mutex<Vec<(String, String)>>>;
    struct Shared(Shown);
    impl Screen for Shared {
        fn show(&mut self, lines: &str, live: &str) {
            self.0.lock().unwrap().push((lines.into(), live.into()));
        }
    }
    let calls = Shown::default();
    let mut console = Console::on(Box::new(Shared(calls.clone())), Options { terminal: true, ..Options::default() });
    fixture::run().iter().for_each(|event| console.event(event));
    let calls = calls.lock().unwrap();
    assert!(calls.iter().all(|(lines, _)| lines.is_empty() || lines.ends_with('\n')));
    assert!(calls.iter().all(|(lines, live)| !format!("{lines}{live}").contains('\r')));
    assert_eq!(calls.last().unwrap().1, "");
}
