//! `cargo xtask fuzz`: generated inputs for all parsers of external data. The targets are in the crate `fuzz`.
//!
//! Coverage needs no nightly compiler: rustc passes LLVM's options through. The engine, libFuzzer, is in the instrumented
//! program; `engine` starts it and reads its output, `totals` adds up all runs.

mod args;
mod engine;
mod program;
mod totals;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use cli::{Failure, OrExit, Paths, paths, print, print_json};
use model::Exit;
use serde::Serialize;
use sys::progress::Phase;
use sys::{Scratch, cache_lock, interrupt, progress, side_by_side};

pub use args::FuzzOptions;

use engine::{Order, Outcome};
use totals::Totals;

/// Below the cache.
const FOLDER: &str = "fuzz";
/// Committed inputs, one folder for each target; the tests of the crate `fuzz` check this.
const CORPORA: &str = "xtask/fuzz/corpus";

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    target: String,
    #[serde(flatten)]
    outcome: Outcome,
}

/// The folders for fuzzing.
struct Folders {
    cache: PathBuf,
    committed: PathBuf,
    findings: PathBuf,
}

pub fn run(paths: &Paths, options: &FuzzOptions) -> Result<Exit, Failure> {
    let checkout = paths::checkout()?;
    let folders = Folders {
        cache: paths.cache.join(FOLDER),
        committed: checkout.join(CORPORA),
        findings: paths.reports.join(FOLDER),
    };
    let known = names(&folders.committed)?;
    let chosen = chosen(&known, &options.names)?;
    if options.list {
        return list(&chosen, options.json);
    }
    if options.totals {
        return show_totals(&folders, &chosen, options.json);
    }
    if let Some(input) = &options.input {
        let [target] = chosen.as_slice() else {
            let names = chosen.join(", ");
            return Err(Failure::usage(anyhow!("--input needs exactly one target, but the names match: {names}")));
        };
        return replay(&[(target, input.clone())]);
    }
    if options.replay {
        let all: Vec<(&str, PathBuf)> = chosen.iter().map(|name| (*name, folders.committed.join(name))).collect();
        return replay(&all);
    }
    fuzz(paths, &folders, &chosen, options)
}

fn names(committed: &Path) -> Result<Vec<String>, Failure> {
    let found = fs::read_dir(committed).with_context(|| format!("failed to read {}", committed.display()));
    let found = found.or_exit(Exit::Infrastructure)?.flatten();
    let mut names: Vec<String> = found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// A full name selects only that target, even if other names start with it.
fn chosen<'a>(known: &'a [String], words: &[String]) -> Result<Vec<&'a str>, Failure> {
    let mut wanted = vec![words.is_empty(); known.len()];
    for word in words {
        let whole = known.contains(word);
        let fits = |name: &String| if whole { name == word } else { name.starts_with(word.as_str()) };
        if !known.iter().any(fits) {
            let all = known.join(", ");
            return Err(Failure::usage(anyhow!("no fuzz target is called `{word}` or starts with it; valid: {all}")));
        }
        wanted.iter_mut().zip(known).for_each(|(wanted, name)| *wanted |= fits(name));
    }
    Ok(known.iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(name, _)| name.as_str()).collect())
}

fn list(chosen: &[&str], json: bool) -> Result<Exit, Failure> {
    if json {
        print_json(&chosen)?;
    } else {
        chosen.iter().for_each(|name| print(&format!("{name}\n")));
    }
    Ok(Exit::Ok)
}

fn show_totals(folders: &Folders, chosen: &[&str], json: bool) -> Result<Exit, Failure> {
    let totals = Totals::load(&folders.cache).or_exit(Exit::Infrastructure)?.only(chosen);
    if json {
        print_json(&totals)?;
    } else {
        print(&totals.table());
    }
    Ok(Exit::Ok)
}

/// Runs inputs through the program without instrumentation, which needs no C++ compiler.
fn replay(inputs: &[(&str, PathBuf)]) -> Result<Exit, Failure> {
    let program = program::plain().or_exit(Exit::Build)?;
    let mut findings = 0;
    for (target, input) in inputs {
        match program::replay(&program, target, input).or_exit(Exit::Infrastructure)? {
            Ok(()) => progress::say(&format!("{target}: {} passes", input.display())),
            Err(why) => {
                findings += 1;
                progress::say(&format!("FINDING {target}: {why}"));
            }
        }
    }
    Ok(if findings == 0 { Exit::Ok } else { Exit::Internal })
}

