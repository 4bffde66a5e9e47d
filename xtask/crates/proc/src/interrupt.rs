//! Ctrl-C and TERM: the first asks for an orderly end, the second ends at once.
//!
//! Nothing is done in the signal handler itself. Waits look at [`requested`] and return [`Interrupted`]; the pipeline
//! then collects evidence, takes the cluster down and exits with 130. Children have process groups of their own, so
//! the terminal's Ctrl-C does not reach them before that.

use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{process, progress, terminal};

/// The user asked to stop.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Begins to listen; call once, first thing in `main`.
pub fn install() -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if REQUESTED.swap(true, Ordering::SeqCst) {
                progress::say("interrupted again: ending at once; evidence may be incomplete");
                progress::clear();
                terminal::restore();
                process::kill_all_groups();
                std::process::exit(130);
            }
            progress::say("interrupted: collecting evidence and stopping (once more to end at once)");
        }
    })?;
    Ok(())
}

/// Whether an orderly end was asked for.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// Takes the request back: it was meant for one wait, and what comes after goes on.
pub fn take() -> bool {
    REQUESTED.swap(false, Ordering::SeqCst)
}

/// [`requested`] as an error, for `?`.
pub fn check() -> Result<(), Interrupted> {
    if requested() { Err(Interrupted) } else { Ok(()) }
}
