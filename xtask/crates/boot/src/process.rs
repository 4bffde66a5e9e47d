//! The provider `process`: etcd and kube-apiserver as child processes, foreign architectures through qemu-user.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, bail};
use model::{Action, Artifacts, Cluster, ClusterInfo, Control, ControlError, Profile, ProfileInfo, StoreInfo, Target};
use proc::deadline::OnInterrupt;
use proc::progress::Phase;
use proc::run_dir::write_private_file;
use proc::{RunDir, Spec, interrupt};
use reqwest::blocking::Client;
use rustix::process::Signal;

use crate::Topology;
use crate::component::{Component, Ready, Times};
use crate::execution::{self, Execution};
use crate::flags::{self, StorePorts, url};
use crate::pki::{self, Pki};
use crate::{flags::Flags, kubeconfig};

/// A native component is ready within 3 s; this is for a machine that is busy with something else as well.
const START: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(10);
/// How often a start is repeated with new ports when somebody else took one meanwhile.
const PORT_ATTEMPTS: usize = 5;

/// A running cluster and the power to end it. Dropping it kills what still runs.
pub struct Booted {
    pub cluster: Cluster,
    /// Component name to the version it was built as.
    pub versions: BTreeMap<String, String>,
    processes: Arc<Processes>,
    data: Vec<(String, PathBuf)>,
}

/// Chooses a port that is free now; `proc::ports::free`, except where a test takes one away.
pub type Ports<'a> = &'a (dyn Fn() -> anyhow::Result<u16> + Sync);

/// Starts a control plane for every profile, side by side. Nothing is left running when this fails.
pub fn up(target: &Target, artifacts: &Artifacts, topology: &Topology, run: &RunDir) -> anyhow::Result<Booted> {
    up_on(target, artifacts, topology, run, &proc::ports::free)
}

/// [`up`] on chosen ports. One that is taken when its component wants it costs an attempt, not the boot.
pub fn up_on(
    target: &Target,
    artifacts: &Artifacts,
    topology: &Topology,
    run: &RunDir,
    ports: Ports<'_>,
) -> anyhow::Result<Booted> {
    tls::install();
    let phase = Phase::start(format!("boot {}", target.name));
    phase.status("trying the components");
    let execution = execution::prepare(target, artifacts)?;
    phase.status(format!("starting {} control planes ({})", topology.profiles.len(), execution.name));
    let plan = Plan { target, artifacts, execution: &execution, pki: &pki::create(run)?, run, ports };
    let booted = plan.control_planes(&topology.profiles)?;
    interrupt::check()?;
    let factor = execution.factor;
    phase.done(&format!("{} control planes ready, {}, factor {factor:.1}", booted.len(), execution.name));
    Ok(assemble(target, artifacts, execution, booted))
}

/// A shell script that starts a profile by hand: the same programs, flags, files and certificates, and nothing else.
///
/// It prints `ready` when the apiserver is, and then waits. `cargo xtask bench` measures [`up`] against it.
pub fn script(target: &Target, artifacts: &Artifacts, profile: &Profile, run: &RunDir) -> anyhow::Result<String> {
    tls::install();
    let execution = execution::prepare(target, artifacts)?;
    let pki = pki::create(run)?;
    let plan = Plan { target, artifacts, execution: &execution, pki: &pki, run, ports: &proc::ports::free };
    let mut lines = vec!["#!/bin/sh".to_owned()];
    let draft = plan.draft(profile, 0)?;
    for component in draft.stores.iter().chain([&draft.apiserver]) {
        lines.push(component.shell_command());
        lines.push(format!(
            "until curl -s --cacert {} --cert {} --key {} {} >/dev/null; do sleep 0.02; done",
            plan.pki.ca.display(),
            plan.pki.admin.cert.display(),
            plan.pki.admin.key.display(),
            format_args!("-f {}", component.ready.url),
        ));
    }
    lines.extend(["echo ready".into(), "wait".into()]);
    Ok(lines.join("\n") + "\n")
}

impl Booted {
    /// Copies every store's database file into `into`, as evidence. Call after [`Booted::stop`]: the file is then whole.
    pub fn collect_stores(&self, into: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(into).with_context(|| format!("failed to create {}", into.display()))?;
        for (name, data) in &self.data {
            let from = data.join("member/snap/db");
            let to = into.join(format!("{name}.db"));
            std::fs::copy(&from, &to)
                .with_context(|| format!("failed to copy {} to {}", from.display(), to.display()))?;
        }
        Ok(())
    }

