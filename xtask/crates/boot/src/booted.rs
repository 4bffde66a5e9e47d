//! A running cluster: control over its components, collection of evidence, and shutdown.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use anyhow::Context;
use model::{Action, Artifacts, Cluster, ClusterInfo, Control, ControlError, ProfileInfo, StoreInfo};
use rustix::process::Signal;
use sys::deadline::{OnInterrupt, Probe, until};
use sys::interrupt;

use crate::auxiliary::Auxiliary;
use crate::component::{Component, LAST};
use crate::control_plane::ControlPlane;
use crate::host::{Host, Program, replace};
use crate::place::Root;
use crate::snapshot::Snapshots;
use crate::starts::Starts;
use crate::{component_names, control_plane, flags};

/// A memory snapshot that was saved: its size on disk, and how long the guest was stopped for it.
#[derive(Clone, Copy, Debug)]
pub struct Saved {
    pub bytes: u64,
    pub time: Duration,
}

/// A running cluster with the means to end it. Dropping it kills everything that still runs.
pub struct Booted {
    pub cluster: Cluster,
    /// Component name to the version it was built as.
    pub versions: BTreeMap<String, String>,
    /// The memory snapshot that this boot saved.
    pub saved: Option<Saved>,
    /// How its components reach a loopback port of this machine, if they can.
    pub host_forward: Option<HostForward>,
    owner: Arc<dyn ClusterOwner>,
}

/// The way from the components to this machine.
#[derive(Clone, Debug)]
pub enum HostForward {
    /// The components run on this machine.
    Here,
    /// A guest has one address for this machine. Connections to it go to the port that the file contains.
    Address { address: String, file: PathBuf },
}

impl HostForward {
    /// Forwards to a loopback port of this machine, instead of an earlier one. Returns the `HOST:PORT` that the
    /// components use for it.
    pub fn open(&self, port: u16) -> anyhow::Result<String> {
        match self {
            HostForward::Here => Ok(format!("127.0.0.1:{port}")),
            HostForward::Address { address, file } => {
                replace(file, port.to_string().as_bytes())?;
                Ok(address.clone())
            }
        }
    }
}

/// Operations that only the code which booted a cluster can do.
pub(crate) trait ClusterOwner: Send + Sync {
    /// See [`Booted::wake_all`].
    fn wake_all(&self, profiles: &[&String]) -> anyhow::Result<()>;
    /// See [`Booted::processor_time`].
    fn processor_time(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }
    /// See [`Booted::end`].
    fn end(&self, evidence: Option<&Path>) -> anyhow::Result<()>;
}

impl Booted {
    /// Combines what a provider has started. Adds the control planes' profiles to `info`.
    pub(crate) fn new(
        mut info: ClusterInfo,
        artifacts: &Artifacts,
        host: Arc<dyn Host>,
        planes: Vec<ControlPlane>,
        snapshot: Option<Snapshots>,
    ) -> Booted {
        let processes = Arc::new(Processes::new(&mut info, host, planes, snapshot));
        Booted::with(info, artifacts, processes)
    }

    /// `processes` has the control planes of all profiles in `info`, or expects them.
    pub(crate) fn with(info: ClusterInfo, artifacts: &Artifacts, processes: Arc<Processes>) -> Booted {
        let control: Arc<dyn Control> = processes.clone();
        Booted::of(Cluster { info, control: Some(control) }, artifacts, processes)
    }

    pub(crate) fn of(cluster: Cluster, artifacts: &Artifacts, owner: Arc<dyn ClusterOwner>) -> Booted {
        let versions = artifacts.by_component.values().map(|a| (a.component.clone(), a.version.clone())).collect();
        Booted { cluster, versions, saved: None, host_forward: None, owner }
    }

    /// Resumes all control planes, for a cluster that people use.
    pub fn wake_all(&self) -> anyhow::Result<()> {
        self.owner.wake_all(&self.cluster.info.profiles.keys().collect::<Vec<_>>())
    }

