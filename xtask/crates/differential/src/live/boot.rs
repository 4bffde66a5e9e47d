//! Starts the compared control planes: two of the reference, and one under test unless that is an external cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use boot::existing::{self, Existing};
use boot::{Booted, CONTROLLER_MANAGER, SCHEDULER, Topology};
use cli::{Failure, OrExit, Paths, built, host_target, request};
use model::{Artifacts, ClusterInfo, Control, Exit, Native, Profile, ProfileInfo, Target};
use provider::{ProviderArg, Setup};
use suite::api::Transport;
use sys::RunDir;
use sys::progress;
use sys::run_dir::Together;
use targets::Catalogue;

use super::external::Shared;
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
    external: Option<(Existing, RunDir)>,
}

/// The side under test.
struct Tested {
    profile: ProfileInfo,
    control: Option<Arc<dyn Control>>,
    arch: String,
    factor: f64,
    booted: Option<(Booted, RunDir)>,
}

impl Planes {
    pub(crate) fn end(self) -> anyhow::Result<()> {
        let removed = self.external.iter().try_for_each(|(existing, _)| existing.end());
        self.booted.iter().try_for_each(|(booted, _)| booted.end(None)).and(removed)
    }

    /// Whether an external cluster still accepts the credentials: an expired token would look like a difference.
    pub(crate) fn still_answer(&self) -> anyhow::Result<()> {
        self.external.iter().try_for_each(|(existing, _)| existing.still_answers())
    }

    /// The protocol of the side under test.
    pub(crate) fn transport(&self) -> Transport {
        let external = self.external.as_ref().and_then(|(existing, _)| existing.cluster.info.external.as_ref());
        if external.is_some_and(|external| external.http1_only) { Transport::Http1 } else { Transport::Http2 }
    }

    /// The run's place in the external cluster.
    pub(crate) fn shared(&self) -> Option<Shared> {
        self.external.as_ref().map(|(existing, _)| Shared { run_label: existing.run_label().to_owned() })
    }
}

/// Starts the profile that all sides use after the change by `adapt`; an external cluster has a profile of its own.
pub(crate) fn boot(
    paths: &Paths,
    catalogue: &Catalogue,
    options: &DifferentialOptions,
    adapt: impl Fn(Profile) -> Profile,
) -> Result<Planes, Failure> {
    let mut profile = adapt(catalogue.profile(PROFILE)?.clone());
    let Some(kubeconfig) = &options.kubeconfig else {
        let tested = cli::with_cpu(cli::target(catalogue, options.arch.as_deref())?, options.cpu.cpu.as_deref())?;
        // Bodies as CBOR are an alpha feature.
        profile.apiserver.entry(GATES.into()).or_insert_with(|| "CBORServingAndStorage=true".into());
        let together = together(paths, &tested.label())?;
        let starter = Starter { paths, catalogue, options, together: &together, profile };
        return starter.planes(|| starter.tested(&tested));
    };
    let together = together(paths, "external")?;
    let run = together.run("tested").or_exit(Exit::Infrastructure)?;
    let existing = connect(options, kubeconfig, &run).or_exit(Exit::Infrastructure)?;
    let starter = Starter { paths, catalogue, options, together: &together, profile };
    let planes = suits(&existing, options.arch.as_deref())
        .map_err(Failure::usage)
        .and_then(|()| starter.planes(|| external(&existing)))
        .and_then(|planes| same_release(&existing, &planes).map_err(Failure::usage).map(|()| planes));
    match planes {
        Ok(planes) => Ok(Planes { external: Some((existing, run)), ..planes }),
        Err(failure) => existing.end().or_exit(Exit::Infrastructure).and(Err(failure)),
    }
}

fn together(paths: &Paths, label: &str) -> Result<Together, Failure> {
    Together::create(&paths.reports, &paths.cache, &format!("{label}-differential")).or_exit(Exit::Infrastructure)
}

fn connect(options: &DifferentialOptions, kubeconfig: &Path, run: &RunDir) -> anyhow::Result<Existing> {
    let context = options.context.as_deref();
    let request =
        existing::Request { kubeconfig, context, store: None, prefix: "/registry", profile: PROFILE, factor: None };
    let existing = existing::connect(&request, run.private())?;
    existing.notes.iter().for_each(|note| progress::say(note));
    Ok(existing)
}

fn suits(existing: &Existing, arch: Option<&str>) -> anyhow::Result<()> {
    let found = &existing.cluster.info.arch;
    let wanted = arch.unwrap_or(found);
    ensure!(wanted == found, "the cluster reports the architecture {found}, but --arch is {wanted}");
    Ok(())
}

