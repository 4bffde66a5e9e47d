//! The agent: the program that runs components for the harness in a guest or container, and that place as a host.
//!
//! The program is `targets/programs/guest`, the first process of a guest or container; its `control.go` describes the
//! protocol, lines of JSON. The output of components comes through a second channel, or goes into files that the
//! harness can read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use rustix::process::Signal;
use serde_json::{Value, json};
use sys::deadline::OnInterrupt;
use sys::interrupt;

use crate::host::{Host, Program, RUN, Running};

/// The component that is the agent's program. It must be built together with the components under test.
pub const INIT: &str = "init";

/// The agent answers within milliseconds; the limit allows for a machine that is busy with several guests.
pub(crate) const ANSWER: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const AFTER_KILL: Duration = Duration::from_secs(60);
/// Bytes of a file in one answer; no message announces more bytes.
const CHUNK: u64 = 4 << 20;
/// Longest line of a message: one line contains the whole output of a program that has finished.
const LONGEST_LINE: u64 = 64 << 20;
/// Largest file that is copied from an agent: stores have quotas of a few gigabytes.
const LARGEST_FILE: u64 = 64 << 30;

/// The place in which an agent runs.
pub(crate) trait AgentMachine: Send + Sync {
    /// For messages, for example "the guest".
    fn name(&self) -> &str;
    /// Why the place can no longer be trusted, as far as this is known without a request.
    fn first_failure(&self) -> Option<String>;
    /// Why the channel to its agent was closed. None if `first_failure` reports it.
    fn last_words(&self) -> Option<String> {
        None
    }
    /// Ends the place with everything in it, if the owner of the agent may do that.
    fn end(&self);
}

/// The channel to an agent.
pub(crate) struct Agent {
    host: Arc<dyn AgentMachine>,
    to: Mutex<UnixStream>,
    shared: Arc<Shared>,
    next: AtomicI64,
}

/// A line, and the bytes that it announces.
struct Answer {
    line: Value,
    bytes: Vec<u8>,
}

/// State that the reading threads share with the others.
#[derive(Default)]
struct Shared {
    hello: Mutex<bool>,
    /// The senders that wait for an answer, by request ID.
    waiting: Mutex<BTreeMap<i64, SyncSender<Answer>>>,
    /// Component name and process ID to exit status.
    ended: Mutex<BTreeMap<(String, i64), String>>,
    /// Component name to the file that receives its output.
    logs: Mutex<BTreeMap<String, PathBuf>>,
    /// The first message that violated the protocol; the channel is not read any further.
    breach: Mutex<Option<String>>,
}

