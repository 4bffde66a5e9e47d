//! Creates machines in OpenStack clouds, and renders the cloud-init user data that makes a machine a runner.
//!
//! This crate makes requests and judges their answers; other crates decide when a runner is needed and register it with
//! GitHub. The clouds are data (`targets/runners.yaml`). Nothing in this crate names an architecture.

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
pub use http::{Planned, address};
pub use microversion::Microversion;
pub use session::Session;
