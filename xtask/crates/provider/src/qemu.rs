//! A system VM with all control planes, and with a node if one was requested.

use std::collections::BTreeSet;

use anyhow::Context;
use boot::qemu::Accelerator;
use boot::{Booted, NodeRequest, Topology};
use cli::fetch_options;
use images::{image_order, recipes};
use model::{Artifacts, Capabilities, ImageOrder, Images, MachineFiles, Profile};
use sys::RunDir;
use targets::Catalogue;

use crate::{ClusterArg, Prepared, Provider, ProviderOptions, Setup, components};

pub(crate) struct Qemu;

/// A VM whose packages are fetched.
pub struct Machine<'a> {
    setup: Setup<'a>,
    pub files: Box<MachineFiles>,
    pub accelerator: Accelerator,
}

impl Provider for Qemu {
    fn capabilities(&self, options: &ProviderOptions, _: &Profile) -> Capabilities {
        Capabilities { node: options.cluster == ClusterArg::Node, ..Capabilities::ALL }
    }

    fn components(
        &self,
        options: &ProviderOptions,
        catalogue: &Catalogue,
        profiles: &[Profile],
    ) -> anyhow::Result<Vec<String>> {
        let of_planes = components::of_profiles(&catalogue.components, profiles, true);
        if options.cluster == ClusterArg::Planes {
            return Ok(of_planes);
        }
        let recipes = recipes(catalogue, &catalogue.node.disk.images)?;
        let of_images = Images::components(recipes.iter().copied());
        let of_node = catalogue.node.components().map(str::to_owned);
        let all: BTreeSet<String> = of_planes.into_iter().chain(of_node).chain(of_images).collect();
        Ok(all.into_iter().collect())
    }

    fn prepare<'a>(&self, setup: &Setup<'a>) -> anyhow::Result<Box<dyn Prepared + 'a>> {
        Ok(Box::new(Machine::fetch(setup)?))
    }
}

impl<'a> Machine<'a> {
    /// Fetches the packages, and finds out whether the machine can be accelerated.
    pub fn fetch(setup: &Setup<'a>) -> anyhow::Result<Machine<'a>> {
        let Setup { options, paths, catalogue, target, offline, .. } = *setup;
        let host = setup.host.context("QEMU's packages are not known for this machine: no target file describes it")?;
        let node = (options.cluster == ClusterArg::Node).then(|| catalogue.node.clone());
        let fetch_options = fetch::Options { node, ..fetch_options(paths, &options.machine, offline) };
        let files = Box::new(fetch::machine(host, target, &fetch_options)?);
        let accelerator = boot::qemu::accelerator(host, target, &files, &paths.cache)?;
        Ok(Machine { setup: *setup, files, accelerator })
    }

    /// Creates the disk of the node from the built components, unless it is cached. The control planes of `profiles`
    /// also run from it.
    fn node(&self, artifacts: &Artifacts, profiles: &[Profile]) -> anyhow::Result<NodeRequest> {
        let Setup { paths, catalogue, .. } = self.setup;
        let recipes = recipes(catalogue, &catalogue.node.disk.images)?;
        let orders: Vec<ImageOrder<'_>> =
            recipes.iter().map(|recipe| image_order(catalogue, recipe, artifacts)).collect();
        let packages =
            self.files.node.as_deref().context("the packages of the node were not fetched: a bug in the harness")?;
        let mut disk = catalogue.node.disk.clone();
        disk.programs.extend(components::of_profiles(&catalogue.components, profiles, false));
        disk.programs.sort_unstable();
        disk.programs.dedup();
        let made = images::node::disk(&images::node::Request {
            disk: &disk,
            artifacts,
            images: &catalogue.images,
            orders: &orders,
            packages,
            packages_digest: &self.files.digest,
            busybox: &self.files.busybox,
            cache: &paths.cache,
        })?;
        let references = orders.iter().map(|order| (order.recipe.short_name().to_owned(), order.reference.clone()));
        Ok(NodeRequest { node: catalogue.node.clone(), disk: made.file, key: made.key, images: references.collect() })
    }
}

impl Prepared for Machine<'_> {
    fn topology(&self, artifacts: &Artifacts, profiles: &[Profile]) -> anyhow::Result<Topology> {
        let node = self.files.node.is_some().then(|| self.node(artifacts, profiles)).transpose()?;
        Ok(Topology { profiles: profiles.to_vec(), node })
    }

    fn boot(&self, artifacts: &Artifacts, topology: &Topology, run: &RunDir) -> anyhow::Result<Booted> {
        let Machine { setup: Setup { target, paths, options, .. }, files, accelerator } = self;
        let (cache, cold) = (&paths.cache, options.cold);
        let request = boot::qemu::Request { target, artifacts, files, topology, accelerator, cache, cold };
        boot::qemu::up(&request, run)
    }
}
