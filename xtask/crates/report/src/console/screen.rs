//! The destination of console output: lines, and below them a live line that is replaced in place.

use std::io::Write;

/// Clears the live line.
pub(super) const CLEAR: &str = "\r\x1b[K";

/// Shows lines. This module implements it for writers; a program in which several sources of progress share one
/// terminal has its own implementation.
pub trait Screen: Send {
    /// Shows complete lines, each ended by a newline, and then the live line. An empty `live` removes the live line.
    fn show(&mut self, lines: &str, live: &str);

    /// A phase begins, or ends if the name is None. Lines in between belong to the phase.
    fn phase(&mut self, _name: Option<&str>) {}
}

/// A writer without other users.
pub(super) struct Plain {
    out: Box<dyn Write + Send>,
    live: bool,
}

impl Plain {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Plain {
        Plain { out, live: false }
    }
}

impl Screen for Plain {
    fn show(&mut self, lines: &str, live: &str) {
        let clear = if self.live { CLEAR } else { "" };
        self.live = !live.is_empty();
        // A failing writer loses console lines, but does not fail the run: the events are in the log.
        let _ = write!(self.out, "{clear}{lines}{live}").and_then(|()| self.out.flush());
    }
}
