//! `cargo xtask fetch`: downloads, verifies and unpacks the packages for system VMs.

use std::collections::{BTreeMap, BTreeSet};

use ::fetch::Options;
use cli::{Failure, OrExit, Paths, chosen, fetch_options, print, print_json, target};
use model::{Exit, MachineFiles, SystemEmulator};
use provider::ClusterArg;
use sys::progress;
use targets::Catalogue;

use crate::args::FetchOptions;

/// Number of packages that a note names before it only counts them.
const NAMED: usize = 4;

pub(crate) fn run(paths: &Paths, given: &FetchOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let host = target(&catalogue, None)?;
    let targets = chosen(&catalogue, &given.arch)?;
    // A lock without the node's packages would look like an outdated one.
    let node = (given.update_lock || given.cluster == ClusterArg::Node).then(|| catalogue.node.clone());
    let container = (given.update_lock || given.kind).then(|| catalogue.kind.clone());
    let options = Options { node, container, ..fetch_options(paths, &given.machine, given.offline) };
    if let Some(file) = &given.bundle {
        ::fetch::bundle(host, &targets, &options, file).or_exit(Exit::Infrastructure)?;
        return Ok(Exit::Ok);
    }
    if let Some(file) = &given.import {
        ::fetch::import(&catalogue.targets, &options, file).or_exit(Exit::Infrastructure)?;
        return Ok(Exit::Ok);
    }
    if given.update_lock {
        let updated = ::fetch::update_lock(&targets, &catalogue.targets, &options, &given.sets);
        let problems = updated.or_exit(Exit::Infrastructure)?;
        problems.iter().for_each(|problem| progress::say(&format!("not resolved, left unchanged: {problem}")));
        return Ok(if problems.is_empty() { Exit::Ok } else { Exit::Infrastructure });
    }
    if given.dry_run {
        let plan = ::fetch::plan(host, &targets, &options).or_exit(Exit::Infrastructure)?;
        if given.json {
            print_json(&plan)?;
        } else {
            print(&format!("to be downloaded:\n{plan}\n"));
        }
        return Ok(Exit::Ok);
    }
    let all = ::fetch::machines(host, &targets, &options).or_exit(Exit::Infrastructure)?;
    let fetched: BTreeMap<&String, MachineFiles> = targets.iter().map(|target| &target.name).zip(all).collect();
    tell_notes(fetched.values());
    for (arch, MachineFiles { release, node, emulator: SystemEmulator { version, origin, .. }, .. }) in &fetched {
        let and = if node.is_some() { ", with the packages of a node," } else { "" };
        progress::say(&format!("{arch}: Linux {release} and QEMU {version} ({origin}){and} are ready"));
    }
    if given.kind {
        for target in &targets {
            let root = ::fetch::container(target, &catalogue.kind, &options).or_exit(Exit::Infrastructure)?;
            progress::say(&format!("{}: {} packages of a node image are ready", target.name, root.packages.len()));
        }
    }
    if given.json {
        print_json(&fetched)?;
    }
    Ok(Exit::Ok)
}

/// Prints why packages differ from the lock; one line for all packages with the same reason.
fn tell_notes<'a>(fetched: impl Iterator<Item = &'a MachineFiles>) {
    let mut by_note: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for package in fetched.flat_map(|files| &files.packages) {
        if let Some(note) = &package.note {
            let named = format!("{} {} {}", package.name, package.version, package.arch);
            by_note.entry(note).or_default().insert(named);
        }
    }
    for (note, packages) in by_note {
        let named: Vec<&str> = packages.iter().take(NAMED).map(String::as_str).collect();
        let more = packages.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        progress::say(&format!("note: {}{more}: {note}", named.join(", ")));
    }
}
