//! The provider `qemu`: all control planes of a run in one system VM of the target's architecture.
//!
//! A guest boots cold, from a kernel and a generated initramfs, or warm, from a memory snapshot of an earlier cold boot
//! with the same inputs. The caller provides QEMU and the kernel: see [`model::MachineFiles`].

mod accelerator;
mod backlog;
mod baseline;
mod calibration;
mod console;
mod cpio;
mod facts;
mod fingerprint;
mod guest;
mod initramfs;
pub(crate) mod qmp;
pub(crate) mod shell;
mod vm;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use model::{Artifact, Artifacts, ClusterInfo, Machine, MachineFiles, MachineInfo, Profile, StoreKind, Target};
use sys::progress::{Phase, elapsed};
use sys::{RunDir, interrupt};

use crate::Topology;
use crate::booted::{Booted, Saved};
use crate::component_names;
use crate::control_plane::{ControlPlane, PlannedControlPlane, max_active, resume, suspend};
use crate::execution::numbers;
use crate::host::Host;
use crate::node;
use crate::pki::{self, Pki};
use crate::place::{NodeRequest, Place, PortMapping, Root};
use crate::plan::Plan;
use crate::snapshot::{self, Snapshot, Snapshots};

use guest::Guest;
use vm::{Begin, Hardware, Vm};

pub use crate::snapshot::FOLDER as SNAPSHOTS;
pub use accelerator::{Accelerator, NoKvm, accelerator, kvm, probed, remembered};
pub use baseline::{baseline, baseline_restore};
pub use shell::{Keys, Said, Shell, ShellRequest, ShellTerminal, shell};

/// The run's private folder in the guest.
const ROOT: &str = "/run/archproof";
/// First port in the guest, below the range of outgoing connections.
const FIRST_PORT: u16 = 10_000;
/// From power-on to init: 5 s on the development machine, more if several guests share one.
const BOOT: Duration = Duration::from_secs(300);
/// A booting kernel prints a line every few seconds.
const SILENCE: Duration = Duration::from_secs(90);
/// The timers of a healthy guest fire within milliseconds, also right after a restore; on a busy host it takes longer.
const TIMERS: Duration = Duration::from_secs(10);
/// How late timers of components on a slow machine may fire, so that one wake-up serves many. Measured on an idle
/// control plane, in CPUs: 0.55 with the kernel's 50 µs, 0.41 with 5 ms, 0.38 with 20 ms, 0.31 with 100 ms; and, after
/// etcd stopped sending progress notifications every 5 s, 0.21 with 20 ms, 0.20 with 50 ms, 0.17 with 100 ms, 0.16 with
/// 250 ms.
const LATE: Duration = Duration::from_millis(100);
/// How long a running component keeps its CPU: a switch to another process is expensive for an emulated CPU.
const SLICE: Duration = Duration::from_millis(20);
/// Path in the guest.
const BUSYBOX: &str = "/bin/busybox";
const PORT_ATTEMPTS: usize = 5;
/// The oldest QEMU whose restored guests are healthy.
pub const SAVES: &str = "11.1";
/// Some machines require memory in multiples of this.
const MEMORY_UNIT: u32 = 256;

/// The inputs of a VM.
pub struct Request<'a> {
    pub target: &'a Target,
    /// Includes the guest's first process, the component `init`.
    pub artifacts: &'a Artifacts,
    pub files: &'a MachineFiles,
    pub topology: &'a Topology,
    pub accelerator: &'a Accelerator,
    /// Snapshots are stored in a folder below it.
    pub cache: &'a Path,
    /// Neither use nor create a snapshot.
    pub cold: bool,
}

/// Boots a VM with a control plane for every profile. If this fails, no process is left.
pub fn up(request: &Request<'_>, run: &RunDir) -> anyhow::Result<Booted> {
    tls::install();
    let target = request.target;
    let phase = Phase::start(format!("boot {}", target.name));
    let job = Job::of(request, run, &phase)?;
    let mut notes = Vec::new();
    let cold = request.cold || !job.can_be_saved(&mut notes);
    let warm = if cold { None } else { job.warm(&mut notes)? };
    let up = match warm {
        Some(up) => up,
        None => job.cold(!cold, &mut notes)?,
    };
    interrupt::check()?;
    let info = job.info(&up, notes);
    let snapshot = if up.warm { Some(job.snapshots()?) } else { None };
    let how = if up.warm { "warm" } else { "cold" };
    phase.done(&format!(
        "{} control planes ready, {}, {how}, factor {:.1}",
        up.planes.len(),
        info.execution,
        info.factor
    ));
    let mut booted = Booted::new(info, request.artifacts, up.host, up.planes, snapshot);
    booted.saved = up.saved;
    booted.host_forward = Some(vm::host_forward(run)?);
    Ok(booted)
}

