//! One control plane as a Kind cluster: planned, created by kubeadm, and taken over.
//!
//! The etcd, apiserver, controller manager and scheduler that kubeadm creates are static Pods. The other parts of a
//! profile (more stores and apiservers, plugins, tools) are the same as with other providers, and run in the node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use model::{Artifact, Artifacts, Profile};
use sys::RunDir;
use sys::deadline::OnInterrupt;
use sys::exec;
use sys::run_dir::{make_private_dir, write_private_file};
use xshell::{Shell, cmd};

use super::clusters::{Clusters, Node};
use super::config::{self, ConfigInputs, LOGS, Mount, PROGRAMS, RUN, STAND_INS};
use super::engine::{self, SHORT};
use super::pods::{self, APISERVER, ETCD, Pod, SCHEDULER, SOCKETS};
use super::service;
use super::socket::{NodeHost, SocketHost};
use super::{Preparation, Request, cluster_registry};
use crate::agent::INIT;
use crate::component::Component;
use crate::component_names::{self, CONTROLLER_MANAGER};
use crate::control_plane::{self, ControlPlane, PlannedControlPlane};
use crate::flags::{self, Flags};
use crate::host::Program;
use crate::pki::{CA_KEY, Pki};
use crate::place::{Place, PortMapping, Root};
use crate::plan::Plan;

/// On an idle reference machine a cluster is up in half a minute.
const CREATE: Duration = Duration::from_secs(600);
/// How long Kind itself waits for its node on that machine. It continues with a warning afterwards.
const WAIT: Duration = Duration::from_secs(300);
/// The first port in the node for programs that kubeadm does not know.
const FIRST_PORT: u16 = 18_000;
/// systemd's folder of units.
const UNITS: &str = "/etc/systemd/system";
const MANIFESTS: &str = "/etc/kubernetes/manifests";
const KUBEADM_PKI: &str = "/etc/kubernetes/pki";
/// The path of etcd's database in the node.
const DATABASE: &str = "/var/lib/etcd/member/snap/db";

/// The flags of an etcd that make it one of several members.
const OF_MEMBERS: [&str; 6] = [
    "name",
    "initial-cluster",
    "initial-advertise-peer-urls",
    "listen-peer-urls",
    "heartbeat-interval",
    "election-timeout",
];
/// The flags of an apiserver that kubeadm must set, in addition to the profile's own.
const OF_APISERVER: [&str; 4] = ["etcd-prefix", "etcd-servers", "etcd-servers-overrides", "v"];
/// The same, for a control plane without a controller that creates ServiceAccounts.
const ADMISSION: &str = "disable-admission-plugins";
/// The flags of a controller manager that kubeadm sets itself.
const OF_KUBEADM: [&str; 2] = ["kubeconfig", "secure-port"];

/// A planned cluster.
pub(super) struct ClusterSpec<'a> {
    profile: &'a Profile,
    whole: bool,
    /// The slowdown of this machine, by which all limits are multiplied.
    factor: f64,
    node: Node,
    /// The node as a place for components.
    host: Arc<SocketHost>,
    pods: Vec<Pod>,
    /// The digests of the programs in the Pods, by manifest, and of the agent. Empty for a published image.
    digests: BTreeMap<&'static str, String>,
    /// The components that kubeadm does not create.
    stores: Vec<Component>,
    plugins: Vec<Component>,
    more_apiservers: Vec<Component>,
    variants: Vec<Component>,
    /// The rest. Its components are those that checks start when they need them.
    plane: ControlPlane,
    /// The configuration file for `kind create`.
    file: PathBuf,
    /// Kind writes it; no code uses it.
    kubeconfig: PathBuf,
}

/// The inputs of the control planes.
pub(super) struct BuildInputs<'a> {
    pub(super) request: &'a Request<'a>,
    /// Includes the components of a published image, by name only.
    pub(super) artifacts: &'a Artifacts,
    pub(super) run: &'a RunDir,
    pub(super) preparation: &'a Preparation,
    pub(super) pki: &'a Pki,
    pub(super) factor: f64,
    /// Whether to suspend control planes as soon as they are ready. Complete clusters are never suspended.
    pub(super) resting: bool,
}