impl Agent {
    /// Reads the channels until they are closed. The agent need not run yet: see [`Agent::has_greeted`].
    pub(crate) fn new(
        host: Arc<dyn AgentMachine>,
        control: UnixStream,
        output: Option<UnixStream>,
    ) -> anyhow::Result<Agent> {
        let shared = Arc::new(Shared::default());
        let to = control.try_clone().context("failed to duplicate the control channel")?;
        let answers = Arc::clone(&shared);
        std::thread::spawn(move || {
            let read = read_lines(control, |line, bytes| answers.answered(line, bytes));
            answers.note_breach(read);
        });
        if let Some(output) = output {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let mut files = BTreeMap::new();
                let read = read_lines(output, |line, bytes| shared.said(&line, bytes, &mut files));
                shared.note_breach(read);
            });
        }
        Ok(Agent { host, to: Mutex::new(to), shared, next: AtomicI64::new(1) })
    }

    /// Whether the agent has sent its hello.
    pub(crate) fn has_greeted(&self) -> bool {
        *sys::lock(&self.shared.hello)
    }

    /// Whether the agent may still send something.
    pub(crate) fn is_open(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    fn loss(&self) -> Option<String> {
        let breach = || sys::lock(&self.shared.breach).clone();
        self.host.first_failure().or_else(breach).or_else(|| if self.is_open() { None } else { self.host.last_words() })
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&self, request: Value, limit: Duration) -> anyhow::Result<Value> {
        self.ask_with(request, limit, OnInterrupt::Continue)
    }

    /// Runs a program to completion, within `limit`; then the agent kills it. Returns its output and how long it took.
    pub(crate) fn measure(&self, program: &Program, limit: Duration) -> anyhow::Result<(String, Duration)> {
        let Program { name, path, args, env, .. } = program;
        let millis = u64::try_from(limit.as_millis())?;
        let request =
            json!({ "do": "measure", "name": name, "program": path, "args": args, "env": env, "millis": millis });
        let answer = self.ask_with(request, limit, OnInterrupt::Stop)?;
        let output = answer["output"].as_str().unwrap_or_default().to_owned();
        match answer["ended"].as_str() {
            Some("exit status: 0") => Ok((output, Duration::from_secs_f64(answer["seconds"].as_f64().unwrap_or(0.0)))),
            other => {
                bail!("{} in {}: {}: {output}", path.display(), self.host.name(), other.unwrap_or("it did not end"))
            }
        }
    }

    pub(crate) fn write(&self, guest_path: &Path, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        let request = json!({ "do": "write", "path": guest_path, "mode": mode, "data": STANDARD.encode(content) });
        self.ask(request, ANSWER)
            .with_context(|| format!("failed to write {} in {}", guest_path.display(), self.host.name()))?;
        Ok(())
    }

    pub(crate) fn ask_with(&self, request: Value, limit: Duration, on_interrupt: OnInterrupt) -> anyhow::Result<Value> {
        Ok(self.answer(request, limit, on_interrupt)?.line)
    }

    fn answer(&self, mut request: Value, limit: Duration, on_interrupt: OnInterrupt) -> anyhow::Result<Answer> {
        let place = self.host.name();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let what = request["do"].as_str().unwrap_or_default().to_owned();
        request["id"] = id.into();
        let (sender, answers) = sync_channel(1);
        sys::lock(&self.shared.waiting).insert(id, sender);
        let answered = self.send(&request).and_then(|()| {
            let begin = Instant::now();
            loop {
                match answers.recv_timeout(LOOK_EVERY) {
                    Ok(answer) => return Ok(answer),
                    Err(RecvTimeoutError::Disconnected) => bail!("the control channel was closed"),
                    Err(RecvTimeoutError::Timeout) => {}
                }
                if let Some(cause) = self.loss() {
                    bail!("{place} is lost: {cause}");
                }
                if on_interrupt == OnInterrupt::Stop {
                    interrupt::check()?;
                }
                if begin.elapsed() > limit {
                    bail!("{place} did not answer within {:.1} s", limit.as_secs_f64());
                }
            }
        });
        sys::lock(&self.shared.waiting).remove(&id);
        let answer = answered.with_context(|| format!("failed to ask {place} to `{what}`"))?;
        match answer.line["error"].as_str() {
            Some(error) => bail!("{place} refused to `{what}`: {error}"),
            None => Ok(answer),
        }
    }

    fn send(&self, request: &Value) -> anyhow::Result<()> {
        let mut to = sys::lock(&self.to);
        // A single write: the lock covers the whole line.
        to.write_all(format!("{request}\n").as_bytes()).context("failed to write to the control channel")
    }

    fn note_log(&self, program: &Program) {
        sys::lock(&self.shared.logs).insert(program.name.clone(), program.log.clone());
    }
}

/// The agent's place, shared with its components.
#[derive(Clone)]
pub(crate) struct AgentHost(pub(crate) Arc<Agent>);

impl Host for AgentHost {
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
            bail!("{} had ended before the harness took it over ({ended})", program.name);
        }
        self.process(program, &answer)
    }

    fn run(&self, program: &Program, more: Vec<String>, limit: Duration) -> anyhow::Result<String> {
        let args = [program.args.clone(), more].concat();
        Ok(self.0.measure(&Program { args, ..program.clone() }, limit)?.0)
    }

    fn fetch(&self, guest_path: &Path, host_path: &Path) -> anyhow::Result<()> {
        let failed = || {
            format!("failed to copy {} from {} to {}", guest_path.display(), self.0.host.name(), host_path.display())
        };
        let file = File::create(host_path).with_context(failed)?;
        let mut offset = 0;
        loop {
            let request = json!({ "do": "read", "path": guest_path, "offset": offset, "length": CHUNK });
            let Answer { line, bytes } = self.0.answer(request, ANSWER, OnInterrupt::Continue).with_context(failed)?;
            let number = |name: &str| line[name].as_u64().ok_or_else(|| anyhow!("the answer has no `{name}`: {line}"));
            let (size, begin) = (number("size").with_context(failed)?, number("offset").with_context(failed)?);
            let end = begin.saturating_add(bytes.len() as u64);
            // The file may grow or shrink during the copy.
            ensure!(
                end.max(size) <= LARGEST_FILE && (begin >= offset || bytes.is_empty()),
                "{}: the answer to a read at {offset} contains the bytes {begin} to {end} of {size}; at most \
                 {LARGEST_FILE} bytes are copied",
                failed()
            );
            file.write_all_at(&bytes, begin).with_context(failed)?;
            offset = end;
            if bytes.is_empty() || offset >= size {
                // Missing bytes at the end are a hole as well.
                return file.set_len(size).with_context(failed);
            }
        }
    }

    fn write(&self, guest_path: &Path, content: &[u8]) -> anyhow::Result<()> {
        self.0.write(guest_path, 0o600, content)
    }

    fn first_failure(&self) -> Option<String> {
        self.0.host.first_failure()
    }

    fn end(&self) {
        self.0.host.end();
    }
}

