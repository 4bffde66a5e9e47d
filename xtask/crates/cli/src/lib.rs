//! What the command lines of all areas share: exit codes, folders, common options, and output for scripts.
//!
//! Each area has its own arguments and commands; `xtask` only dispatches.

mod arch;
mod artifacts;
mod failure;
pub mod finding;
pub mod github;
mod options;
mod output;
pub mod paths;
mod places;
mod quote;

pub use arch::{chosen, host_target, select_cpu, target, with_cpu};
pub use artifacts::{
    built, exported_folder, exported_list, exported_list_name, fetch_options, fetch_options_for_go, known_releases,
    request, with_go,
};
pub use failure::{Failure, OrExit, or_interrupted};
pub use finding::Finding;
pub use options::{CpuOptions, JsonOptions, MachineOptions, QemuArg, SourceOptions, StoreArg, native_job, size};
pub use output::{print, print_json, printed};
pub use paths::Paths;
pub use places::{GithubPlaces, Places};
pub use quote::quoted;
