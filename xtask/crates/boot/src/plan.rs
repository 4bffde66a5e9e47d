//! Plans control planes and starts them: the components of a profile, with their files, ports and flags.
//!
//! [`Place`] describes where they run; the providers (`process`, `qemu`) create that place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use model::{
    Artifact, Artifacts, ClusterInfo, Profile, ProfileInfo, ProfileStore, StoreInfo, StoreKind, StoreWrapper, Target,
};
use reqwest::blocking::Client;
use rustix::process::Signal;
use sys::RunDir;
use sys::deadline::OnInterrupt;
use sys::run_dir::write_private_file;
use tls::Alpn;

use crate::auxiliary::Auxiliary;
use crate::component::{Component, Ready, Times};
use crate::component_names;
use crate::flags::{self, Flags, Member, StorePorts, url};
use crate::host::{Host, Program};
use crate::kubeconfig;
use crate::node::{NodeDraft, NodeRequest, Once};
use crate::pki::Pki;

/// A native component is ready within 3 s; the limit allows for a machine that is busy with other work.
const START: Duration = Duration::from_secs(60);
/// Time between SIGTERM and SIGKILL.
///
/// It grows only with the square root of the factor, because it may pass in full: after SIGTERM an apiserver waits for
/// open watches up to its request timeout. With ten seconds multiplied by the factor, a check waited five minutes for
/// that. Without watches an apiserver ends within four seconds at a factor of 30.
const GRACE: Duration = Duration::from_secs(10);

/// Where components run.
pub(crate) struct Place<'a> {
    pub(crate) host: Arc<dyn Host>,
    /// At least 1; every deadline is multiplied by it.
    pub(crate) factor: f64,
    /// The address on which servers listen in that place.
    pub(crate) listen: &'static str,
    pub(crate) root: Root,
    /// Returns the port of a listener by its name.
    pub(crate) port_mappings: &'a (dyn Fn(&str) -> anyhow::Result<PortMapping> + Sync),
    /// Returns the program and leading arguments that run a component in that place.
    pub(crate) command: &'a (dyn Fn(&Artifact) -> (PathBuf, Vec<String>) + Sync),
    /// How many components start at the same time: a start is pure CPU work, and too many in parallel only make each
    /// other miss their deadlines.
    pub(crate) width: usize,
}

/// The run's private folder: its path on this machine, and the path that the components see.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) host_path: PathBuf,
    pub(crate) guest_path: PathBuf,
}

/// A port as the component sees it (`inside`), and as this machine reaches it (`outside`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortMapping {
    pub(crate) inside: u16,
    pub(crate) outside: u16,
}

/// The inputs of a control plane.
pub(crate) struct Plan<'a> {
    pub(crate) target: &'a Target,
    pub(crate) artifacts: &'a Artifacts,
    /// With the paths of this machine.
    pub(crate) pki: &'a Pki,
    pub(crate) run: &'a RunDir,
    pub(crate) place: Place<'a>,
    /// The node that turns one of the control planes into a complete cluster.
    pub(crate) node: Option<&'a NodeRequest>,
}

/// A planned control plane that is ready to start.
pub(crate) struct PlannedControlPlane {
    pub(crate) stores: Vec<Component>,
    pub(crate) plugins: Vec<Component>,
    pub(crate) apiserver: Component,
    /// More apiservers on the same stores.
    pub(crate) more_apiservers: Vec<Component>,
    /// Components that checks start when they need them.
    pub(crate) on_demand: Vec<Component>,
    pub(crate) node: Option<NodeDraft>,
    pub(crate) auxiliary: Auxiliary,
    pub(crate) info: ProfileInfo,
    /// The profile's private folder as the components see it.
    pub(crate) guest_path: PathBuf,
    /// `PROFILE.STORE` to the store's data file, as the components see it.
    pub(crate) data: Vec<(String, PathBuf)>,
    pub(crate) host: Arc<dyn Host>,
}