/// One boot, which may be warm, cold, or both in turn.
struct Job<'a> {
    request: &'a Request<'a>,
    machine: &'a Machine,
    run: &'a RunDir,
    memory_mib: u32,
    phase: &'a Phase,
}

/// A guest with running components.
struct Up {
    host: Arc<dyn Host>,
    planes: Vec<ControlPlane>,
    factor: f64,
    warm: bool,
    time: Duration,
    saved: Option<Saved>,
    facts: model::Hardware,
}

impl<'a> Job<'a> {
    fn of(request: &'a Request<'a>, run: &'a RunDir, phase: &'a Phase) -> anyhow::Result<Job<'a>> {
        let machine = request.target.machine.as_ref();
        let machine = machine.ok_or_else(|| anyhow!("{} has no `machine:` in its target file", request.target.name))?;
        Ok(Job { request, machine, run, memory_mib: memory(machine, request.topology), phase })
    }

    fn root(&self) -> Root {
        Root { host_path: self.run.private().to_owned(), guest_path: PathBuf::from(ROOT) }
    }

    /// Older versions of QEMU restore guests whose timers never fire: on three of five architectures, with two CPUs.
    fn can_be_saved(&self, notes: &mut Vec<String>) -> bool {
        let version = &self.request.files.emulator.version;
        let new_enough = saves(version);
        if !self.machine.warm {
            notes.push("no memory snapshot: the target file says that restored guests are not healthy".into());
            return false;
        }
        if !new_enough {
            notes.push(format!("no memory snapshot: QEMU {version} is older than {SAVES}, see --qemu"));
        }
        new_enough
    }

    /// None, with a note, if no snapshot restores a healthy guest.
    fn warm(&self, notes: &mut Vec<String>) -> anyhow::Result<Option<Up>> {
        let place = self.snapshots()?;
        let tried = match place.find() {
            Ok(None) => return Ok(None),
            Ok(Some(snapshot)) => self.restore(&snapshot),
            Err(error) => Err(error),
        };
        match tried {
            Ok(up) => Ok(Some(up)),
            Err(error) => {
                interrupt::check()?;
                place.remove();
                let note = format!("the memory snapshot was removed and the guest boots cold: {error:#}");
                sys::progress::say(&format!("boot {}: {note}", self.request.target.name));
                notes.push(note);
                Ok(None)
            }
        }
    }

    fn restore(&self, snapshot: &Snapshot) -> anyhow::Result<Up> {
        let begin = Instant::now();
        self.phase.status("restoring the guest's memory");
        snapshot.unpack(self.run)?;
        std::thread::scope(|scope| {
            let intact = scope.spawn(|| snapshot.verify());
            let (guest, port_mappings) = self.start(Begin::Restored)?;
            let state = snapshot.state().display().to_string();
            sys::lock(&guest.vm().qmp).restore(&state)?;
            let restarted = match self.machine.lost_timers {
                Some(_) => guest.restart_timers(),
                None => guest.set_clock(),
            };
            restarted.and_then(|()| guest.check_timers(TIMERS)).context("the restored guest is not healthy")?;
            let host: Arc<dyn Host> = Arc::new(guest.host());
            let factor = snapshot.factor();
            let pki = pki::existing(self.run);
            let mut planes = self.with_plan(&pki, factor, &host, &port_mappings, |plan| {
                let planned = self.planned(plan)?;
                planned.into_iter().map(PlannedControlPlane::adopt).collect::<anyhow::Result<Vec<_>>>()
            })?;
            self.phase.status("probing the restored components");
            answering(&mut planes, max_active(factor).is_some())?;
            let time = begin.elapsed();
            intact.join().map_err(|_| anyhow!("the verification of the snapshot panicked"))??;
            let facts = self.facts(&guest)?;
            Ok(Up { host, planes, factor, warm: true, time, saved: None, facts })
        })
    }

    fn cold(&self, save: bool, notes: &mut Vec<String>) -> anyhow::Result<Up> {
        let begin = Instant::now();
        self.phase.status(format!("booting the kernel ({})", self.execution()));
        // A failed warm boot has left some files.
        snapshot::clear(self.run, &self.folders());
        let identities = self.request.topology.node.as_ref().map_or(&[][..], |node| &node.node.identities);
        let pki = pki::create(self.run, identities)?;
        let initramfs = self.run.private_dir(vm::FOLDER)?.join("initramfs");
        let on_disk = self.request.topology.node.is_some();
        initramfs::write(&initramfs, self.request.files, self.request.artifacts, on_disk)?;
        let (guest, port_mappings) = self.start(Begin::Cold(&initramfs))?;
        guest.wait_for_agent(BOOT, SILENCE)?;
        // QEMU has read it by now.
        std::fs::remove_file(&initramfs).ok();
        guest.set_clock()?;
        self.phase.status("running the components' --version in the guest");
        let factor = match self.machine.factor {
            Some(factor) => f64::from(factor),
            None => self.calibrate(&guest)?,
        };
        if max_active(factor).is_some() {
            guest.set_timer_slack(LATE, SLICE)?;
        }
        let host: Arc<dyn Host> = Arc::new(guest.host());
        self.phase.status(format!("starting {} control planes", self.request.topology.profiles.len()));
        let planes = self.with_plan(&pki, factor, &host, &port_mappings, |plan| {
            let planned = self.planned(plan)?;
            self.send_files(&guest)?;
            let planned: Vec<_> = planned.into_iter().map(|draft| Mutex::new(Some(draft))).collect();
            sys::side_by_side(&planned, plan.place.width, |draft| {
                let draft = sys::lock(draft).take();
                let draft = draft.ok_or_else(|| anyhow!("a profile was started twice"))?;
                let name = draft.plane.info.name.clone();
                draft
                    .start(max_active(factor).is_some(), save, &mut Vec::new())
                    .with_context(|| format!("failed to start the profile `{name}`"))
            })
        });
        let planes = planes.map_err(|error| match host.first_failure() {
            Some(cause) => error.context(format!("the guest is lost: {cause}")),
            None => error,
        })?;
        let time = begin.elapsed();
        let mut saved = None;
        if save {
            match self.save(&guest, factor) {
                Ok(bytes) => {
                    let time = begin.elapsed() - time;
                    saved = Some(Saved { bytes, time });
                    sys::progress::say(&format!(
                        "boot {}: memory snapshot saved, {} MiB, in {}",
                        self.request.target.name,
                        bytes >> 20,
                        elapsed(time)
                    ));
                }
                Err(error) => {
                    interrupt::check()?;
                    // The guest must continue even if saving it failed.
                    sys::lock(&guest.vm().qmp).resume()?;
                    guest.set_clock()?;
                    let note = format!("failed to create a memory snapshot: {error:#}");
                    sys::progress::say(&format!("boot {}: {note}", self.request.target.name));
                    notes.push(note);
                }
            }
        }
        let facts = self.facts(&guest)?;
        Ok(Up { host, planes, factor, warm: false, time, saved, facts })
    }

    /// Starts QEMU. Tries again with other ports if one was taken between its choice and its use.
    fn start(&self, begin: Begin<'_>) -> anyhow::Result<(Guest, BTreeMap<String, PortMapping>)> {
        let mut attempt = 1;
        loop {
            let port_mappings = self.port_mappings()?;
            let outer: Vec<PortMapping> = port_mappings.values().copied().filter(|door| door.outside != 0).collect();
            match Vm::start(&self.hardware(), begin, &outer, self.run) {
                Ok((vm, ports)) => return Ok((Guest::new(vm, ports)?, port_mappings)),
                Err(error) if vm::lost_a_port(&error) && attempt < PORT_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn hardware(&self) -> Hardware<'_> {
        let accelerator = &self.request.accelerator.name;
        let cpu = if accelerator == accelerator::KVM { "host" } else { &self.machine.qemu.cpu };
        let Request { files, .. } = self.request;
        let disk = self.request.topology.node.as_ref().map(|node| node.disk.as_path());
        Hardware { machine: self.machine, files, memory_mib: self.memory_mib, accelerator, cpu, disk }
    }

    /// A port for every listener. Peer ports are reachable only inside the guest.
    fn port_mappings(&self) -> anyhow::Result<BTreeMap<String, PortMapping>> {
        let mut port_mappings = BTreeMap::new();
        let Topology { profiles, node } = self.request.topology;
        let of_node = node.iter().flat_map(|request| node::listeners(&request.node));
        for (name, inside) in component_names::listeners(profiles).into_iter().chain(of_node).zip(FIRST_PORT..) {
            let outside = if name.ends_with("/peer") { 0 } else { sys::ports::free()? };
            port_mappings.insert(name, PortMapping { inside, outside });
        }
        Ok(port_mappings)
    }

    fn with_plan<T>(
        &self,
        pki: &Pki,
        factor: f64,
        host: &Arc<dyn Host>,
        port_mappings: &BTreeMap<String, PortMapping>,
        then: impl FnOnce(&Plan<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let door = |name: &str| port_mappings.get(name).copied().ok_or_else(|| anyhow!("{name} has no port"));
        let command = |artifact: &Artifact| self.command(artifact);
        let place = Place {
            host: host.clone(),
            factor,
            listen: "0.0.0.0",
            root: self.root(),
            port_mappings: &door,
            command: &command,
            width: usize::from(self.machine.cpus),
        };
        let Request { target, artifacts, .. } = self.request;
        then(&Plan { target, artifacts, pki, run: self.run, place, node: self.request.topology.node.as_ref() })
    }

    /// Runs a store on one CPU only. An emulated CPU loses all translated addresses, and the locations of its
    /// translated code, when it switches between processes. An apiserver and its store take turns in every request;
    /// with the stores on one CPU the suite takes a fifth less of the host's CPU time. Apiservers may run on all CPUs:
    /// they have twice the work of stores.
    fn command(&self, artifact: &Artifact) -> (PathBuf, Vec<String>) {
        let program = initramfs::program(artifact);
        let (component, _) = model::component_of(&artifact.component);
        let free = !StoreKind::has_program(component) || self.request.accelerator.name == accelerator::KVM;
        if free || self.machine.cpus < 2 {
            return (program, Vec::new());
        }
        (BUSYBOX.into(), ["taskset", "2", &program.display().to_string()].map(str::to_owned).to_vec())
    }

    fn planned(&self, plan: &Plan<'_>) -> anyhow::Result<Vec<PlannedControlPlane>> {
        self.request.topology.profiles.iter().map(|profile| plan.control_plane(profile, 1)).collect()
    }

    /// Copies keys and the profiles' files into the guest.
    fn send_files(&self, guest: &Guest) -> anyhow::Result<()> {
        let root = self.root();
        self.files()?.iter().try_for_each(|(path, content)| guest.agent.write(&root.in_guest(path), 0o600, content))
    }

    /// Keys and the profiles' files, by their path on this machine.
    fn files(&self) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
        let mut files = Vec::new();
        let mut folders = vec![self.run.private().join("pki")];
        folders.extend(self.request.topology.profiles.iter().map(|p| self.run.private().join(&p.name)));
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("kubeconfig") {
                    let content = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
                    files.push((path, content));
                }
            }
        }
        Ok(files)
    }

    /// The folders below the run's private folder whose content is in the guest's memory.
    fn folders(&self) -> Vec<String> {
        self.request.topology.profiles.iter().map(|p| p.name.clone()).chain(["pki".to_owned()]).collect()
    }

    fn save(&self, guest: &Guest, factor: f64) -> anyhow::Result<u64> {
        self.phase.status("saving the guest's memory");
        let place = self.snapshots()?;
        let draft = place.draft()?;
        guest.trim()?;
        let mut qmp = sys::lock(&guest.vm().qmp);
        qmp.save(&snapshot::state_of(&draft).display().to_string(), self.machine.lost_timers.as_ref())?;
        let size = place.save(draft, self.run, &self.folders(), factor)?;
        qmp.resume()?;
        drop(qmp);
        guest.set_clock()?;
        Ok(size)
    }

    fn snapshots(&self) -> anyhow::Result<Snapshots> {
        let Request { target, artifacts, files, topology, .. } = self.request;
        let mut inputs = vec![files.digest.clone(), files.emulator.version.clone()];
        inputs.extend(artifacts.by_component.values().map(|a| fingerprint::program(a, &self.command(a))));
        inputs.extend(self.hardware().arguments());
        inputs.push(format!("{:?} {:?}", target.component_env, self.machine.factor));
        inputs.push(component_names::listeners(&topology.profiles).join(" "));
        for profile in &topology.profiles {
            inputs.push(serde_json::to_string(profile)?);
            inputs.push(fingerprint::of(profile)?);
        }
        if let Some(node) = &topology.node {
            inputs.push(format!("{} {}", node.key, serde_json::to_string(&node.node)?));
        }
        if self.request.accelerator.name == accelerator::KVM {
            // A guest with the host's own CPU model does not run on another CPU.
            inputs.push(std::fs::read_to_string("/proc/cpuinfo").map(|text| cpu_model(&text)).unwrap_or_default());
        }
        let names: Vec<&str> = topology.profiles.iter().map(|p| p.name.as_str()).collect();
        Ok(Snapshots::new(self.request.cache, format!("{} {}", target.name, names.join(",")), &inputs))
    }

    fn execution(&self) -> String {
        let Request { files, accelerator, .. } = self.request;
        format!("QEMU {}, {}", files.emulator.version, accelerator.name)
    }

    fn info(&self, up: &Up, notes: Vec<String>) -> ClusterInfo {
        let Request { target, files, accelerator, .. } = self.request;
        let machine = MachineInfo {
            emulator: format!("QEMU {} ({})", files.emulator.version, files.emulator.origin),
            accelerator: accelerator.name.clone(),
            reason: accelerator.reason.clone(),
            kernel: files.release.clone(),
            cpus: self.machine.cpus,
            memory_mib: self.memory_mib,
            warm: up.warm,
            seconds: up.time.as_secs_f64(),
            notes,
            packages: files.packages.clone(),
        };
        ClusterInfo {
            arch: target.name.clone(),
            byte_order: Some(target.elf.byte_order),
            provider: "qemu".into(),
            execution: self.execution(),
            factor: up.factor,
            max_active: max_active(up.factor),
            external: None,
            node: self.request.topology.node.as_ref().map(NodeRequest::info),
            profiles: BTreeMap::new(),
            machine: Some(machine),
            hardware: Some(up.facts.clone()),
        }
    }
}

