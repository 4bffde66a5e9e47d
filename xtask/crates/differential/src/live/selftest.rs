//! Proves that the searches find differences: a proxy before the side under test adds a defect, one after the other.

use std::time::Duration;

use model::Exit;
use mutate::Proxy;
use serde_json::{Value, json};
use sys::interrupt;
use sys::progress::{self, Phase};
use tokio::runtime::Runtime;

use super::boot::Planes;
use super::generate::Generator;
use super::mutants::{DEFECTS, Defect};
use super::play::Sides;
use super::request::Family;
use super::search::{Bounds, Expected, Found, Search};
use super::side::Side;
use super::{Outcome, SEEDS};
use crate::args::DifferentialOptions;

/// How long a search for one defect may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Names of one defect's runs begin at a multiple of this, because all use the same control planes.
const RUNS: u64 = 1_000_000;

/// The search for one defect.
pub(super) struct Hunt<'a> {
    pub(super) defect: &'a Defect,
    pub(super) seed: u64,
    pub(super) bounds: Bounds,
    /// The number of its first run.
    pub(super) first_run: u64,
    pub(super) phase: Phase,
}

/// Searches for each defect with a seed that the test does not choose.
pub(super) fn hunt(
    level: &str,
    defects: &[Defect],
    options: &DifferentialOptions,
    mut search: impl FnMut(&Hunt<'_>) -> anyhow::Result<Found>,
) -> anyhow::Result<Outcome> {
    let mut rows = Vec::new();
    let mut text = String::new();
    for (number, defect) in (1u64..).zip(defects) {
        interrupt::check()?;
        let hunt = Hunt {
            defect,
            seed: options.seed.unwrap_or_else(|| fastrand::u64(..SEEDS)),
            bounds: Bounds { time: LIMIT, cases: u64::MAX, first_only: true, width: options.width.max(1) },
            first_run: number * RUNS,
            phase: Phase::start(format!("defect {}", defect.id)),
        };
        let found = search(&hunt)?;
        let (line, row) = result(&hunt, &found);
        hunt.phase.done(&line);
        text.push_str(&format!("{line}\n"));
        rows.push(row);
    }
    let survived = rows.iter().filter(|row| row["killed"] == false).count();
    progress::say(&format!("{level}: {} of {} defects were found", rows.len() - survived, rows.len()));
    let exit = if survived == 0 { Exit::Ok } else { Exit::Conformance };
    Ok(Outcome { exit, text, json: json!({ "selftest": rows }), junit: None, sequences: Vec::new() })
}

/// What the search found, as a line and for the JSON.
fn result(hunt: &Hunt<'_>, found: &Found) -> (String, Value) {
    let Found { groups, seconds, sequences, .. } = found;
    let Defect { id, breaks, .. } = hunt.defect;
    let killed = !groups.is_empty();
    let key = groups.keys().next().map(ToString::to_string).unwrap_or_default();
    let word = if killed { "killed" } else { "SURVIVED" };
    let line = format!("{word} {id} (seed {}, {sequences} sequences, {seconds:.1} s): {key}", hunt.seed);
    let row = json!({
        "defect": id, "breaks": breaks, "killed": killed, "seed": hunt.seed, "sequences": sequences,
        "seconds": seconds, "group": key, "errors": found.errors,
    });
    (line, row)
}

pub(super) fn run(
    runtime: &Runtime,
    sides: &Sides,
    generator: &Generator,
    planes: &Planes,
    options: &DifferentialOptions,
) -> anyhow::Result<Outcome> {
    hunt("live level", DEFECTS, options, |hunt| {
        let proxy = Proxy::start(&planes.tested, (hunt.defect.change)())?;
        let mut behind = planes.tested.clone();
        behind.apiserver = proxy.url();
        behind.client_certificate_required = true;
        let tested = runtime.block_on(Side::connect("under test", &behind, planes.transport(), planes.factor))?;
        let broken = Sides { reference: sides.reference.clone(), second: sides.second.clone(), tested };
        // No defect changes metrics, which the sequences about seats read.
        let only = vec![Family::Builtin, Family::Custom, Family::Amounts];
        let generator = Generator { seed: hunt.seed, only, ..generator.clone() };
        let search = Search::new(&broken, &generator, hunt.bounds, Expected::default(), hunt.first_run);
        Ok(runtime.block_on(search.all(&hunt.phase)))
    })
}
