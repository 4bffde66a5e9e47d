//! A baseline for `cargo xtask bench --cluster`: `kind create cluster` alone, which shows the fastest possible creation
//! with this engine, Kind and node image.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use sys::RunDir;
use sys::progress::Phase;

use super::plane::{BuildInputs, ClusterSpec};
use super::{Preparation, Request, prepare};
use crate::booted::ClusterOwner;
use crate::pki;

/// The time from `kind create cluster` until CoreDNS is available, for the request's only profile, with the same image
/// and configuration. The engine has the image before.
///
/// # Errors
/// As [`super::up`].
pub fn baseline(request: &Request<'_>, run: &RunDir) -> anyhow::Result<Duration> {
    let [profile] = &request.topology.profiles[..] else { return Err(anyhow!("the baseline takes one profile")) };
    let phase = Phase::start("baseline: Kind".to_owned());
    let preparation = prepare(request, run, &phase)?;
    let pki = pki::create_for_kubeadm(run)?;
    let (artifacts, factor, resting) = (request.artifacts, preparation.factor, false);
    let inputs = BuildInputs { request, artifacts, run, preparation: &preparation, pki: &pki, factor, resting };
    let mut spec = ClusterSpec::of(&inputs, profile)?;
    let Preparation { clusters, .. } = &preparation;
    let begin = Instant::now();
    spec.create(request, clusters).context("failed to create the baseline cluster")?;
    let time = begin.elapsed();
    clusters.end(None)?;
    Ok(time)
}
