//! Requests to build and to fetch what the options of a command name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use build::{Exported, Request};
use model::{Artifacts, Source, Target, Toolchains};
use sys::progress;
use targets::Catalogue;

use crate::{Failure, MachineOptions, Paths, QemuArg, SourceOptions};

/// Go's own default for GOPROXY.
const PUBLIC_GO_PROXY: &str = "https://proxy.golang.org";

/// A request to build all components that a boot needs, from the pinned modules unless `sources` says otherwise.
///
/// Pass it to [`built`].
pub fn request<'a>(
    paths: &'a Paths,
    catalogue: &'a Catalogue,
    target: &'a Target,
    sources: Option<&SourceOptions>,
) -> Request<'a> {
    let mut by_set = sources.map(SourceOptions::by_set).unwrap_or_default();
    catalogue.components.add_followers(&mut by_set);
    Request {
        target,
        components: &catalogue.components,
        targets_dir: &paths.targets,
        cache_dir: &paths.cache,
        sources: by_set,
        only: None,
        offline: sources.is_some_and(|sources| sources.offline),
        exported: sources.and_then(|sources| sources.exported.as_deref()).map(|given| exported(paths, given)),
        go: None,
    }
}

/// Refuses a minor release that is not pinned, and a source that no part of the run has, before any work starts.
pub fn known_releases(catalogue: &Catalogue, sources: &SourceOptions) -> Result<(), Failure> {
    if let Some(option) = sources.without_use() {
        let store = sources.store().name();
        return Err(Failure::usage(anyhow!(
            "{option} has no use, because the store is {store}: leave it out, or choose another --store"
        )));
    }
    for (set, source) in sources.by_set() {
        if let Source::Module(Some(version)) = source {
            catalogue.pinned(&set, &version)?;
        }
    }
    Ok(())
}

/// Builds the request, with a Go toolchain that is new enough.
///
/// Warns about programs whose Go release has a known defect on their architecture.
pub fn built(paths: &Paths, request: Request<'_>) -> anyhow::Result<Artifacts> {
    download_exported(paths, &request)?;
    let artifacts = build::build(&with_go(paths, request)?)?;
    let toolchains = Catalogue::load(&paths.targets)?.toolchains;
    for (warning, components) in warnings(&toolchains, &artifacts) {
        progress::say(&format!("warning: {}: {warning}", components.join(", ")));
    }
    Ok(artifacts)
}

/// `--components` as a folder: for a URL, the one in the cache.
fn exported(paths: &Paths, given: &str) -> Exported {
    if !given.starts_with("https://") && !given.starts_with("http://") {
        return Exported { folder: given.into(), url: None };
    }
    let mut digest = build::Fields::default();
    digest.add(given);
    Exported { folder: paths.cache.join("exported").join(digest.finish()), url: Some(given.to_owned()) }
}

/// The folder of `--components`; None without it.
pub fn exported_folder(paths: &Paths, sources: &SourceOptions) -> Option<PathBuf> {
    sources.exported.as_deref().map(|given| exported(paths, given).folder)
}

/// The list of exported components for a target in the folder of `--components`; None for a URL.
pub fn exported_list(paths: &Paths, given: &str, target: &Target) -> Option<PathBuf> {
    let Exported { folder, url } = exported(paths, given);
    url.is_none().then(|| folder.join(exported_list_name(target)))
}

/// The name of the list of exported components for a target.
pub fn exported_list_name(target: &Target) -> String {
    build::manifest_name(&build::exported_label(target))
}

