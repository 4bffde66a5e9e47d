//! `cargo xtask fetch`: downloads, verifies and unpacks what system VMs are started from.

use std::collections::BTreeMap;

use ::fetch::{Options, QemuChoice};
use model::Exit;
use proc::progress;
use targets::Catalogue;

use super::{chosen, print, print_json, target};
use crate::args::{FetchOptions, MachineOptions, QemuArg};
use crate::failure::{Failure, OrExit};
use crate::paths::Paths;

pub(crate) fn run(paths: &Paths, given: &FetchOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let host = target(&catalogue, None)?;
    let targets = chosen(&catalogue, &given.arch)?;
    let options = options(paths, &given.machine, given.offline);
    if given.update_lock {
        let problems = ::fetch::update_lock(&targets, &catalogue.targets, &options).or_exit(Exit::Infrastructure)?;
        problems.iter().for_each(|problem| progress::say(&format!("not resolved, left as it was: {problem}")));
        return Ok(if problems.is_empty() { Exit::Ok } else { Exit::Infrastructure });
    }
    if given.dry_run {
        let mut plans = BTreeMap::new();
        for target in targets {
            plans.insert(&target.name, ::fetch::plan(host, target, &options).or_exit(Exit::Infrastructure)?);
        }
        if given.json {
            print_json(&plans)?;
        } else {
            plans.iter().for_each(|(arch, plan)| print(&format!("{arch}:\n{plan}\n")));
        }
        return Ok(Exit::Ok);
    }
    let mut fetched = BTreeMap::new();
    for target in targets {
        let files = ::fetch::machine(host, target, &options).or_exit(Exit::Infrastructure)?;
        for package in &files.packages {
            if let Some(note) = &package.note {
                progress::say(&format!("note: {} {} {}: {note}", package.name, package.version, package.arch));
            }
        }
        let (version, origin) = (&files.emulator.version, &files.emulator.origin);
        progress::say(&format!("{}: Linux {}, QEMU {version} ({origin}), ready", target.name, files.release));
        fetched.insert(&target.name, files);
    }
    if given.json {
        print_json(&fetched)?;
    }
    Ok(Exit::Ok)
}

/// The fetch stage's own options.
pub(crate) fn options(paths: &Paths, given: &MachineOptions, offline: bool) -> Options {
    Options {
        cache: paths.cache.clone(),
        targets_dir: paths.targets.clone(),
        offline,
        locked: given.locked,
        mirror: given.debian_mirror.clone(),
        qemu: match given.qemu {
            QemuArg::Debian => QemuChoice::Debian,
            QemuArg::System => QemuChoice::System,
        },
    }
}
