//! Checks whether every ELF file in an image is for the architecture that the image claims, for archives of any origin.
//!
//! The content of an archive is untrusted: digests are compared, sizes are limited, nothing is unpacked or run. An
//! error in an image is a [`Finding`]; a Rust error only means that the audit was not possible.

mod archive;
mod budget;
mod claims;
mod contents;
pub(crate) mod fuzzed;
mod limits;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::{ByteOrder, ElfFacts, NoProcessor, Toolchains};
use serde::Serialize;
use sys::progress::Phase;

use archive::Archive;
use budget::Budget;
use claims::{Claim, Claims};
use tree::{Node, Tree};

/// What an audit compares an image with.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The ELF header of each architecture's programs, by GOARCH.
    pub elf: BTreeMap<String, ElfFacts>,
    /// Machines that are not processors, such as the kernel's virtual one: programs for them are not judged.
    pub no_processors: Vec<NoProcessor>,
    /// Defects of the Go releases that may have built a program.
    pub toolchains: Toolchains,
    /// Paths of ELF files that are accepted for any machine: whole paths, or beginnings that end with `*`.
    pub allowed: Vec<String>,
    /// Maximum number of bytes to which the layers of an archive may unpack. It limits the number of entries as well.
    pub max_size: u64,
    /// The folder in which a compressed archive is unpacked while it is read.
    pub cache: PathBuf,
}

/// The result of the audit of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Audit {
    pub images: Vec<AuditedImage>,
    /// Content of the archive that is not an image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One image for one architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditedImage {
    /// Empty if it has no name.
    pub reference: String,
    /// Digest of its manifest; in a docker archive the name of its configuration.
    pub digest: String,
    /// GOARCH, as claimed by the image.
    pub architecture: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    pub os: String,
    pub layers: usize,
    /// Number of judged ELF files: those that a container sees.
    pub elf_files: u64,
    pub findings: Vec<Finding>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// An error of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: Kind,
    /// One sentence for people.
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<LayerName>,
    /// The path in the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

/// A layer of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerName {
    /// From 0, the lowest.
    pub number: usize,
    /// Its name in the archive.
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An ELF file for another machine.
    Architecture,
    /// The image's architecture itself: contradictory, or not a GOARCH.
    Platform,
    /// Something is missing, cut off, or differs from its digest.
    Damaged,
    /// A path that leads out of the image.
    Path,
    /// More content than the limit of the audit.
    Size,
}

/// The file contains no image.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} contains no image: {}; expected an OCI layout (folder or tar) or a docker archive", .0.display(), .1)]
pub struct NoImage(pub PathBuf, pub String);

impl Finding {
    pub(crate) fn of(kind: Kind, message: String) -> Finding {
        Finding { kind, message, layer: None, path: None, found: None, expected: None }
    }
}

impl Audit {
    pub fn findings(&self) -> usize {
        self.images.iter().map(|image| image.findings.len()).sum()
    }

    pub fn elf_files(&self) -> u64 {
        self.images.iter().map(|image| image.elf_files).sum()
    }
}

/// Audits every image of an archive.
///
/// # Errors
/// [`NoImage`], or the file cannot be read; an interrupt (`sys::interrupt::Interrupted` in the chain).
pub fn audit(file: &Path, rules: &Rules) -> anyhow::Result<Audit> {
    let budget = Budget::of(rules.max_size);
    let archive = Archive::open(file, rules, &budget)?;
    let Some(Claims { images, notes }) = claims::claims(&archive, &budget)? else {
        let why = "it has neither an index.json nor a manifest.json".into();
        return Err(NoImage(file.to_owned(), why).into());
    };
    let phase = Phase::start(format!("audit {}", file.display()));
    let count = images.len();
    let mut audited = Vec::new();
    for (number, claim) in images.into_iter().enumerate() {
        phase.status(format!("image {} of {count}, {} {}", number + 1, claim.reference, claim.architecture));
        audited.push(image(&archive, claim, &budget, rules)?);
    }
    Ok(Audit { images: audited, notes })
}

fn image(archive: &Archive, claim: Claim, budget: &Budget, rules: &Rules) -> anyhow::Result<AuditedImage> {
    let mut tree = Tree::default();
    let names: Vec<LayerName> = claim.layers.iter().enumerate().map(|(n, l)| layer_name(n, &l.name)).collect();
    let Claim { reference, digest, architecture, variant, os, layers, mut findings, mut notes } = claim;
    let mut go = BTreeMap::new();
    for (number, layer) in layers.iter().enumerate() {
        let contents = contents::read(archive, number, layer, budget, &mut tree)?;
        go.extend(contents.go_releases.into_iter().map(|(path, release)| ((number, path), release)));
        let of_layer = contents.findings.into_iter();
        findings.extend(of_layer.map(|finding| Finding { layer: Some(names[number].clone()), ..finding }));
    }
    let mut elf_files = 0;
    let known = rules.elf.get(&architecture);
    if known.is_none() {
        findings.push(unknown(&architecture, rules));
    }
    for (path, node) in tree.files() {
        let Some(expected) = known else { break };
        let machine = node.facts.machine;
        if let Some(other) = rules.no_processors.iter().find(|other| other.machine == machine) {
            notes.push(format!("{path} is for {}, which is not a processor", other.name));
            continue;
        }
        elf_files += 1;
        let release = go.get(&(node.layer, path.clone()));
        if let Some(warning) = release.and_then(|release| rules.toolchains.warning(release, &architecture)) {
            notes.push(format!("{path}: {warning}"));
        }
        if node.facts != *expected && !rules.allows(&path) {
            findings.push(foreign(&path, node, expected, &names[node.layer]));
        }
    }
    let layers = layers.len();
    Ok(AuditedImage { reference, digest, architecture, variant, os, layers, elf_files, findings, notes })
}

impl Rules {
    fn allows(&self, path: &str) -> bool {
        self.allowed.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(beginning) => path.starts_with(beginning),
            None => path == allowed,
        })
    }
}

fn layer_name(number: usize, name: &str) -> LayerName {
    LayerName { number, name: name.to_owned() }
}

fn unknown(architecture: &str, rules: &Rules) -> Finding {
    let known: Vec<&str> = rules.elf.keys().map(String::as_str).collect();
    let message = match architecture {
        "" => "the image names no architecture".to_owned(),
        name => format!("`{name}` is not one of the known architectures: {}", known.join(", ")),
    };
    Finding { found: Some(architecture.to_owned()), ..Finding::of(Kind::Platform, message) }
}

fn foreign(path: &str, node: &Node, expected: &ElfFacts, layer: &LayerName) -> Finding {
    let (found, expected) = (shown(&node.facts), shown(expected));
    let message = format!("{path}, of layer {}, is for {found}, expected {expected}", layer.number);
    Finding {
        layer: Some(layer.clone()),
        path: Some(path.to_owned()),
        found: Some(found),
        expected: Some(expected),
        ..Finding::of(Kind::Architecture, message)
    }
}

/// "machine 243 (EM_...), 64 bit, little endian".
fn shown(facts: &ElfFacts) -> String {
    let order = match facts.byte_order {
        ByteOrder::Little => "little",
        ByteOrder::Big => "big",
    };
    format!("machine {}, {} bit, {order} endian", build::machine_name(facts.machine), facts.class)
}
