//! The content of `targets/images.yaml`: the OCI images that are made from components.
//!
//! The field comments are the reference for that file. The image format on disk is in the `images` crate.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::artifact::Artifacts;
use crate::target::{ElfFacts, minor_of};

/// `targets/images.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Images {
    /// The prefix of the images' names. It is not a host that Archproof talks to.
    pub registry: String,
    /// Environment of every image: "NAME=VALUE".
    #[serde(default)]
    pub env: Vec<String>,
    pub images: Vec<ImageRecipe>,
    /// Architectures of published images that are not targets. The file may also list targets; they are left out here.
    #[serde(default)]
    pub foreign: Vec<ForeignPlatform>,
    /// Machine values of ELF programs that an image of any architecture may contain.
    #[serde(default)]
    pub no_processors: Vec<NoProcessor>,
}

/// An ELF machine that is not a processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoProcessor {
    /// `e_machine`.
    pub machine: u16,
    /// For people: "Linux BPF".
    pub name: String,
}

/// One image that contains only the project's programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecipe {
    /// The name below the registry: "coredns/coredns". Its last part must be different for each image.
    pub name: String,
    /// Tags by Kubernetes minor, where kubeadm expects another tag than the version of the first file's component.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    pub files: Vec<ImageFile>,
    /// Empty if the container's configuration names the program.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// "UID:GID". None: root.
    pub user: Option<String>,
}

/// A program in an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageFile {
    /// The component of `components.yaml`.
    pub component: String,
    /// Absolute path in the image.
    pub path: String,
}

/// An architecture that is only audited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignPlatform {
    /// A GOARCH, as in manifests.
    pub architecture: String,
    /// The ELF header of its programs.
    pub elf: ElfFacts,
}

impl ImageRecipe {
    /// "coredns" of "coredns/coredns".
    pub fn short_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }

    /// The component whose version is that of the image.
    pub fn main_component(&self) -> &str {
        self.files.first().map_or("", |file| &file.component)
    }

    /// The tag for a cluster of this Kubernetes version, with the main component's version.
    ///
    /// A minor without an entry gets the tag of the newest minor that has one.
    pub fn tag(&self, kubernetes: &str, version: &str) -> String {
        let minor = minor_of(kubernetes);
        let known = self.tags.get(&minor).or_else(|| self.tags.values().next_back());
        // A version may contain a `+`, a tag may not.
        known.cloned().unwrap_or_else(|| version.replace('+', "_"))
    }
}

impl Images {
    /// "REGISTRY/NAME:TAG".
    pub fn reference(&self, recipe: &ImageRecipe, tag: &str) -> String {
        format!("{}/{}:{tag}", self.registry, recipe.name)
    }

    /// Components of these images, each once.
    pub fn components<'a>(recipes: impl IntoIterator<Item = &'a ImageRecipe>) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for file in recipes.into_iter().flat_map(|recipe| &recipe.files) {
            if !names.contains(&file.component) {
                names.push(file.component.clone());
            }
        }
        names
    }
}

/// An image to write: its recipe, its full reference, and the binaries of each architecture.
#[derive(Clone, Debug)]
pub struct ImageOrder<'a> {
    pub recipe: &'a ImageRecipe,
    pub reference: String,
    pub artifacts: Vec<&'a Artifacts>,
    /// Environment variables that its programs need to run, by architecture: they must be in the image, because users
    /// who start a container do not know them.
    pub env: BTreeMap<String, BTreeMap<String, String>>,
}
