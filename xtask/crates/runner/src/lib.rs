//! CI runners on machines of rare architectures: registers them with GitHub and GitLab, audits them and removes them.
//!
//! The command line `cargo xtask runner` is in `args` and `commands`. Decisions (`audit`, `gc`, `policy`, `scale`) are separate from requests (`github`, `gitlab`): a decision is a pure
//! function of the answers. The providers of machines are data: `targets/runners.yaml`. The crate `cloud` creates machines.

pub mod alerts;
mod api;
mod app;
mod args;
pub mod audit;
mod call;
mod commands;
mod error;
pub mod exposure;
#[doc(hidden)]
pub mod fuzzing;
pub mod gc;
pub mod github;
pub mod gitlab;
pub mod jit;
mod limits;
mod name;
mod plain;
pub mod policy;
pub mod scale;
mod scope;
pub mod setup;
mod transport;

pub use api::{Config, Credentials, Planned};
pub use app::App;
pub use args::{Access, RunnerOptions};
pub use commands::{Diagnose, check_setup, run};
pub use error::{Error, Refused};
pub use name::{Name, PREFIX, check_name};
pub use plain::plain;
pub use scope::Scope;
