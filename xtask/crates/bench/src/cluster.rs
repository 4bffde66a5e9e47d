//! `cargo xtask bench --cluster`: whole clusters until a Pod runs: nodes in VMs from power-on and from a memory
//! snapshot, and Kind clusters if this machine has a container engine.

use std::time::{Duration, Instant};

use ::boot::kind;
use ::boot::qemu::baseline_restore;
use ::boot::{Booted, Topology};
use anyhow::Context;
use cli::{Failure, OrExit, Paths, host_target, request};
use images::kind::{Inputs, Order};
use model::{Exit, Target};
use provider::kind::with_inputs;
use provider::{ClusterArg, ProviderArg, ProviderOptions, Setup};
use reqwest::blocking::Client;
use serde_json::{Value, json};
use sys::deadline::{OnInterrupt, Probe, until};
use sys::{RunDir, Scratch, progress};
use targets::Catalogue;

use super::boot::{self, Vms, row};
use super::{Row, in_run, in_turn, median, timed};
use crate::BenchOptions;

/// Deadline for one answer of an emulated apiserver.
const ANSWER: Duration = Duration::from_secs(30);
/// Deadline for a Pod whose image is present.
const RUNNING: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Seconds that a Kind cluster may take in addition, for all steps of the harness around it.
const AROUND: f64 = 2.0;

pub(super) fn run(paths: &Paths, options: &BenchOptions) -> Result<Exit, Failure> {
    boot::each(paths, options, |catalogue, target, rows| {
        let vms = Vms::prepare(paths, options, catalogue, target, ClusterArg::Node)?;
        nodes(&vms, target, rows).with_context(|| format!("nodes of {}", target.name)).or_exit(Exit::Infrastructure)?;
        if host_target(catalogue)?.name == target.name {
            clusters(paths, options, catalogue, target, rows)?;
        }
        Ok(())
    })
}

/// Time from the start of QEMU until a Pod runs, cold and warm in turn.
fn nodes(vms: &Vms<'_>, target: &Target, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let (mut cold, mut warm, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    for n in 1..=vms.runs {
        progress::say(&format!("{}: node {n} of {}", target.name, vms.runs));
        boot::empty(&vms.cache)?;
        cold.push(vms.boot_and(&vms.one, false, pod)?.0);
        floors.push(vms.baseline(baseline_restore, &vms.one)?);
        warm.push(vms.boot_and(&vms.one, true, pod)?.0);
    }
    let (cold, warm) = (median(cold), median(warm));
    rows.push(row(target, "node", cold, "s").goal("a Pod runs, at most 60 s", cold <= 60.0));
    let row = row(target, "node-warm", warm, "s").against(median(floors), "QEMU's own restore");
    rows.push(row.goal("a new Pod runs, at most 8 s", warm <= 8.0));
    Ok(())
}

/// Seconds from the creation of a Pod until it runs.
fn pod(booted: &Booted) -> anyhow::Result<f64> {
    let info = &booted.cluster.info;
    let node = info.node.as_ref().context("the cluster has no node")?;
    let profile = info.profiles.get(&node.profile).context("the node has no control plane")?;
    let image = node.images.get("pause").context("the node has no image `pause`")?;
    let begin = Instant::now();
    booted.wake_all()?;
    let config = tls::client(&profile.tls, tls::Alpn::Unset)?;
    let client = Client::builder().tls_backend_preconfigured(config).no_proxy().timeout(ANSWER).build()?;
    let (name, pods) = (format!("bench-{}", fastrand::u32(..)), format!("{}{PODS}", profile.apiserver));
    let pod = json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "pause", "image": image, "imagePullPolicy": "Never"}]},
    });
    let order = || -> anyhow::Result<Probe<()>> {
        let answer = client.post(&pods).json(&pod).send()?;
        let status = answer.status();
        // The namespace has no service account yet.
        let early = status.as_u16() == 403;
        Ok(match status.is_success() {
            true => Probe::Ready(()),
            false if early => Probe::NotYet(answer.text()?),
            false => Probe::Hopeless(anyhow::anyhow!("{status}: {}", answer.text()?)),
        })
    };
    until("a Pod to be created", RUNNING, LOOK_EVERY, OnInterrupt::Stop, || order().unwrap_or_else(Probe::Hopeless))?;
    let phase = || -> anyhow::Result<String> {
        let found: Value = client.get(format!("{pods}/{name}")).send()?.json()?;
        Ok(found["status"]["phase"].as_str().unwrap_or_default().to_owned())
    };
    until("a Pod to run", RUNNING, LOOK_EVERY, OnInterrupt::Stop, || match phase() {
        Ok(phase) if phase == "Running" => Probe::Ready(()),
        Ok(phase) => Probe::NotYet(phase),
        Err(error) => Probe::Hopeless(error),
    })?;
    Ok(begin.elapsed().as_secs_f64())
}

