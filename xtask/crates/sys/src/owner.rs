//! The process that owns files which outlive it, and whether that process is alive.
//!
//! The owner holds an exclusive lock (flock) on its owner file, and the kernel releases the lock when the process ends,
//! also after SIGKILL. Process IDs alone are not enough: a container counts its processes from 1, and another host with
//! the same home folder has its own processes. So the record in the file also says where the owner runs. If the state
//! of an owner elsewhere is unknown, it counts as alive, and its files are kept.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::Context;

use crate::process::Identity;

/// The record of an owner: its process, where the process runs, and whether it could lock its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub process: Identity,
    /// None in the records of older versions, which did not lock the file either.
    place: Option<Place>,
    locked: bool,
}

/// Where a process ID is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// Boot ID of the running kernel.
    boot_id: String,
    /// Inode of the PID namespace.
    pid_namespace: u64,
    /// Host name and machine ID; the same after a reboot.
    machine: String,
}

/// How far a recorded place is from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distance {
    SamePidNamespace,
    OtherPidNamespace,
    /// This machine, before its last reboot.
    EarlierBoot,
    OtherMachine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Held,
    Free,
    /// The file system has no locks.
    Unknown,
}

/// The state of an owner file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Alive, or not known to be dead. No record: the owner is still writing it, or the file cannot be read.
    Alive(Option<Origin>),
    Dead(Origin),
    /// The file does not exist, or is unlocked and has no record.
    Unrecorded,
}

/// An owner file of this process. The file stays locked until this value is dropped; child processes do not inherit the
/// lock.
#[derive(Debug)]
pub struct Owner {
    /// Holds the lock.
    _file: File,
    origin: Origin,
}

impl Owner {
    /// Writes `content` of this process's record into `file`, with mode 0600, and locks the file.
    ///
    /// # Errors
    /// The file cannot be written. A file system without locks is not an error: see [`is_alive`].
    pub fn create(file: &Path, content: impl FnOnce(&Origin) -> Vec<u8>) -> anyhow::Result<Owner> {
        let write = || {
            let opened = open(file)?;
            // A process that checks the lock holds it for a moment, so this waits.
            let locked = opened.lock().is_ok();
            Owner::write(opened, locked, content)
        };
        write().with_context(|| format!("failed to write {}", file.display()))
    }

    /// Like [`Owner::create`], with only the record as content. None if another process owns the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn try_create(file: &Path) -> anyhow::Result<Option<Owner>> {
        let write = || {
            let opened = open(file)?;
            let locked = match opened.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(_)) => match status(file) {
                    Status::Alive(_) => return Ok(None),
                    Status::Dead(_) | Status::Unrecorded => false,
                },
            };
            Owner::write(opened, locked, Origin::to_bytes).map(Some)
        };
        write().with_context(|| format!("failed to write {}", file.display()))
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Keeps the lock until this process ends.
    pub fn keep(self) {
        std::mem::forget(self);
    }

    fn write(mut file: File, locked: bool, content: impl FnOnce(&Origin) -> Vec<u8>) -> io::Result<Owner> {
        let origin = Origin { process: Identity::me(), place: Place::here(), locked };
        // The file may belong to an earlier owner.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.set_len(0)?;
        file.write_all(&content(&origin))?;
        Ok(Owner { _file: file, origin })
    }
}

/// The state of the owner of `file`, which must contain only a record.
pub fn status(file: &Path) -> Status {
    match File::open(file) {
        Ok(opened) => status_of(file, opened),
        Err(error) if error.kind() == ErrorKind::NotFound => Status::Unrecorded,
        // Includes a file that belongs to another user.
        Err(_) => Status::Alive(None),
    }
}

fn status_of(file: &Path, mut opened: File) -> Status {
    let mut text = String::new();
    if opened.read_to_string(&mut text).is_err() {
        return Status::Alive(None);
    }
    let origin: Option<Origin> = text.parse().ok();
    if is_alive_with(&opened, origin.as_ref()) {
        return Status::Alive(origin);
    }
    // The owner may have ended and removed its files meanwhile, and a new one may use the same name already.
    if !is_still(file, &opened) {
        return Status::Alive(None);
    }
    origin.map_or(Status::Unrecorded, Status::Dead)
}

/// Whether the path still leads to the opened file.
fn is_still(file: &Path, opened: &File) -> bool {
    let id = |found: io::Result<fs::Metadata>| found.ok().map(|found| (found.dev(), found.ino()));
    let there = id(fs::metadata(file));
    there.is_some() && there == id(opened.metadata())
}

