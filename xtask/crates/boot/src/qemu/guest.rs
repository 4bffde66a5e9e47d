//! The control channel into a guest, and the guest as a place where components run.
//!
//! The other end is the guest's first process, `targets/components/guest`, whose `control.go` describes the protocol:
//! lines of JSON over a virtio-serial port, with a second port for the components' output.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use proc::deadline::{OnInterrupt, Probe, until};
use proc::interrupt;
use ring::rand::{SecureRandom, SystemRandom};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::vm::{Ports, Vm};
use crate::host::{Host, Program, Running};

/// The guest answers within milliseconds; this is for a host that is busy with several guests.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a restored guest gets to start its timers: it takes a few milliseconds, or never happens.
const REVIVAL: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const AFTER_KILL: Duration = Duration::from_secs(60);
/// Of a file, in one answer.
const CHUNK: u64 = 4 << 20;
const SEED: usize = 64;

/// A guest whose first process answers.
pub(crate) struct Guest {
    vm: Vm,
    to: Mutex<UnixStream>,
    shared: Arc<Shared>,
    next: AtomicI64,
    ended_by_us: AtomicBool,
}

/// What the reading threads tell the others.
#[derive(Default)]
struct Shared {
    hello: Mutex<Option<Value>>,
    /// Who waits for the answer to which request.
    waiting: Mutex<BTreeMap<i64, SyncSender<Value>>>,
    /// Component name and process to how it ended.
    ended: Mutex<BTreeMap<(String, i64), String>>,
    /// Component name to the file that gets its output.
    logs: Mutex<BTreeMap<String, PathBuf>>,
}

