//! Helpers for tests of the command line: they start it with separate folders, read its output, and look for processes
//! that it left behind.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sys::deadline::{OnInterrupt, Probe, until};

/// Only guards against a hang; a command takes seconds.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The folders of one test: separate reports and a separate cache, so that it affects neither other tests nor a cluster
/// that a developer keeps running. Dropping it kills all processes that still run.
pub(crate) struct Place {
    pub(crate) root: PathBuf,
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A running command.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let root = std::env::temp_dir().join(format!("archproof-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        Place { root: root.canonicalize().unwrap() }
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    pub(crate) fn reports(&self) -> PathBuf {
        self.root.join("reports")
    }

    /// The command line with the folders of this test.
    #[expect(clippy::disallowed_methods, reason = "the test runs the command line itself")]
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(args).stdin(Stdio::null()).current_dir(&self.root);
        command
            .env("ARCHPROOF_CACHE", self.cache())
            .env("ARCHPROOF_REPORTS", self.reports())
            .env_remove("GITHUB_ACTIONS")
            .env_remove("RUST_BACKTRACE");
        command
    }

    /// Runs a command until it ends.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        self.start(args).end()
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        self.start_command(self.command(args))
    }

    /// Output goes to files, so that the command never blocks on a pipe.
    pub(crate) fn start_command(&self, mut command: Command) -> Running {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let out = self.root.join(format!("output-{}", NEXT.fetch_add(1, Ordering::SeqCst)));
        let file = |ending| std::fs::File::create(out.with_extension(ending)).unwrap();
        let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn().unwrap();
        Running { child, out }
    }

    /// Run folders, oldest first.
    pub(crate) fn runs(&self) -> Vec<PathBuf> {
        entries(&self.reports())
    }

    /// The folder of the only run.
    pub(crate) fn the_run(&self) -> PathBuf {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].clone()
    }

    /// The private folders of runs.
    pub(crate) fn private(&self) -> Vec<PathBuf> {
        entries(&self.cache().join("run"))
    }

    /// The events of the only run so far; empty before it starts.
    pub(crate) fn events(&self) -> Vec<Value> {
        let Some(run) = self.runs().pop() else { return Vec::new() };
        // With several architectures, the first run that has started.
        let files = [run.clone()].into_iter().chain(entries(&run)).map(|folder| folder.join("events.jsonl"));
        let text = files.into_iter().find_map(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        // The last line may be incomplete.
        text.split_inclusive('\n').filter(|l| l.ends_with('\n')).map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    /// Waits for an event of the only run that satisfies `wanted`.
    pub(crate) fn wait_for_event(&self, running: &mut Running, what: &str, wanted: impl Fn(&Value) -> bool) {
        wait(what, || {
            if self.events().iter().any(&wanted) {
                return Probe::Ready(());
            }
            match running.child.try_wait().unwrap() {
                Some(status) => Probe::Hopeless(anyhow::anyhow!("it ended ({status}):\n{}", running.stderr())),
                None => Probe::NotYet("no such event yet".into()),
            }
        });
    }

    /// Processes whose command line mentions these folders, except for the command that the test itself started.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        let mark = self.root.display().to_string();
        let numbers =
            entries(Path::new("/proc")).into_iter().filter_map(|path| path.file_name()?.to_str()?.parse().ok());
        let named = numbers.filter_map(|pid: i32| {
            let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let line = String::from_utf8_lossy(&bytes).replace('\0', " ");
            line.contains(&mark).then_some((pid, line))
        });
        named.collect()
    }

    /// The only process whose command line contains `part`.
    pub(crate) fn process(&self, part: &str) -> i32 {
        let found: Vec<_> = self.processes().into_iter().filter(|(_, line)| line.contains(part)).collect();
        assert_eq!(found.len(), 1, "processes with `{part}`: {found:?}");
        found[0].0
    }

    /// Waits until all processes with these folders are gone.
    pub(crate) fn assert_nothing_runs(&self) {
        wait("the end of all processes", || match self.processes() {
            left if left.is_empty() => Probe::Ready(()),
            left => Probe::NotYet(format!("{left:?}")),
        });
    }

    /// The same, and no private folder may remain.
    pub(crate) fn assert_nothing_is_left(&self) {
        self.assert_nothing_runs();
        assert_eq!(self.private(), Vec::<PathBuf>::new());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for (pid, _) in self.processes() {
            send(pid, Signal::KILL);
        }
        // Leftovers are only in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    pub(crate) fn end(self) -> Ended {
        self.end_within(LIMIT)
    }

    pub(crate) fn end_within(mut self, limit: Duration) -> Ended {
        let status = wait_within("the command's end", limit, || match self.child.try_wait().unwrap() {
            Some(status) => Probe::Ready(status),
            None => Probe::NotYet(format!("it is still running:\n{}", self.stderr())),
        });
        let stdout = std::fs::read_to_string(self.out.with_extension("stdout")).unwrap();
        Ended { status, stdout, stderr: self.stderr() }
    }

    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(self.out.with_extension("stderr")).unwrap()
    }
}

impl Ended {
    /// The standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Fails unless the exit code and all parts of the message match.
    pub(crate) fn expect(self, code: i32, parts: &[&str]) -> Ended {
        assert_eq!(self.status.code(), Some(code), "{}\n{}", self.stdout, self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is missing in: {}", self.stderr);
        }
        self
    }
}

/// Sends a signal to a process that may have ended.
pub(crate) fn send(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

pub(crate) fn wait<T>(what: &str, probe: impl FnMut() -> Probe<T>) -> T {
    wait_within(what, LIMIT, probe)
}

fn wait_within<T>(what: &str, limit: Duration, probe: impl FnMut() -> Probe<T>) -> T {
    until(what, limit, LOOK_EVERY, OnInterrupt::Stop, probe).unwrap_or_else(|error| panic!("{error}"))
}

/// Sorted; empty if the folder does not exist.
pub(crate) fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The data of the checkout's `targets/`.
pub(crate) fn catalogue() -> targets::Catalogue {
    targets::Catalogue::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets")).unwrap()
}

/// The names of all targets, sorted, so that a new target file needs no change of a test.
pub(crate) fn architectures() -> Vec<String> {
    let names: Vec<String> = catalogue().targets.into_iter().map(|target| target.name).collect();
    assert!(names.len() >= 5, "only {names:?}");
    names
}

/// A copy of the checkout's `targets/` for a test to modify.
pub(crate) fn targets_copy(to: &Path) {
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets"), to);
}

pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in entries(from) {
        let copy_of = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &copy_of);
        } else {
            std::fs::copy(&entry, copy_of).unwrap();
        }
    }
}

/// Replaces a text, which must exist.
pub(crate) fn edit(file: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "`{from}` is not in {}", file.display());
    std::fs::write(file, text.replacen(from, to, 1)).unwrap();
}
