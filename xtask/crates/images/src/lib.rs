//! OCI images of our components, and the audit of anybody's: which ELF files a machine of the claimed architecture could
//! not run.
//!
//! [`build`] writes an OCI layout and docker archives, byte for byte the same for the same binaries; [`audit`] reads
//! layouts and archives of any origin and trusts nothing in them. Which images there are is data (`targets/images.yaml`).
//! Nothing here talks to a registry, unpacks an image or runs a container.

mod audit;
mod digest;
mod docker;
mod image;
mod layer;
mod layout;
mod spec;
#[cfg(test)]
mod testing;

use std::path::{Path, PathBuf};

use model::{ImageOrder, Images};
use proc::interrupt;
use serde::Serialize;

pub use audit::{Audit, AuditedImage, Finding, Kind, LayerName, NoImage, Rules, audit};
pub use layout::FOLDER as LAYOUT;

/// How an image is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One OCI layout, a folder, for all images; each is an index of one manifest for each architecture.
    Oci,
    /// What `docker load` reads: a file for each image and architecture.
    Docker,
}

/// What to write, and where.
pub struct Request<'a> {
    pub images: &'a Images,
    pub orders: &'a [ImageOrder<'a>],
    pub formats: &'a [Format],
    /// Made if it is not there. What else lies in it stays.
    pub output: &'a Path,
}

/// An image for one architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Built {
    /// "REGISTRY/NAME:TAG".
    pub reference: String,
    /// GOARCH.
    pub arch: String,
    /// The version of its main component.
    pub version: String,
    /// Of the manifest: "sha256:…".
    pub digest: String,
    /// Of the configuration, which Docker calls the image's ID.
    pub id: String,
    /// Bytes of its only layer, which is not compressed.
    pub size: u64,
    /// The OCI layout that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<PathBuf>,
    /// The docker archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<PathBuf>,
}

/// Writes images; those of an earlier call with the same references are replaced.
///
/// # Errors
/// A binary is missing or is not the one that was audited, a file cannot be written, an interrupt
/// (`proc::interrupt::Interrupted` in the chain).
pub fn build(request: &Request<'_>) -> anyhow::Result<Vec<Built>> {
    let mut built = Vec::new();
    let mut made = Vec::new();
    for order in request.orders {
        let mut of_order = Vec::new();
        for artifacts in &order.artifacts {
            interrupt::check()?;
            of_order.push(image::make(request.images, order, artifacts)?);
        }
        made.push((order, of_order));
    }
    let layout = request.formats.contains(&Format::Oci).then(|| request.output.join(LAYOUT));
    if let Some(dir) = &layout {
        layout::write(dir, &made)?;
    }
    for (order, images) in made {
        for image in images {
            interrupt::check()?;
            let wanted = request.formats.contains(&Format::Docker);
            let archive = wanted.then(|| docker::write(request.output, order, &image)).transpose()?;
            built.push(Built {
                reference: order.reference.clone(),
                digest: image.manifest.digest(),
                id: image.config.digest(),
                size: image.layer.size(),
                arch: image.arch,
                version: image.version,
                layout: layout.clone(),
                archive,
            });
        }
    }
    Ok(built)
}