    /// The processor time so far, by part, in seconds: the starts of kube-apiserver until it was ready, its other work, that
    /// of the other components, measured where they run, and that of the harness.
    pub fn processor_time(&self) -> BTreeMap<String, f64> {
        let harness = sys::process::processor_time(rustix::process::getpid().as_raw_nonzero().get());
        let mut parts = self.owner.processor_time();
        parts.extend(harness.map(|time| ("harness".to_owned(), time.as_secs_f64())));
        parts
    }

    /// Ends everything. With `evidence`, it first stops the components in order, and copies every store's database file
    /// into that folder while no process writes to it.
    pub fn end(&self, evidence: Option<&Path>) -> anyhow::Result<()> {
        self.owner.end(evidence)
    }
}

impl ClusterOwner for Processes {
    fn wake_all(&self, profiles: &[&String]) -> anyhow::Result<()> {
        sys::side_by_side(profiles, control_plane::MAX_ACTIVE, |name| Ok(self.resume(name)?))?;
        Ok(())
    }

    fn processor_time(&self) -> BTreeMap<String, f64> {
        let mut parts: BTreeMap<String, f64> = BTreeMap::new();
        let mut add = |part: &str, time: Duration| *parts.entry(part.to_owned()).or_default() += time.as_secs_f64();
        for component in sys::lock(&self.components).values() {
            let time = component.processor_time();
            if component.is_apiserver() {
                add("starts of kube-apiserver", time.starting);
                add("kube-apiserver", time.all.saturating_sub(time.starting));
            } else {
                add(if component.is_store() { "stores" } else { "other components" }, time.all);
            }
        }
        // Not every place tells.
        if parts.values().all(|time| *time == 0.0) { BTreeMap::new() } else { parts }
    }

    fn end(&self, evidence: Option<&Path>) -> anyhow::Result<()> {
        let collected = match evidence {
            Some(into) => {
                self.stop();
                self.collect_stores(into)
            }
            // The stores are not needed, and an orderly stop of ten control planes takes eight seconds. The components of
            // a machine end when it is switched off.
            None if !self.is_machine => {
                let killed: Vec<_> = sys::lock(&self.components).values_mut().map(Component::kill).collect();
                killed.into_iter().collect()
            }
            None => Ok(()),
        };
        self.host.end();
        collected
    }
}

impl Processes {
    fn collect_stores(&self, into: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(into).with_context(|| format!("failed to create {}", into.display()))?;
        let places: Vec<Arc<Place>> = sys::lock(&self.places).values().cloned().collect();
        for place in places {
            let Place { host, data, .. } = &*place;
            data.iter().try_for_each(|(name, file)| host.fetch(file, &into.join(format!("{name}.db"))))?;
        }
        Ok(())
    }

    /// Stops all components in order: apiservers first, so that none reports a lost store.
    fn stop(&self) {
        let mut components = sys::lock(&self.components);
        let orphaned = components.values_mut().any(|c| c.is_store() && c.has_died());
        // An apiserver without its store ends only after its grace time. If profiles are suspended, all of them would
        // have to be resumed to end by themselves: more than a minute, and the stores would be the same afterwards.
        if orphaned || self.resting {
            for other in components.values_mut().filter(|c| !c.is_store()) {
                // A component that cannot be killed ends with its machine.
                let _ = other.kill();
            }
        }
        for component in components.values_mut() {
            let _ = component.signal(Signal::CONT);
        }
        // A relay stops after the apiserver that needs it.
        for order in (0..=LAST).rev() {
            let mut these: Vec<_> = components.values_mut().filter(|c| c.order() == order).collect();
            these.iter_mut().for_each(|component| component.ask_to_stop());
            for component in &mut these {
                let _ = component.stop();
            }
        }
    }
}

/// Prefix of a tool's name that selects the tool of this machine.
const NATIVE_TOOL: &str = "native/";

