//! Where the processes of components run: on this machine, or in a guest (`qemu`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::Signal;
use sys::run_dir::write_private_file;
use sys::{Daemon, Spec, exec};
use xshell::{Shell, cmd};

/// Limit for a program that does little work; an emulated one may need a minute to start.
pub(crate) const RUN: Duration = Duration::from_secs(180);

/// A component's program without its flags. Paths are those of the place where it runs; the log is on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// `default/kube-apiserver`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) log: PathBuf,
}

/// A place that can run programs: this machine or a guest.
pub(crate) trait Host: Send + Sync {
    fn start(&self, program: &Program, flags: Vec<String>) -> anyhow::Result<Box<dyn Running>>;
    /// Takes over a process that was started before the place was restored.
    fn adopt(&self, program: &Program) -> anyhow::Result<Box<dyn Running>>;
    /// Runs a program to completion and returns its output. One that runs longer than `limit` is an error.
    fn run(&self, program: &Program, args: Vec<String>, limit: Duration) -> anyhow::Result<String>;
    /// Copies a file from the place to this machine.
    fn fetch(&self, guest_path: &Path, host_path: &Path) -> anyhow::Result<()>;
    /// Writes a file in the place atomically, with mode 0600.
    fn write(&self, guest_path: &Path, content: &[u8]) -> anyhow::Result<()>;
    /// Why the place itself can no longer be trusted, if so.
    fn first_failure(&self) -> Option<String>;
    /// Ends the place with everything in it, at once. A no-op for this machine.
    fn end(&self);
}

/// A process. Dropping it kills it.
pub(crate) trait Running: Send {
    /// How it ended; None while it runs.
    fn ended(&mut self) -> Option<String>;
    /// Signals the whole process group. Not an error if it has ended.
    fn signal(&mut self, signal: Signal) -> anyhow::Result<()>;
    /// Sends SIGTERM, and SIGKILL if the process has not ended after `grace`. Returns when it is gone.
    fn stop(&mut self, grace: Duration) -> anyhow::Result<()>;
    /// Sends SIGKILL. Returns when the process is gone.
    fn kill(&mut self) -> anyhow::Result<()>;
    /// Its processor time so far, in the place where it runs; None if that is not known.
    fn processor_time(&self) -> Option<Duration> {
        None
    }
    /// The same right before a kill, which must not wait for an answer; None if that takes longer than a system call.
    fn last_processor_time(&self) -> Option<Duration> {
        None
    }
}

/// This machine.
pub(crate) struct Local {
    /// The file that records processes for the sweep of a later run.
    pub(crate) process_registry: PathBuf,
}

impl Host for Local {
    fn start(&self, program: &Program, flags: Vec<String>) -> anyhow::Result<Box<dyn Running>> {
        let Program { name, path, args, env, log } = program.clone();
        let args = args.into_iter().chain(flags).collect();
        let spec =
            Spec { name, program: path, args, env, dir: None, log, process_registry: self.process_registry.clone() };
        Ok(Box::new(Daemon::start(spec)?))
    }

    fn adopt(&self, program: &Program) -> anyhow::Result<Box<dyn Running>> {
        bail!("{} cannot be taken over: no process of this machine outlives its run", program.name)
    }

    fn run(&self, program: &Program, more: Vec<String>, limit: Duration) -> anyhow::Result<String> {
        let sh = Shell::new()?;
        let Program { path, args, env, .. } = program;
        let output = exec::run(cmd!(sh, "{path} {args...} {more...}").envs(env), limit)?;
        Ok(output.stdout + &output.stderr)
    }

    fn fetch(&self, guest_path: &Path, host_path: &Path) -> anyhow::Result<()> {
        let copied = std::fs::copy(guest_path, host_path);
        copied.with_context(|| format!("failed to copy {} to {}", guest_path.display(), host_path.display()))?;
        Ok(())
    }

    fn write(&self, guest_path: &Path, content: &[u8]) -> anyhow::Result<()> {
        replace(guest_path, content)
    }

    fn first_failure(&self) -> Option<String> {
        None
    }

    fn end(&self) {}
}

/// Replaces a file of this machine atomically, with mode 0600.
pub(crate) fn replace(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    let draft = file.with_extension("new");
    write_private_file(&draft, content)?;
    std::fs::rename(&draft, file).with_context(|| format!("failed to replace {}", file.display()))
}

impl Running for Daemon {
    fn ended(&mut self) -> Option<String> {
        Daemon::ended(self).map(|status| status.to_string())
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        Daemon::signal(self, signal);
        Ok(())
    }

    fn stop(&mut self, grace: Duration) -> anyhow::Result<()> {
        gone(self.name().to_owned(), Daemon::stop(self, grace).is_some())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        gone(self.name().to_owned(), Daemon::kill(self).is_some())
    }

    fn processor_time(&self) -> Option<Duration> {
        sys::process::processor_time(self.pid())
    }

    fn last_processor_time(&self) -> Option<Duration> {
        self.processor_time()
    }
}

fn gone(name: String, gone: bool) -> anyhow::Result<()> {
    if gone {
        Ok(())
    } else {
        bail!("{name} still runs after SIGKILL: check whether a disk or a device of this machine hangs")
    }
}
