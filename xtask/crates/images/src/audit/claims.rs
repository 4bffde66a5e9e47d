//! Lists the images that an archive claims to contain, with all errors that can be found before a layer is opened.

use sys::interrupt::Interrupted;

use crate::digest;
use crate::spec::{self, Config, Descriptor, Index, Manifest, Platform, Saved};

use super::archive::{Archive, Fault};
use super::budget::{Budget, Stop};
use super::{Finding, Kind};

const OCI_INDEX: &str = "index.json";
const DOCKER_MANIFEST: &str = "manifest.json";
/// Maximum depth of nested indexes: tools make at most two.
const DEEPEST: usize = 4;

/// An image as its manifest describes it.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    pub(crate) reference: String,
    /// Digest of its manifest, or in a docker archive of its configuration.
    pub(crate) digest: String,
    /// GOARCH; empty if nothing names it.
    pub(crate) architecture: String,
    pub(crate) variant: Option<String>,
    pub(crate) os: String,
    pub(crate) layers: Vec<Claimed>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) notes: Vec<String>,
}

/// A layer as the manifest describes it.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// Its name in the archive.
    pub(crate) name: String,
    /// Digest of the bytes in the archive.
    pub(crate) digest: Option<String>,
    pub(crate) size: Option<u64>,
    /// Digest of the uncompressed bytes.
    pub(crate) diff_id: Option<String>,
}

/// The content of an archive.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub(crate) images: Vec<Claim>,
    /// Entries that are not images.
    pub(crate) notes: Vec<String>,
}

/// The images of an archive; None if it is neither an OCI layout nor a docker archive.
///
/// # Errors
/// An interrupt. If the budget does not suffice, a finding says so and the remaining images are missing.
pub(crate) fn claims(archive: &Archive, budget: &Budget) -> Result<Option<Claims>, Interrupted> {
    let mut claims = Claims::default();
    let (list, walked) = if archive.has(OCI_INDEX) {
        (OCI_INDEX, claims.layout(archive, budget))
    } else if archive.has(DOCKER_MANIFEST) {
        (DOCKER_MANIFEST, claims.saved(archive, budget))
    } else {
        return Ok(None);
    };
    match walked {
        Ok(()) => {}
        Err(Fault::Stopped(Stop::Interrupted(interrupted))) => return Err(interrupted),
        Err(fault) => claims.broken(list, list, &fault),
    }
    Ok(Some(claims))
}

impl Claims {
    fn layout(&mut self, archive: &Archive, budget: &Budget) -> Result<(), Fault> {
        let index: Index = archive.json(OCI_INDEX, budget)?;
        for found in &index.manifests {
            self.follow(archive, budget, found, "", DEEPEST)?;
        }
        Ok(())
    }

    fn saved(&mut self, archive: &Archive, budget: &Budget) -> Result<(), Fault> {
        let saved: Vec<Saved> = archive.json(DOCKER_MANIFEST, budget)?;
        for saved in &saved {
            self.images.push(docker(archive, budget, saved)?);
        }
        Ok(())
    }

    fn follow(
        &mut self,
        archive: &Archive,
        budget: &Budget,
        found: &Descriptor,
        named: &str,
        deepest: usize,
    ) -> Result<(), Stop> {
        budget.open()?;
        let names = [spec::CONTAINERD_NAME, spec::REF_NAME].map(|name| found.annotations.get(name));
        let reference = names.into_iter().flatten().next().map_or(named, String::as_str);
        if found.annotations.contains_key(spec::ATTACHED) {
            self.notes.push(format!("{} is attached to an image and is not an image", found.digest));
            return Ok(());
        }
        let bytes = match blob(archive, budget, found) {
            Ok(bytes) => bytes,
            Err(Fault::Stopped(stop)) => return Err(stop),
            // `docker save` and `ctr images export` of one architecture keep the index unchanged.
            Err(Fault::Missing) if deepest < DEEPEST => {
                let platform = found.platform.as_ref().map_or("unknown", |platform| &platform.architecture);
                self.notes.push(format!("the manifest for {platform}, {}, is not in the archive", found.digest));
                return Ok(());
            }
            Err(fault) => {
                self.broken(reference, &found.digest, &fault);
                return Ok(());
            }
        };
        // The media type may be missing; an index is recognised by its list.
        match (serde_json::from_slice::<Index>(&bytes), serde_json::from_slice::<Manifest>(&bytes)) {
            (Ok(_), Ok(_)) => self.broken(reference, &found.digest, &Fault::Ambiguous),
            (Ok(_), _) if deepest == 0 => self.broken(reference, &found.digest, &Fault::TooDeep),
            (Ok(index), _) => {
                for found in &index.manifests {
                    self.follow(archive, budget, found, reference, deepest - 1)?;
                }
            }
            (_, Ok(manifest)) => self.image(archive, budget, reference, found, &manifest)?,
            (_, Err(error)) => self.broken(reference, &found.digest, &error.into()),
        }
        Ok(())
    }

