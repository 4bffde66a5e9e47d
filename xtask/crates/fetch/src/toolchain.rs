//! The Go toolchain for a host without a new enough `go`: the module that `targets/go.lock` pins, else Debian's package
//! through the architecture's lock.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use model::{HostGo, Target};

use crate::debian_go::upstream;
use crate::go::{self, older};
use crate::piece::{self, Piece};
use crate::sets::{Locks, Settled, lock_file};
use crate::tree::{self, Look};
use crate::{Options, machine};

const MODULE: &str = "pinned in targets/go.lock";

/// A toolchain in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Go {
    pub program: PathBuf,
    /// "1.26.8".
    pub version: String,
    /// For people: the lock, or the package of Debian.
    pub origin: String,
}

/// The toolchain that [`go_toolchain`] would return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoPlan {
    /// "1.26.8".
    pub version: String,
    /// As in [`Go`].
    pub origin: String,
    /// Whether nothing has to be downloaded.
    pub cached: bool,
    /// Bytes of the download.
    pub size: u64,
}

/// The toolchain for this host, fetched if it is not in the cache. `proxy` is a GOPROXY; without it no module is fetched.
///
/// # Errors
/// No toolchain is known for the host or the known one is older than `needed` ("1.26.0"), it cannot be downloaded, or it
/// does not match its lock.
pub fn go_toolchain(host: &Target, needed: &str, proxy: Option<&str>, options: &Options) -> anyhow::Result<Go> {
    if let Some(pin) = go::pin(&host.name, needed, &options.targets_dir)? {
        let program = go::obtain(&pin, proxy, options)?;
        return Ok(Go { program, version: pin.version, origin: MODULE.to_owned() });
    }
    let (go, piece) = of_debian(host, options)?;
    if let Some(settled) = settled(&piece, options)? {
        new_enough(host, version(go, &settled)?, needed, options)?;
    }
    let (_, tree) = machine::single(piece, options)?;
    new_enough(host, &tree.info, needed, options)?;
    Ok(Go { program: tree.root.join(&go.root).join("bin/go"), version: tree.info, origin: origin(go) })
}

/// The toolchain that [`go_toolchain`] would return. Downloads nothing.
///
/// # Errors
/// No toolchain is known for the host without asking a mirror, or the known one is older than `needed`.
pub fn go_plan(host: &Target, needed: &str, options: &Options) -> anyhow::Result<GoPlan> {
    if let Some(pin) = go::pin(&host.name, needed, &options.targets_dir)? {
        let cached = pin.cached(options);
        return Ok(GoPlan { cached, size: pin.size, version: pin.version, origin: MODULE.to_owned() });
    }
    let (go, piece) = of_debian(host, options)?;
    let settled = settled(&piece, options)?.with_context(|| {
        let lock = lock_file(Path::new("targets"), &host.name);
        format!(
            "{} has no set `go`: run `cargo xtask fetch --update-lock --set go --arch {}`",
            lock.display(),
            host.name
        )
    })?;
    let version = version(go, &settled)?.to_owned();
    new_enough(host, &version, needed, options)?;
    let cached = tree::open(&piece.tree_dir(&settled, options), Look::Quick).is_ok();
    let size = settled.set.pins.iter().map(|pin| pin.size).sum();
    Ok(GoPlan { version, origin: origin(go), cached, size })
}

fn of_debian<'a>(host: &'a Target, options: &Options) -> anyhow::Result<(&'a HostGo, Piece<'a>)> {
    let Target { name, machine, go, .. } = host;
    let found = go.as_ref().zip(machine.as_ref());
    let (go, machine) = found.with_context(|| {
        let lock = options.targets_dir.join("go.lock");
        format!(
            "{} names no toolchain for {name}, and targets/architectures/{name}.yaml has no `go`: install Go",
            lock.display()
        )
    })?;
    Ok((go, piece::go(host, machine, go)))
}

fn origin(go: &HostGo) -> String {
    format!("Debian's package {}", go.package)
}

/// The packages, if they are known without asking a mirror.
fn settled(piece: &Piece<'_>, options: &Options) -> anyhow::Result<Option<Settled>> {
    Ok(Locks::load(options, &piece.want.target)?.settled(&piece.want, options.locked))
}

fn version<'a>(go: &HostGo, settled: &'a Settled) -> anyhow::Result<&'a str> {
    let pin = settled.set.pins.iter().find(|pin| pin.name == go.package);
    let pin = pin.with_context(|| format!("the set `go` of the lock does not contain `{}`", go.package))?;
    Ok(upstream(&pin.version))
}

fn new_enough(host: &Target, version: &str, needed: &str, options: &Options) -> anyhow::Result<()> {
    if older(version, needed) {
        let lock = lock_file(&options.targets_dir, &host.name);
        bail!(
            "{} names Go {version}, but {needed} is needed: run `cargo xtask fetch --update-lock --set go --arch {}`",
            lock.display(),
            host.name
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
