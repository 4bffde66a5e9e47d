//! Live process groups, and process identities that survive the reuse of a process ID.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};

static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

pub(crate) fn register(group: Pid) {
    crate::lock(&GROUPS).insert(group.as_raw_nonzero().get());
}

pub(crate) fn forget(group: Pid) {
    crate::lock(&GROUPS).remove(&group.as_raw_nonzero().get());
}

/// Sends SIGKILL to every group that this process has started and not yet reaped.
pub fn kill_all_groups() {
    let groups = crate::lock(&GROUPS);
    for group in groups.iter().copied().filter_map(Pid::from_raw) {
        // The group may have ended by itself.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// A suffix for names of temporary files. It differs between processes, also between PID namespaces and between
/// machines that share a folder: containers count their processes from 1, so process IDs alone often collide.
pub fn unique_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    // The standard library takes a hasher's keys from the system's random numbers.
    NAME.get_or_init(|| format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(())))
}

/// A process together with its start time, so that another process with the same ID is not mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub pid: i32,
    /// Clock ticks since boot, field 22 of /proc/PID/stat.
    pub started: u64,
}

impl Identity {
    /// None if the process does not exist or is a zombie, which no longer runs.
    pub fn of(pid: i32) -> Option<Identity> {
        let stat = Stat::read(&format!("/proc/{pid}/stat"))?;
        (!"ZX".contains(stat.state)).then_some(Identity { pid, started: stat.started })
    }

    pub fn me() -> Identity {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Identity::of(pid).unwrap_or(Identity { pid, started: 0 })
    }

    pub fn is_alive(self) -> bool {
        Identity::of(self.pid) == Some(self)
    }

    /// Sends SIGKILL to its process group, if the process is still the same.
    pub fn kill_group(self) {
        if let (true, Some(pid)) = (self.is_alive(), Pid::from_raw(self.pid)) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    /// Signals only the process, if it is still the same. Returns whether the signal was sent.
    pub fn signal(self, signal: Signal) -> bool {
        match Pid::from_raw(self.pid) {
            Some(pid) if self.is_alive() => rustix::process::kill_process(pid, signal).is_ok(),
            _ => false,
        }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.pid, self.started)
    }
}

impl std::str::FromStr for Identity {
    type Err = String;

    fn from_str(text: &str) -> Result<Identity, String> {
        let parse = || {
            let (pid, started) = text.trim().split_once(' ')?;
            Some(Identity { pid: pid.parse().ok()?, started: started.parse().ok()? })
        };
        parse().ok_or_else(|| format!("`{text}` is not a process ID and a start time"))
    }
}

/// Whether any process of the group exists.
pub fn group_exists(pid: i32) -> bool {
    Pid::from_raw(pid)
        .is_some_and(|pid| rustix::process::test_kill_process_group(pid).is_ok() || test_kill_process(pid).is_ok())
}

/// Whether every thread of every process of the group is stopped (SIGSTOP) or has ended.
///
/// `kill` returns before that: the group stops only when one of its threads runs again and takes the signal, and on a busy
/// machine the other threads go on until then.
pub(crate) fn group_is_stopped(group: i32) -> bool {
    let mut members = all().filter(|(_, stat)| stat.group == group);
    members.all(|(pid, _)| {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut stats = threads.filter_map(|thread| Stat::read(thread.path().join("stat").to_str()?));
        stats.all(|stat| "TtZX".contains(stat.state))
    })
}

/// The fields of a `stat` file of /proc that this module needs.
struct Stat {
    state: char,
    parent: i32,
    group: i32,
    started: u64,
    /// Clock ticks on processors, in and outside the kernel.
    ticks: u64,
}

/// The processor time of a process so far, without that of its children.
pub fn processor_time(pid: i32) -> Option<Duration> {
    processor_time_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The processor time in the text of a /proc/PID/stat, of this machine or of a guest.
pub fn processor_time_in(stat: &str) -> Option<Duration> {
    Some(Duration::from_secs(Stat::parse(stat)?.ticks) / TICKS)
}

/// Clock ticks in a second, in all of /proc: USER_HZ is 100 on every architecture that has Kubernetes.
const TICKS: u32 = 100;

impl Stat {
    fn read(file: &str) -> Option<Stat> {
        Stat::parse(&std::fs::read_to_string(file).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The command name, in parentheses, may contain spaces and parentheses.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Stat {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            ticks: fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?,
        })
    }
}

/// All processes.
fn all() -> impl Iterator<Item = (i32, Stat)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| Some((pid, Stat::read(&format!("/proc/{pid}/stat"))?)))
}

/// All descendants of a process, nearest first.
pub(crate) fn descendants(of: i32) -> Vec<i32> {
    below(of, all().map(|(pid, stat)| (pid, stat.parent)))
}

/// The descendants of `of`, from pairs of process and parent.
fn below(of: i32, with_parent: impl Iterator<Item = (i32, i32)>) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (pid, parent) in with_parent.filter(|(pid, _)| *pid != of) {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = children.remove(&of).unwrap_or_default();
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        // Removed from the map: pairs that were read at different moments may form a cycle.
        found.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_of_all_generations_are_found() {
        let pairs = [(1, 0), (5, 1), (9, 5), (7, 5), (8, 9), (3, 1), (5, 8), (9, 8)];
        assert_eq!(below(5, pairs.into_iter()), [9, 7, 8, 9]);
        assert_eq!(below(2, pairs.into_iter()), []);
    }

    #[test]
    fn identity_round_trips_through_text() {
        let me = Identity::me();
        assert!(me.is_alive());
        assert_eq!(me.to_string().parse::<Identity>().unwrap(), me);
    }

    #[test]
    fn reused_process_id_is_another_process() {
        let me = Identity::me();
        assert!(!Identity { started: me.started + 1, ..me }.is_alive());
    }
}
