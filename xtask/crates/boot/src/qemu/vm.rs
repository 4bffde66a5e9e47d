//! One QEMU process: its command line, its sockets, and the signs that it is lost.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use model::{Machine, MachineFiles};
use sys::daemon::tail;
use sys::deadline::{OnInterrupt, Probe, until};
use sys::{Daemon, RunDir, Spec};

use super::backlog;
use super::console::Console;
use super::qmp::Qmp;
use crate::booted::HostForward;
use crate::place::{OUTSIDE, PortMapping};

/// Gives QEMU's own memory huge pages if the kernel has some. An emulated CPU spends a fifth of its time in looking up
/// translated code, at random places in tables of hundreds of megabytes; with huge pages it was two thirds of that. The
/// guest's memory and the code have huge pages anyway.
/// <https://sourceware.org/glibc/manual/latest/html_node/Memory-Allocation-Tunables.html>
const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
/// QEMU connects its sockets while it starts, before the guest runs.
const CONNECT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(2);
const LAST_LINES: usize = 10;
/// The guest's address in QEMU's user network.
pub(crate) const GUEST: &str = crate::place::ADDRESS;
/// The only port of this machine that a guest reaches: it leads to the port that a file in the VM's folder names, if
/// any.
const OUTSIDE_PORT: u16 = 2379;
const HOST_FORWARD: &str = "host-forward";
const HOST_FORWARD_PORT: &str = "host-forward.port";
const DISK: &str = "disk";
/// Kernel argument that makes the guest's first process use the only disk as its root.
const ROOT: &str = " archproof.disk=vda";
/// Below the run's private folder.
pub(crate) const FOLDER: &str = "vm";
/// Sockets in the VM's folder. QEMU connects to them.
const MONITOR: &str = "monitor";
const CONSOLE: &str = "console";
const CONTROL: &str = "control";
const LOGS: &str = "logs";
/// QEMU itself listens on this socket. Clients that want a root shell connect to it, one at a time.
pub(crate) const SHELL: &str = "shell";

/// A VM, except for the places of its files and ports on this host.
#[derive(Clone, Debug)]
pub(crate) struct Hardware<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) files: &'a MachineFiles,
    pub(crate) memory_mib: u32,
    pub(crate) accelerator: &'a str,
    /// `-cpu`.
    pub(crate) cpu: &'a str,
    /// An image that becomes the guest's read-only root.
    pub(crate) disk: Option<&'a Path>,
}

/// See [`HostForward`]. For each connection of the guest, QEMU starts a process of this program in QEMU's own folder.
pub(crate) fn host_forward(run: &RunDir) -> anyhow::Result<HostForward> {
    Ok(HostForward::Address {
        address: format!("{OUTSIDE}:{OUTSIDE_PORT}"),
        file: run.private_dir(FOLDER)?.join(HOST_FORWARD_PORT),
    })
}

/// Creates a link to this program: its real path may contain characters that are special in QEMU's options or in a
/// command.
fn link_ourselves(link: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("failed to find this program's own file")?;
    match symlink(program, link) {
        // If the restore of a VM fails, a cold one follows in the same folder.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other.with_context(|| format!("failed to create the link {}", link.display())),
    }
}

/// How the guest starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begin<'a> {
    /// Boots the kernel with this initramfs.
    Cold(&'a Path),
    /// Restores the file that [`Qmp::restore`] reads.
    Restored,
}

/// A running QEMU. Dropping it kills it.
pub(crate) struct Vm {
    pub(crate) qmp: Mutex<Qmp>,
    pub(crate) console: Console,
    daemon: Mutex<Daemon>,
    log: PathBuf,
}

/// The host's ends of the guest's virtio-serial ports.
pub(crate) struct Ports {
    pub(crate) control: UnixStream,
    pub(crate) logs: UnixStream,
}

