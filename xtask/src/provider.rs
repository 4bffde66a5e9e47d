//! Which provider a command uses, and what the provider needs before it can boot.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, anyhow};
use boot::kind::{Image, Origin};
use boot::qemu::Accelerator;
use boot::{Booted, NodeRequest, Topology};
use cli::{Failure, Paths, SourceOptions, fetch_options};
use images::kind::{Inputs, KIND, Order};
use model::{Artifacts, Capabilities, Components, MachineFiles, Profile, StoreKind, Target};
use suite::{Case, missing};
use sys::RunDir;
use targets::Catalogue;

use crate::args::{ClusterArg, ProviderArg, ProviderOptions};
use crate::node;

/// A provider that is ready to boot.
pub(crate) enum Provider<'a> {
    Process,
    Qemu { files: Box<MachineFiles>, accelerator: Accelerator, cold: bool },
    Kind(Setup<'a>),
}

/// The provider on the command line; by default, processes on a machine of the same architecture, otherwise a VM.
pub(crate) fn choose(options: &ProviderOptions, host: Option<&Target>, target: &Target) -> ProviderArg {
    let usual = || match options.cluster {
        ClusterArg::Planes => usual(host, target),
        ClusterArg::Node => ProviderArg::Qemu,
    };
    options.provider.unwrap_or_else(usual)
}

/// Refuses a node on this machine itself: it would need root, and change routing and resource accounting of the
/// machine. Also refuses an image for a provider without one, and other components together with an image.
pub(crate) fn known(options: &ProviderOptions, sources: &SourceOptions) -> Result<(), Failure> {
    if options.image.is_some() && options.provider != Some(ProviderArg::Kind) {
        return Err(Failure::usage(anyhow!("--image is a node image of Kind: add --provider kind")));
    }
    if options.image.is_some() && !sources.are_usual() {
        return Err(Failure::usage(anyhow!(
            "an image contains its own Kubernetes and etcd: leave out --image, or --kubernetes, --etcd, --kine, --store"
        )));
    }
    if options.cluster == ClusterArg::Node && options.provider == Some(ProviderArg::Kind) {
        return Err(Failure::usage(anyhow!("a cluster of Kind always has a node: leave out --cluster node")));
    }
    if options.cluster == ClusterArg::Node && options.provider == Some(ProviderArg::Process) {
        return Err(Failure::usage(anyhow!("--cluster node needs a separate machine: leave out --provider process")));
    }
    Ok(())
}

/// Moves the profiles to another kind of store. Only etcd can have several members, and only etcd has a spare etcd.
pub(crate) fn on_store(kind: StoreKind, mut profiles: Vec<Profile>) -> Vec<Profile> {
    profiles.iter_mut().for_each(|profile| profile.spare &= kind == StoreKind::Etcd);
    for store in profiles.iter_mut().flat_map(|profile| &mut profile.stores) {
        store.kind = kind;
        if kind != StoreKind::Etcd {
            store.members = 1;
        }
    }
    profiles
}

/// Splits the cases: those whose control plane the provider can create, and the others with what they need.
pub(crate) fn divide(
    options: &ProviderOptions,
    profiles: &[Profile],
    cases: Vec<Case>,
) -> (Vec<Case>, Vec<(Case, String)>) {
    let need = |case: &Case| {
        let profile = profiles.iter().find(|profile| profile.name == case.profile)?;
        let of_kind = options.provider == Some(ProviderArg::Kind);
        let unfit = boot::kind::unfit(profile, options.image.is_some()).filter(|_| of_kind);
        // What else the control plane lacks is known when it runs.
        let planned = Capabilities { no_control_plane: unfit.map(str::to_owned), ..Capabilities::ALL };
        missing(case.check, case.profile, &planned)
    };
    let (unfit, fit): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(|case| need(case).is_some());
    let unfit = unfit.into_iter().filter_map(|case| Some((case, need(&case)?)));
    (fit, unfit.collect())
}

/// The components of spare etcds and their tools; they are also built for this machine if the target differs from it.
pub(crate) fn spare_components(profiles: &[Profile]) -> Vec<String> {
    let with_a_spare = || profiles.iter().filter(|profile| profile.spare);
    let etcd = with_a_spare().map(|_| StoreKind::Etcd.component().to_owned());
    let names: BTreeSet<String> = with_a_spare().flat_map(|profile| profile.tools.clone()).chain(etcd).collect();
    names.into_iter().collect()
}

/// The default provider.
pub(crate) fn usual(host: Option<&Target>, target: &Target) -> ProviderArg {
    let native = host.is_some_and(|host| host.name == target.name);
    if native { ProviderArg::Process } else { ProviderArg::Qemu }
}

