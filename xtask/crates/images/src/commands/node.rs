//! `cargo xtask images node`: builds the node image for Kind.

use std::path::Path;

use cli::{Failure, MachineOptions, OrExit, Paths, SourceOptions, print, print_json, target};
use model::{Exit, Target};
use sys::progress;
use targets::Catalogue;

use super::Load;
use crate::Built;
use crate::args::ImagesNodeOptions;
use crate::kind::{self, Order};

pub(crate) fn run(paths: &Paths, options: &ImagesNodeOptions, load: Load) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let target = target(&catalogue, options.arch.as_deref())?;
    cli::known_releases(&catalogue, &options.sources)?;
    let archive = options.output.clone().unwrap_or_else(|| usual_place(paths, target));
    let built = make(paths, &catalogue, target, &options.sources, &options.machine, &archive)?;
    if options.load {
        let phase = progress::Phase::start("docker load");
        load(&archive).or_exit(Exit::Infrastructure)?;
        phase.done(&built.reference);
    }
    if options.json {
        print_json(&built)?;
    } else {
        print(&format!("{} {} {} {}\n", built.reference, built.arch, built.digest, archive.display()));
    }
    Ok(Exit::Ok)
}

fn usual_place(paths: &Paths, target: &Target) -> std::path::PathBuf {
    paths.cache.join(super::FOLDER).join("docker").join(&target.name).join("node.tar")
}

fn make(
    paths: &Paths,
    catalogue: &Catalogue,
    target: &Target,
    sources: &SourceOptions,
    machine: &MachineOptions,
    archive: &Path,
) -> Result<Built, Failure> {
    let components = kind::components(catalogue).or_exit(Exit::TargetData)?;
    let request = cli::request(paths, catalogue, target, Some(sources));
    let request = build::Request { only: Some(&components), ..request };
    let artifacts = cli::built(paths, request).or_exit(Exit::Build)?;
    let order = Order { paths, catalogue, target, artifacts: &artifacts, machine, offline: sources.offline };
    let made = kind::Inputs::of(&order).or_exit(Exit::Infrastructure)?;
    made.write(archive).or_exit(Exit::Infrastructure)
}
