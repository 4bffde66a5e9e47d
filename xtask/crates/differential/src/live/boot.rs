//! Starts the compared control planes: two of the reference, one under test.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use boot::{Booted, CONTROLLER_MANAGER, SCHEDULER, Topology};
use cli::{Failure, OrExit, Paths, built, host_target, request};
use model::{Control, Exit, Native, Profile, ProfileInfo, Target};
use provider::{ProviderArg, Setup};
use sys::RunDir;
use sys::run_dir::Together;
use targets::Catalogue;

use crate::args::DifferentialOptions;

/// The profile of all sides.
const PROFILE: &str = "default";
/// The flag for features that are not on by default.
const GATES: &str = "feature-gates";
/// The profile's name on the second reference.
const SECOND: &str = "second";

/// The running control planes.
pub(crate) struct Planes {
    pub(crate) reference: ProfileInfo,
    pub(crate) second: ProfileInfo,
    pub(crate) tested: ProfileInfo,
    /// Control over the components of both references; None if they could not reach servers of the harness.
    pub(crate) reference_control: Option<Arc<dyn Control>>,
    pub(crate) tested_control: Option<Arc<dyn Control>>,
    pub(crate) arch: String,
    pub(crate) against: String,
    /// The version of kube-apiserver.
    pub(crate) version: String,
    /// The slowdown of the slowest side.
    pub(crate) factor: f64,
    pub(crate) folder: PathBuf,
    /// Dropping a run folder removes the keys of its control planes.
    booted: Vec<(Booted, RunDir)>,
}

impl Planes {
    pub(crate) fn end(self) -> anyhow::Result<()> {
        self.booted.iter().try_for_each(|(booted, _)| booted.end(None))
    }
}

/// Starts the profile that all sides use after the change by `adapt`.
pub(crate) fn boot(
    paths: &Paths,
    catalogue: &Catalogue,
    options: &DifferentialOptions,
    adapt: impl Fn(Profile) -> Profile,
) -> Result<Planes, Failure> {
    let tested = cli::with_cpu(cli::target(catalogue, options.arch.as_deref())?, options.cpu.cpu.as_deref())?;
    let arch = tested.label();
    let against = cli::target(catalogue, options.against.as_deref())?;
    let mut profile = adapt(catalogue.profile(PROFILE)?.clone());
    // Bodies as CBOR are an alpha feature.
    profile.apiserver.entry(GATES.into()).or_insert_with(|| "CBORServingAndStorage=true".into());
    let second = Profile { name: SECOND.into(), ..profile.clone() };
    let label = format!("{arch}-differential");
    let together = Together::create(&paths.reports, &paths.cache, &label).or_exit(Exit::Infrastructure)?;
    let start = |target: &Target, others: Option<&Native>, name: &str, profiles: &[Profile]| {
        let run = together.run(name).or_exit(Exit::Infrastructure)?;
        let booted = start(paths, catalogue, options, (target, others), &run, profiles)?;
        booted.wake_all().or_exit(Exit::Infrastructure)?;
        Ok::<(Booted, RunDir), Failure>((booted, run))
    };
    let (references, reference_run) = start(against, None, "reference", &[profile.clone(), second])?;
    let (tested, tested_run) = if options.only_controllers {
        let controllers = controllers(paths, catalogue, options, tested)?;
        start(against, Some(&controllers), "tested", &[profile])?
    } else {
        start(&tested, None, "tested", &[profile])?
    };
    let of = |booted: &Booted, name: &str| {
        let found = booted.cluster.info.profiles.get(name).cloned();
        found.with_context(|| format!("the cluster has no profile `{name}`")).or_exit(Exit::Infrastructure)
    };
    Ok(Planes {
        reference: of(&references, PROFILE)?,
        second: of(&references, SECOND)?,
        tested: of(&tested, PROFILE)?,
        reference_control: control(&references),
        tested_control: control(&tested),
        arch,
        against: references.cluster.info.arch.clone(),
        version: references.versions.get("kube-apiserver").cloned().unwrap_or_default(),
        factor: tested.cluster.info.factor.max(references.cluster.info.factor),
        folder: together.public().to_owned(),
        booted: vec![(tested, tested_run), (references, reference_run)],
    })
}

/// The controllers of the architecture under test.
fn controllers(
    paths: &Paths,
    catalogue: &Catalogue,
    options: &DifferentialOptions,
    target: Target,
) -> Result<Native, Failure> {
    let only = [CONTROLLER_MANAGER, SCHEDULER].map(str::to_owned);
    let request = build::Request { only: Some(&only), ..request(paths, catalogue, &target, Some(&options.sources)) };
    let artifacts = built(paths, request).or_exit(Exit::Build)?;
    Ok(Native { target, artifacts })
}

fn control(booted: &Booted) -> Option<Arc<dyn Control>> {
    booted.cluster.control.clone().filter(|_| booted.cluster.info.machine.is_none())
}

fn start(
    paths: &Paths,
    catalogue: &Catalogue,
    options: &DifferentialOptions,
    (target, others): (&Target, Option<&Native>),
    run: &RunDir,
    profiles: &[Profile],
) -> Result<Booted, Failure> {
    let host = host_target(catalogue).ok();
    let chosen = match others {
        Some(_) => ProviderArg::Process,
        None => provider::choose(&options.provider, host, target),
    };
    let setup =
        Setup { chosen, options: &options.provider, paths, catalogue, host, target, offline: options.sources.offline };
    let prepared = setup.prepare().or_exit(Exit::Infrastructure)?;
    let components = setup.components(profiles).or_exit(Exit::TargetData)?;
    let request =
        build::Request { only: Some(&components), ..request(paths, catalogue, target, Some(&options.sources)) };
    let artifacts = built(paths, request).or_exit(Exit::Build)?;
    let topology = Topology { profiles: profiles.to_vec(), node: None };
    let booted = match others {
        Some(_) => boot::up_mixed(target, &artifacts, others, &topology, run, &sys::ports::free),
        None => prepared.boot(&artifacts, &topology, run),
    };
    booted.or_exit(Exit::Infrastructure)
}
