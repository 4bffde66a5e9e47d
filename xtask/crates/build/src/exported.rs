//! Components for machines without Go: the machine that builds them exports files and records, another one takes them.
//!
//! A folder has `components-ARCH.json` and a file `COMPONENT-ARCH` for each component: names without a slash, so that a
//! release page can serve them. Programs for a variant of a processor have its [label] instead of ARCH. The digests
//! connect the files with the record. The record is compared with the component table and the pins of this machine, so
//! that a run never tests another release than it reports. The maker of the folder is trusted to have built the files from
//! what the record names.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use model::{Component, ComponentSet, Source, Target, is_minor};
use serde::{Deserialize, Serialize};
use sys::progress;
use sys::store;

use crate::Request;
use crate::audit::Origin;
use crate::cache::{Entry, Inputs, Record, differences, table_inputs};
use crate::digest;
use crate::module;

/// Bytes of a manifest. A record has some twenty inputs.
const LIMIT: u64 = 8 << 20;
/// Bytes of a component; the largest one has 110 MB.
const LARGEST: u64 = 1 << 30;
const MODE: u32 = 0o644;
const PROGRAM: u32 = 0o755;

/// The content of `components-ARCH.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// The [label] of the programs.
    arch: String,
    components: Vec<Item>,
    /// The types of the release of kube-apiserver, for a machine without its Go modules.
    #[serde(default)]
    schema: Option<SchemaFile>,
    /// The folder that it was read from.
    #[serde(skip)]
    folder: PathBuf,
}

/// One component.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    /// What the builder was asked for.
    source: Source,
    origin: Origin,
    record: Record,
}

/// The file `schema-ARCH`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SchemaFile {
    /// From which modules it was made, and in which form.
    key: String,
    sha256: String,
    size: u64,
}

/// The name of the schema in file names, where components have theirs.
const SCHEMA: &str = "schema";

/// A file of another machine, with the record of its build.
pub(crate) struct Import {
    pub(crate) file: PathBuf,
    pub(crate) record: Record,
    pub(crate) origin: Origin,
}

/// A file that a manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFile {
    /// In the folder of the manifest.
    pub name: String,
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
}

/// The name of the programs for a target in file names: that of the architecture, or of the variant if it changes them.
pub fn label(target: &Target) -> String {
    match target.selected() {
        Some(variant) if !variant.go_env.is_empty() => target.label(),
        _ => target.name.clone(),
    }
}

/// The name of the manifest for programs with this [label].
pub fn manifest_name(label: &str) -> String {
    format!("components-{label}.json")
}

/// The files that a manifest names.
///
/// # Errors
/// The text is no manifest for `arch`, or a name or size in it is impossible.
pub fn files(text: &str, arch: &str) -> anyhow::Result<Vec<ExportedFile>> {
    let Manifest { components, schema, .. } = parse(text, arch)?;
    let file = |name: &str, sha256, size| ExportedFile { name: file_name(name, arch), sha256, size };
    let schema = schema.map(|SchemaFile { sha256, size, .. }| file(SCHEMA, sha256, size));
    let components =
        components.into_iter().map(|Item { record, .. }| file(&record.component, record.sha256, record.size));
    Ok(components.chain(schema).collect())
}

/// The content of a file, if it has this size and SHA-256.
pub(crate) fn verified(file: &Path, size: u64, sha256: &str) -> anyhow::Result<Vec<u8>> {
    let found = fs::metadata(file).with_context(|| format!("failed to read {}", file.display()))?.len();
    ensure!(found == size, "{} has {found} bytes, expected {size}", file.display());
    let bytes = fs::read(file).with_context(|| format!("failed to read {}", file.display()))?;
    let found = digest::sha256(&bytes);
    ensure!(found == sha256, "{} has SHA-256 {found}, expected {sha256}", file.display());
    Ok(bytes)
}