/// Downloads the exported components of a URL. Files that are in the cache and intact stay.
fn download_exported(paths: &Paths, request: &Request<'_>) -> anyhow::Result<()> {
    let Some(Exported { folder, url: Some(url) }) = &request.exported else { return Ok(()) };
    let (base, sha256) = match url.split_once("#sha256=") {
        Some((base, digest)) => (base, Some(digest.to_ascii_lowercase())),
        None => (url.as_str(), None),
    };
    if sha256.is_none() && base.starts_with("http://") {
        progress::say(&format!(
            "warning: {base} is plain HTTP without a digest, so any machine on the path can replace the programs: use \
             https, or add #sha256=DIGEST, which `cargo xtask build --export` prints"
        ));
    }
    let label = build::exported_label(request.target);
    let order = fetch::Order { base, name: &build::manifest_name(&label), sha256: sha256.as_deref(), folder };
    fetch::listed(&order, &fetch_options_for_go(paths, request.offline), |text| {
        let wanted = |name: &str| {
            let is = |component: &str| name == format!("{component}-{label}");
            is("schema") || request.only.is_none_or(|only| only.iter().any(|component| is(component)))
        };
        let files = build::exported_files(text, &label)?.into_iter().filter(|file| wanted(&file.name));
        Ok(files.map(|file| fetch::Listed { name: file.name, sha256: file.sha256, size: file.size }).collect())
    })
}

/// Each warning with the components that it is about.
fn warnings<'a>(toolchains: &Toolchains, artifacts: &'a Artifacts) -> BTreeMap<String, Vec<&'a str>> {
    let mut warnings: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (component, artifact) in &artifacts.by_component {
        if let Some(warning) = toolchains.warning(&artifact.go, &artifacts.arch) {
            warnings.entry(warning).or_default().push(component);
        }
    }
    warnings
}

/// The GOPROXY of the environment, or the setting of an older Go on PATH, or Go's default. The lock contains the digest
/// of the toolchain, so the proxy need not be trusted.
fn go_proxy<'a>(environment: Option<&'a str>, older_go: Option<&'a str>) -> &'a str {
    environment.or(older_go).unwrap_or(PUBLIC_GO_PROXY)
}

/// Adds a Go toolchain to the request; fetches one if no `go` on PATH is new enough.
pub fn with_go<'a>(paths: &Paths, mut request: Request<'a>) -> anyhow::Result<Request<'a>> {
    if let Some(missing) = build::go_missing(&request)? {
        let host = rustix::system::uname().machine().to_string_lossy().into_owned();
        let host = Catalogue::load(&paths.targets)?.host_target(&host)?.clone();
        let proxy = go_proxy(paths.goproxy.as_deref(), missing.proxy.as_deref());
        let options = fetch_options_for_go(paths, request.offline);
        let go = fetch::go_toolchain(&host, &missing.version, Some(proxy), &options).with_context(|| {
            let version = &missing.version;
            format!("no `go` on PATH is {version} or newer; install one from https://go.dev/dl/")
        })?;
        progress::say(&format!("Go {}, {}, is used: no `go` on PATH is new enough", go.version, go.origin));
        request.go = Some(go.program);
    }
    Ok(request)
}

/// The options of the fetch stage.
pub fn fetch_options(paths: &Paths, given: &MachineOptions, offline: bool) -> fetch::Options {
    fetch::Options {
        locked: given.locked,
        mirror: given.debian_mirror.clone(),
        qemu: match given.qemu {
            QemuArg::Debian => fetch::QemuChoice::Debian,
            QemuArg::System => fetch::QemuChoice::System,
        },
        ..fetch_options_for_go(paths, offline)
    }
}

/// The same with all paths; the options for Debian's packages stay at their defaults.
pub fn fetch_options_for_go(paths: &Paths, offline: bool) -> fetch::Options {
    fetch::Options {
        cache: paths.cache.clone(),
        targets_dir: paths.targets.clone(),
        offline,
        locked: false,
        mirror: None,
        qemu: fetch::QemuChoice::Debian,
        node: None,
        container: None,
        verify: fetch::signed_text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_without_go_and_goproxy_uses_the_public_proxy() {
        assert_eq!(go_proxy(None, None), "https://proxy.golang.org");
        assert_eq!(go_proxy(None, Some("https://older.example")), "https://older.example");
        assert_eq!(go_proxy(Some("off"), Some("https://older.example")), "off");
    }
}
