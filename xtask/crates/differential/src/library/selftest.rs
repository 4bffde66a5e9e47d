//! Proves that the search can fail: one side gets a defect, and the search must find it from a random seed.

use std::time::{Duration, Instant};

use cli::{Failure, OrExit, print, print_json};
use model::Exit;
use serde::Serialize;
use sys::progress::{self, Phase};

use super::finish::{self, Launches};
use super::search::{Limit, Sides, search};
use super::side::{Mutant, Side, Subject};
use crate::args::DifferentialOptions;
use crate::group::Expected;

/// The time in which each defect must be found.
const LIMIT: Duration = Duration::from_secs(120);
/// The time of one search; a defect that is not found in one search is looked for again.
const SLICE: Duration = Duration::from_secs(4);

#[derive(Debug, Serialize)]
struct Row {
    mutant: String,
    about: String,
    subject: String,
    found: bool,
    seconds: f64,
    /// The smallest input that shows the defect, with both answers.
    shown: String,
}

/// Searches the subject of each mutant; then the same subjects without a mutant, which must be silent.
pub(super) fn run(launches: &Launches, subjects: &[Subject], options: &DifferentialOptions) -> Result<Exit, Failure> {
    let mutants = Side::start(&launches.reference, "list").and_then(|mut side| side.mutants());
    let mut mutants = mutants.or_exit(Exit::Infrastructure)?;
    mutants.retain(|mutant| subjects.iter().any(|subject| subject.name == mutant.subject));
    if mutants.is_empty() {
        return Err(Failure::nothing_ran("no mutant changes a chosen subject"));
    }
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    progress::say(&format!("{} mutants, seed {seed}", mutants.len()));
    let mut rows = Vec::new();
    for mutant in &mutants {
        let row = find(launches, mutant, seed).or_exit(Exit::Infrastructure)?;
        sys::interrupt::check().map_err(anyhow::Error::from).or_exit(Exit::Infrastructure)?;
        let end = if row.found { "found" } else { "NOT FOUND" };
        progress::say(&format!("{}: {end} after {:.1} s  {}", row.mutant, row.seconds, row.shown));
        rows.push(row);
    }
    let silent = is_silent(launches, &mutants, seed).or_exit(Exit::Infrastructure)?;
    let found = rows.iter().filter(|row| row.found).count();
    let control = if silent { "silent" } else { "NOT SILENT" };
    if options.json {
        print_json(&rows)?;
    } else {
        print(&format!("{found} of {} mutants found, without a mutant {control}\n", rows.len()));
    }
    Ok(if silent && found == rows.len() { Exit::Ok } else { Exit::Conformance })
}

fn find(launches: &Launches, mutant: &Mutant, seed: u64) -> anyhow::Result<Row> {
    let begin = Instant::now();
    let phase = Phase::start(format!("mutant {}", mutant.name));
    let with_defect = Launches {
        reference: launches.reference.clone(),
        tested: launches.reference.clone(),
        mutant: Some(mutant.name.clone()),
    };
    let mut row = Row {
        mutant: mutant.name.clone(),
        about: mutant.about.clone(),
        subject: mutant.subject.clone(),
        found: false,
        seconds: 0.0,
        shown: String::new(),
    };
    let mut sides = Sides::start(&with_defect.reference, &with_defect.tested)?;
    sides.tested.mutate(&mutant.name)?;
    for round in 0.. {
        let limit = Limit::Time(SLICE.min(LIMIT.saturating_sub(begin.elapsed())));
        let seed = seed.wrapping_add(round);
        let subject = std::slice::from_ref(&mutant.subject);
        let findings = search(&mut sides, subject, seed, limit, Expected::default(), &phase)?;
        let (groups, _) = finish::groups(&with_defect, &findings, seed, &phase)?;
        if let Some(group) = groups.first() {
            row.found = true;
            let change = group.changes.first().map(ToString::to_string).unwrap_or_default();
            row.shown = format!("{} -> {change}", crate::changes::shortened(&group.input));
        }
        if row.found || begin.elapsed() >= LIMIT || sys::interrupt::requested() {
            break;
        }
    }
    row.seconds = begin.elapsed().as_secs_f64();
    Ok(row)
}

/// Searches the subjects of all mutants without a defect.
fn is_silent(launches: &Launches, mutants: &[Mutant], seed: u64) -> anyhow::Result<bool> {
    let phase = Phase::start("without a mutant");
    let mut names: Vec<String> = mutants.iter().map(|mutant| mutant.subject.clone()).collect();
    names.sort();
    names.dedup();
    let mut sides = Sides::start(&launches.reference, &launches.reference)?;
    let findings = search(&mut sides, &names, seed, Limit::Time(2 * SLICE), Expected::default(), &phase)?;
    Ok(findings.groups.is_empty() && !findings.inputs.is_empty())
}
