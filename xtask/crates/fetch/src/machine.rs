//! Everything a VM of a target needs on a host, verified and unpacked.

use std::path::PathBuf;

use anyhow::{Context, bail};
use model::{Machine, MachineFiles, SystemEmulator, Target};
use proc::progress::{self, Phase};
use serde::Serialize;

use crate::archive::Archive;
use crate::http::{Job, mib};
use crate::lock::Pin;
use crate::sets::{self, Locks, Settled, Want};
use crate::tree::{self, Look, Tree};
use crate::{Options, QemuChoice, digest, emulator, guest, store};

/// Changes when the same packages are unpacked in another way.
const RECIPE: &str = "1";
/// A mirror may change between the index and the package, once.
const ROUNDS: usize = 3;

/// What has to be downloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub missing: Vec<Missing>,
    /// Sets of packages that no lock names: what they need is only known to the mirror's index.
    pub unresolved: Vec<String>,
}

/// A package that is not in the cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Missing {
    pub name: String,
    pub version: String,
    pub arch: String,
    /// Bytes.
    pub size: u64,
    pub sha256: String,
}

/// Fetches what is missing, and returns everything a VM of `target` is started from on `host`.
///
/// # Errors
/// Something is missing and must not or cannot be downloaded, or is not what the lock or the signed index says.
pub fn machine(host: &Target, target: &Target, options: &Options) -> anyhow::Result<MachineFiles> {
    let parts = Parts::of(host, target, options)?;
    let mut ready = Vec::new();
    for (want, recipe) in &parts.wants {
        ready.push(
            obtain(want, recipe, &parts, options).with_context(|| format!("failed to fetch the {}", want.title))?,
        );
    }
    let emulator = match ready.get(1) {
        Some(ready) => emulator::fetched(parts.machine, &ready.tree)?,
        None => emulator::system(parts.machine)?,
    };
    let guest = ready.first().context("there is always a guest")?;
    let files = guest::files(&guest.tree)?;
    let mut packages: Vec<_> = ready.iter().flat_map(|ready| ready.settled.used()).collect();
    packages.sort();
    packages.dedup();
    Ok(MachineFiles {
        digest: overall(&ready, &emulator, parts.machine),
        emulator,
        kernel: files.kernel,
        release: files.release,
        modules: files.modules,
        busybox: files.busybox,
        packages,
    })
}

/// What [`machine`] would download. Downloads and writes nothing.
///
/// # Errors
/// As for [`machine`], as far as they show without downloading.
pub fn plan(host: &Target, target: &Target, options: &Options) -> anyhow::Result<Plan> {
    let parts = Parts::of(host, target, options)?;
    let mut plan = Plan::default();
    for (want, recipe) in &parts.wants {
        match Locks::load(options, &want.target)?.settled(want, options.locked) {
            None => plan.unresolved.push(want.title.clone()),
            Some(settled) if tree::open(&tree_dir(options, &settled, recipe), Look::Quick).is_ok() => {}
            Some(settled) => plan.missing.extend(missing(options, &settled).iter().map(Missing::from)),
        }
    }
    plan.missing.sort();
    plan.missing.dedup();
    Ok(plan)
}

/// One line for each thing, and the sum.
impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Missing { name, version, arch, size, .. } in &self.missing {
            writeln!(f, "  {name} {version} {arch}, {}", mib(*size))?;
        }
        for title in &self.unresolved {
            writeln!(f, "  the packages of {title}, which are not in the lock: their size is not known")?;
        }
        let total: u64 = self.missing.iter().map(|missing| missing.size).sum();
        write!(f, "  {} packages, {} together", self.missing.len(), mib(total))
    }
}

impl From<&Pin> for Missing {
    fn from(pin: &Pin) -> Missing {
        let [name, version, arch, sha256] = [&pin.name, &pin.version, &pin.arch, &pin.sha256].map(Clone::clone);
        Missing { name, version, arch, size: pin.size, sha256 }
    }
}

/// The sets of packages of a VM, the guest's first, each with what else shapes its tree.
struct Parts<'a> {
    machine: &'a Machine,
    wants: Vec<(Want, Vec<String>)>,
}

