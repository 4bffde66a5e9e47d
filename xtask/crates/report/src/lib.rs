//! Consumers of events: the log of a run, the console, and the report files.
//!
//! Reports depend only on `&[model::Event]`, so the reports of an old run can be written again, and equal events give
//! equal bytes. This crate starts no process, does not read the environment and does not choose paths.

mod about;
mod badge;
mod console;
mod diff;
mod events;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
pub mod github;
pub mod history;
mod joint;
mod junit;
mod machine;
mod markdown;
mod merge;
mod picture;
mod prow;
pub mod results;
mod run_json;
mod site;
mod support;
mod text;
mod timeline;
mod validate;
pub mod verdict;
mod view;
mod xml;

#[cfg(test)]
mod fixture;

pub use badge::Badge;
pub use console::{Console, Options, Screen, Verbosity};
pub use diff::Diff;
pub use events::{EventLog, now, read};
pub use files::{replace, write, write_joint};
pub use gate::{ArchGate, Expected, Gate, Standing};
pub use joint::{Child, Joint};
pub use junit::{Flavour, Form, Places, SingleCase, junit, single_suite, stages};
pub use markdown::markdown;
pub use merge::{Attempt, merge};
pub use picture::Picture;
pub use prow::{Job, Object, prow};
pub use results::{Results, RunResult};
pub use run_json::run_json;
pub use site::{Known, Record, site};
pub use support::{Arch, Support, Tiers, markdown as support_markdown, support};
pub use text::XmlText;
pub use timeline::timeline;
pub use validate::validate;
