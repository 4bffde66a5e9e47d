//! Control planes: the components of a profile, planned with their files, ports and flags, and started in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use model::{Profile, ProfileInfo, StoreInfo, StoreKind, VariantInfo, earlier_name};
use rustix::process::Signal;
use sys::deadline::OnInterrupt;
use sys::run_dir::write_private_file;

use crate::auxiliary::Auxiliary;
use crate::component::Component;
use crate::component_names;
use crate::flags::{self, Flags, Member, StorePorts, url};
use crate::host::Host;
use crate::kubeconfig;
use crate::node::{NodeDraft, Once};
use crate::pki::Pki;
use crate::place::{Root, SLOW};
use crate::plan::{Plan, store_programs};

/// A planned control plane that is ready to start.
pub(crate) struct PlannedControlPlane {
    pub(crate) stores: Vec<Component>,
    pub(crate) plugins: Vec<Component>,
    pub(crate) apiserver: Component,
    /// More apiservers on the same stores.
    pub(crate) more_apiservers: Vec<Component>,
    /// Apiservers that run only while a check uses them.
    pub(crate) variants: Vec<Component>,
    pub(crate) node: Option<NodeDraft>,
    /// The rest. Its components are those that checks start when they need them.
    pub(crate) plane: ControlPlane,
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
    /// `PROFILE.STORE` to the store's data file, as the components see it.
    pub(crate) data: Vec<(String, PathBuf)>,
    pub(crate) host: Arc<dyn Host>,
}

/// Name of the component.
const APISERVER: &str = "kube-apiserver";

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

impl PlannedControlPlane {
    /// Starts the components, and suspends them when they are ready if `resting`. Adds each launched component to
    /// `started`, also when a later one fails. `for_snapshot`: starts and suspends the variants as well, so that a memory
    /// snapshot contains them.
    pub(crate) fn start(
        self,
        resting: bool,
        for_snapshot: bool,
        started: &mut Vec<Component>,
    ) -> anyhow::Result<ControlPlane> {
        let PlannedControlPlane { stores, plugins, apiserver, more_apiservers, variants, node, mut plane } = self;
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
        for variant in variants {
            started.push(variant);
            if let Some(variant) = started.last_mut().filter(|_| for_snapshot) {
                variant.start()?;
                variant.signal(Signal::STOP)?;
            }
        }
        if resting {
            suspend(started.iter_mut())?;
        }
        started.append(&mut plane.components);
        Ok(ControlPlane { components: std::mem::take(started), ..plane })
    }

