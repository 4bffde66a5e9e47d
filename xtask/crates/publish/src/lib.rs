//! Publishes recorded runs: the commands `report` and `compare`, the site, badges, history, the support table, the gate of
//! a workflow, Prow's layout and uploads.
//!
//! The crate `report` writes the files of a run; this crate reads them again and creates everything else. Except for
//! `commands` and `compare`, the modules are functions without I/O.

mod about;
mod alerts;
mod args;
mod badge;
mod commands;
pub mod compare;
mod diff;
mod differential;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod github;
mod history;
mod junit_options;
mod output;
mod picture;
mod prow;
mod record;
mod run_folders;
mod shards;
mod site;
mod support;
mod timeline;
mod timelines;
mod validate;
mod xml;

#[cfg(test)]
#[path = "../../report/src/fixture.rs"]
pub mod fixture;

pub use args::{CompareOptions, FlavourArg, ReportOptions};
pub use commands::run;
pub use junit_options::{junit_options, tell_result};
pub use timelines::draw;
