//! Owners in this process, in other processes, and in other PID namespaces.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::Scratch;
use crate::daemon::{Daemon, Spec, tests::spec};
use crate::deadline::tests::wait_for;
use crate::exec::{self, Shell, cmd};
use crate::run_dir::{RunDir, sweep};

/// The cache of [`owns_a_run`].
const CACHE: &str = "ARCHPROOF_TEST_OWNER_CACHE";
const LIMIT: Duration = Duration::from_secs(60);

fn daemon(dir: &Path, command: &[&str]) -> Daemon {
    let env = BTreeMap::from([(CACHE.into(), dir.display().to_string())]);
    Daemon::start(Spec { env, ..spec(dir, command) }).unwrap()
}

fn place(boot_id: &str, pid_namespace: u64, machine: &str) -> Place {
    Place { boot_id: boot_id.into(), pid_namespace, machine: machine.into() }
}

#[test]
fn records_of_this_version_and_older_versions_are_parsed() {
    let process = Identity { pid: 7, started: 9 };
    let here = Origin { process, place: Some(place("b-1", 4, "host/id")), locked: true };
    assert_eq!(here.to_string(), "7 9 b-1 4 host/id locked");
    assert_eq!(here.to_string().parse(), Ok(here.clone()));
    let unlocked = Origin { locked: false, ..here };
    assert_eq!(unlocked.to_string().parse(), Ok(unlocked));
    assert_eq!("7 9\n".parse(), Ok(Origin { process, place: None, locked: false }));
    for damaged in ["", "7", "7 9 b-1", "7 9 b-1 x host/id locked", "7 9 b-1 4 host/id locked more"] {
        assert!(damaged.parse::<Origin>().is_err(), "{damaged}");
    }
}

#[test]
fn owner_elsewhere_is_dead_only_if_known_to_be_dead() {
    let here = place("boot", 1, "host/id");
    let (living, gone) = (Identity::me(), Identity { started: Identity::me().started + 1, ..Identity::me() });
    let free = (Lock::Free, true);
    let unlocked = (Lock::Free, false);
    let unknown = (Lock::Unknown, false);
    // Whether locks reach other machines matters only for an owner on another machine.
    for (process, place, (lock, locked), reach, alive) in [
        (gone, &here, (Lock::Held, true), true, true),
        (living, &here, free, true, false),
        (living, &here, unlocked, true, true),
        (gone, &here, unlocked, true, false),
        (living, &here, unknown, true, true),
        (gone, &here, unknown, true, false),
        (gone, &place("boot", 2, "host/id"), (Lock::Held, true), true, true),
        (gone, &place("boot", 2, "host/id"), free, false, false),
        (gone, &place("boot", 2, "host/id"), unlocked, true, true),
        (gone, &place("boot", 2, "host/id"), unknown, true, true),
        (living, &place("earlier", 1, "host/id"), free, false, false),
        (living, &place("earlier", 1, "host/id"), unknown, false, false),
        (gone, &place("other", 1, "other/id"), (Lock::Held, true), false, true),
        (gone, &place("other", 1, "other/id"), free, true, false),
        (gone, &place("other", 1, "other/id"), free, false, true),
        (gone, &place("other", 1, "other/id"), unlocked, true, true),
        (gone, &place("other", 1, "other/id"), unknown, true, true),
    ] {
        let origin = Origin { process, place: Some(place.clone()), locked };
        assert_eq!(origin.is_alive(lock, Some(&here), || reach), alive, "{origin:?}, {lock:?}, {reach}");
    }
}

#[test]
fn mounts_with_local_locks_are_found() {
    let mounts = "22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                  30 22 0:40 / /a rw - nfs4 server:/a rw,vers=4.2,local_lock=none,addr=10.0.0.1\n\
                  31 22 0:41 / /b rw - nfs server:/b rw,vers=3,nolock,local_lock=all,addr=10.0.0.1\n\
                  32 22 0:42 / /c rw master:2 - fuse.sshfs server: rw,user_id=0\n\
                  33 22 0:43 / /d rw - virtiofs home rw\n\
                  34 22 0:44 / /e rw - cifs //server/e rw,nobrl\n";
    let found: Vec<u32> = mounts_with_local_locks(mounts).map(rustix::fs::minor).collect();
    assert_eq!(found, [41, 42, 43, 44]);
}

