//! A cluster that runs: control over its components, evidence, and its end.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use anyhow::Context;
use model::{Action, Artifacts, Cluster, ClusterInfo, Control, ControlError, StoreInfo};
use proc::deadline::{OnInterrupt, Probe, until};
use proc::interrupt;
use rustix::process::Signal;

use crate::beside::Beside;
use crate::component::{Component, LAST};
use crate::host::{Host, Program, replace};
use crate::plan::{ControlPlane, Root};
use crate::qemu::Snapshots;
use crate::{flags, members, plan};

/// A memory snapshot that was made: its size on disk, and how long the guest stood still for it.
#[derive(Clone, Copy, Debug)]
pub struct Saved {
    pub bytes: u64,
    pub time: Duration,
}

/// A running cluster and the power to end it. Dropping it kills what still runs.
pub struct Booted {
    pub cluster: Cluster,
    /// Component name to the version it was built as.
    pub versions: BTreeMap<String, String>,
    /// The memory snapshot that this boot has made.
    pub saved: Option<Saved>,
    /// How its components reach a port of this machine's loopback, where they can.
    pub way_out: Option<WayOut>,
    power: Arc<dyn Power>,
}

/// From the components to this machine.
#[derive(Clone, Debug)]
pub enum WayOut {
    /// They run on it.
    Here,
    /// A guest has one address for it; what is asked there goes to the port that the file names.
    Address { address: String, file: PathBuf },
}

impl WayOut {
    /// Opens the way to a port of this machine's loopback, in place of an earlier one, and gives the components'
    /// `HOST:PORT` for it.
    pub fn open(&self, port: u16) -> anyhow::Result<String> {
        match self {
            WayOut::Here => Ok(format!("127.0.0.1:{port}")),
            WayOut::Address { address, file } => {
                replace(file, port.to_string().as_bytes())?;
                Ok(address.clone())
            }
        }
    }
}

/// What only whoever booted a cluster can do with it.
pub(crate) trait Power: Send + Sync {
    /// See [`Booted::wake_all`].
    fn wake_all(&self, profiles: &[&String]) -> anyhow::Result<()>;
    /// See [`Booted::end`].
    fn end(&self, evidence: Option<&Path>) -> anyhow::Result<()>;
}

impl Booted {
    /// Puts together what a provider has started. The control planes' profiles are added to `info`.
    pub(crate) fn new(
        mut info: ClusterInfo,
        artifacts: &Artifacts,
        host: Arc<dyn Host>,
        planes: Vec<ControlPlane>,
        snapshot: Option<Snapshots>,
    ) -> Booted {
        let processes = Arc::new(Processes::new(&mut info, host, planes, snapshot));
        let control: Arc<dyn Control> = processes.clone();
        Booted::of(Cluster { info, control: Some(control) }, artifacts, processes)
    }

    pub(crate) fn of(cluster: Cluster, artifacts: &Artifacts, power: Arc<dyn Power>) -> Booted {
        let versions = artifacts.by_component.values().map(|a| (a.component.clone(), a.version.clone())).collect();
        Booted { cluster, versions, saved: None, way_out: None, power }
    }

    /// Lets all control planes run, for a cluster that people use.
    pub fn wake_all(&self) -> anyhow::Result<()> {
        self.power.wake_all(&self.cluster.info.profiles.keys().collect::<Vec<_>>())
    }

    /// Ends everything. With `evidence`, the components first end in order, and every store's database file is copied
    /// into that folder while nobody writes to it.
    pub fn end(&self, evidence: Option<&Path>) -> anyhow::Result<()> {
        self.power.end(evidence)
    }
}

impl Power for Processes {
    fn wake_all(&self, profiles: &[&String]) -> anyhow::Result<()> {
        proc::side_by_side(profiles, plan::AWAKE, |name| Ok(self.wake(name)?))?;
        Ok(())
    }

    fn end(&self, evidence: Option<&Path>) -> anyhow::Result<()> {
        let collected = match evidence {
            Some(into) => {
                self.stop();
                self.collect_stores(into)
            }
            None if !self.is_machine => {
                self.stop();
                Ok(())
            }
            // A machine that is switched off needs nobody to end in order.
            None => Ok(()),
        };
        self.host.end();
        collected
    }
}

impl Processes {
    fn collect_stores(&self, into: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(into).with_context(|| format!("failed to create {}", into.display()))?;
        for Place { host, data, .. } in self.places.values() {
            data.iter().try_for_each(|(name, file)| host.fetch(file, &into.join(format!("{name}.db"))))?;
        }
        Ok(())
    }

