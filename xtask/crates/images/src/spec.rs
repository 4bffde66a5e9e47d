//! The JSON of OCI images and of docker archives, as far as the harness writes or audits it.
//!
//! https://github.com/opencontainers/image-spec/tree/v1.1.1. The crate `oci-spec` stores annotations and labels in hash
//! maps, so that digests would differ from run to run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Docker's name of the same from before OCI.
pub(crate) const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";

/// The annotation of a descriptor in `index.json` that names the image. The specification requires a tag, but
/// containerd and skopeo expect the whole reference.
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation that containerd reads first:
/// https://github.com/containerd/containerd/blob/main/core/images/annotations.go
pub(crate) const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// Marks an attachment that buildkit adds to an image; its "layers" are statements in JSON.
pub(crate) const ATTACHED: &str = "vnd.docker.reference.type";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Platform {
    pub(crate) architecture: String,
    pub(crate) os: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) variant: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub(crate) schema_version: u8,
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) manifests: Vec<Descriptor>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) schema_version: u8,
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// The configuration of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<String>,
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) variant: Option<String>,
    #[serde(default)]
    pub(crate) config: RunConfig,
    pub(crate) rootfs: RootFs,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<History>,
}

/// How the image is run. In an image that is only audited, any field may be null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct RunConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) env: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) entrypoint: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) working_dir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) labels: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stop_signal: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RootFs {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Digests of the uncompressed layers.
    pub(crate) diff_ids: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct History {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created_by: Option<String>,
}

/// An entry of a docker archive's `manifest.json`; the paths are names in the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Saved {
    pub(crate) config: String,
    pub(crate) repo_tags: Option<Vec<String>>,
    pub(crate) layers: Option<Vec<String>>,
}
