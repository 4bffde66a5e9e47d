//! The ways to run control planes, and which of them a command uses.
//!
//! Each provider is a module that implements [`Provider`] and has a line in [`ProviderArg`]. How components start and
//! end is in `boot`; here is what must be known, fetched and built before.

pub mod budget;
mod components;
pub mod kind;
mod options;
mod process;
pub mod qemu;

use anyhow::anyhow;
use boot::{Booted, Starting, Topology};
use cli::{Failure, Paths, SourceOptions};
use model::{Artifacts, Capabilities, ComponentSet, Components, Profile, StoreKind, Target};
use suite::{Case, Requirement, missing};
use sys::RunDir;
use targets::Catalogue;

pub use components::of_spares;
pub use options::{ClusterArg, ProviderArg, ProviderOptions};

/// A way to run control planes.
pub trait Provider {
    /// What a control plane of this profile offers at most. What else it lacks is known when it runs.
    fn capabilities(&self, options: &ProviderOptions, profile: &Profile) -> Capabilities;

    /// The components to build: those under test, and those that the profiles and the provider itself need.
    fn components(
        &self,
        options: &ProviderOptions,
        catalogue: &Catalogue,
        profiles: &[Profile],
    ) -> anyhow::Result<Vec<String>>;

    /// Whether [`Provider::prepare`] may download something.
    fn fetches(&self) -> bool {
        true
    }

    /// Fetches what it needs in addition to the components.
    fn prepare<'a>(&self, setup: &Setup<'a>) -> anyhow::Result<Box<dyn Prepared + 'a>>;
}

/// A provider that is ready to boot.
pub trait Prepared {
    /// The control planes of the profiles, and the node if one was requested.
    fn topology(&self, _: &Artifacts, profiles: &[Profile]) -> anyhow::Result<Topology> {
        Ok(Topology { profiles: profiles.to_vec(), node: None })
    }

    fn boot(&self, artifacts: &Artifacts, topology: &Topology, run: &RunDir) -> anyhow::Result<Booted>;

    /// Like [`Prepared::boot`], but may return before all control planes run: the caller then has [`Starting::run`] start
    /// the rest while it uses the first ones.
    fn boot_early<'a>(
        &'a self,
        artifacts: &Artifacts,
        topology: &Topology,
        run: &'a RunDir,
    ) -> anyhow::Result<(Booted, Option<Starting<'a>>)> {
        Ok((self.boot(artifacts, topology, run)?, None))
    }
}

/// Everything that decides how a target runs.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    pub chosen: ProviderArg,
    pub options: &'a ProviderOptions,
    pub paths: &'a Paths,
    pub catalogue: &'a Catalogue,
    /// This machine, if the target data knows it.
    pub host: Option<&'a Target>,
    pub target: &'a Target,
    pub offline: bool,
}

impl<'a> Setup<'a> {
    /// See [`Provider::prepare`].
    pub fn prepare(&self) -> anyhow::Result<Box<dyn Prepared + 'a>> {
        self.chosen.provider().prepare(self)
    }

    /// See [`Provider::components`].
    pub fn components(&self, profiles: &[Profile]) -> anyhow::Result<Vec<String>> {
        self.chosen.provider().components(self.options, self.catalogue, profiles)
    }
}

/// The provider on the command line; by default, processes on a machine of the same architecture, otherwise a VM.
pub fn choose(options: &ProviderOptions, host: Option<&Target>, target: &Target) -> ProviderArg {
    let usual = || match options.cluster {
        ClusterArg::Planes => usual(host, target),
        ClusterArg::Node => ProviderArg::Qemu,
    };
    options.provider.unwrap_or_else(usual)
}

/// The default provider.
pub fn usual(host: Option<&Target>, target: &Target) -> ProviderArg {
    let native = host.is_some_and(|host| host.name == target.name);
    if native { ProviderArg::Process } else { ProviderArg::Qemu }
}

