//! Proves that the search finds differences: a proxy between the controllers and the apiserver under test adds a defect.

use tokio::runtime::Runtime;

use super::defects::DEFECTS;
use super::managers::Plane;
use super::scenario::Family;
use super::search::Search;
use super::stage::Stage;
use crate::args::DifferentialOptions;
use crate::live::Outcome;
use crate::live::selftest::hunt;

pub(super) fn run(
    runtime: &Runtime,
    stage: &Stage<'_>,
    tested: &Plane<'_>,
    families: &[&'static Family],
    factor: f64,
    options: &DifferentialOptions,
) -> anyhow::Result<Outcome> {
    hunt("level of controllers", DEFECTS, factor, options, |hunt| {
        let proxies = tested.start_behind((hunt.defect.change)(), &stage.metrics, factor)?;
        let search = Search::new(stage, families, hunt.seed, hunt.bounds, hunt.first_run);
        let (found, _) = runtime.block_on(search.all(&hunt.phase));
        drop(proxies);
        Ok(found)
    })
}
