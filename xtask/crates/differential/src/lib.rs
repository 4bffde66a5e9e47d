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

use anyhow::anyhow;
use cli::{Failure, Paths};
use model::Exit;
use provider::ProviderArg;

pub fn run(paths: &Paths, options: &DifferentialOptions) -> Result<Exit, Failure> {
    let mixed = options.only_controllers;
    if mixed && options.level != LevelArg::Controllers {
        return Err(Failure::usage(anyhow!("--only-controllers belongs to --level controllers")));
    }
    if mixed && options.provider.provider.is_some_and(|provider| provider != ProviderArg::Process) {
        return Err(Failure::usage(anyhow!("--only-controllers runs processes: leave out --provider")));
    }
    if options.kubeconfig.is_some() && options.level != LevelArg::Live {
        return Err(Failure::usage(anyhow!("--kubeconfig belongs to --level live")));
    }
    match options.level {
        LevelArg::Library => library::run(paths, options),
        LevelArg::Live => live::run(paths, options),
        LevelArg::Controllers => live::controllers::run(paths, options),
    }
}
