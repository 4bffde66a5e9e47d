//! `cargo xtask bench --boot`: system VMs of some architectures, cold and warm, compared with the same QEMU run by
//! hand.
//!
//! Snapshots are in a separate cache, so that cold is cold; packages and components come from the usual cache.

use std::path::Path;

use ::boot::qemu::{self, Accelerator};
use ::boot::{Booted, Saved, Topology};
use anyhow::{Context, ensure};
use cli::{Failure, OrExit, Paths, chosen, fetch_options, host_target, print, print_json, request};
use model::{Artifacts, Exit, MachineFiles, Profile, Target};
use provider::qemu::Machine;
use provider::{ClusterArg, Prepared, ProviderArg, ProviderOptions, Setup};
use sys::process::Identity;
use sys::run_dir::make_private_dir;
use sys::{RunDir, Scratch, interrupt, progress};
use targets::Catalogue;

use super::{Row, in_run, in_turn, median, table};
use crate::BenchOptions;

const MIB: f64 = (1 << 20) as f64;

/// A target with all inputs of its VMs.
pub(super) struct Vms<'a> {
    paths: &'a Paths,
    target: &'a Target,
    artifacts: Artifacts,
    files: Box<MachineFiles>,
    accelerator: Accelerator,
    /// Only for snapshots.
    pub(super) cache: Scratch,
    pub(super) one: Topology,
    all: Topology,
    pub(super) runs: usize,
}

/// Times of cold boots, each followed by a boot by hand.
#[derive(Default)]
struct Cold {
    seconds: Vec<f64>,
    floors: Vec<f64>,
    peaks: Vec<f64>,
    saves: Vec<Saved>,
}

pub(super) fn run(paths: &Paths, options: &BenchOptions) -> Result<Exit, Failure> {
    each(paths, options, |catalogue, target, rows| {
        let vms = Vms::prepare(paths, options, catalogue, target, ClusterArg::Planes)?;
        let measured = vms.measure(rows).and_then(|()| {
            rows.push(row(target, "downloads", downloads(paths, options, catalogue, target)?, "MiB"));
            Ok(())
        });
        measured.with_context(|| format!("VMs of {}", target.name)).or_exit(Exit::Infrastructure)
    })
}

/// Measures each chosen architecture, and prints the table. Prints finished measurements even if another one fails.
pub(super) fn each(
    paths: &Paths,
    options: &BenchOptions,
    measure: impl Fn(&Catalogue, &Target, &mut Vec<Row>) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let mut rows = Vec::new();
    let mut failed = false;
    for target in chosen(&catalogue, &options.arch)? {
        if let Err(failure) = measure(&catalogue, target, &mut rows) {
            interrupt::check().map_err(anyhow::Error::from)?;
            progress::say(&format!("{:#}", failure.error));
            failed = true;
        }
    }
    if options.json {
        print_json(&rows)?;
    } else {
        print(&table(&rows));
    }
    match failed {
        false => Ok(Exit::Ok),
        true => Err(anyhow::anyhow!("the table is incomplete: see the errors above")).or_exit(Exit::Infrastructure),
    }
}

/// MiB of packages that a machine with an empty cache downloads, including QEMU.
fn downloads(paths: &Paths, options: &BenchOptions, catalogue: &Catalogue, target: &Target) -> anyhow::Result<f64> {
    let empty = Scratch::create(&paths.cache, "bench")?;
    let options = fetch::Options { cache: empty.path().to_owned(), ..fetch_options(paths, &options.machine, false) };
    let host = host_target(catalogue).map_err(|failure| failure.error)?;
    Ok(mib(fetch::plan(host, &[target], &options)?.size()))
}