/// Whether guests restored by this version of QEMU are healthy.
pub fn saves(version: &str) -> bool {
    numbers(version) >= numbers(SAVES)
}

/// MiB of memory for the guest with these profiles.
pub fn memory(machine: &Machine, topology: &Topology) -> u32 {
    // A kube-controller-manager takes about as much memory as an apiserver, a kube-scheduler less.
    let of = |profile: &Profile| {
        u32::from(profile.apiservers) + u32::from(!profile.controllers.is_empty()) + u32::from(profile.scheduler)
    };
    let apiservers: u32 = topology.profiles.iter().map(of).sum();
    // Variants have no store of their own, and few of them run at a time. One may add a program to the guest's memory.
    let variants: usize = topology.profiles.iter().map(|p| p.variants.len() + usize::from(p.previous.is_some())).sum();
    let variants = u32::try_from(variants).unwrap_or(u32::MAX).saturating_mul(machine.memory.profile / 2);
    let node = topology.node.as_ref().map_or(0, |node| node.node.memory);
    let planes = machine.memory.profile.saturating_mul(apiservers).saturating_add(machine.memory.base);
    planes.saturating_add(variants).saturating_add(node).next_multiple_of(MEMORY_UNIT)
}

/// Waits until every component is ready, which also shows that the store behind an apiserver answers. If profiles are
/// suspended it probes only the first: resuming one takes seconds, and each is probed when it is resumed for its first
/// check.
fn answering(planes: &mut [ControlPlane], resting: bool) -> anyhow::Result<()> {
    let asked = if resting { 1 } else { planes.len() };
    for plane in planes.iter_mut().take(asked) {
        resume(plane.components.iter_mut())?;
        if resting {
            suspend(plane.components.iter_mut())?;
        }
    }
    Ok(())
}

fn cpu_model(cpuinfo: &str) -> String {
    let wanted =
        |line: &&str| ["model name", "flags", "Features", "isa", "cpu\t"].iter().any(|key| line.starts_with(key));
    cpuinfo.lines().filter(wanted).take(2).collect()
}
