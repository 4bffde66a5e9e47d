//! Everything that VMs of some targets need on a host, verified and unpacked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail};
use model::{MachineFiles, NodeImage, PackageUsed, Size, Target};
use sys::host;
use sys::progress::{self, Phase};

use crate::archive::Archive;
use crate::http::{Job, counted};
use crate::lock::Pin;
use crate::piece::{AllLocks, Kind, Piece, RECIPE, pieces, root};
use crate::sets::{self, Locks, Settled};
use crate::tree::{self, Look, Tree};
use crate::{Options, digest, emulator, guest, plan};
use sys::store;

#[cfg(test)]
mod tests;

/// Attempts: a mirror may change between the download of the index and that of a package, once.
const ROUNDS: usize = 3;

/// The unpacked packages of a container.
#[derive(Clone, Debug)]
pub struct Root {
    /// With a merged /usr and without additions: no /lib, no empty folders.
    pub folder: PathBuf,
    /// Hexadecimal SHA-256 over the digests of the packages.
    pub digest: String,
    pub packages: Vec<PackageUsed>,
}

/// The progress of a piece.
struct State {
    settled: Option<Settled>,
    tree: Option<Tree>,
}

/// Fetches missing packages, and returns everything from which a VM of `target` is started on `host`.
///
/// # Errors
/// A file is missing and must not or cannot be downloaded, or does not match the lock or the signed index.
pub fn machine(host: &Target, target: &Target, options: &Options) -> anyhow::Result<MachineFiles> {
    machines(host, &[target], options)?.pop().context("one target has one machine")
}

/// [`machine`] for several targets, in their order; packages that they share are fetched once.
///
/// # Errors
/// As for [`machine`].
pub fn machines(host: &Target, targets: &[&Target], options: &Options) -> anyhow::Result<Vec<MachineFiles>> {
    // VMs do not need the packages of containers.
    let options = &Options { container: None, ..options.clone() };
    let (pieces, mut locks) = pieces(host, targets, options)?;
    let states = obtain(&pieces, &mut locks, options)?;
    let per_target = pieces.len() / targets.len().max(1);
    pieces.chunks(per_target).zip(states.chunks(per_target)).map(|(pieces, states)| assembled(pieces, states)).collect()
}

/// Fetches the missing packages of a container of `target` that is a Kind node.
///
/// # Errors
/// As for [`machine`].
pub fn container(target: &Target, image: &NodeImage, options: &Options) -> anyhow::Result<Root> {
    let name = &target.name;
    let machine = target.machine.as_ref().with_context(|| {
        format!(
            "targets/architectures/{name}.yaml has no `machine`, which contains Debian's name of {name}: no node image can be built"
        )
    })?;
    let (settled, tree) = single(root(target, machine, image), options)?;
    Ok(Root { folder: tree.root, digest: settled.set.digest(), packages: settled.used().collect() })
}

/// Fetches the missing packages of one piece.
pub(crate) fn single(piece: Piece<'_>, options: &Options) -> anyhow::Result<(Settled, Tree)> {
    let target = piece.want.target.clone();
    let mut locks = BTreeMap::from([(target.clone(), Locks::load(options, &target)?)]);
    let state = obtain(&[piece], &mut locks, options)?.pop();
    let obtained = state.and_then(|state| state.settled.zip(state.tree));
    obtained.context("the piece was not obtained: this is a bug of the harness")
}

/// Downloads the packages of all pieces that are not in the cache, and returns all packages.
pub(crate) fn packages(host: &Target, targets: &[&Target], options: &Options) -> anyhow::Result<BTreeSet<Pin>> {
    let (pieces, mut locks) = pieces(host, targets, options)?;
    let mut states = known(&pieces, &locks, options);
    fetch(&pieces, &mut states, &mut locks, options)?;
    Ok(states.into_iter().filter_map(|state| state.settled).flat_map(|settled| settled.set.pins).collect())
}

