//! What is pinned: the sets of `targets/components.yaml` with a module of upstream, and their versions.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use build::GoTool;
use model::ComponentSet;
use targets::Catalogue;

use crate::gomod;
use crate::state::Pins;
use crate::version::{Minor, Version};

/// A set with a module of upstream.
#[derive(Clone, Debug)]
pub(crate) struct Pinned {
    pub(crate) pins: Pins,
    /// The main module.
    pub(crate) module: String,
    /// A staging repository that is published with the same patch versions as the main module.
    pub(crate) staging: Option<String>,
    pub(crate) folders: Vec<Folder>,
}

/// A Go module that pins a version.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    /// Below `targets/`.
    pub(crate) path: PathBuf,
    pub(crate) version: Version,
    /// Whether `pins bump --minor` made it, and a person has not completed it.
    pub(crate) draft: bool,
}

/// How the go.mod of a draft begins.
pub(crate) const DRAFT: &str = "// A draft of";

impl Pinned {
    /// The modules whose versions are listed.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &str> {
        [self.module.as_str()].into_iter().chain(self.staging.as_deref())
    }
}

/// The sets with a module of upstream, in the order of the file. `only`: those with these names; empty means all.
///
/// # Errors
/// A go.mod cannot be read, or does not require the main module.
pub(crate) fn pinned(catalogue: &Catalogue, targets: &Path, only: &[String]) -> anyhow::Result<Vec<Pinned>> {
    let chosen = |set: &&ComponentSet| !set.is_own() && (only.is_empty() || only.contains(&set.name));
    catalogue.components.sets.iter().filter(chosen).map(|set| of_set(set, targets)).collect()
}

fn of_set(set: &ComponentSet, targets: &Path) -> anyhow::Result<Pinned> {
    let own = set.releases.iter().map(|release| release.module.as_str());
    let names: Vec<&str> = if set.releases.is_empty() { vec![&set.name] } else { own.collect() };
    let folders =
        names.iter().map(|name| folder(set, set.folder(name), targets)).collect::<anyhow::Result<Vec<_>>>()?;
    let staging = set.staging.as_ref().and_then(|_| folders.first()).map(|folder| first_staging(targets, folder));
    let pins = Pins {
        set: set.name.clone(),
        pinned: folders.iter().map(|folder| folder.version.clone()).collect(),
        supported: set.supported_minors.unwrap_or(1),
        follows: set.follows.clone(),
        held: set
            .held
            .as_ref()
            .map(|held| Ok::<_, anyhow::Error>((first(&held.from)?, held.reason.clone())))
            .transpose()?,
    };
    Ok(Pinned { pins, module: set.main_module.clone(), staging: staging.transpose()?.flatten(), folders })
}

/// A version, or the first one of a minor.
fn first(text: &str) -> anyhow::Result<Version> {
    let version = Version::parse(text).or_else(|| Minor::parse(text).map(Version::first_of));
    version.ok_or_else(|| anyhow!("`held` of components.yaml has no version like 1.36 or 1.36.2: {text}"))
}

fn folder(set: &ComponentSet, path: PathBuf, targets: &Path) -> anyhow::Result<Folder> {
    let text = read(&targets.join(&path).join("go.mod"))?;
    let required = gomod::required(&text).into_iter().find(|(module, _)| *module == set.main_module);
    let version = required.and_then(|(_, version)| Version::parse(version));
    let version = version.ok_or_else(|| {
        let file = path.join("go.mod");
        anyhow!("{} does not require {} as a release", file.display(), set.main_module)
    })?;
    Ok(Folder { path, version, draft: text.starts_with(DRAFT) })
}

/// The `go` on PATH that is new enough for the first of these sets.
///
/// # Errors
/// Go is missing or too old.
pub(crate) fn go(targets: &Path, sets: &[Pinned]) -> anyhow::Result<GoTool> {
    match sets.first().and_then(|set| set.folders.first()) {
        Some(folder) => GoTool::find(&targets.join(&folder.path).join("go.mod")),
        None => GoTool::any(),
    }
}

/// The first staging repository that the folder names.
fn first_staging(targets: &Path, folder: &Folder) -> anyhow::Result<Option<String>> {
    let text = read(&targets.join(&folder.path).join("go.mod"))?;
    Ok(gomod::replacing(&text).first().map(|(path, _)| (*path).to_owned()))
}

/// The text of a file.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
}
