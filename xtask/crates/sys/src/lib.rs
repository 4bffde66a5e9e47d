//! Processes and the machine around them: short commands, daemons, deadlines, interrupts, ports, run folders, progress,
//! the terminal, and cache entries that appear atomically.
//!
//! This is the only crate that starts processes, sleeps, or decides where the files of a run are stored. It does not
//! depend on Kubernetes, architectures or reports.

pub mod cache_lock;
mod cgroup;
pub mod daemon;
pub mod deadline;
mod dialogue;
pub mod exec;
mod exit_hook;
pub mod foreign;
pub mod host;
pub mod interrupt;
pub mod memory;
pub mod origin;
pub mod owner;
pub mod parallel;
pub mod ports;
pub mod process;
pub mod progress;
pub mod run_dir;
mod spawner;
pub mod store;
pub mod supervisor;
pub mod terminal;

pub use daemon::{Daemon, Spec};
pub use dialogue::Dialogue;
pub use exit_hook::ExitHook;
pub use parallel::{lock, side_by_side};
pub use run_dir::{RunDir, Scratch, Together};
pub use supervisor::Supervised;
