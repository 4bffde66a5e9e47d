//! A control group (cgroup v2) below the harness's own group, for processes that must end together.
//!
//! `setsid` leaves a process group, and a double fork leaves the process tree. A process leaves a control group only by
//! a write that the kernel checks. The code changes only the new group: no mount, no controller, no other group.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

/// A control group that this process created. Dropping it kills its processes and removes it.
#[derive(Debug)]
pub(crate) struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// None: the machine has no cgroup v2 with `cgroup.kill` (Linux 5.14), or has not delegated the harness's own group to
    /// this user.
    pub(crate) fn below_own(name: &str) -> Option<Cgroup> {
        let text = |file| fs::read_to_string(file).ok();
        let own = own_dir(&text("/proc/self/mountinfo")?, &text("/proc/self/cgroup")?)?;
        // The kernel moves a process only if the mover may also write to `cgroup.procs` of the common ancestor.
        entrance(&own).ok()?;
        let dir = own.join(name);
        fs::create_dir(&dir).ok()?;
        let group = Cgroup { dir };
        (group.dir.join("cgroup.kill").exists() && entrance(&group.dir).is_ok()).then_some(group)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        kill(&self.dir);
        remove(&self.dir);
    }
}

/// The file to which a process writes `0` to enter the group.
pub(crate) fn entrance(dir: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).open(dir.join("cgroup.procs"))
}

/// SIGKILL to every process in the group and below. No error if the group is gone.
pub(crate) fn kill(dir: &Path) {
    let _ = fs::write(dir.join("cgroup.kill"), "1");
}

/// Removes the group and the groups that its processes created below it. All of them must be empty.
pub(crate) fn remove(dir: &Path) {
    for below in fs::read_dir(dir).into_iter().flatten().flatten() {
        if below.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&below.path());
        }
    }
    // A group that still has an exiting process stays behind; it is empty soon.
    let _ = fs::remove_dir(dir);
}

/// The folder of this process's own group, from `/proc/self/mountinfo` and `/proc/self/cgroup`.
fn own_dir(mounts: &str, groups: &str) -> Option<PathBuf> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        if right.split(' ').next()? != "cgroup2" {
            return None;
        }
        // `ID PARENT MAJOR:MINOR ROOT POINT …`: the mount may show only a part of the tree.
        let mut fields = left.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = Path::new(own).strip_prefix(root).ok()?;
        Some(Path::new(point).join(below))
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::deadline::tests::wait_for;
    use crate::spawner;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
    fn kill_ends_processes_that_called_setsid() {
        // Not every machine delegates its groups.
        let Some(group) = Cgroup::below_own(&format!("archproof-test-{}", std::process::id())) else { return };
        let dir = group.path().to_owned();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "setsid sleep 1000 & exec sleep 1001"]);
        let mut child = spawner::spawn_into(command, entrance(&dir).unwrap()).unwrap();
        let inside = || fs::read_to_string(dir.join("cgroup.procs")).unwrap().lines().count();
        wait_for("both processes", || inside() == 2);
        kill(&dir);
        child.wait().unwrap();
        wait_for("the end of both", || inside() == 0);
        drop(group);
        assert!(!dir.exists());
    }

    const MOUNTS: &str = "\
24 1 0:22 / /proc rw - proc proc rw
30 24 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw
";

    #[test]
    fn own_group_is_found_below_any_mount() {
        let part = MOUNTS.replace(" / /sys/fs/cgroup/unified", " /docker/ab /sys/fs/cgroup");
        for (mounts, groups, expected) in [
            (MOUNTS, "2:cpu:/\n0::/user.slice/a.scope\n", Some("/sys/fs/cgroup/unified/user.slice/a.scope")),
            (MOUNTS, "0::/\n", Some("/sys/fs/cgroup/unified/")),
            (part.as_str(), "0::/docker/ab/x\n", Some("/sys/fs/cgroup/x")),
            (part.as_str(), "0::/elsewhere\n", None),
            (MOUNTS, "2:cpu:/\n", None),
            ("24 1 0:22 / /proc rw - proc proc rw\n", "0::/\n", None),
        ] {
            assert_eq!(own_dir(mounts, groups).as_deref(), expected.map(Path::new), "{groups}");
        }
    }
}