    /// Ends all components in order: apiservers first, so that none complains about a lost store.
    fn stop(&self) {
        let mut components = self.lock();
        let orphaned = components.values_mut().any(|c| c.is_store() && c.has_died());
        // An apiserver without its store does not end before its grace has passed. Where profiles rest, all of them would
        // have to be woken to end by themselves: more than a minute, for stores that are the same afterwards.
        if orphaned || self.resting {
            for other in components.values_mut().filter(|c| !c.is_store()) {
                // Whoever cannot be killed ends with its machine.
                let _ = other.kill();
            }
        }
        for component in components.values_mut() {
            let _ = component.signal(Signal::CONT);
        }
        // A relay goes after the apiserver that needs it.
        for order in (0..=LAST).rev() {
            let mut these: Vec<_> = components.values_mut().filter(|c| c.order() == order).collect();
            these.iter_mut().for_each(|component| component.ask_to_stop());
            for component in &mut these {
                let _ = component.stop();
            }
        }
    }
}

/// Before the name of a tool: the one of this machine.
const NATIVE_TOOL: &str = "native/";

/// All components by name; implements control over them.
pub(crate) struct Processes {
    host: Arc<dyn Host>,
    /// Whether profiles rest while nobody uses them.
    resting: bool,
    /// Where the memory snapshot lies from which everything was restored.
    snapshot: Option<Snapshots>,
    /// By profile.
    places: BTreeMap<String, Place>,
    /// Whether the host is a VM of its own.
    is_machine: bool,
    components: Mutex<BTreeMap<String, Component>>,
    /// Held by whoever starts an apiserver.
    start: Mutex<()>,
}

/// Where a profile is.
struct Place {
    host: Arc<dyn Host>,
    /// Its private folder.
    folder: Root,
    beside: Beside,
    /// Names of the stores and where each keeps its data.
    data: Vec<(String, PathBuf)>,
}

/// How long an apiserver waits for another one to be ready; one that waits for its store never is.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Processes {
    /// The control planes' profiles are added to `info`. `host` is what all of them are in.
    pub(crate) fn new(
        info: &mut ClusterInfo,
        host: Arc<dyn Host>,
        planes: Vec<ControlPlane>,
        snapshot: Option<Snapshots>,
    ) -> Processes {
        let mut components = BTreeMap::new();
        let mut places = BTreeMap::new();
        for ControlPlane { info: profile, there, components: these, beside, data, host } in planes {
            let folder = Root { here: profile.dir.clone(), there };
            places.insert(profile.name.clone(), Place { host, folder, beside, data });
            components.extend(these.into_iter().map(|component| (component.name.clone(), component)));
            info.profiles.insert(profile.name.clone(), profile);
        }
        Processes {
            host,
            resting: info.awake.is_some(),
            snapshot,
            places,
            is_machine: info.machine.is_some(),
            components: Mutex::new(components),
            start: Mutex::default(),
        }
    }

    /// Apiservers of a slow machine start one after the other. It takes no longer than side by side, because a start is
    /// nothing but work, and each is short then: one that has not checked all Services a minute after it began to serve
    /// ends itself, and a first try that fails ("TLS handshake timeout", ten seconds) is not repeated within that minute:
    /// `PostStartHook "start-service-ip-repair-controllers" failed: unable to perform initial IP and Port allocation check`
    fn turn(&self, component: &Component) -> Option<MutexGuard<'_, ()>> {
        if !self.resting || !component.is_apiserver() {
            return None;
        }
        let what = "the apiserver that starts to be ready";
        let turn = until(what, PATIENCE, LOOK_EVERY, OnInterrupt::Stop, || match self.start.try_lock() {
            Ok(turn) => Probe::Ready(turn),
            Err(TryLockError::Poisoned(turn)) => Probe::Ready(turn.into_inner()),
            Err(TryLockError::WouldBlock) => Probe::NotYet(String::new()),
        });
        turn.ok()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Component>> {
        self.components.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Does something with the components of a profile, if profiles rest here at all.
    fn with_profile(
        &self,
        profile: &str,
        work: impl FnOnce(std::slice::IterMut<'_, Component>) -> anyhow::Result<()>,
    ) -> Result<(), ControlError> {
        if !self.resting {
            return Ok(());
        }
        // Taken out while the work is done, as in `apply`.
        let prefix = format!("{profile}/");
        let mut taken: Vec<Component> = {
            let mut all = self.lock();
            let names: Vec<String> = all.keys().filter(|name| name.starts_with(&prefix)).cloned().collect();
            names.iter().filter_map(|name| all.remove(name)).collect()
        };
        let result = work(taken.iter_mut());
        self.lock().extend(taken.into_iter().map(|component| (component.name.clone(), component)));
        result.map_err(|error| ControlError(format!("profile `{profile}`: {error:#}{}", self.drop_snapshot())))
    }
}

impl Processes {
    /// The health gate asked the first of the resting profiles only: what does not wake may have been saved ill.
    fn drop_snapshot(&self) -> &'static str {
        match &self.snapshot {
            Some(snapshot) if interrupt::check().is_ok() => {
                snapshot.remove();
                "; the memory snapshot from which it was restored was dropped, the next run boots cold"
            }
            _ => "",
        }
    }
}

