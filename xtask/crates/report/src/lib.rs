//! Consumers of events: the log of a run, the console, and the report files.
//!
//! Everything is made from `&[model::Event]` and nothing else, so the reports of an old run can be written again and
//! equal events give equal bytes. Nothing here starts a process, reads the environment or picks a path.

mod about;
mod console;
mod events;
mod files;
mod joint;
mod junit;
mod machine;
mod markdown;
mod prow;
mod run_json;
mod site;
mod support;
mod text;
mod timeline;
pub mod verdict;
mod view;

#[cfg(test)]
mod fixture;

pub use console::{Console, Options, Screen, Verbosity};
pub use events::{EventLog, now, read};
pub use files::{write, write_joint};
pub use joint::{Child, Joint};
pub use junit::{SingleCase, junit, single_suite};
pub use markdown::markdown;
pub use prow::{Job, Object, prow};
pub use run_json::run_json;
pub use site::{Known, Record, site};
pub use support::{Arch, Support, Tiers, markdown as support_markdown, support};
pub use text::XmlText;
pub use timeline::timeline;