impl<'a> Parts<'a> {
    fn of(host: &Target, target: &'a Target, options: &Options) -> anyhow::Result<Parts<'a>> {
        let machine = target.machine.as_ref().with_context(|| {
            format!(
                "targets/{}.yaml has no `machine`, so there is no system VM of {0}: use --provider process",
                target.name
            )
        })?;
        let mut wants = vec![(sets::guest(target, machine), machine.modules.clone())];
        if options.qemu == QemuChoice::Debian {
            let on = host.machine.as_ref().with_context(|| {
                format!("targets/{}.yaml has no `machine`, so it is not known which packages of QEMU run here: use --qemu system", host.name)
            })?;
            let recipe = [Some(machine.qemu.program.clone()), machine.qemu.firmware.clone()];
            wants.push((sets::emulator(host, on, target, machine), recipe.into_iter().flatten().collect()));
        }
        Ok(Parts { machine, wants })
    }
}

/// Packages that are unpacked.
struct Ready {
    settled: Settled,
    tree: Tree,
}

fn obtain(want: &Want, recipe: &[String], parts: &Parts<'_>, options: &Options) -> anyhow::Result<Ready> {
    let mut locks = Locks::load(options, &want.target)?;
    let mut settled = locks.settled(want, options.locked);
    if let Some(settled) = &settled {
        match tree::open(&tree_dir(options, settled, recipe), Look::Quick) {
            Ok(tree) => return Ok(Ready { settled: settled.clone(), tree }),
            Err(None) => {}
            Err(Some(why)) => progress::say(&format!("the {} in the cache is damaged: {why}; made again", want.title)),
        }
    }
    refuse_offline(want, settled.as_ref(), options)?;
    let archive = Archive::new(options, locks.known(), false);
    for _ in 0..ROUNDS {
        let now = match settled.take() {
            Some(settled) => settled,
            None if options.locked => bail!(
                "{} does not cover it: leave out --locked, or run `cargo xtask fetch --update-lock`",
                sets::lock_file(&options.targets_dir, &want.target).display()
            ),
            None => locks.resolve(want, &archive)?,
        };
        let gone = download(want, &now, &archive, options)?;
        if gone.is_empty() {
            let tree = unpack(want, recipe, &now, parts.machine, options)?;
            return Ok(Ready { settled: now, tree });
        }
        if options.locked {
            bail!("{} no longer has {}, and --locked forbids to resolve it again", archive.mirror, gone.join(", "));
        }
        let gone = gone.join(", ");
        progress::say(&format!("note: {} no longer has {gone}: resolved again from the signed index", archive.mirror));
    }
    bail!("the packages on {} change faster than they can be fetched: try again later", archive.mirror)
}

fn refuse_offline(want: &Want, settled: Option<&Settled>, options: &Options) -> anyhow::Result<()> {
    if !options.offline {
        return Ok(());
    }
    let mut plan = Plan::default();
    match settled {
        None => plan.unresolved.push(want.title.clone()),
        Some(settled) => plan.missing.extend(missing(options, settled).iter().map(Missing::from)),
    }
    if plan == Plan::default() {
        return Ok(());
    }
    bail!("it is not in the cache, and --offline forbids to download it:\n{plan}")
}

/// Downloads what is missing; returns what the mirror no longer has.
fn download(want: &Want, settled: &Settled, archive: &Archive<'_>, options: &Options) -> anyhow::Result<Vec<String>> {
    let missing = missing(options, settled);
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    store::sweep(&options.debian().join("pool"));
    let jobs: Vec<Job> = missing
        .iter()
        .map(|pin| Job {
            label: format!("{} {} {}", pin.name, pin.version, pin.arch),
            urls: vec![archive.mirror.url(&pin.suite, &pin.path)],
            to: sets::pool_file(options, pin),
            size: pin.size,
            sha256: pin.sha256.clone(),
        })
        .collect();
    let gone = archive.client()?.all(&want.title, &jobs)?;
    Ok(jobs.into_iter().filter(|job| gone.contains(&job.sha256)).map(|job| job.label).collect())
}

/// Packages that are not, or not whole, in the cache.
fn missing(options: &Options, settled: &Settled) -> Vec<Pin> {
    let intact =
        |pin: &&Pin| digest::of_file(&sets::pool_file(options, pin)).is_ok_and(|(sha256, _)| sha256 == pin.sha256);
    settled.set.pins.iter().filter(|pin| !intact(pin)).cloned().collect()
}

fn unpack(
    want: &Want,
    recipe: &[String],
    settled: &Settled,
    machine: &Machine,
    options: &Options,
) -> anyhow::Result<Tree> {
    let phase = Phase::start(format!("unpack {}", want.title));
    let debs: Vec<PathBuf> = settled.set.pins.iter().map(|pin| sets::pool_file(options, pin)).collect();
    let tree = tree::make(&tree_dir(options, settled, recipe), |tree| {
        if want.set == "guest" {
            return guest::unpack(machine, &debs, tree);
        }
        for (number, deb) in debs.iter().enumerate() {
            phase.status(format!("{} of {} packages", number + 1, debs.len()));
            tree.unpack(deb, &|path| emulator::wanted(&machine.qemu.program, path))?;
        }
        emulator::examine(machine, tree)
    })?;
    phase.done("ready");
    Ok(tree)
}

fn tree_dir(options: &Options, settled: &Settled, recipe: &[String]) -> PathBuf {
    let recipe: Vec<&str> = [RECIPE].into_iter().chain(recipe.iter().map(String::as_str)).collect();
    options.debian().join("trees").join(settled.key(&recipe))
}

/// The same for the same packages on every machine.
fn overall(ready: &[Ready], emulator: &SystemEmulator, machine: &Machine) -> String {
    let mut digest = digest::Sha256::new();
    digest.field(RECIPE);
    digest.field(&emulator.origin);
    digest.field(&emulator.version);
    ready.iter().for_each(|ready| digest.field(&ready.settled.set.digest()));
    machine.modules.iter().for_each(|module| digest.field(module));
    digest.hex()
}