    fn image(
        &mut self,
        archive: &Archive,
        budget: &Budget,
        reference: &str,
        found: &Descriptor,
        manifest: &Manifest,
    ) -> Result<(), Stop> {
        let media_type = &manifest.config.media_type;
        if ![spec::CONFIG, spec::DOCKER_CONFIG, ""].contains(&media_type.as_str()) {
            self.notes.push(format!("{} is not an image but {media_type}", found.digest));
            return Ok(());
        }
        // Signatures and statements have an image's configuration and their own kind of "layers".
        let other = |layer: &Descriptor| !layer.media_type.is_empty() && !layer.media_type.contains("tar");
        if let Some(layer) = manifest.layers.first().filter(|_| manifest.layers.iter().all(other)) {
            self.notes.push(format!("{} is not an image but {}", found.digest, layer.media_type));
            return Ok(());
        }
        let mut claim = Claim { reference: reference.into(), digest: found.digest.clone(), ..Claim::default() };
        let config = blob(archive, budget, &manifest.config).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        let diff_ids = match config {
            Ok(config) => claim.configured(config, found.platform.as_ref()),
            Err(Fault::Stopped(stop)) => return Err(stop),
            Err(fault) => {
                claim.damaged(&format!("the configuration {}", manifest.config.digest), &fault);
                claim.platform(found.platform.as_ref());
                Vec::new()
            }
        };
        for (number, layer) in manifest.layers.iter().enumerate() {
            budget.open()?;
            match blob_name(&layer.digest) {
                Some(name) => claim.layers.push(Claimed {
                    name,
                    digest: Some(layer.digest.clone()),
                    size: Some(layer.size),
                    diff_id: diff_ids.get(number).cloned(),
                }),
                None => {
                    claim.finding(format!("layer {number} has the digest `{}`, which is not a SHA-256", layer.digest))
                }
            }
        }
        claim.count(diff_ids.len(), manifest.layers.len());
        self.images.push(claim);
        Ok(())
    }

    /// An image about which nothing else is known.
    fn broken(&mut self, reference: &str, what: &str, fault: &Fault) {
        let mut claim = Claim { reference: reference.into(), digest: what.into(), ..Claim::default() };
        claim.damaged(what, fault);
        self.images.push(claim);
    }
}

impl Claim {
    /// Copies the configuration's values, compares them with the index, and returns the diff IDs.
    fn configured(&mut self, config: Config, listed: Option<&Platform>) -> Vec<String> {
        self.architecture = config.architecture;
        self.variant = config.variant;
        self.os = config.os;
        if let Some(listed) = listed.filter(|listed| listed.architecture != self.architecture) {
            let (found, expected) = (self.architecture.clone(), listed.architecture.clone());
            let message = format!("the index says {expected} but the image's configuration {found}");
            let (found, expected) = (Some(found), Some(expected));
            self.findings.push(Finding { found, expected, ..Finding::of(Kind::Platform, message) });
        }
        config.rootfs.diff_ids
    }

    fn platform(&mut self, listed: Option<&Platform>) {
        if let Some(Platform { architecture, os, variant }) = listed {
            (self.architecture, self.os, self.variant) = (architecture.clone(), os.clone(), variant.clone());
        }
    }

    fn count(&mut self, diff_ids: usize, layers: usize) {
        if diff_ids != layers && self.findings.is_empty() {
            self.finding(format!("the configuration lists {diff_ids} layers, the manifest {layers}"));
        }
    }

    fn damaged(&mut self, what: &str, fault: &Fault) {
        match fault {
            Fault::Stopped(_) => self.findings.push(Finding::of(Kind::Size, format!("{what}: {fault}"))),
            _ => self.finding(format!("{what}: {fault}")),
        }
    }

    fn finding(&mut self, message: String) {
        self.findings.push(Finding::of(Kind::Damaged, message));
    }
}

fn docker(archive: &Archive, budget: &Budget, saved: &Saved) -> Result<Claim, Stop> {
    let tags = saved.repo_tags.clone().unwrap_or_default();
    let mut claim = Claim { reference: tags.join(", "), digest: saved.config.clone(), ..Claim::default() };
    let layers = saved.layers.clone().unwrap_or_default();
    layers.iter().try_for_each(|_| budget.open())?;
    let diff_ids = match archive.json::<Config>(&saved.config, budget) {
        Ok(config) => claim.configured(config, None),
        Err(Fault::Stopped(stop)) => return Err(stop),
        Err(fault) => {
            claim.damaged(&format!("the configuration {}", saved.config), &fault);
            Vec::new()
        }
    };
    claim.count(diff_ids.len(), layers.len());
    let diff_ids = diff_ids.into_iter().map(Some).chain(std::iter::repeat(None));
    let layers = layers.into_iter().zip(diff_ids);
    claim.layers = layers.map(|(name, diff_id)| Claimed { name, digest: None, size: None, diff_id }).collect();
    Ok(claim)
}

/// The bytes of a JSON blob, if they match the descriptor.
fn blob(archive: &Archive, budget: &Budget, descriptor: &Descriptor) -> Result<Vec<u8>, Fault> {
    let name = blob_name(&descriptor.digest).ok_or(Fault::Missing)?;
    let bytes = archive.bytes(&name, budget)?;
    let found = digest::of(&bytes);
    if found == descriptor.digest {
        Ok(bytes)
    } else {
        Err(Fault::Digest { found, expected: descriptor.digest.clone() })
    }
}

fn blob_name(digest: &str) -> Option<String> {
    digest::digits(digest).map(|digits| format!("blobs/sha256/{digits}"))
}
