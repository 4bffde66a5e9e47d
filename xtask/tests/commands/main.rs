//! The command line as its users call it. The folders below are helpers, each other file tests a group of commands.
//!
//! One program: one for each file took minutes to link, and 130 MB each.

#![expect(clippy::duplicate_mod, reason = "both fakes serve HTTP with the same module")]

#[path = "../../crates/cloud/tests/fake/mod.rs"]
#[expect(dead_code, reason = "the rest is for the tests of the crate")]
mod fake_cloud;
#[path = "../../crates/runner/tests/fake/mod.rs"]
#[expect(dead_code, reason = "the rest is for the tests of the crate")]
mod fake_github;
mod harness;
mod hub;
#[path = "../pem/mod.rs"]
#[expect(dead_code, reason = "the rest is for tests of clients")]
mod pem;
mod recorded;

mod cli;
mod external;
mod gate;
mod live;
mod matrix;
mod pins;
mod report;
mod report_site;
mod runner;
mod runner_local;
mod runner_machines;
mod runner_up;
mod schema;
mod workflows_setup;
