//! `cargo xtask kubectl`: the kubectl that was built for this machine, on a cluster that `up` started.

use std::path::{Path, PathBuf};

use ::build::{Plan, Step};
use anyhow::{Context, anyhow};
use cli::{Failure, OrExit, Paths, built, host_target, request};
use model::Exit;
use sys::exec;
use targets::Catalogue;

use super::kept::Kept;
use crate::args::KubectlOptions;

const KUBECTL: &str = "kubectl";

/// Replaces this process with kubectl, which then owns signals, terminal and exit code. Returns only if this fails.
pub(crate) fn run(paths: &Paths, options: &KubectlOptions) -> Result<Exit, Failure> {
    let kept = Kept::find(paths, &options.name)?;
    let kubeconfig = kubeconfig(&kept, options.profile.as_deref())?;
    let catalogue = Catalogue::load(&paths.targets)?;
    let host = host_target(&catalogue)?;
    let wanted = [KUBECTL.to_owned()];
    let request = ::build::Request { only: Some(&wanted), ..request(paths, &catalogue, host, None) };
    let program = program(paths, request).or_exit(Exit::Build)?;
    Err(exec::replace(&program, &options.arguments, &[("KUBECONFIG", kubeconfig)])).or_exit(Exit::Infrastructure)
}

/// Builds kubectl at the first use. If it is cached, prints nothing before kubectl's own output.
fn program(paths: &Paths, request: ::build::Request<'_>) -> anyhow::Result<PathBuf> {
    // A plan may fail without a build; then the build reports the reason.
    let steps = ::build::plan(&request).unwrap_or_default();
    if let [Step { plan: Plan::Hit { path, .. }, .. }] = steps.as_slice() {
        return Ok(path.clone());
    }
    let artifacts = built(paths, request)?;
    let kubectl =
        artifacts.by_component.get(KUBECTL).context("kubectl was built but is missing: a bug in the harness")?;
    Ok(kubectl.path.clone())
}

/// The kubeconfig of the profile; without a name, the cluster must have exactly one.
fn kubeconfig<'a>(kept: &'a Kept, profile: Option<&str>) -> Result<&'a Path, Failure> {
    let profiles = &kept.info.profiles;
    let found = match profile {
        Some(name) => profiles.get(name),
        None if profiles.len() == 1 => profiles.values().next(),
        None => None,
    };
    let found = found.ok_or_else(|| {
        let names: Vec<&str> = profiles.keys().map(String::as_str).collect();
        Failure::usage(anyhow!("--profile must name one of the cluster's control planes: {}", names.join(", ")))
    })?;
    Ok(&found.kubeconfig)
}
