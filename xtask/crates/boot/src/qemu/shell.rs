//! This side of a root shell in a guest. What a terminal is, and where the output goes, is the command's business.
//!
//! QEMU listens on a socket in the run's private folder, so any process of the same user can connect, one at a time.
//! The other side is `targets/components/guest/shell.go`, which describes the frames.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use proc::interrupt;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;

use super::vm;

/// The guest begins a session within milliseconds; this is for a host that is busy with several guests.
const BEGIN: Duration = Duration::from_secs(60);
/// How long one [`Shell::hear`] waits.
const TICK: Duration = Duration::from_millis(100);
const HEAD: usize = 3;
/// Of input, in one frame.
const PIECE: usize = 4096;
/// Frames of input on their way to a program that does not read them.
const ROOM: usize = 8;
/// More than what is missing of a frame of input whose sender was killed: the guest takes it for the rest of that.
const ZEROES: [u8; PIECE + 16] = [0; PIECE + 16];

/// What a session is to be.
#[derive(Clone, Debug)]
pub struct ShellRequest<'a> {
    /// Nothing: a shell. One word: a line of shell. Several: a program and its arguments.
    pub command: &'a [String],
    pub terminal: Option<ShellTerminal>,
}

/// A terminal's type, as `TERM` has it, and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellTerminal {
    pub kind: String,
    pub rows: u16,
    pub columns: u16,
}

/// What comes out of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Output(Vec<u8>),
    /// To standard error; with a terminal everything is output.
    Errors(Vec<u8>),
    /// The exit status, 128 and the signal's number for a killed one. Nothing comes after it.
    Ended(u8),
    /// Nothing yet.
    Silence,
}

/// A session. Dropping it ends the program.
pub struct Shell {
    from: UnixStream,
    to: Keys,
    received: Vec<u8>,
    /// Locked while this one is connected.
    _turn: File,
}

/// The way into a session, for a thread of its own.
#[derive(Clone)]
pub struct Keys(Arc<Way>);

struct Way {
    to: Mutex<UnixStream>,
    /// Frames of input that may be sent now; none when the session is over.
    room: Mutex<Option<usize>>,
    changed: Condvar,
}

/// Begins a session in the VM of the run with this private folder.
pub fn shell(private: &Path, request: &ShellRequest<'_>) -> anyhow::Result<Shell> {
    let folder = private.join(vm::FOLDER);
    let dir = File::open(&folder).with_context(|| format!("there is no VM in {}", private.display()))?;
    let turn = turn(&folder)?;
    // Through the descriptor, because the folder's path may be too long for a socket's address.
    let socket = format!("/proc/self/fd/{}/{}", dir.as_raw_fd(), vm::SHELL);
    let from = UnixStream::connect(socket)
        .with_context(|| format!("QEMU does not listen on {}", folder.join(vm::SHELL).display()))?;
    from.set_read_timeout(Some(TICK))?;
    let to = Mutex::new(from.try_clone().context("failed to duplicate the shell's connection")?);
    let to = Keys(Arc::new(Way { to, room: Mutex::new(Some(ROOM)), changed: Condvar::new() }));
    let mut shell = Shell { from, to, received: Vec::new(), _turn: turn };
    shell.begin(request)?;
    Ok(shell)
}

impl Shell {
    pub fn keys(&self) -> Keys {
        self.to.clone()
    }

    /// What was said next, within a tenth of a second.
    pub fn hear(&mut self) -> anyhow::Result<Said> {
        loop {
            if let Some((kind, payload)) = frame(&mut self.received) {
                match (kind, &payload[..]) {
                    (b'O', _) => return Ok(Said::Output(payload)),
                    (b'E', _) => return Ok(Said::Errors(payload)),
                    (b'X', [status, ..]) => return Ok(Said::Ended(*status)),
                    (b'F', text) => bail!("the guest could not begin the session: {}", String::from_utf8_lossy(text)),
                    (b'T', _) => self.to.taken(),
                    // Of a later guest than this program knows.
                    _ => {}
                }
            }
            if !self.receive()? {
                return Ok(Said::Silence);
            }
        }
    }

    fn begin(&mut self, request: &ShellRequest<'_>) -> anyhow::Result<()> {
        let mut random = [0_u8; 16];
        SystemRandom::new().fill(&mut random).map_err(|_| anyhow!("the system's random source gave nothing"))?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let (terminal, rows, columns) =
            request.terminal.as_ref().map_or(("", 0, 0), |t| (t.kind.as_str(), t.rows, t.columns));
        let wish = json!({
            "token": token, "command": request.command, "terminal": terminal, "rows": rows, "columns": columns,
        });
        self.to.send(&ZEROES)?;
        self.to.frame(b'N', wish.to_string().as_bytes())?;
        let begin = Instant::now();
        while !skip_to(&mut self.received, &token) {
            interrupt::check()?;
            if begin.elapsed() > BEGIN {
                bail!("the guest did not begin a session within {} s; does it still run?", BEGIN.as_secs());
            }
            self.receive()?;
        }
        Ok(())
    }

