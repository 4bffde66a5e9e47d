//! One thread that starts all children, because a child's death signal depends on the thread that forked it.
//!
//! PR_SET_PDEATHSIG fires when the parent *thread* ends (prctl(2)): a child started from a worker of a thread pool
//! would be killed whenever the pool retires that worker. This thread lives as long as the process.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

type Request = (Command, Sender<io::Result<Child>>);

/// Starts `command` in its own process group. The kernel kills it when this process ends, also after a crash.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        std::thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                for (mut command, answer) in requests {
                    // The requesting thread may be gone. Then the child is dropped with the answer and no code
                    // registers its group, but it still dies with this process.
                    drop(answer.send(command.spawn()));
                }
            })
            .expect("the first thread of the process can be created");
        sender
    });
    command.process_group(0);
    die_with_parent(&mut command);
    let (answer, answers) = channel();
    spawner.send((command, answer)).map_err(|_| io::Error::other("the spawner thread has ended"))?;
    answers.recv().map_err(|_| io::Error::other("the spawner thread has ended"))?
}

/// Like [`spawn`], in the control group whose `cgroup.procs` was opened.
pub(crate) fn spawn_into(mut command: Command, group: File) -> io::Result<Child> {
    enter(&mut command, group);
    spawn(command)
}

#[expect(unsafe_code, reason = "pre_exec is unsafe; the closure makes one system call and allocates nothing")]
fn enter(command: &mut Command, mut group: File) {
    // SAFETY: async-signal-safe: a write of a constant to a descriptor that is open, no allocation, no lock.
    unsafe { command.pre_exec(move || group.write_all(b"0")) };
}

#[expect(unsafe_code, reason = "pre_exec is unsafe; the closure makes two system calls and allocates nothing")]
fn die_with_parent(command: &mut Command) {
    let parent: Pid = getpid();
    let hook = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died between fork and prctl; then the signal never arrives.
        if getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()));
        }
        Ok(())
    };
    // SAFETY: async-signal-safe: prctl and getppid only, no allocation, no lock.
    unsafe { command.pre_exec(hook) };
}
