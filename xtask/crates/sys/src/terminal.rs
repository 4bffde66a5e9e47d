//! The user's terminal on standard input: its size, and raw mode, which every exit except `kill -9` undoes.

use std::io::{self, IsTerminal, stdin, stdout};
use std::sync::Mutex;

use anyhow::Context;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::lock;

/// The terminal's mode before raw mode.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Raw mode. Dropping it restores the earlier mode.
pub struct Raw(());

/// Whether the session is interactive: standard input and output are both terminals.
pub fn is_there() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// Rows and columns, if known.
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdout()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

/// Passes every key through unchanged, also Ctrl-C.
pub fn raw() -> anyhow::Result<Raw> {
    let before = tcgetattr(stdin()).context("failed to read the terminal's mode")?;
    let mut raw = before.clone();
    raw.make_raw();
    // Save the old mode before the change: an interrupt may restore it in between.
    *lock(&BEFORE) = Some(before);
    set(&raw).context("failed to change the terminal's mode")?;
    Ok(Raw(()))
}

/// Restores the terminal before an exit that drops no values.
pub fn restore() {
    if let Some(before) = lock(&BEFORE).take() {
        // If this fails, no other way to restore it is left.
        let _ = set(&before);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn set(mode: &Termios) -> io::Result<()> {
    Ok(tcsetattr(stdin(), OptionalActions::Drain, mode)?)
}