/// All components by name; implements control over them.
pub(crate) struct Processes {
    host: Arc<dyn Host>,
    /// Whether profiles are suspended while they are unused.
    resting: bool,
    /// Whether profiles can be suspended: those of a slow machine, and others after [`Processes::rest_when_ended`].
    can_rest: bool,
    /// The memory snapshot from which everything was restored.
    snapshot: Option<Snapshots>,
    /// By profile.
    places: Mutex<BTreeMap<String, Arc<Place>>>,
    pub(crate) starts: Starts,
    /// Whether the host is a VM.
    is_machine: bool,
    components: Mutex<BTreeMap<String, Component>>,
    /// Where the components log. They are not in the map while they are changed.
    logs: Mutex<BTreeMap<String, PathBuf>>,
    /// Held while an apiserver starts.
    start: Mutex<()>,
    /// How long an apiserver waits for another one to become ready; one that waits for its store never does.
    patience: Duration,
}

/// Where a profile runs.
struct Place {
    host: Arc<dyn Host>,
    /// Its private folder.
    folder: Root,
    auxiliary: Auxiliary,
    /// Names of the stores, and where each stores its data.
    data: Vec<(String, PathBuf)>,
}

/// See [`Processes::patience`]. Up to the factor 15 an apiserver starts within 40 s.
const PATIENCE: Duration = Duration::from_secs(180);
const PATIENT: f64 = 15.0;
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Processes {
    /// Adds the control planes' profiles to `info`. All of them run in `host`.
    pub(crate) fn new(
        info: &mut ClusterInfo,
        host: Arc<dyn Host>,
        planes: Vec<ControlPlane>,
        snapshot: Option<Snapshots>,
    ) -> Processes {
        info.profiles.extend(planes.iter().map(|plane| (plane.info.name.clone(), plane.info.clone())));
        let processes = Processes {
            host,
            resting: info.max_active.is_some(),
            can_rest: info.max_active.is_some(),
            snapshot,
            places: Mutex::default(),
            starts: Starts::default(),
            is_machine: info.machine.is_some(),
            components: Mutex::default(),
            logs: Mutex::default(),
            start: Mutex::default(),
            patience: PATIENCE.mul_f64((info.factor / PATIENT).max(1.0)),
        };
        planes.into_iter().for_each(|plane| processes.add(plane));
        processes
    }

    /// For control planes that nothing uses when their cases have ended: then they can be suspended.
    pub(crate) fn rest_when_ended(self) -> Processes {
        Processes { can_rest: true, ..self }
    }

    /// Adds a profile that has started.
    pub(crate) fn add(&self, plane: ControlPlane) {
        let ControlPlane { info, guest_path, components, auxiliary, data, host } = plane;
        let name = info.name.clone();
        let folder = Root { host_path: info.dir, guest_path };
        sys::lock(&self.places).insert(name.clone(), Arc::new(Place { host, folder, auxiliary, data }));
        let logs = components.iter().map(|component| (component.name.clone(), component.program.log.clone()));
        sys::lock(&self.logs).extend(logs);
        sys::lock(&self.components).extend(components.into_iter().map(|component| (component.name.clone(), component)));
        // The last step: from now on the profile is used.
        self.starts.end(&name);
    }

    fn place(&self, profile: &str) -> Option<Arc<Place>> {
        sys::lock(&self.places).get(profile).cloned()
    }

    /// Makes the apiservers of a slow machine start one after the other. This takes no longer than starting them in
    /// parallel, because a start is pure CPU work, and each start is then short. An apiserver that has not checked all
    /// Services a minute after it began to serve exits, and a first try that fails ("TLS handshake timeout", ten
    /// seconds) is not repeated within that minute:
    /// `PostStartHook "start-service-ip-repair-controllers" failed: unable to perform initial IP and Port allocation check`
    fn turn(&self, component: &Component) -> Option<MutexGuard<'_, ()>> {
        if !self.resting || !component.is_apiserver() {
            return None;
        }
        let what = "the starting apiserver to be ready";
        let turn = until(what, self.patience, LOOK_EVERY, OnInterrupt::Stop, || match self.start.try_lock() {
            Ok(turn) => Probe::Ready(turn),
            Err(TryLockError::Poisoned(turn)) => Probe::Ready(turn.into_inner()),
            Err(TryLockError::WouldBlock) => Probe::NotYet(String::new()),
        });
        turn.ok()
    }

    /// Takes a component out of the map. A case that was cut off releases a component that may still be starting.
    fn take(&self, component: &str, action: &Action) -> Option<Component> {
        let take = || sys::lock(&self.components).remove(component);
        if *action != Action::Release {
            return take();
        }
        let probe = || take().map_or_else(|| Probe::NotYet(String::new()), Probe::Ready);
        until(&format!("the start of {component}"), self.patience, LOOK_EVERY, OnInterrupt::Stop, probe).ok()
    }

    /// Runs `work` on the components of a profile. A no-op if profiles are never suspended here.
    fn with_profile(
        &self,
        profile: &str,
        work: impl FnOnce(std::slice::IterMut<'_, Component>) -> anyhow::Result<()>,
    ) -> Result<(), ControlError> {
        if !self.can_rest {
            return Ok(());
        }
        // Taken out of the map during the work, as in `apply`.
        let prefix = format!("{profile}/");
        let mut taken: Vec<Component> = {
            let mut all = sys::lock(&self.components);
            let names: Vec<String> = all.keys().filter(|name| name.starts_with(&prefix)).cloned().collect();
            names.iter().filter_map(|name| all.remove(name)).collect()
        };
        let result = work(taken.iter_mut());
        sys::lock(&self.components).extend(taken.into_iter().map(|component| (component.name.clone(), component)));
        result.map_err(|error| ControlError(format!("profile `{profile}`: {error:#}{}", self.drop_snapshot())))
    }

    /// Removes the snapshot: the health gate checked only the first of the suspended profiles, so a profile that does
    /// not resume may have been broken when it was saved.
    fn drop_snapshot(&self) -> &'static str {
        match &self.snapshot {
            Some(snapshot) if interrupt::check().is_ok() => {
                snapshot.remove();
                "; the memory snapshot from which it was restored was removed, so the next run boots without one"
            }
            _ => "",
        }
    }

    /// Fills the placeholders of the profile that has the component.
    fn filled(&self, component: &str, action: &Action) -> anyhow::Result<Action> {
        let Action::Restart { flags } = action else { return Ok(action.clone()) };
        let profile = component.split('/').next().unwrap_or_default();
        let on_host = component_names::short(component) == component_names::NATIVE;
        let filled = flags.iter().map(|(name, value)| Ok((name.clone(), self.fill(profile, value, on_host)?)));
        Ok(Action::Restart { flags: filled.collect::<anyhow::Result<_>>()? })
    }

    /// Fills placeholders with paths of this machine (`on_host`) or of the place where the components run.
    fn fill(&self, profile: &str, text: &str, on_host: bool) -> anyhow::Result<String> {
        let Some(place) = self.place(profile) else { return Ok(text.to_owned()) };
        let Place { folder, auxiliary, .. } = &*place;
        let folder = if on_host { &folder.host_path } else { &folder.guest_path };
        let text = auxiliary
            .apiservers
            .iter()
            .fold(text.to_owned(), |text, (name, url)| text.replace(&format!("{{apiserver.{name}}}"), url));
        flags::fill(&text, folder, &auxiliary.servers)
    }

    /// The tool, the place where it runs, and whether that is this machine.
    fn tool<'a>(place: &'a Place, tool: &str) -> Option<(&'a Program, &'a dyn Host, bool)> {
        let Place { host, auxiliary, .. } = place;
        match tool.strip_prefix(NATIVE_TOOL) {
            None => Some((auxiliary.tools.get(tool)?, &**host, false)),
            Some(tool) => auxiliary.native.as_ref().and_then(|n| Some((n.tools.get(tool)?, &*n.host, true))),
        }
    }

    /// Only [`Action::Stop`] accepts a component that ended by itself. The suite looks for such components ten times a
    /// second, so it would miss a crash right before a planned end.
    fn change(&self, component: &mut Component, action: &Action) -> anyhow::Result<()> {
        match action {
            Action::Stop => component.release(),
            Action::Kill => component.kill_running(),
            Action::Pause => component.signal(Signal::STOP),
            Action::Resume => component.signal(Signal::CONT),
            Action::Start => {
                let _turn = self.turn(component);
                component.start()
            }
            Action::StartWithout { variable } => {
                let _turn = self.turn(component);
                component.start_without(variable)
            }
            Action::Use => {
                let _turn = self.turn(component);
                component.start_or_resume()
            }
            Action::Release => component.signal(Signal::STOP),
            Action::Restart { flags } => {
                component.must_run()?;
                component.stop()?;
                component.change_flags(flags);
                let _turn = self.turn(component);
                component.start()
            }
            Action::ChangeProgram { program } => {
                component.must_run()?;
                component.stop()?;
                component.change_program(program)?;
                component.start()
            }
        }
    }
}

