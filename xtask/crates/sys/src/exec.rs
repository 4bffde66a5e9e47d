//! Short commands: built with `xshell::cmd!`, run to completion with a deadline, with their output captured.
//!
//! xshell 0.2 itself has no timeout and its errors contain no output, so here it only builds the command.

use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

pub use xshell::{Cmd, Shell, cmd};

use crate::daemon::last_lines;
use crate::interrupt::{self, Interrupted};
use crate::{process, spawner};

/// How many lines of a failed command's output its error shows.
const TAIL_LINES: usize = 60;

/// The output of a command that succeeded.
#[derive(Clone, Debug, Default)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("`{command}` could not be started: {error}")]
    NotStarted { command: String, error: std::io::Error },
    /// `tail` is the end of its output: stdout, then stderr.
    #[error("`{command}` failed ({status}):\n{tail}")]
    Failed { command: String, status: ExitStatus, tail: String },
    #[error("`{command}` did not end within {:.0} s:\n{tail}", .limit.as_secs_f64())]
    TimedOut { command: String, limit: Duration, tail: String },
    #[error("`{command}` was stopped")]
    Interrupted { command: String, source: Interrupted },
    /// The `on_line` callback ended it.
    #[error("`{command}` was ended:\n{tail}")]
    Ended { command: String, tail: String },
}

/// Why a command was killed.
enum Stop {
    Interrupted(Interrupted),
    Late,
    Broken,
}

/// Replaces this process by another program, which keeps its terminal, signals and exit code. Returns only on failure.
#[expect(clippy::disallowed_methods, reason = "exec replaces this process and starts no child")]
pub fn replace(program: &Path, args: &[String], env: &[(&str, &Path)]) -> anyhow::Error {
    let error = Command::new(program).args(args).envs(env.iter().copied()).exec();
    anyhow::Error::from(error).context(format!("failed to run {}", program.display()))
}

/// Runs `cmd` and returns its output.
pub fn run(cmd: Cmd<'_>, limit: Duration) -> Result<Output, ExecError> {
    run_with(cmd, limit, |_| {})
}

/// Like [`run`]; calls `on_line` with each line of stderr as it arrives, and with None at least every 100 ms.
pub fn run_with(cmd: Cmd<'_>, limit: Duration, mut on_line: impl FnMut(Option<&str>)) -> Result<Output, ExecError> {
    run_until(cmd, limit, |line| {
        on_line(line);
        ControlFlow::Continue(())
    })
}

/// Like [`run`], but also runs after Ctrl-C: for teardown.
pub fn finish(cmd: Cmd<'_>, limit: Duration) -> Result<Output, ExecError> {
    run_unless(cmd, limit, Duration::ZERO, || Ok(()), |_| ControlFlow::Continue(()))
}

/// Like [`run_with`], for a program that has to clean up: after Ctrl-C it gets SIGTERM, and SIGKILL only if it is still
/// running `grace` later.
///
/// # Errors
/// As for [`run`].
pub fn run_orderly(
    cmd: Cmd<'_>,
    limit: Duration,
    grace: Duration,
    mut on_line: impl FnMut(Option<&str>),
) -> Result<Output, ExecError> {
    run_unless(cmd, limit, grace, interrupt::check, |line| {
        on_line(line);
        ControlFlow::Continue(())
    })
}

/// Like [`run_with`]; kills the command when `on_line` returns `Break`.
pub fn run_until(
    cmd: Cmd<'_>,
    limit: Duration,
    on_line: impl FnMut(Option<&str>) -> ControlFlow<()>,
) -> Result<Output, ExecError> {
    run_unless(cmd, limit, Duration::ZERO, interrupt::check, on_line)
}

/// The time in which the output of a killed command arrives.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

fn run_unless(
    cmd: Cmd<'_>,
    limit: Duration,
    grace: Duration,
    interrupted: fn() -> Result<(), Interrupted>,
    mut on_line: impl FnMut(Option<&str>) -> ControlFlow<()>,
) -> Result<Output, ExecError> {
    let shown = cmd.to_string();
    let mut command = Command::from(cmd);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawner::spawn(command).map_err(|error| ExecError::NotStarted { command: shown.clone(), error })?;
    let group = Pid::from_child(&child);
    process::register(group);

    let (sender, lines) = channel();
    let readers = [
        child.stdout.take().map(|pipe| read_lines(pipe, true, sender.clone())),
        child.stderr.take().map(|pipe| read_lines(pipe, false, sender.clone())),
    ];
    drop(sender);

    let begin = Instant::now();
    let mut output = Output::default();
    let mut stopped: Option<(Stop, Instant)> = None;
    let mut time_to_end = Duration::ZERO;
    loop {
        let going = match lines.recv_timeout(Duration::from_millis(100)) {
            Ok((true, line)) => {
                output.stdout.push_str(&line);
                ControlFlow::Continue(())
            }
            Ok((false, line)) => {
                let going = on_line(Some(line.trim_end()));
                output.stderr.push_str(&line);
                going
            }
            Err(RecvTimeoutError::Timeout) => on_line(None),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if stopped.is_none() {
            let why = match interrupted() {
                Err(interrupted) => Some(Stop::Interrupted(interrupted)),
                Ok(()) if begin.elapsed() > limit => Some(Stop::Late),
                Ok(()) => going.is_break().then_some(Stop::Broken),
            };
            if let Some(why) = why {
                let ask = matches!(why, Stop::Interrupted(_)) && !grace.is_zero();
                // The group may have ended between the check and the signal.
                let _ = kill_process_group(group, if ask { Signal::TERM } else { Signal::KILL });
                stopped = Some((why, Instant::now()));
                time_to_end = if ask { grace } else { Duration::ZERO };
            }
        }
        let late = stopped.as_ref().map(|(_, since)| since.elapsed().saturating_sub(time_to_end));
        if late.is_some_and(|late| !late.is_zero()) && !time_to_end.is_zero() {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // A descendant with a group of its own survives and holds the pipes; its readers end when it does.
        if late.is_some_and(|late| late > LAST_OUTPUT) {
            break;
        }
    }
    if stopped.is_none() {
        for reader in readers.into_iter().flatten() {
            // A reader thread cannot fail; it only ends.
            let _ = reader.join();
        }
    }
    let status = child.wait().map_err(|error| ExecError::NotStarted { command: shown.clone(), error })?;
    process::forget(group);
    let tail = last_lines(output.stdout.lines().chain(output.stderr.lines()), TAIL_LINES);
    match stopped.map(|(why, _)| why) {
        Some(Stop::Interrupted(source)) => Err(ExecError::Interrupted { command: shown, source }),
        Some(Stop::Late) => Err(ExecError::TimedOut { command: shown, limit, tail }),
        Some(Stop::Broken) => Err(ExecError::Ended { command: shown, tail }),
        None if status.success() => Ok(output),
        None => Err(ExecError::Failed { command: shown, status, tail }),
    }
}

/// The path of a program on PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let is_executable =
        |file: &PathBuf| std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(program)).find(is_executable)
}

