//! What upstream's tiers ask of an architecture (`targets/support/tiers.yaml`), and what the evidence says to that.

use std::collections::BTreeMap;

use model::Level;
use serde::Deserialize;

use super::{Evidence, Execution, Support};

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tiers {
    pub projects: Vec<Project>,
}

/// A project with tiers of its own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Project {
    pub name: String,
    /// Where the tiers are described: an URL.
    pub source: String,
    /// When that was read.
    pub read: String,
    /// The tier in which the project names an architecture, by GOARCH.
    pub listed: BTreeMap<String, String>,
    pub criteria: Vec<Criterion>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    pub tier: String,
    pub text: String,
    pub evidence: Kind,
    /// What it speaks of, for what runs can show.
    #[serde(default)]
    pub component: String,
    /// Why no run can show it.
    #[serde(default)]
    pub note: String,
    /// By GOARCH.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

/// What can show that a criterion is met; see the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Built,
    Started,
    Checked,
    Fact,
    Elsewhere,
}

/// A project's criteria for each architecture.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProjectTable {
    pub(crate) project: Project,
    /// A row for each criterion, a cell for each architecture.
    pub(crate) rows: Vec<Vec<Judged>>,
}

/// What the evidence says to one criterion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) weight: Weight,
    pub(crate) text: String,
    /// The run that shows it.
    pub(crate) run: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    Shown,
    /// Something speaks for it, but not all that was asked.
    Part,
    Against,
    Nothing,
}

impl Weight {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Weight::Shown => "shown",
            Weight::Part => "in part",
            Weight::Against => "not met",
            Weight::Nothing => "no evidence",
        }
    }
}

pub(super) fn weigh(project: &Project, support: &Support) -> ProjectTable {
    let row = |criterion: &Criterion| {
        let cell = |column| judged(criterion, support, column);
        (0..support.arches.len()).map(cell).collect()
    };
    ProjectTable { project: project.clone(), rows: project.criteria.iter().map(row).collect() }
}

fn judged(criterion: &Criterion, support: &Support, column: usize) -> Judged {
    let versions = support.programs.iter().filter(|program| program.component == criterion.component);
    // Each with its evidence; the versions are in the order of their names, so the last ones are looked at first.
    let cells: Vec<(&str, &Evidence)> =
        versions.rev().map(|program| (program.version.as_str(), &program.cells[column])).collect();
    match criterion.evidence {
        Kind::Elsewhere => Judged { weight: Weight::Nothing, text: criterion.note.clone(), run: None },
        Kind::Fact => fact(criterion.facts.get(&support.arches[column].name)),
        Kind::Built => {
            let built = cells.iter().find_map(|(version, cell)| Some((version, cell.built.as_ref()?)));
            built.map_or_else(nothing, |(version, run)| Judged {
                weight: Weight::Shown,
                text: format!("{version}, audited"),
                run: Some(run.clone()),
            })
        }
        Kind::Started => best(&cells, |execution| {
            let weight = if execution.on_hardware { Weight::Shown } else { Weight::Part };
            (weight, execution.sustained())
        }),
        Kind::Checked => best(&cells, |execution| checked(execution, support.musts)),
    }
}

fn fact(fact: Option<&String>) -> Judged {
    let (weight, text) = match fact.map(String::as_str) {
        Some("yes") => (Weight::Shown, "upstream says so"),
        Some("no") => (Weight::Against, "upstream says so"),
        Some(other) => (Weight::Part, other),
        None => (Weight::Nothing, "not known here"),
    };
    Judged { weight, text: text.into(), run: None }
}

/// Shown only by all checks of level must that the suite has, on hardware.
fn checked(execution: &Execution, musts: usize) -> (Weight, String) {
    let tally = execution.tally(Level::Must);
    let weight = match tally {
        _ if tally.total() == 0 => Weight::Nothing,
        _ if tally.failed + tally.known > 0 => Weight::Against,
        _ if execution.on_hardware && musts > 0 && tally.passed >= musts => Weight::Shown,
        _ => Weight::Part,
    };
    (weight, format!("must: {}; the suite has {musts}", tally.sentence()))
}

/// What speaks most for it: hardware before emulators, newer runs before older ones. Other stores than etcd say nothing
/// about what upstream asks.
fn best(cells: &[(&str, &Evidence)], judge: impl Fn(&Execution) -> (Weight, String)) -> Judged {
    let all = cells
        .iter()
        .flat_map(|(version, cell)| cell.executions.iter().map(move |(how, execution)| (version, how, execution)));
    let of_upstream = all.filter(|(_, how, _)| how.ends_with("on etcd"));
    let found = of_upstream
        .max_by_key(|(_, _, execution)| (execution.on_hardware, execution.tally(Level::Must).total(), &execution.last));
    found.map_or_else(nothing, |(version, how, execution)| {
        let (weight, said) = judge(execution);
        Judged { weight, text: format!("{version} {how}: {said}"), run: Some(execution.newest().to_owned()) }
    })
}

fn nothing() -> Judged {
    Judged { weight: Weight::Nothing, text: String::new(), run: None }
}
