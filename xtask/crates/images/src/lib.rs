//! OCI images of the project's components, and an audit of any image: it finds ELF files that a machine of the claimed
//! architecture cannot run.
//!
//! [`build`] writes an OCI layout and docker archives, byte for byte the same for the same binaries; [`audit`] reads
//! layouts and archives of any origin and trusts nothing in them. The list of images is data (`targets/images.yaml`).
//! Nothing here talks to a registry, unpacks an image or runs a container. `node` makes the root file system of a node.

mod args;
mod audit;
mod commands;
mod digest;
mod docker;
#[doc(hidden)]
pub mod fuzzing;
mod image;
pub mod kind;
mod layer;
mod layout;
pub mod node;
mod recipes;
mod spec;
#[cfg(test)]
mod testing;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use model::{ImageOrder, Images};
use serde::Serialize;
use spec::RunConfig;
use sys::interrupt;

pub use args::ImagesOptions;
pub use audit::{Audit, AuditedImage, Finding, Kind, LayerName, NoImage, Rules, audit};
pub use commands::{Load, run};
pub use layer::{Entries, Entry, Layer};
pub use layout::FOLDER as LAYOUT;
pub use recipes::{image_order, recipes};

/// The format of the written images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One OCI layout for all images: DIR/oci
    Oci,
    /// A file for each image and architecture, for `docker load` and `ctr images import`: DIR/docker/ARCH/NAME.tar
    Docker,
}

/// What to write, and where.
pub struct Request<'a> {
    pub images: &'a Images,
    pub orders: &'a [ImageOrder<'a>],
    pub formats: &'a [Format],
    /// The output folder. It is created if it does not exist; its other content stays.
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
    /// Digest of the manifest: "sha256:…".
    pub digest: String,
    /// Digest of the configuration, which Docker calls the image's ID.
    pub id: String,
    /// Size in bytes of its only layer, which is not compressed.
    pub size: u64,
    /// The OCI layout that contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<PathBuf>,
    /// Its docker archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<PathBuf>,
}

impl Built {
    fn of(reference: &str, image: image::Image, layout: Option<PathBuf>, archive: Option<PathBuf>) -> Built {
        Built {
            reference: reference.to_owned(),
            digest: image.manifest.digest(),
            id: image.config.digest(),
            size: image.layer.size(),
            arch: image.arch,
            version: image.version,
            layout,
            archive,
        }
    }
}

/// Writes an image of a whole root file system to `archive`, in the format of `docker load`. It replaces an existing
/// archive only when the new one is complete. Errors: as for [`build`].
pub(crate) fn build_root(
    reference: &str,
    arch: &str,
    entries: Entries,
    config: RunConfig,
    archive: &Path,
) -> anyhow::Result<Built> {
    let image = image::whole(arch, String::new(), entries, config, Vec::new())?;
    docker::write_to(archive, reference, &image)?;
    Ok(Built::of(reference, image, None, Some(archive.to_owned())))
}

