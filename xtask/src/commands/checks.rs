//! `cargo xtask list` and `explain`: print the table of checks, which the suite and the reports also read.

use cli::{Failure, Paths, print, print_json};
use model::{Exit, Level};
use serde_json::{Value, json};
use suite::Check;

use crate::args::{ExplainOptions, ListOptions};

/// Calls `paths` only if it needs them: the table itself is compiled into the program.
pub(crate) fn list(paths: impl FnOnce() -> Result<Paths, Failure>, options: &ListOptions) -> Result<Exit, Failure> {
    if !options.durations.is_empty() {
        return super::ci::print_durations(&paths()?, &options.durations);
    }
    let cases = options.selection.selection().cases(checks::all()).map_err(Failure::usage)?;
    if cases.is_empty() {
        return Err(Failure::nothing_ran("the selection matches no check"));
    }
    if options.json {
        let rows: Vec<Value> = cases.iter().map(|case| row(case.check, &case.name())).collect();
        print_json(&rows)?;
        return Ok(Exit::Ok);
    }
    let width = cases.iter().map(|case| case.name().len()).max().unwrap_or_default();
    for case in &cases {
        let check = case.check;
        print(&format!("{:width$}  {:6}  {}\n", case.name(), level(check.level), check.requirement));
    }
    Ok(Exit::Ok)
}

pub(crate) fn explain(options: &ExplainOptions) -> Result<Exit, Failure> {
    let Some(check) = checks::find(&options.id) else {
        let valid: Vec<String> = checks::all().map(|check| check.id.to_owned()).collect();
        return Err(Failure::usage(suite::Unknown { what: "check", given: options.id.clone(), valid }));
    };
    if options.json {
        print_json(&row(check, check.id))?;
    } else {
        print(&describe(check));
    }
    Ok(Exit::Ok)
}

fn describe(check: &Check) -> String {
    format!(
        "{id} ({level})\n\n{requirement}\n\nSource:   {source}\nObserved: {observed}\nBy hand:  {by_hand}\n\
         Profiles: {profiles}\nNeeds:    {needs}\nRun it:   cargo xtask ci --check {id}\n\
         Code:     {file}:{line}\nMutants:  {mutants}\n",
        id = check.id,
        level = level(check.level),
        requirement = check.requirement,
        source = check.source,
        observed = check.observed,
        by_hand = check.by_hand,
        profiles = check.profiles.join(", "),
        needs = needs(check),
        file = check.place.file,
        line = check.place.line,
        mutants = mutants(check),
    )
}

fn row(check: &Check, case: &str) -> Value {
    json!({
        "case": case,
        "check": check.id,
        "suite": check.suite(),
        "level": check.level,
        "requirement": check.requirement,
        "source": check.source,
        "observed": check.observed,
        "by_hand": check.by_hand,
        "profiles": check.profiles,
        "needs": needs(check),
        "file": check.place.file,
        "line": check.place.line,
    })
}

/// The mutants that the check must catch, or why it has none.
fn mutants(check: &Check) -> String {
    let ids: Vec<&str> = mutate::all().filter(|mutant| mutant.caught_by == check.id).map(|mutant| mutant.id).collect();
    match mutate::WITHOUT.iter().find(|(id, _)| *id == check.id) {
        Some((_, reason)) => format!("none: {reason}"),
        None => ids.join(", "),
    }
}

fn needs(check: &Check) -> String {
    let words: Vec<String> = check.requires.list().iter().map(|requirement| requirement.text()).collect();
    if words.is_empty() { "an apiserver and its store".into() } else { words.join(", ") }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Must => "must",
        Level::Should => "should",
        Level::Extra => "extra",
    }
}
