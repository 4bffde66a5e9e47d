//! The guest's serial console: records each line with its time, and looks for signs that the guest is lost.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Messages of the kernel or init after which a guest can no longer be trusted, and their meaning.
///
/// Texts of Linux: kernel/panic.c, kernel/watchdog.c, kernel/rcu/tree_stall.h, mm/oom_kill.c, arch/*/mm/fault.c.
const SIGNS: &[(&str, &str)] = &[
    ("archproof: fatal:", "the guest's first process gave up"),
    ("Kernel panic - not syncing", "kernel panic"),
    ("Out of memory: Killed process", "the guest ran out of memory"),
    ("invoked oom-killer", "the guest ran out of memory"),
    ("soft lockup - CPU", "a processor of the guest is stuck (soft lockup)"),
    ("hard LOCKUP", "a processor of the guest is stuck (hard lockup)"),
    ("detected stalls on CPUs", "RCU stall: a processor of the guest made no progress"),
    ("self-detected stall on CPU", "RCU stall: a processor of the guest made no progress"),
    ("timer wakeup didn't happen", "a timer of the guest never fired"),
    ("Internal error: Oops", "kernel oops"),
    ("Oops:", "kernel oops"),
    ("Oops [#", "kernel oops"),
    ("Unable to handle kernel", "kernel oops"),
    ("kernel BUG at", "kernel bug"),
    ("BUG: unable to handle", "kernel oops"),
];

/// A console under recording.
pub(crate) struct Console {
    state: Arc<State>,
}

struct State {
    /// The meaning of the first sign, with its line.
    cause: OnceLock<String>,
    last: Mutex<(Instant, String)>,
}

impl Console {
    /// Reads until QEMU closes the console. Writes each line to `log` after the seconds since `begin`.
    pub(crate) fn record(from: UnixStream, log: &Path, begin: Instant) -> anyhow::Result<Console> {
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("failed to open the console's log {}", log.display()))?;
        let state = Arc::new(State { cause: OnceLock::new(), last: Mutex::new((Instant::now(), String::new())) });
        let told = Arc::clone(&state);
        std::thread::spawn(move || {
            let mut lines = BufReader::new(from);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                // The log is evidence; the run itself does not depend on it, so ignore errors.
                let _ = writeln!(log, "{:9.3} {text}", begin.elapsed().as_secs_f64());
                told.see(text);
            }
        });
        Ok(Console { state })
    }

    /// Why the guest is lost, if the console shows it.
    pub(crate) fn cause(&self) -> Option<String> {
        self.state.cause.get().cloned()
    }

    /// The time since the last line, and the last line.
    pub(crate) fn silence(&self) -> (Duration, String) {
        let last = sys::lock(&self.state.last);
        (last.0.elapsed(), last.1.clone())
    }
}

impl State {
    fn see(&self, text: String) {
        if let Some(cause) = sign(&text) {
            // Only the first sign counts: later ones are consequences.
            let _ = self.cause.set(cause);
        }
        *sys::lock(&self.last) = (Instant::now(), text);
    }
}

fn sign(line: &str) -> Option<String> {
    let (_, meaning) = SIGNS.iter().find(|(text, _)| line.contains(text))?;
    Some(format!("{meaning}: `{}`", line.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_guest_is_recognized_by_its_kernel_messages() {
        for (line, expected) in [
            ("[   12.3] Kernel panic - not syncing: sysrq triggered crash", "kernel panic"),
            ("[  151.2] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [etcd:77]", "soft lockup"),
            ("[  151.2] watchdog: CPU 1 self-detected hard LOCKUP @ 0x", "hard lockup"),
            ("[   21.0] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", "RCU stall"),
            ("[   21.0] rcu: INFO: rcu_preempt self-detected stall on CPU", "RCU stall"),
            ("[   30.1] rcu: rcu_sched kthread timer wakeup didn't happen for 5249 jiffies!", "timer"),
            ("[   40.0] Out of memory: Killed process 99 (kube-apiserver) total-vm:1kB", "out of memory"),
            ("[    4.0] Oops [#1]", "kernel oops"),
            ("[    4.0] Internal error: Oops: 0000000096000004 [#1] SMP", "kernel oops"),
            ("[    4.0] Unable to handle kernel paging request at virtual address 0", "kernel oops"),
            ("archproof: fatal: mount proc on /proc: no such device", "first process"),
            ("[    1.0] rcu: Hierarchical RCU implementation.", ""),
            ("[    1.0] watchdog: Delayed init of the lockup detector failed: -19", ""),
            ("archproof: up", ""),
        ] {
            match sign(line) {
                Some(cause) => assert!(!expected.is_empty() && cause.contains(expected), "{line}: {cause}"),
                None => assert!(expected.is_empty(), "{line} was not recognized"),
            }
        }
    }
}
