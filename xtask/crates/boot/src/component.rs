//! One component of a control plane: its flags, its process over restarts, and when it counts as ready.
//!
//! Where the process lives, here or in a guest, is the host's business: see `host`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use proc::daemon::tail;
use proc::deadline::{OnInterrupt, Probe, WaitError, pause, until};
use reqwest::blocking::Client;
use rustix::process::Signal;

use crate::host::{Host, Program, Running};
use crate::members::CONTROLLER_MANAGER;

/// How often it is looked whether readiness was answered; the look itself takes a few milliseconds.
const LOOK_EVERY: Duration = Duration::from_millis(15);

/// An answer is work for the one who starts: where it takes long, the asking would else take all of its time. How long it
/// takes does not say it all, because other processors share the work: an emulated apiserver that answered within 10 ms
/// spent an eighth of its start on sixteen answers a second. So the shortest rest grows with the machine's factor.
const REST: u32 = 6;
const SHORTEST_REST: Duration = Duration::from_millis(15);
const LONGEST_REST: Duration = Duration::from_millis(250);

/// The place of apiservers in [`Component::order`], and of what needs one, the last one.
const APISERVER: u8 = 2;
pub(crate) const LAST: u8 = APISERVER + 1;

/// Lines of the log shown when a component dies.
const LAST_LINES: usize = 25;
/// How far back the head of a panic is looked for.
const TRACE_LINES: usize = 400;

/// A component that can be started again and again with the same or other flags.
pub(crate) struct Component {
    /// `PROFILE/kube-apiserver`.
    pub(crate) name: String,
    /// Without flags.
    pub(crate) program: Program,
    /// Names without dashes.
    pub(crate) flags: BTreeMap<String, String>,
    pub(crate) ready: Ready,
    pub(crate) times: Times,
    /// Whether it runs only while a check wants it to.
    pub(crate) on_demand: bool,
    /// Whether it is a client of the apiserver, and nothing without it.
    pub(crate) needs_apiserver: bool,
    host: Arc<dyn Host>,
    running: Option<Box<dyn Running>>,
}

/// An URL, and what it answers when the component is ready.
#[derive(Clone)]
pub(crate) struct Ready {
    pub(crate) client: Client,
    pub(crate) url: String,
    /// Of the answer.
    pub(crate) status: u16,
    /// How much slower than the reference its machine is.
    pub(crate) factor: f64,
}

/// Deadlines, scaled to the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) start: Duration,
    /// Between TERM and KILL.
    pub(crate) grace: Duration,
}

impl Component {
    pub(crate) fn new(
        program: Program,
        flags: BTreeMap<String, String>,
        ready: Ready,
        times: Times,
        host: Arc<dyn Host>,
    ) -> Component {
        let name = program.name.clone();
        let (on_demand, needs_apiserver) = (false, name.ends_with(CONTROLLER_MANAGER));
        Component { name, program, flags, ready, times, on_demand, needs_apiserver, host, running: None }
    }

    /// Lets another host run it from now on.
    pub(crate) fn move_to(&mut self, host: Arc<dyn Host>) {
        self.host = host;
    }

    /// Program, arguments and flags as one line of shell, in the background, output to `log`, which is quoted.
    pub(crate) fn shell_command(&self, log: &str) -> String {
        let env = self.program.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let words = [quoted(&self.program.path.display().to_string())];
        let args = self.program.args.iter().map(|arg| quoted(arg));
        let flags = self.flags.iter().map(|(name, value)| quoted(&format!("--{name}={value}")));
        let line: Vec<String> = env.chain(words).chain(args).chain(flags).collect();
        format!("{} >>{log} 2>&1 &", line.join(" "))
    }

    /// Starts the process without waiting for it.
    pub(crate) fn launch(&mut self) -> anyhow::Result<()> {
        if self.running.is_some() {
            bail!("{} is running already", self.name);
        }
        let flags = self.flags.iter().map(|(name, value)| format!("--{name}={value}"));
        self.running = Some(self.host.start(&self.program, flags.collect())?);
        Ok(())
    }

    /// Takes over a process that runs already, in a guest that was restored.
    pub(crate) fn adopt(&mut self) -> anyhow::Result<()> {
        self.running = Some(self.host.adopt(&self.program)?);
        Ok(())
    }

    /// Waits until it is ready; at its death or the deadline the error shows the end of its log.
    pub(crate) fn wait_ready(&mut self, on_interrupt: OnInterrupt) -> anyhow::Result<()> {
        let Component { name, program, ready, times, running, .. } = self;
        let Some(running) = running else { bail!("{name} is not running") };
        let what = format!("{name} to answer {} at {}", ready.status, ready.url);
        let answers = ready.clone().asked_again_and_again();
        let mut last = "nobody has answered yet".to_owned();
        let ready = until(&what, times.start, LOOK_EVERY, on_interrupt, || {
            if let Some(status) = running.ended() {
                return Probe::Hopeless(anyhow!("{name} ended ({status}) before it was ready"));
            }
            match answers.recv_timeout(LOOK_EVERY) {
                Ok(Ok(())) => return Probe::Ready(()),
                Ok(Err(seen)) => last = seen,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Probe::Hopeless(anyhow!("the asking thread has ended")),
            }
            Probe::NotYet(last.clone())
        });
        ready.map_err(|error| match error {
            WaitError::Interrupted { .. } => error.into(),
            _ => anyhow!("{error:#}\n{}", log_tail(&program.log)),
        })
    }

