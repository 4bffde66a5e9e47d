//! The jobs of CI and the files that tell CI systems of them: which jobs an event makes, what each runs, the rendered
//! workflows, our rules for them, and what their end means.
//!
//! Everything here is a function over texts and target data: files, the environment and git are the command line's.
//! What a job does when it runs is `cargo xtask ci`.

mod cache;
mod changed;
mod diff;
mod event;
pub mod examples;
mod job;
pub mod lint;
mod lock;
mod matrix;
mod needs;
mod plan;
mod render;
pub mod verdict;

pub use cache::{Inputs, Kept, Keys, kept};
pub use changed::{Scope, scope};
pub use diff::unified;
pub use event::{Event, Origin};
pub use job::{Breadth, Job};
pub use lock::{Action, Lock};
pub use matrix::{Ask, Entry, MOST_JOBS, Matrix, RunsOn, machines, matrix};
pub use needs::{Needs, needs};
pub use plan::{Artifact, Bound, Claim, Plan, PlannedJob, Role};
pub use render::{Parts, RenderError, render};
