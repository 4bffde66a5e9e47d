//! One component of a control plane: its flags, its process over restarts, and when it counts as ready.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use proc::daemon::{Daemon, Spec, tail};
use proc::deadline::{OnInterrupt, Probe, until};
use reqwest::blocking::Client;
use rustix::process::Signal;

/// How often readiness is looked at; the look itself takes a few milliseconds.
const LOOK_EVERY: Duration = Duration::from_millis(15);

/// Lines of the log shown when a component dies.
const LAST_LINES: usize = 25;

/// A component that can be started again and again with the same or other flags.
pub(crate) struct Component {
    /// `PROFILE/kube-apiserver`.
    pub(crate) name: String,
    /// Without flags.
    pub(crate) spec: Spec,
    /// Names without dashes.
    pub(crate) flags: BTreeMap<String, String>,
    pub(crate) ready: Ready,
    pub(crate) times: Times,
    daemon: Option<Daemon>,
}

/// An URL that answers 200 when the component is ready.
#[derive(Clone)]
pub(crate) struct Ready {
    pub(crate) client: Client,
    pub(crate) url: String,
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
        name: String,
        spec: Spec,
        flags: BTreeMap<String, String>,
        ready: Ready,
        times: Times,
    ) -> Component {
        Component { name, spec, flags, ready, times, daemon: None }
    }

    /// Program, arguments and flags as one line of shell, in the background, output to the log.
    pub(crate) fn shell_command(&self) -> String {
        let env = self.spec.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let words = [quoted(&self.spec.program.display().to_string())];
        let args = self.spec.args.iter().map(|arg| quoted(arg));
        let flags = self.flags.iter().map(|(name, value)| quoted(&format!("--{name}={value}")));
        let line: Vec<String> = env.chain(words).chain(args).chain(flags).collect();
        format!("{} >>{} 2>&1 &", line.join(" "), quoted(&self.spec.log.display().to_string()))
    }

    /// Starts the process without waiting for it.
    pub(crate) fn launch(&mut self) -> anyhow::Result<()> {
        if self.daemon.is_some() {
            bail!("{} is running already", self.name);
        }
        let mut spec = self.spec.clone();
        spec.args.extend(self.flags.iter().map(|(name, value)| format!("--{name}={value}")));
        self.daemon = Some(Daemon::start(spec)?);
        Ok(())
    }

    /// Waits until it is ready; at its death or the deadline the error shows the end of its log.
    pub(crate) fn wait_ready(&mut self, on_interrupt: OnInterrupt) -> anyhow::Result<()> {
        let Component { name, spec, ready, times, daemon, .. } = self;
        let Some(daemon) = daemon else { bail!("{name} is not running") };
        let what = format!("{name} to answer 200 at {}", ready.url);
        until(&what, times.start, LOOK_EVERY, on_interrupt, || {
            if let Some(status) = daemon.ended() {
                return Probe::Hopeless(anyhow!("{name} ended ({status}) before it was ready"));
            }
            match ready.client.get(&ready.url).send() {
                Ok(answer) if answer.status().is_success() => Probe::Ready(()),
                Ok(answer) => {
                    let status = answer.status();
                    let body = answer.text().unwrap_or_default();
                    let failing: Vec<&str> = body.lines().filter(|line| line.starts_with("[-]")).collect();
                    Probe::NotYet(format!("it answers {status} {}", failing.join(" ")))
                }
                Err(error) => Probe::NotYet(root_cause(&error)),
            }
        })
        .with_context(|| log_tail(&spec.log))
    }

    /// Starts and waits until it is ready. A start that failed leaves nothing running, and nothing that counts as a
    /// casualty: whoever asked for it has the error.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.launch()?;
        let ready = self.wait_ready(OnInterrupt::Stop);
        if ready.is_err() {
            self.kill();
        }
        ready
    }

    /// TERM, then KILL; nothing happens if it is not running.
    pub(crate) fn stop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.stop(self.times.grace);
        }
    }

    /// TERM without waiting, so that several components can end side by side; follow with [`Component::stop`].
    pub(crate) fn ask_to_stop(&mut self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill();
        }
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        if let Some(daemon) = &mut self.daemon {
            daemon.signal(signal);
        }
    }

    /// Whether it died on its own.
    pub(crate) fn casualty(&mut self) -> Option<String> {
        let status = self.daemon.as_mut()?.ended()?;
        Some(format!("{} ended by itself ({status})\n{}", self.name, log_tail(&self.spec.log)))
    }

    /// Whether its log says that a port was taken by somebody else.
    pub(crate) fn lost_its_port(&self) -> bool {
        tail(&self.spec.log, LAST_LINES).contains("address already in use")
    }
}

/// For a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn log_tail(log: &Path) -> String {
    format!("the last lines of {}:\n{}", log.display(), tail(log, LAST_LINES))
}

/// reqwest's own text stops before the interesting part.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