fn read_lines(
    pipe: impl Read + Send + 'static,
    stdout: bool,
    sender: Sender<(bool, String)>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            if sender.send((stdout, String::from_utf8_lossy(&line).into_owned())).is_err() {
                return;
            }
            line.clear();
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn error_contains_the_command_and_its_output() {
        let sh = Shell::new().unwrap();
        let error = run(cmd!(sh, "sh -c 'echo out; echo err >&2; exit 3'"), LONG).unwrap_err().to_string();
        for part in ["sh -c", "exit status: 3", "out", "err"] {
            assert!(error.contains(part), "`{part}` is missing in: {error}");
        }
    }

    #[test]
    fn command_past_its_deadline_is_killed_with_its_children() {
        let sh = Shell::new().unwrap();
        let error = run(cmd!(sh, "sh -c 'echo started; sleep 600 & sleep 600'"), Duration::from_millis(300));
        match error {
            Err(ExecError::TimedOut { tail, .. }) => assert_eq!(tail, "started"),
            other => panic!("expected a timeout, got {other:?}"),
        }
    }

    #[test]
    fn descendant_in_another_group_does_not_outlast_the_deadline() {
        let sh = Shell::new().unwrap();
        let begin = Instant::now();
        // Only the sleeping descendant holds the pipes after the shell is killed.
        let late = run(cmd!(sh, "sh -c 'setsid sleep 30 & wait'"), Duration::from_millis(300));
        assert!(matches!(late, Err(ExecError::TimedOut { .. })), "{late:?}");
        assert!(begin.elapsed() < Duration::from_secs(25), "the descendant was waited for: {:?}", begin.elapsed());
    }

    #[test]
    fn on_line_can_end_the_command() {
        let sh = Shell::new().unwrap();
        let ended = run_until(cmd!(sh, "sh -c 'echo one >&2; sleep 600'"), LONG, |line| match line {
            Some("one") => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        assert!(matches!(&ended, Err(ExecError::Ended { tail, .. }) if tail == "one"), "{ended:?}");
    }

    /// Runs a shell script that says `ready`, and interrupts it then. `seen` is static: the callback is a function.
    fn interrupted_script(
        script: &str,
        grace: Duration,
        seen: &'static AtomicBool,
        check: fn() -> Result<(), Interrupted>,
    ) {
        let sh = Shell::new().unwrap();
        let command = cmd!(sh, "sh -c {script}");
        let ended = run_unless(command, LONG, grace, check, |line| {
            if line == Some("ready") {
                seen.store(true, Ordering::SeqCst);
            }
            ControlFlow::Continue(())
        });
        assert!(matches!(ended, Err(ExecError::Interrupted { .. })), "{ended:?}");
    }

    #[test]
    fn interrupted_command_may_clean_up_within_its_grace_time() {
        static READY: AtomicBool = AtomicBool::new(false);
        let dir = crate::Scratch::temporary("orderly").unwrap();
        let file = dir.path().join("cleaned");
        let script = format!("trap 'touch {}; exit' TERM; echo ready >&2; while :; do sleep 0.1; done", file.display());
        let check = || if READY.load(Ordering::SeqCst) { Err(Interrupted) } else { Ok(()) };
        interrupted_script(&script, LONG, &READY, check);
        assert!(file.exists());
    }

    #[test]
    fn interrupted_command_is_killed_after_its_grace_time() {
        static READY: AtomicBool = AtomicBool::new(false);
        let begin = Instant::now();
        let check = || if READY.load(Ordering::SeqCst) { Err(Interrupted) } else { Ok(()) };
        let script = "trap '' TERM; echo ready >&2; while :; do sleep 0.1; done";
        interrupted_script(script, Duration::from_millis(200), &READY, check);
        assert!(begin.elapsed() < LONG / 2, "{:?}", begin.elapsed());
    }

    #[test]
    fn missing_program_is_named() {
        let sh = Shell::new().unwrap();
        let error = run(cmd!(sh, "no-such-program-here --flag"), LONG).unwrap_err().to_string();
        assert!(error.contains("no-such-program-here"), "{error}");
    }
}
