//! `cargo xtask pins`: keeps the pinned versions with upstream.
//!
//! `check` compares, `bump` pins newer versions, `pr` opens pull requests. Decisions are pure functions over lists of
//! versions (`state`, `plan`) and over texts (`edit`, `gomod`); `upstream` and `hub` ask, `apply` runs Go.

mod answer;
mod apply;
mod args;
mod bump;
mod check;
mod draft;
mod edit;
#[doc(hidden)]
pub mod fuzzing;
mod git;
mod gomod;
mod hub;
mod locks;
mod pinned;
mod plan;
mod pull;
mod restore;
mod state;
mod table;
mod toolchain;
mod upstream;
mod version;

use std::path::Path;

use cli::{Failure, Paths};

use args::PinsCommand;
pub use args::PinsOptions;

/// Runs the command; the folder `root` has the workflows. Returns the exit code.
///
/// # Errors
/// Wrong options, invalid target data, or a failure of Go, git or a server.
pub fn run(paths: &Paths, root: &Path, options: &PinsOptions) -> Result<u8, Failure> {
    match &options.command {
        PinsCommand::Check(options) => check::run(&paths.targets, root, options).map(model::Exit::code),
        PinsCommand::Bump(options) => bump::run(&paths.targets, options).map(model::Exit::code),
        PinsCommand::Pr(options) => pull::run(paths, options),
    }
}