#[test]
fn only_one_owner_has_a_file_at_a_time() {
    let dir = Scratch::temporary("claim").unwrap();
    let file = dir.path().join("owner");
    assert_eq!(status(&file), Status::Unrecorded);
    let owner = Owner::try_create(&file).unwrap().unwrap();
    assert!(owner.origin().is_here());
    assert_eq!(status(&file), Status::Alive(Some(owner.origin().clone())));
    assert!(Owner::try_create(&file).unwrap().is_none());
    let origin = owner.origin().clone();
    drop(owner);
    assert_eq!(status(&file), Status::Dead(origin));
    assert!(Owner::try_create(&file).unwrap().is_some());
}

#[test]
fn owner_that_has_not_written_its_record_is_alive() {
    let dir = Scratch::temporary("unwritten").unwrap();
    let path = dir.path().join("owner");
    let file = File::create_new(&path).unwrap();
    assert_eq!(status(&path), Status::Unrecorded);
    file.lock().unwrap();
    assert_eq!(status(&path), Status::Alive(None));
}

/// A sweep that read the record of an ended run must not remove the run that has the same name now.
#[test]
fn file_that_was_replaced_since_it_was_opened_is_not_dead() {
    let dir = Scratch::temporary("replaced").unwrap();
    let file = dir.path().join("owner");
    let first = Owner::create(&file, Origin::to_bytes).unwrap();
    let opened = || File::open(&file).unwrap();
    let (removed, replaced) = (opened(), opened());
    fs::remove_file(&file).unwrap();
    drop(first);
    assert_eq!(status_of(&file, removed), Status::Alive(None));
    let _second = Owner::create(&file, Origin::to_bytes).unwrap();
    assert_eq!(status_of(&file, replaced), Status::Alive(None));
}

#[test]
fn child_process_does_not_inherit_the_lock() {
    let dir = Scratch::temporary("inherit").unwrap();
    let file = dir.path().join("owner");
    let owner = Owner::create(&file, Origin::to_bytes).unwrap();
    let mut child = daemon(dir.path(), &["/bin/sleep", "600"]);
    drop(owner);
    assert!(matches!(status(&file), Status::Dead(_)), "{:?}", status(&file));
    assert!(child.ended().is_none());
}

/// The process that other tests start. Without the variable it does nothing.
#[test]
fn owns_a_run() {
    let Some(cache) = std::env::var_os(CACHE).map(PathBuf::from) else { return };
    let run = RunDir::create(&cache.join("reports"), &cache, "other").unwrap();
    fs::write(cache.join("private"), run.private().as_os_str().as_encoded_bytes()).unwrap();
    fs::rename(cache.join("private"), cache.join("ready")).unwrap();
    crate::deadline::pause(LIMIT);
}

/// Sweeping keeps the run of another live process, and removes it after that process was killed.
fn run_lives_as_long_as_its_process(name: &str, prefix: &[&str]) {
    let scratch = Scratch::temporary(name).unwrap();
    let dir = scratch.path();
    let program = std::env::current_exe().unwrap();
    let program = [program.to_str().unwrap(), "--exact", "owner::tests::owns_a_run"];
    let mut other = daemon(dir, &[prefix, &program].concat());
    wait_for("the other run", || {
        assert!(other.ended().is_none(), "{}", crate::daemon::tail(&dir.join("log"), 20));
        dir.join("ready").exists()
    });
    let private = PathBuf::from(fs::read_to_string(dir.join("ready")).unwrap());
    sweep(dir);
    assert!(private.exists(), "sweep removed the folder of a live run");
    other.kill();
    wait_for("the removal of the other run's folder", || {
        sweep(dir);
        !private.exists()
    });
}

#[test]
fn run_of_another_process_is_swept_only_after_its_end() {
    run_lives_as_long_as_its_process("process", &[]);
}

#[test]
fn run_in_another_pid_namespace_is_swept_only_after_its_end() {
    let mut flags = vec!["--pid", "--fork", "--kill-child", "--mount-proc"];
    if !rustix::process::geteuid().is_root() {
        flags.extend(["--user", "--map-root-user"]);
    }
    let (sh, words) = (Shell::new().unwrap(), &flags);
    // Not every user may create a namespace.
    if exec::run(cmd!(sh, "unshare {words...} true"), LIMIT).is_ok() {
        let program = exec::find("unshare").unwrap();
        run_lives_as_long_as_its_process("namespace", &[&[program.to_str().unwrap()], &flags[..]].concat());
    }
}
