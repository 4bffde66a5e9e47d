//! What `--cluster node` adds: the components to build, and the disk made from them.

use std::collections::BTreeSet;

use anyhow::Context;
use boot::NodeRequest;
use cli::{Failure, OrExit, Paths};
use images::{image_order, kind, recipes};
use model::{Artifacts, Exit, ImageOrder, Images, MachineFiles, Profile};
use targets::Catalogue;

use crate::args::{ClusterArg, ProviderArg, ProviderOptions};

/// The components of the control planes, and those of a node if one was requested.
pub(crate) fn with(
    options: &ProviderOptions,
    chosen: ProviderArg,
    catalogue: &Catalogue,
    profiles: &[Profile],
) -> Result<Vec<String>, Failure> {
    if chosen == ProviderArg::Kind {
        let mut of_profiles = chosen.components(&catalogue.components, profiles);
        let of_image = match &options.image {
            Some(_) => {
                of_profiles.retain(|name| beside_an_image(name, profiles));
                vec![kind::KIND.to_owned()]
            }
            None => kind::components(catalogue).or_exit(Exit::TargetData)?,
        };
        return Ok(of_image.into_iter().chain(of_profiles).collect::<BTreeSet<String>>().into_iter().collect());
    }
    let components = chosen.components(&catalogue.components, profiles);
    if options.cluster == ClusterArg::Planes {
        return Ok(components);
    }
    let recipes = recipes(catalogue, &catalogue.node.disk.images).or_exit(Exit::TargetData)?;
    let of_images = Images::components(recipes.iter().copied());
    let of_node = catalogue.node.components().map(str::to_owned);
    let all: BTreeSet<String> = components.into_iter().chain(of_node).chain(of_images).collect();
    Ok(all.into_iter().collect())
}

/// Whether the component is needed in addition to a published image, which has all programs of Kubernetes and etcd.
fn beside_an_image(component: &str, profiles: &[Profile]) -> bool {
    let plugins = profiles.iter().flat_map(|profile| &profile.plugins).map(|plugin| &plugin.component);
    let wrappers = profiles.iter().flat_map(|profile| &profile.stores).filter_map(|store| store.wrapper.as_ref());
    plugins.chain(wrappers.map(|wrapper| &wrapper.component)).any(|name| name == component) || component == boot::INIT
}

/// Creates the disk from the built components, unless it is cached. The control planes of `profiles` also run from it.
pub(crate) fn request(
    paths: &Paths,
    catalogue: &Catalogue,
    files: &MachineFiles,
    artifacts: &Artifacts,
    profiles: &[Profile],
) -> anyhow::Result<NodeRequest> {
    let recipes = recipes(catalogue, &catalogue.node.disk.images)?;
    let orders: Vec<ImageOrder<'_>> = recipes.iter().map(|recipe| image_order(catalogue, recipe, artifacts)).collect();
    let packages = files.node.as_deref().context("the packages of the node were not fetched: a bug in the harness")?;
    let of_planes = ProviderArg::Qemu.components(&catalogue.components, profiles);
    let mut disk = catalogue.node.disk.clone();
    disk.programs.extend(of_planes.into_iter().filter(|name| name != boot::INIT));
    disk.programs.sort_unstable();
    disk.programs.dedup();
    let made = images::node::disk(&images::node::Request {
        disk: &disk,
        artifacts,
        images: &catalogue.images,
        orders: &orders,
        packages,
        packages_digest: &files.digest,
        busybox: &files.busybox,
        cache: &paths.cache,
    })?;
    let references = orders.iter().map(|order| (order.recipe.short_name().to_owned(), order.reference.clone()));
    Ok(NodeRequest { node: catalogue.node.clone(), disk: made.file, key: made.key, images: references.collect() })
}
