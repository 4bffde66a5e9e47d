//! CI jobs and the files that describe them to CI systems: which jobs an event creates, what each job runs, the
//! rendered workflows, the project's rules for workflows, and the verdict of a workflow run.
//!
//! `commands` handles files and git, and `artifacts` reads the results of a workflow run; everything else is a function of
//! texts and target data. The work of a job is in `cargo xtask ci`.

mod args;
pub mod artifacts;
mod cache;
mod changed;
pub mod commands;
mod diff;
mod event;
pub mod examples;
mod job;
pub mod lint;
mod lock;
mod matrix;
mod needs;
mod plan;
mod prebuilt;
mod render;
pub mod verdict;

pub use args::{KeysOptions, MatrixOptions, WorkflowRun, WorkflowsOptions};
pub use cache::{Inputs, Kept, Keys, kept};
pub use changed::{Scope, scope};
pub use diff::unified;
pub use event::{Event, Origin};
pub use job::{Breadth, Job};
pub use lock::{Action, Lock};
pub use matrix::{Ask, Entry, MOST_JOBS, Matrix, RunsOn, machines, matrix};
pub use needs::needs;
pub use plan::{Artifact, Bound, Claim, Plan, PlannedJob, Role};
pub use prebuilt::Prebuilt;
pub use render::{Parts, render};
