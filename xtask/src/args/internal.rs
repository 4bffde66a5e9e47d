//! Options of the internal commands that the harness runs itself.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args as ClapArgs;

/// The arguments that `sys::supervisor::Order` writes.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct SuperviseOptions {
    #[arg(long, value_name = "PID")]
    pub(crate) parent: i32,
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace: u64,
    #[arg(long, value_name = "DIR")]
    pub(crate) cgroup: Option<PathBuf>,
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct HostForwardOptions {
    /// File with the port
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}