/// A whole Kind cluster, by the harness and by hand in turn, and its node image.
fn clusters(
    paths: &Paths,
    options: &BenchOptions,
    catalogue: &Catalogue,
    target: &Target,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    if let Err(error) = kind::engine_version(&target.name) {
        progress::say(&format!("Kind is not measured: {error:#}"));
        return Ok(());
    }
    let chosen = ProviderArg::Kind;
    let machine = options.machine.clone();
    let options_of =
        ProviderOptions { provider: Some(chosen), cluster: ClusterArg::Planes, image: None, cold: false, machine };
    let host = Some(target);
    let setup = Setup { chosen, options: &options_of, paths, catalogue, host, target, offline: false };
    let profiles = vec![catalogue.profile(&catalogue.node.profile)?.clone()];
    let components = setup.components(&profiles).or_exit(Exit::TargetData)?;
    let request = ::build::Request { only: Some(&components), ..request(paths, catalogue, target, None) };
    let artifacts = ::build::build(&request).or_exit(Exit::Build)?;
    let order = Order { paths, catalogue, target, artifacts: &artifacts, machine: &options.machine, offline: false };
    let topology = Topology { profiles, node: None };
    let mut measured = || -> anyhow::Result<()> {
        rows.push(image(&order, options.runs.max(1))?);
        let measure = |work: fn(&kind::Request<'_>, &RunDir) -> anyhow::Result<f64>| {
            let of_run = |run: &RunDir| with_inputs(&setup, &artifacts, &topology, |request| work(request, run));
            in_run(paths, "kind-bench", of_run)
        };
        let ours = |request: &kind::Request<'_>, run: &RunDir| {
            let begin = Instant::now();
            let booted = kind::up(request, run)?;
            let time = begin.elapsed().as_secs_f64();
            booted.end(None)?;
            Ok(time)
        };
        // The baseline comes first, because it makes the engine load the image.
        let floor = || {
            progress::say(&format!("{}: Kind", target.name));
            measure(|request, run| Ok(kind::baseline(request, run)?.as_secs_f64()))
        };
        let (value, baseline) = in_turn(options.runs.max(1), || measure(ours), floor)?;
        let row = row(target, "kind", value, "s").against(baseline, "kind create cluster with the same image");
        rows.push(row.goal("at most 2 s more than the baseline", value <= baseline + AROUND));
        Ok(())
    };
    measured().context("clusters of Kind").or_exit(Exit::Infrastructure)
}

/// Time to write a node image, compared with a copy of the same size.
fn image(order: &Order<'_>, runs: usize) -> anyhow::Result<Row> {
    let scratch = Scratch::create(&order.paths.cache, "bench")?;
    let [archive, copy] = ["node.tar", "copy.tar"].map(|name| scratch.path().join(name));
    let inputs = Inputs::of(order)?;
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        ours.push(timed(|| inputs.write(&archive))?);
        let copied = || std::fs::copy(&archive, &copy).with_context(|| format!("failed to write {}", copy.display()));
        floors.push(timed(copied)?);
    }
    Ok(row(order.target, "node-image", median(ours), "s").against(median(floors), "copying the archive"))
}
