//! `cargo xtask differential`: the same generated inputs on two architectures, and what differs.
//!
//! `library` evaluates inputs with the packages of Kubernetes in a program that is built for both architectures; `live`
//! sends API requests to control planes of both. The other modules are about inputs and differences: `shrink`, `group`,
//! `corpus`, `report`. `document` and `changes` are modules of `judge`.

mod args;
mod corpus;
pub mod group;
mod library;
mod live;
pub mod report;
pub mod shrink;

pub use args::DifferentialOptions;
pub use judge::{changes, document};

pub use library::throughput;
pub use live::throughput as live_throughput;

use args::LevelArg;

use cli::{Failure, Paths};
use model::Exit;

pub fn run(paths: &Paths, options: &DifferentialOptions) -> Result<Exit, Failure> {
    options.check()?;
    match options.level {
        LevelArg::Library => library::run(paths, options),
        LevelArg::Live => live::run(paths, options),
        LevelArg::Controllers => live::controllers::run(paths, options),
    }
}