/// Answers of two releases differ for many reasons.
fn same_release(existing: &Existing, planes: &Planes) -> anyhow::Result<()> {
    let release = |version: &str| version.split(['+', '-']).next().unwrap_or_default().to_owned();
    let found = existing.versions.get("kube-apiserver").map(|version| release(version)).unwrap_or_default();
    ensure!(
        found == release(&planes.version),
        "the cluster runs {found}, the reference {}: what differs could come from the release; `--kubernetes {found}` \
         builds a reference of the same release",
        planes.version
    );
    Ok(())
}

fn external(existing: &Existing) -> Result<Tested, Failure> {
    let info = &existing.cluster.info;
    let profile = profile(info, PROFILE)?;
    Ok(Tested { profile, control: None, arch: info.arch.clone(), factor: info.factor, booted: None })
}

fn profile(info: &ClusterInfo, name: &str) -> Result<ProfileInfo, Failure> {
    let found = info.profiles.get(name).cloned();
    found.with_context(|| format!("the cluster has no profile `{name}`")).or_exit(Exit::Infrastructure)
}

/// What all starts of one run have in common.
struct Starter<'a> {
    paths: &'a Paths,
    catalogue: &'a Catalogue,
    options: &'a DifferentialOptions,
    together: &'a Together,
    profile: Profile,
}

impl Starter<'_> {
    fn planes(&self, tested: impl Fn() -> Result<Tested, Failure>) -> Result<Planes, Failure> {
        let against = cli::target(self.catalogue, self.options.against.as_deref())?;
        let second = Profile { name: SECOND.into(), ..self.profile.clone() };
        let references = self.start(against, None, "reference", &[self.profile.clone(), second])?;
        let tested = tested()?;
        let (booted, _) = &references;
        let info = &booted.cluster.info;
        Ok(Planes {
            reference: profile(info, PROFILE)?,
            second: profile(info, SECOND)?,
            tested: tested.profile,
            reference_control: control(booted),
            tested_control: tested.control,
            arch: tested.arch,
            against: info.arch.clone(),
            version: booted.versions.get("kube-apiserver").cloned().unwrap_or_default(),
            factor: tested.factor.max(info.factor),
            folder: self.together.public().to_owned(),
            booted: tested.booted.into_iter().chain([references]).collect(),
            external: None,
        })
    }

    fn tested(&self, target: &Target) -> Result<Tested, Failure> {
        let profiles = [self.profile.clone()];
        let (booted, run) = if self.options.only_controllers {
            let against = cli::target(self.catalogue, self.options.against.as_deref())?;
            let controllers = self.controllers(target.clone())?;
            self.start(against, Some(&controllers), "tested", &profiles)?
        } else {
            self.start(target, None, "tested", &profiles)?
        };
        let info = &booted.cluster.info;
        Ok(Tested {
            profile: profile(info, PROFILE)?,
            control: control(&booted),
            arch: target.label(),
            factor: info.factor,
            booted: Some((booted, run)),
        })
    }

    /// The controllers of the architecture under test.
    fn controllers(&self, target: Target) -> Result<Native, Failure> {
        let artifacts = self.built(&target, &[CONTROLLER_MANAGER, SCHEDULER].map(str::to_owned))?;
        Ok(Native { target, artifacts })
    }

    fn built(&self, target: &Target, components: &[String]) -> Result<Artifacts, Failure> {
        let request = request(self.paths, self.catalogue, target, Some(&self.options.sources));
        built(self.paths, build::Request { only: Some(components), ..request }).or_exit(Exit::Build)
    }

    fn start(
        &self,
        target: &Target,
        others: Option<&Native>,
        name: &str,
        profiles: &[Profile],
    ) -> Result<(Booted, RunDir), Failure> {
        let Starter { paths, catalogue, options, .. } = *self;
        let run = self.together.run(name).or_exit(Exit::Infrastructure)?;
        let host = host_target(catalogue).ok();
        let chosen = match others {
            Some(_) => ProviderArg::Process,
            None => provider::choose(&options.provider, host, target),
        };
        let offline = options.sources.offline;
        let setup = Setup { chosen, options: &options.provider, paths, catalogue, host, target, offline };
        let prepared = setup.prepare().or_exit(Exit::Infrastructure)?;
        let components = setup.components(profiles).or_exit(Exit::TargetData)?;
        let artifacts = self.built(target, &components)?;
        let topology = Topology { profiles: profiles.to_vec(), node: None };
        let booted = match others {
            Some(_) => boot::up_mixed(target, &artifacts, others, &topology, &run, &sys::ports::free),
            None => prepared.boot(&artifacts, &topology, &run),
        };
        let booted = booted.or_exit(Exit::Infrastructure)?;
        booted.wake_all().or_exit(Exit::Infrastructure)?;
        Ok((booted, run))
    }
}

fn control(booted: &Booted) -> Option<Arc<dyn Control>> {
    booted.cluster.control.clone().filter(|_| booted.cluster.info.machine.is_none())
}