    /// Takes over components that already run, variants included.
    pub(crate) fn adopt(self) -> anyhow::Result<ControlPlane> {
        let PlannedControlPlane { stores, plugins, apiserver, more_apiservers, variants, node, mut plane } = self;
        let NodeDraft { early, late, .. } = node.unwrap_or_default();
        let mut components = stores;
        components.extend(plugins.into_iter().chain([apiserver]).chain(more_apiservers).chain(early).chain(late));
        components.extend(variants);
        components.iter_mut().try_for_each(Component::adopt)?;
        components.append(&mut plane.components);
        Ok(ControlPlane { components, ..plane })
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
        let filled = |text: &String| flags::fill(text, &guest_path, &servers);
        let files: Vec<(&String, String)> =
            profile.files.iter().map(|(name, text)| Ok((name, filled(text)?))).collect::<anyhow::Result<_>>()?;
        for (name, text) in &files {
            let file = dir.join(name);
            if !file.exists() {
                let copied =
                    |text: String, (other, copy): &(&String, String)| text.replace(&format!("{{file.{other}}}"), copy);
                write_private_file(&file, files.iter().fold(text.clone(), copied).as_bytes())?;
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
                    self.with_grpc_probe(component)?
                }
                None => component,
            });
        }
        servers.extend(relays);
        let mut on_demand = Vec::new();
        let mut auxiliary = self.auxiliary(profile, &dir, servers.clone(), &mut on_demand)?;
        let mut port_mappings = Vec::new();
        let mut apiservers = Vec::new();
        let apiserver = |name: String, program: &str, more: &Flags| {
            let door = (place.port_mappings)(&name)?;
            let mut flags =
                flags::apiserver(profile, &guest_path, (door.inside, place.listen), place.factor, &servers, &pki)?;
            for (flag, value) in more {
                flags.insert(flag.clone(), flags::fill(value, &guest_path, &servers)?);
            }
            let ready = format!("{}/readyz", url(door.outside));
            let mut apiserver = self.component(name, program, flags, ready)?;
            apiserver.program.env.extend(profile.environment.clone());
            anyhow::Ok((apiserver, door))
        };
        for name in component_names::apiservers(profile) {
            let (apiserver, door) = apiserver(name, APISERVER, &Flags::new())?;
            apiservers.push(apiserver);
            port_mappings.push(door);
        }
        let mut variants = Vec::new();
        let mut variant_infos = BTreeMap::new();
        for (name, more) in &profile.variants {
            let previous = profile.previous.as_ref() == Some(name);
            let program = earlier_name(APISERVER, previous.into());
            let (mut variant, door) = apiserver(component_names::variant(profile, name), &program, more)?;
            variant.on_demand = true;
            auxiliary.apiservers.insert(name.clone(), url(door.inside));
            let info = VariantInfo { apiserver: url(door.outside), flags: variant.flags.clone(), previous };
            variant_infos.insert(name.clone(), info);
            variants.push(variant);
        }
        if let (Some(name), Some(apiserver)) = (component_names::controllers(profile), port_mappings.first()) {
            on_demand.push(self.controllers(name, profile, &dir, apiserver.inside, &pki)?);
        }
        if let (Some(name), Some(apiserver)) = (component_names::scheduler(profile), port_mappings.first()) {
            on_demand.push(self.scheduler(name, &dir, apiserver.inside, &pki)?);
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
        let mut info = self.info(profile, &dir, &port_mappings, &endpoints, &apiserver.flags)?;
        info.variants = variant_infos;
        on_demand.iter_mut().for_each(|component| component.on_demand = true);
        let (components, host) = (on_demand, place.host.clone());
        let plane = ControlPlane { info, guest_path, components, auxiliary, data, host };
        Ok(PlannedControlPlane { stores, plugins, apiserver, more_apiservers, variants, node, plane })
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
        let kubeconfig = self.manager_kubeconfig(dir, apiserver)?;
        let flags = flags::controllers(profile, &kubeconfig, door.inside, self.place.listen, pki);
        self.component(name, component_names::CONTROLLER_MANAGER, flags, format!("{}/healthz", url(door.outside)))
    }

    /// A kube-scheduler for the apiserver on this port in that place.
    fn scheduler(&self, name: String, dir: &Path, apiserver: u16, pki: &Pki) -> anyhow::Result<Component> {
        let door = (self.place.port_mappings)(&name)?;
        let kubeconfig = self.manager_kubeconfig(dir, apiserver)?;
        let flags = flags::scheduler(&kubeconfig, door.inside, self.place.listen, pki);
        self.component(name, component_names::SCHEDULER, flags, format!("{}/healthz", url(door.outside)))
    }

    /// The kubeconfig of the controller manager and of the scheduler, as they see it.
    fn manager_kubeconfig(&self, dir: &Path, apiserver: u16) -> anyhow::Result<PathBuf> {
        let kubeconfig = dir.join("controllers.kubeconfig");
        if !kubeconfig.exists() {
            write_private_file(&kubeconfig, kubeconfig::render(&url(apiserver), &self.pki.admin)?.as_bytes())?;
        }
        Ok(self.place.root.in_guest(&kubeconfig))
    }

    /// All members of all stores: ports, folders, flags.
    fn stores(&self, profile: &Profile, attempt: usize, pki: &Pki) -> anyhow::Result<Stores> {
        let place = &self.place;
        let mut stores = Stores::default();
        for store in &profile.stores {
            let guest_path = place.root.in_guest(&self.run.private_dir(&format!("{}/{attempt}", profile.name))?);
            let mut all = Vec::new();
            let (mut inside, mut outside, mut ready) = (Vec::new(), Vec::new(), Vec::new());
            for name in component_names::stores(profile, store) {
                let door = |name: &str| (place.port_mappings)(name);
                let (client, http) = (door(&name)?, door(&component_names::http(&name))?);
                let peer = door(&format!("{name}/peer"))?.inside;
                let ports = StorePorts { client: client.inside, peer, http: http.inside };
                all.push((component_names::short(&name).to_owned(), ports));
                inside.push(url(client.inside));
                outside.push(client.outside);
                ready.push(if store.kind == StoreKind::Etcd { http.outside } else { client.outside });
            }
            for ((name, (short, ports)), port) in
                component_names::stores(profile, store).into_iter().zip(&all).zip(&ready)
            {
                let folder = self.run.private_dir(&format!("{}/{attempt}/{short}", profile.name))?;
                let folder = place.root.in_guest(&folder);
                let member = Member::new(short, &all, place.factor);
                let flags = flags::store(store, &member, &folder, ports, place.listen, pki);
                let file = store.kind.data_file().map(|file| folder.join(file));
                stores.data.extend(file.map(|file| (format!("{}.{short}", profile.name), file)));
                let mut component = self.store(name, store, flags, *port, &guest_path)?;
                component.program.env.extend(profile.environment.clone());
                stores.components.push(component);
            }
            stores.servers.insert(store.name.clone(), inside.join(","));
            stores.endpoints.insert(store.name.clone(), outside.into_iter().map(url).collect());
        }
        Ok(stores)
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
            kind: store.kind,
            programs: store_programs(store),
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
            variants: BTreeMap::new(),
            dir: dir.to_owned(),
        })
    }
}
