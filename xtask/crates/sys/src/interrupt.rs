//! Ctrl-C and SIGTERM: the first requests an orderly shutdown, the second exits at once.
//!
//! The signal handler itself does no work. Waits check [`requested`] and return [`Interrupted`]; the pipeline then
//! collects evidence, takes the cluster down and exits with 130. Each child has its own process group, so the
//! terminal's Ctrl-C does not reach it before that.

use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{process, progress, terminal};

/// The user asked to stop.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Starts to listen for signals. Call it once, as the first step of `main`.
pub fn install() -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if REQUESTED.swap(true, Ordering::SeqCst) {
                progress::say("interrupted again: exiting at once; evidence may be incomplete");
                progress::clear();
                terminal::restore();
                process::kill_all_groups();
                std::process::exit(130);
            }
            progress::say("interrupted: collecting evidence and stopping (interrupt again to exit at once)");
        }
    })?;
    Ok(())
}

/// Whether an orderly shutdown was requested.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// Clears the request and returns whether there was one: it ended one wait only, and the caller continues.
pub fn take() -> bool {
    REQUESTED.swap(false, Ordering::SeqCst)
}

/// [`requested`] as an error, for `?`.
pub fn check() -> Result<(), Interrupted> {
    if requested() { Err(Interrupted) } else { Ok(()) }
}
