//! Proves that the searches find differences: a proxy before the side under test adds a defect, one after the other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use model::Exit;
use mutate::{Change, Proxy};
use serde_json::{Value, json};
use sys::interrupt;
use sys::progress::{self, Phase};
use tokio::runtime::Runtime;

use super::boot::Planes;
use super::generate::Generator;
use super::mutants::{DEFECTS, Defect};
use super::play::{Sides, Verdict};
use super::request::{Family, Names};
use super::search::{Bounds, ERRORS, Found, Search};
use super::side::Side;
use super::{Outcome, SEEDS};
use crate::args::DifferentialOptions;
use crate::group::Expected;

/// How long a search for one defect may take on a fast machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Names of one defect's runs begin at a multiple of this, because all use the same control planes.
const RUNS: u64 = 1_000_000;
/// The most runs of one search.
const SEARCH: u64 = 100_000;

/// The search for one defect.
pub(super) struct Hunt<'a> {
    pub(super) defect: &'a Defect,
    pub(super) seed: u64,
    pub(super) bounds: Bounds,
    /// The number of its first run.
    pub(super) first_run: u64,
    pub(super) phase: Phase,
}

/// Searches for each defect with a seed that the test does not choose. `factor` is the slowdown of the slowest side.
pub(super) fn hunt(
    level: &str,
    defects: &[Defect],
    factor: f64,
    options: &DifferentialOptions,
    mut search: impl FnMut(&mut Hunt<'_>) -> anyhow::Result<Found>,
) -> anyhow::Result<Outcome> {
    let time = LIMIT.mul_f64(factor.max(1.0));
    let mut rows = Vec::new();
    let mut text = String::new();
    for (number, defect) in (1u64..).zip(defects) {
        interrupt::check()?;
        let mut hunt = Hunt {
            defect,
            seed: options.seed.unwrap_or_else(|| fastrand::u64(..SEEDS)),
            bounds: Bounds { time, cases: u64::MAX, first_only: true, width: options.width.max(1) },
            first_run: number * RUNS,
            phase: Phase::start(format!("defect {}", defect.id)),
        };
        let found = search(&mut hunt)?;
        interrupt::check()?;
        let (line, row) = result(&hunt, &found);
        hunt.phase.done(&line);
        text.push_str(&format!("{line}\n"));
        rows.push(row);
    }
    let killed = rows.iter().filter(|row| row["killed"] == true).count();
    progress::say(&format!("{level}: {killed} of {} defects were found", rows.len()));
    let exit = exit(&rows);
    Ok(Outcome { exit, text, json: json!({ "selftest": rows }), junit: None, sequences: Vec::new() })
}

/// A search that errors ended says nothing about its defect.
fn exit(rows: &[Value]) -> Exit {
    let survived = || rows.iter().filter(|row| row["killed"] == false);
    let is_undecided = |row: &Value| row["errors"].as_array().is_some_and(|errors| errors.len() >= ERRORS);
    match (survived().count(), survived().all(is_undecided)) {
        (0, _) => Exit::Ok,
        (_, true) => Exit::Infrastructure,
        (_, false) => Exit::Conformance,
    }
}

/// What the search found, as a line and for the JSON.
fn result(hunt: &Hunt<'_>, found: &Found) -> (String, Value) {
    let Found { groups, seconds, sequences, .. } = found;
    let Defect { id, breaks, .. } = hunt.defect;
    let killed = !groups.is_empty();
    let key = groups.keys().next().map(ToString::to_string).unwrap_or_default();
    let word = match found.errors.first() {
        _ if killed => "killed".to_owned(),
        Some(error) if found.errors.len() >= ERRORS => format!("UNDECIDED because of errors, the first: {error};"),
        _ => "SURVIVED".to_owned(),
    };
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
    let behind = |change: Change| -> anyhow::Result<(Proxy, Sides)> {
        let proxy = Proxy::start(&planes.tested, change)?;
        let mut profile = planes.tested.clone();
        profile.apiserver = proxy.url();
        profile.client_certificate_required = true;
        let tested = runtime.block_on(Side::connect("under test", &profile, planes.transport(), planes.factor))?;
        Ok((proxy, Sides { reference: sides.reference.clone(), second: sides.second.clone(), tested }))
    };
    let (_unchanged, without_defect) = behind(Change::Nothing)?;
    hunt("live level", DEFECTS, planes.factor, options, |hunt| {
        let (_changed, broken) = behind((hunt.defect.change)())?;
        // No defect changes metrics, which the sequences about seats read.
        let only = vec![Family::Builtin, Family::Custom, Family::Amounts];
        let begin = Instant::now();
        let last = hunt.first_run + RUNS - 2 * SEARCH;
        loop {
            let generator = Generator { seed: hunt.seed, only: only.clone(), ..generator.clone() };
            let bounds = Bounds { time: hunt.bounds.time.saturating_sub(begin.elapsed()), ..hunt.bounds };
            let search = Search::new(&broken, &generator, bounds, Expected::default(), hunt.first_run);
            let found = runtime.block_on(search.all(&hunt.phase));
            hunt.first_run += SEARCH;
            let Some(finding) = found.groups.values().next() else { return Ok(found) };
            // A proxy answers 502 where a server resets the stream, which no defect causes.
            let names = Names::of(hunt.first_run, None);
            let control = runtime.block_on(without_defect.play(&finding.sequence, &names))?;
            if !matches!(control.verdict, Verdict::Different(_)) {
                return Ok(found);
            }
            progress::say(&format!("{}: {} shows without the defect, too", hunt.defect.id, finding.key));
            if begin.elapsed() >= hunt.bounds.time || hunt.first_run >= last {
                return Ok(Found { groups: BTreeMap::new(), ..found });
            }
            hunt.first_run += 1;
            hunt.seed = hunt.seed.wrapping_add(1);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_that_errors_ended_is_undecided() {
        let row = |killed: bool, errors: usize| json!({"killed": killed, "errors": vec!["e"; errors]});
        assert_eq!(exit(&[row(true, 0), row(true, ERRORS)]), Exit::Ok);
        assert_eq!(exit(&[row(true, 0), row(false, ERRORS)]), Exit::Infrastructure);
        assert_eq!(exit(&[row(false, 1), row(false, ERRORS)]), Exit::Conformance);
    }
}