fn parse(text: &str, arch: &str) -> anyhow::Result<Manifest> {
    let manifest: Manifest = serde_json::from_str(text)?;
    ensure!(manifest.arch == arch, "it is for {}, expected {arch}", manifest.arch);
    let components = manifest.components.iter().map(|Item { record, .. }| {
        let Record { component, sha256, size, .. } = record;
        (component.as_str(), sha256, size)
    });
    let schema = manifest.schema.iter().map(|SchemaFile { sha256, size, .. }| (SCHEMA, sha256, size));
    for (component, sha256, size) in components.chain(schema) {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(!component.is_empty() && component.chars().all(is_name), "{component:?} is no name of a component");
        let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        ensure!(sha256.len() == 64 && sha256.chars().all(is_hex), "{component}: {sha256:?} is no SHA-256");
        ensure!(*size <= LARGEST, "{component}: {size} bytes are more than {LARGEST}");
    }
    Ok(manifest)
}

fn file_name(component: &str, arch: &str) -> String {
    format!("{component}-{arch}")
}

impl Manifest {
    pub(crate) fn read(folder: &Path, arch: &str) -> anyhow::Result<Manifest> {
        let file = folder.join(manifest_name(arch));
        let size = fs::metadata(&file).map(|found| found.len()).with_context(|| {
            let export = format!("`cargo xtask build --arch {arch} --export DIR`");
            format!("{} does not exist; {export} writes it", file.display())
        })?;
        ensure!(size <= LIMIT, "{} has {size} bytes, more than {LIMIT}", file.display());
        let text = fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
        let manifest = parse(&text, arch).with_context(|| format!("{} is damaged", file.display()))?;
        Ok(Manifest { folder: folder.to_owned(), ..manifest })
    }

    /// The exported schema.
    pub(crate) fn schema(&self, key: &str) -> anyhow::Result<Vec<u8>> {
        let Manifest { arch, schema, folder, .. } = self;
        let manifest = folder.join(manifest_name(arch));
        let again =
            || format!("export the components again: `cargo xtask build --arch {arch} --export {}`", folder.display());
        let schema = schema.as_ref().with_context(|| format!("{} names no schema; {}", manifest.display(), again()))?;
        let found = &schema.key;
        ensure!(found == key, "{} has the schema {found}, expected {key}; {}", manifest.display(), again());
        verified(&folder.join(file_name(SCHEMA, arch)), schema.size, &schema.sha256)
    }

    /// The exported component, if it is what this machine would build.
    pub(crate) fn import(
        &self,
        request: &Request<'_>,
        set: &ComponentSet,
        component: &Component,
        source: &Source,
    ) -> anyhow::Result<Import> {
        let Manifest { arch, components, folder, .. } = self;
        let name = &component.name;
        let found = components.iter().find(|item| item.record.component == *name);
        let Item { source: built, origin, record } = found.with_context(|| {
            format!(
                "it is not among the exported components; add it with `cargo xtask build --arch {arch} --component \
                 {name} --export {}`",
                folder.display()
            )
        })?;
        if built != source {
            bail!("it was exported from {built}: give that as --{}, or export it from {source}", set.name);
        }
        // An audit as for a program of unknown origin would prove less.
        let fits = matches!(
            (source, origin),
            (Source::Module(_), Origin::Module { .. }) | (Source::Checkout(_), Origin::Checkout)
        );
        ensure!(fits, "{} is damaged: {name} is from {built}, but its origin is {origin:?}", manifest_name(arch));
        let mut wanted = table_inputs(&request.target.name, set, component);
        wanted.extend(pins(request, set, source)?);
        let shared: Inputs = record.inputs.clone().into_iter().filter(|(name, _)| wanted.contains_key(name)).collect();
        let differences = differences(&shared, &wanted);
        if !differences.is_empty() {
            bail!(
                "it was exported by another version of the project; export it again. Different: {}",
                differences.join(", ")
            );
        }
        // The report names the version of the record; the inputs were compared with this machine's.
        let version = &record.version;
        let built = record.inputs.get("version").unwrap_or(version);
        ensure!(built == version, "{} is damaged: {name} is {built} and {version}", manifest_name(arch));
        let file = folder.join(file_name(name, arch));
        Ok(Import { file, record: record.clone(), origin: origin.clone() })
    }
}

