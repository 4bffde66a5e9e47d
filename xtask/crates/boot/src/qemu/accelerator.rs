//! Chooses the guest's accelerator: KVM if a real guest runs under it, otherwise QEMU's own emulation.
//!
//! An open /dev/kvm proves nothing: in a nested machine it may open and create guests that all die with "KVM internal
//! error. Suberror: 1". So the probe boots a kernel, once per boot of the host; the kernel finds no root and gives up.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use model::{Machine, MachineFiles, Target};
use serde::{Deserialize, Serialize};
use sys::deadline::{OnInterrupt, Probe, WaitError, until};
use sys::progress::Phase;
use sys::{Daemon, Scratch, Spec, daemon::tail};

/// Values of `-accel`.
pub(crate) const KVM: &str = "kvm";
const TCG: &str = "tcg";
const DEVICE: &str = "/dev/kvm";
/// Limits for the kernel's first line, and for its boot up to the missing root. A working KVM takes one second for
/// both. With a broken one a guest died after seven.
const LIMITS: Limits = Limits { words: Duration::from_secs(15), boot: Duration::from_secs(30) };
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// init/version-timestamp.c and init/do_mounts.c of Linux: its first line, and its last line without a root.
const FIRST_WORDS: &str = "Linux version";
const LAST_WORDS: &str = "not syncing: VFS: Unable to mount root fs";
const PANIC: &str = "Kernel panic - not syncing";
/// After these messages QEMU continues with a guest that is stopped forever.
const DEAD: [&str; 2] = ["KVM internal error", "error: kvm run failed"];
/// Names of files in the probe's folder.
const CONSOLE: &str = "console";
const LOG: &str = "log";
/// How many lines of both files are searched.
const LINES: usize = 2000;

/// The accelerator that executes the guest's instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerator {
    /// `kvm` or `tcg`, as `-accel` takes it.
    pub name: String,
    /// Why it was chosen.
    pub reason: String,
}

/// Why KVM cannot be used at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {cure}")]
pub struct NoKvm {
    pub reason: String,
    pub cure: String,
}

/// The result of an earlier probe.
#[derive(Debug, Serialize, Deserialize)]
struct Known {
    /// Everything that the result depends on.
    key: Vec<String>,
    accelerator: Accelerator,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    words: Duration,
    boot: Duration,
}

/// Like [`probed`], and prints the choice if the guest has the host's own architecture.
///
/// # Errors
/// As for [`probed`].
pub fn accelerator(host: &Target, target: &Target, files: &MachineFiles, cache: &Path) -> anyhow::Result<Accelerator> {
    let phase = Phase::start(format!("boot {}: KVM", target.name));
    let chosen = probed(host, target, files, cache)?;
    if host.name == target.name {
        let word = if chosen.name == KVM { "used" } else { "not used" };
        phase.done(&format!("{word}, {}", chosen.reason));
    }
    Ok(chosen)
}

/// The accelerator for guests of `target` on `host`. `cache` keeps the result of a probe until the host reboots.
///
/// # Errors
/// Only an interrupt; any other failure is a reason not to use KVM.
pub fn probed(host: &Target, target: &Target, files: &MachineFiles, cache: &Path) -> anyhow::Result<Accelerator> {
    let Some(machine) = target.machine.as_ref().filter(|_| host.name == target.name) else {
        return Ok(tcg("the guest is of another architecture than the host"));
    };
    if target.selected().is_some_and(|variant| variant.machine_cpu.is_some()) {
        return Ok(tcg("the processor of the variant is emulated"));
    }
    if let Err(no) = kvm() {
        return Ok(tcg(no));
    }
    let arguments = arguments(machine, files);
    let key = key(files, &arguments);
    let file = remembered(cache, target);
    if let Some(chosen) = recall(&file, &key) {
        return Ok(chosen);
    }
    let chosen = match try_guest(files, &arguments, cache, LIMITS) {
        Ok(()) => Accelerator { name: KVM.into(), reason: "a guest was tried and runs".into() },
        Err(error) => {
            sys::interrupt::check()?;
            tcg(format!("a guest was tried under KVM and failed: {error:#}"))
        }
    };
    // If this fails, the next run only repeats the probe.
    let _ = remember(&file, Known { key, accelerator: chosen.clone() });
    Ok(chosen)
}

/// The file with the result of a probe; without it the next run probes again.
pub fn remembered(cache: &Path, target: &Target) -> PathBuf {
    cache.join(KVM).join(format!("{}.json", target.name))
}

/// Whether this user may use KVM at all. It does not show whether guests run.
pub fn kvm() -> Result<(), NoKvm> {
    opens(Path::new(DEVICE))
}

fn opens(device: &Path) -> Result<(), NoKvm> {
    let Err(error) = OpenOptions::new().read(true).write(true).open(device) else { return Ok(()) };
    let shown = device.display();
    let cure = match error.kind() {
        ErrorKind::NotFound => {
            "load the module kvm_intel, kvm_amd or kvm (`sudo modprobe …`); in a virtual machine its own host must allow \
             nested virtualisation, and a container must have the device"
                .to_owned()
        }
        ErrorKind::PermissionDenied => {
            format!("`sudo usermod -aG kvm $USER` and log in again, or `sudo chmod 666 {shown}`")
        }
        _ => "see `dmesg | grep -i kvm`; the firmware may have disabled virtualisation".to_owned(),
    };
    Err(NoKvm { reason: format!("{shown} cannot be opened ({error})"), cure })
}

