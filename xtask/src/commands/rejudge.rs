//! `cargo xtask rejudge`: repeats the verdicts of the judges from a run's recorded files alone.

use model::Exit;

use crate::args::RejudgeOptions;
use crate::failure::Failure;
use crate::paths::Paths;

pub(crate) fn run(_paths: &Paths, _options: &RejudgeOptions) -> Result<Exit, Failure> {
    Err(Failure::usage(anyhow::anyhow!("not yet")))
}
