//! QEMU's monitor: commands as lines of JSON; each is answered before the next is sent.
//!
//! https://www.qemu.org/docs/master/interop/qmp-spec.html

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use model::{LostTimers, MaskedValue};
use serde_json::{Value, json};
use sys::deadline::{OnInterrupt, Probe, pause, until};

/// QEMU sends its greeting after it has read the kernel and the initramfs: half a gigabyte, perhaps from a slow disk. A
/// QEMU that ends closes its monitor at once.
const GREETING: Duration = Duration::from_secs(180);
/// A monitor answers at once unless the host itself hangs.
const ANSWER: Duration = Duration::from_secs(30);
/// Number of threads that read or write memory.
const CHANNELS: u32 = 2;
/// Limit for ten gigabytes to or from a slow disk.
const MIGRATION: Duration = Duration::from_secs(1800);
/// Limit for all CPUs to be idle. A guest with suspended components is idle nearly all the time.
const IDLE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);

pub(crate) struct Qmp {
    lines: BufReader<UnixStream>,
    to: UnixStream,
}

impl Qmp {
    /// Reads the monitor's greeting on a connection that QEMU opened.
    pub(crate) fn new(connection: UnixStream) -> anyhow::Result<Qmp> {
        connection.set_read_timeout(Some(GREETING))?;
        connection.set_write_timeout(Some(ANSWER))?;
        let to = connection.try_clone().context("failed to duplicate the monitor's connection")?;
        let mut qmp = Qmp { lines: BufReader::new(connection), to };
        qmp.line().context("QEMU's monitor sent no greeting")?;
        // The time limit is one of the socket, not of the descriptor.
        qmp.to.set_read_timeout(Some(ANSWER))?;
        qmp.run("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns its answer.
    pub(crate) fn run(&mut self, command: &str, arguments: Value) -> anyhow::Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        let sent = writeln!(self.to, "{request}");
        sent.with_context(|| format!("failed to send `{command}` to QEMU's monitor"))?;
        loop {
            let answer = self.line().with_context(|| format!("QEMU's monitor did not answer `{command}`"))?;
            if let Some(value) = returned(command, answer)? {
                return Ok(value);
            }
        }
    }

    /// Stops the CPUs and writes memory and devices to `file`.
    pub(crate) fn save(&mut self, file: &str, lost_timers: Option<&LostTimers>) -> anyhow::Result<()> {
        match lost_timers {
            Some(lost) => self.stop_idle(&lost.idle)?,
            None => drop(self.run("stop", json!({}))?),
        }
        self.prepare()?;
        self.run("migrate", json!({ "uri": format!("file:{file}") }))?;
        let Err(error) = self.migrated("completed") else { return Ok(()) };
        match self.cancel() {
            Ok(()) => Err(error),
            Err(cancel) => Err(error.context(format!("the memory snapshot could not be given up: {cancel:#}"))),
        }
    }

    /// Restores a file of [`Qmp::save`] in a QEMU that was started with `-incoming defer`, and resumes the guest.
    pub(crate) fn restore(&mut self, file: &str) -> anyhow::Result<()> {
        self.prepare()?;
        self.run("migrate-incoming", json!({ "uri": format!("file:{file}") }))?;
        self.migrated("completed")?;
        self.resume()
    }

    /// The number of QEMU's threads that execute the guest's CPUs. `-accel tcg` without `thread=` lets QEMU choose.
    pub(crate) fn cpu_threads(&mut self) -> anyhow::Result<usize> {
        let cpus = self.run("query-cpus-fast", json!({}))?;
        let threads = threads_of(&cpus);
        ensure!(threads > 0, "QEMU's monitor reports no thread of a CPU: {cpus}");
        Ok(threads)
    }

    pub(crate) fn resume(&mut self) -> anyhow::Result<()> {
        self.run("cont", json!({}))?;
        Ok(())
    }

    /// Every page has a fixed place in the file, so zero pages are holes, and several threads read and write.
    ///
    /// Memory shared with a file and mapped again (x-ignore-shared) is not used: such a guest starts at once, but its
    /// memory has only small pages, and code that an emulator executes from small pages takes a sixth longer.
    fn prepare(&mut self) -> anyhow::Result<()> {
        let capabilities = ["mapped-ram", "multifd"].map(|name| json!({ "capability": name, "state": true }));
        self.run("migrate-set-capabilities", json!({ "capabilities": capabilities }))?;
        // The default bandwidth is for a network; 0 would mean the default.
        let parameters = json!({ "max-bandwidth": 1_u64 << 40, "multifd-channels": CHANNELS });
        self.run("migrate-set-parameters", parameters)?;
        Ok(())
    }

    /// Stops the CPUs at a moment when all of them are idle.
    fn stop_idle(&mut self, idle: &BTreeMap<String, MaskedValue>) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            self.run("stop", json!({}))?;
            let answer = self.run("human-monitor-command", json!({ "command-line": "info registers -a" }))?;
            let registers = answer.as_str().unwrap_or_default();
            if are_idle(registers, idle)? {
                return Ok(());
            }
            self.run("cont", json!({}))?;
            if begin.elapsed() > IDLE {
                bail!("the guest's CPUs were not all idle at any moment of {} s", IDLE.as_secs());
            }
            sys::interrupt::check()?;
            pause(LOOK_EVERY);
        }
    }

    fn migrated(&mut self, wanted: &str) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            let answer = self.run("query-migrate", json!({}))?;
            let status = answer["status"].as_str().unwrap_or("unknown");
            if status == wanted {
                return Ok(());
            }
            if matches!(status, "failed" | "cancelled") {
                bail!("the migration {status}: {}", answer["error-desc"].as_str().unwrap_or("no reason given"));
            }
            if begin.elapsed() > MIGRATION {
                bail!("the migration is still `{status}` after {} s", MIGRATION.as_secs());
            }
            sys::interrupt::check()?;
            pause(LOOK_EVERY);
        }
    }

    /// Ends a migration: when it is complete, it would stop the guest in the middle of the run. A guest can be resumed only
    /// after the end. A no-op if it has ended.
    fn cancel(&mut self) -> anyhow::Result<()> {
        self.run("migrate_cancel", json!({}))?;
        until("the end of the migration", ANSWER, LOOK_EVERY, OnInterrupt::Continue, || {
            match self.run("query-migrate", json!({})) {
                Ok(answer) => match answer["status"].as_str() {
                    Some("cancelled" | "failed" | "completed") => Probe::Ready(()),
                    status => Probe::NotYet(status.unwrap_or("unknown").to_owned()),
                },
                Err(error) => Probe::Hopeless(error),
            }
        })?;
        Ok(())
    }

    fn line(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => bail!("QEMU has closed its monitor"),
            Ok(_) => Ok(serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))?),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let limit = self.to.read_timeout()?.unwrap_or_default();
                bail!("no answer within {} s", limit.as_secs())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The value of an answer. None for an event: no event is needed.
