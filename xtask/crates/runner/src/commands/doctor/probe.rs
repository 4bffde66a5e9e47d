//! Collects facts about the machine that only matter for a runner.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use sys::exec::{self, Shell, cmd};

/// Deadline for a program that prints its version. A slow board needs seconds to load Node.js from its card.
const ANSWER: Duration = Duration::from_secs(15);
/// If the service exists, it is one hop away. The kernel repeats a lost request after a second.
const METADATA_LIMIT: Duration = Duration::from_secs(2);
/// CAP_SYS_MODULE, see capability.h.
const SYS_MODULE: u32 = 16;

/// The output of a dry run.
pub(super) const LOOKS: &str = "\
everything that `cargo xtask doctor --offline` checks
uname -m, and the user
/proc/self/uid_map, /proc/self/status, /proc/filesystems, /proc/sys/user/max_user_namespaces
/sys/fs/cgroup/cgroup.controllers
/.dockerenv, /run/.containerenv, /dev/lxd; systemd-detect-virt --container
node --version
a connection to 169.254.169.254:80, without a request
";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// As `uname -m` prints it.
    pub(super) machine: String,
    pub(super) root: bool,
    /// The kind of container.
    pub(super) container: Option<String>,
    /// In a user namespace: root here is another user outside.
    pub(super) unprivileged: bool,
    pub(super) cgroup2: bool,
    /// Whether unprivileged users can create namespaces.
    pub(super) namespaces: bool,
    pub(super) overlay: bool,
    /// Whether this process can load kernel modules.
    pub(super) modules: bool,
    pub(super) node: Option<String>,
    /// Whether the metadata service of a cloud answers.
    pub(super) metadata: bool,
}

pub(super) fn look() -> Seen {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    Seen {
        machine: rustix::system::uname().machine().to_string_lossy().into_owned(),
        root: rustix::process::geteuid().is_root(),
        container: container(),
        unprivileged: is_mapped(&text("/proc/self/uid_map")),
        cgroup2: has_controllers(&text("/sys/fs/cgroup/cgroup.controllers")),
        namespaces: text("/proc/sys/user/max_user_namespaces").trim().parse::<u64>().is_ok_and(|count| count > 0),
        overlay: text("/proc/filesystems").lines().any(|line| line.split_whitespace().last() == Some("overlay")),
        modules: may_load_modules(&text("/proc/self/status")),
        node: answer("node", "--version"),
        metadata: TcpStream::connect_timeout(&SocketAddr::from(([169, 254, 169, 254], 80)), METADATA_LIMIT).is_ok(),
    }
}

fn container() -> Option<String> {
    let detected = answer("systemd-detect-virt", "--container").filter(|name| name != "none");
    let marks = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman"), ("/dev/lxd", "lxd")];
    let marked = marks.iter().find(|(path, _)| Path::new(path).exists()).map(|(_, name)| (*name).to_owned());
    detected.or(marked)
}

/// The output of a program; `None` if it is missing or fails.
fn answer(program: &str, argument: &str) -> Option<String> {
    let program = exec::find(program)?;
    let shell = Shell::new().ok()?;
    let output = exec::run(cmd!(shell, "{program} {argument}"), ANSWER).ok()?;
    Some(output.stdout.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Whether user ids in this namespace differ from those outside.
fn is_mapped(uid_map: &str) -> bool {
    let fields: Vec<&str> = uid_map.split_whitespace().collect();
    !fields.is_empty() && fields != ["0", "0", "4294967295"]
}

fn has_controllers(text: &str) -> bool {
    ["cpu", "memory", "pids"].iter().all(|name| text.split_whitespace().any(|word| word == *name))
}

fn may_load_modules(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).is_some_and(|set| set & (1 << SYS_MODULE) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_parsed() {
        for (map, mapped) in [
            ("         0          0 4294967295\n", false),
            ("         0     100000      65536\n", true),
            ("0 0 1000\n1000 101000 64536\n", true),
            ("", false),
        ] {
            assert_eq!(is_mapped(map), mapped, "{map:?}");
        }
        for (text, good) in [("cpuset cpu io memory hugetlb pids\n", true), ("cpuset memory\n", false), ("", false)] {
            assert_eq!(has_controllers(text), good, "{text:?}");
        }
        for (status, may) in [
            ("Name:\tx\nCapEff:\t000001ffffffffff\n", true),
            ("CapEff:\t0000000000000000\n", false),
            ("CapEff:\t00000000a80425fb\n", false),
            ("CapEff:\tmany\n", false),
            ("", false),
        ] {
            assert_eq!(may_load_modules(status), may, "{status:?}");
        }
    }
}
