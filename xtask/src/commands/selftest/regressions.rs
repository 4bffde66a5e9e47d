//! `cargo xtask selftest --regressions`: released versions with known defects, each of which its check must find.
//!
//! Mutants prove that a check can fail; these releases prove that it finds a defect that shipped. Each run is a `ci` of one
//! case with its own servers and folder, so a defect that damages a store does not reach the next run. `plan` makes its
//! command line, `verdict` decides, `record` writes.

mod plan;
mod record;
mod verdict;

use std::time::Instant;

use cli::{Failure, OrExit, Paths, host_target, print, print_json};
use model::{Event, Exit, Regression};
use sys::{Together, interrupt, progress};
use targets::Catalogue;

use crate::args::SelftestOptions;
use crate::commands::ci::run_single;

use record::{Record, Row, Run};
use verdict::Shown;

/// The inputs that all runs share.
struct Hunt<'a> {
    paths: &'a Paths,
    catalogue: &'a Catalogue,
    together: &'a Together,
    /// GOARCH of this machine.
    arch: &'a str,
    seed: u64,
    offline: bool,
}

pub(super) fn run(paths: &Paths, catalogue: &Catalogue, options: &SelftestOptions) -> Result<Exit, Failure> {
    let entries = plan::chosen(catalogue, &options.regression_ids)?;
    plan::check(&catalogue.regressions)?;
    let arch = host_target(catalogue)?.name.as_str();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    if options.dry_run {
        entries.iter().try_for_each(|entry| describe(entry, arch, seed))?;
        return Ok(Exit::Ok);
    }
    let (begin, started) = (Instant::now(), progress::timestamp());
    let together = Together::create(&paths.reports, &paths.cache, "regressions").or_exit(Exit::Infrastructure)?;
    progress::say(&format!("regressions: {} releases with known defects, seed {seed}", entries.len()));
    let offline = options.sources.offline;
    let hunt = Hunt { paths, catalogue, together: &together, arch, seed, offline };
    let rows: Vec<Row<'_>> = entries.into_iter().map(|entry| hunt.entry(entry)).collect();
    let (seconds, exit) = (begin.elapsed().as_secs_f64(), record::exit(&rows));
    let record = Record { started, arch: arch.to_owned(), seed, seconds, exit: exit.code(), entries: rows };
    record::table(&record.entries).iter().for_each(|line| progress::say(line));
    let written = record.write(together.public()).or_exit(Exit::Infrastructure);
    progress::say(&format!("regressions: {}; {}", record.summary(), together.public().display()));
    if options.json {
        print_json(&record)?;
    }
    written.map(|()| exit)
}

/// Prints what would run for an entry.
fn describe(entry: &Regression, arch: &str, seed: u64) -> Result<(), Failure> {
    let Regression { id, what, source, set, version, .. } = entry;
    let control = entry.control.as_ref().map_or_else(String::new, |control| format!(", control {control}"));
    let command = plan::words(entry, version, arch, seed).map_err(Failure::target_data)?.join(" ");
    print(&format!("{id}: {set} {version}{control}, at most {}\n", record::tries(entry.tries)));
    print(&format!("    {what}\n    {source}\n    cargo xtask {command}\n"));
    Ok(())
}

impl Hunt<'_> {
    /// Runs the check on the release until it fails as said, then on the control.
    fn entry<'e>(&self, entry: &'e Regression) -> Row<'e> {
        if interrupt::requested() {
            return Row::new(entry, Vec::new(), None);
        }
        progress::say(&format!("{}: {}", entry.id, entry.what));
        let mut runs: Vec<Run> = Vec::new();
        for number in 1..=entry.tries {
            let run = self.run(entry, &entry.version, Some(number));
            let shown = run.shown;
            runs.push(run);
            if !verdict::goes_on(shown, number, entry.tries) {
                break;
            }
        }
        let found = runs.last().is_some_and(|last| last.shown == Shown::Defect);
        let control = entry.control.as_ref().filter(|_| found).map(|version| self.run(entry, version, None));
        Row::new(entry, runs, control)
    }

    /// Runs the check once, for the n-th time or on the control. Every error becomes a part of the result.
    fn run(&self, entry: &Regression, version: &str, number: Option<u32>) -> Run {
        let begin = Instant::now();
        let (folder, what) = match number {
            Some(number) => (format!("{}-{number}", entry.id), format!("try {number} of {}", entry.tries)),
            None => (format!("{}-control", entry.id), "control".to_owned()),
        };
        let seed = self.seed.wrapping_add(number.map_or(0, |number| u64::from(number) - 1));
        let words = plan::words(entry, version, self.arch, seed);
        let command = words.as_ref().map_or_else(String::clone, |words| format!("cargo xtask {}", words.join(" ")));
        let ended = words.map_err(Failure::target_data).and_then(|words| self.events(&words, &folder));
        let (shown, text) = match ended {
            _ if interrupt::requested() => (Shown::Interrupted, String::new()),
            Ok(events) => verdict::shown(&events, entry.says.as_deref()),
            Err(failure) => (Shown::CannotRun, format!("{:#}", failure.error)),
        };
        let (word, time) = (shown.word(), progress::elapsed(begin.elapsed()));
        progress::say(&format!("{}, {what}, {} {version}: {word} ({time})", entry.id, entry.set));
        let seconds = begin.elapsed().as_secs_f64();
        Run { version: version.to_owned(), seed, shown, text, seconds, folder, command }
    }

    fn events(&self, words: &[String], folder: &str) -> Result<Vec<Event>, Failure> {
        let mut options = plan::options(words)?;
        options.sources.offline = self.offline;
        let run = self.together.run(folder).or_exit(Exit::Infrastructure)?;
        run_single(self.paths, self.catalogue, &options, run)
    }
}
