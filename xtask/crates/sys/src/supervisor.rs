//! A program that ends together with all processes that it started, including those that called `setsid`, even when
//! this process is killed.
//!
//! Between this process and the program runs a supervisor: this executable with the arguments of [`Order::words`]. It
//! reaps all orphans below it (`PR_SET_CHILD_SUBREAPER`), so no descendant can leave it. It ends them when the program
//! has ended, when it is asked to, or when its own parent is gone. If the machine allows it, the program also runs in a
//! control group, which both this process and the supervisor kill: a program of the same user could kill its supervisor
//! first.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, getpid, getppid, kill_process, kill_process_group, set_child_subreaper,
    set_dumpable_behavior, set_parent_process_death_signal,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

use crate::cgroup::{self, Cgroup};
use crate::deadline::{OnInterrupt, Probe, pause, until};
use crate::process::descendants;
use crate::{Spec, daemon, spawner};

/// The subcommand that calls [`supervise`].
pub const COMMAND: &str = "supervise";
/// How soon the supervisor notices that a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time for the kernel to end killed processes.
const AFTER_KILL: Duration = Duration::from_secs(10);
/// Time for the supervisor in addition to its program's grace time.
const MARGIN: Duration = Duration::from_secs(15);
/// The exit code of a program that SIGTERM ended, as shells report it.
const TERMINATED: u8 = 143;

/// The task of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The process that started the supervisor.
    pub parent: i32,
    /// How long the program may take to end after it was asked to.
    pub grace: Duration,
    /// The folder of a control group for the program.
    pub cgroup: Option<PathBuf>,
    pub program: OsString,
    pub args: Vec<OsString>,
}

/// A program under a supervisor. Dropping it ends all of its processes.
#[derive(Debug)]
pub struct Supervised {
    name: String,
    child: Child,
    grace: Duration,
    ended: Option<ExitStatus>,
    /// Killed after the supervisor has ended, in case its own program killed it.
    _cgroup: Option<Cgroup>,
}

impl Order {
    /// The arguments for this executable.
    pub fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![COMMAND.into(), "--parent".into(), self.parent.to_string().into()];
        words.extend(["--grace".into(), self.grace.as_secs().to_string().into()]);
        if let Some(dir) = &self.cgroup {
            words.extend(["--cgroup".into(), dir.into()]);
        }
        words.extend(["--".into(), self.program.clone()]);
        words.extend(self.args.iter().cloned());
        words
    }
}

impl Supervised {
    /// Starts `spec` with an empty environment plus `spec.env`. The supervisor is not recorded in `spec.process_registry`: it
    /// ends by itself when this process is killed, and must not be killed while it ends its program.
    pub fn start(spec: Spec, grace: Duration) -> anyhow::Result<Supervised> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let parent = getpid().as_raw_nonzero().get();
        let cgroup = Cgroup::below_own(&format!("archproof-{parent}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let order = Order {
            parent,
            grace,
            cgroup: cgroup.as_ref().map(|group| group.path().to_owned()),
            program: spec.program.clone().into(),
            args: spec.args.iter().map(OsString::from).collect(),
        };
        let child = spawner::spawn(command(&spec, &order)?)
            .with_context(|| format!("failed to start the supervisor of {}", spec.name))?;
        Ok(Supervised { name: spec.name, child, grace, ended: None, _cgroup: cgroup })
    }

    /// The program's status, once the program and all processes that it started have ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            // try_wait fails only for a child of another process.
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Asks the program to end, and kills all of its processes after its grace time.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        self.wait(self.grace + MARGIN)
    }

    fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            // It may have ended between the check and the signal.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let what = format!("the end of {} and its processes", self.name);
        let probe = || Probe::of(self.ended(), "it is still running");
        until(&what, limit, LOOK_EVERY, OnInterrupt::Continue, probe).ok()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.signal(Signal::QUIT);
        if self.wait(MARGIN).is_none() {
            self.signal(Signal::KILL);
            self.wait(AFTER_KILL);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
fn command(spec: &Spec, order: &Order) -> anyhow::Result<Command> {
    // Works even if this executable's file was replaced after the start.
    let mut command = Command::new("/proc/self/exe");
    command.args(order.words()).env_clear();
    daemon::connect(&mut command, spec)?;
    Ok(command)
}

/// Requests to a supervisor, which arrive as signals.
#[derive(Default)]
struct Asked {
    to_stop: Arc<AtomicBool>,
    to_end: Arc<AtomicBool>,
}

impl Asked {
    fn listen() -> io::Result<Asked> {
        let asked = Asked::default();
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            flag::register(signal, Arc::clone(&asked.to_stop))?;
        }
        flag::register(SIGQUIT, Arc::clone(&asked.to_end))?;
        Ok(asked)
    }
}