/// The packages that are known without asking a mirror.
fn known(pieces: &[Piece<'_>], locks: &AllLocks, options: &Options) -> Vec<State> {
    let settled = |piece: &Piece<'_>| locks[&piece.want.target].settled(&piece.want, options.locked);
    pieces.iter().map(|piece| State { settled: settled(piece), tree: None }).collect()
}

/// Obtains the tree of every piece.
fn obtain(pieces: &[Piece<'_>], locks: &mut AllLocks, options: &Options) -> anyhow::Result<Vec<State>> {
    let mut states = known(pieces, locks, options);
    pieces.iter().zip(&mut states).for_each(|(piece, state)| look(piece, state, options));
    if states.iter().any(|state| state.tree.is_none()) {
        fetch(pieces, &mut states, locks, options)?;
        unpack(pieces, &mut states, options)?;
    }
    Ok(states)
}

/// Downloads the packages of every piece that has no tree.
fn fetch(pieces: &[Piece<'_>], states: &mut [State], locks: &mut AllLocks, options: &Options) -> anyhow::Result<()> {
    let with = pieces.iter().zip(states.iter()).filter(|(_, state)| state.tree.is_none());
    let missing = plan::of(with.map(|(piece, state)| (piece, state.settled.as_ref())), options);
    if options.offline && !missing.is_empty() {
        bail!("some files are not in the cache, and --offline forbids downloading them:\n{missing}");
    }
    let archive = Archive::new(options, locks.values().flat_map(Locks::suites), false);
    let mut gone_before = BTreeSet::new();
    for _ in 0..ROUNDS {
        settle(pieces, states, locks, &archive, options)?;
        let gone = download(pieces, states, &archive, options)?;
        if gone.is_empty() {
            return Ok(());
        }
        let again: Vec<String> = gone.intersection(&gone_before).map(label).collect();
        if !again.is_empty() {
            bail!(
                "{} does not have {}, which its own index names: it is being updated or incomplete; try again later, or \
                 use another --debian-mirror",
                archive.mirror,
                again.join(", ")
            );
        }
        let labels = gone.iter().map(label).collect::<Vec<_>>().join(", ");
        if options.locked {
            bail!("{} no longer has {labels}, and --locked forbids resolving it again", archive.mirror);
        }
        progress::say(&format!(
            "note: {} no longer has {labels}: resolved again from the signed index",
            archive.mirror
        ));
        for state in states.iter_mut().filter(|state| state.tree.is_none()) {
            if state.settled.as_ref().is_some_and(|settled| settled.set.pins.iter().any(|pin| gone.contains(pin))) {
                state.settled = None;
            }
        }
        gone_before.extend(gone);
    }
    bail!("the packages on {} change faster than they can be downloaded: try again later", archive.mirror)
}

/// Opens the tree if it exists and is intact.
fn look(piece: &Piece<'_>, state: &mut State, options: &Options) {
    let Some(settled) = &state.settled else { return };
    match tree::open(&piece.tree_dir(settled, options), Look::Quick) {
        Ok(tree) => state.tree = Some(tree),
        Err(None) => {}
        Err(Some(why)) => {
            progress::say(&format!("note: {} is damaged in the cache: {why}; it will be made again", piece.want.title));
        }
    }
}

/// Resolves the pieces whose packages no lock contains, from the signed index.
fn settle(
    pieces: &[Piece<'_>],
    states: &mut [State],
    locks: &mut AllLocks,
    archive: &Archive<'_>,
    options: &Options,
) -> anyhow::Result<()> {
    for (piece, state) in pieces.iter().zip(states).filter(|(_, state)| state.settled.is_none()) {
        let want = &piece.want;
        if options.locked {
            bail!(
                "{} does not cover {}: omit --locked, or run `cargo xtask fetch --update-lock`",
                sets::lock_file(&options.targets_dir, &want.target).display(),
                want.title
            );
        }
        let locks = locks.get_mut(&want.target).context("the lock of each piece was loaded")?;
        state.settled = Some(locks.resolve(want, archive)?);
        look(piece, state, options);
    }
    Ok(())
}

/// Downloads missing packages; returns those that the mirror no longer has.
fn download(
    pieces: &[Piece<'_>],
    states: &[State],
    archive: &Archive<'_>,
    options: &Options,
) -> anyhow::Result<BTreeSet<Pin>> {
    let open = || pieces.iter().zip(states).filter(|(_, state)| state.tree.is_none());
    let settled = open().filter_map(|(_, state)| state.settled.as_ref());
    let missing: BTreeSet<Pin> = settled.flat_map(|settled| plan::missing(settled, options)).collect();
    if missing.is_empty() {
        return Ok(missing);
    }
    store::sweep(&options.debian().join("pool"));
    let job = |pin: &Pin| Job {
        label: label(pin),
        urls: archive.mirror.places(&pin.suite).iter().map(|place| place.url(&pin.path)).collect(),
        to: sets::pool_file(options, pin),
        size: Size::Exact(pin.size),
        sha256: Some(pin.sha256.clone()),
    };
    let titles: Vec<&str> = open().map(|(piece, _)| piece.want.title.as_str()).collect();
    let what = match titles.as_slice() {
        [first, second, more @ ..] if !more.is_empty() => format!("{first}, {second} and {} more", more.len()),
        few => few.join(", "),
    };
    let gone = archive.client()?.all(&what, &missing.iter().map(job).collect::<Vec<_>>())?;
    Ok(missing.into_iter().filter(|pin| gone.contains(&sets::pool_file(options, pin))).collect())
}

fn label(pin: &Pin) -> String {
    format!("{} {} {}", pin.name, pin.version, pin.arch)
}

/// Unpacks all pieces, as many at a time as there are processors.
fn unpack(pieces: &[Piece<'_>], states: &mut [State], options: &Options) -> anyhow::Result<()> {
    let open: Vec<usize> = (0..states.len()).filter(|number| states[*number].tree.is_none()).collect();
    let (total, done) = (open.len(), AtomicUsize::new(0));
    let phase = Phase::start("unpack packages");
    let made = sys::side_by_side(&open, host::processors().min(total), |&number| {
        let piece = &pieces[number];
        phase.status(format!("{} of {total}: {}", done.load(Ordering::Relaxed), piece.want.title));
        let settled = states[number].settled.as_ref().context("what is unpacked was downloaded")?;
        let tree = piece.unpack(settled, options)?;
        done.fetch_add(1, Ordering::Relaxed);
        Ok((number, tree))
    })?;
    made.into_iter().for_each(|(number, tree)| states[number].tree = Some(tree));
    phase.done(&counted(total, "tree"));
    Ok(())
}

fn assembled(pieces: &[Piece<'_>], states: &[State]) -> anyhow::Result<MachineFiles> {
    let machine = pieces.first().context("there is always a guest")?.machine;
    let (mut guest, mut emulator, mut node) = (None, None, None);
    let mut packages = Vec::new();
    let mut key = digest::Sha256::new();
    key.field(RECIPE);
    for (piece, state) in pieces.iter().zip(states) {
        let (settled, tree) = state.settled.as_ref().zip(state.tree.as_ref()).context("every piece was obtained")?;
        packages.extend(settled.used());
        key.field(&settled.set.digest());
        match piece.kind {
            Kind::Guest(_) => guest = Some((tree, &piece.recipe)),
            Kind::Emulator => emulator = Some(tree),
            Kind::Node(_) => node = Some((tree, &piece.recipe)),
            Kind::Container(_) | Kind::Go(_) => bail!("not a part of a machine: this is a bug of the harness"),
        }
    }
    packages.sort();
    packages.dedup();
    let emulator = match emulator {
        Some(tree) => emulator::fetched(machine, tree)?,
        None => emulator::system(machine)?,
    };
    key.field(&emulator.origin);
    key.field(&emulator.version);
    let (guest, asked) = guest.context("there is always a guest")?;
    asked.iter().for_each(|module| key.field(module));
    let node = node.map(|(tree, left_out)| {
        left_out.iter().for_each(|pattern| key.field(pattern));
        tree.root.clone()
    });
    let guest::Files { kernel, release, modules, busybox } = guest::files(guest)?;
    Ok(MachineFiles { emulator, kernel, release, modules, busybox, node, digest: key.hex(), packages })
}