fn tcg(reason: impl std::fmt::Display) -> Accelerator {
    Accelerator { name: TCG.into(), reason: reason.to_string() }
}

/// QEMU's arguments: the target's machine without a guest system.
fn arguments(machine: &Machine, files: &MachineFiles) -> Vec<String> {
    let memory = format!("{}M", machine.memory.base.next_multiple_of(super::MEMORY_UNIT));
    let cpus = machine.cpus.to_string();
    let kernel = files.kernel.display().to_string();
    let append = format!("console={} panic=-1 loglevel=7", machine.console);
    let file = format!("file,id={CONSOLE},path={CONSOLE}");
    let serial = format!("chardev:{CONSOLE}");
    let pairs = [
        ("-machine", machine.qemu.machine.as_str()),
        ("-accel", KVM),
        ("-cpu", "host"),
        ("-smp", &cpus),
        ("-m", &memory),
        ("-kernel", &kernel),
        ("-append", &append),
        ("-chardev", &file),
        ("-serial", &serial),
        ("-display", "none"),
    ];
    let pairs = pairs.iter().flat_map(|(flag, value)| [*flag, *value]);
    let all = pairs.chain(["-nodefaults", "-no-reboot", "-no-user-config"]).map(str::to_owned);
    all.chain(machine.qemu.arguments.iter().cloned()).collect()
}

fn key(files: &MachineFiles, arguments: &[String]) -> Vec<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let user = rustix::process::getuid().as_raw().to_string();
    let files = [files.emulator.version.clone(), files.digest.clone()];
    [boot.trim().to_owned(), user].into_iter().chain(files).chain(arguments.iter().cloned()).collect()
}

fn recall(file: &Path, key: &[String]) -> Option<Accelerator> {
    let known: Known = serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()?;
    (known.key == key).then_some(known.accelerator)
}

fn remember(file: &Path, known: Known) -> anyhow::Result<()> {
    let folder = file.parent().context("the file has no folder")?;
    sys::run_dir::make_private_dir(folder)?;
    // Another run may read or write it at the same time.
    let draft = file.with_extension(format!("{}.part", sys::process::unique_name()));
    sys::run_dir::write_private_file(&draft, &serde_json::to_vec(&known)?)?;
    Ok(std::fs::rename(&draft, file)?)
}

/// Boots the kernel until it needs a root. No process is left, whatever the result.
fn try_guest(files: &MachineFiles, arguments: &[String], cache: &Path, limits: Limits) -> anyhow::Result<()> {
    let scratch = Scratch::create(cache, KVM)?;
    let (console, log) = (scratch.path().join(CONSOLE), scratch.path().join(LOG));
    // QEMU creates it again; until then `tail` must not find a missing file.
    File::create(&console)?;
    let mut command = files.emulator.command.iter().cloned();
    let mut qemu = Daemon::start(Spec {
        name: "qemu".into(),
        program: PathBuf::from(command.next().context("the emulator has no command")?),
        args: command.chain(arguments.iter().cloned()).collect(),
        env: BTreeMap::new(),
        dir: Some(scratch.path().to_owned()),
        log: log.clone(),
        process_registry: scratch.process_registry(),
    })?;
    let begin = Instant::now();
    let waited = until("a guest's kernel", limits.boot, LOOK_EVERY, OnInterrupt::Stop, || {
        let ended = qemu.ended().map(|status| status.to_string());
        let late = begin.elapsed() > limits.words;
        look(&tail(&console, LINES), &said(&tail(&log, LINES), files), ended.as_deref(), late)
    });
    match waited {
        // Only the last observation explains the failure.
        Err(WaitError::TimedOut { waited, last, .. }) => Err(anyhow!("{last} within {} s", waited.as_secs())),
        other => Ok(other?),
    }
}

/// Judges a guest by its console and QEMU's log; `late` if its kernel should have printed something by now.
fn look(console: &str, log: &str, ended: Option<&str>, late: bool) -> Probe<()> {
    let line = |text: &str| console.lines().chain(log.lines()).find(|line| line.contains(text)).map(str::trim);
    let last = |text: &str| text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").trim().to_owned();
    if let Some(dead) = DEAD.iter().find_map(|text| line(text)) {
        return Probe::Hopeless(anyhow!("{dead}"));
    }
    let spoke = line(FIRST_WORDS).is_some();
    match (line(PANIC), ended) {
        (Some(panic), _) if spoke && panic.contains(LAST_WORDS) => Probe::Ready(()),
        (Some(panic), _) => Probe::Hopeless(anyhow!("{panic}")),
        (None, Some(status)) => Probe::Hopeless(anyhow!("QEMU ended ({status}), its last line: {}", last(log))),
        (None, None) if spoke => Probe::NotYet(format!("its kernel got no further than `{}`", last(console))),
        (None, None) if late => Probe::Hopeless(anyhow!("its kernel printed nothing; QEMU printed: {}", last(log))),
        (None, None) => Probe::NotYet("its kernel printed nothing".into()),
    }
}

/// QEMU's output, without QEMU's own path at the beginning of a line.
fn said(log: &str, files: &MachineFiles) -> String {
    let plain = |line: &str| {
        let own = |word: &String| line.strip_prefix(word.as_str())?.strip_prefix(": ").map(str::to_owned);
        files.emulator.command.iter().find_map(own).unwrap_or_else(|| line.to_owned())
    };
    log.lines().map(plain).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
