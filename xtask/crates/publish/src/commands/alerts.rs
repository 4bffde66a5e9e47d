//! `cargo xtask report alerts`: one GitHub issue for each architecture that is red, from the history.

use cli::{Failure, OrExit};
use jiff::Timestamp;
use model::Exit;

use super::history;
use crate::alerts::alerts;
use crate::args::AlertOptions;

/// Returns the exit code.
pub(super) fn run(options: &AlertOptions) -> Result<u8, Failure> {
    let entries = history::read(&options.history).or_exit(Exit::Usage)?;
    runner::alerts::send(&options.access, &alerts(&entries, Timestamp::now()))
}
