//! One component of a control plane: its flags, its process across restarts, and its readiness.
//!
//! The host decides where the process runs, on this machine or in a guest: see `host`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use reqwest::blocking::Client;
use rustix::process::Signal;
use sys::daemon::tail;
use sys::deadline::{OnInterrupt, Probe, WaitError, pause, until};
use sys::progress;

use crate::component_names::{CONTROLLER_MANAGER, SCHEDULER};
use crate::flags;
use crate::host::{Host, Program, Running};
use crate::place::SLOW;

/// How often the wait checks for an answer of the readiness probe; a probe itself takes a few milliseconds.
const LOOK_EVERY: Duration = Duration::from_millis(15);

/// Polling a starting server delays it: if an answer takes long, frequent requests would use up the server's time. The
/// answer time alone does not show this, because other CPUs share the work: an emulated apiserver that answered within
/// 10 ms spent an eighth of its start on sixteen answers a second. So the shortest pause grows with the machine's
/// factor.
const REST: u32 = 6;
const SHORTEST_REST: Duration = Duration::from_millis(15);
const LONGEST_REST: Duration = Duration::from_millis(250);

/// The place of apiservers in [`Component::order`], and the last place, for components that need an apiserver.
const APISERVER: u8 = 2;
pub(crate) const LAST: u8 = APISERVER + 1;

/// The words with which an apiserver ends that has not checked all Services within a minute after it began to serve
/// (pkg/registry/core/rest/storage_core.go). Its second try would be three minutes after the first one, so on a slow
/// machine one "TLS handshake timeout" is enough.
const TOO_SLOW: &str = "unable to perform initial IP and Port allocation check";
/// How many times such an apiserver is started.
const STARTS: usize = 3;
/// In the status of a process that SIGKILL ended.
const KILLED: &str = "SIGKILL";

/// Lines of the log in the error when a component dies.
const LAST_LINES: usize = 25;
/// How many lines back the head of a panic is searched.
const TRACE_LINES: usize = 400;

/// A component that can be started repeatedly, with the same or other flags.
pub(crate) struct Component {
    /// `PROFILE/kube-apiserver`.
    pub(crate) name: String,
    /// The program without flags.
    pub(crate) program: Program,
    /// Flags by name, without dashes.
    pub(crate) flags: BTreeMap<String, String>,
    /// The flags before a check changed them, if it runs on demand.
    planned_flags: Option<BTreeMap<String, String>>,
    /// The programs of several releases that it can run, by name, each with its flags.
    pub(crate) programs: BTreeMap<String, (Program, BTreeMap<String, String>)>,
    pub(crate) ready: Ready,
    pub(crate) times: Times,
    /// Whether it runs only while a check needs it.
    pub(crate) on_demand: bool,
    /// Whether it is a client of the apiserver and useless without it.
    pub(crate) needs_apiserver: bool,
    used: ProcessorTime,
    /// The processor time of its process before this run, in a restored guest.
    before: Duration,
    /// Whether its process has started, and was not ready yet.
    starts: bool,
    /// The length of its log at its last start.
    log_start: u64,
    host: Arc<dyn Host>,
    running: Option<Box<dyn Running>>,
}

/// The processor time of a component's processes that have ended, and of their starts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessorTime {
    /// Until the processes were ready.
    pub(crate) starting: Duration,
    pub(crate) all: Duration,
}

/// A URL, and how it answers when the component is ready.
#[derive(Clone)]
pub(crate) struct Ready {
    pub(crate) client: Client,
    pub(crate) url: String,
    /// HTTP statuses.
    pub(crate) expected: &'static [u16],
    /// How much slower its machine is than the reference machine.
    pub(crate) factor: f64,
}

