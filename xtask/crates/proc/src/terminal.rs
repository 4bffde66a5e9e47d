//! The user's terminal on standard input: its size, and raw mode, which is undone on every way out but `kill -9`.

use std::io::{self, IsTerminal, stdin, stdout};
use std::sync::Mutex;

use anyhow::Context;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// How the terminal was before raw mode.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Raw mode; dropping it restores what was before.
pub struct Raw(());

/// Whether somebody sits at a terminal: standard input and output both are one.
pub fn is_there() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// Rows and columns, where they are known.
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdout()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

/// Lets every key through as it is, also Ctrl-C.
pub fn raw() -> anyhow::Result<Raw> {
    let before = tcgetattr(stdin()).context("failed to read the terminal's mode")?;
    let mut raw = before.clone();
    raw.make_raw();
    // First noted, then changed: the way out may begin in between.
    *lock() = Some(before);
    set(&raw).context("failed to change the terminal's mode")?;
    Ok(Raw(()))
}

/// Restores the terminal, for a way out that drops nothing.
pub fn restore() {
    if let Some(before) = lock().take() {
        // There is nothing left to try.
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

fn lock() -> std::sync::MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(|e| e.into_inner())
}