impl Guest {
    /// Reads both ports until they are closed. The guest need not be up yet: see [`Guest::greeted`].
    pub(crate) fn new(vm: Vm, ports: Ports) -> anyhow::Result<Guest> {
        let shared = Arc::new(Shared::default());
        let to = ports.control.try_clone().context("failed to duplicate the control channel")?;
        let answers = Arc::clone(&shared);
        std::thread::spawn(move || read_lines(ports.control, |line, _| answers.answered(line)));
        let output = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut files = BTreeMap::new();
            read_lines(ports.logs, |line, bytes| output.said(line, bytes, &mut files));
        });
        Ok(Guest { vm, to: Mutex::new(to), shared, next: AtomicI64::new(1), ended_by_us: AtomicBool::new(false) })
    }

    pub(crate) fn vm(&self) -> &Vm {
        &self.vm
    }

    /// Waits until the guest's first process says that it is up. A console that says nothing for `silence` ends the wait.
    pub(crate) fn greeted(&self, limit: Duration, silence: Duration) -> anyhow::Result<()> {
        until("the guest's first process to say hello", limit, LOOK_EVERY, OnInterrupt::Stop, || {
            if self.shared.hello.lock().unwrap_or_else(|e| e.into_inner()).is_some() {
                return Probe::Ready(());
            }
            if let Some(cause) = self.vm.casualty() {
                return Probe::Hopeless(anyhow!("the guest did not boot: {cause}"));
            }
            let (quiet, last) = self.vm.console.silence();
            if quiet > silence {
                let seconds = quiet.as_secs();
                return Probe::Hopeless(anyhow!(
                    "the guest did not boot: its console has been silent for {seconds} s; the last line was `{last}`"
                ));
            }
            Probe::NotYet(format!("the console's last line was `{last}`"))
        })?;
        Ok(())
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&self, request: Value, limit: Duration) -> anyhow::Result<Value> {
        self.ask_with(request, limit, OnInterrupt::Continue)
    }

    /// Sets the clock and gives the kernel fresh random bytes.
    pub(crate) fn set_clock(&self) -> anyhow::Result<()> {
        self.clock(false, ANSWER)
    }

    /// Sets the clock in a guest whose timers were lost, so that the kernel starts them anew.
    pub(crate) fn revive_timers(&self) -> anyhow::Result<()> {
        self.clock(true, REVIVAL)
    }

    fn clock(&self, lost_timers: bool, limit: Duration) -> anyhow::Result<()> {
        let mut seed = [0_u8; SEED];
        if SystemRandom::new().fill(&mut seed).is_err() {
            bail!("the system's random source gave nothing for the guest");
        }
        let now = time::OffsetDateTime::now_utc().unix_timestamp_nanos();
        let (now, data) = (i64::try_from(now)?, STANDARD.encode(seed));
        let request = json!({ "do": "clock", "unix_nanos": now, "lost_timers": lost_timers, "data": data });
        self.ask(request, limit)?;
        Ok(())
    }

    /// Lets the timers of everything that is started from now on fire up to `slack` late, together with others.
    pub(crate) fn slacken_timers(&self, slack: Duration) -> anyhow::Result<()> {
        self.ask(json!({ "do": "slack", "millis": u64::try_from(slack.as_millis())? }), ANSWER)?;
        Ok(())
    }

    /// Lets a timer fire on every processor. An error names the processors on which none did within `limit`.
    pub(crate) fn check_timers(&self, limit: Duration) -> anyhow::Result<()> {
        let answer = self.ask_with(
            json!({ "do": "timers", "millis": u64::try_from(limit.as_millis())? }),
            limit * 2,
            OnInterrupt::Stop,
        )?;
        let millis = answer["millis"].as_array().cloned().unwrap_or_default();
        let dead: Vec<usize> =
            millis.iter().enumerate().filter(|(_, m)| m.as_f64() < Some(0.0)).map(|(n, _)| n).collect();
        if millis.is_empty() || !dead.is_empty() {
            bail!("no timer fires on the processors {dead:?} of {}", millis.len());
        }
        Ok(())
    }

    /// Runs a program to its end; its output, and how many seconds it took.
    pub(crate) fn measure(&self, program: &Program) -> anyhow::Result<(String, Duration)> {
        let Program { name, path, args, env, .. } = program;
        let request = json!({ "do": "measure", "name": name, "program": path, "args": args, "env": env });
        let answer = self.ask_with(request, ANSWER * 3, OnInterrupt::Stop)?;
        let output = answer["output"].as_str().unwrap_or_default().to_owned();
        match answer["ended"].as_str() {
            Some("exit status: 0") => Ok((output, Duration::from_secs_f64(answer["seconds"].as_f64().unwrap_or(0.0)))),
            other => bail!("{} in the guest: {}: {output}", path.display(), other.unwrap_or("it did not end")),
        }
    }

    pub(crate) fn write(&self, there: &Path, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        let request = json!({ "do": "write", "path": there, "mode": mode, "data": STANDARD.encode(content) });
        self.ask(request, ANSWER).with_context(|| format!("failed to write {} in the guest", there.display()))?;
        Ok(())
    }

    /// Gives up caches, so that a snapshot is smaller.
    pub(crate) fn trim(&self) -> anyhow::Result<()> {
        self.ask(json!({ "do": "trim" }), ANSWER)?;
        Ok(())
    }

    fn ask_with(&self, mut request: Value, limit: Duration, on_interrupt: OnInterrupt) -> anyhow::Result<Value> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let what = request["do"].as_str().unwrap_or_default().to_owned();
        request["id"] = id.into();
        let (sender, answers) = sync_channel(1);
        self.shared.waiting().insert(id, sender);
        let answered = self.send(&request).and_then(|()| {
            let begin = Instant::now();
            loop {
                match answers.recv_timeout(LOOK_EVERY * 10) {
                    Ok(answer) => return Ok(answer),
                    Err(RecvTimeoutError::Disconnected) => bail!("the control channel was closed"),
                    Err(RecvTimeoutError::Timeout) => {}
                }
                if let Some(cause) = self.vm.casualty() {
                    bail!("the guest is lost: {cause}");
                }
                if on_interrupt == OnInterrupt::Stop {
                    interrupt::check()?;
                }
                if begin.elapsed() > limit {
                    bail!("the guest did not answer within {:.1} s", limit.as_secs_f64());
                }
            }
        });
        self.shared.waiting().remove(&id);
        let answer = answered.with_context(|| format!("failed to ask the guest to `{what}`"))?;
        match answer["error"].as_str() {
            Some(error) => bail!("the guest refused to `{what}`: {error}"),
            None => Ok(answer),
        }
    }

    fn send(&self, request: &Value) -> anyhow::Result<()> {
        let mut to = self.to.lock().unwrap_or_else(|e| e.into_inner());
        // One write: the lock is held for a whole line.
        to.write_all(format!("{request}\n").as_bytes()).context("failed to write to the control channel")
    }

    fn note_log(&self, program: &Program) {
        self.shared.logs.lock().unwrap_or_else(|e| e.into_inner()).insert(program.name.clone(), program.log.clone());
    }
}

/// The guest, shared with its components.
pub(crate) struct GuestHost(pub(crate) Arc<Guest>);

impl Host for GuestHost {
    fn start(&self, program: &Program, flags: Vec<String>) -> anyhow::Result<Box<dyn Running>> {
        self.0.note_log(program);
        let args: Vec<&String> = program.args.iter().chain(&flags).collect();
        let Program { name, path, env, .. } = program;
        let request = json!({ "do": "start", "name": name, "program": path, "args": args, "env": env });
        let answer = self.0.ask(request, ANSWER).with_context(|| format!("failed to start {name}"))?;
        self.process(program, &answer)
    }

    fn adopt(&self, program: &Program) -> anyhow::Result<Box<dyn Running>> {
        self.0.note_log(program);
        let answer = self.0.ask(json!({ "do": "wait", "name": program.name, "millis": 0 }), ANSWER)?;
        if let Some(ended) = answer["ended"].as_str() {
            bail!("{} had ended when the guest was saved ({ended})", program.name);
        }
        self.process(program, &answer)
    }

    fn run(&self, program: &Program, more: Vec<String>) -> anyhow::Result<String> {
        let args = [program.args.clone(), more].concat();
        Ok(self.0.measure(&Program { args, ..program.clone() })?.0)
    }

