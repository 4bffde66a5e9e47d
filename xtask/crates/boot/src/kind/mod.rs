//! The provider `kind`: every profile a cluster of Kind with one node, a container that is a machine with systemd, made by
//! kubeadm; native architecture only.
//!
//! The node image is made elsewhere (`node`), or is somebody else's; what is done here needs a container engine and nothing
//! else. Profiles that kubeadm cannot make are told by [`unfit`].

mod clusters;
mod component;
mod config;
mod engine;
mod floor;
mod ledger;
mod plugins;
mod published;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use model::{
    Action, Artifacts, Cluster, ClusterInfo, Control, NodeInfo, Profile, ProfileInfo, StoreInfo, Target, TlsFiles,
};
use proc::exec;
use proc::progress::Phase;
use proc::run_dir::write_private_file;
use proc::{RunDir, interrupt};
use xshell::{Shell, cmd};

use crate::Topology;
use crate::booted::Booted;
use crate::execution::native_factor;
use crate::existing::{Access, Identity};
use crate::flags;
use clusters::{Clusters, Node};
use config::Making;
use engine::{Engine, SHORT};
pub use floor::by_hand;

/// A cluster is up in half a minute where nothing else runs.
const CREATE: Duration = Duration::from_secs(600);
/// What Kind itself waits for its node, as it writes it.
const WAIT: &str = "300s";
/// CoreDNS, after the node.
const SETTLE: Duration = Duration::from_secs(180);
/// Clusters that are made at the same time.
const WIDTH: usize = 2;

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

/// Why kubeadm cannot make this control plane; None where it can.
pub fn unfit(profile: &Profile) -> Option<&'static str> {
    config::unfit(profile)
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
        if let Some(need) = unfit(profile) {
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
    let made = proc::side_by_side(profiles, WIDTH, |profile| {
        make(request, run, &ground, profile).with_context(|| format!("profile `{}` did not start", profile.name))
    })?;
    interrupt::check()?;
    let Ground { engine, clusters, .. } = ground;
    let found = match known {
        Some(found) => found,
        None => published::look(&clusters.any()?)?,
    };
    phase.done(&format!("{} clusters of Kind, {}, factor {:.1}", made.len(), engine.name, found.factor));
    let whole = made.iter().any(|info| info.name == request.whole);
    let info = ClusterInfo {
        arch: request.target.name.clone(),
        provider: "kind".into(),
        execution: format!("native, {}", engine.name),
        factor: found.factor,
        awake: None,
        shared: None,
        node: whole.then(|| NodeInfo { profile: request.whole.to_owned(), images: found.images }),
        profiles: made.into_iter().map(|info| (info.name.clone(), info)).collect(),
        machine: None,
    };
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
            let apiserver = request.artifacts.by_component.get(component::APISERVER);
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
fn make(request: &Request<'_>, run: &RunDir, ground: &Ground, profile: &Profile) -> anyhow::Result<ProfileInfo> {
    let draft = Draft::of(request, run, ground, profile)?;
    draft.create(request, &ground.clusters)?;
    let node = &draft.node;
    if !draft.whole {
        alone(node)?;
    }
    // kubeadm is content without the profile's programs, and so is an apiserver at its start.
    node.components.iter().try_for_each(|component| component.wait(&node.container()))?;
    draft.info()
}

/// A cluster that can be made.
struct Draft<'a> {
    profile: &'a Profile,
    whole: bool,
    node: Node,
    dir: PathBuf,
    /// What `kind create` is told.
    file: PathBuf,
    kubeconfig: PathBuf,
    /// Of the store, outside.
    port: u16,
}

