//! Consumers of events: the log of a run, the console, and the report files.
//!
//! Reports depend only on `&[model::Event]`, so the reports of an old run can be written again, and equal events give
//! equal bytes. This crate starts no process, does not read the environment and does not choose paths.

mod console;
mod counts;
mod events;
mod files;
pub mod hardware;
mod joint;
mod junit;
pub mod machine;
mod markdown;
mod merge;
pub mod results;
mod run_json;
pub mod text;
pub mod verdict;
pub mod view;

#[cfg(test)]
pub mod fixture;

pub use console::{Console, Options, Screen, Verbosity};
pub use events::{EventLog, parse, read};
pub use files::{replace, write, write_joint};
pub use joint::{Attempt, Child, Joint};
pub use junit::{Flavour, JunitOptions, SingleCase, SourceLocations, joint_junit, junit, single_suite, stages};
pub use markdown::{cell, markdown};
pub use merge::{info, merge};
pub use results::{Results, RunResult};
pub use run_json::run_json;
pub use text::XmlText;