    fn fetch(&self, there: &Path, here: &Path) -> anyhow::Result<()> {
        let failed = || format!("failed to copy {} from the guest to {}", there.display(), here.display());
        let mut file = File::create(here).with_context(failed)?;
        let mut offset = 0;
        loop {
            let request = json!({ "do": "read", "path": there, "offset": offset, "length": CHUNK });
            let answer = self.0.ask(request, ANSWER).with_context(failed)?;
            let data = STANDARD.decode(answer["data"].as_str().unwrap_or_default()).with_context(failed)?;
            file.write_all(&data).with_context(failed)?;
            offset += data.len() as u64;
            if data.is_empty() || offset >= answer["size"].as_u64().unwrap_or(0) {
                return Ok(());
            }
        }
    }

    fn write(&self, there: &Path, content: &[u8]) -> anyhow::Result<()> {
        self.0.write(there, 0o600, content)
    }

    fn casualty(&self) -> Option<String> {
        if self.0.ended_by_us.load(Ordering::SeqCst) { None } else { self.0.vm.casualty() }
    }

    fn end(&self) {
        self.0.ended_by_us.store(true, Ordering::SeqCst);
        self.0.vm.kill();
    }
}

impl GuestHost {
    fn process(&self, program: &Program, answer: &Value) -> anyhow::Result<Box<dyn Running>> {
        let name = program.name.clone();
        let pid = answer["pid"].as_i64().ok_or_else(|| anyhow!("the guest did not say which process {name} is"))?;
        Ok(Box::new(GuestProcess { guest: Arc::clone(&self.0), name, pid }))
    }
}

/// A component's process in the guest. It ends with the guest; dropping this does nothing.
struct GuestProcess {
    guest: Arc<Guest>,
    name: String,
    pid: i64,
}

impl Running for GuestProcess {
    fn ended(&mut self) -> Option<String> {
        let ended = self.guest.shared.ended.lock().unwrap_or_else(|e| e.into_inner());
        let status = ended.get(&(self.name.clone(), self.pid)).cloned();
        status.or_else(|| Some(format!("the guest is lost: {}", self.guest.vm.casualty()?)))
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        let request = json!({ "do": "signal", "name": self.name, "signal": signal.as_raw() });
        self.guest.ask(request, ANSWER)?;
        Ok(())
    }

    fn stop(&mut self, grace: Duration) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        self.signal(Signal::CONT)?;
        if self.gone(grace)? { Ok(()) } else { self.kill() }
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        if self.gone(AFTER_KILL)? { Ok(()) } else { bail!("{} is still there after SIGKILL", self.name) }
    }
}

impl GuestProcess {
    fn gone(&mut self, limit: Duration) -> anyhow::Result<bool> {
        let millis = u64::try_from(limit.as_millis())?;
        let request = json!({ "do": "wait", "name": self.name, "millis": millis });
        let answer = self.guest.ask(request, limit + ANSWER)?;
        let Some(status) = answer["ended"].as_str() else { return Ok(false) };
        let mut ended = self.guest.shared.ended.lock().unwrap_or_else(|e| e.into_inner());
        ended.insert((self.name.clone(), self.pid), status.to_owned());
        Ok(true)
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<i64, SyncSender<Value>>> {
        self.waiting.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn answered(&self, line: Value) {
        if line.get("hello").is_some() {
            *self.hello.lock().unwrap_or_else(|e| e.into_inner()) = Some(line);
        } else if let Some(waiting) = line["id"].as_i64().and_then(|id| self.waiting().remove(&id)) {
            // Whoever asked may have given up meanwhile.
            let _ = waiting.send(line);
        }
    }

    fn said(&self, line: Value, text: &[u8], files: &mut BTreeMap<String, File>) {
        let name = line["component"].as_str().unwrap_or_default().to_owned();
        if let (Some(status), Some(pid)) = (line["ended"].as_str(), line["pid"].as_i64()) {
            self.ended.lock().unwrap_or_else(|e| e.into_inner()).insert((name, pid), status.to_owned());
            return;
        }
        if !files.contains_key(&name) {
            let path = self.logs.lock().unwrap_or_else(|e| e.into_inner()).get(&name).cloned();
            let Some(file) = path.and_then(|path| File::options().create(true).append(true).open(path).ok()) else {
                return;
            };
            files.insert(name.clone(), file);
        }
        if let Some(file) = files.get_mut(&name) {
            // A full disk must not end the thread that reads: the guest would stand still.
            let _ = file.write_all(text);
        }
    }
}

/// Calls `each` with every line and the bytes that it announces.
fn read_lines(from: UnixStream, mut each: impl FnMut(Value, &[u8])) {
    let mut lines = BufReader::with_capacity(1 << 16, from);
    let mut line = Vec::new();
    let mut bytes = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        if let Ok(value) = serde_json::from_slice::<Value>(&line) {
            let announced = value["bytes"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            bytes.resize(announced, 0);
            if lines.read_exact(&mut bytes).is_err() {
                return;
            }
            each(value, &bytes);
        }
        line.clear();
    }
}