/// Deadlines, scaled to the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) start: Duration,
    /// Between SIGTERM and SIGKILL.
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
        let needs_apiserver = name.ends_with(CONTROLLER_MANAGER) || name.ends_with(SCHEDULER);
        let on_demand = false;
        Component {
            name,
            program,
            flags,
            planned_flags: None,
            programs: BTreeMap::new(),
            ready,
            times,
            on_demand,
            needs_apiserver,
            used: ProcessorTime::default(),
            before: Duration::ZERO,
            starts: false,
            log_start: 0,
            host,
            running: None,
        }
    }

    /// Selects the program of another release, with its flags, for the next start.
    pub(crate) fn change_program(&mut self, to: &str) -> anyhow::Result<()> {
        let Some((program, flags)) = self.programs.get(to) else { bail!("{} has no program {to}", self.name) };
        // The environment has more than the program's own: that of the profile.
        (self.program.path, self.program.args) = (program.path.clone(), program.args.clone());
        self.flags = flags.clone();
        Ok(())
    }

    /// Changes flags for the next start, see [`flags::change`]. If it runs on demand, only until [`Component::release`].
    pub(crate) fn change_flags(&mut self, changes: &BTreeMap<String, String>) {
        if self.on_demand {
            self.planned_flags.get_or_insert_with(|| self.flags.clone());
        }
        flags::change(&mut self.flags, changes);
    }

    /// Stops the component. One that runs on demand has its planned flags again, for the next check that needs it.
    pub(crate) fn release(&mut self) -> anyhow::Result<()> {
        self.stop()?;
        if let Some(planned) = self.planned_flags.take() {
            self.flags = planned;
        }
        Ok(())
    }

    /// Lets another host run the component from now on.
    pub(crate) fn move_to(&mut self, host: Arc<dyn Host>) {
        self.host = host;
    }

    /// Program, arguments and flags as one shell line that runs in the background; `log` is a quoted path for the
    /// output.
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
        // In a guest, the component's first output creates the file.
        self.log_start = std::fs::metadata(&self.program.log).map_or(0, |log| log.len());
        self.running = Some(self.host.start(&self.program, flags.collect())?);
        self.starts = true;
        Ok(())
    }

    /// Takes over a process that already runs in a restored guest.
    pub(crate) fn adopt(&mut self) -> anyhow::Result<()> {
        self.running = Some(self.host.adopt(&self.program)?);
        self.before = self.present_time();
        Ok(())
    }

    /// Waits until the component is ready. If it dies or the deadline passes, the error contains the end of its log.
    pub(crate) fn wait_ready(&mut self, on_interrupt: OnInterrupt) -> anyhow::Result<()> {
        self.wait(on_interrupt)?;
        if std::mem::take(&mut self.starts) {
            self.used.starting += self.present_time();
        }
        Ok(())
    }

    /// The processor time of the process that runs now.
    fn present_time(&self) -> Duration {
        self.running.as_ref().and_then(|running| running.processor_time()).unwrap_or_default()
    }

    /// The processor time so far.
    pub(crate) fn processor_time(&self) -> ProcessorTime {
        ProcessorTime { all: self.used.all + self.present_time().saturating_sub(self.before), ..self.used }
    }

    /// Adds the process that ends to the time so far, if its time is known at once: a guest would answer only after the
    /// moment at which a check wants the process to end.
    fn count_time(&mut self) {
        self.used.all += self.running.as_ref().and_then(|running| running.last_processor_time()).unwrap_or_default();
        self.before = Duration::ZERO;
    }

    fn wait(&mut self, on_interrupt: OnInterrupt) -> anyhow::Result<()> {
        let Component { name, program, ready, times, running, log_start, .. } = self;
        let Some(running) = running else { bail!("{name} is not running") };
        let what = format!("{name} to answer {:?} at {}", ready.expected, ready.url);
        let answers = ready.clone().asked_again_and_again();
        let mut last = "no answer yet".to_owned();
        let ready = until(&what, times.start, LOOK_EVERY, on_interrupt, || {
            if let Some(status) = running.ended() {
                return Probe::Hopeless(anyhow!("{name} ended ({status}) before it was ready"));
            }
            match answers.recv_timeout(LOOK_EVERY) {
                Ok(Ok(())) => return Probe::Ready(()),
                Ok(Err(seen)) => last = seen,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Probe::Hopeless(anyhow!("the polling thread has ended")),
            }
            Probe::NotYet(last.clone())
        });
        ready.map_err(|error| match error {
            WaitError::Interrupted { .. } => error.into(),
            _ => {
                let fatal = fatal_line(&program.log, *log_start).map(|line| format!("\n{line}")).unwrap_or_default();
                anyhow!("{error:#}{fatal}\n{}", log_tail(&program.log))
            }
        })
    }

    /// Starts the component and waits until it is ready. A failed start leaves no process, and does not count as a
    /// failure: the caller has the error. An apiserver that was too slow for itself is started again.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        let mut attempt = 1;
        loop {
            self.launch()?;
            let Err(error) = self.wait_ready(OnInterrupt::Stop) else { return Ok(()) };
            let again = attempt < STARTS && self.was_too_slow(&error);
            // The error of the wait says more than an error of the kill.
            let _ = self.kill();
            if !again {
                return Err(error);
            }
            attempt += 1;
            progress::say(&format!("{} ended: \"{TOO_SLOW}\" within a minute; start {attempt} of {STARTS}", self.name));
        }
    }

    /// Whether it ended because this machine is slow.
    fn was_too_slow(&mut self, error: &anyhow::Error) -> bool {
        let is_slow = self.ready.factor >= SLOW && self.is_apiserver();
        is_slow && self.has_died() && error.to_string().contains(TOO_SLOW)
    }

    /// Starts the component, or resumes it if it is suspended.
    pub(crate) fn start_or_resume(&mut self) -> anyhow::Result<()> {
        if self.running.is_none() {
            return self.start();
        }
        self.signal(Signal::CONT)?;
        self.wait_ready(OnInterrupt::Stop)
    }

    /// [`Component::start`], once without a variable of its environment.
    pub(crate) fn start_without(&mut self, variable: &str) -> anyhow::Result<()> {
        let kept = self.program.env.remove(variable);
        let started = self.start();
        self.program.env.extend(kept.map(|value| (variable.to_owned(), value)));
        started
    }

    /// Sends SIGTERM, then SIGKILL. A no-op if the component does not run.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        self.count_time();
        match self.running.take() {
            Some(mut running) => running.stop(self.times.grace),
            None => Ok(()),
        }
    }

    /// Sends SIGTERM without waiting, so that several components can end in parallel. Call [`Component::stop`]
    /// afterwards.
    pub(crate) fn ask_to_stop(&mut self) {
        // If the signal cannot be sent, the following stop kills the component.
        let _ = self.signal(Signal::TERM).and_then(|()| self.signal(Signal::CONT));
    }

    /// [`Component::kill`], for a component that must run until then. One that ended by itself stays as it is, so that
    /// [`Component::first_failure`] still reports it.
    pub(crate) fn kill_running(&mut self) -> anyhow::Result<()> {
        self.must_run()?;
        self.count_time();
        let Some(mut running) = self.running.take() else { return Ok(()) };
        running.kill()?;
        // A guest may report an end only now.
        if running.ended().is_some_and(|status| !status.contains(KILLED)) {
            self.running = Some(running);
        }
        self.must_run()
    }

    /// Fails if it ended by itself.
    pub(crate) fn must_run(&mut self) -> anyhow::Result<()> {
        match self.first_failure() {
            Some(failure) => bail!(failure),
            None => Ok(()),
        }
    }

    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.count_time();
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

    /// Start order: stores, plugins, apiservers, clients of apiservers.
    pub(crate) fn order(&self) -> u8 {
        match self.name.rsplit_once('/') {
            _ if self.is_store() => 0,
            _ if self.needs_apiserver => LAST,
            Some((_, name)) if name.starts_with("kube-apiserver") => APISERVER,
            _ => 1,
        }
    }

    /// A message if the component ended by itself.
    pub(crate) fn first_failure(&mut self) -> Option<String> {
        let status = self.running.as_mut()?.ended()?;
        Some(format!("{} ended by itself ({status})\n{}", self.name, log_tail(&self.program.log)))
    }

    pub(crate) fn has_died(&mut self) -> bool {
        self.running.as_mut().is_some_and(|running| running.ended().is_some())
    }

    /// Whether its log says that another process uses one of its ports.
    pub(crate) fn lost_its_port(&self) -> bool {
        let listens = self.flags.values().chain([&self.ready.url]).filter_map(|value| value.strip_prefix("https://"));
        let addresses: Vec<&str> = listens.filter_map(|rest| rest.split('/').next()).collect();
        // The log also contains earlier attempts, which failed on other ports.
        let log = tail(&self.program.log, LAST_LINES);
        let mut refusals = log.lines().filter(|line| line.contains("address already in use"));
        refusals.any(|line| addresses.iter().any(|address| line.contains(address)))
    }
}