impl Hardware<'_> {
    /// The same machine without archproof's additions: no channels into the guest, and QEMU's default memory.
    pub(crate) fn plain_arguments(&self) -> Vec<String> {
        let mut all = self.arguments().into_iter().peekable();
        let mut plain = Vec::new();
        while let Some(argument) = all.next() {
            match all.peek().map(String::as_str) {
                Some(value) if argument == "-device" && value.starts_with("virt") && value.contains("serial") => {
                    all.next();
                }
                _ => plain.push(argument.replace(",memory-backend=ram", "")),
            }
        }
        plain
    }

    /// The arguments that determine what the guest sees. A snapshot is valid only for the same arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Machine { qemu, cpus, console, .. } = self.machine;
        // Mitigations and hardening protect processes from each other, and the kernel from them, at a cost that emulation
        // multiplies; all processes here are trusted.
        let disk = if self.disk.is_some() { ROOT } else { "" };
        let kernel = format!(
            "console={console} rdinit=/init panic=-1 oops=panic loglevel=5 mitigations=off \
             init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off audit=0 nowatchdog \
             random.trust_cpu=1 random.trust_bootloader=1{disk}"
        );
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
        add("-machine", qemu.machine.clone());
        add("-accel", self.accelerator.to_owned());
        add("-cpu", self.cpu.to_owned());
        add("-smp", cpus.to_string());
        add("-m", format!("{}M", self.memory_mib));
        add("-append", kernel);
        let virtio = |device: &str| format!("virtio-{device}-{}", qemu.virtio);
        add("-device", virtio("serial"));
        for port in [CONTROL, LOGS, SHELL] {
            add("-device", format!("virtserialport,chardev={port},name=archproof.{port}"));
        }
        add("-device", format!("{},netdev=net", virtio("net")));
        add("-device", virtio("rng"));
        if self.disk.is_some() {
            add("-device", format!("{},drive={DISK}", virtio("blk")));
        }
        arguments.extend(["-nodefaults", "-no-reboot", "-no-user-config"].map(str::to_owned));
        arguments.extend(["-display", "none"].map(str::to_owned));
        arguments.extend(qemu.arguments.iter().cloned());
        arguments
    }
}

impl Vm {
    /// Starts QEMU and waits until it has connected its sockets. With `Begin::Restored` QEMU then waits for
    /// [`Qmp::restore`].
    pub(crate) fn start(
        hardware: &Hardware<'_>,
        begin_with: Begin<'_>,
        port_mappings: &[PortMapping],
        run: &RunDir,
    ) -> anyhow::Result<(Vm, Ports)> {
        let dir = run.private_dir(FOLDER)?;
        let begin = Instant::now();
        let [monitor, console, control, logs] = bind(&dir)?;
        let log = run.log("qemu");
        let mut command = hardware.files.emulator.command.iter().cloned();
        let program = command.next().ok_or_else(|| anyhow!("the emulator has no command"))?;
        let mut args: Vec<String> = command.chain(hardware.arguments()).collect();
        let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
        add("-kernel", hardware.files.kernel.display().to_string());
        match begin_with {
            Begin::Cold(initramfs) => add("-initrd", initramfs.display().to_string()),
            Begin::Restored => add("-incoming", "defer".into()),
        }
        if let Some(disk) = hardware.disk {
            // QEMU expects a comma in an option's value to be doubled.
            let file = disk.display().to_string().replace(',', ",,");
            add("-drive", format!("if=none,id={DISK},format=raw,readonly=on,file={file}"));
        }
        link_ourselves(&dir.join(HOST_FORWARD))?;
        add(
            "-netdev",
            format!(
                "{},guestfwd=tcp:{OUTSIDE}:{OUTSIDE_PORT}-cmd:./{HOST_FORWARD} host-forward {HOST_FORWARD_PORT}",
                network(port_mappings)
            ),
        );
        for socket in [MONITOR, CONSOLE, CONTROL, LOGS] {
            add("-chardev", format!("socket,id={socket},path={socket}"));
        }
        add("-chardev", format!("socket,id={SHELL},path={SHELL},server=on,wait=off"));
        add("-serial", format!("chardev:{CONSOLE}"));
        add("-qmp", format!("chardev:{MONITOR}"));
        let name = "qemu".to_owned();
        let spec = Spec {
            name,
            program: program.into(),
            args,
            env: BTreeMap::from([HUGE_PAGES].map(|(name, value)| (name.to_owned(), value.to_owned()))),
            // Socket paths are relative to it: an absolute path may exceed the maximum length of a socket address.
            dir: Some(dir),
            log: log.clone(),
            process_registry: run.process_registry(),
        };
        let mut daemon = Daemon::start(spec)?;
        let mut connected = |listener: &UnixListener, name: &str| accept(listener, name, &mut daemon, &log);
        let console = connected(&console, CONSOLE)?;
        let console = Console::record(console, &run.log("console"), begin)?;
        let qmp = Qmp::new(connected(&monitor, MONITOR)?)?;
        let ports = Ports { control: connected(&control, CONTROL)?, logs: connected(&logs, LOGS)? };
        // The monitor has answered, so all forwarded ports exist.
        if let Err(error) = backlog::widen(daemon.pid(), port_mappings.len()) {
            sys::progress::say(&format!("boot: simultaneous connections to the guest will be delayed: {error:#}"));
        }
        Ok((Vm { qmp: Mutex::new(qmp), console, daemon: Mutex::new(daemon), log }, ports))
    }

