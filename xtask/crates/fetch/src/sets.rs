//! The required packages: from the lock, from a later resolution, or from the signed index.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use model::{Machine, Node, NodeImage, PackageUsed, Target};
use sys::progress;

use crate::archive::Archive;
use crate::guest::BUSYBOX_PACKAGE;
use crate::lock::{Lock, Pin, Set, Suite};
use crate::resolve::{self, Follow, Prefer};
use crate::{Options, digest};
use sys::store::{self, Kind};

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

/// Kernel and shell of a guest.
pub(crate) fn guest(target: &Target, machine: &Machine) -> Want {
    Want {
        target: target.name.clone(),
        set: "guest".to_owned(),
        title: format!("{} guest", target.name),
        arch: machine.debian.clone(),
        suites: machine.suites.clone(),
        roots: [machine.kernel.clone(), BUSYBOX_PACKAGE.to_owned()].into(),
        follow: Follow::Kernel,
        prefer: Prefer::First,
    }
}

/// The additions that make a guest a node.
pub(crate) fn node(target: &Target, machine: &Machine, node: &Node) -> Want {
    Want {
        target: target.name.clone(),
        set: "node".to_owned(),
        title: format!("{} node", target.name),
        arch: machine.debian.clone(),
        suites: machine.suites.clone(),
        roots: node.packages.iter().cloned().collect(),
        follow: Follow::All,
        prefer: Prefer::First,
    }
}

/// The packages of a container that is a Kind node.
pub(crate) fn container(target: &Target, machine: &Machine, image: &NodeImage) -> Want {
    Want {
        target: target.name.clone(),
        set: "kind".to_owned(),
        title: format!("{} node image", target.name),
        arch: machine.debian.clone(),
        suites: machine.container_suites.clone(),
        roots: image.packages.iter().cloned().collect(),
        follow: Follow::All,
        prefer: Prefer::First,
    }
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

impl Locks {
    pub(crate) fn load(options: &Options, target: &str) -> anyhow::Result<Locks> {
        let later_file = options.debian().join("pins").join(format!("{target}.lock"));
        let later = match Lock::load(&later_file) {
            // The content of the cache can be resolved again.
            Err(error) => {
                progress::say(&format!("note: {error:#}; it is ignored"));
                Lock::default()
            }
            Ok(lock) => lock,
        };
        let committed = Lock::load(&lock_file(&options.targets_dir, target))?;
        Ok(Locks { committed, later, later_file })
    }

    /// The packages of `want`, if they are known without asking a mirror.
    pub(crate) fn settled(&self, want: &Want, locked: bool) -> Option<Settled> {
        let same_roots = |set: &&Set| set.roots == want.roots;
        let committed = self.committed.sets.get(&want.set).filter(same_roots);
        let later = self.later.sets.get(&want.set).filter(same_roots);
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
        let committed = self.committed.sets.get(&want.set).filter(|set| set.roots == want.roots);
        set.replaces = committed.map(Set::digest);
        self.later.sets.insert(want.set.clone(), set.clone());
        self.save(&want.set)?;
        let committed = self.committed.sets.get(&want.set).filter(|set| set.roots == want.roots);
        Ok(Settled { notes: self.notes(&set, committed), set })
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
        let Some(claim) = store::claim(&self.later_file, Kind::File)? else { return Ok(()) };
        let mut all = Lock::load(&self.later_file).unwrap_or_default();
        all.suites = Suite::newest(all.suites.iter().chain(&self.later.suites));
        all.sets.extend(self.later.sets.get(set).map(|resolved| (set.to_owned(), resolved.clone())));
        let written = std::io::Write::write_all(&mut claim.file(), all.text().as_bytes());
        written.with_context(|| format!("failed to write {}: {}", self.later_file.display(), store::hint()))?;
        claim.publish()
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