impl Ready {
    /// Polls on a separate thread: an answer may take as long as the client's deadline, while the caller must notice an
    /// interrupt or the component's death at once. The thread ends after its last request, once the receiver is
    /// dropped.
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

    /// Whether the component is ready. The error describes the answer.
    fn ask(&self) -> Result<(), String> {
        let answer = self.client.get(&self.url).send().map_err(|error| root_cause(&error))?;
        let status = answer.status();
        if self.expected.contains(&status.as_u16()) {
            return Ok(());
        }
        let body = answer.text().unwrap_or_default();
        let failing: Vec<&str> = body.lines().filter(|line| line.starts_with("[-]")).collect();
        Err(format!("it answers {status} {}", failing.join(" ")))
    }
}

/// Quotes for a POSIX shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn log_tail(log: &Path) -> String {
    format!("the last lines of {}:\n{}", log.display(), last_words(&tail(log, LAST_LINES + TRACE_LINES)))
}

/// The line with which klog ended the program, after this place in its log: "F1128 10:11:12.345678 1 hooks.go:203] …".
/// The stacks of all goroutines follow it, up to megabytes of them.
fn fatal_line(log: &Path, from: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    file.seek(SeekFrom::Start(from)).ok()?;
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    let is_date = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    let is_fatal =
        |line: &Vec<u8>| line.starts_with(b"F") && line.get(1..5).is_some_and(is_date) && line.get(5) == Some(&b' ');
    lines.filter(is_fatal).last().map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// The last lines. If the log ends with a Go panic, the lines around the panic's head: the message is above the stacks,
/// which may be longer than the excerpt (etcd on a full disk).
fn last_words(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let panic = lines.iter().rposition(|line| line.starts_with("panic: ") || line.starts_with("fatal error: "));
    let end = panic.map_or(lines.len(), |at| lines.len().min(at + LAST_LINES / 2));
    lines[end.saturating_sub(LAST_LINES)..end].join("\n")
}

/// The innermost error: reqwest's own text stops before it.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
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
    fn fatal_line_of_the_last_start_is_found_before_its_stacks() {
        let line = |text: &str| format!("F1128 10:11:12.345678       1 hooks.go:203] PostStartHook failed: {text}\n");
        let stacks = "goroutine 1 [running]:\nFoo()\nF123\n".repeat(10_000);
        let scratch = sys::Scratch::temporary("fatal-line").unwrap();
        let before = format!("I1128 a line\n{}{stacks}", line("earlier"));
        let log = scratch.write("log", format!("{before}{}{stacks}", line("now")));
        let from = before.len() as u64;
        assert!(fatal_line(&log, from).unwrap().ends_with("failed: now"));
        assert_eq!(fatal_line(&log, from + 1), None);
        assert_eq!(fatal_line(&scratch.path().join("absent"), 0), None);
    }

    #[test]
    fn panic_message_is_shown_even_with_long_stacks() {
        let before: String = (0..50).map(|n| format!("line {n}\n")).collect();
        let stacks: String = (0..99).map(|n| format!("main.f{n}()\n")).collect();
        let words = last_words(&format!("{before}panic: no space left on device\n\ngoroutine 1 [running]:\n{stacks}"));
        assert!(words.contains("line 49\npanic: no space left on device\n\ngoroutine 1") && !words.contains("f98"));
        assert_eq!(words.lines().count(), LAST_LINES);
        assert!(last_words(&before).ends_with("line 48\nline 49"));
        assert_eq!(last_words("one line"), "one line");
    }
}
