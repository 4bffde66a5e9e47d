//! A baseline of the same VM without archproof's additions, for `cargo xtask bench --boot`: the fastest possible boot
//! with this QEMU, kernel and components.
//!
//! The baseline has an initramfs whose first process is a shell script, a QEMU with only a console file and a network,
//! and a loop that polls `/readyz`.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use model::Profile;
use reqwest::blocking::Client;
use sys::daemon::tail;
use sys::deadline::{OnInterrupt, Probe, until};
use sys::progress::Phase;
use sys::{Daemon, RunDir, Spec};

use super::vm::{self, Begin};
use super::{BOOT, Job, Request, initramfs};
use crate::component::quoted;
use crate::control_plane::PlannedControlPlane;
use crate::host::{Host, Local};
use crate::pki;

/// The script prints this after it has started all components.
const STARTED: &str = "by hand: started";
const LOOK_EVERY: Duration = Duration::from_millis(20);
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Limit for one answer.
const ANSWER: Duration = Duration::from_secs(20);
const LAST_LINES: usize = 20;

/// The time from QEMU's start until `/readyz` of the request's only profile first succeeds.
pub fn baseline(request: &Request<'_>, run: &RunDir) -> anyhow::Result<Duration> {
    tls::install();
    let [profile] = &request.topology.profiles[..] else { return Err(anyhow!("the baseline takes one profile")) };
    job(request, run, |job| job.baseline(profile))
}

/// The time from QEMU's start until it has restored the request's memory snapshot and resumed the guest.
pub fn baseline_restore(request: &Request<'_>, run: &RunDir) -> anyhow::Result<Duration> {
    job(request, run, |job| {
        let snapshot = job.snapshots()?.find()?.context("no memory snapshot was found")?;
        let begin = Instant::now();
        let (guest, _) = job.start(Begin::Restored)?;
        let state = snapshot.state().display().to_string();
        sys::lock(&guest.vm().qmp).restore(&state)?;
        let time = begin.elapsed();
        guest.vm().kill();
        Ok(time)
    })
}

fn job<T>(request: &Request<'_>, run: &RunDir, then: impl FnOnce(&Job<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let phase = Phase::start(format!("baseline: boot {}", request.target.name));
    then(&Job::of(request, run, &phase)?)
}

impl Job<'_> {
    fn baseline(&self, profile: &Profile) -> anyhow::Result<Duration> {
        let pki = pki::create(self.run, &[])?;
        let port_mappings = self.port_mappings()?;
        let host: std::sync::Arc<dyn Host> =
            std::sync::Arc::new(Local { process_registry: self.run.process_registry() });
        let (planned, client) = self.with_plan(&pki, 1.0, &host, &port_mappings, |plan| {
            // A new connection for each request: a refused or unanswered connection does not predict the next one.
            let config = tls::client(&pki.admin, tls::Alpn::Unset)?;
            let client = Client::builder().tls_backend_preconfigured(config).no_proxy().pool_max_idle_per_host(0);
            Ok((plan.control_plane(profile, 1)?, client.timeout(ANSWER).build()?))
        })?;
        let dir = self.run.private_dir(vm::FOLDER)?;
        let initramfs = dir.join("initramfs");
        let Request { files, artifacts, .. } = self.request;
        let root = self.root();
        let extra: Vec<_> = self.files()?.into_iter().map(|(path, bytes)| (root.in_guest(&path), bytes)).collect();
        initramfs::write_with(&initramfs, files, artifacts, script(&planned)?.as_bytes(), &extra)?;
        let outer: Vec<_> = port_mappings.values().copied().filter(|door| door.outside != 0).collect();
        let console = dir.join("console.log");
        let begin = Instant::now();
        let mut daemon = self.plain_qemu(&initramfs, &console, &vm::network(&outer))?;
        until("the script in the guest", BOOT, LOOK_EVERY, OnInterrupt::Stop, || match daemon.ended() {
            Some(status) => Probe::Hopeless(anyhow!("QEMU ended ({status}): {}", tail(&console, LAST_LINES))),
            None if tail(&console, LAST_LINES).contains(STARTED) => Probe::Ready(()),
            None => Probe::NotYet(tail(&console, 1)),
        })?;
        let ask = || client.get(&planned.apiserver.ready.url).send().is_ok_and(|answer| answer.status().is_success());
        until("the apiserver of the guest", BOOT, ASK_EVERY, OnInterrupt::Stop, || match ask() {
            true => Probe::Ready(()),
            false => Probe::NotYet(tail(&console, LAST_LINES)),
        })?;
        let time = begin.elapsed();
        daemon.kill();
        Ok(time)
    }

    fn plain_qemu(&self, initramfs: &Path, console: &Path, network: &str) -> anyhow::Result<Daemon> {
        let hardware = self.hardware();
        let mut command = hardware.files.emulator.command.iter().cloned();
        let program = command.next().context("the emulator has no command")?;
        let mut args: Vec<String> = command.chain(hardware.plain_arguments()).collect();
        let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
        add("-kernel", hardware.files.kernel.display().to_string());
        add("-initrd", initramfs.display().to_string());
        add("-netdev", network.to_owned());
        add("-serial", format!("file:{}", console.display()));
        Daemon::start(Spec {
            name: "qemu".into(),
            program: program.into(),
            args,
            env: Default::default(),
            dir: None,
            log: self.run.log("qemu"),
            process_registry: self.run.process_registry(),
        })
    }
}

/// `/init` as a script for busybox, in place of the agent.
fn script(planned: &PlannedControlPlane) -> anyhow::Result<String> {
    let now = time::OffsetDateTime::now_utc().unix_timestamp();
    let mut text = format!(
        "#!/bin/busybox sh\n\
         export PATH=/bin HOME=/root\n\
         b=/bin/busybox\n\
         $b mount -t proc proc /proc\n\
         $b mount -t sysfs sysfs /sys\n\
         $b mount -t devtmpfs devtmpfs /dev\n\
         for module in /modules/*.ko; do $b insmod $module; done\n\
         $b hostname guest\n\
         $b date -s @{now}\n\
         $b ifconfig lo up\n\
         until $b ifconfig eth0 {guest} netmask 255.255.255.0 up; do $b sleep 0.05; done\n",
        guest = vm::GUEST
    );
    let log = |name: &str| quoted(&format!("/tmp/{}.log", name.replace('/', ".")));
    for store in &planned.stores {
        writeln!(text, "{}", store.shell_command(&log(&store.name)))?;
        let port = store.flags.get("advertise-client-urls").and_then(|url| url.rsplit(':').next());
        let port: u16 = port.context("a store has no port")?.parse()?;
        writeln!(
            text,
            "until $b grep -q ':{port:04X} 0*:0000 0A' /proc/net/tcp /proc/net/tcp6; do $b sleep 0.05; done"
        )?;
    }
    let apiserver = &planned.apiserver;
    writeln!(text, "{}\necho {}", apiserver.shell_command(&log(&apiserver.name)), quoted(STARTED))?;
    text.push_str("wait\n");
    Ok(text)
}
