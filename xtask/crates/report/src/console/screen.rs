//! Where console output goes: lines, and below them a live line that is replaced in place.

use std::io::Write;

/// Clears the live line.
pub(super) const CLEAR: &str = "\r\x1b[K";

/// Something that shows lines. Implemented for writers here; a program that shares one terminal between several
/// sources of progress implements it over its own.
pub trait Screen: Send {
    /// Shows whole lines, each ended by a newline, and then this live line; an empty one is none.
    fn show(&mut self, lines: &str, live: &str);

    /// A phase begins, or with none ends. Lines in between belong to it.
    fn phase(&mut self, _name: Option<&str>) {}
}

/// A writer on which nobody else writes.
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
        // A failing writer costs the reader lines, never the run: the events are in the log.
        let _ = write!(self.out, "{clear}{lines}{live}").and_then(|()| self.out.flush());
    }
}
