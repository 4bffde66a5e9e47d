//! Orders for the images of a node, with the names and variables that the built components need.

use std::collections::BTreeMap;

use model::{Artifacts, ImageOrder, ImageRecipe};
use targets::Catalogue;

pub fn recipes<'a>(catalogue: &'a Catalogue, images: &[String]) -> anyhow::Result<Vec<&'a ImageRecipe>> {
    Ok(images.iter().map(|name| catalogue.image(name)).collect::<Result<_, _>>()?)
}

/// The image under the name that the built Kubernetes uses.
pub fn image_order<'a>(catalogue: &Catalogue, recipe: &'a ImageRecipe, artifacts: &'a Artifacts) -> ImageOrder<'a> {
    let version = |component: &str| {
        let artifact = artifacts.by_component.get(component);
        artifact.map(|artifact| artifact.version.clone()).unwrap_or_default()
    };
    let tag = recipe.tag(&version("kube-apiserver"), &version(recipe.main_component()));
    let reference = catalogue.images.reference(recipe, &tag);
    ImageOrder { recipe, reference, artifacts: vec![artifacts], env: env(catalogue, recipe, [artifacts.arch.as_str()]) }
}

/// The environment variables for the programs of an image, by architecture.
pub(crate) fn env<'a>(
    catalogue: &Catalogue,
    recipe: &ImageRecipe,
    arches: impl IntoIterator<Item = &'a str>,
) -> BTreeMap<String, BTreeMap<String, String>> {
    let of = |arch: &'a str| {
        let target = catalogue.target(arch).ok()?;
        let variables = recipe.files.iter().filter_map(|file| target.component_env.get(&file.component));
        Some((arch.to_owned(), variables.flatten().map(|(name, value)| (name.clone(), value.clone())).collect()))
    };
    arches.into_iter().filter_map(of).collect()
}
