//! `cargo xtask kubectl`: the kubectl that was built for this machine, on a cluster that `up` started.

use std::path::{Path, PathBuf};

use ::build::{Plan, Step};
use anyhow::{Context, anyhow};
use model::Exit;
use proc::exec;
use targets::Catalogue;

use super::kept::{Kept, not_running};
use super::{built, host_target, request};
use crate::args::KubectlOptions;
use crate::failure::{Failure, OrExit};
use crate::paths::Paths;

const KUBECTL: &str = "kubectl";

/// Becomes kubectl, so that signals, terminal and exit code are its own; returns only where it does not come to that.
pub(crate) fn run(paths: &Paths, options: &KubectlOptions) -> Result<Exit, Failure> {
    let Some(kept) = Kept::alive(paths, &options.name) else {
        return Err(Failure::usage(not_running(paths, &options.name)));
    };
    let kubeconfig = kubeconfig(&kept, options.profile.as_deref())?;
    let catalogue = Catalogue::load(&paths.targets)?;
    let host = host_target(&catalogue)?;
    let wanted = [KUBECTL.to_owned()];
    let request = ::build::Request { only: Some(&wanted), ..request(paths, &catalogue, host, None) };
    let program = program(paths, request).or_exit(Exit::Build)?;
    Err(exec::replace(&program, &options.arguments, &[("KUBECONFIG", kubeconfig)])).or_exit(Exit::Infrastructure)
}

/// Built at the first use; later nothing is said of it before what kubectl itself says.
fn program(paths: &Paths, request: ::build::Request<'_>) -> anyhow::Result<PathBuf> {
    // Where it does not show without building what would be done, building says why.
    let steps = ::build::plan(&request).unwrap_or_default();
    if let [Step { plan: Plan::Hit { path, .. }, .. }] = steps.as_slice() {
        return Ok(path.clone());
    }
    let artifacts = built(paths, request)?;
    let kubectl = artifacts.by_component.get(KUBECTL).context("kubectl was built and is not there, a bug of ours")?;
    Ok(kubectl.path.clone())
}

/// That of the profile; where nothing is said and there are several, one has to be named.
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