/// Whether the owner of `file` is alive, or not known to be dead; `origin` is its record.
pub fn is_alive(file: &Path, origin: Option<&Origin>) -> bool {
    match File::open(file) {
        Ok(opened) => is_alive_with(&opened, origin),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

fn is_alive_with(opened: &File, origin: Option<&Origin>) -> bool {
    let lock = match opened.try_lock_shared() {
        Ok(()) => Lock::Free,
        Err(TryLockError::WouldBlock) => Lock::Held,
        Err(TryLockError::Error(_)) => Lock::Unknown,
    };
    match origin {
        Some(origin) => origin.is_alive(lock, Place::here().as_ref(), || locks_reach_other_machines(opened)),
        None => lock == Lock::Held,
    }
}

impl Origin {
    /// Whether its process ID is valid in this process's PID namespace.
    pub fn is_here(&self) -> bool {
        self.distance(Place::here().as_ref()) == Distance::SamePidNamespace
    }

    /// Where the owner runs, for messages.
    pub fn machine(&self) -> &str {
        self.place.as_ref().map_or("this machine", |place| &place.machine)
    }

    fn is_alive(&self, lock: Lock, here: Option<&Place>, locks_reach_other_machines: impl FnOnce() -> bool) -> bool {
        let freed = lock == Lock::Free && self.locked;
        match self.distance(here) {
            _ if lock == Lock::Held => true,
            Distance::SamePidNamespace => !freed && self.process.is_alive(),
            Distance::OtherPidNamespace => !freed,
            Distance::EarlierBoot => false,
            Distance::OtherMachine => !(freed && locks_reach_other_machines()),
        }
    }

    /// A record without a place counts as one of this PID namespace, as in older versions.
    fn distance(&self, here: Option<&Place>) -> Distance {
        let (Some(place), Some(here)) = (&self.place, here) else { return Distance::SamePidNamespace };
        match (place.boot_id == here.boot_id, place.pid_namespace == here.pid_namespace) {
            (true, true) => Distance::SamePidNamespace,
            (true, false) => Distance::OtherPidNamespace,
            (false, _) if place.machine == here.machine => Distance::EarlierBoot,
            (false, _) => Distance::OtherMachine,
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.to_string().into_bytes()
    }
}

impl Place {
    /// None without /proc.
    fn here() -> Option<Place> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let pid_namespace = fs::metadata("/proc/self/ns/pid").ok()?.ino();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // A container need not have a machine ID.
        let machine_id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let machine = format!("{host}/{}", machine_id.trim()).split_whitespace().collect();
        Some(Place { boot_id, pid_namespace, machine })
    }
}

/// `PID START`, followed by `BOOT_ID PID_NAMESPACE MACHINE locked|unlocked` if the place is known.
impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.process)?;
        let Some(Place { boot_id, pid_namespace, machine }) = &self.place else { return Ok(()) };
        let locked = if self.locked { "locked" } else { "unlocked" };
        write!(f, " {boot_id} {pid_namespace} {machine} {locked}")
    }
}

impl std::str::FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Origin, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let parse = || match words[..] {
            [pid, started, ref place @ ..] => {
                let process = format!("{pid} {started}").parse().ok()?;
                let (place, locked) = match *place {
                    [] => (None, false),
                    [boot_id, pid_namespace, machine, locked] => {
                        let pid_namespace = pid_namespace.parse().ok()?;
                        let place = Place { boot_id: boot_id.to_owned(), pid_namespace, machine: machine.to_owned() };
                        (Some(place), locked == "locked")
                    }
                    _ => return None,
                };
                Some(Origin { process, place, locked })
            }
            _ => None,
        };
        parse().ok_or_else(|| format!("`{text}` is not an owner record"))
    }
}

/// Opens without truncating: until the file is locked, it may belong to another owner.
fn open(file: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(file)
}

/// Whether a lock that is free here is free on every machine that has mounted the file's file system.
fn locks_reach_other_machines(file: &File) -> bool {
    let (Ok(data), Ok(mounts)) = (file.metadata(), fs::read_to_string("/proc/self/mountinfo")) else { return false };
    !mounts_with_local_locks(&mounts).any(|device| device == data.dev())
}

/// The devices of shared file systems whose locks may be local to this machine: with FUSE and 9p the server decides,
/// and NFS, SMB and Lustre have mount options for it. A file system that no other machine can mount is not among them.
fn mounts_with_local_locks(mounts: &str) -> impl Iterator<Item = u64> {
    const KINDS: [&str; 3] = ["fuse", "virtiofs", "9p"];
    const OPTIONS: [&str; 5] = ["nolock", "local_lock=flock", "local_lock=all", "nobrl", "localflock"];
    mounts.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let (major, minor) = left.split(' ').nth(2)?.split_once(':')?;
        let mut right = right.split(' ');
        let kind = right.next()?.split('.').next()?;
        let options = right.nth(1).unwrap_or_default();
        let is_local = KINDS.contains(&kind) || options.split(',').any(|option| OPTIONS.contains(&option));
        is_local.then_some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    })
}

#[cfg(test)]
mod tests;