impl Processes {
    /// With the placeholders of the profile that has the component.
    fn filled(&self, component: &str, action: &Action) -> anyhow::Result<Action> {
        let Action::Restart { flags } = action else { return Ok(action.clone()) };
        let profile = component.split('/').next().unwrap_or_default();
        let here = members::short(component) == members::NATIVE;
        let filled = flags.iter().map(|(name, value)| Ok((name.clone(), self.fill(profile, value, here)?)));
        Ok(Action::Restart { flags: filled.collect::<anyhow::Result<_>>()? })
    }

    /// For a reader on this side, or where the components run.
    fn fill(&self, profile: &str, text: &str, here: bool) -> anyhow::Result<String> {
        let Some(Place { folder, beside, .. }) = self.places.get(profile) else { return Ok(text.to_owned()) };
        let folder = if here { &folder.here } else { &folder.there };
        flags::fill(text, folder, &beside.servers)
    }

    /// The tool, where it runs, and whether that is on this side.
    fn tool(&self, profile: &str, tool: &str) -> Option<(&Program, &dyn Host, bool)> {
        let Place { host, beside, .. } = self.places.get(profile)?;
        match tool.strip_prefix(NATIVE_TOOL) {
            None => Some((beside.tools.get(tool)?, &**host, false)),
            Some(tool) => beside.native.as_ref().and_then(|n| Some((n.tools.get(tool)?, &*n.host, true))),
        }
    }
}

impl Processes {
    fn change(&self, component: &mut Component, action: &Action) -> anyhow::Result<()> {
        match action {
            Action::Stop => component.stop(),
            Action::Kill => component.kill(),
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
            Action::Restart { flags } => {
                component.stop()?;
                flags::change(&mut component.flags, flags);
                let _turn = self.turn(component);
                component.start()
            }
        }
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
        let result = self.filled(component, action).and_then(|action| self.change(&mut taken, &action));
        self.lock().insert(component.to_owned(), taken);
        result.map_err(|error| ControlError(format!("{action:?} of {component}: {error:#}")))
    }

    fn write(&self, profile: &str, file: &str, content: &[u8]) -> Result<(), ControlError> {
        let place = self.places.get(profile).ok_or_else(|| ControlError(format!("no profile `{profile}`")))?;
        let (here, there) = (place.folder.here.join(file), place.folder.there.join(file));
        let written = place.host.write(&there, content).and_then(|()| match here == there {
            true => Ok(()),
            // Here may be there under another name.
            false => replace(&here, content),
        });
        written.map_err(|error| ControlError(format!("failed to write `{file}` of `{profile}`: {error:#}")))
    }

    fn run(&self, profile: &str, tool: &str, args: &[String]) -> Result<String, ControlError> {
        let found = self.tool(profile, tool);
        let (program, host, here) =
            found.ok_or_else(|| ControlError(format!("profile `{profile}` has no tool `{tool}`")))?;
        let filled = args.iter().map(|arg| self.fill(profile, arg, here)).collect::<anyhow::Result<Vec<String>>>();
        let ran = filled.and_then(|args| host.run(program, args));
        ran.map_err(|error| ControlError(format!("{tool} {}: {error:#}", args.join(" "))))
    }

    fn spare(&self, profile: &str) -> Option<StoreInfo> {
        self.places.get(profile)?.beside.spare.clone()
    }

    fn native(&self, profile: &str) -> Option<StoreInfo> {
        Some(self.places.get(profile)?.beside.native.as_ref()?.store.clone())
    }

    fn log(&self, component: &str) -> Result<String, ControlError> {
        let components = self.lock();
        let found = components.get(component).ok_or_else(|| ControlError(format!("no component `{component}`")))?;
        match std::fs::read(&found.program.log) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            // In a guest the first words make it.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(ControlError(format!("failed to read {}: {error}", found.program.log.display()))),
        }
    }

    fn wake(&self, profile: &str) -> Result<(), ControlError> {
        self.with_profile(profile, |components| plan::wake(components))
    }

    fn rest(&self, profile: &str) -> Result<(), ControlError> {
        self.with_profile(profile, |components| plan::rest(components))
    }

    fn casualty(&self) -> Option<String> {
        self.host.casualty().or_else(|| self.lock().values_mut().find_map(Component::casualty))
    }
}
