//! What the tiers of upstream projects require of an architecture (`targets/support/tiers.yaml`), and what the evidence
//! shows about each requirement.

use std::collections::BTreeMap;

use model::Level;
use serde::Deserialize;

use super::{Evidence, Execution, Support};

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tiers {
    pub projects: Vec<Project>,
}

/// A project that defines support tiers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Project {
    pub name: String,
    /// The URL of the description of the tiers.
    pub source: String,
    /// When the description was read.
    pub read: String,
    /// The tier that the project assigns to an architecture, by GOARCH.
    pub listed: BTreeMap<String, String>,
    pub criteria: Vec<Criterion>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Criterion {
    pub tier: String,
    pub text: String,
    pub evidence: Kind,
    /// The component that the criterion is about, if runs can show it.
    #[serde(default)]
    pub component: String,
    /// Why no run can show that the criterion is met.
    #[serde(default)]
    pub note: String,
    /// Facts by GOARCH.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

/// The kind of evidence that shows that a criterion is met; see the comments in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
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

/// What the evidence shows about one criterion on one architecture.
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
    /// Some evidence supports the criterion, but less than it requires.
    Part,
    Against,
    Nothing,
}

impl Weight {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Weight::Shown => "shown",
            Weight::Part => "partly shown",
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
    // Versions are ordered by name, so that the reversed iterator starts with the last version.
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
        Kind::Checked => best(&cells, |execution| checked(execution, support)),
    }
}

fn fact(fact: Option<&String>) -> Judged {
    let (weight, text) = match fact.map(String::as_str) {
        Some("yes") => (Weight::Shown, "according to upstream"),
        Some("no") => (Weight::Against, "according to upstream"),
        Some(other) => (Weight::Part, other),
        None => (Weight::Nothing, "unknown"),
    };
    Judged { weight, text: text.into(), run: None }
}

/// Shown only if all cases of level must that the suite has passed on hardware.
fn checked(execution: &Execution, support: &Support) -> (Weight, String) {
    let musts = &support.musts;
    let tally = execution.tally(Level::Must);
    let weight = match tally {
        _ if tally.total() == 0 => Weight::Nothing,
        _ if tally.failed + tally.known > 0 => Weight::Against,
        _ if execution.on_hardware && !musts.is_empty() && execution.has_passed(musts) => Weight::Shown,
        _ => Weight::Part,
    };
    (weight, format!("must: {}; cases of level must in the suite: {}", tally.sentence(), musts.len()))
}

/// The strongest evidence: hardware before emulators, newer runs before older ones. Runs on other stores than etcd say
/// nothing about upstream's criteria.
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