/// The planned stores of a profile.
#[derive(Default)]
struct Stores {
    components: Vec<Component>,
    /// URLs that the apiserver uses, by store.
    servers: BTreeMap<String, String>,
    /// URLs that the suite uses, by store.
    endpoints: BTreeMap<String, Vec<String>>,
    data: Vec<(String, PathBuf)>,
}

/// A profile whose components run.
pub(crate) struct ControlPlane {
    pub(crate) info: ProfileInfo,
    /// The profile's private folder as the components see it.
    pub(crate) guest_path: PathBuf,
    pub(crate) components: Vec<Component>,
    pub(crate) auxiliary: Auxiliary,
    pub(crate) data: Vec<(String, PathBuf)>,
    pub(crate) host: Arc<dyn Host>,
}

pub(crate) const SLOW: f64 = ClusterInfo::SLOW;
/// With more at a time, the waiting in one no longer fills the gaps in the others.
pub(crate) const MAX_ACTIVE: usize = 3;

/// How many control planes may run at the same time on a machine with this factor; see [`model::Control::wake`].
pub(crate) fn max_active(factor: f64) -> Option<usize> {
    (factor >= SLOW).then_some(MAX_ACTIVE)
}

/// Suspends components, apiservers first, so that none of them sees its store stop to answer.
pub(crate) fn suspend<'a>(components: impl Iterator<Item = &'a mut Component>) -> anyhow::Result<()> {
    let mut components: Vec<&mut Component> = components.collect();
    components.sort_by_key(|component| std::cmp::Reverse(component.order()));
    components.iter_mut().try_for_each(|component| component.signal(Signal::STOP))
}

/// Resumes components, stores first, and waits until they are ready.
pub(crate) fn resume<'a>(components: impl Iterator<Item = &'a mut Component>) -> anyhow::Result<()> {
    let mut components: Vec<&mut Component> = components.filter(|component| !component.on_demand).collect();
    components.sort_by_key(|component| component.order());
    // The members of a store become ready only together.
    for group in components.chunk_by_mut(|a, b| a.order() == b.order()) {
        group.iter_mut().try_for_each(|component| component.signal(Signal::CONT))?;
        group.iter_mut().try_for_each(|component| component.wait_ready(OnInterrupt::Stop))?;
    }
    Ok(())
}

impl Root {
    /// The path under which the components see a path of this machine.
    pub(crate) fn in_guest(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.host_path).map_or_else(|_| path.to_owned(), |rest| self.guest_path.join(rest))
    }
}

impl PlannedControlPlane {
    /// Starts the components, and suspends them when they are ready if `resting`. Adds each launched component to
    /// `started`, also when a later one fails.
    pub(crate) fn start(self, resting: bool, started: &mut Vec<Component>) -> anyhow::Result<ControlPlane> {
        let PlannedControlPlane {
            stores,
            plugins,
            apiserver,
            more_apiservers,
            on_demand,
            node,
            auxiliary,
            info,
            guest_path,
            data,
            host,
        } = self;
        let NodeDraft { early, late, once } = node.unwrap_or_default();
        once.iter().try_for_each(Once::prepare)?;
        for mut first in stores.into_iter().chain(plugins).chain(early) {
            let launched = first.launch();
            started.push(first);
            launched?;
        }
        for first in started.iter_mut() {
            first.wait_ready(OnInterrupt::Stop)?;
        }
        std::thread::scope(|scope| {
            // Images are unpacked while the apiserver starts.
            let steps = scope.spawn(|| once.iter().try_for_each(Once::steps));
            for apiserver in std::iter::once(apiserver).chain(more_apiservers) {
                started.push(apiserver);
                if let Some(apiserver) = started.last_mut() {
                    apiserver.start()?;
                }
            }
            steps.join().map_err(|_| anyhow!("a step of the node's start panicked; this is a bug in archproof"))?
        })?;
        let first = started.len();
        for mut late in late {
            let launched = late.launch();
            started.push(late);
            launched?;
        }
        started[first..].iter_mut().try_for_each(|late| late.wait_ready(OnInterrupt::Stop))?;
        once.iter().try_for_each(|once| once.complete(started))?;
        if resting {
            suspend(started.iter_mut())?;
        }
        started.extend(on_demand);
        Ok(ControlPlane { info, guest_path, components: std::mem::take(started), auxiliary, data, host })
    }