    /// Ends all components in order: apiservers first, so that none complains about a lost store.
    pub fn stop(&self) {
        let mut components = self.processes.lock();
        if components.values_mut().any(|c| is_store(c) && c.has_died()) {
            // An apiserver without its store does not end before its grace has passed.
            components.values_mut().filter(|c| !is_store(c)).for_each(Component::kill);
        }
        for stores in [false, true] {
            let mut these: Vec<_> = components.values_mut().filter(|c| is_store(c) == stores).collect();
            these.iter_mut().for_each(|component| component.ask_to_stop());
            these.iter_mut().for_each(|component| component.stop());
        }
    }
}

/// Everything a control plane is made from.
struct Plan<'a> {
    target: &'a Target,
    artifacts: &'a Artifacts,
    execution: &'a Execution,
    pki: &'a Pki,
    run: &'a RunDir,
    ports: Ports<'a>,
}

/// A profile that is ready to be started.
struct Draft {
    stores: Vec<Component>,
    apiserver: Component,
    info: ProfileInfo,
    data: Vec<(String, PathBuf)>,
}

struct ControlPlane {
    info: ProfileInfo,
    components: Vec<Component>,
    data: Vec<(String, PathBuf)>,
}

impl Plan<'_> {
    /// Starts the profiles, as many at a time as there are processors: a start is work for the processor alone, and more
    /// at once only make each other miss their deadlines.
    fn control_planes(&self, profiles: &[Profile]) -> anyhow::Result<Vec<ControlPlane>> {
        let width = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut started = Vec::new();
            while let Some(profile) = profiles.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = self.control_plane(profile);
                let failed = result.is_err();
                started.push(result);
                if failed {
                    // What the other threads have begun ends with them; nothing new is begun.
                    next.store(profiles.len(), Ordering::Relaxed);
                }
            }
            started
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..width).map(|_| scope.spawn(work)).collect();
            let results = threads.into_iter().flat_map(|thread| thread.join().expect("no boot thread panics"));
            // Collected before the first error is looked for, so that every component is dropped, and thereby ended.
            results.collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// Starts one profile; again with new ports when a port was taken between its choice and its use.
    fn control_plane(&self, profile: &Profile) -> anyhow::Result<ControlPlane> {
        let mut attempt = 1;
        loop {
            let mut components = Vec::new();
            let error = match self.try_control_plane(profile, attempt, &mut components) {
                Ok(control_plane) => return Ok(control_plane),
                Err(error) => error,
            };
            let port_taken = components.iter().any(Component::lost_its_port);
            // Dropping the components ends them before the next attempt.
            drop(components);
            if !port_taken || attempt == PORT_ATTEMPTS {
                return Err(error.context(format!("profile `{}` did not start", profile.name)));
            }
            attempt += 1;
        }
    }

    /// `started` gets each component that was launched, also when a later one fails.
    fn try_control_plane(
        &self,
        profile: &Profile,
        attempt: usize,
        started: &mut Vec<Component>,
    ) -> anyhow::Result<ControlPlane> {
        let Draft { stores, apiserver, info, data } = self.draft(profile, attempt)?;
        for mut etcd in stores {
            let launched = etcd.launch();
            started.push(etcd);
            launched?;
        }
        for etcd in started.iter_mut() {
            etcd.wait_ready(OnInterrupt::Stop)?;
        }
        started.push(apiserver);
        if let Some(apiserver) = started.last_mut() {
            apiserver.start()?;
        }
        Ok(ControlPlane { info, components: std::mem::take(started), data })
    }

    /// Everything of a profile but its processes: ports, folders, files, flags.
    fn draft(&self, profile: &Profile, attempt: usize) -> anyhow::Result<Draft> {
        let dir = self.run.private_dir(&format!("{}/{attempt}", profile.name))?;
        let mut servers = BTreeMap::new();
        let mut data = Vec::new();
        let mut stores = Vec::new();
        for store in &profile.stores {
            let ports = StorePorts { client: (self.ports)()?, peer: (self.ports)()? };
            servers.insert(store.name.clone(), url(ports.client));
            let dir = self.run.private_dir(&format!("{}/{attempt}/{}", profile.name, store.name))?;
            let flags = flags::etcd(store, &dir, &ports, self.pki, self.execution.factor);
            data.push((format!("{}.{}", profile.name, store.name), dir));
            let name = format!("{}/etcd-{}", profile.name, store.name);
            stores.push(self.component(name, "etcd", flags, format!("{}/readyz", url(ports.client)))?);
        }
        for (name, text) in &profile.files {
            write_private_file(&dir.join(name), flags::fill(text, &dir, &servers)?.as_bytes())?;
        }
        let port = (self.ports)()?;
        let flags = flags::apiserver(profile, &dir, port, &servers, self.pki)?;
        let info = self.info(profile, &dir, port, &servers, &flags)?;
        let name = format!("{}/kube-apiserver", profile.name);
        let apiserver = self.component(name, "kube-apiserver", flags, format!("{}/readyz", url(port)))?;
        Ok(Draft { stores, apiserver, info, data })
    }

    fn component(&self, name: String, program: &str, flags: Flags, ready: String) -> anyhow::Result<Component> {
        let Some(artifact) = self.artifacts.by_component.get(program) else {
            bail!("{program} was not built; `cargo xtask build --component {program}` builds it");
        };
        let (program_path, args) = self.execution.command(&artifact.path);
        let spec = Spec {
            name: name.clone(),
            program: program_path,
            args,
            env: self.target.component_env.get(program).cloned().unwrap_or_default(),
            log: self.run.log(&name),
            ledger: self.run.ledger(),
        };
        let times = Times { start: self.execution.scaled(START), grace: self.execution.scaled(GRACE) };
        let ready = Ready { client: self.client()?, url: ready };
        Ok(Component::new(name, spec, flags, ready, times))
    }

    fn client(&self) -> anyhow::Result<Client> {
        let config = tls::client(&self.pki.admin, tls::Alpn::Unset)?;
        Client::builder()
            .tls_backend_preconfigured(config)
            .no_proxy()
            .timeout(self.execution.scaled(Duration::from_secs(5)))
            .build()
            .context("failed to make the client that asks for readiness")
    }

    fn info(
        &self,
        profile: &Profile,
        dir: &Path,
        port: u16,
        servers: &BTreeMap<String, String>,
        flags: &Flags,
    ) -> anyhow::Result<ProfileInfo> {
        let kubeconfig = dir.join("kubeconfig");
        write_private_file(&kubeconfig, kubeconfig::render(&url(port), &self.pki.admin)?.as_bytes())?;
        let stores = profile.stores.iter().map(|store| StoreInfo {
            name: store.name.clone(),
            endpoint: servers[&store.name].clone(),
            tls: self.pki.admin.clone(),
            resources: store.resources.clone(),
        });
        Ok(ProfileInfo {
            name: profile.name.clone(),
            apiserver: url(port),
            tls: self.pki.admin.clone(),
            kubeconfig,
            prefix: profile.prefix.clone(),
            stores: stores.collect(),
            flags: flags.clone(),
            dir: dir.to_owned(),
        })
    }
}

