//! The source files that define the objects of a release: `generated.proto`, and the Go files next to it. They are in the
//! modules from which the release is built, so they are verified by the same `go.sum`.
//!
//! Not here: their meaning (crate `judge`, `schema`).

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;
use sys::progress::Phase;

use crate::GoTool;

/// The modules with types that kube-apiserver stores.
const MODULES: [&str; 4] =
    ["k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator"];

/// The file that makes a Go package part of the schema.
const PROTO: &str = "generated.proto";

/// A Go package with a schema.
#[derive(Clone, Debug)]
pub struct ProtoPackage {
    pub proto: SourceFile,
    /// Its Go files without tests and generated ones, by name.
    pub go: Vec<SourceFile>,
}

#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Below the module: `apps/v1/generated.proto`.
    pub name: String,
    pub text: String,
}

/// A module of a release, in the module cache.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ApiModule {
    pub path: String,
    pub version: String,
    /// The unpacked module.
    pub dir: PathBuf,
    /// Its hash, as go.sum has it.
    pub sum: String,
}

/// The modules of the release that this folder pins; downloads those that the module cache lacks.
///
/// # Errors
/// Go is missing or too old; a module cannot be downloaded or does not have the sum of `go.sum`.
pub fn api_modules(folder: &Path) -> anyhow::Result<Vec<ApiModule>> {
    let go = GoTool::find(&folder.join("go.mod"))?;
    let phase = Phase::start("schema".to_owned());
    let args: Vec<&str> = ["mod", "download", "-json"].into_iter().chain(MODULES).collect();
    let answer = go.run(folder, &args, &phase)?;
    let modules: Vec<ApiModule> = serde_json::Deserializer::from_str(&answer)
        .into_iter()
        .collect::<Result<_, _>>()
        .with_context(|| format!("`go {}` gave an unexpected answer", args.join(" ")))?;
    if modules.len() != MODULES.len() {
        bail!("{} pins {} of the {} modules with a schema", folder.display(), modules.len(), MODULES.len());
    }
    Ok(modules)
}

/// All packages with a schema, in the order of their paths.
///
/// # Errors
/// A file cannot be read.
pub fn proto_packages(modules: &[ApiModule]) -> anyhow::Result<Vec<ProtoPackage>> {
    let mut packages = Vec::new();
    for module in modules {
        let mut folders = vec![module.dir.clone()];
        while let Some(folder) = folders.pop() {
            let mut files = Vec::new();
            for entry in listed(&folder)? {
                match entry.file_name().and_then(|name| name.to_str()) {
                    // Objects of older releases, megabytes of them.
                    Some("testdata") | None => {}
                    Some(_) if entry.is_dir() => folders.push(entry),
                    Some(name) if name == PROTO || is_source(name) => files.push(read(&module.dir, &entry)?),
                    Some(_) => {}
                }
            }
            if let Some(at) = files.iter().position(|file| file.name.ends_with(PROTO)) {
                packages.push(ProtoPackage { proto: files.remove(at), go: files });
            }
        }
    }
    packages.sort_by(|a, b| a.proto.name.cmp(&b.proto.name));
    Ok(packages)
}

/// Generated files have no struct tags, but megabytes of code.
fn is_source(name: &str) -> bool {
    name.ends_with(".go") && !name.ends_with("_test.go") && !name.contains("generated")
}

fn listed(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        paths.sort();
        Ok(paths)
    };
    list().with_context(|| format!("failed to list {}", folder.display()))
}

fn read(module: &Path, file: &Path) -> anyhow::Result<SourceFile> {
    let text = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
    let name = file.strip_prefix(module).unwrap_or(file).display().to_string();
    Ok(SourceFile { name, text })
}
