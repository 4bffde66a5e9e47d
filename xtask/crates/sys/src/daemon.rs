//! Long-running children: each has its own process group, writes to a log file, dies with the harness, and is ended
//! with SIGTERM, then SIGKILL.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::deadline::{OnInterrupt, Probe, until};
use crate::process::{self, Identity};
use crate::spawner;

/// How long a daemon may take to exit after SIGKILL: the kernel has to free its memory (a VM has ten gigabytes), and a
/// write to a slow disk ends before.
const AFTER_KILL: Duration = Duration::from_secs(60);

/// The environment variables that daemons inherit from the harness: those that programs in general and the Go runtime
/// read. Any other variable may be a credential, and a daemon could expose it.
const PASSED_ON: [&str; 12] = [
    "GODEBUG",
    "GOGC",
    "GOMAXPROCS",
    "GOMEMLIMIT",
    "GOTRACEBACK",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PATH",
    "TMPDIR",
    "TZ",
];

/// The program to start.
#[derive(Clone, Debug)]
pub struct Spec {
    /// For messages: `default/etcd-main`.
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// The working directory; the harness's own if None.
    pub dir: Option<PathBuf>,
    /// Standard output and error are appended here.
    pub log: PathBuf,
    /// The file to which the process's identity is appended, so that a later run can kill it (see `run_dir::sweep`).
    pub process_registry: PathBuf,
}

/// A running daemon. Dropping it kills its process group.
#[derive(Debug)]
pub struct Daemon {
    spec: Spec,
    child: Child,
    group: Pid,
    ended: Option<ExitStatus>,
}

impl Daemon {
    /// The program inherits `spec.env` and a few harmless variables of the harness.
    pub fn start(spec: Spec) -> anyhow::Result<Daemon> {
        let child = spawner::spawn(command(&spec)?)
            .with_context(|| format!("failed to start {} ({})", spec.name, spec.program.display()))?;
        let group = Pid::from_child(&child);
        process::register(group);
        let daemon = Daemon { spec, child, group, ended: None };
        daemon.note_in_ledger()?;
        Ok(daemon)
    }