    /// Why the guest is lost: its kernel's message, or QEMU's exit status.
    pub(crate) fn first_failure(&self) -> Option<String> {
        let ended = sys::lock(&self.daemon).ended();
        // A panic ends QEMU too; then the kernel's message is the cause.
        self.console.cause().or_else(|| {
            let status = ended?;
            let said = tail(&self.log, LAST_LINES);
            let (_, console) = self.console.silence();
            Some(format!("QEMU ended ({status}); it printed: {}; the console's last line: {console}", quoted(&said)))
        })
    }

    pub(crate) fn kill(&self) {
        sys::lock(&self.daemon).kill();
    }
}

/// Whether QEMU failed because another process took a port.
pub(crate) fn lost_a_port(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("Could not set up host forwarding rule")
}

fn quoted(text: &str) -> String {
    if text.is_empty() { "nothing".into() } else { format!("`{}`", text.trim()) }
}

/// The guest's only network access is answering connections to forwarded ports.
pub(crate) fn network(port_mappings: &[PortMapping]) -> String {
    let forwards =
        port_mappings.iter().map(|door| format!(",hostfwd=tcp:127.0.0.1:{}-{GUEST}:{}", door.outside, door.inside));
    format!("user,id=net,restrict=on{}", forwards.collect::<String>())
}

/// The sockets on which the harness listens, so that no byte is lost before a thread reads them.
fn bind(dir: &Path) -> anyhow::Result<[UnixListener; 4]> {
    let folder = File::open(dir).with_context(|| format!("failed to open {}", dir.display()))?;
    let bind = |name: &str| -> anyhow::Result<UnixListener> {
        // An earlier attempt with other ports may have left the file.
        let _ = std::fs::remove_file(dir.join(name));
        // Bound through the descriptor, because the folder's path may be too long for a socket address.
        let mut path = OsString::from(format!("/proc/self/fd/{}/", folder.as_raw_fd()));
        path.push(name);
        let listener =
            UnixListener::bind(&path).with_context(|| format!("failed to listen on {}", dir.join(name).display()))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    Ok([bind(MONITOR)?, bind(CONSOLE)?, bind(CONTROL)?, bind(LOGS)?])
}

fn accept(listener: &UnixListener, name: &str, daemon: &mut Daemon, log: &Path) -> anyhow::Result<UnixStream> {
    let what = format!("QEMU to connect its {name}");
    let stream = until(&what, CONNECT, LOOK_EVERY, OnInterrupt::Stop, || match listener.accept() {
        Ok((stream, _)) => Probe::Ready(stream),
        Err(error) => match daemon.ended() {
            Some(status) => Probe::Hopeless(anyhow!(
                "failed to start QEMU ({status}); it printed: {}",
                quoted(&tail(log, LAST_LINES))
            )),
            None => Probe::NotYet(error.to_string()),
        },
    })?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}
