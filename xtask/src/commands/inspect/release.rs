//! The types of the release that wrote the values, from the cache or from its Go modules.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use build::{ProtoPackage, SourceFile, api_modules, proto_packages};
use cli::Paths;
use judge::schema::{Package, Schema, Source};
use sys::progress;
use targets::Catalogue;

/// Part of the name in the cache: raise it with every change of what is read from the files.
const FORM: u32 = 1;

/// The set with kube-apiserver.
const SET: &str = "kubernetes";

/// The schema of the pinned release of this version's minor; without a version, of the default release. None, with a message
/// for people, if it cannot be made: then values are shown without it.
pub(super) fn schema(paths: &Paths, version: Option<&str>) -> Option<Schema> {
    match read(paths, version) {
        Ok(schema) => Some(schema),
        Err(why) => {
            progress::say(&format!("values are shown without the types of the release: {why:#}"));
            None
        }
    }
}

fn read(paths: &Paths, version: Option<&str>) -> anyhow::Result<Schema> {
    let folder = folder(paths, version)?;
    let sums = fs::read(folder.join("go.sum")).with_context(|| format!("failed to read {}", folder.display()))?;
    let cached = paths.cache.join("schemas").join(format!("{FORM}-{}.json", build::sha256(&sums)));
    // A damaged file is made again.
    if let Some(schema) = fs::read(&cached).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
        return Ok(schema);
    }
    let schema = parse(&proto_packages(&api_modules(&folder)?)?).map_err(|why| anyhow!(why))?;
    store(&cached, &schema)?;
    Ok(schema)
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

fn store(file: &Path, schema: &Schema) -> anyhow::Result<()> {
    let folder = file.parent().context("no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    report::replace(folder, &name, &serde_json::to_vec(schema)?)
}
