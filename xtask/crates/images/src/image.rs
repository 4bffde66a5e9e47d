//! Makes an image from a recipe and binaries: layer, configuration, manifest.

use anyhow::{Context, anyhow};
use model::{Artifact, Artifacts, ImageOrder, Images};
use serde::Serialize;

use crate::digest;
use crate::layer::{Entries, Entry, Layer, PROGRAM};
use crate::spec::{self, Config, Descriptor, History, Manifest, Platform, RootFs, RunConfig};

/// Every image has this time, so that the same programs give the same image.
const CREATED: &str = "1970-01-01T00:00:00Z";
const OS: &str = "linux";
/// Go's version of a module that is built in its own folder.
const UNRELEASED: &str = "(devel)";

/// JSON with its digest.
#[derive(Clone, Debug)]
pub(crate) struct Blob {
    pub(crate) media_type: &'static str,
    pub(crate) bytes: Vec<u8>,
}

/// An image for one architecture.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) arch: String,
    pub(crate) version: String,
    pub(crate) layer: Layer,
    pub(crate) config: Blob,
    pub(crate) manifest: Blob,
}

impl Blob {
    pub(crate) fn of(media_type: &'static str, value: &impl Serialize) -> anyhow::Result<Blob> {
        let bytes = serde_json::to_vec(value).context("a manifest is plain data")?;
        Ok(Blob { media_type, bytes })
    }

    /// "sha256:…".
    pub(crate) fn digest(&self) -> String {
        digest::of(&self.bytes)
    }

    pub(crate) fn descriptor(&self) -> Descriptor {
        let (media_type, digest, size) = (self.media_type.into(), self.digest(), self.bytes.len() as u64);
        Descriptor { media_type, digest, size, ..Descriptor::default() }
    }
}

impl Image {
    /// The manifest's descriptor with its platform.
    pub(crate) fn descriptor(&self) -> Descriptor {
        let platform = Platform { architecture: self.arch.clone(), os: OS.into(), variant: None };
        Descriptor { platform: Some(platform), ..self.manifest.descriptor() }
    }
}

/// Makes the image of an order for one architecture.
/// Errors: a component was not built, or its binary is not the audited one.
pub(crate) fn make(images: &Images, order: &ImageOrder<'_>, artifacts: &Artifacts) -> anyhow::Result<Image> {
    let recipe = order.recipe;
    let artifact = |name: &str| -> anyhow::Result<&Artifact> {
        let found = artifacts.by_component.get(name);
        found.ok_or_else(|| anyhow!("{} for {} needs {name}, which was not built", recipe.name, artifacts.arch))
    };
    let mut programs = Entries::new();
    for file in &recipe.files {
        let Artifact { path, sha256, .. } = artifact(&file.component)?;
        let entry = Entry::File { file: path.clone(), mode: PROGRAM, sha256: Some(sha256.clone()) };
        programs.insert(file.path.trim_start_matches('/').to_owned(), entry);
    }
    let version = artifact(recipe.main_component())?.version.clone();
    let config = configuration(images, order, artifacts, &version);
    let paths: Vec<&str> = recipe.files.iter().map(|file| file.path.as_str()).collect();
    let created_by = Some(format!("archproof: {}", paths.join(" ")));
    let history = vec![History { created: Some(CREATED.into()), created_by }];
    whole(&artifacts.arch, version, programs, config, history)
}

/// Makes an image with any content for one architecture. An empty version stands for none.
/// Errors: a file cannot be read, or is not the audited one.
pub(crate) fn whole(
    arch: &str,
    version: String,
    entries: Entries,
    config: RunConfig,
    history: Vec<History>,
) -> anyhow::Result<Image> {
    let layer = Layer::new(entries)?;
    let config = Config {
        created: Some(CREATED.into()),
        architecture: arch.to_owned(),
        os: OS.into(),
        variant: None,
        config,
        rootfs: RootFs { kind: "layers".into(), diff_ids: vec![layer.digest().to_owned()] },
        history,
    };
    let config = Blob::of(spec::CONFIG, &config)?;
    let content = Descriptor {
        media_type: spec::LAYER.into(),
        digest: layer.digest().to_owned(),
        size: layer.size(),
        ..Descriptor::default()
    };
    let manifest = Manifest {
        schema_version: 2,
        media_type: spec::MANIFEST.into(),
        config: config.descriptor(),
        layers: vec![content],
    };
    let manifest = Blob::of(spec::MANIFEST, &manifest)?;
    Ok(Image { arch: arch.to_owned(), version, layer, config, manifest })
}

fn configuration(images: &Images, order: &ImageOrder<'_>, artifacts: &Artifacts, version: &str) -> RunConfig {
    let recipe = order.recipe;
    let labels = [("title", recipe.short_name()), ("version", version)].into_iter();
    // The project's own programs have no version.
    let labels = labels.filter(|(_, value)| *value != UNRELEASED);
    let labels = labels.map(|(name, value)| (format!("org.opencontainers.image.{name}"), value.to_owned()));
    let variables = order.env.get(&artifacts.arch).into_iter().flatten();
    let variables = variables.map(|(name, value)| format!("{name}={value}"));
    RunConfig {
        user: recipe.user.clone(),
        env: Some(images.env.iter().cloned().chain(variables).collect()),
        entrypoint: Some(recipe.entrypoint.clone()).filter(|entrypoint| !entrypoint.is_empty()),
        working_dir: Some("/".into()),
        labels: Some(labels.collect()),
        stop_signal: None,
    }
}
