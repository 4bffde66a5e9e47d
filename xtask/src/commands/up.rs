//! `cargo xtask up`, `down`, `logs`: control planes that outlive the command.
//!
//! A kept cluster belongs to a keeper: the same program with `--foreground`, detached. The keeper holds the processes
//! as any run does, so they die with it however it ends; `down` only asks the keeper to stop.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use boot::Topology;
use model::{ClusterInfo, Exit};
use proc::deadline::{OnInterrupt, Probe, until};
use proc::process::Identity;
use proc::{RunDir, daemon, interrupt, progress};
use serde::{Deserialize, Serialize};
use targets::Catalogue;

use super::{print, print_json, target};
use crate::args::{LogsOptions, NameOptions, UpOptions};
use crate::failure::{Failure, OrExit};
use crate::paths::Paths;

/// A cold build of everything for a foreign architecture on a slow machine, and its boot.
const KEEPER_LIMIT: Duration = Duration::from_secs(2 * 3600);
const DOWN_LIMIT: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// `<cache>/clusters/<name>.json`: what other commands know of a kept cluster.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    name: String,
    /// `Identity` of the keeper.
    keeper: String,
    logs: PathBuf,
    info: ClusterInfo,
}

pub(crate) fn run(paths: &Paths, options: &UpOptions) -> Result<Exit, Failure> {
    if let Some(kept) = Kept::alive(paths, &options.name) {
        return Err(Failure::usage(anyhow!(
            "a cluster `{}` is running; end it with `{}`, or give another --name",
            kept.name,
            down_command(&kept.name)
        )));
    }
    if options.foreground { keep(paths, options) } else { detach(paths, options) }
}

pub(crate) fn down(paths: &Paths, options: &NameOptions) -> Result<Exit, Failure> {
    let kept = Kept::read(paths, &options.name).or_exit(Exit::Usage)?;
    let keeper: Identity = kept.keeper.parse().map_err(|error: String| anyhow!(error))?;
    keeper.signal(rustix::process::Signal::TERM);
    until("the cluster to stop", DOWN_LIMIT, LOOK_EVERY, OnInterrupt::Stop, || {
        if keeper.is_alive() { Probe::NotYet("its keeper is still running".into()) } else { Probe::Ready(()) }
    })
    .map_err(anyhow::Error::from)
    .or_exit(Exit::Infrastructure)?;
    Kept::remove(paths, &options.name);
    progress::say(&format!("cluster `{}` has ended", options.name));
    Ok(Exit::Ok)
}

pub(crate) fn logs(paths: &Paths, options: &LogsOptions) -> Result<Exit, Failure> {
    let kept = Kept::read(paths, &options.name).or_exit(Exit::Usage)?;
    let names = component_names(&kept.logs).or_exit(Exit::Infrastructure)?;
    match &options.component {
        None => names.iter().for_each(|name| print(&format!("{name}\n"))),
        Some(wanted) if names.contains(wanted) => {
            let file = kept.logs.join(format!("{}.log", wanted.replacen('/', ".", 1)));
            let text = std::fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?;
            print(&String::from_utf8_lossy(&text));
        }
        Some(wanted) => {
            return Err(Failure::usage(anyhow!("no component `{wanted}`; there are: {}", names.join(", "))));
        }
    }
    Ok(Exit::Ok)
}

/// Starts the keeper and waits until it says that the cluster is ready.
fn detach(paths: &Paths, options: &UpOptions) -> Result<Exit, Failure> {
    std::fs::create_dir_all(paths.clusters())
        .context("failed to create the folder of clusters")
        .or_exit(Exit::Infrastructure)?;
    let log = paths.clusters().join(format!("{}.log", options.name));
    let program = std::env::current_exe().context("the harness does not know where it lies")?;
    let keeper = daemon::detached(&program, &keeper_args(paths, options), &log).or_exit(Exit::Infrastructure)?;
    let phase = progress::Phase::start(format!("up {}", options.name));
    let ready = until("the cluster to be ready", KEEPER_LIMIT, LOOK_EVERY, OnInterrupt::Stop, || {
        phase.status(daemon::tail(&log, 1));
        match Kept::alive(paths, &options.name) {
            Some(kept) => Probe::Ready(kept),
            None if keeper.is_alive() => Probe::NotYet("its keeper is still preparing it".into()),
            None => Probe::Hopeless(anyhow!("the cluster did not start:\n{}", daemon::tail(&log, 40))),
        }
    });
    drop(phase);
    let kept = ready.map_err(|error| {
        keeper.signal(rustix::process::Signal::TERM);
        anyhow::Error::from(error)
    });
    tell(&kept.or_exit(Exit::Infrastructure)?, options.json)?;
    Ok(Exit::Ok)
}

