//! `cargo xtask supervise`: the process between `runner up --local` and the agent; see `sys::supervisor`.

use std::time::Duration;

use cli::{Failure, OrExit};
use model::Exit;
use sys::supervisor::{Order, supervise};

use crate::args::SuperviseOptions;

/// Returns the exit code of the program.
pub(crate) fn run(options: &SuperviseOptions) -> Result<u8, Failure> {
    let mut words = options.command.iter().cloned();
    let order = Order {
        parent: options.parent,
        grace: Duration::from_secs(options.grace),
        cgroup: options.cgroup.clone(),
        program: words.next().unwrap_or_default(),
        args: words.collect(),
    };
    supervise(&order).or_exit(Exit::Infrastructure)
}