/// Runs the program of `order` to completion, then ends all processes that it left. Returns the program's exit code as
/// shells report it. Call it in a process that does nothing else.
pub fn supervise(order: &Order) -> anyhow::Result<u8> {
    let asked = Asked::listen().context("failed to listen to signals")?;
    set_child_subreaper(Some(getpid())).context("failed to become the reaper of orphans")?;
    // Other children die with their parent. The supervisor must survive it to end the program's processes.
    set_parent_process_death_signal(None).context("failed to reset the death signal")?;
    // The environment may contain a key, and the program may read /proc of this user's other processes.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("failed to hide the environment")?;
    if is_orphan(order) {
        bail!("the parent has ended");
    }
    let program = start(order).with_context(|| format!("failed to start {}", order.program.display()))?;
    let code = watch(order, program, &asked);
    end_all(order)?;
    Ok(code)
}

fn is_orphan(order: &Order) -> bool {
    getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(order.parent)
}

#[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
fn start(order: &Order) -> io::Result<Pid> {
    let command = || {
        let mut command = Command::new(&order.program);
        command.args(&order.args).stdin(Stdio::null());
        command
    };
    let inside = order.cgroup.as_deref().map(|dir| spawner::spawn_into(command(), cgroup::entrance(dir)?));
    // The kernel may still refuse the group, for example in a threaded subtree.
    let child = match inside {
        Some(Ok(child)) => child,
        Some(Err(_)) | None => spawner::spawn(command())?,
    };
    Ok(Pid::from_child(&child))
}

/// Waits until the program ends, a signal asks for its end, or the parent ends.
fn watch(order: &Order, program: Pid, asked: &Asked) -> u8 {
    let mut stopping: Option<Instant> = None;
    loop {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if pid == program {
                return code(status.exit_status(), status.terminating_signal());
            }
        }
        let is_late = stopping.is_some_and(|since| since.elapsed() >= order.grace);
        if is_late || asked.to_end.load(Ordering::SeqCst) || is_orphan(order) {
            return TERMINATED;
        }
        if stopping.is_none() && asked.to_stop.load(Ordering::SeqCst) {
            stopping = Some(Instant::now());
            for signal in [Signal::TERM, Signal::CONT] {
                // It may have ended since the check.
                let _ = kill_process_group(program, signal);
            }
        }
        pause(LOOK_EVERY);
    }
}

fn code(exit: Option<i32>, signal: Option<i32>) -> u8 {
    let code = exit.or_else(|| signal.map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(TERMINATED)
}

/// Kills every descendant, and returns when the last one is reaped.
fn end_all(order: &Order) -> anyhow::Result<()> {
    let me = getpid().as_raw_nonzero().get();
    let ended = until("the end of all processes", AFTER_KILL, Duration::from_millis(5), OnInterrupt::Continue, || {
        order.cgroup.iter().for_each(|dir| cgroup::kill(dir));
        // Stop them first: a process that forks faster than it is killed would otherwise survive.
        for signal in [Signal::STOP, Signal::KILL] {
            for pid in descendants(me).into_iter().filter_map(Pid::from_raw) {
                let _ = kill_process(pid, signal);
            }
        }
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => return Probe::NotYet(format!("{:?} are still running", descendants(me))),
                // No child is left, and so no orphan.
                Err(_) => return Probe::Ready(()),
            }
        }
    });
    order.cgroup.iter().for_each(|dir| cgroup::remove(dir));
    ended.context("failed to end the program's processes: kill them by hand, and find out what blocks them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_becomes_command_line_arguments() {
        let order = Order {
            parent: 7,
            grace: Duration::from_secs(30),
            cgroup: None,
            program: "/x/run.sh".into(),
            args: vec!["--parent".into()],
        };
        assert_eq!(order.words(), ["supervise", "--parent", "7", "--grace", "30", "--", "/x/run.sh", "--parent"]);
        let inside = Order { cgroup: Some("/sys/fs/cgroup/x".into()), ..order };
        assert_eq!(inside.words()[5..7], ["--cgroup", "/sys/fs/cgroup/x"]);
    }

    #[test]
    fn exit_codes_match_those_of_a_shell() {
        assert_eq!((code(Some(0), None), code(Some(7), None), code(None, Some(9))), (0, 7, 137));
    }
}
