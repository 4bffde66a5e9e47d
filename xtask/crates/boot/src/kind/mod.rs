//! The provider `kind`: every profile a cluster of Kind with one node, a container that is a machine with systemd, made by
//! kubeadm; native architecture only.
//!
//! The node image is made elsewhere (`node`); what is done here needs a container engine and nothing else. Profiles that
//! kubeadm cannot make are told by [`unfit`].

mod component;
mod config;
mod engine;
mod ledger;
mod plugins;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use model::{
    Action, Artifacts, Cluster, ClusterInfo, Control, ControlError, NodeInfo, Profile, ProfileInfo, StoreInfo, Target,
    TlsFiles,
};
use proc::exec;
use proc::progress::Phase;
use proc::run_dir::write_private_file;
use proc::{RunDir, Will, interrupt};
use xshell::{Shell, cmd};

use crate::Topology;
use crate::booted::{Booted, Power};
use crate::existing::{Access, Identity};
use crate::flags;
use component::Component;
use config::Making;
use engine::{Engine, SHORT, Sysctls};

/// A cluster is up in half a minute where nothing else runs.
const CREATE: Duration = Duration::from_secs(600);
/// What Kind itself waits for its node, as it writes it.
const WAIT: &str = "300s";
/// CoreDNS, after the node.
const SETTLE: Duration = Duration::from_secs(180);
/// Clusters that are made at the same time.
const WIDTH: usize = 2;
/// How often it is looked whether a node still runs.
const LOOK: Duration = Duration::from_secs(3);

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
    pub write: &'a Write<'a>,
    /// What is on it and can run: names in `images.yaml` to references.
    pub images: BTreeMap<String, String>,
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
    let name = engine::version(&request.target.name)?;
    prepare_image(request, run, &phase)?;
    phase.status(format!("trying {name}"));
    let mut engine = engine::examine(name, &request.image.reference)?;
    engine.sysctls = ledger::before(request.cache, engine.sysctls);
    phase.status("clearing what dead runs have left");
    ledger::sweep(request.cache, request.kind, &request.image.reference)?;
    let factor = crate::execution::native_factor(request.target, request.artifacts)?;
    let clusters = Arc::new(Clusters {
        kind: request.kind.to_owned(),
        cache: request.cache.to_owned(),
        logs: run.logs(),
        image: request.image.reference.clone(),
        sysctls: engine.sysctls.clone(),
        nodes: Mutex::default(),
        looked: Mutex::new(Instant::now()),
        will: Mutex::default(),
        ended: AtomicBool::new(false),
    });
    let profiles = &request.topology.profiles;
    let names: Vec<String> = profiles.iter().map(|profile| ledger::name(run, &profile.name)).collect();
    let will = ledger::will(request.cache, &names, &engine, &request.image.reference);
    *clusters.will.lock().unwrap_or_else(|e| e.into_inner()) = Some(Will::make(&will)?);
    engine::make_room(&engine, &request.image.reference, profiles.len())?;
    phase.status(format!("{} clusters of Kind", profiles.len()));
    let made = proc::side_by_side(profiles, WIDTH, |profile| {
        make(request, run, &engine, &clusters, profile)
            .with_context(|| format!("profile `{}` did not start", profile.name))
    })?;
    interrupt::check()?;
    phase.done(&format!("{} clusters of Kind, {}, factor {factor:.1}", made.len(), engine.name));
    let whole = made.iter().any(|info| info.name == request.whole);
    let info = ClusterInfo {
        arch: request.target.name.clone(),
        provider: "kind".into(),
        execution: format!("native, {}", engine.name),
        factor,
        awake: None,
        shared: None,
        node: whole.then(|| NodeInfo { profile: request.whole.to_owned(), images: request.image.images.clone() }),
        profiles: made.into_iter().map(|info| (info.name.clone(), info)).collect(),
        machine: None,
    };
    let control: Arc<dyn Control> = clusters.clone();
    Ok(Booted::of(Cluster { info, control: Some(control) }, request.artifacts, clusters))
}

/// The engine has the image afterwards.
fn prepare_image(request: &Request<'_>, run: &RunDir, phase: &Phase) -> anyhow::Result<()> {
    let Image { reference, write, .. } = &request.image;
    if engine::has_image(reference)? {
        return Ok(());
    }
    let archive = run.private().join("node.tar");
    phase.status("writing the node image");
    write(&archive)?;
    phase.status("loading the node image");
    engine::load(&archive)?;
    std::fs::remove_file(&archive).with_context(|| format!("failed to remove {}", archive.display()))
}