impl<'a> Vms<'a> {
    pub(super) fn prepare(
        paths: &'a Paths,
        options: &BenchOptions,
        catalogue: &'a Catalogue,
        target: &'a Target,
        cluster: ClusterArg,
    ) -> Result<Vms<'a>, Failure> {
        let options_of = ProviderOptions {
            provider: Some(ProviderArg::Qemu),
            cluster,
            image: None,
            cold: false,
            machine: options.machine.clone(),
        };
        let host = Some(host_target(catalogue)?);
        let chosen = ProviderArg::Qemu;
        let setup = Setup { chosen, options: &options_of, paths, catalogue, host, target, offline: false };
        let machine = Machine::fetch(&setup).or_exit(Exit::Infrastructure)?;
        let (planes, node): (Vec<Profile>, Vec<Profile>) =
            catalogue.profiles.iter().cloned().partition(|profile| profile.name != catalogue.node.profile);
        let of_node = cluster == ClusterArg::Node;
        let profiles = if of_node { &node } else { &planes };
        let components = setup.components(profiles).or_exit(Exit::TargetData)?;
        let request = build::Request { only: Some(&components), ..request(paths, catalogue, target, None) };
        let artifacts = build::build(&request).or_exit(Exit::Build)?;
        let all = machine.topology(&artifacts, profiles).or_exit(Exit::Infrastructure)?;
        let Machine { files, accelerator, .. } = machine;
        let one = if of_node { profiles.clone() } else { vec![catalogue.profile("default")?.clone()] };
        Ok(Vms {
            paths,
            target,
            artifacts,
            files,
            accelerator,
            cache: Scratch::create(&paths.cache, "bench").or_exit(Exit::Infrastructure)?,
            one: Topology { profiles: one, node: all.node.clone() },
            all,
            runs: options.runs.max(1),
        })
    }

    fn measure(&self, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        let Cold { seconds, floors, peaks, saves } = self.cold()?;
        let (value, baseline) = (median(seconds), median(floors));
        let row = |what, value, unit| row(self.target, what, value, unit);
        let cold = row("cold", value, "s").against(baseline, "the same QEMU with a shell script as init");
        rows.push(cold.goal("at most 1.1 times the baseline", value <= 1.1 * baseline));
        rows.push(row("save", median(saves.iter().map(|saved| saved.time.as_secs_f64()).collect()), "s"));
        rows.push(row("snapshot", median(saves.iter().map(|saved| mib(saved.bytes)).collect()), "MiB"));
        rows.push(row("memory", median(peaks), "MiB"));
        let restore = "QEMU's own restore";
        let (value, baseline) = self.warm(&self.one)?;
        rows.push(row("warm", value, "s").against(baseline, restore).goal("at most 1.0 s", value <= 1.0));
        // The first boot creates the snapshot for the others.
        self.boot(&self.all, false)?;
        let (value, baseline) = self.warm(&self.all)?;
        rows.push(
            row("warm-all", value, "s").against(baseline, restore).goal("all profiles, at most 2.5 s", value <= 2.5),
        );
        Ok(())
    }

    /// Boots from nothing, with the harness and by hand in turn; the last boot leaves a snapshot.
    fn cold(&self) -> anyhow::Result<Cold> {
        let mut cold = Cold::default();
        // As in `in_turn`: the first one reads QEMU and the components from the disk.
        self.baseline(qemu::baseline, &self.one)?;
        for n in 1..=self.runs {
            progress::say(&format!("{}: cold start {n} of {}", self.target.name, self.runs));
            cold.floors.push(self.baseline(qemu::baseline, &self.one)?);
            empty(&self.cache)?;
            let (seconds, peak, saved) = self.boot(&self.one, false)?;
            cold.seconds.push(seconds);
            cold.peaks.push(peak);
            cold.saves.push(saved.context("no memory snapshot was made")?);
        }
        Ok(cold)
    }

    /// Medians of the harness's warm start and of QEMU's restore alone.
    fn warm(&self, topology: &Topology) -> anyhow::Result<(f64, f64)> {
        let floor = || {
            let count = topology.profiles.len();
            progress::say(&format!("{}: warm start, {count} profiles", self.target.name));
            self.baseline(qemu::baseline_restore, topology)
        };
        in_turn(self.runs, || Ok(self.boot(topology, true)?.0), floor)
    }

    fn boot(&self, topology: &Topology, warm: bool) -> anyhow::Result<(f64, f64, Option<Saved>)> {
        self.boot_and(topology, warm, |_| Ok(0.0))
    }

    /// Seconds until ready, and seconds of `then`; MiB of QEMU's peak memory; the snapshot, if one was created.
    pub(super) fn boot_and(
        &self,
        topology: &Topology,
        warm: bool,
        then: impl FnOnce(&Booted) -> anyhow::Result<f64>,
    ) -> anyhow::Result<(f64, f64, Option<Saved>)> {
        let (measured, took, saved) = self.in_run(|run| {
            let booted = qemu::up(&self.request(topology), run)?;
            let took = then(&booted);
            let measured = measured(&booted, run, warm);
            booted.end(None)?;
            Ok((measured, took, booted.saved))
        })?;
        let (seconds, peak) = measured?;
        Ok((seconds + took?, peak, saved))
    }

    pub(super) fn baseline(
        &self,
        measure: impl Fn(&qemu::Request<'_>, &RunDir) -> anyhow::Result<std::time::Duration>,
        topology: &Topology,
    ) -> anyhow::Result<f64> {
        let time = self.in_run(|run| measure(&self.request(topology), run))?;
        progress::say(&format!("{}: by hand {:.2} s", self.target.name, time.as_secs_f64()));
        Ok(time.as_secs_f64())
    }

    fn in_run<T>(&self, work: impl FnOnce(&RunDir) -> anyhow::Result<T>) -> anyhow::Result<T> {
        in_run(self.paths, &format!("{}-bench", self.target.name), work)
    }

    fn request<'b>(&'b self, topology: &'b Topology) -> qemu::Request<'b> {
        let Vms { target, artifacts, files, accelerator, cache, .. } = self;
        qemu::Request { target, artifacts, files, topology, accelerator, cache: cache.path(), cold: false }
    }
}

/// Seconds, and MiB at the peak.
fn measured(booted: &Booted, run: &RunDir, warm: bool) -> anyhow::Result<(f64, f64)> {
    let machine = booted.cluster.info.machine.as_ref().context("the cluster has no machine")?;
    let expected = if warm { "warm" } else { "cold" };
    ensure!(machine.warm == warm, "the start was not {expected}: {}", machine.notes.join("; "));
    Ok((machine.seconds, qemu_peak(&run.process_registry())?))
}

/// VmHWM of the run's QEMU; it includes the pages of the guest's memory file.
fn qemu_peak(process_registry: &Path) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(process_registry)
        .with_context(|| format!("failed to read {}", process_registry.display()))?;
    let alive = text.lines().filter_map(|line| line.parse::<Identity>().ok()).find(|process| process.is_alive());
    sys::memory::peak(&alive.context("the run has no QEMU")?.pid.to_string())
}

pub(super) fn row(target: &Target, what: &str, value: f64, unit: &'static str) -> Row {
    Row::of(format!("{} {what}", target.name), value, unit)
}

#[expect(clippy::cast_precision_loss, reason = "a size in a table")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

pub(super) fn empty(cache: &Scratch) -> anyhow::Result<()> {
    let folder = cache.path();
    std::fs::remove_dir_all(folder).with_context(|| format!("failed to empty {}", folder.display()))?;
    make_private_dir(folder)
}
