//! Proves that the search finds differences: a proxy between the controllers and the apiserver under test adds a defect.

use std::time::Duration;

use model::Exit;
use serde_json::json;
use sys::interrupt;
use sys::progress::{self, Phase};
use tokio::runtime::Runtime;

use super::defects::DEFECTS;
use super::managers::Plane;
use super::scenario::Family;
use super::search::Search;
use super::stage::Stage;
use crate::args::DifferentialOptions;
use crate::live::search::{Bounds, Found};
use crate::live::{Outcome, SEEDS};

/// How long a search for one defect may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Names of one defect's runs begin at a multiple of this, because all use the same control planes.
const RUNS: u64 = 1_000_000;

pub(super) fn run(
    runtime: &Runtime,
    stage: &Stage<'_>,
    tested: &Plane<'_>,
    families: &[&'static Family],
    (factor, width): (f64, usize),
    options: &DifferentialOptions,
) -> anyhow::Result<Outcome> {
    let mut rows = Vec::new();
    let mut text = String::new();
    for (number, defect) in (1u64..).zip(DEFECTS) {
        interrupt::check()?;
        let proxies = tested.start_behind((defect.change)(), &stage.metrics, factor)?;
        // The test must not depend on a chosen seed.
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(..SEEDS));
        let bounds = Bounds { time: LIMIT, cases: u64::MAX, first_only: true, width };
        let phase = Phase::start(format!("defect {}", defect.id));
        let search = Search::new(stage, families, seed, bounds, number * RUNS);
        let (found, _) = runtime.block_on(search.all(&phase));
        drop(proxies);
        let Found { groups, seconds, sequences, .. } = &found;
        let killed = !groups.is_empty();
        let key = groups.keys().next().map(ToString::to_string).unwrap_or_default();
        let word = if killed { "killed" } else { "SURVIVED" };
        let line = format!("{word} {} (seed {seed}, {sequences} scenarios, {seconds:.1} s): {key}", defect.id);
        phase.done(&line);
        text.push_str(&format!("{line}\n"));
        rows.push(json!({
            "defect": defect.id, "breaks": defect.breaks, "killed": killed, "seed": seed, "scenarios": sequences,
            "seconds": seconds, "group": key, "errors": found.errors,
        }));
    }
    let survived = rows.iter().filter(|row| row["killed"] == false).count();
    progress::say(&format!("level of controllers: {} of {} defects were found", rows.len() - survived, rows.len()));
    let exit = if survived == 0 { Exit::Ok } else { Exit::Conformance };
    Ok(Outcome { exit, text, json: json!({ "selftest": rows }), junit: None, sequences: Vec::new() })
}
