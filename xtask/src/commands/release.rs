//! What is known of a release of Kubernetes: its storage table, its golden values, and its types, which decode stored values.
//! The types come from the cache, or from the Go modules of the release.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use build::{ProtoPackage, SourceFile, api_modules, proto_packages};
use cli::Paths;
use judge::schema::{Package, Schema, Source};
use model::{GoldenValue, StorageTable, Target};
use suite::ReleaseData;
use sys::progress;
use targets::Catalogue;

/// Part of the name in the cache: raise it with every change of what is read from the files.
const FORM: u32 = 1;

/// Of a file in the cache.
const MODE: u32 = 0o644;

/// The set with kube-apiserver.
const SET: &str = "kubernetes";

/// What is known of the apiserver among these versions. If its release has no storage table, the rows are those of the nearest
/// one: a checkout, a published image and an external cluster may have any release.
///
/// `exported` are components that another machine has built.
pub(super) fn data(
    paths: &Paths,
    catalogue: &Catalogue,
    exported: Option<(&Path, &Target)>,
    versions: &BTreeMap<String, String>,
) -> ReleaseData {
    let runs = versions.get("kube-apiserver").map_or("unknown", String::as_str);
    let schema = match exported {
        // A machine with the modules does not need the exported one.
        Some(exported) => {
            exported_schema(paths, exported, runs).or_else(|why| schema(paths, Some(runs)).map_err(|_| why))
        }
        None => schema(paths, Some(runs)),
    };
    if let Err(why) = &schema {
        progress::say(&format!("stored protobuf values are not compared with what clients see: {why:#}"));
    }
    let (table, golden) = tables(catalogue, runs);
    ReleaseData { table, golden, schema: schema.ok().map(Arc::new) }
}

fn tables(catalogue: &Catalogue, runs: &str) -> (StorageTable, Vec<GoldenValue>) {
    let (minor, rows) = catalogue.nearest_resources(runs);
    let lacks = catalogue.resources(runs).is_err().then(|| {
        format!("the storage table of Kubernetes {runs}; the nearest in targets/resources/ is that of {minor}")
    });
    (StorageTable { rows: rows.to_vec(), lacks }, catalogue.golden(runs).to_vec())
}

/// The schema of the pinned release of this version's minor; without a version, of the default release.
///
/// # Errors
/// The release has no module here, its modules cannot be downloaded, or they are not what is expected.
pub(super) fn schema(paths: &Paths, version: Option<&str>) -> anyhow::Result<Schema> {
    let folder = folder(paths, version)?;
    let cached = paths.cache.join("schemas").join(format!("{}.json", key(&folder)?));
    // A damaged file is made again.
    if let Some(schema) = fs::read(&cached).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
        return Ok(schema);
    }
    let schema = parse(&proto_packages(&api_modules(&folder)?)?).map_err(|why| anyhow!(why))?;
    // The run has its schema even if the disk is full, or another run is writing the same file.
    if let Err(why) = sys::store::write(&cached, &serde_json::to_vec(&schema)?, MODE) {
        progress::say(&format!("note: the types of the release are not kept in the cache: {why:#}"));
    }
    Ok(schema)
}

/// The schema of this version's minor for an export: its key, and its bytes.
///
/// # Errors
/// As [`schema`].
pub(super) fn for_export(paths: &Paths, version: &str) -> anyhow::Result<(String, Vec<u8>)> {
    let schema = schema(paths, Some(version))?;
    Ok((key(&folder(paths, Some(version))?)?, serde_json::to_vec(&schema)?))
}

fn exported_schema(paths: &Paths, (from, target): (&Path, &Target), version: &str) -> anyhow::Result<Schema> {
    let bytes = build::exported_schema(from, target, &key(&folder(paths, Some(version))?)?)?;
    serde_json::from_slice(&bytes).context("the exported schema is damaged")
}

/// Names a schema by the modules that it is made of, and its form.
fn key(folder: &Path) -> anyhow::Result<String> {
    let sums = fs::read(folder.join("go.sum")).with_context(|| format!("failed to read {}", folder.display()))?;
    Ok(format!("{FORM}-{}", build::sha256(&sums)))
}

/// The folder with the go.mod of the release.
fn folder(paths: &Paths, version: Option<&str>) -> anyhow::Result<PathBuf> {
    let catalogue = Catalogue::load(&paths.targets).map_err(|error| anyhow!("{error}"))?;
    let set = catalogue.components.sets.iter().find(|set| set.name == SET);
    let set = set.with_context(|| format!("targets/components.yaml has no set {SET}"))?;
    let release = version.map_or_else(|| set.default_release(), |version| set.release(version));
    let release = release.with_context(|| {
        let minors: Vec<&str> = set.releases.iter().map(|release| release.minor.as_str()).collect();
        format!("no pinned release of the minor of {}; there are {}", version.unwrap_or_default(), minors.join(", "))
    })?;
    Ok(paths.targets.join(set.folder(&release.module)))
}

fn parse(packages: &[ProtoPackage]) -> Result<Schema, String> {
    fn source(file: &SourceFile) -> Source<'_> {
        Source { name: &file.name, text: &file.text }
    }
    fn package(found: &ProtoPackage) -> Package<'_> {
        Package { proto: source(&found.proto), go: found.go.iter().map(source).collect() }
    }
    Schema::read(&packages.iter().map(package).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables_of(version: &str) -> (StorageTable, Vec<GoldenValue>) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets");
        tables(&Catalogue::load(&folder).unwrap(), version)
    }

    #[test]
    fn release_without_tables_borrows_the_nearest() {
        let (known, golden) = tables_of("v1.36.3");
        assert_eq!(known.lacks, None);
        assert!(!golden.is_empty());

        let (borrowed, golden) = tables_of("v1.99.0-alpha.1");
        let lacks = borrowed.lacks.unwrap();
        assert!(lacks.starts_with("the storage table of Kubernetes v1.99.0-alpha.1; the nearest"), "{lacks}");
        assert!(!borrowed.rows.is_empty());
        assert_eq!(golden, []);
    }
}