    /// Takes over components that already run.
    pub(crate) fn adopt(self) -> anyhow::Result<ControlPlane> {
        let PlannedControlPlane {
            stores,
            plugins,
            apiserver,
            more_apiservers,
            on_demand,
            node,
            auxiliary,
            info,
            guest_path,
            data,
            host,
        } = self;
        let NodeDraft { early, late, .. } = node.unwrap_or_default();
        let mut components = stores;
        components.extend(plugins);
        components.push(apiserver);
        components.extend(more_apiservers);
        components.extend(early);
        components.extend(late);
        components.iter_mut().try_for_each(Component::adopt)?;
        components.extend(on_demand);
        Ok(ControlPlane { info, guest_path, components, auxiliary, data, host })
    }
}

impl Plan<'_> {
    /// Plans everything of a profile except its processes: ports, folders, files, flags. Keeps existing files.
    pub(crate) fn control_plane(&self, profile: &Profile, attempt: usize) -> anyhow::Result<PlannedControlPlane> {
        let place = &self.place;
        let dir = self.run.private_dir(&format!("{}/{attempt}", profile.name))?;
        let pki = self.pki.seen_from(&place.root);
        let Stores { components: stores, mut servers, endpoints, data } = self.stores(profile, attempt, &pki)?;
        let guest_path = place.root.in_guest(&dir);
        for (name, text) in &profile.files {
            let file = dir.join(name);
            if !file.exists() {
                write_private_file(&file, flags::fill(text, &guest_path, &servers)?.as_bytes())?;
            }
        }
        let mut plugins = Vec::new();
        let mut relays = BTreeMap::new();
        for plugin in &profile.plugins {
            let name = format!("{}/{}", profile.name, plugin.name);
            let door = (place.port_mappings)(&name)?;
            let flags = flags::plugin(plugin, &guest_path, door.inside, place.listen, &servers, &pki)?;
            let component = self.component(name, &plugin.component, flags, format!("{}/readyz", url(door.outside)))?;
            let relayed = profile.stores.iter().find(|store| plugin.relays.as_ref() == Some(&store.name));
            plugins.push(match relayed {
                Some(store) => {
                    relays.insert(store.name.clone(), url(door.inside));
                    self.as_ready_as(component, store.kind)?
                }
                None => component,
            });
        }
        servers.extend(relays);
        let mut on_demand = Vec::new();
        let auxiliary = self.auxiliary(profile, &dir, servers.clone(), &mut on_demand)?;
        let mut port_mappings = Vec::new();
        let mut apiservers = Vec::new();
        for name in component_names::apiservers(profile) {
            let door = (place.port_mappings)(&name)?;
            let flags =
                flags::apiserver(profile, &guest_path, (door.inside, place.listen), place.factor, &servers, &pki)?;
            apiservers.push(self.component(name, "kube-apiserver", flags, format!("{}/readyz", url(door.outside)))?);
            port_mappings.push(door);
        }
        if let (Some(name), Some(apiserver)) = (component_names::controllers(profile), port_mappings.first()) {
            on_demand.push(self.controllers(name, profile, &dir, apiserver.inside, &pki)?);
        }
        let node = match (self.node, apiservers.first_mut(), port_mappings.first()) {
            (Some(request), Some(apiserver), Some(door)) if request.node.profile == profile.name => {
                let root = Root { host_path: dir.clone(), guest_path: guest_path.clone() };
                Some(self.node(request, &root, &pki, apiserver, *door)?)
            }
            _ => None,
        };
        let port_mappings: Vec<u16> = port_mappings.into_iter().map(|door| door.outside).collect();
        let more_apiservers = apiservers.split_off(1);
        let apiserver = apiservers.pop().context("a profile has at least one apiserver")?;
        let info = self.info(profile, &dir, &port_mappings, &endpoints, &apiserver.flags)?;
        on_demand.iter_mut().for_each(|component| component.on_demand = true);
        let host = place.host.clone();
        Ok(PlannedControlPlane {
            stores,
            plugins,
            apiserver,
            more_apiservers,
            on_demand,
            node,
            auxiliary,
            info,
            guest_path,
            data,
            host,
        })
    }

    /// A kube-controller-manager for the apiserver on this port in that place.
    fn controllers(
        &self,
        name: String,
        profile: &Profile,
        dir: &Path,
        apiserver: u16,
        pki: &Pki,
    ) -> anyhow::Result<Component> {
        let door = (self.place.port_mappings)(&name)?;
        let kubeconfig = dir.join("controllers.kubeconfig");
        if !kubeconfig.exists() {
            write_private_file(&kubeconfig, kubeconfig::render(&url(apiserver), &self.pki.admin)?.as_bytes())?;
        }
        let kubeconfig = self.place.root.in_guest(&kubeconfig);
        let flags = flags::controllers(profile, &kubeconfig, door.inside, self.place.listen, pki);
        self.component(name, component_names::CONTROLLER_MANAGER, flags, format!("{}/healthz", url(door.outside)))
    }

    /// All members of all stores: ports, folders, flags.
    fn stores(&self, profile: &Profile, attempt: usize, pki: &Pki) -> anyhow::Result<Stores> {
        let place = &self.place;
        let mut stores = Stores::default();
        for store in &profile.stores {
            let guest_path = place.root.in_guest(&self.run.private_dir(&format!("{}/{attempt}", profile.name))?);
            let mut all = Vec::new();
            let (mut inside, mut outside) = (Vec::new(), Vec::new());
            for name in component_names::stores(profile, store) {
                let client = (place.port_mappings)(&name)?;
                let peer = (place.port_mappings)(&format!("{name}/peer"))?.inside;
                all.push((component_names::short(&name).to_owned(), StorePorts { client: client.inside, peer }));
                inside.push(url(client.inside));
                outside.push(client.outside);
            }
            for ((name, (short, ports)), port) in
                component_names::stores(profile, store).into_iter().zip(&all).zip(&outside)
            {
                let folder = self.run.private_dir(&format!("{}/{attempt}/{short}", profile.name))?;
                let folder = place.root.in_guest(&folder);
                let member = Member::new(short, &all, place.factor);
                let flags = flags::store(store, &member, &folder, ports, place.listen, pki);
                let file = store.kind.data_file().map(|file| folder.join(file));
                stores.data.extend(file.map(|file| (format!("{}.{short}", profile.name), file)));
                stores.components.push(self.store(name, store, flags, *port, &guest_path)?);
            }
            stores.servers.insert(store.name.clone(), inside.join(","));
            stores.endpoints.insert(store.name.clone(), outside.into_iter().map(url).collect());
        }
        Ok(stores)
    }

    pub(crate) fn store(
        &self,
        name: String,
        store: &ProfileStore,
        flags: Flags,
        port: u16,
        guest_path: &Path,
    ) -> anyhow::Result<Component> {
        let mut component = self.component(name, store.kind.component(), flags, format!("{}/readyz", url(port)))?;
        if let Some(wrapper) = &store.wrapper {
            self.wrap(&mut component.program, wrapper, guest_path)?;
        }
        self.as_ready_as(component, store.kind)
    }

    /// Makes `wrapper` the program; it executes the original program.
    fn wrap(&self, program: &mut Program, wrapper: &StoreWrapper, guest_path: &Path) -> anyhow::Result<()> {
        let (path, arguments) = (self.place.command)(artifact(self.artifacts, &wrapper.component)?);
        // A program that runs in an emulator cannot execute another one that needs the emulator.
        if !arguments.is_empty() {
            return Ok(());
        }
        let wrapped = std::mem::replace(&mut program.path, path).display().to_string();
        let own = wrapper.arguments.iter().map(|argument| flags::fill(argument, guest_path, &BTreeMap::new()));
        let own = own.collect::<anyhow::Result<Vec<String>>>()?;
        program.args.splice(0..0, own.into_iter().chain([wrapped]));
        Ok(())
    }

    /// A component with the readiness probe of a store.
    ///
    /// kine has no health endpoint, but like every gRPC server it refuses a GET.
    fn as_ready_as(&self, mut store: Component, kind: StoreKind) -> anyhow::Result<Component> {
        if kind != StoreKind::Etcd {
            store.ready.client = self.client(Alpn::Http2)?;
            store.ready.status = 415;
        }
        Ok(store)
    }

    pub(crate) fn component(
        &self,
        name: String,
        program: &str,
        flags: Flags,
        ready: String,
    ) -> anyhow::Result<Component> {
        let times = Times { start: self.scaled(START), grace: GRACE.mul_f64(self.place.factor.sqrt().max(1.0)) };
        let ready = Ready { client: self.client(Alpn::Unset)?, url: ready, status: 200, factor: self.place.factor };
        let flags = flags::as_known(flags, artifact(self.artifacts, program)?);
        Ok(Component::new(self.program(name, program)?, flags, ready, times, self.place.host.clone()))
    }

    pub(crate) fn program(&self, name: String, component: &str) -> anyhow::Result<Program> {
        let (path, args) = (self.place.command)(artifact(self.artifacts, component)?);
        let mut env = flags::environment(component, self.place.factor);
        env.extend(self.target.component_env.get(component).cloned().unwrap_or_default());
        let log = self.run.log(&name);
        Ok(Program { name, path, args, env, log })
    }

    /// A client for readiness probes.
    pub(crate) fn client(&self, alpn: Alpn) -> anyhow::Result<Client> {
        let config = tls::client(&self.pki.admin, alpn)?;
        Client::builder()
            .tls_backend_preconfigured(config)
            .no_proxy()
            .timeout(self.scaled(Duration::from_secs(5)))
            .build()
            .context("failed to create the client for readiness probes")
    }

    fn info(
        &self,
        profile: &Profile,
        dir: &Path,
        ports: &[u16],
        endpoints: &BTreeMap<String, Vec<String>>,
        flags: &Flags,
    ) -> anyhow::Result<ProfileInfo> {
        let kubeconfig = dir.join("kubeconfig");
        let port = *ports.first().context("a profile has at least one apiserver")?;
        write_private_file(&kubeconfig, kubeconfig::render(&url(port), &self.pki.admin)?.as_bytes())?;
        let stores = profile.stores.iter().map(|store| StoreInfo {
            name: store.name.clone(),
            endpoint: endpoints[&store.name].first().cloned().unwrap_or_default(),
            members: endpoints[&store.name].clone(),
            tls: self.pki.admin.clone(),
            resources: store.resources.clone(),
            root: store.kind.root().into(),
        });
        Ok(ProfileInfo {
            name: profile.name.clone(),
            apiserver: url(port),
            apiservers: ports.iter().copied().map(url).collect(),
            tls: self.pki.admin.clone(),
            token: Some(self.pki.token.clone()),
            client_certificate_required: false,
            kubeconfig,
            prefix: profile.prefix.clone(),
            stores: stores.collect(),
            flags: flags.clone(),
            dir: dir.to_owned(),
        })
    }

    /// A deadline, multiplied by the factor.
    pub(crate) fn scaled(&self, limit: Duration) -> Duration {
        limit.mul_f64(self.place.factor)
    }
}

pub(crate) fn artifact<'a>(artifacts: &'a Artifacts, component: &str) -> anyhow::Result<&'a Artifact> {
    match artifacts.by_component.get(component) {
        Some(artifact) => Ok(artifact),
        None => bail!("{component} was not built: build it with `cargo xtask build --component {component}`"),
    }
}