/// Writes images; they replace images of an earlier call with the same references.
///
/// # Errors
/// A binary is missing or is not the audited one, a file cannot be written, an interrupt
/// (`sys::interrupt::Interrupted` in the chain).
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
            built.push(Built::of(&order.reference, image, layout.clone(), archive));
        }
    }
    Ok(built)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use model::Artifacts;
    use serde_json::json;
    use sys::Scratch;

    use super::*;
    use crate::testing::{MACHINES, artifact, elf, rules};

    fn images() -> Images {
        let files = [("dns", "/dns"), ("dnsctl", "/usr/bin/dnsctl")];
        let files = files.map(|(component, path)| json!({"component": component, "path": path}));
        let recipe = json!({"name": "dns/dns", "tags": {"1.36": "v1.14.2"}, "files": files,
            "entrypoint": ["/dns"], "user": "1:1"});
        let images = json!({"registry": "registry.example.org", "env": ["PATH=/usr/bin"], "images": [recipe]});
        serde_json::from_value(images).unwrap()
    }

    /// Binaries in the folder `dir`.
    fn artifacts(dir: &Scratch) -> Vec<Artifacts> {
        let artifact = |name: &str, (arch, machine): (&str, u16)| {
            let bytes = [elf(machine), name.as_bytes().to_vec()].concat();
            let file = dir.write(&format!("bin/{arch}/{name}"), &bytes);
            artifact(name, &file, digest::digits(&digest::of(&bytes)).unwrap())
        };
        let of = |machine: (&str, u16)| Artifacts {
            arch: machine.0.into(),
            by_component: ["dns", "dnsctl"].map(|name| (name.to_owned(), artifact(name, machine))).into(),
            native: None,
        };
        MACHINES.map(of).into()
    }

    /// Writes the image for these architectures into `output`.
    fn written(dir: &Scratch, reference: &str, artifacts: &[Artifacts]) -> Vec<Built> {
        let images = images();
        let order = ImageOrder {
            recipe: &images.images[0],
            reference: reference.into(),
            artifacts: artifacts.iter().collect(),
            env: BTreeMap::from([("riscv64".to_owned(), BTreeMap::from([("UNUSUAL".to_owned(), "yes".to_owned())]))]),
        };
        let (formats, output) = ([Format::Oci, Format::Docker], dir.path().join("output"));
        build(&Request { images: &images, orders: &[order], formats: &formats, output: &output }).unwrap()
    }

    /// Every file below a folder, by its path there.
    fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut pending = vec![dir.to_owned()];
        while let Some(folder) = pending.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    pending.push(path);
                } else {
                    found.insert(path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap());
                }
            }
        }
        found
    }

    #[test]
    fn same_binaries_give_the_same_image_wherever_and_however_often_it_is_written() {
        let [one, other] = [1, 2].map(|_| Scratch::temporary("images").unwrap());
        let first = written(&one, "registry.example.org/dns/dns:v1.14.2", &artifacts(&one));
        let before = files(&one.path().join("output"));
        let mut reversed = artifacts(&other);
        reversed.reverse();
        written(&other, "registry.example.org/dns/dns:v1.14.2", &reversed);
        assert_eq!(files(&other.path().join("output")), before);
        let again = written(&one, "registry.example.org/dns/dns:v1.14.2", &artifacts(&one));
        assert_eq!((files(&one.path().join("output")), again), (before, first));
    }

    #[test]
    fn image_replaces_the_one_of_its_name_and_keeps_others() {
        let dir = Scratch::temporary("images").unwrap();
        let all = artifacts(&dir);
        for (reference, artifacts, expected) in [
            ("a:1", &all[..], "a:1 amd64, a:1 riscv64"),
            ("b:1", &all[1..], "a:1 amd64, a:1 riscv64, b:1 amd64"),
            ("a:1", &all[..1], "a:1 riscv64, b:1 amd64"),
        ] {
            written(&dir, reference, artifacts);
            let audit = audit(&dir.path().join("output/oci"), &rules(&dir)).unwrap();
            let mut found: Vec<String> =
                audit.images.iter().map(|image| format!("{} {}", image.reference, image.architecture)).collect();
            found.sort();
            assert_eq!((found.join(", ").as_str(), audit.findings()), (expected, 0));
        }
    }

    #[test]
    fn damaged_blob_is_written_again() {
        let dir = Scratch::temporary("images").unwrap();
        written(&dir, "a:1", &artifacts(&dir));
        let before = files(&dir.path().join("output"));
        for blob in fs::read_dir(dir.path().join("output/oci/blobs/sha256")).unwrap() {
            fs::write(blob.unwrap().path(), "").unwrap();
        }
        written(&dir, "a:1", &artifacts(&dir));
        assert_eq!(files(&dir.path().join("output")), before);
    }

    #[test]
    fn written_images_match_their_order() {
        let dir = Scratch::temporary("images").unwrap();
        for built in written(&dir, "registry.example.org/dns/dns:v1.14.2", &artifacts(&dir)) {
            let archive = built.archive.unwrap();
            assert!(archive.ends_with(format!("docker/{}/dns.tar", built.arch)), "{}", archive.display());
            let text = String::from_utf8_lossy(&fs::read(&archive).unwrap()).into_owned();
            assert!(text.contains("\"PATH=/usr/bin\""), "the variables of all images are missing");
            assert_eq!(text.contains("\"UNUSUAL=yes\""), built.arch == "riscv64", "the variables of an architecture");
            let audit = audit(&archive, &rules(&dir)).unwrap();
            let AuditedImage { reference, architecture, elf_files, findings, .. } = &audit.images[0];
            assert_eq!((reference.as_str(), architecture), ("registry.example.org/dns/dns:v1.14.2", &built.arch));
            assert_eq!((*elf_files, findings.len()), (2, 0));
            let id = digest::digits(&built.id).unwrap();
            let mut tar = tar::Archive::new(fs::File::open(&archive).unwrap());
            let names: Vec<String> =
                tar.entries().unwrap().map(|e| e.unwrap().path().unwrap().display().to_string()).collect();
            assert!(names.contains(&format!("{id}.json")) && names.contains(&"manifest.json".into()), "{names:?}");
        }
    }

    #[test]
    fn missing_binary_is_an_error() {
        let dir = Scratch::temporary("images").unwrap();
        let mut artifacts = artifacts(&dir).remove(0);
        artifacts.by_component.remove("dnsctl");
        let images = images();
        let order = ImageOrder {
            recipe: &images.images[0],
            reference: "a:1".into(),
            artifacts: vec![&artifacts],
            env: BTreeMap::new(),
        };
        let request = Request { images: &images, orders: &[order], formats: &[Format::Oci], output: dir.path() };
        let error = build(&request).unwrap_err().to_string();
        assert_eq!(error, "dns/dns for riscv64 needs dnsctl, which was not built");
    }
}
