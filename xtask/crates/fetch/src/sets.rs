//! The required packages: from the lock, from a later resolution, or from the signed index.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use model::{HostGo, Machine, Node, NodeImage, PackageUsed, Target};
use sys::progress;

use crate::archive::Archive;
use crate::guest::BUSYBOX_PACKAGE;
use crate::lock::{Lock, Pin, Set, Suite};
use crate::resolve::{self, Follow, Prefer};
use crate::{Options, digest};

/// Packages that are needed together.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    /// The target whose lock contains them.
    pub(crate) target: String,
    /// The name of the set in the lock.
    pub(crate) set: String,
    /// For people.
    pub(crate) title: String,
    /// Debian's name of the architecture.
    arch: String,
    suites: Vec<String>,
    roots: BTreeSet<String>,
    follow: Follow,
    prefer: Prefer,
}

/// The packages of a [`Want`], and the reasons for the choice.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) set: Set,
    /// For each package that differs from the lock, the reason, by SHA-256.
    notes: BTreeMap<String, String>,
}

/// Packages for the target's own architecture.
fn of_target(target: &Target, machine: &Machine, set: &str, what: &str, roots: &[String]) -> Want {
    Want {
        target: target.name.clone(),
        set: set.to_owned(),
        title: format!("{} {what}", target.name),
        arch: machine.debian.clone(),
        suites: machine.suites.clone(),
        roots: roots.iter().cloned().collect(),
        follow: Follow::All,
        prefer: Prefer::First,
    }
}

/// Kernel and shell of a guest. A variant with a kernel of its own has a set of its own.
pub(crate) fn guest(target: &Target, machine: &Machine) -> Want {
    let roots = [machine.kernel.clone(), BUSYBOX_PACKAGE.to_owned()];
    let set = match target.selected().filter(|variant| variant.kernel.is_some()) {
        Some(variant) => format!("guest-{}", variant.name),
        None => "guest".to_owned(),
    };
    Want { follow: Follow::Kernel, ..of_target(target, machine, &set, &set, &roots) }
}

/// The additions that make a guest a node.
pub(crate) fn node(target: &Target, machine: &Machine, node: &Node) -> Want {
    of_target(target, machine, "node", "node", &node.packages)
}

/// The packages of a container that is a Kind node.
pub(crate) fn container(target: &Target, machine: &Machine, image: &NodeImage) -> Want {
    let suites = machine.container_suites.clone();
    Want { suites, ..of_target(target, machine, "kind", "node image", &image.packages) }
}

/// Go for hosts of an architecture.
pub(crate) fn go(host: &Target, on: &Machine, go: &HostGo) -> Want {
    let title = format!("Go for {} hosts", host.name);
    Want { suites: go.suites.clone(), title, ..of_target(host, on, "go", "Go", std::slice::from_ref(&go.package)) }
}

/// QEMU for `target` on `host`.
pub(crate) fn emulator(host: &Target, on: &Machine, target: &Target, machine: &Machine) -> Want {
    Want {
        target: host.name.clone(),
        set: format!("qemu-{}", target.name),
        title: format!("QEMU for {} on {}", target.name, host.name),
        arch: on.debian.clone(),
        suites: on.host_suites.clone(),
        roots: machine.qemu.packages.iter().cloned().collect(),
        follow: Follow::All,
        prefer: Prefer::Last,
    }
}

/// The lock of a target, and the sets that were resolved later.
pub(crate) struct Locks {
    pub(crate) committed: Lock,
    later: Lock,
    later_file: PathBuf,
}

impl Lock {
    /// The set of `want`, if it was resolved from the same names.
    fn with(&self, want: &Want) -> Option<&Set> {
        self.sets.get(&want.set).filter(|set| set.roots == want.roots)
    }
}

impl Locks {
    pub(crate) fn load(options: &Options, target: &str) -> anyhow::Result<Locks> {
        let later_file = options.debian().join("pins").join(format!("{target}.lock"));
        // The content of the cache can be resolved again.
        let later = Lock::load(&later_file).unwrap_or_else(|error| {
            progress::say(&format!("note: {error:#}; it is ignored"));
            Lock::default()
        });
        let committed = Lock::load(&lock_file(&options.targets_dir, target))?;
        Ok(Locks { committed, later, later_file })
    }

    /// The packages of `want`, if they are known without asking a mirror.
    pub(crate) fn settled(&self, want: &Want, locked: bool) -> Option<Settled> {
        let committed = self.committed.with(want);
        let later = self.later.with(want);
        let later = later.filter(|set| !locked && set.replaces == committed.map(Set::digest));
        match (later, committed) {
            (Some(later), _) => Some(Settled { set: later.clone(), notes: self.notes(later, committed) }),
            (None, Some(set)) => Some(Settled { set: set.clone(), notes: BTreeMap::new() }),
            (None, None) => None,
        }
    }

