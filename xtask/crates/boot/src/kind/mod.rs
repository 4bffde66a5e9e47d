//! The provider `kind`: each profile is a Kind cluster with one node, which is a container with systemd, set up by
//! kubeadm. Native architecture only.
//!
//! Crate `node` creates the node image, or the user names a published one; this provider needs only a container engine.
//! `plane` creates a cluster, `pods` has its static Pods, and `socket` connects to their agents.

mod baseline;
mod cluster_registry;
mod clusters;
mod config;
mod engine;
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
use sys::progress::Phase;
use sys::{RunDir, interrupt};

use crate::Topology;
use crate::booted::{Booted, Processes};
use crate::control_plane::ControlPlane;
use crate::execution::native_factor;
use crate::hardware;
use crate::host::Local;
use crate::pki;
pub use baseline::baseline;
use clusters::Clusters;
pub use config::unfit;
use engine::Engine;
pub use engine::{load, version as engine_version};
use plane::{BuildInputs, ClusterSpec};

/// How many clusters are created at the same time.
const WIDTH: usize = 2;
/// How many control planes may run at the same time per CPU. With a dozen on two CPUs each check took three times as
/// long, and some exceeded their limit.
const MAX_ACTIVE: usize = 2;

/// The inputs of the clusters.
pub struct Request<'a> {
    pub target: &'a Target,
    pub artifacts: &'a Artifacts,
    pub topology: &'a Topology,
    /// Path of the `kind` program.
    pub kind: &'a Path,
    pub image: Image<'a>,
    /// The profile that becomes a complete cluster; the others are only control planes.
    pub whole: &'a str,
    pub cache: &'a Path,
}

/// Writes a docker archive to a file.
pub type Write<'a> = dyn Fn(&Path) -> anyhow::Result<()> + Sync + 'a;

/// The image of the nodes.
pub struct Image<'a> {
    pub reference: String,
    pub origin: Origin<'a>,
}

/// The origin of an image.
pub enum Origin<'a> {
    /// Built by the project from the request's components.
    Ours {
        /// Writes the image's archive; called if the engine lacks the image.
        write: &'a Write<'a>,
        /// The container images on it: names in `images.yaml` to references.
        images: BTreeMap<String, String>,
    },
    /// Published: built by others with `kind build node-image`. It has its own programs, and kubeadm and Kind add
    /// kube-proxy and the Pod network to the cluster.
    Published,
}

impl Image<'_> {
    fn is_published(&self) -> bool {
        matches!(self.origin, Origin::Published)
    }
}

/// The part of the preparation that does not depend on the clusters.
struct Preparation {
    engine: Engine,
    clusters: Arc<Clusters>,
    /// Kubernetes release on the image: "v1.36.3".
    release: String,
    /// The slowdown of this machine before a cluster runs.
    factor: f64,
}

/// Creates a cluster for every profile. If this fails, no cluster is left.
///
/// # Errors
/// The engine fails (with the reason), kubeadm fails (with its output), an interrupt.
pub fn up(request: &Request<'_>, run: &RunDir) -> anyhow::Result<Booted> {
    for profile in &request.topology.profiles {
        if let Some(need) = unfit(profile, request.image.is_published()) {
            bail!("profile `{}` needs {need}: leave it out, or use another --provider", profile.name);
        }
    }
    tls::install();
    let phase = Phase::start(format!("boot {}", request.target.name));
    let preparation = prepare(request, run, &phase)?;
    let known = match &request.image.origin {
        Origin::Ours { images, .. } => {
            Some(Found { factor: preparation.factor, images: images.clone(), versions: BTreeMap::new() })
        }
        Origin::Published => None,
    };
    let profiles = &request.topology.profiles;
    phase.status(format!("creating {} Kind clusters", profiles.len()));
    let pki = pki::create_for_kubeadm(run)?;
    let factor = preparation.factor;
    let artifacts = match &request.image.origin {
        Origin::Ours { .. } => request.artifacts.clone(),
        Origin::Published => published::with_its_own(request.artifacts, &preparation.release),
    };
    let max_active = MAX_ACTIVE * std::thread::available_parallelism().map_or(1, usize::from);
    let max_active = (profiles.len() > max_active).then_some(max_active);
    let resting = max_active.is_some();
    let inputs =
        BuildInputs { request, artifacts: &artifacts, run, preparation: &preparation, pki: &pki, factor, resting };
    let made = sys::side_by_side(profiles, WIDTH, |profile| {
        make(&inputs, profile).with_context(|| format!("failed to start the profile `{}`", profile.name))
    })?;
    interrupt::check()?;
    let Preparation { engine, clusters, .. } = preparation;
    let found = match known {
        Some(found) => found,
        None => published::look(&clusters.any()?)?,
    };
    phase.done(&format!("{} Kind clusters, {}, factor {:.1}", made.len(), engine.name, found.factor));
    let whole = made.iter().any(|plane| plane.info.name == request.whole);
    let mut info = ClusterInfo {
        arch: request.target.name.clone(),
        byte_order: Some(request.target.elf.byte_order),
        provider: "kind".into(),
        execution: format!("native, {}", engine.name),
        factor: found.factor,
        max_active,
        external: None,
        node: whole.then(|| NodeInfo { profile: request.whole.to_owned(), images: found.images }),
        profiles: BTreeMap::new(),
        machine: None,
        hardware: Some(hardware::native(request.target)),
    };
    let host = Arc::new(Local { process_registry: run.process_registry() });
    clusters.control(Processes::new(&mut info, host, made, None));
    let control: Arc<dyn Control> = clusters.clone();
    let mut booted = Booted::of(Cluster { info, control: Some(control) }, request.artifacts, clusters);
    booted.versions.extend(found.versions);
    Ok(booted)
}

/// What is known of a published image only from running clusters.
struct Found {
    factor: f64,
    /// Names in `images.yaml` to references on the node.
    images: BTreeMap<String, String>,
    /// Versions of programs that are not among the request's components.
    versions: BTreeMap<String, String>,
}

/// Prepares the engine: it gets the image, and kernel limits for the clusters.
fn prepare(request: &Request<'_>, run: &RunDir, phase: &Phase) -> anyhow::Result<Preparation> {
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
    phase.status(format!("examining {name}"));
    let factor = match &request.image.origin {
        Origin::Ours { .. } => native_factor(request.target, request.artifacts)?,
        Origin::Published => published::estimate(image)?,
    };
    let mut engine = engine::examine(name, image)?;
    engine.sysctls = cluster_registry::before(request.cache, engine.sysctls);
    phase.status("removing what dead runs left behind");
    cluster_registry::sweep(request.cache, request.kind, image, factor)?;
    let clusters = Clusters::of(request, run, &engine, factor)?;
    let count = request.topology.profiles.len();
    engine.check_space(count)?;
    engine::make_room(&engine, image, count)?;
    Ok(Preparation { engine, clusters, release, factor })
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

/// Creates the cluster of a profile with all of its components.
fn make(inputs: &BuildInputs<'_>, profile: &Profile) -> anyhow::Result<ControlPlane> {
    let mut spec = ClusterSpec::of(inputs, profile)?;
    spec.create(inputs.request, &inputs.preparation.clusters)?;
    spec.take_over(inputs.resting)
}
