//! The provider `kind`: every profile a cluster of Kind with one node, a container that is a machine with systemd, made by
//! kubeadm; native architecture only.
//!
//! The node image is made elsewhere (`node`), or is somebody else's; what is done here needs a container engine and nothing
//! else. One cluster is made in `plane`; its static Pods are in `pods`, how their agents are reached in `socket`.

mod clusters;
mod config;
mod engine;
mod floor;
mod ledger;
mod plane;
pub(crate) mod pods;
mod published;
mod service;
mod socket;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use model::{Artifacts, Cluster, ClusterInfo, Control, NodeInfo, Profile, Target};
use proc::progress::Phase;
use proc::{RunDir, interrupt};

use crate::Topology;
use crate::booted::{Booted, Processes};
use crate::execution::native_factor;
use crate::host::Local;
use crate::pki;
use crate::plan::ControlPlane;
use clusters::Clusters;
use engine::Engine;
pub use floor::by_hand;
use plane::{Paper, With};

/// Clusters that are made at the same time.
const WIDTH: usize = 2;
/// Control planes that may be awake at the same time, for each processor. A dozen on two processors took three times as
/// long for each check, and some not done within its time.
const AWAKE: usize = 2;

/// What clusters are made from.
pub struct Request<'a> {
    pub target: &'a Target,
    pub artifacts: &'a Artifacts,
    pub topology: &'a Topology,
    /// The program.
    pub kind: &'a Path,
    pub image: Image<'a>,
    /// The profile that becomes a whole cluster; the others are control planes alone.
    pub whole: &'a str,
    pub cache: &'a Path,
}

/// Writes a docker archive to a file.
pub type Write<'a> = dyn Fn(&Path) -> anyhow::Result<()> + Sync + 'a;

/// Of the nodes.
pub struct Image<'a> {
    pub reference: String,
    pub origin: Origin<'a>,
}

/// Who has made an image.
pub enum Origin<'a> {
    /// We, of the request's components.
    Ours {
        /// Where the engine lacks it.
        write: &'a Write<'a>,
        /// What is on it and can run: names in `images.yaml` to references.
        images: BTreeMap<String, String>,
    },
    /// Whoever ran `kind build node-image`. Its programs are its own, and kube-proxy and the network of Pods are put into the
    /// cluster by kubeadm and Kind.
    Published,
}

impl Image<'_> {
    fn is_published(&self) -> bool {
        matches!(self.origin, Origin::Published)
    }
}

/// What does not depend on the clusters that will be made.
struct Ground {
    engine: Engine,
    clusters: Arc<Clusters>,
    /// Of Kubernetes, on the image: "v1.36.3".
    release: String,
}

/// Why there cannot be this control plane in a cluster of Kind, of a published image or of ours; None where there can be.
pub fn unfit(profile: &Profile, published: bool) -> Option<&'static str> {
    config::unfit(profile, published)
}

/// Lets the engine have an image.
///
/// # Errors
/// The engine cannot, with the reason and the cure where they are known.
pub fn load(archive: &Path) -> anyhow::Result<()> {
    engine::load(archive)
}

/// The engine, before anything is built for it: "Docker 28.2.2".
///
/// # Errors
/// There is none, it does not answer, or its machine is of another architecture.
pub fn engine_version(arch: &str) -> anyhow::Result<String> {
    engine::version(arch)
}