/// Refuses a node on this machine itself: it would need root, and change routing and resource accounting of the
/// machine. Also refuses an image for a provider without one, and other components together with an image.
pub fn known(options: &ProviderOptions, sources: &SourceOptions) -> Result<(), Failure> {
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
pub fn on_store(kind: StoreKind, mut profiles: Vec<Profile>) -> Vec<Profile> {
    profiles.iter_mut().for_each(|profile| profile.spare &= kind == StoreKind::Etcd);
    for store in profiles.iter_mut().flat_map(|profile| &mut profile.stores) {
        store.kind = kind;
        if kind != StoreKind::Etcd {
            store.members = 1;
        }
    }
    profiles
}

/// The profiles of a run with these sources: on its kind of store, and with earlier releases as far as they are pinned.
///
/// A run with exported components has none: an export contains the components of one release.
pub fn on_sources(sources: &SourceOptions, components: &Components, profiles: Vec<Profile>) -> Vec<Profile> {
    let by_set = sources.by_set();
    let pinned = |component: &str| {
        let has = |set: &&ComponentSet| set.components.iter().any(|found| found.name == component);
        let set = components.sets.iter().find(has).filter(|_| sources.exported.is_none());
        set.map_or(0, |set| set.earlier(by_set.get(&set.name)).len())
    };
    limit_earlier(on_store(sources.store(), profiles), pinned)
}

/// Leaves out the programs of earlier minors for which no release is pinned; `pinned` counts these of a component.
fn limit_earlier(mut profiles: Vec<Profile>, pinned: impl Fn(&str) -> usize) -> Vec<Profile> {
    for profile in &mut profiles {
        if let Some(variant) = profile.previous.take_if(|_| pinned(components::APISERVER) == 0) {
            profile.variants.remove(&variant);
        }
        for store in &mut profile.stores {
            let pinned = u8::try_from(pinned(store.kind.component())).unwrap_or(u8::MAX);
            store.earlier = store.earlier.min(pinned);
        }
    }
    profiles
}

/// The components of a run of all profiles as processes, without those of earlier minors.
pub fn of_processes(catalogue: &Catalogue, store: StoreKind) -> Vec<String> {
    let profiles = limit_earlier(on_store(store, catalogue.profiles.clone()), |_| 0);
    components::of_profiles(&catalogue.components, &profiles, false)
}

/// Drops the cases that need a node if the run has none, and refuses a run for which no case remains.
pub fn without_node(options: &ProviderOptions, cases: Vec<Case>) -> Result<Vec<Case>, Failure> {
    let needs_node = |case: &Case| case.check.requires.list().contains(&Requirement::Node);
    if options.cluster == ClusterArg::Node && !cases.iter().any(needs_node) {
        return Err(Failure::usage(anyhow!(
            "--cluster node, but no selected check needs a node: add `--suite cluster`"
        )));
    }
    if options.has_node() {
        return Ok(cases);
    }
    let (of_node, others): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(needs_node);
    match others.is_empty() {
        true => Err(Failure::usage(anyhow!("these {} checks need a node: add --cluster node", of_node.len()))),
        false => Ok(others),
    }
}

/// Splits the cases: those whose control plane the provider can create, and the others with what they need. The default
/// provider depends on the target, and can create all of them that need no release which is not pinned.
pub fn divide(options: &ProviderOptions, profiles: &[Profile], cases: Vec<Case>) -> (Vec<Case>, Vec<(Case, String)>) {
    let need = |case: &Case| {
        let profile = profiles.iter().find(|profile| profile.name == case.profile)?;
        let chosen = options.provider.map(|chosen| chosen.provider().capabilities(options, profile));
        let capabilities = Capabilities {
            previous_apiserver: profile.previous.is_some(),
            earlier_stores: profile.stores.first().is_some_and(|store| store.earlier > 0),
            ..chosen.unwrap_or(Capabilities::ALL)
        };
        missing(case.check, case.profile, &capabilities)
    };
    let (unfit, fit): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(|case| need(case).is_some());
    let unfit = unfit.into_iter().filter_map(|case| Some((case, need(&case)?)));
    (fit, unfit.collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::options::tests::{options, sources};

    fn catalogue() -> Catalogue {
        Catalogue::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../targets")).unwrap()
    }

    #[test]
    fn components_are_those_of_the_profiles_and_of_the_provider() {
        let catalogue = catalogue();
        let profiles = [catalogue.profile("default").unwrap().clone()];
        for (line, arg, with, without) in [
            ("", ProviderArg::Process, "kube-apiserver", boot::INIT),
            ("", ProviderArg::Qemu, boot::INIT, "kubelet"),
            ("--cluster node", ProviderArg::Qemu, "kubelet", "kind"),
            ("--provider kind", ProviderArg::Kind, "kind", "kine"),
            ("--provider kind --image r/i:t", ProviderArg::Kind, "kind", "kube-apiserver"),
        ] {
            let names = arg.provider().components(&options(line), &catalogue, &profiles).unwrap();
            assert!(names.iter().any(|name| name == with), "{line}: {names:?}");
            assert!(!names.iter().any(|name| name == without), "{line}: {names:?}");
        }
    }

    #[test]
    fn programs_of_earlier_releases_are_built_only_for_profiles_that_run_them() {
        let catalogue = catalogue();
        let of = |line: &str| {
            let profiles = on_sources(&sources(line), &catalogue.components, catalogue.profiles.clone());
            let names = components::of_profiles(&catalogue.components, &profiles, false);
            names.into_iter().filter(|name| model::component_of(name).1 > 0).collect::<Vec<String>>()
        };
        let (apiserver, one, two) = ("kube-apiserver-previous", "etcd-previous", "etcd-before-previous");
        assert_eq!(of(""), [apiserver, one, two]);
        assert_eq!(of("--kubernetes 1.34 --etcd 3.6"), [one]);
        assert_eq!(of("--etcd 3.5"), [apiserver]);
        assert_eq!(of("--store kine-sqlite"), [apiserver]);
        assert!(of("--kubernetes checkout:/nowhere --etcd prebuilt:/nowhere").is_empty());
        assert!(of("--components /nowhere").is_empty());
        let plain = [catalogue.profile("default").unwrap().clone()];
        let names = components::of_profiles(&catalogue.components, &plain, false);
        assert!(names.iter().all(|name| model::component_of(name).1 == 0), "{names:?}");
        let exported = of_processes(&catalogue, StoreKind::Etcd);
        assert!(exported.iter().all(|name| model::component_of(name).1 == 0), "{exported:?}");
    }

    #[test]
    fn published_image_cannot_run_every_control_plane() {
        let profiles = catalogue().profiles;
        let unfit = |line: &str| {
            let options = options(line);
            let capabilities = |profile| options.provider.unwrap().provider().capabilities(&options, profile);
            profiles.iter().filter(|profile| capabilities(profile).no_control_plane.is_some()).count()
        };
        assert_eq!((unfit("--provider process"), unfit("--provider qemu")), (0, 0));
        let of_kind = unfit("--provider kind --image r/i:t");
        assert!(0 < of_kind && of_kind < profiles.len(), "{of_kind} of {}", profiles.len());
    }
}
