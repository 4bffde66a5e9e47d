//! Proves that the search finds differences: a proxy before the side under test adds a defect, one after the other.

use std::time::Duration;

use mutate::Proxy;
use serde_json::json;
use sys::interrupt;
use sys::progress::{self, Phase};
use tokio::runtime::Runtime;

use model::Exit;

use super::boot::Planes;
use super::generate::Generator;
use super::mutants::DEFECTS;
use super::play::Sides;
use super::search::{Bounds, Expected, Found, Search};
use super::side::Side;
use super::{Outcome, SEEDS};
use crate::args::DifferentialOptions;

/// How long a search for one defect may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Names of one defect's runs begin at a multiple of this, because all use the same control planes.
const RUNS: u64 = 1_000_000;

pub(crate) fn run(
    runtime: &Runtime,
    sides: &Sides,
    generator: &Generator,
    planes: &Planes,
    options: &DifferentialOptions,
) -> anyhow::Result<Outcome> {
    let mut rows = Vec::new();
    let mut text = String::new();
    for (number, defect) in (1u64..).zip(DEFECTS) {
        interrupt::check()?;
        let proxy = Proxy::start(&planes.tested, (defect.change)())?;
        let mut behind = planes.tested.clone();
        behind.apiserver = proxy.url();
        behind.client_certificate_required = true;
        let tested = runtime.block_on(Side::connect("under test", &behind, planes.factor))?;
        let broken = Sides { reference: sides.reference.clone(), second: sides.second.clone(), tested };
        // The test must not depend on a chosen seed.
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(..SEEDS));
        let generator =
            Generator { kinds: generator.kinds.clone(), levels: generator.levels.clone(), seed, only: Vec::new() };
        let bounds = Bounds { time: LIMIT, cases: u64::MAX, first_only: true, width: options.width.max(1) };
        let phase = Phase::start(format!("defect {}", defect.id));
        let search = Search::new(&broken, &generator, bounds, Expected::default(), number * RUNS);
        let found = runtime.block_on(search.all(&phase));
        let Found { groups, seconds, cases, .. } = &found;
        let killed = !groups.is_empty();
        let key = groups.keys().next().map(ToString::to_string).unwrap_or_default();
        let word = if killed { "killed" } else { "SURVIVED" };
        let line = format!("{word} {} (seed {seed}, {cases} cases, {seconds:.1} s): {key}", defect.id);
        phase.done(&line);
        text.push_str(&format!("{line}\n"));
        rows.push(json!({
            "defect": defect.id, "breaks": defect.breaks, "killed": killed, "seed": seed, "cases": cases,
            "seconds": seconds, "group": key, "errors": found.errors,
        }));
    }
    let survived = rows.iter().filter(|row| row["killed"] == false).count();
    progress::say(&format!("live level: {} of {} defects were found", rows.len() - survived, rows.len()));
    let exit = if survived == 0 { Exit::Ok } else { Exit::Conformance };
    Ok(Outcome { exit, text, json: json!({ "selftest": rows }), junit: None, sequences: Vec::new() })
}