/// The keeper itself: builds, boots, and stays until it is told to stop or a component dies.
fn keep(paths: &Paths, options: &UpOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let target = target(&catalogue, options.arch.as_deref())?;
    let mut profiles = Vec::new();
    for name in &options.profiles {
        profiles.push(catalogue.profile(name)?.clone());
    }
    let modules = paths.modules();
    let artifacts = build::build(&build::Request {
        target,
        components: &catalogue.components,
        modules_dir: &modules,
        cache_dir: &paths.cache,
        sources: options.sources.by_set(),
        only: None,
        offline: options.sources.offline,
    })
    .or_exit(Exit::Build)?;
    let run = RunDir::create(&paths.reports, &paths.cache, &format!("{}-up-{}", target.name, options.name))
        .or_exit(Exit::Infrastructure)?;
    let booted = boot::up(target, &artifacts, &Topology { profiles }, &run).or_exit(Exit::Infrastructure)?;
    let kept = Kept {
        name: options.name.clone(),
        keeper: Identity::me().to_string(),
        logs: run.logs(),
        info: booted.cluster.info.clone(),
    };
    kept.write(paths).or_exit(Exit::Infrastructure)?;
    tell(&kept, options.json)?;
    let ended = stay(&booted);
    booted.stop();
    Kept::remove(paths, &options.name);
    ended.or_exit(Exit::Infrastructure)?;
    Ok(Exit::Ok)
}

fn stay(booted: &boot::Booted) -> anyhow::Result<()> {
    while !interrupt::requested() {
        if let Some(casualty) = booted.cluster.control.as_ref().and_then(|control| control.casualty()) {
            bail!(casualty);
        }
        proc::deadline::pause(LOOK_EVERY);
    }
    Ok(())
}

fn keeper_args(paths: &Paths, options: &UpOptions) -> Vec<String> {
    let mut args: Vec<String> = ["up", "--foreground", "--name", &options.name].map(str::to_owned).into();
    let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    add("--cache", paths.cache.display().to_string());
    add("--reports", paths.reports.display().to_string());
    add("--targets", paths.targets.display().to_string());
    if let Some(arch) = &options.arch {
        add("--arch", arch.clone());
    }
    for (set, source) in options.sources.by_set() {
        add(&format!("--{set}"), source.to_string());
    }
    for profile in &options.profiles {
        add("--profile", profile.clone());
    }
    if options.sources.offline {
        args.push("--offline".into());
    }
    args
}

fn tell(kept: &Kept, json: bool) -> Result<(), Failure> {
    if json {
        return print_json(&kept.info);
    }
    for profile in kept.info.profiles.values() {
        print(&format!("{}\n", profile.name));
        print(&format!("  apiserver   {}\n", profile.apiserver));
        print(&format!("  kubeconfig  {}\n", profile.kubeconfig.display()));
        for store in &profile.stores {
            print(&format!("  store       {} ({}), keys below {}\n", store.endpoint, store.name, profile.prefix));
        }
        let tls = &profile.tls;
        print(&format!(
            "  etcdctl     --cacert {} --cert {} --key {}\n",
            tls.ca.display(),
            tls.cert.display(),
            tls.key.display()
        ));
    }
    print(&format!("end it with: {}\n", down_command(&kept.name)));
    Ok(())
}

fn down_command(name: &str) -> String {
    if name == "default" { "cargo xtask down".into() } else { format!("cargo xtask down --name {name}") }
}

fn component_names(logs: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(logs).with_context(|| format!("failed to read {}", logs.display()))?;
    let files = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> =
        files.filter_map(|file| Some(file.strip_suffix(".log")?.replacen('.', "/", 1))).collect();
    names.sort();
    Ok(names)
}

impl Kept {
    fn file(paths: &Paths, name: &str) -> PathBuf {
        paths.clusters().join(format!("{name}.json"))
    }

    fn write(&self, paths: &Paths) -> anyhow::Result<()> {
        std::fs::create_dir_all(paths.clusters()).context("failed to create the folder of clusters")?;
        let file = Kept::file(paths, &self.name);
        let temporary = file.with_extension("new");
        proc::run_dir::write_private_file(&temporary, &serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(&temporary, &file).with_context(|| format!("failed to write {}", file.display()))
    }

    fn read(paths: &Paths, name: &str) -> anyhow::Result<Kept> {
        Kept::alive(paths, name)
            .with_context(|| format!("no cluster `{name}` is running; `cargo xtask up --name {name}` starts one"))
    }

    /// The cluster of that name, if its keeper is alive.
    fn alive(paths: &Paths, name: &str) -> Option<Kept> {
        let text = std::fs::read(Kept::file(paths, name)).ok()?;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        kept.keeper.parse::<Identity>().ok()?.is_alive().then_some(kept)
    }

    fn remove(paths: &Paths, name: &str) {
        // It may be gone: `down` and the keeper both remove it.
        let _ = std::fs::remove_file(Kept::file(paths, name));
    }
}
