//! `cargo xtask differential`: the same generated inputs on two architectures, and what differs.
//!
//! `library` evaluates inputs with the packages of Kubernetes in a program that is built for both architectures. The
//! other modules are about documents and differences: `document`, `changes`, `shrink`, `group`, `corpus`, `report`.

mod args;
pub mod changes;
mod corpus;
pub mod document;
pub mod group;
mod library;
pub mod report;
pub mod shrink;

pub use args::DifferentialOptions;

use cli::{Failure, Paths};
use model::Exit;

pub fn run(paths: &Paths, options: &DifferentialOptions) -> Result<Exit, Failure> {
    library::run(paths, options)
}