impl ProviderArg {
    /// The name on the command line and in the record.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ProviderArg::Process => "process",
            ProviderArg::Qemu => "qemu",
            ProviderArg::Kind => "kind",
        }
    }

    /// The components to build: those under test, and those that profiles and the provider itself need.
    pub(crate) fn components(self, components: &Components, profiles: &[Profile]) -> Vec<String> {
        let all = components.sets.iter().flat_map(|set| &set.components);
        let plugs = |name: &str| profiles.iter().flat_map(|p| &p.plugins).any(|plugin| plugin.component == name);
        let wraps = |name: &str| {
            let wrappers = profiles.iter().flat_map(|p| &p.stores).filter_map(|store| store.wrapper.as_ref());
            wrappers.map(|wrapper| wrapper.component.as_str()).any(|component| component == name)
        };
        let stores = |name: &str| profiles.iter().flat_map(|p| &p.stores).any(|store| store.kind.component() == name);
        let own = |name: &str| self != ProviderArg::Process && name == boot::INIT;
        let tools = |name: &str| profiles.iter().flat_map(|p| &p.tools).any(|tool| tool == name);
        let controls =
            |name: &str| name == boot::CONTROLLER_MANAGER && profiles.iter().any(|p| !p.controllers.is_empty());
        let needed = all.filter(|c| match c.name.as_str() {
            name if StoreKind::has_program(name) => stores(name),
            name => !c.optional || own(name) || plugs(name) || wraps(name) || tools(name) || controls(name),
        });
        needed.map(|component| component.name.clone()).collect()
    }
}

impl Provider<'_> {
    /// The node that makes a control plane a whole cluster, if one was requested.
    pub(crate) fn node(
        &self,
        paths: &Paths,
        catalogue: &Catalogue,
        artifacts: &Artifacts,
        profiles: &[Profile],
    ) -> anyhow::Result<Option<NodeRequest>> {
        match self {
            Provider::Qemu { files, .. } if files.node.is_some() => {
                node::request(paths, catalogue, files, artifacts, profiles).map(Some)
            }
            _ => Ok(None),
        }
    }

    pub(crate) fn boot(
        &self,
        target: &Target,
        artifacts: &Artifacts,
        topology: &Topology,
        cache: &Path,
        run: &RunDir,
    ) -> anyhow::Result<Booted> {
        match self {
            Provider::Process => boot::up(target, artifacts, topology, run),
            Provider::Qemu { files, accelerator, cold } => {
                let cold = *cold;
                let request = boot::qemu::Request { target, artifacts, files, topology, accelerator, cache, cold };
                boot::qemu::up(&request, run)
            }
            Provider::Kind(setup) => setup.kind(artifacts, topology, |request| boot::kind::up(request, run)),
        }
    }
}

/// Everything that decides how a target runs.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) chosen: ProviderArg,
    pub(crate) options: &'a ProviderOptions,
    pub(crate) paths: &'a Paths,
    pub(crate) catalogue: &'a Catalogue,
    /// This machine, if the target data knows it.
    pub(crate) host: Option<&'a Target>,
    pub(crate) target: &'a Target,
    pub(crate) offline: bool,
}

impl<'a> Setup<'a> {
    /// Makes the provider ready, and fetches what it needs.
    pub(crate) fn prepare(&self) -> anyhow::Result<Provider<'a>> {
        match self.chosen {
            ProviderArg::Process => Ok(Provider::Process),
            ProviderArg::Qemu => self.machine(),
            ProviderArg::Kind => {
                boot::kind::engine_version(&self.target.name)?;
                Ok(Provider::Kind(*self))
            }
        }
    }

    /// Calls `then` with the inputs of Kind clusters, and keeps these inputs until it returns.
    pub(crate) fn kind<T>(
        &self,
        artifacts: &Artifacts,
        topology: &Topology,
        then: impl FnOnce(&boot::kind::Request<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let Setup { paths, catalogue, target, offline, options, .. } = *self;
        let kind = artifacts.by_component.get(KIND).with_context(|| format!("{KIND} was not built"))?;
        let (kind, whole, cache) = (&kind.path, catalogue.node.profile.as_str(), paths.cache.as_path());
        let then = |image| then(&boot::kind::Request { target, artifacts, topology, kind, image, whole, cache });
        if let Some(reference) = options.image.clone() {
            return then(Image { reference, origin: Origin::Published });
        }
        let order = Order { paths, catalogue, target, artifacts, machine: &options.machine, offline };
        let inputs = Inputs::of(&order)?;
        let write = |archive: &Path| inputs.write(archive).map(drop);
        let origin = Origin::Ours { write: &write, images: inputs.references() };
        then(Image { reference: inputs.reference.clone(), origin })
    }

    fn machine(&self) -> anyhow::Result<Provider<'a>> {
        let host = self.host.context("QEMU's packages are not known for this machine: no target file describes it")?;
        let node = (self.options.cluster == ClusterArg::Node).then(|| self.catalogue.node.clone());
        let options = fetch::Options { node, ..fetch_options(self.paths, &self.options.machine, self.offline) };
        let files = Box::new(fetch::machine(host, self.target, &options)?);
        let accelerator = boot::qemu::accelerator(host, self.target, &files, &self.paths.cache)?;
        Ok(Provider::Qemu { files, accelerator, cold: self.options.cold })
    }
}
