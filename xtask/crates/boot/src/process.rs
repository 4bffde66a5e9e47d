//! The provider `process`: etcd and kube-apiserver as child processes; other architectures run through qemu-user.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use model::{Artifact, Artifacts, ClusterInfo, Native, Profile, Target};
use sys::progress::Phase;
use sys::{RunDir, interrupt};

use crate::Topology;
use crate::booted::{Booted, HostForward, Processes};
use crate::component::{Component, quoted};
use crate::control_plane::{ControlPlane, PlannedControlPlane, max_active};
use crate::execution::{self, Execution};
use crate::hardware;
use crate::host::{Host, Local};
use crate::pki::{self, Pki};
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
    let machine = Machine::prepare(target, artifacts, others, run, ports)?;
    phase.status(format!("starting {} control planes ({})", topology.profiles.len(), machine.execution.name));
    let planes = sys::side_by_side(&topology.profiles, machine.width(), |profile| {
        machine.with_plan(|plan| control_plane(plan, profile, None))
    })?;
    interrupt::check()?;
    let Execution { name, factor, .. } = &machine.execution;
    phase.done(&format!("{} control planes ready, {name}, factor {factor:.1}", planes.len()));
    let mut booted = Booted::new(machine.info(), artifacts, machine.host.clone(), planes, None);
    booted.host_forward = Some(HostForward::Here);
    Ok(booted)
}

/// Control planes that still start when the first ones are in use.
pub struct Starting<'a> {
    machine: Machine<'a>,
    planned: Mutex<BTreeMap<String, (Profile, PlannedControlPlane)>>,
    processes: Arc<Processes>,
    stopped: AtomicBool,
}

/// Plans the control planes of all profiles. [`Starting::run`] starts them, and [`model::Control::started`] waits for one.
pub fn up_early<'a>(
    target: &'a Target,
    artifacts: &Artifacts,
    topology: &Topology,
    run: &'a RunDir,
) -> anyhow::Result<(Booted, Starting<'a>)> {
    let phase = Phase::start(format!("boot {}", target.name));
    phase.status("running the components' --version");
    let machine = Machine::prepare(target, artifacts, None, run, &sys::ports::free)?;
    let mut info = machine.info();
    let processes = Processes::new(&mut info, machine.host.clone(), Vec::new(), None);
    let processes = Arc::new(processes.rest_when_ended());
    let mut all = BTreeMap::new();
    for profile in &topology.profiles {
        let planned = machine.with_plan(|plan| plan.control_plane(profile, 1))?;
        info.profiles.insert(profile.name.clone(), planned.plane.info.clone());
        all.insert(profile.name.clone(), (profile.clone(), planned));
    }
    processes.starts.expect(topology.profiles.iter().map(|profile| profile.name.clone()));
    let Execution { name, factor, .. } = &machine.execution;
    phase.done(&format!("{} control planes planned, {name}, factor {factor:.1}", all.len()));
    let mut booted = Booted::with(info, artifacts, processes.clone());
    booted.host_forward = Some(HostForward::Here);
    Ok((booted, Starting { machine, planned: Mutex::new(all), processes, stopped: AtomicBool::new(false) }))
}

impl Starting<'_> {
    /// Starts the control planes, those of the profiles `first` before the others, until all run, one fails, or
    /// [`Starting::stop`] is called.
    ///
    /// # Errors
    /// A control plane does not start. Users of the cluster get the same error.
    pub fn run(&self, first: &[&str]) -> anyhow::Result<()> {
        let mut order: Vec<String> = sys::lock(&self.planned).keys().cloned().collect();
        order.sort_by_key(|name| first.iter().position(|early| early == name).unwrap_or(first.len()));
        sys::side_by_side(&order, self.machine.width(), |name| {
            let planned = sys::lock(&self.planned).remove(name);
            let Some((profile, planned)) = planned.filter(|_| !self.stopped.load(Ordering::SeqCst)) else {
                return Ok(());
            };
            let place = planned.plane.info.clone();
            let started = self.machine.with_plan(|plan| control_plane(plan, &profile, Some(planned)));
            let plane = started.inspect_err(|error| self.processes.starts.give_up(&format!("{error:#}")))?;
            if plane.info != place {
                self.processes.starts.note_move(plane.info.clone());
            }
            self.processes.add(plane);
            Ok(())
        })?;
        Ok(())
    }

    /// Starts no further control plane. Whoever waits for one learns that; otherwise a panic here would leave it waiting
    /// forever.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.processes.starts.give_up("the start of the control planes has ended without this one");
    }
}