impl AgentHost {
    fn process(&self, program: &Program, answer: &Value) -> anyhow::Result<Box<dyn Running>> {
        let (name, place) = (program.name.clone(), self.0.host.name());
        let pid = answer["pid"].as_i64().ok_or_else(|| anyhow!("{place} did not report the process ID of {name}"))?;
        Ok(Box::new(Process { agent: Arc::clone(&self.0), name, pid }))
    }
}

/// A component's process. It ends with its place; dropping this value does nothing.
struct Process {
    agent: Arc<Agent>,
    name: String,
    pid: i64,
}

impl Running for Process {
    fn ended(&mut self) -> Option<String> {
        let ended = sys::lock(&self.agent.shared.ended);
        let status = ended.get(&(self.name.clone(), self.pid)).cloned();
        status.or_else(|| Some(format!("{} is lost: {}", self.agent.host.name(), self.agent.loss()?)))
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        let request = json!({ "do": "signal", "name": self.name, "signal": signal.as_raw() });
        self.agent.ask(request, ANSWER)?;
        Ok(())
    }

    fn stop(&mut self, grace: Duration) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        self.signal(Signal::CONT)?;
        if self.gone(grace)? { Ok(()) } else { self.kill() }
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        if self.gone(AFTER_KILL)? { Ok(()) } else { bail!("{} still runs after SIGKILL", self.name) }
    }

    fn processor_time(&self) -> Option<Duration> {
        let program = Program {
            name: "processor-time".into(),
            path: "/bin/busybox".into(),
            args: vec!["cat".into(), format!("/proc/{}/stat", self.pid)],
            env: BTreeMap::new(),
            log: PathBuf::new(),
        };
        sys::process::processor_time_in(&self.agent.measure(&program, RUN).ok()?.0)
    }
}

impl Process {
    fn gone(&mut self, limit: Duration) -> anyhow::Result<bool> {
        let millis = u64::try_from(limit.as_millis())?;
        let request = json!({ "do": "wait", "name": self.name, "millis": millis });
        let answer = self.agent.ask(request, limit + ANSWER)?;
        let Some(status) = answer["ended"].as_str() else { return Ok(false) };
        let mut ended = sys::lock(&self.agent.shared.ended);
        ended.insert((self.name.clone(), self.pid), status.to_owned());
        Ok(true)
    }
}

impl Shared {
    fn note_breach(&self, read: Result<(), String>) {
        if let Err(breach) = read {
            sys::lock(&self.breach).get_or_insert(breach);
        }
    }

    fn answered(&self, line: Value, bytes: &[u8]) {
        if line.get("hello").is_some() {
            *sys::lock(&self.hello) = true;
        } else if let Some(waiting) = line["id"].as_i64().and_then(|id| sys::lock(&self.waiting).remove(&id)) {
            // The requester may have given up.
            let _ = waiting.send(Answer { line, bytes: bytes.to_vec() });
        } else {
            self.noted(&line);
        }
    }

    /// Records the end of a component. False if the line reports no end.
    fn noted(&self, line: &Value) -> bool {
        let ended = (line["component"].as_str(), line["pid"].as_i64(), line["ended"].as_str());
        let (Some(name), Some(pid), Some(status)) = ended else { return false };
        sys::lock(&self.ended).insert((name.to_owned(), pid), status.to_owned());
        true
    }

    fn said(&self, line: &Value, text: &[u8], files: &mut BTreeMap<String, File>) {
        if self.noted(line) {
            return;
        }
        let name = line["component"].as_str().unwrap_or_default().to_owned();
        if !files.contains_key(&name) {
            let path = sys::lock(&self.logs).get(&name).cloned();
            let Some(file) = path.and_then(|path| File::options().create(true).append(true).open(path).ok()) else {
                return;
            };
            files.insert(name.clone(), file);
        }
        if let Some(file) = files.get_mut(&name) {
            // An error, for example a full disk, must not end this thread: nothing would read the components' output,
            // and they would block.
            let _ = file.write_all(text);
        }
    }
}

