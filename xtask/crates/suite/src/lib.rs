//! The conformance suite: recorders record requests and revisions, checks send requests, judges decide over the
//! records.
//!
//! Recorders do not judge, and judges do no I/O. The suite knows a cluster only through [`model::Cluster`]; other
//! crates boot the cluster and report the results.

pub mod api;
pub mod check;
mod checks;
mod contention;
mod ctx;
mod engine;
#[doc(hidden)]
pub mod fuzzing;
pub mod history_files;
mod keyring;
mod load;
pub mod object;
mod overload;
pub mod record;
mod selection;
mod shard;
pub mod shared;
pub mod store;
mod traffic;
mod turns;
pub mod upstream;
mod wait;
pub mod watch;

pub use ::judge::{self, decode, decrypt};
pub use check::{Check, NATIVE_STORE, NODE, Need, Run};
pub use checks::{all, find};
pub use ctx::Ctx;
pub use engine::{Options, Plan, Sink, run};
pub use keyring::Keyring;
pub use selection::{Case, Selection, Unknown};
pub use shard::{NotAShard, Shard};
