//! The conformance suite: recorders record requests and revisions, checks send requests, judges decide over the
//! records.
//!
//! Recorders do not judge, and judges do no I/O. The suite knows a cluster only through [`model::Cluster`]; other
//! crates boot the cluster and report the results.

pub mod answers;
pub mod api;
pub mod check;
pub mod contention;
pub mod ctx;
mod engine;
pub mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod history_files;
pub mod keyring;
pub mod load;
pub mod object;
pub mod prelude;
pub mod record;
pub mod requirement;
mod schedule;
mod selection;
mod shard;
mod sightings;
pub mod store;
#[cfg(test)]
mod test_checks;
pub mod traffic;
pub mod upstream;
pub mod wait;
pub mod watch;

pub use ::judge::{self, decode, decrypt};
pub use check::{Check, Place, Run, missing};
pub use ctx::Ctx;
pub use engine::{Options, Plan, ReleaseData, Sink, TRAFFIC_PHASE, run};
pub use keyring::Keyring;
pub use requirement::{Requirement, Requires};
pub use schedule::start_order;
pub use selection::{Case, Selection, Unknown};
pub use shard::{NotAShard, Shard};