/// The version and the digests of the module that pins this source here. Only the version for a release that no module
/// pins, and nothing for a checkout.
fn pins(request: &Request<'_>, set: &ComponentSet, source: &Source) -> anyhow::Result<Inputs> {
    match source {
        Source::Module(Some(version)) if !is_minor(version) => {
            Ok(Inputs::from([("version".to_owned(), version.clone())]))
        }
        Source::Module(version) => {
            module::pins(set, &request.targets_dir.join(module::folder(set, version.as_deref())?))
        }
        Source::Checkout(_) | Source::Prebuilt(_) => Ok(Inputs::new()),
    }
}

/// An export in progress. It replaces that of the same architecture, but keeps components that it does not name.
pub(crate) struct Export {
    folder: PathBuf,
    manifest: Manifest,
}

impl Export {
    pub(crate) fn into(folder: &Path, arch: &str) -> anyhow::Result<Export> {
        fs::create_dir_all(folder).with_context(|| format!("failed to create the folder {}", folder.display()))?;
        let manifest = if folder.join(manifest_name(arch)).exists() {
            Manifest::read(folder, arch)?
        } else {
            Manifest { arch: arch.to_owned(), components: Vec::new(), schema: None, folder: folder.to_owned() }
        };
        Ok(Export { folder: folder.to_owned(), manifest })
    }

    pub(crate) fn add(&mut self, source: &Source, origin: &Origin, entry: Entry) -> anyhow::Result<()> {
        let Entry { record, bytes, .. } = entry;
        store::write(&self.folder.join(file_name(&record.component, &self.manifest.arch)), &bytes, PROGRAM)?;
        self.manifest.components.retain(|item| item.record.component != record.component);
        self.manifest.components.push(Item { source: source.clone(), origin: origin.clone(), record });
        Ok(())
    }

    /// Adds the types of the release.
    pub(crate) fn add_schema(&mut self, key: &str, schema: &[u8]) -> anyhow::Result<()> {
        store::write(&self.folder.join(file_name(SCHEMA, &self.manifest.arch)), schema, MODE)?;
        let (sha256, size) = (digest::sha256(schema), schema.len() as u64);
        self.manifest.schema = Some(SchemaFile { key: key.to_owned(), sha256, size });
        Ok(())
    }

    /// Writes the manifest and returns its path.
    pub(crate) fn finish(mut self) -> anyhow::Result<PathBuf> {
        self.manifest.components.sort_by(|a, b| a.record.component.cmp(&b.record.component));
        let file = self.folder.join(manifest_name(&self.manifest.arch));
        let text = serde_json::to_string_pretty(&self.manifest).context("a manifest is plain data")? + "\n";
        store::write(&file, text.as_bytes(), MODE)?;
        let (count, digest) = (self.manifest.components.len(), digest::sha256(text.as_bytes()));
        let what = if count == 1 { "component" } else { "components" };
        progress::say(&format!("export: {count} {what} in {}, SHA-256 {digest}", file.display()));
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_is_taken_by_its_key_and_verified() {
        let folder = std::env::temp_dir().join(format!("archproof-exported-schema-{}", std::process::id()));
        let mut export = Export::into(&folder, "board").unwrap();
        export.add_schema("1-abc", b"{}").unwrap();
        export.finish().unwrap();
        let taken =
            |key: &str| Manifest::read(&folder, "board").unwrap().schema(key).map_err(|error| error.to_string());
        let listed = files(&fs::read_to_string(folder.join(manifest_name("board"))).unwrap(), "board").unwrap();
        assert_eq!(
            listed.iter().map(|file| (file.name.as_str(), file.size)).collect::<Vec<_>>(),
            [("schema-board", 2)]
        );
        assert_eq!(taken("1-abc").unwrap(), b"{}");
        assert!(taken("1-abd").unwrap_err().contains("has the schema 1-abc, expected 1-abd"));
        fs::write(folder.join("schema-board"), "[]").unwrap();
        assert!(taken("1-abc").unwrap_err().contains("has SHA-256"));
        fs::remove_dir_all(folder).unwrap();
    }
}
