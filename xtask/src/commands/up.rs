//! `cargo xtask up`, `down`, `logs`: control planes that outlive the command.
//!
//! A kept cluster belongs to a keeper: the same program with `--foreground`, detached. As in any run, the processes end
//! with the keeper, no matter how it ends; `down` only asks the keeper to stop.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use cli::{Failure, OrExit, Paths, print, print_json, target};
use model::{Exit, MachineInfo, Profile, Target};
use sys::deadline::{OnInterrupt, Probe, until};
use sys::{RunDir, daemon, interrupt, progress, run_dir};
use targets::Catalogue;

use super::kept::{KEEPER, Kept, claim, elsewhere, keeper, not_running, running, stop, with_name};
use super::{Ready, ready};
use crate::args::{LogsOptions, NameOptions, UpOptions};

/// Enough for a cold build of all components for a foreign architecture on a slow machine, and its boot.
const KEEPER_LIMIT: Duration = Duration::from_secs(2 * 3600);
/// The profile to start if none is named.
const DEFAULT: &str = "default";
/// Lines of the keeper's log to show if it does not start.
const LOG_LINES: usize = 60;
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(crate) fn run(paths: &Paths, options: &UpOptions) -> Result<Exit, Failure> {
    let mut catalogue = Catalogue::load(&paths.targets)?;
    let arch: Vec<String> = options.arch.iter().cloned().collect();
    cli::select_cpu(&mut catalogue, &arch, options.cpu.cpu.as_deref())?;
    let catalogue = catalogue;
    cli::known_releases(&catalogue, &options.sources)?;
    let target = target(&catalogue, options.arch.as_deref())?;
    let profiles = profiles(&catalogue, options)?;
    std::fs::create_dir_all(paths.clusters())
        .with_context(|| format!("failed to create {} (--cache)", paths.clusters().display()))
        .or_exit(Exit::Infrastructure)?;
    if options.foreground { keep(paths, options, &catalogue, target, profiles) } else { detach(paths, options) }
}

/// The named profiles, and the profile of the node if one is requested.
fn profiles(catalogue: &Catalogue, options: &UpOptions) -> Result<Vec<Profile>, Failure> {
    provider::known(&options.provider, &options.sources)?;
    let node = options.provider.has_node().then_some(&catalogue.node.profile);
    let mut names: BTreeSet<&str> = options.profiles.iter().chain(node).map(String::as_str).collect();
    if names.is_empty() {
        names.insert(DEFAULT);
    }
    Ok(names.into_iter().map(|name| catalogue.profile(name).cloned()).collect::<Result<_, _>>()?)
}

pub(crate) fn down(paths: &Paths, options: &NameOptions) -> Result<Exit, Failure> {
    let name = &options.name;
    match keeper(paths, name) {
        Some(keeper) if !keeper.is_here() => return Err(Failure::usage(elsewhere(name, &keeper))),
        Some(keeper) => {
            stop(paths, name, keeper.process, OnInterrupt::Stop).or_exit(Exit::Infrastructure)?;
            progress::say(&format!("cluster `{name}` stopped"));
        }
        None if Kept::file(paths, name).exists() => {
            run_dir::sweep(&paths.cache);
            progress::say(&format!(
                "cluster `{name}` had already stopped, because its keeper was killed; removed its leftovers"
            ));
        }
        None => return Err(Failure::usage(not_running(paths, name))),
    }
    Kept::remove(paths, name);
    Ok(Exit::Ok)
}

