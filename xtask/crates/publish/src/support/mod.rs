//! The support table: component × architecture × version, each cell with the runs that are its evidence, and the
//! requirements of upstream's tiers.
//!
//! This module collects evidence from records. `criteria` compares it with the requirements, `markdown` and `site` show
//! the table. A missing run is no evidence for or against anything: its cell says "no evidence".

mod criteria;
mod markdown;

use std::collections::{BTreeMap, BTreeSet};

use model::{Level, Outcome, component_of};
use report::text::title;
use report::view::View;

use crate::about;
use crate::record::{Known, Record, in_order};

pub(crate) use criteria::Tiers;
pub(crate) use criteria::{Judged, ProjectTable, Weight};
pub(crate) use markdown::markdown;

/// The evidence for each program and architecture.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Support {
    pub(crate) arches: Vec<Arch>,
    pub(crate) programs: Vec<Program>,
    pub(crate) projects: Vec<ProjectTable>,
    /// The cases of level must in the suite.
    musts: BTreeSet<String>,
}

/// An architecture that gets a column, with or without evidence.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arch {
    /// GOARCH.
    pub name: String,
    /// A name for people.
    pub title: String,
}

/// One version of one component.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Program {
    pub(crate) component: String,
    pub(crate) version: String,
    /// One cell for each architecture.
    pub(crate) cells: Vec<Evidence>,
}

/// The evidence for one program on one architecture.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Evidence {
    /// The newest run that built the program, or found it in the cache, and audited the file.
    pub(crate) built: Option<String>,
    /// By kind of execution and store.
    pub(crate) executions: BTreeMap<String, Execution>,
}

/// The runs that executed a program in the same way.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Execution {
    /// Real hardware, or a virtual machine on it.
    pub(crate) on_hardware: bool,
    /// Run ids, the newest last.
    pub(crate) runs: Vec<String>,
    /// Start of the first and of the last of the runs.
    pub(crate) first: String,
    pub(crate) last: String,
    /// The newest result of each case.
    results: BTreeMap<String, (Level, Outcome)>,
}

/// Counts of the newest results of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    /// Expected failures. They count as failures.
    pub(crate) known: usize,
    pub(crate) failed: usize,
    /// Errors and timeouts: no statement.
    pub(crate) open: usize,
    pub(crate) skipped: usize,
}

/// Collects the evidence in the records for these architectures. `own` are the project's programs.
pub(crate) fn support(records: &[Record], known: &[Known], arches: &[Arch], tiers: &Tiers, own: &[String]) -> Support {
    let views: Vec<View<'_>> = in_order(records).into_iter().map(|record| View::of(&record.events)).collect();
    let mut programs: BTreeMap<(String, String), Vec<Evidence>> = BTreeMap::new();
    for view in &views {
        let Some(column) = arches.iter().position(|arch| arch.name == view.arch()) else { continue };
        for (program, built) in programs_of(view, own) {
            let cells = programs.entry(program).or_insert_with(|| vec![Evidence::default(); arches.len()]);
            cells[column].add(view, built);
        }
    }
    let program = |((component, version), cells)| Program { component, version, cells };
    let must = known.iter().filter(|check| check.level == Level::Must);
    let musts = must.flat_map(|check| check.cases.iter().cloned()).collect();
    let mut support = Support { arches: arches.to_vec(), musts, ..Support::default() };
    support.programs = programs.into_iter().map(program).collect();
    support.projects = tiers.projects.iter().map(|project| criteria::weigh(project, &support)).collect();
    support
}

/// Component and version of each program of a run, and whether the run has the audited file. Leaves out the project's
/// programs, although some have the version of a module that they use, and programs of earlier minors, which only a few
/// checks use: the results of the run are no evidence for either.
fn programs_of(view: &View<'_>, own: &[String]) -> Vec<((String, String), bool)> {
    let is_evidence =
        |name: &String, version: &str| version != "(devel)" && component_of(name).1 == 0 && !own.contains(name);
    let mut found: BTreeMap<(String, String), bool> = BTreeMap::new();
    for artifact in view.artifacts.iter().filter(|artifact| is_evidence(&artifact.component, &artifact.version)) {
        found.insert((artifact.component.clone(), artifact.version.clone()), true);
    }
    let told = view.booted.as_ref().map(|booted| booted.versions).into_iter().flatten();
    for (component, version) in told.filter(|(name, version)| is_evidence(name, version)) {
        if !found.keys().any(|(built, _)| built == component) {
            found.insert((component.clone(), version.clone()), false);
        }
    }
    found.into_iter().collect()
}

