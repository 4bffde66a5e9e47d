//! The provider `process`: etcd and kube-apiserver as child processes; other architectures run through qemu-user.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Artifact, Artifacts, ClusterInfo, Native, Profile, Target};
use sys::progress::Phase;
use sys::{RunDir, interrupt};

use crate::Topology;
use crate::booted::{Booted, HostForward};
use crate::component::{Component, quoted};
use crate::control_plane::{ControlPlane, max_active};
use crate::execution::{self, Execution};
use crate::hardware;
use crate::host::Local;
use crate::pki;
use crate::place::{Place, PortMapping, Root};
use crate::plan::Plan;

/// How many times a start is tried with new ports if another process takes a port in between.
const PORT_ATTEMPTS: usize = 5;

/// Chooses a free port: `sys::ports::free`, except in a test that takes ports away.
pub type Ports<'a> = &'a (dyn Fn() -> anyhow::Result<u16> + Sync);

/// Starts the control planes of all profiles in parallel. If this fails, no process is left.
pub fn up(target: &Target, artifacts: &Artifacts, topology: &Topology, run: &RunDir) -> anyhow::Result<Booted> {
    up_mixed(target, artifacts, None, topology, run, &sys::ports::free)
}

/// [`up`] on chosen ports. If another process has taken a port before its component binds it, the start is repeated.
pub fn up_on(
    target: &Target,
    artifacts: &Artifacts,
    topology: &Topology,
    run: &RunDir,
    ports: Ports<'_>,
) -> anyhow::Result<Booted> {
    up_mixed(target, artifacts, None, topology, run, ports)
}

/// [`up_on`], but the components of `others` are of another architecture.
pub fn up_mixed(
    target: &Target,
    artifacts: &Artifacts,
    others: Option<&Native>,
    topology: &Topology,
    run: &RunDir,
    ports: Ports<'_>,
) -> anyhow::Result<Booted> {
    let phase = Phase::start(format!("boot {}", target.name));
    phase.status("running the components' --version");
    let (planes, host, Execution { emulator, name, factor, .. }) =
        with_plan(target, artifacts, others, run, ports, |plan, execution| {
            phase.status(format!("starting {} control planes ({})", topology.profiles.len(), execution.name));
            let planes =
                sys::side_by_side(&topology.profiles, plan.place.width, |profile| control_plane(plan, profile))?;
            Ok((planes, plan.place.host.clone(), execution.clone()))
        })?;
    interrupt::check()?;
    phase.done(&format!("{} control planes ready, {name}, factor {factor:.1}", planes.len()));
    let hardware = match emulator {
        None => hardware::native(target),
        Some(_) => hardware::user_mode(target, &name),
    };
    let info = ClusterInfo {
        arch: target.name.clone(),
        byte_order: Some(target.elf.byte_order),
        provider: "process".into(),
        execution: name,
        factor,
        max_active: max_active(factor),
        external: None,
        node: None,
        profiles: BTreeMap::new(),
        machine: None,
        hardware: Some(hardware),
    };
    let mut booted = Booted::new(info, artifacts, host, planes, None);
    booted.host_forward = Some(HostForward::Here);
    Ok(booted)
}

/// A shell script that starts a profile with the same programs, flags, files and certificates, and does nothing else.
///
/// It prints `ready` when the apiserver is ready, and then waits. `cargo xtask bench` compares [`up`] with it.
pub fn script(target: &Target, artifacts: &Artifacts, profile: &Profile, run: &RunDir) -> anyhow::Result<String> {
    let (planned, pki) = with_plan(target, artifacts, None, run, &sys::ports::free, |plan, _| {
        Ok((plan.control_plane(profile, 0)?, plan.pki.clone()))
    })?;
    let mut lines = vec!["#!/bin/sh".to_owned()];
    for component in planned.stores.iter().chain(&planned.plugins).chain([&planned.apiserver]) {
        lines.push(component.shell_command(&quoted(&component.program.log.display().to_string())));
        lines.push(format!(
            "until curl -s --cacert {} --cert {} --key {} {} >/dev/null; do sleep 0.02; done",
            pki.ca.display(),
            pki.admin.cert.display(),
            pki.admin.key.display(),
            format_args!("-f {}", component.ready.url),
        ));
    }
    lines.extend(["echo ready".into(), "wait".into()]);
    Ok(lines.join("\n") + "\n")
}

/// Creates the plan of this provider and passes it to `then`.
fn with_plan<T>(
    target: &Target,
    artifacts: &Artifacts,
    others: Option<&Native>,
    run: &RunDir,
    ports: Ports<'_>,
    then: impl FnOnce(&Plan<'_>, &Execution) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    tls::install();
    let mut execution = execution::prepare(target, artifacts)?;
    let mut all = artifacts.clone();
    let mut emulated = None;
    if let Some(others) = others {
        let other = execution::prepare(&others.target, &others.artifacts)?;
        all.by_component.extend(others.artifacts.by_component.clone());
        execution.factor = execution.factor.max(other.factor);
        emulated = Some((other, &others.artifacts.by_component));
    }
    let artifacts = &all;
    let pki = pki::create(run, &[])?;
    let port_mappings = |_: &str| ports().map(|port| PortMapping { inside: port, outside: port });
    let command = |artifact: &Artifact| match &emulated {
        Some((other, components)) if components.contains_key(&artifact.component) => other.command(&artifact.path),
        _ => execution.command(&artifact.path),
    };
    let place = Place {
        host: Arc::new(Local { process_registry: run.process_registry() }),
        factor: execution.factor,
        listen: "127.0.0.1",
        root: Root { host_path: run.private().to_owned(), guest_path: run.private().to_owned() },
        port_mappings: &port_mappings,
        command: &command,
        width: std::thread::available_parallelism().map_or(2, usize::from).max(2),
    };
    then(&Plan { target, artifacts, pki: &pki, run, place, node: None }, &execution)
}

/// Starts one profile. Tries again with new ports if a port was taken between its choice and its use.
fn control_plane(plan: &Plan<'_>, profile: &Profile) -> anyhow::Result<ControlPlane> {
    let mut attempt = 1;
    loop {
        let mut components = Vec::new();
        let error = match plan
            .control_plane(profile, attempt)
            .and_then(|planned| planned.start(max_active(plan.place.factor).is_some(), &mut components))
        {
            Ok(control_plane) => return Ok(control_plane),
            Err(error) => error,
        };
        let port_taken = components.iter().any(Component::lost_its_port);
        // Dropping the components ends them before the next attempt.
        drop(components);
        if !port_taken || attempt == PORT_ATTEMPTS {
            return Err(error.context(format!("failed to start the profile `{}`", profile.name)));
        }
        attempt += 1;
    }
}
