//! `cargo xtask shell`: a root shell, or one command, in the guest of a VM.
//!
//! At a terminal, it uses raw mode, and the guest provides line editing and signals. Elsewhere it is a pipe.

use std::io::{ErrorKind, Read, Write, stderr, stdin, stdout};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use boot::qemu::{Keys, Said, Shell, ShellRequest, ShellTerminal};
use cli::{Failure, OrExit, Paths};
use model::Exit;
use sys::{interrupt, progress, terminal};

use super::kept::{Kept, with_name};
use crate::args::ShellOptions;

/// Ctrl-], as in telnet.
const LEAVE: u8 = 0x1d;
/// The exit code that a shell reports for a program killed by SIGPIPE: 128 + 13.
const NO_READER: u8 = 141;
const ROWS: u16 = 24;
const COLUMNS: u16 = 80;

/// Returns the exit code of the shell or command in the guest.
pub(crate) fn run(paths: &Paths, options: &ShellOptions) -> Result<u8, Failure> {
    let name = &options.name;
    let kept = Kept::find(paths, name)?;
    if kept.info.machine.is_none() {
        return Err(Failure::usage(anyhow!(
            "cluster `{name}` runs as processes of this machine, so there is no guest for a shell; \
             `{}` with --provider qemu starts one",
            with_name("up", name)
        )));
    }
    open(&kept.private, &options.command, &paths.term).or_exit(Exit::Infrastructure)
}

/// Connects the user to the VM of the run with this private folder, until the session ends or the user leaves.
pub(crate) fn open(private: &Path, command: &[String], term: &str) -> anyhow::Result<u8> {
    let at_terminal = terminal::is_there();
    let (rows, columns) = terminal::size().unwrap_or((ROWS, COLUMNS));
    let terminal = at_terminal.then(|| ShellTerminal { kind: term.to_owned(), rows, columns });
    let shell = boot::qemu::shell(private, &ShellRequest { command, terminal })?;
    if !at_terminal {
        let leave = type_into(shell.keys(), false);
        return follow(shell, &leave, None);
    }
    progress::say("connected to the guest as root; Ctrl-] leaves");
    let raw = terminal::raw()?;
    let leave = type_into(shell.keys(), true);
    let ended = follow(shell, &leave, Some((rows, columns)));
    drop(raw);
    ended
}

/// Prints the session's output until it ends, the user leaves, or the reader of the output is gone.
fn follow(mut shell: Shell, leave: &AtomicBool, mut size: Option<(u16, u16)>) -> anyhow::Result<u8> {
    let keys = shell.keys();
    loop {
        let written = match shell.hear()? {
            Said::Output(bytes) => write(stdout().lock(), &bytes),
            Said::Errors(bytes) => write(stderr().lock(), &bytes),
            Said::Ended(status) => return Ok(status),
            Said::Silence => Ok(()),
        };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(NO_READER),
            written => written.context("failed to write the output of the guest")?,
        }
        interrupt::check()?;
        if leave.load(Ordering::SeqCst) {
            return Ok(Exit::Ok.code());
        }
        let now = terminal::size();
        if let (Some(known), Some(now)) = (&mut size, now)
            && *known != now
        {
            keys.resized(now.0, now.1)?;
            *known = now;
        }
    }
}

fn write(mut to: impl Write, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Sends standard input to the session on another thread, because a blocking read cannot be stopped. The flag is set
/// when the user wants to leave.
fn type_into(keys: Keys, can_leave: bool) -> Arc<AtomicBool> {
    let leave = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&leave);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        loop {
            let bytes = match stdin().lock().read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => &buffer[..n],
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let leaves = if can_leave { bytes.iter().position(|byte| *byte == LEAVE) } else { None };
            // If the session is over, the other thread knows the reason.
            if keys.typed(&bytes[..leaves.unwrap_or(bytes.len())]).is_err() {
                return;
            }
            if leaves.is_some() {
                told.store(true, Ordering::SeqCst);
                return;
            }
        }
        let _ = keys.end();
    });
    leave
}
