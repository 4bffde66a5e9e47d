//! Machines of clouds that speak OpenStack, and what a machine is told at its first start so that it becomes a runner.
//!
//! Requests here are made and judged; when a runner is wanted, and that it is registered with GitHub, other crates know.
//! Which clouds there are is data (`targets/runners.yaml`). Nothing here names an architecture.

pub mod compute;
pub mod config;
mod fault;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod keystone;
pub mod lookup;
mod mask;
mod microversion;
pub mod plan;
pub mod request;
mod session;
pub mod userdata;

pub use fault::{Fault, Kind};
pub use http::{Planned, check_address};
pub use microversion::Microversion;
pub use session::Session;