pub(crate) fn logs(paths: &Paths, options: &LogsOptions) -> Result<Exit, Failure> {
    let kept = Kept::find(paths, &options.name)?;
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

/// Starts the keeper, and waits until it records that the cluster is ready.
fn detach(paths: &Paths, options: &UpOptions) -> Result<Exit, Failure> {
    // Two commands that start the same name would write into the same log.
    let _starting = claim(paths, &options.name, "starting")?;
    if keeper(paths, &options.name).is_some() {
        return Err(Failure::usage(running(&options.name)));
    }
    let log = paths.clusters().join(format!("{}.log", options.name));
    let program = std::env::current_exe().context("failed to find the path of the harness")?;
    let keeper_process =
        daemon::detached(&program, &keeper_args(paths, options), &log).or_exit(Exit::Infrastructure)?;
    let phase = progress::Phase::start(format!("up {}", options.name));
    let ready = until("the cluster to be ready", KEEPER_LIMIT, LOOK_EVERY, OnInterrupt::Stop, || {
        phase.status(daemon::tail(&log, 1));
        match Kept::alive(paths, &options.name) {
            Some(kept) if kept.is_kept_by(keeper_process.identity) => Probe::Ready(kept),
            _ if keeper_process.ended().is_none() => Probe::NotYet("its keeper is still preparing it".into()),
            _ => Probe::Hopeless(anyhow!("the cluster did not start:\n{}", daemon::tail(&log, LOG_LINES))),
        }
    });
    drop(phase);
    let kept = match ready {
        Ok(kept) => kept,
        Err(error) => {
            // Before the stop: a keeper that is stopped here reports an interrupt, which no user made.
            let exit = keeper_process.ended().flatten().map_or(Exit::Infrastructure, exit_of);
            if let Err(left) = stop(paths, &options.name, keeper_process.identity, OnInterrupt::Continue) {
                let down = with_name("down", &options.name);
                progress::say(&format!("the keeper still runs, stop it with `{down}`: {left:#}"));
            }
            return Err(anyhow::Error::from(error)).or_exit(exit);
        }
    };
    tell(&kept, options.json)?;
    Ok(Exit::Ok)
}

/// The exit code of a keeper that failed.
fn exit_of(status: ExitStatus) -> Exit {
    let codes = [Exit::Internal, Exit::Usage, Exit::TargetData, Exit::Build, Exit::Interrupted];
    let code = codes.into_iter().find(|exit| status.code() == Some(exit.code().into()));
    code.unwrap_or(Exit::Infrastructure)
}

/// The keeper itself: builds, boots, and runs until a signal or until a component dies.
fn keep(
    paths: &Paths,
    options: &UpOptions,
    catalogue: &Catalogue,
    target: &Target,
    profiles: Vec<Profile>,
) -> Result<Exit, Failure> {
    let claim = claim(paths, &options.name, KEEPER)?;
    let ready = ready(paths, catalogue, target, &options.provider, &options.sources, profiles)?;
    let Ready { provider, artifacts, topology, .. } = ready;
    let run = RunDir::create(&paths.reports, &paths.cache, &format!("{}-up-{}", target.name, options.name))
        .or_exit(Exit::Infrastructure)?;
    let booted = provider.boot(&artifacts, &topology, &run).or_exit(Exit::Infrastructure)?;
    let info = &booted.cluster.info;
    if let Some(max_active) = info.max_active.filter(|max_active| info.profiles.len() > *max_active) {
        let all = info.profiles.len();
        progress::say(&format!(
            "resuming all {all} control planes, but a machine this slow supports {max_active} at a time, and more may never \
             become ready: run `cargo xtask down`, and give fewer --profile options"
        ));
    }
    booted.wake_all().or_exit(Exit::Infrastructure)?;
    let kept = Kept::here(&options.name, &run, &booted, &claim);
    kept.write(paths).or_exit(Exit::Infrastructure)?;
    tell(&kept, options.json)?;
    let ended = stay(&booted);
    let taken_down = booted.end(None);
    Kept::remove(paths, &options.name);
    ended.and(taken_down).or_exit(Exit::Infrastructure)?;
    Ok(Exit::Ok)
}

/// Waits for a signal, or until a component of the cluster dies.
pub(crate) fn stay(booted: &boot::Booted) -> anyhow::Result<()> {
    while !interrupt::requested() {
        if let Some(failure) = booted.cluster.control.as_ref().and_then(|control| control.first_failure()) {
            bail!(failure);
        }
        sys::deadline::pause(LOOK_EVERY);
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
    add("--store", options.sources.store().name().to_owned());
    if let Some(exported) = &options.sources.exported {
        add("--components", exported.clone());
    }
    if let Some(cpu) = &options.cpu.cpu {
        add("--cpu", cpu.clone());
    }
    for profile in &options.profiles {
        add("--profile", profile.clone());
    }
    if options.sources.offline {
        args.push("--offline".into());
    }
    args.extend(options.provider.words());
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
        // The same for all stores.
        if let Some(tls) = profile.stores.first().map(|store| &store.tls) {
            print(&format!(
                "  etcdctl     --cacert {} --cert {} --key {}\n",
                tls.ca.display(),
                tls.cert.display(),
                tls.key.display()
            ));
        }
    }
    if let Some(machine) = &kept.info.machine {
        print(&describe(machine));
        print(&format!("root shell: {}\n", with_name("shell", &kept.name)));
    }
    print(&format!("stop it with: {}\n", with_name("down", &kept.name)));
    Ok(())
}

fn describe(machine: &MachineInfo) -> String {
    let MachineInfo { emulator, accelerator, reason, kernel, cpus, memory_mib, warm, seconds, notes, .. } = machine;
    let start = if *warm { "warm, from a memory snapshot" } else { "cold" };
    let mut text = format!(
        "machine\n  {emulator}, {accelerator} ({reason})\n  Linux {kernel}, {cpus} processors, {memory_mib} MiB\n  \
         start: {start}, {seconds:.1} s\n"
    );
    notes.iter().for_each(|note| text.push_str(&format!("  note: {note}\n")));
    text
}

fn component_names(logs: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(logs).with_context(|| format!("failed to read {}", logs.display()))?;
    let files = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> =
        files.filter_map(|file| Some(file.strip_suffix(".log")?.replacen('.', "/", 1))).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    fn parsed(words: Vec<String>) -> UpOptions {
        match Args::try_parse_from(["cargo xtask".to_owned()].into_iter().chain(words)).unwrap().command {
            Command::Up(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keeper_gets_the_options_of_the_command() {
        let paths = Paths {
            targets: "t".into(),
            reports: "r".into(),
            cache: "c".into(),
            colour: false,
            goproxy: None,
            github: None,
            term: String::new(),
        };
        for line in [
            "up",
            "up --arch riscv64 --cpu rva22 --name n --profile a --profile b --offline --cold",
            "up --components dir --kubernetes 1.36 --client 0.36",
            "up --store kine-sqlite --kine v0.16.4 --provider process",
        ] {
            let given = parsed(line.split(' ').map(str::to_owned).collect());
            let of_keeper = parsed(keeper_args(&paths, &given));
            let expected = UpOptions { foreground: true, ..given };
            assert_eq!(format!("{of_keeper:?}"), format!("{expected:?}"), "{line}");
        }
    }
}