/// A shell script that starts a profile with the same programs, flags, files and certificates, and does nothing else.
///
/// It prints `ready` when the apiserver is ready, and then waits. `cargo xtask bench` compares [`up`] with it.
pub fn script(target: &Target, artifacts: &Artifacts, profile: &Profile, run: &RunDir) -> anyhow::Result<String> {
    let machine = Machine::prepare(target, artifacts, None, run, &sys::ports::free)?;
    let (planned, pki) = (machine.with_plan(|plan| plan.control_plane(profile, 0))?, &machine.pki);
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

/// This machine as a place for components.
struct Machine<'a> {
    target: &'a Target,
    /// Also those of another architecture.
    artifacts: Artifacts,
    run: &'a RunDir,
    ports: Ports<'a>,
    execution: Execution,
    /// How components of another architecture run, and their names.
    others: Option<(Execution, BTreeSet<String>)>,
    pki: Pki,
    host: Arc<dyn Host>,
}

impl<'a> Machine<'a> {
    fn prepare(
        target: &'a Target,
        artifacts: &Artifacts,
        others: Option<&Native>,
        run: &'a RunDir,
        ports: Ports<'a>,
    ) -> anyhow::Result<Machine<'a>> {
        tls::install();
        let mut execution = execution::prepare(target, artifacts)?;
        let mut artifacts = artifacts.clone();
        let mut emulated = None;
        if let Some(others) = others {
            let other = execution::prepare(&others.target, &others.artifacts)?;
            artifacts.by_component.extend(others.artifacts.by_component.clone());
            execution.factor = execution.factor.max(other.factor);
            emulated = Some((other, others.artifacts.by_component.keys().cloned().collect()));
        }
        let host = Arc::new(Local { process_registry: run.process_registry() });
        Ok(Machine { target, artifacts, run, ports, execution, others: emulated, pki: pki::create(run, &[])?, host })
    }

    /// How many control planes start at the same time.
    fn width(&self) -> usize {
        std::thread::available_parallelism().map_or(2, usize::from).max(2)
    }

    /// Creates the plan of this provider and passes it to `then`.
    fn with_plan<T>(&self, then: impl FnOnce(&Plan<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let Machine { target, artifacts, run, ports, execution, others, pki, host } = self;
        let port_mappings = |_: &str| ports().map(|port| PortMapping { inside: port, outside: port });
        let command = |artifact: &Artifact| match others {
            Some((other, components)) if components.contains(&artifact.component) => other.command(&artifact.path),
            _ => execution.command(&artifact.path),
        };
        let place = Place {
            host: host.clone(),
            factor: execution.factor,
            listen: "127.0.0.1",
            root: Root { host_path: run.private().to_owned(), guest_path: run.private().to_owned() },
            port_mappings: &port_mappings,
            command: &command,
            width: self.width(),
        };
        then(&Plan { target, artifacts, pki, run, place, node: None })
    }

    /// What is known of the cluster without its control planes.
    fn info(&self) -> ClusterInfo {
        let Execution { emulator, name, factor, .. } = &self.execution;
        let hardware = match emulator {
            None => hardware::native(self.target),
            Some(_) => hardware::user_mode(self.target, name),
        };
        ClusterInfo {
            arch: self.target.name.clone(),
            byte_order: Some(self.target.elf.byte_order),
            provider: "process".into(),
            execution: name.clone(),
            factor: *factor,
            max_active: max_active(*factor),
            external: None,
            node: None,
            profiles: BTreeMap::new(),
            machine: None,
            hardware: Some(hardware),
        }
    }
}

/// Starts one profile, which may be planned already. Tries again with new ports if a port was taken between its choice
/// and its use.
fn control_plane(
    plan: &Plan<'_>,
    profile: &Profile,
    mut planned: Option<PlannedControlPlane>,
) -> anyhow::Result<ControlPlane> {
    let mut attempt = 1;
    loop {
        let mut components = Vec::new();
        let resting = max_active(plan.place.factor).is_some();
        let error = match planned
            .take()
            .map_or_else(|| plan.control_plane(profile, attempt), Ok)
            .and_then(|planned| planned.start(resting, false, &mut components))
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