    pub fn name(&self) -> &str {
        &self.spec.name
    }

    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    pub fn pid(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// The exit status, once the daemon has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            // try_wait fails only for a child of another process.
            self.ended = self.child.try_wait().ok().flatten();
            if self.ended.is_some() {
                process::forget(self.group);
            }
        }
        self.ended
    }

    /// Signals the whole group. Not an error if the daemon has ended. After SIGSTOP, returns when no thread runs any more.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            // The daemon may have ended between the check and the signal.
            let _ = kill_process_group(self.group, signal);
        }
        if signal == Signal::STOP {
            let (what, pid) = (format!("{} to stop", self.spec.name), self.pid());
            let stopped = || Probe::of(process::group_is_stopped(pid).then_some(()), "a thread still runs");
            // A thread that waits for a disk stops when the disk has answered; there is nothing to do about it here.
            let _ = until(&what, AFTER_KILL, Duration::from_millis(1), OnInterrupt::Stop, stopped);
        }
    }

    /// Sends SIGTERM, and SIGKILL if the daemon has not ended after `grace`. Also ends a stopped (SIGSTOP) process.
    pub fn stop(&mut self, grace: Duration) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
        self.wait(grace).or_else(|| self.kill())
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        self.signal(Signal::KILL);
        self.wait(AFTER_KILL)
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let what = format!("the end of {}", self.spec.name);
        let probe = || Probe::of(self.ended(), "it is still running");
        until(&what, limit, Duration::from_millis(5), OnInterrupt::Continue, probe).ok()
    }

    fn note_in_ledger(&self) -> anyhow::Result<()> {
        let Some(identity) = Identity::of(self.pid()) else { return Ok(()) };
        let file = &self.spec.process_registry;
        let mut process_registry = append_to(file).with_context(|| format!("failed to open {}", file.display()))?;
        writeln!(process_registry, "{identity}").with_context(|| format!("failed to write {}", file.display()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process that outlives this one.
#[derive(Clone, Debug)]
pub struct Detached {
    pub identity: Identity,
    status: Arc<OnceLock<Option<ExitStatus>>>,
}

impl Detached {
    /// None while it runs; then its exit status, if known.
    pub fn ended(&self) -> Option<Option<ExitStatus>> {
        self.status.get().copied()
    }
}

/// Starts a background process that outlives this one: with its own process group; its output replaces `log`.
#[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
pub fn detached(program: &Path, args: &[String], log: &Path) -> anyhow::Result<Detached> {
    let out = File::create(log).with_context(|| format!("failed to create {}", log.display()))?;
    let errors = out.try_clone().context("failed to duplicate the log's descriptor")?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(out).stderr(errors).process_group(0);
    // It runs builds, which need the rest of the environment.
    std::env::vars_os().filter(|(name, _)| is_credential(&name.to_string_lossy())).for_each(|(name, _)| {
        command.env_remove(name);
    });
    let child = command.spawn().with_context(|| format!("failed to start {}", program.display()))?;
    let pid = Pid::from_child(&child).as_raw_nonzero().get();
    let identity =
        Identity::of(pid).with_context(|| format!("{} ended at once; see {}", program.display(), log.display()))?;
    let status = Arc::new(OnceLock::new());
    let told = Arc::clone(&status);
    std::thread::spawn(move || {
        let mut child = child;
        told.set(child.wait().ok())
    });
    Ok(Detached { identity, status })
}

/// Recognizes a credential by its name: `GITHUB_TOKEN`, `OS_PASSWORD`, `AWS_SECRET_ACCESS_KEY`,
/// `ACTIONS_RUNTIME_TOKEN`.
fn is_credential(variable: &str) -> bool {
    ["TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"].iter().any(|word| variable.to_ascii_uppercase().contains(word))
}

#[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
fn command(spec: &Spec) -> anyhow::Result<Command> {
    let mut command = Command::new(&spec.program);
    let inherited = PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.args(&spec.args).env_clear().envs(inherited);
    connect(&mut command, spec)?;
    Ok(command)
}

/// Sets the environment, the streams and the working directory.
pub(crate) fn connect(command: &mut Command, spec: &Spec) -> anyhow::Result<()> {
    let log = append_to(&spec.log).with_context(|| format!("failed to open the log {}", spec.log.display()))?;
    let errors = log.try_clone().context("failed to duplicate the log's descriptor")?;
    command.envs(&spec.env).stdin(Stdio::null()).stdout(log).stderr(errors);
    if let Some(dir) = &spec.dir {
        command.current_dir(dir);
    }
    Ok(())
}

fn append_to(file: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(file)
}

/// The last `lines` lines of a file. If the file cannot be read, a text that says so.
pub fn tail(file: &Path, lines: usize) -> String {
    /// Enough for the last lines of a component whose lines are long.
    const LAST_BYTES: u64 = 64 * 1024;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(file)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) => last_lines(text.lines(), lines),
        Err(error) => format!("({} could not be read: {error})", file.display()),
    }
}

pub(crate) fn last_lines<'a>(lines: impl Iterator<Item = &'a str>, number: usize) -> String {
    let all: Vec<&str> = lines.collect();
    all[all.len().saturating_sub(number)..].join("\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Scratch;
    use crate::deadline::tests::wait_for;

    pub(crate) fn spec(dir: &Path, command: &[&str]) -> Spec {
        Spec {
            name: "test".into(),
            program: command[0].into(),
            args: command[1..].iter().map(ToString::to_string).collect(),
            env: BTreeMap::new(),
            dir: None,
            log: dir.join("log"),
            process_registry: dir.join("ledger"),
        }
    }

    /// A daemon whose script has printed `ready`.
    fn ready(dir: &Path, script: &str) -> Daemon {
        let daemon = Daemon::start(spec(dir, &["/bin/sh", "-c", script])).unwrap();
        wait_for("ready", || tail(&dir.join("log"), 5).contains("ready"));
        daemon
    }

    #[test]
    fn stopped_group_has_no_running_thread() {
        let scratch = Scratch::temporary("stopped").unwrap();
        let loops = "for i in 1 2 3 4; do (while :; do :; done) & done; echo ready; wait";
        let mut daemon = ready(scratch.path(), loops);
        assert!(!process::group_is_stopped(daemon.pid()));
        for _ in 0..50 {
            daemon.signal(Signal::STOP);
            assert!(process::group_is_stopped(daemon.pid()));
            daemon.signal(Signal::CONT);
        }
    }

    #[test]
    fn daemon_that_ignores_term_is_killed_with_its_children() {
        let scratch = Scratch::temporary("term").unwrap();
        let mut daemon = ready(scratch.path(), "trap '' TERM; sleep 600 & echo ready; wait; wait; sleep 600");
        let pid = daemon.pid();
        let status = daemon.stop(Duration::from_millis(200)).unwrap();
        assert!(!status.success());
        wait_for("the group's end", || !process::group_exists(pid));
    }

    #[test]
    fn credentials_are_recognized_by_name() {
        let tokens = ["GITHUB_TOKEN", "GITHUB_RUNNER_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "OS_PASSWORD"];
        let others = ["OS_APPLICATION_CREDENTIAL_SECRET", "GOOGLE_OAUTH_ACCESS_TOKEN", "os_password"];
        assert!(tokens.iter().chain(&others).all(|name| is_credential(name)));
        assert!(["PATH", "HOME", "GOPROXY", "DOCKER_HOST", "https_proxy"].iter().all(|name| !is_credential(name)));
    }

    #[test]
    fn daemon_inherits_only_harmless_variables() {
        let scratch = Scratch::temporary("variables").unwrap();
        let env = BTreeMap::from([("GIVEN".into(), "yes".into())]);
        let mut daemon = Daemon::start(Spec { env, ..spec(scratch.path(), &["/usr/bin/env"]) }).unwrap();
        daemon.wait(Duration::from_secs(30)).unwrap();
        let lines = std::fs::read_to_string(scratch.path().join("log")).unwrap();
        assert!(lines.contains("GIVEN=yes\n"), "{lines}");
        // Cargo gives every test a PATH.
        assert!(lines.contains("\nPATH=") || lines.starts_with("PATH="), "{lines}");
        // Cargo sets this one too; no daemon may inherit it.
        assert!(!lines.contains("CARGO_MANIFEST_DIR="), "{lines}");
    }

    #[test]
    fn dropping_a_daemon_ends_it_and_the_ledger_has_its_identity() {
        let scratch = Scratch::temporary("drop").unwrap();
        let daemon = Daemon::start(spec(scratch.path(), &["/bin/sleep", "600"])).unwrap();
        let process_registry = std::fs::read_to_string(scratch.path().join("ledger")).unwrap();
        let identity: Identity = process_registry.trim().parse().unwrap();
        assert_eq!(identity.pid, daemon.pid());
        assert!(identity.is_alive());
        drop(daemon);
        assert!(!identity.is_alive());
    }
}