fn assemble(target: &Target, artifacts: &Artifacts, execution: Execution, booted: Vec<ControlPlane>) -> Booted {
    let mut components = BTreeMap::new();
    let mut profiles = BTreeMap::new();
    let mut data = Vec::new();
    for control_plane in booted {
        components.extend(control_plane.components.into_iter().map(|c| (c.name.clone(), c)));
        profiles.insert(control_plane.info.name.clone(), control_plane.info);
        data.extend(control_plane.data);
    }
    let processes = Arc::new(Processes(Mutex::new(components)));
    let info = ClusterInfo {
        arch: target.name.clone(),
        provider: "process".into(),
        execution: execution.name,
        factor: execution.factor,
        profiles,
    };
    let versions = artifacts.by_component.values().map(|a| (a.component.clone(), a.version.clone())).collect();
    let control: Arc<dyn Control> = processes.clone();
    Booted { cluster: Cluster { info, control: Some(control) }, versions, processes, data }
}

/// All components by name; implements control over them.
struct Processes(Mutex<BTreeMap<String, Component>>);

impl Processes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Component>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Control for Processes {
    fn components(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    fn apply(&self, component: &str, action: &Action) -> Result<(), ControlError> {
        // Taken out while the action runs, so that one slow restart does not hold up the others.
        let mut taken = self
            .lock()
            .remove(component)
            .ok_or_else(|| ControlError(format!("there is no component `{component}`, or it is being changed")))?;
        let result = apply(&mut taken, action);
        self.lock().insert(component.to_owned(), taken);
        result.map_err(|error| ControlError(format!("{action:?} of {component}: {error:#}")))
    }

    fn log(&self, component: &str) -> Result<String, ControlError> {
        let components = self.lock();
        let found = components.get(component).ok_or_else(|| ControlError(format!("no component `{component}`")))?;
        let bytes = std::fs::read(&found.spec.log)
            .map_err(|error| ControlError(format!("failed to read {}: {error}", found.spec.log.display())))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn casualty(&self) -> Option<String> {
        self.lock().values_mut().find_map(Component::casualty)
    }
}

fn is_store(component: &Component) -> bool {
    component.name.contains("/etcd-")
}

fn apply(component: &mut Component, action: &Action) -> anyhow::Result<()> {
    match action {
        Action::Start => component.start()?,
        Action::Stop => component.stop(),
        Action::Kill => component.kill(),
        Action::Pause => component.signal(Signal::STOP),
        Action::Resume => component.signal(Signal::CONT),
        Action::Restart { flags } => {
            component.stop();
            flags::change(&mut component.flags, flags);
            component.start()?;
        }
    }
    Ok(())
}
