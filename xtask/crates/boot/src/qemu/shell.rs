//! The host's side of a root shell in a guest. The command handles the terminal and the output.
//!
//! QEMU listens on a socket in the run's private folder, so any process of the same user can connect, one at a time.
//! The guest's side is `targets/programs/guest/shell.go`, which describes the frames.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use sys::interrupt;

use super::vm;

/// The guest starts a session within milliseconds; the limit allows for a host that is busy with several guests.
const BEGIN: Duration = Duration::from_secs(60);
/// How long one [`Shell::hear`] waits.
const TICK: Duration = Duration::from_millis(100);
const HEAD: usize = 3;
/// Bytes of input in one frame.
const PIECE: usize = 4096;
/// Frames of input that may be in flight to a program that does not read them.
const ROOM: usize = 8;
/// More zeroes than a frame of input can lack if its sender was killed: the guest takes them for the rest of that
/// frame.
const ZEROES: [u8; PIECE + 16] = [0; PIECE + 16];

/// The session to start.
#[derive(Clone, Debug)]
pub struct ShellRequest<'a> {
    /// Empty: a shell. One word: a line of shell. Several: a program and its arguments.
    pub command: &'a [String],
    pub terminal: Option<ShellTerminal>,
}

/// A terminal's type (`TERM`) and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellTerminal {
    pub kind: String,
    pub rows: u16,
    pub columns: u16,
}

/// Output of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Output(Vec<u8>),
    /// Standard error. With a terminal everything is `Output`.
    Errors(Vec<u8>),
    /// The exit status; for a killed program 128 plus the signal's number. Always the last one.
    Ended(u8),
    /// No output yet.
    Silence,
}

/// A session. Dropping it ends the program.
pub struct Shell {
    from: UnixStream,
    to: Keys,
    received: Vec<u8>,
    /// Locked while this session is connected.
    _turn: File,
}

/// The input of a session, which another thread may use.
#[derive(Clone)]
pub struct Keys(Arc<Way>);

struct Way {
    to: Mutex<UnixStream>,
    /// Frames of input that may be sent now. None when the session is over.
    room: Mutex<Option<usize>>,
    changed: Condvar,
}

/// Starts a session in the VM of the run with this private folder.
pub fn shell(private: &Path, request: &ShellRequest<'_>) -> anyhow::Result<Shell> {
    let folder = private.join(vm::FOLDER);
    let dir = File::open(&folder).with_context(|| format!("no VM was found in {}", private.display()))?;
    let turn = turn(&folder)?;
    // Through the descriptor, because the folder's path may be too long for a socket address.
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

    /// The next output, or `Silence` after a tenth of a second.
    pub fn hear(&mut self) -> anyhow::Result<Said> {
        loop {
            if let Some((kind, payload)) = frame(&mut self.received) {
                match (kind, &payload[..]) {
                    (b'O', _) => return Ok(Said::Output(payload)),
                    (b'E', _) => return Ok(Said::Errors(payload)),
                    (b'X', [status, ..]) => return Ok(Said::Ended(*status)),
                    (b'F', text) => bail!("the guest failed to start the session: {}", String::from_utf8_lossy(text)),
                    (b'T', _) => self.to.taken(),
                    // Frames of a newer guest that this program does not know.
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
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| anyhow!("failed to create a session: the system's random source returned an error"))?;
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
                bail!("the guest did not start a session within {} s: check that it still runs", BEGIN.as_secs());
            }
            self.receive()?;
        }
        Ok(())
    }

    /// Whether any bytes were received.
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
        *sys::lock(&self.to.0.room) = None;
        self.to.0.changed.notify_all();
        // Closes both directions, even if another thread still has the `Keys`.
        let _ = self.from.shutdown(std::net::Shutdown::Both);
    }
}

impl Keys {
    /// Sends input. Blocks while the program does not read it.
    pub fn typed(&self, bytes: &[u8]) -> anyhow::Result<()> {
        bytes.chunks(PIECE).try_for_each(|piece| self.input(piece))
    }

    /// Ends the input.
    pub fn end(&self) -> anyhow::Result<()> {
        self.input(&[])
    }

    /// Sends the terminal's new size.
    pub fn resized(&self, rows: u16, columns: u16) -> anyhow::Result<()> {
        let [r, c] = [rows.to_be_bytes(), columns.to_be_bytes()];
        self.frame(b'W', &[r[0], r[1], c[0], c[1]])
    }

    fn input(&self, piece: &[u8]) -> anyhow::Result<()> {
        let full = |room: &mut Option<usize>| *room == Some(0);
        let mut room = self.0.changed.wait_while(sys::lock(&self.0.room), full).unwrap_or_else(|e| e.into_inner());
        *room = Some(room.context("the session is over")? - 1);
        drop(room);
        self.frame(b'I', piece)
    }

    fn taken(&self) {
        if let Some(room) = &mut *sys::lock(&self.0.room) {
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
        let mut to = sys::lock(&self.0.to);
        to.write_all(bytes).context("the VM does not accept input")
    }
}

/// Locked by the only session of a VM: a second connection would wait silently for the end of the first.
fn turn(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join("shell.turn");
    let file = File::options().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("failed to open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!("another session has a shell in this VM, which allows only one"),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("failed to lock {}", path.display())),
    }
}

/// Drops what an earlier session left in the channel. False if the mark of this session has not arrived yet.
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

/// Removes and returns the first complete frame.
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
    fn remains_of_an_earlier_session_are_skipped_and_frames_may_be_split() {
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