    /// Starts and waits until it is ready. A start that failed leaves nothing running, and nothing that counts as a
    /// casualty: whoever asked for it has the error.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.launch()?;
        let ready = self.wait_ready(OnInterrupt::Stop);
        if ready.is_err() {
            // The reason why it is not ready says more.
            let _ = self.kill();
        }
        ready
    }

    /// [`Component::start`], this once without a variable of its environment.
    pub(crate) fn start_without(&mut self, variable: &str) -> anyhow::Result<()> {
        let kept = self.program.env.remove(variable);
        let started = self.start();
        self.program.env.extend(kept.map(|value| (variable.to_owned(), value)));
        started
    }

    /// TERM, then KILL; nothing happens if it is not running.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        match self.running.take() {
            Some(mut running) => running.stop(self.times.grace),
            None => Ok(()),
        }
    }

    /// TERM without waiting, so that several components can end side by side; follow with [`Component::stop`].
    pub(crate) fn ask_to_stop(&mut self) {
        // Whoever cannot be asked is killed by what follows.
        let _ = self.signal(Signal::TERM).and_then(|()| self.signal(Signal::CONT));
    }

    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        match self.running.take() {
            Some(mut running) => running.kill(),
            None => Ok(()),
        }
    }

    pub(crate) fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        match &mut self.running {
            Some(running) => running.signal(signal),
            None => Ok(()),
        }
    }

    pub(crate) fn is_store(&self) -> bool {
        self.name.contains("/etcd-")
    }

    pub(crate) fn is_apiserver(&self) -> bool {
        self.order() == APISERVER
    }

    /// Those that others need come first: stores, plugins, apiservers, their clients.
    pub(crate) fn order(&self) -> u8 {
        match self.name.rsplit_once('/') {
            _ if self.is_store() => 0,
            _ if self.needs_apiserver => LAST,
            Some((_, name)) if name.starts_with("kube-apiserver") => APISERVER,
            _ => 1,
        }
    }

    /// Whether it died on its own.
    pub(crate) fn casualty(&mut self) -> Option<String> {
        let status = self.running.as_mut()?.ended()?;
        Some(format!("{} ended by itself ({status})\n{}", self.name, log_tail(&self.program.log)))
    }

    pub(crate) fn has_died(&mut self) -> bool {
        self.running.as_mut().is_some_and(|running| running.ended().is_some())
    }

    /// Whether its log says that one of its ports was taken by somebody else.
    pub(crate) fn lost_its_port(&self) -> bool {
        let listens = self.flags.values().chain([&self.ready.url]).filter_map(|value| value.strip_prefix("https://"));
        let addresses: Vec<&str> = listens.filter_map(|rest| rest.split('/').next()).collect();
        // The log is shared with earlier attempts, which lost other ports.
        let log = tail(&self.program.log, LAST_LINES);
        let mut refusals = log.lines().filter(|line| line.contains("address already in use"));
        refusals.any(|line| addresses.iter().any(|address| line.contains(address)))
    }
}

impl Ready {
    /// Asks on a thread of its own, because an answer may take as long as the client's deadline while an interrupt or
    /// the component's death must be noticed at once. The thread ends with the receiver, after its last question.
    fn asked_again_and_again(self) -> Receiver<Result<(), String>> {
        let (sender, answers) = sync_channel(0);
        std::thread::spawn(move || {
            loop {
                let begin = Instant::now();
                let answer = self.ask();
                let took = begin.elapsed();
                if sender.send(answer).is_err() {
                    return;
                }
                pause((took * REST).max(SHORTEST_REST.mul_f64(self.factor)).min(LONGEST_REST));
            }
        });
        answers
    }

    /// Whether it is ready, or what was seen instead.
    fn ask(&self) -> Result<(), String> {
        let answer = self.client.get(&self.url).send().map_err(|error| root_cause(&error))?;
        let status = answer.status();
        if status.as_u16() == self.status {
            return Ok(());
        }
        let body = answer.text().unwrap_or_default();
        let failing: Vec<&str> = body.lines().filter(|line| line.starts_with("[-]")).collect();
        Err(format!("it answers {status} {}", failing.join(" ")))
    }
}

/// For a POSIX shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn log_tail(log: &Path) -> String {
    format!("the last lines of {}:\n{}", log.display(), last_words(&tail(log, LAST_LINES + TRACE_LINES)))
}

/// The last lines, but of a Go panic its head: what it says is above the stacks, which may be longer than all that is
/// shown (etcd on a full disk).
fn last_words(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let panic = lines.iter().rposition(|line| line.starts_with("panic: ") || line.starts_with("fatal error: "));
    let end = panic.map_or(lines.len(), |at| lines.len().min(at + LAST_LINES / 2));
    lines[end.saturating_sub(LAST_LINES)..end].join("\n")
}

/// reqwest's own text stops before the interesting part.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_panic_is_not_lost_behind_its_stacks() {
        let before: String = (0..50).map(|n| format!("line {n}\n")).collect();
        let stacks: String = (0..99).map(|n| format!("main.f{n}()\n")).collect();
        let words = last_words(&format!("{before}panic: no space left on device\n\ngoroutine 1 [running]:\n{stacks}"));
        assert!(words.contains("line 49\npanic: no space left on device\n\ngoroutine 1") && !words.contains("f98"));
        assert_eq!(words.lines().count(), LAST_LINES);
        assert!(last_words(&before).ends_with("line 48\nline 49"));
        assert_eq!(last_words("one line"), "one line");
    }
}
