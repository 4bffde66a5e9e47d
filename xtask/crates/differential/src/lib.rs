//! `cargo xtask differential`: the same generated inputs on two architectures, and what differs.

mod args;
mod live;

pub use args::DifferentialOptions;

use cli::{Failure, Paths};
use model::Exit;

pub fn run(paths: &Paths, options: &DifferentialOptions) -> Result<Exit, Failure> {
    live::run(paths, options)
}
