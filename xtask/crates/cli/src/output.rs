//! Standard output, which only scripts read.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use anyhow::anyhow;
use model::Exit;
use serde::Serialize;
use sys::origin;

use crate::{Failure, OrExit};

/// The first error of stdout; see [`printed`].
static LOST: OnceLock<std::io::Error> = OnceLock::new();

/// Prints to stdout for scripts. A closed pipe (`| head`) is not an error; any other failure is, see [`printed`].
pub fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let text = origin::typed(text);
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        // Keep only the first error.
        let _ = LOST.set(error);
    }
}

/// Fails if output was lost: a script would take the incomplete output for the whole.
pub fn printed() -> Result<(), Failure> {
    match LOST.get() {
        None => Ok(()),
        Some(error) => Err(anyhow!("standard output is incomplete: {error}")).or_exit(Exit::Infrastructure),
    }
}

pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?;
    print(&format!("{text}\n"));
    Ok(())
}