/// Reads a channel for the fuzz crate: the result, the length of each message's bytes, and the number of reported ends.
pub(crate) fn reported(channel: &[u8]) -> (Result<(), String>, Vec<usize>, usize) {
    let shared = Shared::default();
    let mut lengths = Vec::new();
    let read = read_lines(channel, |line, bytes| {
        lengths.push(bytes.len());
        shared.said(&line, bytes, &mut BTreeMap::new());
        shared.answered(line, bytes);
    });
    let ended = sys::lock(&shared.ended).len();
    (read, lengths, ended)
}

/// Calls `each` with every line and the bytes that it announces, until the channel is closed.
///
/// # Errors
/// A message is longer than the protocol allows: the agent must not decide how much memory the harness needs.
fn read_lines(from: impl Read, mut each: impl FnMut(Value, &[u8])) -> Result<(), String> {
    let mut lines = BufReader::with_capacity(1 << 16, from);
    let mut line = Vec::new();
    let mut bytes = Vec::new();
    while lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        if line.len() as u64 == LONGEST_LINE {
            return Err(format!("its agent sent a line of more than {LONGEST_LINE} bytes"));
        }
        if let Ok(value) = serde_json::from_slice::<Value>(&line) {
            let announced = value["bytes"].as_u64().unwrap_or(0);
            let length = usize::try_from(announced).ok().filter(|_| announced <= CHUNK);
            let Some(length) = length else {
                return Err(format!("its agent announced {announced} bytes; a message has at most {CHUNK}"));
            };
            bytes.resize(length, 0);
            if lines.read_exact(&mut bytes).is_err() {
                return Ok(());
            }
            each(value, &bytes);
        }
        line.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Guest;

    impl AgentMachine for Guest {
        fn name(&self) -> &str {
            "the guest"
        }

        fn first_failure(&self) -> Option<String> {
            None
        }

        fn end(&self) {}
    }

    /// The result of copying a file from an agent that sends these answers, each followed by the bytes after `|`.
    fn fetched(answers: &[&str]) -> Result<Vec<u8>, String> {
        let scratch = sys::Scratch::temporary("agent").unwrap();
        let (here, mut there) = UnixStream::pair().unwrap();
        let agent = AgentHost(Arc::new(Agent::new(Arc::new(Guest), here, None).unwrap()));
        let copy = scratch.path().join("copy");
        let copied = std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut requests = BufReader::new(there.try_clone().unwrap());
                for (id, answer) in answers.iter().enumerate() {
                    requests.read_until(b'\n', &mut Vec::new()).unwrap();
                    let (line, bytes) = answer.split_once('|').unwrap();
                    there.write_all(format!("{{\"id\":{},{line}}}\n{bytes}", id + 1).as_bytes()).unwrap();
                }
                // The channel stays open, like a guest's channel.
                let _ = requests.read_until(b'\n', &mut Vec::new());
            });
            let copied = agent.fetch(Path::new("/file"), &copy).map_err(|error| format!("{error:#}"));
            drop(agent.0.to.lock().unwrap().shutdown(std::net::Shutdown::Both));
            copied
        });
        copied.map(|()| std::fs::read(&copy).unwrap())
    }

    #[test]
    fn file_is_copied_with_its_holes() {
        let answers = [
            r#""bytes":2,"offset":0,"size":7|xx"#,
            r#""bytes":1,"offset":4,"size":7|x"#,
            r#""bytes":0,"offset":7,"size":7|"#,
        ];
        assert_eq!(fetched(&answers).unwrap(), b"xx\0\0x\0\0");
    }

    #[test]
    fn announced_lengths_are_limited() {
        for (answer, expected) in [
            (r#""bytes":18446744073709551615,"offset":0,"size":1|"#, "announced 18446744073709551615 bytes"),
            (r#""bytes":4194305,"offset":0,"size":1|"#, "a message has at most 4194304"),
            (r#""bytes":1,"offset":18446744073709551615,"size":18446744073709551615|x"#, "at most 68719476736"),
            (r#""bytes":1,"offset":0,"size":18446744073709551615|x"#, "at most 68719476736"),
        ] {
            let error = fetched(&[answer]).unwrap_err();
            assert!(error.contains(expected), "{answer}: {error}");
        }
    }
}
