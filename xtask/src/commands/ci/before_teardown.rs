//! `--keep` and `--shell-on-fail`: keep the cluster running between the checks and the teardown.

use anyhow::anyhow;
use boot::Booted;
use cli::Failure;
use model::Target;
use provider::ProviderArg;
use sys::{RunDir, interrupt, progress, terminal};

use super::{RunContext, provider};
use crate::commands::kept::{self, Kept, with_name};
use crate::commands::{shell, up};

/// Refuses options that would otherwise fail only after minutes of work.
pub(super) fn check(context: &RunContext<'_>, targets: &[&Target]) -> Result<(), Failure> {
    let options = context.options;
    let machine = |target: &&&Target| provider(context, target) == ProviderArg::Qemu;
    let several = targets.len() > 1;
    let refuse = |why: &str| Err(Failure::usage(anyhow!("{why}")));
    if options.shell_on_fail {
        if several {
            return refuse("--shell-on-fail needs exactly one architecture, but --arch names several");
        }
        if !targets.iter().any(|target| machine(&target)) {
            return refuse("--shell-on-fail opens a shell in a VM: it needs --provider qemu");
        }
        if !terminal::is_there() {
            return refuse("--shell-on-fail needs a terminal on standard input and output");
        }
    }
    if options.keep && several && targets.iter().any(|target| machine(&target)) {
        return refuse("--keep keeps one VM running, but --arch names several architectures");
    }
    Ok(())
}

/// Runs between the checks and the teardown. An error here is printed, but does not change the result of the run.
pub(super) fn run(context: &RunContext<'_>, booted: &Booted, run: &RunDir, green: bool) {
    if booted.cluster.info.machine.is_none() || interrupt::requested() {
        return;
    }
    if context.options.shell_on_fail && !green {
        progress::say(
            "results are not as expected: opening a root shell in the guest; the run continues when it exits",
        );
        tell(shell::open(run.private(), &[], &context.paths.term).map(drop));
    }
    if context.options.keep && !interrupt::requested() {
        tell(keep(context, booted, run));
    }
}

/// Leaves the VM running until Ctrl-C or `down`. Neither interrupts the run: its checks have ended.
fn keep(context: &RunContext<'_>, booted: &Booted, run: &RunDir) -> anyhow::Result<()> {
    booted.wake_all()?;
    let paths = context.paths;
    let name = run.id().replace('/', ".");
    std::fs::create_dir_all(paths.clusters())?;
    let claim = kept::claim(paths, &name, kept::KEEPER).map_err(|failure| failure.error)?;
    Kept::here(&name, run, booted, &claim).write(paths)?;
    progress::say(&format!(
        "the VM stays up until Ctrl-C or `{}`; until then, use `{}` and `{}`",
        with_name("down", &name),
        with_name("shell", &name),
        with_name("logs", &name)
    ));
    for profile in booted.cluster.info.profiles.values() {
        progress::say(&format!("  {}: {}", profile.name, profile.kubeconfig.display()));
    }
    let ended = up::stay(booted);
    interrupt::take();
    Kept::remove(paths, &name);
    kept::unclaim(paths, &name, kept::KEEPER);
    drop(claim);
    ended
}

fn tell(done: anyhow::Result<()>) {
    if let Err(error) = done {
        progress::say(&format!("{error:#}"));
    }
}