impl<'a> ClusterSpec<'a> {
    pub(super) fn of(inputs: &BuildInputs<'a>, profile: &'a Profile) -> anyhow::Result<ClusterSpec<'a>> {
        let BuildInputs { request, artifacts, run, pki, factor, .. } = *inputs;
        let whole = profile.name == request.whole;
        let name = cluster_registry::name(run, &profile.name);
        let node = Node { name, profile: profile.name.clone(), services: Vec::new() };
        let under = Arc::new(NodeHost::new(&node.name, node.container()));
        let sockets = run.private_dir(SOCKETS)?;
        let socket = |name: &str| SocketHost::new(under.clone(), &sockets, pods::socket(name));
        let host = Arc::new(socket(&node_agent(profile)));
        let port_mappings = port_mappings(profile, whole)?;
        let plan = Plan {
            target: request.target,
            artifacts,
            pki,
            run,
            place: Place {
                host: host.clone(),
                factor,
                listen: "0.0.0.0",
                root: Root { host_path: run.private().to_owned(), guest_path: RUN.into() },
                port_mappings: &|name| port_mappings.get(name).copied().with_context(|| format!("{name} has no port")),
                command: &|artifact: &Artifact| (Path::new(PROGRAMS).join(&artifact.component), Vec::new()),
                width: 1,
            },
            node: None,
        };
        let planned = plan.control_plane(profile, 1)?;
        let PlannedControlPlane { mut stores, plugins, apiserver, more_apiservers, variants, mut plane, .. } = planned;
        let port = port_mappings[&apiserver.name].outside;
        let pod = |manifest, component: Component| {
            let host = Arc::new(socket(&component.name));
            Pod::new(manifest, component, host)
        };
        let mut pods = vec![pod(ETCD, stores.remove(0)), pod(APISERVER, apiserver)];
        let serving = flags::manager("0.0.0.0", &pki.seen_from(&plan.place.root));
        for program in [CONTROLLER_MANAGER, SCHEDULER] {
            let name = format!("{}/{program}", profile.name);
            if whole {
                let ready = format!("{}/healthz", flags::url(port_mappings[&name].outside));
                let mut component = plan.component(name, program, serving.clone(), ready)?;
                component.needs_apiserver = true;
                pods.push(pod(program, component));
            } else if let Some(at) = plane.components.iter().position(|component| component.name == name) {
                pods.push(pod(program, plane.components.remove(at)));
            }
        }
        if let Some((_, file)) = plane.data.first_mut() {
            *file = DATABASE.into();
        }
        let digest = |name: &'static str| Some((name, artifacts.by_component.get(name)?.sha256.clone()));
        let is_ours = !request.image.is_published();
        let audited = pods.iter().map(|pod| pod.manifest).chain([INIT]).filter(|_| is_ours);
        let digests = audited.filter_map(digest).collect();
        let services = if whole { service::of_node(request.image.is_published(), factor) } else { Vec::new() };
        let dir = run.private_dir(&format!("{}/kind", profile.name))?;
        let spec = ClusterSpec {
            profile,
            whole,
            factor,
            node: Node { services, ..node },
            host,
            pods,
            digests,
            stores,
            plugins,
            more_apiservers,
            variants,
            plane,
            file: dir.join("kind.yaml"),
            kubeconfig: dir.join("kubeconfig"),
        };
        spec.write(inputs, &dir, &port_mappings, port, &plan.place.root)?;
        spec.make_logs()?;
        Ok(spec)
    }

    /// Writes the configuration for Kind and kubeadm. `port` is the apiserver's port on this machine.
    fn write(
        &self,
        inputs: &BuildInputs<'_>,
        dir: &Path,
        port_mappings: &BTreeMap<String, PortMapping>,
        port: u16,
        root: &Root,
    ) -> anyhow::Result<()> {
        let patches = self.write_patches(dir)?;
        let inputs = ConfigInputs {
            engine: &inputs.preparation.engine,
            version: &inputs.preparation.release,
            port,
            port_mappings: port_mappings.values().copied().filter(|door| ![0, port].contains(&door.outside)).collect(),
            mounts: self.mounts(inputs, dir)?,
            flags: self.pods.iter().map(|pod| (pod.manifest, self.told(pod))).collect(),
            patches: root.in_guest(&patches),
            whole: self.whole,
            published: inputs.request.image.is_published(),
            factor: self.factor,
        };
        write_private_file(&self.file, config::cluster(&inputs).as_bytes())
    }

    fn components(&self) -> impl Iterator<Item = &Component> {
        let ClusterSpec { stores, plugins, more_apiservers, plane, pods, .. } = self;
        let others = [stores, plugins, more_apiservers, &plane.components].into_iter().flatten();
        others.chain(pods.iter().map(|pod| &pod.component))
    }

    /// The flags that kubeadm must set for a Pod's program, in addition to those that it sets by itself.
    fn told(&self, pod: &Pod) -> Flags {
        let (profile, flags) = (self.profile, &pod.component.flags);
        let wanted = |name: &str| match pod.manifest {
            ETCD => {
                let own = profile.stores.first().is_some_and(|store| store.flags.contains_key(name));
                let several = profile.stores.first().is_some_and(|store| store.members > 1);
                own || several && OF_MEMBERS.contains(&name)
            }
            APISERVER => {
                let usual = OF_APISERVER.contains(&name) || name == ADMISSION && !self.whole;
                usual || profile.apiserver.contains_key(name)
            }
            _ => !OF_KUBEADM.contains(&name),
        };
        flags.iter().filter(|(name, _)| wanted(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    fn write_patches(&self, dir: &Path) -> anyhow::Result<PathBuf> {
        let folder = dir.join("patches");
        make_private_dir(&folder)?;
        for pod in &self.pods {
            let file = folder.join(format!("{}+json.json", pod.manifest));
            write_private_file(&file, pod.patch().to_string().as_bytes())?;
        }
        Ok(folder)
    }

    /// Files of this machine in the node: the run's folders, the programs that run there, the CA, and the agent's unit.
    fn mounts(&self, inputs: &BuildInputs<'_>, dir: &Path) -> anyhow::Result<Vec<Mount>> {
        let BuildInputs { request, run, pki, .. } = *inputs;
        let folder = |host_path: &Path, guest_path: &str| Mount {
            host_path: host_path.into(),
            guest_path: guest_path.into(),
            read_only: false,
        };
        let file = |host_path: PathBuf, guest_path: String| Mount { host_path, guest_path, read_only: true };
        let mut mounts = vec![folder(run.private(), RUN), folder(&run.logs(), LOGS)];
        let built = |name: &str| {
            let artifact = request.artifacts.by_component.get(name);
            artifact.map(|artifact| artifact.path.clone()).with_context(|| format!("{name} was not built"))
        };
        for name in self.programs() {
            mounts.push(file(built(&name)?, format!("{PROGRAMS}/{name}")));
        }
        for pod in &self.pods {
            mounts.push(file(built(INIT)?, format!("{STAND_INS}/{}", pod.manifest)));
        }
        for ca in ["", "/etcd"] {
            mounts.push(file(pki.ca.clone(), format!("{KUBEADM_PKI}{ca}/ca.crt")));
            mounts.push(file(run.private().join(CA_KEY), format!("{KUBEADM_PKI}{ca}/ca.key")));
        }
        let orders = pods::orders(&node_agent(self.profile)).join(" ");
        let unit = format!(
            "[Unit]\nDescription=Agent of the harness\n\n[Service]\nEnvironment=\"{}={orders}\"\nExecStart={PROGRAMS}/{INIT}\n\
             Restart=always\n",
            pods::ORDERS
        );
        // systemd accepts only links in a target's .wants folder, and a link cannot be mounted.
        let wanted = format!("[Unit]\nWants={AGENT}\nAfter={AGENT}\n");
        for (guest_path, text) in [(AGENT.to_owned(), unit), (format!("kubelet.service.d/20-{AGENT}.conf"), wanted)] {
            let host_path = dir.join(guest_path.replace('/', "-"));
            write_private_file(&host_path, text.as_bytes())?;
            mounts.push(file(host_path, format!("{UNITS}/{guest_path}")));
        }
        Ok(mounts)
    }

    /// The components whose program runs in the node but is not on the image.
    fn programs(&self) -> BTreeSet<String> {
        let programs = self.components().map(|component| &component.program);
        let programs = programs.chain(self.plane.auxiliary.tools.values());
        let words = programs.flat_map(|Program { path, args, .. }| {
            std::iter::once(path.as_path())
                .chain(args.iter().map(Path::new))
                .filter_map(|word| word.strip_prefix(PROGRAMS).ok())
        });
        words.map(|word| word.display().to_string()).chain([INIT.to_owned()]).collect()
    }

    /// Creates the log files as this user: root runs the programs in the node, and would own the files that it creates.
    fn make_logs(&self) -> anyhow::Result<()> {
        for component in self.components() {
            let log = &component.program.log;
            std::fs::File::create(log).with_context(|| format!("failed to create {}", log.display()))?;
        }
        Ok(())
    }

    /// Runs `kind create cluster`. As soon as the node runs, it also starts what the apiserver needs besides kubeadm's
    /// store.
    pub(super) fn create(&mut self, request: &Request<'_>, clusters: &Clusters) -> anyhow::Result<()> {
        clusters.add(&self.node)?;
        let failed = AtomicBool::new(false);
        let ClusterSpec { node, file, kubeconfig, host, stores, plugins, factor, .. } = self;
        let (limit, wait) = (CREATE.mul_f64(*factor), format!("{}s", WAIT.mul_f64(*factor).as_secs()));
        std::thread::scope(|scope| {
            let early = scope.spawn(|| -> anyhow::Result<()> {
                if let Err(error) = host.connect(limit, || failed.load(Ordering::SeqCst)) {
                    // If the creation failed, Kind's own error has the reason.
                    return if failed.load(Ordering::SeqCst) { Ok(()) } else { Err(error) };
                }
                stores.iter_mut().chain(plugins).try_for_each(Component::launch)
            });
            let (name, kind, image) = (&node.name, request.kind, &request.image.reference);
            let sh = Shell::new()?;
            let create = cmd!(
                sh,
                "{kind} create cluster --name {name} --config {file} --image {image} --kubeconfig {kubeconfig} --wait {wait} --retain"
            );
            let created = exec::run(create, limit)
                .map_err(anyhow::Error::from)
                .map_err(|error| clusters.with_last_words(error, node));
            failed.store(created.is_err(), Ordering::SeqCst);
            let early = early
                .join()
                .map_err(|_| anyhow!("the start of stores and plugins panicked; this is a bug in archproof"))?;
            // Reported first: without these components kubeadm waits in vain and does not know the reason.
            early.and(created.map(drop))
        })?;
        if self.whole { service::settle(&self.node.container(), self.factor) } else { Ok(()) }
    }

    /// Takes over the running components, and starts the missing ones.
    pub(super) fn take_over(self, resting: bool) -> anyhow::Result<ControlPlane> {
        let ClusterSpec {
            profile,
            whole,
            factor,
            node,
            pods,
            digests,
            stores,
            plugins,
            mut more_apiservers,
            variants,
            mut plane,
            ..
        } = self;
        let container = node.container();
        let mut components = Vec::new();
        let mut wanted = std::mem::take(&mut plane.components);
        let mut pod_of_apiserver = None;
        for Pod { manifest, mut component, host } in pods {
            let text = engine::shell(&container, &format!("cat {MANIFESTS}/{manifest}.yaml"), SHORT)?;
            component.flags =
                pods::flags(&text).with_context(|| format!("failed to read the manifest of {manifest}"))?;
            component.adopt()?;
            must_be_audited(&container, manifest, &digests)?;
            if component.is_apiserver() {
                pod_of_apiserver = Some(host.clone());
            }
            if !whole {
                host.quieten()?;
            }
            if component.on_demand {
                component.stop()?;
                wanted.push(component);
            } else {
                components.push(component);
            }
        }
        if !whole {
            service::leave_alone(&container, !profile.controllers.is_empty(), factor)?;
        }
        components.extend(stores.into_iter().chain(plugins));
        let apiserver = components.iter().find(|component| component.is_apiserver());
        plane.info.flags = apiserver.context("kubeadm created no apiserver")?.flags.clone();
        plane.info.token = None;
        for mut variant in variants {
            let name = component_names::variant_name(&variant.name).to_owned();
            let own = profile.variants[&name].keys().map(String::as_str).chain([PORT]);
            let own: Flags = own.filter_map(|flag| Some((flag.to_owned(), variant.flags.get(flag)?.clone()))).collect();
            variant.flags = plane.info.flags.clone();
            variant.flags.extend(own);
            // A published image has no other kube-apiserver than that of the Pod.
            if let Some(pod) = &pod_of_apiserver {
                variant.move_to(pod.clone());
                variant.program.path = APISERVER.into();
            }
            plane.info.variants.entry(name).and_modify(|info| info.flags = variant.flags.clone());
            wanted.push(variant);
        }
        for another in &mut more_apiservers {
            let port = another.flags.get(PORT).cloned().unwrap_or_default();
            another.flags = plane.info.flags.clone();
            another.flags.insert(PORT.into(), port);
            another.launch()?;
        }
        components.extend(more_apiservers);
        components.iter_mut().try_for_each(|component| component.wait_ready(OnInterrupt::Stop))?;
        node.services.iter().try_for_each(|service| service.wait(&container))?;
        if resting && !whole {
            control_plane::suspend(components.iter_mut())?;
        }
        components.extend(wanted);
        Ok(ControlPlane { components, ..plane })
    }
}

/// Fails unless the processes of this name are the audited program and its agent, which has the same name. If the node
/// did not import an image, kubelet pulls the published one with that tag, which may be of another release.
fn must_be_audited(container: &str, program: &str, digests: &BTreeMap<&'static str, String>) -> anyhow::Result<()> {
    let Some(wanted) = digests.get(program) else { return Ok(()) };
    // The kernel keeps only fifteen characters of a name.
    let name = &program[..program.len().min(15)];
    let script = format!("for id in $(pgrep -x {name}); do sha256sum </proc/$id/exe || true; done");
    let answer = engine::shell(container, &script, SHORT)?;
    let found: BTreeSet<&str> = answer.split_whitespace().filter(|word| *word != "-").collect();
    let agent = digests.get(INIT);
    let others = || found.iter().any(|digest| *digest != wanted && Some(*digest) != agent.map(String::as_str));
    ensure!(
        found.contains(wanted.as_str()) && !others(),
        "{program} in {container} is not the audited program: its processes have the SHA-256 {found:?}, expected \
         {wanted}; see `journalctl -u preload` there"
    );
    Ok(())
}

/// An apiserver's flag for its port.
const PORT: &str = "secure-port";
/// The unit of the node's agent.
const AGENT: &str = "archproof.service";

/// The name of the agent that runs as a service of the node.
fn node_agent(profile: &Profile) -> String {
    format!("{}/node", profile.name)
}

/// Ports in the node and on this machine: kubeadm's own, and others for programs that it does not know. Peer ports are
/// reachable only inside the node.
fn port_mappings(profile: &Profile, whole: bool) -> anyhow::Result<BTreeMap<String, PortMapping>> {
    let mut names = component_names::listeners(std::slice::from_ref(profile));
    let of = |program: &str| format!("{}/{program}", profile.name);
    let managers = [(of(CONTROLLER_MANAGER), 10_257), (of(SCHEDULER), 10_259)];
    if whole {
        names.extend(managers.iter().map(|(name, _)| name.clone()));
    }
    let etcd = profile.stores.first().and_then(|store| component_names::stores(profile, store).into_iter().next());
    let etcd = etcd.context("a profile has at least one store")?;
    let http = component_names::http(&etcd);
    let kubeadms = [(format!("{etcd}/peer"), 2380), (http, 2379), (etcd, 2379), (of(APISERVER), 6443)];
    let mut kubeadms = BTreeMap::from(kubeadms);
    kubeadms.extend(managers);
    let mut port_mappings = BTreeMap::new();
    for (name, port) in names.into_iter().zip(FIRST_PORT..) {
        let outside = if name.ends_with("/peer") { 0 } else { sys::ports::free()? };
        let inside = kubeadms.get(&name).copied().unwrap_or(port);
        port_mappings.insert(name, PortMapping { inside, outside });
    }
    Ok(port_mappings)
}