/// One cluster.
fn make(
    request: &Request<'_>,
    run: &RunDir,
    engine: &Engine,
    clusters: &Clusters,
    profile: &Profile,
) -> anyhow::Result<ProfileInfo> {
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
    let version = request.artifacts.by_component.get("kube-apiserver").map_or("", |artifact| &artifact.version);
    let units = plugins::prepare(profile, request.artifacts, run, &folder, &dir)?;
    let making = Making { engine, version, port, folder: &folder, units: &units, whole };
    let file = dir.join("kind.yaml");
    write_private_file(&file, config::cluster(profile, &making)?.as_bytes())?;
    let mut components = component::of_plane();
    if whole {
        components.extend([component::controllers(), component::of_node()].concat());
    }
    components.extend(profile.plugins.iter().map(|plugin| component::plugin(&plugin.name, &plugin.component)));
    let node = Node { name: ledger::name(run, &profile.name), components, folder, scratch };
    let kubeconfig = dir.join("kubeconfig");
    ledger::note(request.cache, &node.name, &engine.sysctls)?;
    clusters.lock().insert(profile.name.clone(), node.clone());
    let (name, kind, image) = (&node.name, request.kind, &request.image.reference);
    let sh = Shell::new()?;
    let create = cmd!(
        sh,
        "{kind} create cluster --name {name} --config {file} --image {image} --kubeconfig {kubeconfig} --wait {WAIT} --retain"
    );
    exec::run(create, CREATE).map_err(anyhow::Error::from).map_err(|error| clusters.with_last_words(error, &node))?;
    if whole {
        settle(&node)?;
    } else {
        alone(&node)?;
    }
    // kubeadm is content without the profile's programs, and so is an apiserver at its start.
    node.components.iter().try_for_each(|component| component.wait(&node.container()))?;
    info(profile, &node, &dir, kubeconfig, port)
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

fn info(profile: &Profile, node: &Node, dir: &Path, kubeconfig: PathBuf, port: u16) -> anyhow::Result<ProfileInfo> {
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

/// One node, and so one cluster.
#[derive(Clone, Debug)]
struct Node {
    /// Of the cluster.
    name: String,
    components: Vec<Component>,
    /// Its profile's folder, on both sides.
    folder: PathBuf,
    scratch: PathBuf,
}

impl Node {
    /// The container's name, as Kind makes it.
    fn container(&self) -> String {
        format!("{}-control-plane", self.name)
    }

    fn component(&self, name: &str) -> anyhow::Result<&Component> {
        let found = self.components.iter().find(|component| component.name == name);
        found.with_context(|| format!("the node {} has no component `{name}`", self.name))
    }
}

/// All clusters of a run; control over them, and their end.
struct Clusters {
    kind: PathBuf,
    cache: PathBuf,
    logs: PathBuf,
    image: String,
    /// As they were.
    sysctls: Sysctls,
    /// By profile.
    nodes: Mutex<BTreeMap<String, Node>>,
    looked: Mutex<Instant>,
    /// Deletes them when this process dies.
    will: Mutex<Option<Will>>,
    ended: AtomicBool,
}

impl Clusters {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Node>> {
        self.nodes.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn node(&self, profile: &str) -> anyhow::Result<Node> {
        self.lock().get(profile).cloned().with_context(|| format!("there is no profile `{profile}`"))
    }

    fn component(&self, name: &str) -> anyhow::Result<(Node, Component)> {
        let (profile, short) = name.split_once('/').with_context(|| format!("`{name}` is no component"))?;
        let node = self.node(profile)?;
        let found = node.component(short)?.clone();
        Ok((node, found))
    }

    /// What the node said last, behind an error of its start.
    fn with_last_words(&self, error: anyhow::Error, node: &Node) -> anyhow::Error {
        if interrupt::requested() {
            return error;
        }
        let kubelet = component::of_node().into_iter().find(|component| component.name == component::KUBELET);
        let kubelet = kubelet.and_then(|kubelet| kubelet.log(&node.container()).ok());
        let lines: Vec<String> = kubelet.iter().flat_map(|log| log.lines()).map(str::to_owned).collect();
        match lines.len() {
            0 => error,
            count => error.context(format!("kubelet's last lines:\n{}", lines[count.saturating_sub(5)..].join("\n"))),
        }
    }

    fn collect(&self, evidence: Option<&Path>) -> anyhow::Result<()> {
        for (profile, node) in self.lock().iter() {
            for component in &node.components {
                if let Ok(log) = component.log(&node.container()) {
                    let file = self.logs.join(format!("{profile}.{}.log", component.name));
                    std::fs::write(&file, log).with_context(|| format!("failed to write {}", file.display()))?;
                }
            }
            if let Some(into) = evidence {
                std::fs::create_dir_all(into).with_context(|| format!("failed to create {}", into.display()))?;
                // A node that is gone has none.
                let _ = node.component(component::ETCD)?.apply(&node.container(), &Action::Stop, &node.scratch);
                let _ = engine::fetch(&node.container(), DATABASE, &into.join(format!("{profile}-main.db")));
            }
        }
        Ok(())
    }

    fn delete(&self) -> anyhow::Result<()> {
        let nodes: Vec<Node> = self.lock().values().cloned().collect();
        let mut result = Ok(());
        for node in &nodes {
            result = result.and(ledger::delete(&self.cache, &self.kind, &node.name));
        }
        if ledger::is_empty(&self.cache) && !nodes.is_empty() {
            result = result.and(engine::restore(&self.image, &self.sysctls));
        }
        if let (Some(will), Ok(())) = (self.will.lock().unwrap_or_else(|e| e.into_inner()).take(), &result) {
            will.revoke();
        }
        result
    }
}

/// etcd's, in the node.
const DATABASE: &str = "/var/lib/etcd/member/snap/db";

impl Power for Clusters {
    fn wake_all(&self, _: &[&String]) -> anyhow::Result<()> {
        Ok(())
    }

    fn end(&self, evidence: Option<&Path>) -> anyhow::Result<()> {
        if self.ended.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let collected = self.collect(evidence);
        self.delete().and(collected)
    }
}

impl Drop for Clusters {
    fn drop(&mut self) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            // The ledger knows what could not be deleted.
            let _ = self.delete();
        }
    }
}

impl Control for Clusters {
    fn components(&self) -> Vec<String> {
        let nodes = self.lock();
        nodes
            .iter()
            .flat_map(|(profile, node)| node.components.iter().map(move |c| format!("{profile}/{}", c.name)))
            .collect()
    }

    fn apply(&self, component: &str, action: &Action) -> Result<(), ControlError> {
        let result = self.component(component).and_then(|(node, found)| {
            let action = filled(action)?;
            found.apply(&node.container(), &action, &node.scratch)
        });
        result.map_err(|error| ControlError(format!("{action:?} of {component}: {error:#}")))
    }

    fn write(&self, profile: &str, file: &str, content: &[u8]) -> Result<(), ControlError> {
        let written = self.node(profile).and_then(|node| write_private_file(&node.folder.join(file), content));
        written.map_err(|error| ControlError(format!("failed to write `{file}` of `{profile}`: {error:#}")))
    }

    fn run(&self, profile: &str, tool: &str, _: &[String]) -> Result<String, ControlError> {
        Err(ControlError(format!("profile `{profile}` has no tool `{tool}`")))
    }

    fn spare(&self, _: &str) -> Option<StoreInfo> {
        None
    }

    fn native(&self, _: &str) -> Option<StoreInfo> {
        None
    }

    fn log(&self, component: &str) -> Result<String, ControlError> {
        let log = self.component(component).and_then(|(node, found)| found.log(&node.container()));
        log.map_err(|error| ControlError(format!("the log of {component}: {error:#}")))
    }

    fn wake(&self, _: &str) -> Result<(), ControlError> {
        Ok(())
    }

    fn rest(&self, _: &str) -> Result<(), ControlError> {
        Ok(())
    }

    fn casualty(&self) -> Option<String> {
        let mut looked = self.looked.lock().unwrap_or_else(|e| e.into_inner());
        if looked.elapsed() < LOOK {
            return None;
        }
        *looked = Instant::now();
        let nodes: Vec<Node> = self.lock().values().cloned().collect();
        let dead = nodes.into_iter().find(|node| !engine::runs(&node.container()));
        dead.map(|node| format!("the node {} does not run any more", node.container()))
    }
}

/// With the placeholders filled in.
fn filled(action: &Action) -> anyhow::Result<Action> {
    let Action::Restart { flags } = action else { return Ok(action.clone()) };
    let of_store = BTreeMap::from([("main".to_owned(), "https://127.0.0.1:2379".to_owned())]);
    let filled =
        flags.iter().map(|(name, value)| Ok((name.clone(), flags::fill(value, Path::new(config::RUN), &of_store)?)));
    Ok(Action::Restart { flags: filled.collect::<anyhow::Result<_>>()? })
}
