//! The node image for Kind: the components to build for it, and the image built from them.

mod container;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use cli::{MachineOptions, Paths, fetch_options, request, with_go};
use model::{Artifacts, ImageOrder, Images, Target};
use sys::progress;
use targets::Catalogue;

use crate::Built;
use crate::recipes::{image_order, recipes};

/// Change this when the same inputs give another image.
const RECIPE: &str = "1";
/// The component that contains the program Kind.
pub const KIND: &str = "kind";
/// No registry has an image of this name.
const NAME: &str = "archproof/node";
/// Number of key digits in the tag.
const SHORT: usize = 12;

/// The request for an image.
pub struct Order<'a> {
    pub paths: &'a Paths,
    pub catalogue: &'a Catalogue,
    pub target: &'a Target,
    /// Contains all [`components`].
    pub artifacts: &'a Artifacts,
    pub machine: &'a MachineOptions,
    pub offline: bool,
}

/// All inputs of an image, fetched and built.
pub struct Inputs<'a> {
    order: &'a Order<'a>,
    images: Vec<ImageOrder<'a>>,
    root: fetch::Root,
    base: PathBuf,
    /// "archproof/node:TAG"; the tag depends on the inputs.
    pub reference: String,
}

/// The components to build for an image, and Kind itself.
pub fn components(catalogue: &Catalogue) -> anyhow::Result<Vec<String>> {
    let of_images = Images::components(recipes(catalogue, &catalogue.kind.images)?);
    let of_node = catalogue.kind.components().map(str::to_owned);
    Ok(of_node.chain(of_images).chain([KIND.to_owned()]).collect::<BTreeSet<String>>().into_iter().collect())
}

impl<'a> Inputs<'a> {
    /// Fetches the packages and Kind's own files.
    pub fn of(order: &'a Order<'a>) -> anyhow::Result<Inputs<'a>> {
        let &Order { paths, catalogue, target, artifacts, machine, offline } = order;
        let recipes = recipes(catalogue, &catalogue.kind.images)?;
        let images: Vec<ImageOrder<'_>> =
            recipes.iter().map(|recipe| image_order(catalogue, recipe, artifacts)).collect();
        let root = fetch::container(target, &catalogue.kind, &fetch_options(paths, machine, offline))?;
        let build = build::Request { offline, ..request(paths, catalogue, target, None) };
        let build = with_go(paths, build)?;
        let base = build::module_files(&build, &catalogue.kind.set)?.join(&catalogue.kind.base);
        let mut inputs = Inputs { order, images, root, base, reference: String::new() };
        inputs.reference = format!("{NAME}:{}", &inputs.key()?[..SHORT]);
        Ok(inputs)
    }

    /// Digest of all inputs.
    fn key(&self) -> anyhow::Result<String> {
        let mut fields = build::Fields::default();
        let mut field = |text: &str| fields.add(text);
        [RECIPE, &self.order.target.name, &self.root.digest].into_iter().for_each(&mut field);
        // Go's module cache is read-only, and the names of its folders contain the version.
        field(self.base.to_str().context("the path of the module cache is not UTF-8")?);
        field(&serde_json::to_string(&self.order.catalogue.kind)?);
        field(&serde_json::to_string(&self.order.catalogue.images.env)?);
        let of_images = self.images.iter().flat_map(|order| &order.recipe.files).map(|file| file.component.as_str());
        for name in self.order.catalogue.kind.components().chain(of_images) {
            field(name);
            field(self.order.artifacts.by_component.get(name).map_or("", |artifact| &artifact.sha256));
        }
        for image in &self.images {
            field(&image.reference);
            field(&serde_json::to_string(image.recipe)?);
            field(&serde_json::to_string(&image.env)?);
        }
        Ok(fields.finish())
    }

    /// Writes the docker archive.
    pub fn write(&self, archive: &Path) -> anyhow::Result<Built> {
        let phase = progress::Phase::start("write the node image");
        let built = container::write(self, archive)?;
        phase.done(&format!("{}, {} MiB", built.reference, built.size >> 20));
        Ok(built)
    }

    /// The references of the images on the node, by image name.
    pub fn references(&self) -> BTreeMap<String, String> {
        let of = |order: &ImageOrder<'_>| (order.recipe.short_name().to_owned(), order.reference.clone());
        self.images.iter().map(of).collect()
    }
}