impl<'a> Draft<'a> {
    fn of(request: &Request<'_>, run: &RunDir, ground: &Ground, profile: &'a Profile) -> anyhow::Result<Draft<'a>> {
        let dir = run.private().join(&profile.name);
        let (folder, scratch) = (dir.join("run"), dir.join("scratch"));
        for dir in [&dir, &folder, &scratch] {
            proc::run_dir::make_private_dir(dir)?;
        }
        for (name, text) in &profile.files {
            let text = flags::fill(text, Path::new(config::RUN), &BTreeMap::new())?;
            write_private_file(&folder.join(name), text.as_bytes())?;
        }
        let port = proc::ports::free()?;
        let whole = profile.name == request.whole;
        let units = plugins::prepare(profile, request.artifacts, run, &folder, &dir)?;
        let published = request.image.is_published();
        let Ground { engine, release, .. } = ground;
        let making = Making { engine, version: release, port, folder: &folder, units: &units, whole, published };
        let file = dir.join("kind.yaml");
        write_private_file(&file, config::cluster(profile, &making)?.as_bytes())?;
        let mut components = component::of_plane();
        if whole {
            components.extend([component::controllers(), component::of_node(published)].concat());
        }
        components.extend(profile.plugins.iter().map(|plugin| component::plugin(&plugin.name, &plugin.component)));
        let node = Node { name: ledger::name(run, &profile.name), components, folder, scratch };
        let kubeconfig = dir.join("kubeconfig");
        Ok(Draft { profile, whole, node, dir, file, kubeconfig, port })
    }

    /// `kind create cluster`, and for names in a cluster that is to be whole.
    fn create(&self, request: &Request<'_>, clusters: &Clusters) -> anyhow::Result<()> {
        let Draft { profile, node, file, kubeconfig, .. } = self;
        clusters.add(&profile.name, node)?;
        let (name, kind, image) = (&node.name, request.kind, &request.image.reference);
        let sh = Shell::new()?;
        let create = cmd!(
            sh,
            "{kind} create cluster --name {name} --config {file} --image {image} --kubeconfig {kubeconfig} --wait {WAIT} --retain"
        );
        exec::run(create, CREATE)
            .map_err(anyhow::Error::from)
            .map_err(|error| clusters.with_last_words(error, node))?;
        if self.whole { settle(node) } else { Ok(()) }
    }

    fn info(self) -> anyhow::Result<ProfileInfo> {
        let Draft { profile, node, dir, kubeconfig, port, .. } = self;
        let access = Access::read(&kubeconfig, None)?;
        let Identity::Certificate { cert, key } = &access.identity else {
            return Err(anyhow!("Kind's kubeconfig holds no client certificate"));
        };
        let private = |name: &str, content: &[u8]| {
            let file = dir.join(name);
            write_private_file(&file, content).map(|()| file)
        };
        let tls = TlsFiles {
            ca: private("ca.crt", &access.ca)?,
            cert: private("admin.crt", cert)?,
            key: private("admin.key", key)?,
        };
        let of_node = |path: &str, name: &str| {
            let content = engine::shell(&node.container(), &format!("cat /etc/kubernetes/pki/{path}"), SHORT)?;
            private(name, content.as_bytes())
        };
        let store = TlsFiles {
            ca: of_node("etcd/ca.crt", "etcd-ca.crt")?,
            cert: of_node("apiserver-etcd-client.crt", "etcd.crt")?,
            key: of_node("apiserver-etcd-client.key", "etcd.key")?,
        };
        let apiserver = node.component(component::APISERVER)?;
        Ok(ProfileInfo {
            name: profile.name.clone(),
            apiservers: vec![access.server.clone()],
            apiserver: access.server,
            tls,
            token: None,
            kubeconfig,
            prefix: profile.prefix.clone(),
            stores: vec![StoreInfo {
                name: profile.stores.first().map_or_else(|| "main".into(), |store| store.name.clone()),
                endpoint: flags::url(port),
                members: vec![flags::url(port)],
                tls: store,
                resources: Vec::new(),
                root: String::new(),
            }],
            flags: apiserver.flags(&node.container())?,
            dir: node.folder.clone(),
        })
    }
}

/// Waits for CoreDNS: a cluster is not whole without names.
fn settle(node: &Node) -> anyhow::Result<()> {
    let limit = SETTLE.as_secs();
    let script = format!(
        "kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-system wait --for condition=Available --timeout {limit}s \
         deployment/coredns"
    );
    engine::wait(&node.container(), &script, SETTLE * 2).context("CoreDNS did not become available")
}

/// Takes away what would write beside the checks: of the control plane only etcd and the apiserver stay.
fn alone(node: &Node) -> anyhow::Result<()> {
    let mut others = component::controllers().into_iter();
    others.try_for_each(|component| component.apply(&node.container(), &Action::Stop, &node.scratch))
}
