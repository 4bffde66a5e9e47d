//! A child that answers requests: one line on its standard input, one line on its standard output.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::daemon::tail;
use crate::{interrupt, process, spawner};

/// The longest answer. A program that prints more is broken.
const LONGEST: u64 = 1 << 30;
/// How often a wait for an answer looks for an interrupt.
const PERIOD: Duration = Duration::from_millis(100);

/// A running child. Dropping it kills its process group.
#[derive(Debug)]
pub struct Dialogue {
    name: String,
    child: Child,
    group: Pid,
    input: ChildStdin,
    answers: Receiver<std::io::Result<String>>,
    log: PathBuf,
}

impl Dialogue {
    /// Starts `program` with the harness's environment. Its standard error goes to the file `log`.
    ///
    /// # Errors
    /// The program or the log cannot be opened.
    pub fn start(name: &str, program: &Path, args: &[String], log: &Path) -> anyhow::Result<Dialogue> {
        let stderr = std::fs::File::create(log).with_context(|| format!("failed to create {}", log.display()))?;
        #[expect(clippy::disallowed_methods, reason = "this crate starts processes")]
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let started = spawner::spawn(command);
        let mut child = started.with_context(|| format!("failed to start {name} ({})", program.display()))?;
        let group = Pid::from_child(&child);
        process::register(group);
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else { bail!("{name} has no pipes") };
        let (sender, answers) = channel();
        std::thread::spawn(move || read_answers(output, &sender));
        Ok(Dialogue { name: name.to_owned(), child, group, input, answers, log: log.to_owned() })
    }

    /// Sends a request without its newline; returns the answer without its newline.
    ///
    /// # Errors
    /// The child ended, or did not answer within `limit`; the error contains the end of its log. Or an interrupt.
    pub fn ask(&mut self, request: &str, limit: Duration) -> anyhow::Result<String> {
        let sent = self.input.write_all(request.as_bytes()).and_then(|()| self.input.write_all(b"\n"));
        sent.and_then(|()| self.input.flush()).map_err(|error| self.broken(&error.to_string()))?;
        let begin = Instant::now();
        loop {
            match self.answers.recv_timeout(PERIOD) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => return Err(self.broken(&error.to_string())),
                Err(RecvTimeoutError::Disconnected) => return Err(self.broken("it ended")),
                Err(RecvTimeoutError::Timeout) => interrupt::check()?,
            }
            if begin.elapsed() > limit {
                return Err(self.broken(&format!("no answer within {:.0} s", limit.as_secs_f64())));
            }
        }
    }

    fn broken(&mut self, why: &str) -> anyhow::Error {
        // An ended child has closed its pipes a moment before it can be waited for.
        let ended = self.child.try_wait().ok().flatten();
        let status = ended.map(|status| format!(" ({status})")).unwrap_or_default();
        anyhow!("{} did not answer: {why}{status}; its last lines:\n{}", self.name, tail(&self.log, 20))
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = self.child.wait();
        process::forget(self.group);
    }
}

fn read_answers(output: impl Read, answers: &Sender<std::io::Result<String>>) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = String::new();
        let answer = match (&mut output).take(LONGEST).read_line(&mut line) {
            Ok(0) => return,
            Ok(_) if line.ends_with('\n') => Ok(line.trim_end_matches('\n').to_owned()),
            Ok(_) => Err(std::io::Error::other("its answer is incomplete or too long")),
            Err(error) => Err(error),
        };
        let last = answer.is_err();
        if answers.send(answer).is_err() || last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    const LIMIT: Duration = Duration::from_secs(30);

    fn shell(scratch: &Scratch, script: &str) -> Dialogue {
        let args = ["-c".to_owned(), script.to_owned()];
        Dialogue::start("the script", Path::new("/bin/sh"), &args, &scratch.path().join("log")).unwrap()
    }

    #[test]
    fn each_request_gets_its_answer() {
        let scratch = Scratch::temporary("dialogue").unwrap();
        let mut child = shell(&scratch, "while read line; do echo \"<$line>\"; done");
        assert_eq!(child.ask("one", LIMIT).unwrap(), "<one>");
        assert_eq!(child.ask("two", LIMIT).unwrap(), "<two>");
    }

    #[test]
    fn error_of_an_ended_child_contains_its_log() {
        let scratch = Scratch::temporary("dialogue").unwrap();
        let mut child = shell(&scratch, "read line; echo cause >&2; printf part; exit 3");
        let error = child.ask("one", LIMIT).unwrap_err().to_string();
        assert!(error.contains("incomplete") && error.contains("cause"), "{error}");
    }

    #[test]
    fn silent_child_is_reported() {
        let scratch = Scratch::temporary("dialogue").unwrap();
        let error = shell(&scratch, "sleep 600").ask("one", Duration::from_millis(200)).unwrap_err().to_string();
        assert!(error.contains("no answer within"), "{error}");
    }
}