    /// Whether anything was received.
    fn receive(&mut self) -> anyhow::Result<bool> {
        let mut buffer = [0; 1 << 14];
        match self.from.read(&mut buffer) {
            Ok(0) => bail!("the VM has ended"),
            Ok(n) => {
                self.received.extend(&buffer[..n]);
                Ok(true)
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) =>
            {
                Ok(false)
            }
            Err(error) => Err(error).context("the shell's connection failed"),
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        *self.to.room() = None;
        self.to.0.changed.notify_all();
        // Both directions, whoever still holds the keys.
        let _ = self.from.shutdown(std::net::Shutdown::Both);
    }
}

impl Keys {
    /// Waits while the program reads nothing.
    pub fn typed(&self, bytes: &[u8]) -> anyhow::Result<()> {
        bytes.chunks(PIECE).try_for_each(|piece| self.input(piece))
    }

    /// Nothing more will be typed.
    pub fn end(&self) -> anyhow::Result<()> {
        self.input(&[])
    }

    /// Tells the terminal's new size.
    pub fn resized(&self, rows: u16, columns: u16) -> anyhow::Result<()> {
        let [r, c] = [rows.to_be_bytes(), columns.to_be_bytes()];
        self.frame(b'W', &[r[0], r[1], c[0], c[1]])
    }

    fn input(&self, piece: &[u8]) -> anyhow::Result<()> {
        let full = |room: &mut Option<usize>| *room == Some(0);
        let mut room = self.0.changed.wait_while(self.room(), full).unwrap_or_else(|e| e.into_inner());
        *room = Some(room.context("the session is over")? - 1);
        drop(room);
        self.frame(b'I', piece)
    }

    fn taken(&self) {
        if let Some(room) = &mut *self.room() {
            *room += 1;
        }
        self.0.changed.notify_all();
    }

    fn frame(&self, kind: u8, payload: &[u8]) -> anyhow::Result<()> {
        let length = u16::try_from(payload.len()).context("the command is too long for the shell's channel")?;
        let mut frame = vec![kind];
        frame.extend(length.to_be_bytes());
        frame.extend(payload);
        self.send(&frame)
    }

    fn send(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut to = self.0.to.lock().unwrap_or_else(|e| e.into_inner());
        to.write_all(bytes).context("the VM does not take what was typed")
    }

    fn room(&self) -> MutexGuard<'_, Option<usize>> {
        self.0.room.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Held by one session of a VM: a second connection would wait silently for the end of the first.
fn turn(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join("shell.turn");
    let file = File::options().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("failed to open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!("somebody else has a shell in this VM, and there can be only one"),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("failed to lock {}", path.display())),
    }
}

/// Drops what an earlier session has left in the channel; false while the mark of this one has not come.
pub(crate) fn skip_to(received: &mut Vec<u8>, token: &str) -> bool {
    let mark: Vec<u8> = [b'S', 0, 32].into_iter().chain(token.bytes()).collect();
    match received.windows(mark.len()).position(|window| window == mark) {
        Some(at) => {
            received.drain(..at + mark.len());
            true
        }
        None => false,
    }
}

/// Takes the first whole frame.
pub(crate) fn frame(received: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let [kind, high, low] = *received.first_chunk::<HEAD>()?;
    let end = HEAD + usize::from(u16::from_be_bytes([high, low]));
    if received.len() < end {
        return None;
    }
    let payload = received[HEAD..end].to_vec();
    received.drain(..end);
    Some((kind, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_session_left_is_skipped_and_frames_may_come_in_pieces() {
        let token = "0123456789abcdef0123456789abcdef";
        let all = [b"half of a frame S\0\x20", &b"S\0\x20"[..], token.as_bytes(), b"O\0\x02hiX\0\x01\x03"].concat();
        for cut in 0..all.len() {
            let mut received = all[..cut].to_vec();
            let mut frames = Vec::new();
            let mut begun = skip_to(&mut received, token);
            if begun {
                frames.extend(frame(&mut received));
            }
            received.extend(&all[cut..]);
            begun = begun || skip_to(&mut received, token);
            frames.extend(std::iter::from_fn(|| frame(&mut received)));
            assert!(begun && received.is_empty(), "cut at {cut}");
            assert_eq!(frames, [(b'O', b"hi".to_vec()), (b'X', vec![3])], "cut at {cut}");
        }
    }
}
