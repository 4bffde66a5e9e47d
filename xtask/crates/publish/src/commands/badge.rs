//! `cargo xtask report badge`: the state of each architecture in a few words.

use cli::{Failure, OrExit, Paths};
use model::Exit;
use sys::progress;
use targets::Catalogue;

use super::{gate, runs};
use crate::args::BadgeOptions;
use crate::badge::Badge;
use crate::gate::{Expected, Gate};
use crate::output::create_folder;

pub(super) fn run(paths: &Paths, options: &BadgeOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let expected = gate::names(&catalogue, &options.arch)?;
    let wanted = Expected { architectures: expected.clone(), ..Expected::default() };
    let gate = Gate::of(&runs::merged(paths, &options.runs)?, &wanted);
    create_folder(&options.out).or_exit(Exit::Infrastructure)?;
    // Only architectures in the target data have badges.
    for arch in gate.architectures.iter().filter(|arch| expected.contains(&arch.arch)) {
        let badge = Badge::of(arch);
        for (ending, text) in [("json", badge.json()), ("svg", badge.svg())] {
            let name = format!("{}.{ending}", arch.arch);
            report::replace(&options.out, &name, text.as_bytes()).or_exit(Exit::Infrastructure)?;
        }
        progress::say(&format!("{}: {}", badge.label, badge.message));
    }
    Ok(Exit::Ok)
}