/// Creates the folder of a file.
fn make_folder(file: &Path) -> anyhow::Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    std::fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))
}

impl Control for Processes {
    fn components(&self) -> Vec<String> {
        sys::lock(&self.components).keys().cloned().collect()
    }

    fn started(&self, profile: &str) -> Result<Option<ProfileInfo>, ControlError> {
        self.starts.wait(profile)
    }

    fn apply(&self, component: &str, action: &Action) -> Result<(), ControlError> {
        // Taken out of the map while the action runs, so that one slow restart does not block the others.
        let mut taken = self
            .take(component, action)
            .ok_or_else(|| ControlError(format!("component `{component}` does not exist or is being changed")))?;
        let result = self.filled(component, action).and_then(|action| self.change(&mut taken, &action));
        sys::lock(&self.components).insert(component.to_owned(), taken);
        result.map_err(|error| ControlError(format!("{action:?} of {component}: {error:#}")))
    }

    fn write(&self, profile: &str, file: &str, content: &[u8]) -> Result<(), ControlError> {
        let place = self.place(profile).ok_or_else(|| ControlError(format!("no profile `{profile}`")))?;
        let (host_path, guest_path) = (place.folder.host_path.join(file), place.folder.guest_path.join(file));
        let written = place.host.write(&guest_path, content).and_then(|()| match host_path == guest_path {
            true => Ok(()),
            // The guest's path may be the same file under another name. A folder may exist only in the guest, because a
            // component made it.
            false => make_folder(&host_path).and_then(|()| replace(&host_path, content)),
        });
        written.map_err(|error| ControlError(format!("failed to write `{file}` of `{profile}`: {error:#}")))
    }