pub(crate) fn returned(command: &str, mut answer: Value) -> anyhow::Result<Option<Value>> {
    if let Some(error) = answer.get("error") {
        bail!("QEMU refused `{command}`: {}", error["desc"].as_str().unwrap_or("no reason given"));
    }
    Ok(answer.get_mut("return").map(Value::take))
}

/// The number of different threads in an answer to `query-cpus-fast`.
fn threads_of(cpus: &Value) -> usize {
    let ids = cpus.as_array().into_iter().flatten().filter_map(|cpu| cpu["thread-id"].as_i64());
    ids.collect::<BTreeSet<i64>>().len()
}

/// Whether every register of each name has the wanted value on all CPUs. `registers` is QEMU's table of names and
/// hexadecimal numbers.
pub(crate) fn are_idle(registers: &str, idle: &BTreeMap<String, MaskedValue>) -> anyhow::Result<bool> {
    let words: Vec<&str> = registers.split_whitespace().collect();
    for (name, wanted) in idle {
        let values: Vec<u64> = words
            .windows(2)
            .filter(|pair| pair[0] == name)
            .filter_map(|pair| u64::from_str_radix(pair[1], 16).ok())
            .collect();
        if values.is_empty() {
            bail!("QEMU's monitor shows no register {name}");
        }
        if values.iter().any(|value| value & wanted.mask != wanted.value) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_cpus_are_counted() {
        let cpus = |threads: &[i64]| threads.iter().map(|id| json!({ "cpu-index": 0, "thread-id": id })).collect();
        for (threads, expected) in [(&[7, 8][..], 2), (&[7, 7], 1), (&[], 0)] {
            assert_eq!(threads_of(&Value::Array(cpus(threads))), expected);
        }
        assert_eq!(threads_of(&json!({ "thread-id": 7 })), 0);
    }

    #[test]
    fn all_cpus_must_be_idle() {
        let idle = BTreeMap::from([("ESTAT".to_owned(), MaskedValue { mask: 0x7fff, value: 0 })]);
        let shown = |first: &str, second: &str| {
            format!("CPU#0\n PC=9000  FCSR0 0x0\nCRMD b4 ESTAT {first}\n\nCPU#1\nCRMD b4 ESTAT {second}\n")
        };
        for (first, second, expected) in [("0000", "b0000", true), ("0000", "b0800", false), ("b1800", "0", false)] {
            assert_eq!(are_idle(&shown(first, second), &idle).unwrap(), expected, "{first} {second}");
        }
        assert!(are_idle("CPU#0 PC 1", &idle).unwrap_err().to_string().contains("no register ESTAT"));
    }
}