/// Makes a cluster of every profile. Nothing is left when this fails.
///
/// # Errors
/// The engine cannot, with the reason; kubeadm fails, with its words; an interrupt.
pub fn up(request: &Request<'_>, run: &RunDir) -> anyhow::Result<Booted> {
    for profile in &request.topology.profiles {
        if let Some(need) = unfit(profile, request.image.is_published()) {
            bail!("profile `{}` needs {need}: leave it out, or use another --provider", profile.name);
        }
    }
    tls::install();
    let phase = Phase::start(format!("boot {}", request.target.name));
    let ground = prepare(request, run, &phase)?;
    let known = match &request.image.origin {
        Origin::Ours { images, .. } => {
            let factor = native_factor(request.target, request.artifacts)?;
            Some(Found { factor, images: images.clone(), versions: BTreeMap::new() })
        }
        Origin::Published => None,
    };
    let profiles = &request.topology.profiles;
    phase.status(format!("{} clusters of Kind", profiles.len()));
    let pki = pki::create_for_kubeadm(run)?;
    let factor = known.as_ref().map_or(1.0, |found| found.factor);
    let artifacts = match &request.image.origin {
        Origin::Ours { .. } => request.artifacts.clone(),
        Origin::Published => published::with_its_own(request.artifacts, &ground.release),
    };
    let awake = AWAKE * std::thread::available_parallelism().map_or(1, usize::from);
    let awake = (profiles.len() > awake).then_some(awake);
    let resting = awake.is_some();
    let with = With { request, artifacts: &artifacts, run, ground: &ground, pki: &pki, factor, resting };
    let made = proc::side_by_side(profiles, WIDTH, |profile| {
        make(&with, profile).with_context(|| format!("profile `{}` did not start", profile.name))
    })?;
    interrupt::check()?;
    let Ground { engine, clusters, .. } = ground;
    let found = match known {
        Some(found) => found,
        None => published::look(&clusters.any()?)?,
    };
    phase.done(&format!("{} clusters of Kind, {}, factor {:.1}", made.len(), engine.name, found.factor));
    let whole = made.iter().any(|plane| plane.info.name == request.whole);
    let mut info = ClusterInfo {
        arch: request.target.name.clone(),
        provider: "kind".into(),
        execution: format!("native, {}", engine.name),
        factor: found.factor,
        awake,
        shared: None,
        node: whole.then(|| NodeInfo { profile: request.whole.to_owned(), images: found.images }),
        profiles: BTreeMap::new(),
        machine: None,
    };
    let host = Arc::new(Local { ledger: run.ledger() });
    clusters.control(Processes::new(&mut info, host, made, None));
    let control: Arc<dyn Control> = clusters.clone();
    let mut booted = Booted::of(Cluster { info, control: Some(control) }, request.artifacts, clusters);
    booted.versions.extend(found.versions);
    Ok(booted)
}

/// What of a published image only clusters that run can tell.
struct Found {
    factor: f64,
    /// Names in `images.yaml` to references on the node.
    images: BTreeMap<String, String>,
    /// Of programs that are not among the request's components.
    versions: BTreeMap<String, String>,
}

/// The engine has the image, and room for the clusters.
fn prepare(request: &Request<'_>, run: &RunDir, phase: &Phase) -> anyhow::Result<Ground> {
    let image = &request.image.reference;
    let name = engine::version(&request.target.name)?;
    prepare_image(request, run, phase)?;
    let release = match &request.image.origin {
        Origin::Ours { .. } => {
            let apiserver = request.artifacts.by_component.get(pods::APISERVER);
            apiserver.map(|artifact| artifact.version.clone()).unwrap_or_default()
        }
        Origin::Published => published::release(image)?,
    };
    phase.status(format!("trying {name}"));
    let mut engine = engine::examine(name, image)?;
    engine.sysctls = ledger::before(request.cache, engine.sysctls);
    phase.status("clearing what dead runs have left");
    ledger::sweep(request.cache, request.kind, image)?;
    let clusters = Clusters::of(request, run, &engine)?;
    engine::make_room(&engine, image, request.topology.profiles.len())?;
    Ok(Ground { engine, clusters, release })
}

fn prepare_image(request: &Request<'_>, run: &RunDir, phase: &Phase) -> anyhow::Result<()> {
    let Image { reference, origin } = &request.image;
    if engine::has_image(reference)? {
        return Ok(());
    }
    let Origin::Ours { write, .. } = origin else {
        phase.status(format!("pulling {reference}"));
        return engine::pull(reference);
    };
    let archive = run.private().join("node.tar");
    phase.status("writing the node image");
    write(&archive)?;
    phase.status("loading the node image");
    engine::load(&archive)?;
    std::fs::remove_file(&archive).with_context(|| format!("failed to remove {}", archive.display()))
}

/// One cluster, with everything that its profile has.
fn make(with: &With<'_>, profile: &Profile) -> anyhow::Result<ControlPlane> {
    let mut paper = Paper::of(with, profile)?;
    paper.create(with.request, &with.ground.clusters)?;
    paper.take_over(with.resting)
}
