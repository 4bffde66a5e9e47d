//! The commands, one file each. They combine stages; the crate of a stage implements it.

pub(crate) mod audit;
pub(crate) mod build;
pub(crate) mod cache;
pub(crate) mod checks;
pub(crate) mod ci;
pub(crate) mod fetch;
pub(crate) mod host_forward;
pub(crate) mod inspect;
pub(crate) mod kept;
pub(crate) mod kubectl;
pub(crate) mod rejudge;
mod release;
pub(crate) mod selftest;
pub(crate) mod shell;
pub(crate) mod supervise;
pub(crate) mod targets;
pub(crate) mod test;
pub(crate) mod up;

use std::path::{Path, PathBuf};

use ::targets::Catalogue;
use anyhow::Context;
use boot::Topology;
use cli::{Failure, OrExit, Paths, SourceOptions, built, host_target, request};
use model::{Artifacts, Exit, Profile, Target};
use provider::{Prepared, ProviderArg, ProviderOptions, Setup};

/// Finds a path, or a name below `reports/`.
fn found(paths: &Paths, given: &str, fits: fn(&Path) -> bool) -> anyhow::Result<PathBuf> {
    let mut candidates = [PathBuf::from(given), paths.reports.join(given)].into_iter();
    let found = candidates.find(|path| fits(path));
    found.with_context(|| format!("no run `{given}`: it is neither a path nor in {}", paths.reports.display()))
}

/// Everything that a boot needs.
pub(crate) struct Ready<'a> {
    pub(crate) chosen: ProviderArg,
    pub(crate) provider: Box<dyn Prepared + 'a>,
    pub(crate) artifacts: Artifacts,
    pub(crate) topology: Topology,
}

/// Makes the provider ready and builds what these profiles need.
pub(crate) fn ready<'a>(
    paths: &'a Paths,
    catalogue: &'a Catalogue,
    target: &'a Target,
    options: &'a ProviderOptions,
    sources: &SourceOptions,
    profiles: Vec<Profile>,
) -> Result<Ready<'a>, Failure> {
    let host = host_target(catalogue).ok();
    let chosen = provider::choose(options, host, target);
    provider::known(options, sources)?;
    let setup = Setup { chosen, options, paths, catalogue, host, target, offline: sources.offline };
    let provider = setup.prepare().or_exit(Exit::Infrastructure)?;
    let profiles = provider::on_sources(sources, &catalogue.components, profiles);
    let components = setup.components(&profiles).or_exit(Exit::TargetData)?;
    let request = ::build::Request { only: Some(&components), ..request(paths, catalogue, target, Some(sources)) };
    let artifacts = built(paths, request).or_exit(Exit::Build)?;
    let topology = provider.topology(&artifacts, &profiles).or_exit(Exit::Infrastructure)?;
    Ok(Ready { chosen, provider, artifacts, topology })
}