    fn run(&self, profile: &str, tool: &str, args: &[String], limit: Duration) -> Result<String, ControlError> {
        let place = self.place(profile);
        let found = place.as_deref().and_then(|place| Processes::tool(place, tool));
        let (program, host, on_host) =
            found.ok_or_else(|| ControlError(format!("profile `{profile}` has no tool `{tool}`")))?;
        let filled = args.iter().map(|arg| self.fill(profile, arg, on_host)).collect::<anyhow::Result<Vec<String>>>();
        let ran = filled.and_then(|args| host.run(program, args, limit));
        ran.map_err(|error| ControlError(format!("{tool} {}: {error:#}", args.join(" "))))
    }

    fn spare(&self, profile: &str) -> Option<StoreInfo> {
        self.place(profile)?.auxiliary.spare.clone()
    }

    fn native(&self, profile: &str) -> Option<StoreInfo> {
        Some(self.place(profile)?.auxiliary.native.as_ref()?.store.clone())
    }

    fn log(&self, component: &str) -> Result<String, ControlError> {
        let log = sys::lock(&self.logs).get(component).cloned();
        let log = log.ok_or_else(|| ControlError(format!("no component `{component}`")))?;
        match std::fs::read(&log) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            // In a guest, the component's first output creates the file.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(ControlError(format!("failed to read {}: {error}", log.display()))),
        }
    }

    fn resume(&self, profile: &str) -> Result<(), ControlError> {
        self.with_profile(profile, |components| control_plane::resume(components))
    }

    fn suspend(&self, profile: &str) -> Result<(), ControlError> {
        self.with_profile(profile, |components| control_plane::suspend(components))
    }

    fn first_failure(&self) -> Option<String> {
        self.host
            .first_failure()
            .or_else(|| self.starts.failure())
            .or_else(|| sys::lock(&self.components).values_mut().find_map(Component::first_failure))
    }
}