fn fuzz(paths: &Paths, folders: &Folders, chosen: &[&str], options: &FuzzOptions) -> Result<Exit, Failure> {
    let built = folders.cache.join("target");
    let corpora = folders.cache.join("corpus");
    for folder in [&built, &corpora, &folders.findings] {
        let made = fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()));
        made.or_exit(Exit::Infrastructure)?;
    }
    // Protects them from `cache prune`.
    cache_lock::shared(&built);
    cache_lock::shared(&corpora);
    let program = program::instrumented(&built, options.cxx.as_deref()).or_exit(Exit::Build)?;
    let scratch = Scratch::create(&paths.cache, "fuzz").or_exit(Exit::Infrastructure)?;
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = options.jobs.map_or_else(processors, usize::from);
    let phase = Phase::start("fuzz");
    let rows = side_by_side(chosen, jobs, |target| {
        if interrupt::requested() {
            return Ok(None);
        }
        let order = Order {
            target,
            seconds: options.seconds.get(),
            committed: &folders.committed.join(target),
            working: &corpora.join(target),
            findings: &folders.findings,
            temporary: &scratch.path().join(target),
        };
        let outcome = engine::run(&program, &order, &phase)?;
        totals::add(&folders.cache, target, &outcome)?;
        progress::say(&line(target, &outcome));
        Ok(Some(Row { target: (*target).to_owned(), outcome }))
    });
    let mut rows: Vec<Row> = rows.or_exit(Exit::Infrastructure)?.into_iter().flatten().collect();
    rows.sort_by(|a, b| a.target.cmp(&b.target));
    let findings = rows.iter().filter(|row| row.outcome.finding.is_some()).count();
    phase.done(&format!("{} targets, {findings} new findings", rows.len()));
    if options.json {
        print_json(&rows)?;
    } else {
        print(&table(&rows));
    }
    let exit = if findings == 0 { Exit::Ok } else { Exit::Internal };
    Ok(if interrupt::requested() { Exit::Interrupted } else { exit })
}

fn line(target: &str, outcome: &Outcome) -> String {
    match &outcome.finding {
        None => format!("{target}: {} executions, coverage {}", outcome.executions, outcome.coverage),
        Some(finding) => format!("FINDING {target}: {}", finding.reason),
    }
}

fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.target.len()).fold("target".len(), usize::max);
    let mut text = format!(
        "{:width$} {:>12} {:>8} {:>9} {:>9} {:>9} {:>8}  findings\n",
        "target", "executions", "seconds", "per s", "coverage", "features", "corpus"
    );
    for Row { target, outcome } in rows {
        let Outcome { executions, seconds, coverage, features, corpus, finding } = outcome;
        let (rate, count) = (outcome.per_second(), usize::from(finding.is_some()));
        text.push_str(&format!(
            "{target:width$} {executions:>12} {seconds:>8.1} {rate:>9.0} {coverage:>9} {features:>9} {corpus:>8}  {count}\n"
        ));
    }
    for Row { target, outcome } in rows {
        if let Some(finding) = &outcome.finding {
            let input = finding.input.display();
            text.push_str(&format!(
                "\n{target}: {}\n  input   {input}\n  output  {}\n  repeat  {}\n",
                finding.reason,
                finding.output.display(),
                engine::repeat(target, &finding.input)
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_selected_by_name_or_prefix() {
        let known = ["a", "a-b", "a-c", "d"].map(str::to_owned);
        let of = |words: &[&str]| chosen(&known, &words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]).unwrap(), ["a", "a-b", "a-c", "d"]);
        assert_eq!(of(&["a"]).unwrap(), ["a"]);
        assert_eq!(of(&["d", "a-"]).unwrap(), ["a-b", "a-c", "d"]);
        let refused = of(&["a", "x"]).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.error.to_string().contains("`x`"), "{}", refused.error);
    }
}