    /// Resolves from the signed index, and stores the result in the cache.
    pub(crate) fn resolve(&mut self, want: &Want, archive: &Archive<'_>) -> anyhow::Result<Settled> {
        let (mut set, suites) = resolve(want, archive)?;
        self.later.suites.extend(suites);
        set.replaces = self.committed.with(want).map(Set::digest);
        self.later.sets.insert(want.set.clone(), set.clone());
        self.save(&want.set)?;
        Ok(Settled { notes: self.notes(&set, self.committed.with(want)), set })
    }

    /// The suites that were used before.
    pub(crate) fn suites(&self) -> impl Iterator<Item = (&String, &Suite)> + Clone {
        self.committed.suites.iter().chain(&self.later.suites)
    }

    fn notes(&self, set: &Set, committed: Option<&Set>) -> BTreeMap<String, String> {
        let mut notes = BTreeMap::new();
        for pin in &set.pins {
            let locked = committed.into_iter().flat_map(|set| &set.pins).find(|old| old.name == pin.name);
            let why = match locked {
                Some(old) if old.sha256 == pin.sha256 => continue,
                Some(old) => format!("the locked {} is no longer on the mirror", old.version),
                None if committed.is_some() => "not in the lock, because its set has changed".to_owned(),
                None => "not in the lock".to_owned(),
            };
            let from = match self.later.suites.get(&pin.suite) {
                Some(suite) if suite.expired => format!("of {}, past its Valid-Until", suite.date),
                Some(suite) => format!("of {}", suite.date),
                None => "of an unknown date".to_owned(),
            };
            notes.insert(pin.sha256.clone(), format!("{why}; from the index of {} {from}", pin.suite));
        }
        notes
    }

    /// Writes the resolution of one set; concurrent resolutions of other sets are kept.
    fn save(&self, set: &str) -> anyhow::Result<()> {
        // Another process may be writing: its result is equally good.
        let amended = Lock::amend(&self.later_file, |all| {
            all.suites = Suite::newest(all.suites.iter().chain(&self.later.suites));
            all.sets.extend(self.later.sets.get(set).map(|resolved| (set.to_owned(), resolved.clone())));
        });
        amended.map(drop)
    }
}

impl Settled {
    /// For the run's record.
    pub(crate) fn used(&self) -> impl Iterator<Item = PackageUsed> {
        self.set.pins.iter().map(|pin| PackageUsed {
            name: pin.name.clone(),
            version: pin.version.clone(),
            arch: pin.arch.clone(),
            sha256: pin.sha256.clone(),
            note: self.notes.get(&pin.sha256).cloned(),
        })
    }

    /// A name for the result of these packages with this recipe.
    pub(crate) fn key(&self, recipe: &[&str]) -> String {
        let mut key = digest::Sha256::new();
        recipe.iter().for_each(|part| key.field(part));
        key.field(&self.set.digest());
        key.hex()
    }
}

/// `targets/architectures/<name>.lock`.
pub(crate) fn lock_file(targets_dir: &Path, target: &str) -> PathBuf {
    targets_dir.join(format!("architectures/{target}.lock"))
}

/// The path of a package in the cache.
pub(crate) fn pool_file(options: &Options, pin: &Pin) -> PathBuf {
    options.debian().join("pool").join(format!("{}.deb", pin.sha256))
}

/// The packages of `want` from the signed index, and the records of the suites.
pub(crate) fn resolve(want: &Want, archive: &Archive<'_>) -> anyhow::Result<(Set, BTreeMap<String, Suite>)> {
    let mut indexes = Vec::new();
    let mut suites = BTreeMap::new();
    for suite in &want.suites {
        indexes.push((suite.clone(), archive.index(suite, &want.arch)?));
        suites.insert(suite.clone(), archive.suite(suite)?);
    }
    let pins = resolve::closure(&indexes, &want.roots, want.follow, want.prefer)
        .with_context(|| format!("the packages of {} cannot be resolved", want.title))?;
    if pins.is_empty() {
        bail!("{} needs no packages: {:?}", want.title, want.roots);
    }
    let used: BTreeSet<&String> = pins.iter().map(|pin| &pin.suite).collect();
    suites.retain(|name, _| used.contains(name));
    Ok((Set { roots: want.roots.clone(), pins: pins.into_iter().collect(), replaces: None }, suites))
}
