//! Rewrites `targets/architectures/<arch>.lock` from the signed indexes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use model::Target;
use sys::interrupt;
use sys::progress::{self, Phase};

use crate::Options;
use crate::archive::Archive;
use crate::http::counted;
use crate::lock::{Lock, Suite};
use crate::sets::{self, Want};
use sys::store::{self, Kind};

/// The sets that could not be resolved, by cause.
type Problems = BTreeMap<String, Vec<String>>;

/// Resolves the locks of `targets` again: for each its guest, node and node image, Go for hosts of it, and its QEMU for
/// each of `all`. A set that cannot be resolved now, for example because a mirror is being updated, stays unchanged; the
/// causes are returned. With `only`, all sets that it does not name stay unchanged.
///
/// # Errors
/// A lock cannot be read or written, no lock has a set that `only` names, or there is an interrupt.
pub fn update_lock(
    targets: &[&Target],
    all: &[Target],
    options: &Options,
    only: &[String],
) -> anyhow::Result<Vec<String>> {
    let sets: Vec<Vec<Want>> = targets.iter().map(|target| wants(target, all, options)).collect();
    let known = |name: &&String| sets.iter().flatten().any(|want| want.set == **name);
    if let Some(unknown) = only.iter().find(|name| !known(name)) {
        let names: BTreeSet<&str> = sets.iter().flatten().map(|want| want.set.as_str()).collect();
        bail!("no set `{unknown}`: the sets are {}", names.into_iter().collect::<Vec<_>>().join(", "));
    }
    let mut old = BTreeMap::new();
    for target in all {
        let lock = Lock::load(&sets::lock_file(&options.targets_dir, &target.name))?;
        old.insert(target.name.clone(), lock);
    }
    let archive = Archive::new(options, old.values().flat_map(|lock| &lock.suites), true);
    let phase = Phase::start("resolve packages");
    let mut problems: Problems = BTreeMap::new();
    for (target, wants) in targets.iter().zip(&sets) {
        let before = old.remove(&target.name).unwrap_or_default();
        let lock = resolve(wants, only, &before, &archive, &phase, &mut problems)?;
        let file = sets::lock_file(&options.targets_dir, &target.name);
        let claim = store::claim(&file, Kind::File)?;
        let claim = claim.with_context(|| format!("another process writes {}", file.display()))?;
        std::io::Write::write_all(&mut claim.file(), lock.text().as_bytes())?;
        claim.publish()?;
        progress::say(&format!("{}: {}", file.display(), changes(&before, &lock)));
    }
    phase.done(&format!("{} written", counted(targets.len(), "lock")));
    Ok(problems.into_iter().map(|(why, titles)| format!("{}: {why}", titles.join(", "))).collect())
}

fn wants(target: &Target, all: &[Target], options: &Options) -> Vec<Want> {
    let Some(machine) = &target.machine else { return Vec::new() };
    let emulated = all.iter().filter_map(|other| Some((other, other.machine.as_ref()?)));
    let emulators = emulated.map(|(other, its)| sets::emulator(target, machine, other, its));
    let node = options.node.as_ref().map(|node| sets::node(target, machine, node));
    let container = options.container.as_ref().map(|image| sets::container(target, machine, image));
    let go = target.go.as_ref().map(|go| sets::go(target, machine, go));
    guests(target).into_iter().chain(node).chain(container).chain(go).chain(emulators).collect()
}

/// The sets of the guest and of its variants that have a kernel of their own.
fn guests(target: &Target) -> Vec<Want> {
    let kernels = target.variants.iter().filter(|variant| variant.kernel.is_some());
    let variants = kernels.filter_map(|variant| target.with_variant(&variant.name));
    let guest = |target: &Target| Some(sets::guest(target, target.machine.as_ref()?));
    std::iter::once(target.clone()).chain(variants).filter_map(|target| guest(&target)).collect()
}

fn resolve(
    wants: &[Want],
    only: &[String],
    before: &Lock,
    archive: &Archive<'_>,
    phase: &Phase,
    problems: &mut Problems,
) -> anyhow::Result<Lock> {
    let mut lock = Lock::default();
    let (renewed, kept): (Vec<&Want>, Vec<&Want>) =
        wants.iter().partition(|want| only.is_empty() || only.contains(&want.set));
    kept.iter().for_each(|want| keep(&mut lock, want, before));
    for want in renewed {
        interrupt::check()?;
        phase.status(want.title.clone());
        let resolved = sets::resolve(want, archive).and_then(|(set, suites)| {
            same_indexes(&lock, &suites, only)?;
            Ok((set, suites))
        });
        match resolved {
            Ok((set, suites)) => {
                lock.suites.extend(suites);
                lock.sets.insert(want.set.clone(), set);
            }
            Err(error) => {
                interrupt::check()?;
                problems.entry(format!("{error:#}")).or_default().push(want.title.clone());
                keep(&mut lock, want, before);
            }
        }
    }
    Ok(lock)
}

/// Takes a set from the lock as it was.
fn keep(lock: &mut Lock, want: &Want, before: &Lock) {
    let Some(set) = before.sets.get(&want.set) else { return };
    lock.sets.insert(want.set.clone(), set.clone());
    for suite in set.pins.iter().map(|pin| &pin.suite) {
        if let Some(known) = before.suites.get(suite) {
            lock.suites.entry(suite.clone()).or_insert_with(|| known.clone());
        }
    }
}

/// A lock has one index of each suite, whose snapshot has all of the suite's packages. So a set cannot come from a newer
/// index than those that are kept.
fn same_indexes(lock: &Lock, suites: &BTreeMap<String, Suite>, only: &[String]) -> anyhow::Result<()> {
    if only.is_empty() {
        return Ok(());
    }
    for (name, suite) in suites {
        if let Some(kept) = lock.suites.get(name).filter(|kept| kept.date != suite.date) {
            bail!(
                "the index of {name} is dated {}, and other sets of the lock come from that of {}: update all sets, \
                 without --set",
                suite.date,
                kept.date
            );
        }
    }
    Ok(())
}

/// "93 packages, 2 new, 2 gone".
fn changes(before: &Lock, after: &Lock) -> String {
    let digests = |lock: &Lock| -> BTreeSet<String> {
        lock.sets.values().flat_map(|set| &set.pins).map(|pin| pin.sha256.clone()).collect()
    };
    let (before, after) = (digests(before), digests(after));
    format!(
        "{} packages, {} new, {} gone",
        after.len(),
        after.difference(&before).count(),
        before.difference(&after).count()
    )
}
