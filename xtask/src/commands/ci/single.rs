//! A run in a folder of its caller, for a command that repeats a case on several releases.

use cli::{Failure, Paths, host_target};
use model::Event;
use sys::RunDir;
use targets::Catalogue;

use super::{RunContext, RunPlan, run_arch};
use crate::args::CiOptions;
use crate::build_lock::BuildLock;

/// Runs what the options select on this machine's architecture; returns the events of the run, with any result.
///
/// # Errors
/// The run could not begin, or its record is incomplete.
pub(crate) fn run_single(
    paths: &Paths,
    catalogue: &Catalogue,
    options: &CiOptions,
    run: RunDir,
) -> Result<Vec<Event>, Failure> {
    let target = host_target(catalogue)?;
    let plan = RunPlan::new(paths, catalogue, options)?;
    let context = RunContext { paths, catalogue, options, plan, builds: BuildLock::default() };
    let ended = run_arch(&context, target, run)?;
    match ended.broken {
        Some(failure) => Err(failure),
        None => Ok(ended.events),
    }
}
