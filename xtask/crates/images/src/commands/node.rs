//! `cargo xtask images node`: builds the node image for Kind.

use cli::{Failure, OrExit, Paths, print, print_json, target};
use model::Exit;
use sys::progress;
use targets::Catalogue;

use super::Load;
use crate::args::ImagesNodeOptions;
use crate::kind::{self, Order};

pub(crate) fn run(paths: &Paths, options: &ImagesNodeOptions, load: Load) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let target = target(&catalogue, options.arch.as_deref())?;
    cli::known_releases(&catalogue, &options.sources)?;
    let usual_place = || paths.cache.join(super::FOLDER).join("docker").join(&target.name).join("node.tar");
    let archive = options.output.clone().unwrap_or_else(usual_place);
    let components = kind::components(&catalogue).or_exit(Exit::TargetData)?;
    let request = cli::request(paths, &catalogue, target, Some(&options.sources));
    let artifacts = cli::built(paths, build::Request { only: Some(&components), ..request }).or_exit(Exit::Build)?;
    let (machine, offline) = (&options.machine, options.sources.offline);
    let order = Order { paths, catalogue: &catalogue, target, artifacts: &artifacts, machine, offline };
    let made = kind::Inputs::of(&order).or_exit(Exit::Infrastructure)?;
    let built = made.write(&archive).or_exit(Exit::Infrastructure)?;
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
