//! Runners of CI on machines of rare architectures: registering them with GitHub and GitLab, watching over them, taking
//! them away.
//!
//! Deciding (`audit`, `gc`, `policy`, `scale`) and asking (`github`, `gitlab`) are apart: what decides is a pure function
//! of what was asked. Who gives machines, and which, is data: `targets/runners.yaml`. Nothing here creates a machine.

mod api;
mod app;
pub mod audit;
mod call;
mod error;
pub mod exposure;
#[doc(hidden)]
pub mod fuzzing;
pub mod gc;
pub mod github;
pub mod gitlab;
pub mod jit;
mod limits;
mod line;
mod name;
mod plain;
pub mod policy;
pub mod scale;
mod scope;
pub mod setup;

pub use api::{Config, Credentials, Planned};
pub use app::App;
pub use error::{Error, Refused};
pub use name::{Name, PREFIX, check_name};
pub use plain::plain;
pub use scope::Scope;
