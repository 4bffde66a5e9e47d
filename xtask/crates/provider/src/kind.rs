//! Clusters of Kind: one per control plane, and one with a full node.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use boot::kind::{Image, Origin};
use boot::{Booted, Topology};
use images::kind::{Inputs, KIND, Order};
use model::{Artifacts, Capabilities, Profile};
use sys::RunDir;
use targets::Catalogue;

use crate::{Prepared, Provider, ProviderOptions, Setup, components};

pub(crate) struct Kind;

/// A container engine answers.
pub struct Clusters<'a>(Setup<'a>);

impl Provider for Kind {
    fn capabilities(&self, options: &ProviderOptions, profile: &Profile) -> Capabilities {
        let unfit = boot::kind::unfit(profile, options.image.is_some());
        Capabilities { no_control_plane: unfit.map(str::to_owned), ..Capabilities::ALL }
    }

    /// A published image has all programs of Kubernetes and etcd.
    fn components(
        &self,
        options: &ProviderOptions,
        catalogue: &Catalogue,
        profiles: &[Profile],
    ) -> anyhow::Result<Vec<String>> {
        let mut names: BTreeSet<String> =
            components::of_profiles(&catalogue.components, profiles, true).into_iter().collect();
        if options.image.is_some() {
            names.retain(|name| components::helps(name, profiles) || name == boot::INIT);
            names.insert(KIND.to_owned());
        } else {
            names.extend(images::kind::components(catalogue)?);
        }
        Ok(names.into_iter().collect())
    }

    fn prepare<'a>(&self, setup: &Setup<'a>) -> anyhow::Result<Box<dyn Prepared + 'a>> {
        boot::kind::engine_version(&setup.target.name)?;
        Ok(Box::new(Clusters(*setup)))
    }
}

impl Prepared for Clusters<'_> {
    fn boot(&self, artifacts: &Artifacts, topology: &Topology, run: &RunDir) -> anyhow::Result<Booted> {
        with_inputs(&self.0, artifacts, topology, |request| boot::kind::up(request, run))
    }
}

/// Calls `then` with the inputs of Kind clusters, and keeps these inputs until it returns.
pub fn with_inputs<T>(
    setup: &Setup<'_>,
    artifacts: &Artifacts,
    topology: &Topology,
    then: impl FnOnce(&boot::kind::Request<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Setup { paths, catalogue, target, offline, options, .. } = *setup;
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
