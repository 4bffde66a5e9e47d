//! `cargo xtask dist`: the harness as an archive for machines without Rust, one for each architecture.
//!
//! `compile` cross-builds the programs, `elf` verifies that the machines can start them, `archive` packs them with the
//! target data. The components under test are not in the archive: `build --export` writes them.

mod archive;
mod args;
mod compile;
mod elf;

use std::path::{Path, PathBuf};

use anyhow::Context;
use cli::{Failure, OrExit, Paths, print, print_json};
use model::{Exit, Harness, Target};
use serde::Serialize;
use sys::progress;
use targets::Catalogue;

pub use args::DistOptions;

use compile::Order;

/// The version in names of archives.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An archive that was written.
#[derive(Debug, Serialize)]
struct Archive {
    arch: String,
    path: PathBuf,
    sha256: String,
    /// Bytes of the archive and of the program.
    size: u64,
    program_size: u64,
    /// The newest glibc version that the programs need.
    glibc: String,
}

pub fn run(paths: &Paths, options: &DistOptions) -> Result<Exit, Failure> {
    let checkout = cli::paths::checkout()?;
    let catalogue = Catalogue::load(&paths.targets)?;
    let orders = orders(checkout, &catalogue, options)?;
    if options.dry_run {
        orders.iter().for_each(|order| print(&format!("{}\n", order.shown())));
        return Ok(Exit::Ok);
    }
    // All of them before the first compilation, which takes minutes.
    orders.iter().try_for_each(Order::check).or_exit(Exit::Build)?;
    orders.iter().try_for_each(Order::try_link).or_exit(Exit::Build)?;
    let content = archive::Content::of(checkout).or_exit(Exit::Build)?;
    let out = options.out.clone().unwrap_or_else(|| paths.reports.join("dist"));
    let mut archives = Vec::new();
    for order in &orders {
        archives.push(made(order, &content, &out).or_exit(Exit::Build)?);
    }
    archive::write_sums(&out).or_exit(Exit::Build)?;
    if options.json {
        print_json(&archives)?;
    } else {
        archives.iter().for_each(|archive| print(&format!("{}\n", archive.path.display())));
    }
    Ok(Exit::Ok)
}

fn orders<'a>(
    checkout: &'a Path,
    catalogue: &'a Catalogue,
    options: &'a DistOptions,
) -> Result<Vec<Order<'a>>, Failure> {
    let order = |target: &'a Target| {
        let missing = || format!("{}: `harness:` is missing in its target file", target.name);
        let harness = target.harness.as_ref().with_context(missing).map_err(Failure::usage)?;
        Ok(Order { checkout, target, harness, build_std: options.build_std, tools: options.tools.as_deref() })
    };
    cli::chosen(catalogue, &options.host)?.into_iter().map(order).collect()
}

fn made(order: &Order<'_>, content: &archive::Content, out: &Path) -> anyhow::Result<Archive> {
    let Order { target, harness, .. } = order;
    let programs = compile::compile(order)?;
    let glibc = audited(target, harness, &programs)?;
    let name = format!("{}-{VERSION}-{}", sys::origin::IN_ARCHIVE, target.name);
    let archive = content.write(&programs, &name, out)?;
    let program_size = programs.iter().map(|program| program.bytes.len() as u64).max().unwrap_or_default();
    let archive = Archive { arch: target.name.clone(), program_size, glibc, ..archive };
    progress::say(&format!(
        "dist {}: {:.1} MB, program {:.1} MB, runs with glibc {} and newer",
        archive.arch,
        megabytes(archive.size),
        megabytes(archive.program_size),
        archive.glibc
    ));
    Ok(archive)
}

/// The newest glibc version that a program needs. Fails if a machine of the architecture cannot start one of them.
fn audited(target: &Target, harness: &Harness, programs: &[compile::Program]) -> anyhow::Result<String> {
    let mut newest = elf::Version::default();
    for program in programs {
        let needs = elf::needs(&program.bytes).with_context(|| format!("{} is not a program", program.name))?;
        needs.fits(target, harness).with_context(|| format!("{} does not run on {}", program.name, target.name))?;
        newest = newest.max(needs.glibc);
    }
    Ok(newest.to_string())
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