impl Evidence {
    fn add(&mut self, view: &View<'_>, built: bool) {
        let id = view.run.map_or_else(String::new, |run| run.id.clone());
        if built {
            self.built = Some(id.clone());
        }
        let Some(accelerator) = about::accelerator(view) else { return };
        let how = format!("{}, on {}", how(accelerator, view.provider()), about::store(view));
        let execution = self.executions.entry(how).or_default();
        execution.on_hardware = matches!(accelerator, "native" | "kvm");
        if execution.runs.is_empty() {
            execution.first = view.started.to_owned();
        }
        execution.last = view.started.to_owned();
        execution.runs.push(id);
        for case in &view.cases {
            let level = case.facts.as_ref().map(|facts| facts.level);
            let before = execution.results.get(case.name).map(|(level, _)| *level);
            // A case that never finished has no level in its record.
            let level = level.or(before).unwrap_or(Level::Extra);
            execution.results.insert(case.name.to_owned(), (level, case.outcome.clone().into_owned()));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.built.is_none() && self.executions.is_empty()
    }
}

/// The kind of execution in words: `native`, `VM under tcg`.
pub(crate) fn how(accelerator: &str, provider: &str) -> String {
    match (accelerator, provider) {
        ("native" | "user mode", _) => accelerator.to_owned(),
        (_, "existing") => "existing cluster".to_owned(),
        (other, _) => format!("VM under {other}"),
    }
}

impl Execution {
    pub(crate) fn tally(&self, level: Level) -> Tally {
        let mut tally = Tally::default();
        for (_, outcome) in self.results.values().filter(|(of, _)| *of == level) {
            *match outcome {
                Outcome::Passed => &mut tally.passed,
                Outcome::ExpectedFailure { .. } => &mut tally.known,
                Outcome::Failed { .. } | Outcome::UnexpectedPass { .. } => &mut tally.failed,
                Outcome::Errored { .. } | Outcome::TimedOut { .. } => &mut tally.open,
                Outcome::Skipped { .. } => &mut tally.skipped,
            } += 1;
        }
        tally
    }

    /// Whether each of these cases passed. Records also have cases that the suite does not have: those of upstream's
    /// suite, of removed checks and of renamed profiles.
    fn has_passed(&self, cases: &BTreeSet<String>) -> bool {
        let passed = |case: &String| matches!(self.results.get(case), Some((_, Outcome::Passed)));
        cases.iter().all(passed)
    }

    /// `Must 96 of 97 passed; should 12 of 12 passed`; other outcomes are named.
    pub(crate) fn sentence(&self) -> String {
        let levels = [("must", Level::Must), ("should", Level::Should), ("extra", Level::Extra)];
        let tallies = levels.map(|(word, level)| (word, self.tally(level)));
        let parts: Vec<String> = tallies
            .iter()
            .filter(|(_, tally)| tally.total() > 0)
            .map(|(word, tally)| format!("{word} {}", tally.sentence()))
            .collect();
        if parts.is_empty() { "no case ran".into() } else { title(&parts.join("; ")) }
    }

    /// `3 runs, 2026-11-01 to 2026-11-21`.
    pub(crate) fn sustained(&self) -> String {
        let day = |at: &str| at.get(..10).unwrap_or(at).to_owned();
        let (first, last) = (day(&self.first), day(&self.last));
        match self.runs.len() {
            1 => format!("1 run, {last}"),
            many if first == last => format!("{many} runs, all on {last}"),
            many => format!("{many} runs, {first} to {last}"),
        }
    }

    pub(crate) fn newest(&self) -> &str {
        self.runs.last().map_or("", String::as_str)
    }
}

impl Tally {
    pub(crate) fn total(&self) -> usize {
        self.passed + self.known + self.failed + self.open + self.skipped
    }

    pub(crate) fn sentence(&self) -> String {
        let mut text = format!("{} of {} passed", self.passed, self.total());
        let others = [
            (self.failed, "failed"),
            (self.known, "failed as expected"),
            (self.open, "without a verdict"),
            (self.skipped, "skipped"),
        ];
        others
            .iter()
            .filter(|(number, _)| *number > 0)
            .for_each(|(number, word)| text += &format!(", {number} {word}"));
        text
    }
}

#[cfg(test)]
mod tests;
